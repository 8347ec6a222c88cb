#include "search/reorder.h"

#include "base/random.h"
#include "search/pipeline.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const int64_t EVALUATIONS = 4000;

typedef struct sorter {
  const mt_reorder_request *request;
  mt_search_pipeline *pipeline;
  int32_t *trial;
} sorter;

typedef struct by_size {
  double seconds;
  int32_t microbatch;
} by_size;

static int compare_sizes(const void *left, const void *right) {
  const by_size *a = left, *b = right;
  if (a->seconds != b->seconds) return a->seconds < b->seconds ? -1 : 1;
  return (a->microbatch > b->microbatch) - (a->microbatch < b->microbatch);
}

static double run(const sorter *s, const int32_t *order) {
  return mt_search_pipeline_run_order(s->pipeline, s->request->forward, s->request->backward, order,
                                      s->request->lag);
}

static void shuffle(const mt_reorder_request *r, int32_t *order) {
  mt_random random = mt_random_stream(r->seed, "reorder");
  for (int32_t i = r->microbatches; i-- > 1;) {
    int32_t other = (int32_t)mt_random_below(&random, (uint64_t)i + 1), kept = order[i];
    order[i] = order[other];
    order[other] = kept;
  }
}

/* How long the other stages are busy with a microbatch in the steady state. */
static double interval_of(const mt_reorder_request *r, int32_t microbatch) {
  double longest = 0.0;
  for (int32_t rank = 1; rank < r->ranks; rank++) {
    int64_t at = (int64_t)rank * r->microbatches + microbatch;
    longest = fmax(longest, r->forward[at] + r->backward[at]);
  }
  return longest;
}

static motet_status by_disttrain(mt_arena *arena, const mt_reorder_request *r, motet_error *error, int32_t *order) {
  int32_t count = r->microbatches, tail = r->ranks - 1 < count - 1 ? r->ranks - 1 : count - 1;
  by_size *sizes = MT_ARENA_NEW(arena, by_size, count);
  bool *taken = MT_ARENA_NEW(arena, bool, count);
  if (sizes == NULL || taken == NULL) return mt_error_memory(error, (size_t)count * sizeof *sizes, "microbatches");
  for (int32_t m = 0; m < count; m++) {
    sizes[m] = (by_size){0.0, m};
    for (int32_t rank = 0; rank < r->ranks; rank++)
      sizes[m].seconds += r->forward[(int64_t)rank * count + m] + r->backward[(int64_t)rank * count + m];
  }
  qsort(sizes, (size_t)count, sizeof *sizes, compare_sizes);
  order[0] = sizes[0].microbatch;
  taken[0] = true;
  for (int32_t i = 0; i < tail; i++) {
    order[count - 1 - i] = sizes[1 + i].microbatch;
    taken[1 + i] = true;
  }
  for (int32_t at = 1; at < count - tail; at++) {
    double interval = interval_of(r, order[at - 1]);
    int32_t best = -1;
    for (int32_t i = 0; i < count; i++) {
      if (taken[i]) continue;
      int32_t m = sizes[i].microbatch;
      bool fits = r->forward[m] + r->backward[m] <= interval;
      if (best < 0 || fits) best = i; /* sizes ascend: the last that fits fills the interval most */
    }
    order[at] = sizes[best].microbatch;
    taken[best] = true;
  }
  return MOTET_OK;
}

/* Takes the microbatch at @p from out and puts it in at @p to. */
static void move(int32_t *order, int32_t from, int32_t to) {
  int32_t kept = order[from];
  if (from < to)
    memmove(order + from, order + from + 1, (size_t)(to - from) * sizeof *order);
  else
    memmove(order + to + 1, order + to, (size_t)(from - to) * sizeof *order);
  order[to] = kept;
}

static void climb(sorter *s, int32_t *order, double *seconds) {
  const mt_reorder_request *r = s->request;
  size_t bytes = (size_t)r->microbatches * sizeof *order;
  int64_t left = r->evaluations > 0 ? r->evaluations : EVALUATIONS;
  for (bool better = true; better && left > 0;) {
    better = false;
    for (int32_t a = 0; a < r->microbatches && left > 0; a++)
      for (int32_t b = 0; b < r->microbatches && left > 0; b++) {
        for (int kind = 0; kind < 2 && a != b; kind++, left--) {
          if (kind == 0 && a > b) continue; /* an exchange is the same both ways */
          memcpy(s->trial, order, bytes);
          if (kind == 1) move(s->trial, a, b);
          if (kind == 0) s->trial[a] = order[b], s->trial[b] = order[a];
          double now = run(s, s->trial);
          if (!(now < *seconds * (1.0 - 1e-12))) continue;
          *seconds = now;
          memcpy(order, s->trial, bytes);
          better = true;
        }
      }
  }
}

motet_status mt_reorder(mt_arena *arena, const mt_reorder_request *request, mt_reorder_rule rule,
                        motet_error *error, int32_t *order, double *seconds) {
  if (request->ranks < 1 || request->microbatches < 1 || (int64_t)request->ranks * request->microbatches > 1 << 22)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT, "%d microbatches through %d ranks cannot be ordered",
                        request->microbatches, request->ranks);
  sorter s = {.request = request, .trial = MT_ARENA_NEW(arena, int32_t, request->microbatches)};
  int32_t *other = MT_ARENA_NEW(arena, int32_t, request->microbatches);
  if (s.trial == NULL || other == NULL)
    return mt_error_memory(error, (size_t)request->microbatches * 8, "an order");
  motet_status status =
      mt_search_pipeline_create(arena, request->ranks, 1, request->microbatches, error, &s.pipeline);
  if (status != MOTET_OK) return status;
  for (int32_t m = 0; m < request->microbatches; m++) order[m] = other[m] = m;
  if (rule == MT_REORDER_RANDOM) shuffle(request, order);
  if (rule == MT_REORDER_DISTTRAIN) status = by_disttrain(arena, request, error, order);
  *seconds = run(&s, order);
  if (rule != MT_REORDER_CLIMB) return status;
  status = by_disttrain(arena, request, error, other);
  if (status != MOTET_OK) return status;
  double planned = run(&s, other);
  if (planned < *seconds) {
    *seconds = planned;
    memcpy(order, other, (size_t)request->microbatches * sizeof *order);
  }
  climb(&s, order, seconds);
  return MOTET_OK;
}
