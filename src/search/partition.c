#include "search/partition.h"

#include "search/pipeline.h"

#include <math.h>
#include <string.h>

static const int64_t EVALUATIONS = 20000;

typedef struct finder {
  const mt_partition_request *request;
  mt_search_pipeline *pipeline;
  int32_t stages;
  double *work, *head, *tail; /* [layers + 1] sums before a layer: all microbatches; one forward; one backward */
  double path;                /* a microbatch's way back */
  int32_t *rank;              /* [stages] */
  double *load;               /* [ranks] room of order_bound() */
  int64_t *bytes;             /* [ranks] room of excess() */
  int64_t *fixed, *saved;     /* [layers + 1] bytes before a layer */
  int32_t *need;              /* [layers + 1] stages that what follows takes at least to stay below the best */
  int32_t *trial, *best, *champion; /* champion: the best of all starts */
  double best_seconds, champion_seconds;
  int64_t left;  /* evaluations */
  int64_t nodes; /* and places of boundaries looked at */
} finder;

/* After the last backward of a stage that begins there. Weight gradients may be done meanwhile. */
static double way_back(const finder *f, int32_t begin) { return f->request->weight == NULL ? f->tail[begin] : 0.0; }

/* Seconds that the stage of layers [begin, end) forces on the step: its work, and the way of one microbatch to it
 * and back. A rank's first chunk alone has nothing of its own before it. */
static double forced(const finder *f, int32_t stage, int32_t begin, int32_t end) {
  const mt_partition_request *r = f->request;
  double work = f->work[end] - f->work[begin];
  if (r->chunks > 1) return work;
  bool back = r->weight == NULL && end > r->first_trainable && begin > r->first_trainable;
  return work + f->head[begin] + way_back(f, begin) + stage * r->lag * (back ? 2 : 1);
}

static int32_t rank_of(const mt_partition_request *r, int32_t stage) {
  int32_t chunk = stage / r->ranks, slot = stage % r->ranks;
  return r->folded && chunk % 2 == 1 ? r->ranks - 1 - slot : slot;
}

/* Microbatches of a stage that its rank holds at once. */
static int64_t held(const finder *f, int32_t stage) {
  return f->request->held > 0 ? f->request->held : mt_search_pipeline_held(f->pipeline, stage);
}

/* No order of the partition is faster: ranks' work behind the way to their first chunks, the way back, and the way
 * of one microbatch. Where that is @p limit or more, some of it that is. */
static double order_bound(finder *f, const int32_t *split, double limit) {
  const mt_partition_request *r = f->request;
  double most = f->head[r->layers] + f->path;
  for (int32_t rank = 0; rank < r->ranks; rank++) f->load[rank] = 0.0;
  for (int32_t s = 0, begin = 0; s < f->stages; begin += split[s++]) {
    int32_t end = begin + split[s];
    double *load = &f->load[f->rank[s]];
    if (s < r->ranks) *load += f->head[begin] + way_back(f, begin);
    *load += f->work[end] - f->work[begin];
    if (*load > most) most = *load;
    if (most >= limit) break;
  }
  return most;
}

/* Whether a stage of these layers alone keeps the memory while it holds @p open microbatches. */
static bool keeps(const finder *f, int32_t begin, int32_t end, int64_t open) {
  if (f->request->memory_bytes <= 0) return true;
  return f->fixed[end] - f->fixed[begin] + open * (f->saved[end] - f->saved[begin]) <= f->request->memory_bytes;
}

/* Bytes by which a rank exceeds the memory. */
static int64_t excess(const finder *f, const int32_t *split) {
  const mt_partition_request *r = f->request;
  if (r->memory_bytes <= 0) return 0;
  int64_t most = 0;
  for (int32_t rank = 0; rank < r->ranks; rank++) f->bytes[rank] = -r->memory_bytes;
  for (int32_t s = 0, begin = 0; s < f->stages; begin += split[s++]) {
    int64_t *bytes = &f->bytes[f->rank[s]];
    int32_t end = begin + split[s];
    *bytes += f->fixed[end] - f->fixed[begin] + held(f, s) * (f->saved[end] - f->saved[begin]);
    if (*bytes > most) most = *bytes;
  }
  return most;
}

/* The simulated time, infinite where it is @p limit or more; of an open order the bound. */
static double evaluate(finder *f, const int32_t *split, double limit) {
  const mt_partition_request *r = f->request;
  if (r->held > 0) return order_bound(f, split, INFINITY);
  double *forward = mt_search_pipeline_forward(f->pipeline), *backward = mt_search_pipeline_backward(f->pipeline);
  int32_t layer = 0;
  for (int32_t s = 0; s < f->stages; s++) {
    forward[s] = backward[s] = 0.0;
    int32_t end = layer + split[s];
    for (; layer < end; layer++) {
      forward[s] += r->forward[layer];
      backward[s] += r->backward[layer];
    }
    mt_search_pipeline_trains(f->pipeline, s, end > r->first_trainable);
  }
  return mt_search_pipeline_run(f->pipeline, r->lag, limit);
}

/* Stages that layers from each one on take at least if every stage is to force less than @p limit: a stage takes as
 * many layers as it may, for one that begins later never forces more. */
static void set_needs(finder *f, double limit) {
  int32_t layers = f->request->layers, end = layers;
  f->need[layers] = 0;
  for (int32_t l = layers; l-- > 0;) {
    while (end > l && !(forced(f, 0, l, end) < limit && keeps(f, l, end, 1))) end--;
    f->need[l] = end == l ? INT32_MAX / 2 : 1 + f->need[end];
  }
}

static void keep(finder *f, double seconds) {
  f->best_seconds = seconds;
  memcpy(f->best, f->trial, (size_t)f->stages * sizeof *f->best);
}

static bool try_trial(finder *f) {
  double limit = f->best_seconds * (1.0 - 1e-12);
  /* The bound's sums may differ from the recurrence's in the last digits. */
  double slow = limit * (1.0 + 1e-12);
  if (order_bound(f, f->trial, slow) >= slow || excess(f, f->trial) > 0) return false;
  f->left--;
  double seconds = evaluate(f, f->trial, limit);
  if (!(seconds < limit)) return false;
  keep(f, seconds);
  return true;
}

/* The partition whose stages all force at most @p limit, filled from the front or the back. */
static bool fill_trial(finder *f, double limit) {
  int32_t layer = 0, layers = f->request->layers;
  for (int32_t s = 0; s < f->stages; s++) {
    int32_t behind = (f->stages - 1 - s) * f->request->least, end = layers - behind;
    int32_t from = layer + f->request->least;
    while (end > from && forced(f, 0, layer, end) > limit) end--;
    if (s == f->stages - 1) end = layers;
    f->trial[s] = end - layer;
    if (f->trial[s] < 0 || forced(f, 0, layer, end) > limit) return false;
    layer = end;
  }
  return layer == layers;
}

/* The least limit that some partition keeps. */
static double least_limit(finder *f) {
  double low = 0.0, high = f->work[f->request->layers] + f->head[f->request->layers] + f->tail[f->request->layers];
  for (int i = 0; i < 60; i++) {
    double middle = 0.5 * (low + high);
    set_needs(f, middle);
    if (f->need[0] <= f->stages)
      high = middle;
    else
      low = middle;
  }
  return low;
}

/* Moves of a layer over a boundary, or over two of them, as long as one helps. */
static void climb(finder *f) {
  int32_t least = f->request->least;
  for (bool better = true; better && f->left > 0;) {
    better = false;
    for (int32_t from = 0; from < f->stages && f->left > 0; from++)
      for (int32_t to = 0; to < f->stages && f->left > 0; to++) {
        memcpy(f->trial, f->best, (size_t)f->stages * sizeof *f->trial);
        if (from == to || f->trial[from] <= least) continue;
        f->trial[from]--;
        f->trial[to]++;
        better |= try_trial(f);
      }
  }
}

/* All partitions, stage by stage, that the bound does not exclude. False: effort ran out. */
static bool enumerate(finder *f, int32_t stage, int32_t layer) {
  const mt_partition_request *r = f->request;
  if (stage == f->stages - 1) {
    f->trial[stage] = r->layers - layer;
    if (f->trial[stage] < r->least || !(forced(f, stage, layer, r->layers) < f->best_seconds)) return true;
    if (f->left <= 0) return false;
    if (try_trial(f)) set_needs(f, f->best_seconds);
    return true;
  }
  for (int32_t end = layer + r->least; end <= r->layers; end++) {
    if (!(forced(f, stage, layer, end) < f->best_seconds)) break;
    if (!keeps(f, layer, end, held(f, stage))) break;
    if (f->need[end] > f->stages - 1 - stage) continue;
    f->trial[stage] = end - layer;
    if (f->nodes-- <= 0) return false;
    if (!enumerate(f, stage + 1, end)) return false;
  }
  return true;
}

static motet_status check(const mt_partition_request *r, motet_error *error) {
  int64_t stages = (int64_t)r->ranks * r->chunks;
  if (r->layers < 1 || r->ranks < 1 || r->chunks < 1 || r->microbatches < 1)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT,
                        "a partition of %d layers over %d ranks, %d chunks each, %d microbatches: all must be 1 or "
                        "more",
                        r->layers, r->ranks, r->chunks, r->microbatches);
  if (stages * r->microbatches > 1 << 22)
    return mt_error_set(error, MOTET_ERROR_LIMIT, "a partition over %lld stages with %d microbatches is too large",
                        (long long)stages, r->microbatches);
  for (int32_t l = 0; l < r->layers; l++)
    if (!(r->forward[l] >= 0.0) || !(r->backward[l] >= 0.0) || isinf(r->forward[l]) || isinf(r->backward[l]))
      return mt_error_set(error, MOTET_ERROR_ARGUMENT,
                          "layer %d takes %g and %g seconds; times are finite, not "
                          "negative",
                          l, r->forward[l], r->backward[l]);
  return MOTET_OK;
}

static motet_status open_finder(mt_arena *arena, const mt_partition_request *r, motet_error *error, finder *f) {
  motet_status status = check(r, error);
  if (status != MOTET_OK) return status;
  int32_t stages = r->ranks * r->chunks;
  *f = (finder){.request = r,
                .stages = stages,
                .work = MT_ARENA_NEW(arena, double, r->layers + 1),
                .head = MT_ARENA_NEW(arena, double, r->layers + 1),
                .tail = MT_ARENA_NEW(arena, double, r->layers + 1),
                .fixed = MT_ARENA_NEW(arena, int64_t, r->layers + 1),
                .saved = MT_ARENA_NEW(arena, int64_t, r->layers + 1),
                .need = MT_ARENA_NEW(arena, int32_t, r->layers + 1),
                .rank = MT_ARENA_NEW(arena, int32_t, stages),
                .load = MT_ARENA_NEW(arena, double, r->ranks),
                .bytes = MT_ARENA_NEW(arena, int64_t, r->ranks),
                .trial = MT_ARENA_NEW(arena, int32_t, stages),
                .best = MT_ARENA_NEW(arena, int32_t, stages),
                .champion = MT_ARENA_NEW(arena, int32_t, stages),
                .best_seconds = INFINITY,
                .champion_seconds = INFINITY,
                .left = r->evaluations > 0 ? r->evaluations : EVALUATIONS};
  if (f->work == NULL || f->head == NULL || f->tail == NULL || f->need == NULL || f->fixed == NULL ||
      f->saved == NULL || f->rank == NULL || f->load == NULL || f->bytes == NULL || f->trial == NULL ||
      f->best == NULL || f->champion == NULL)
    return mt_error_memory(error, (unsigned long long)r->layers * 32, "a partition");
  for (int32_t l = 0; l < r->layers; l++) {
    f->work[l + 1] = f->work[l] + r->microbatches * (r->forward[l] + r->backward[l]);
    f->fixed[l + 1] = f->fixed[l] + (r->static_bytes != NULL ? r->static_bytes[l] : 0);
    f->saved[l + 1] = f->saved[l] + (r->saved_bytes != NULL ? r->saved_bytes[l] : 0);
    f->head[l + 1] = f->head[l] + r->forward[l];
    f->tail[l + 1] = f->tail[l] + r->backward[l];
    f->path += r->backward[l] - (r->weight != NULL ? r->weight[l] : 0.0);
  }
  for (int32_t s = 0; s < stages; s++) f->rank[s] = rank_of(r, s);
  if (r->held > 0) return MOTET_OK;
  return mt_search_pipeline_create(arena, r->ranks, r->chunks, r->microbatches, error, &f->pipeline);
}

/* Climbs from the partition on trial; what is better than all before becomes the champion. */
static void start(finder *f) {
  f->best_seconds = INFINITY;
  if (!try_trial(f)) return;
  climb(f);
  if (!(f->best_seconds < f->champion_seconds)) return;
  f->champion_seconds = f->best_seconds;
  memcpy(f->champion, f->best, (size_t)f->stages * sizeof *f->champion);
}

/* Starts from the even partition, from that of the least limit, and from filling by ever more than it: a climb ends
 * at the next local optimum, and there are many. Half of the effort is left for the proof. */
static void search_from_starts(finder *f, double limit) {
  enum { STARTS = 24 };
  int64_t half = f->left / 2;
  for (int i = 0; i < STARTS && f->left > half; i++)
    if (fill_trial(f, limit * (1.0 + 1e-9 + 0.01 * i))) start(f);
  for (int32_t s = 0; s < f->stages; s++)
    f->trial[s] = f->request->layers / f->stages + (s < f->request->layers % f->stages);
  if (f->request->layers >= f->stages * f->request->least) start(f);
  f->best_seconds = f->champion_seconds;
  if (!isinf(f->best_seconds)) memcpy(f->best, f->champion, (size_t)f->stages * sizeof *f->best);
}

motet_status mt_partition_find(mt_arena *arena, const mt_partition_request *request, motet_error *error,
                               mt_partition *partition) {
  finder f;
  motet_status status = open_finder(arena, request, error, &f);
  if (status != MOTET_OK) return status;
  if ((int64_t)request->least * f.stages > request->layers)
    return mt_error_set(error, MOTET_ERROR_ILLEGAL, "%d layers do not give each of %d stages %d", request->layers,
                        f.stages, request->least);
  f.nodes = 64 * f.left;
  double limit = least_limit(&f);
  search_from_starts(&f, limit);
  if (isinf(f.best_seconds)) memcpy(f.best, f.trial, (size_t)f.stages * sizeof *f.best);
  double all = f.work[request->layers] / request->ranks;
  partition->bound = fmax(limit, all);
  set_needs(&f, f.best_seconds);
  /* Of interleaved chunks the bound says too little to see all that it leaves; of open orders the bound is all. */
  partition->proven = request->chunks == 1 && request->held == 0 && enumerate(&f, 0, 0);
  if (isinf(f.best_seconds))
    return mt_error_set(
        error, MOTET_ERROR_ILLEGAL,
        "no partition of %d layers over %d ranks keeps %lld bytes: the even one exceeds them by %lld",
        request->layers, request->ranks, (long long)request->memory_bytes, (long long)excess(&f, f.best));
  if (partition->proven) partition->bound = f.best_seconds;
  if (partition->bound > f.best_seconds) partition->bound = f.best_seconds;
  partition->split = f.best;
  partition->seconds = f.best_seconds;
  return MOTET_OK;
}

motet_status mt_partition_seconds(mt_arena *arena, const mt_partition_request *request, const int32_t *split,
                                  motet_error *error, double *seconds) {
  finder f;
  motet_status status = open_finder(arena, request, error, &f);
  if (status == MOTET_OK) *seconds = evaluate(&f, split, INFINITY);
  return status;
}
