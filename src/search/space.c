/* The list of candidates and their bounds. */
#include "search/candidate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A table of what layers take with the degrees of a cell: sums over all microbatches of the step. */
typedef struct layer_table {
  double *forward, *backward;         /* [layers] */
  double *least_forward, *least_back; /* [layers] of one microbatch, the fastest */
  double *kind_seconds;               /* [kinds] */
} layer_table;

typedef struct lister {
  mt_arena *arena;
  mt_search_space *space;
  const mt_search_problem *problem;
  const mt_search_batch *batch;
  mt_parallel *parallels;
  layer_table table;
  mt_search_candidate now;
  int32_t room;
  motet_error *error;
} lister;

/* ---- gradients ---- */

static bool module_trains(const mt_model *model, int32_t module) {
  for (int32_t l = model->modules[module].layer_begin; l < model->modules[module].layer_end; l++)
    if (model->layers[l].trainable) return true;
  return false;
}

static bool set_gradients(mt_arena *arena, mt_search_space *space) {
  const mt_model *model = space->problem->architecture->model;
  space->passes = MT_ARENA_NEW(arena, bool, model->layer_count);
  space->first_trainable = MT_ARENA_NEW(arena, int32_t, model->module_count);
  bool *upstream = MT_ARENA_NEW(arena, bool, model->module_count);
  if (space->passes == NULL || space->first_trainable == NULL || upstream == NULL) return false;
  space->chain = model->edge_count == model->module_count - 1;
  for (int32_t e = 0; e < model->edge_count; e++) {
    int32_t from = model->edges[e].from, to = model->edges[e].to;
    upstream[to] = upstream[to] || upstream[from] || module_trains(model, from);
    space->chain = space->chain && to == from + 1;
  }
  for (int32_t j = 0; j < model->module_count; j++) {
    int32_t first = model->modules[j].layer_begin;
    while (!upstream[j] && first < model->modules[j].layer_end && !model->layers[first].trainable) first++;
    space->first_trainable[j] = first;
    for (int32_t l = first; l < model->modules[j].layer_end; l++) space->passes[l] = upstream[j] || l > first;
  }
  return true;
}

/* ---- how a candidate lies ---- */

const mt_search_batch *mt_search_space_batch(const mt_search_space *space, int32_t samples) {
  for (int32_t b = 0; b < space->batch_count; b++)
    if (space->batches[b].samples == samples) return &space->batches[b];
  return NULL;
}

void mt_search_parallels(const mt_search_space *space, const mt_search_candidate *c, mt_parallel *parallels) {
  const mt_model *model = space->problem->architecture->model;
  int32_t cell = c->tensor * c->ulysses * c->ring;
  for (int32_t j = 0; j < model->module_count; j++) {
    mt_parallel *p = &parallels[j];
    *p = mt_parallel_single();
    p->data = c->data;
    p->pipeline = c->pipeline + c->dedicated;
    p->zero_level = c->zero;
    p->expert = 1;
    if (j < space->trunk) {
      p->tensor = c->encoder_tensor;
      p->samples = cell / c->encoder_tensor;
      continue;
    }
    p->tensor = c->tensor;
    p->ulysses = c->ulysses;
    p->ring = c->ring;
    p->sequence_parallel = c->tensor > 1;
    if (space->problem->architecture->facts[j].experts > 0) p->expert = c->expert;
  }
}

void mt_search_cut(const mt_search_space *space, const mt_search_candidate *candidate, int32_t *begin,
                   int32_t *end) {
  const mt_model *model = space->problem->architecture->model;
  *begin = candidate->manner == MT_MANNER_CHAIN ? 0 : model->modules[space->trunk].layer_begin;
  *end = model->layer_count;
}

/* ---- bounds ---- */

static motet_status fill_table(lister *l) {
  const mt_architecture *architecture = l->problem->architecture;
  const mt_model *model = architecture->model;
  mt_search_parallels(l->space, &l->now, l->parallels);
  mt_forecast forecast = {.architecture = architecture,
                          .cluster = &l->problem->cluster,
                          .parallel = l->parallels,
                          .fit = mt_collective_fit_usual(),
                          .microbatches = 1};
  for (int32_t i = 0; i < model->layer_count; i++) {
    l->table.forward[i] = l->table.backward[i] = 0.0;
    l->table.least_forward[i] = l->table.least_back[i] = INFINITY;
  }
  l->table.kind_seconds = MT_ARENA_NEW(l->arena, double, l->batch->kinds);
  if (l->table.kind_seconds == NULL)
    return mt_error_memory(l->error, (unsigned long long)l->batch->kinds * sizeof(double), "microbatches' times");
  for (int32_t k = 0; k < l->batch->kinds; k++) {
    mt_layer_forecast layer = {0};
    for (int32_t i = 0; i < model->layer_count; i++) {
      const mt_layer *described = &model->layers[i];
      bool alike =
          i > 0 && described->kind == model->layers[i - 1].kind && described->module == model->layers[i - 1].module;
      if (!alike) mt_forecast_layer(&forecast, i, l->batch->extents[l->batch->first[k]], &layer);
      double forward = layer.forward + layer.forward_exchange, backward = 0.0;
      if (i >= l->space->first_trainable[described->module]) {
        if (l->space->passes[i]) backward += layer.input_gradient + layer.input_exchange;
        if (described->trainable) backward += layer.weight_gradient + layer.weight_exchange;
      }
      l->table.kind_seconds[k] += forward + backward;
      l->table.forward[i] += l->batch->number[k] * forward;
      l->table.backward[i] += l->batch->number[k] * backward;
      l->table.least_forward[i] = fmin(l->table.least_forward[i], forward);
      l->table.least_back[i] = fmin(l->table.least_back[i], backward);
    }
  }
  l->now.kind_seconds = l->table.kind_seconds;
  return MOTET_OK;
}

static double sum_of(const double *values, int32_t begin, int32_t end) {
  double sum = 0.0;
  for (int32_t i = begin; i < end; i++) sum += values[i];
  return sum;
}

/* Whether @p stages stages can each force less than @p limit: their work, and the way of a microbatch to them and
 * back. A stage takes as many layers as it may (see partition.c). */
static bool limit_holds(const layer_table *t, double share, int32_t begin, int32_t end, int32_t stages,
                        double limit) {
  double way = 0.0;
  int32_t layer = begin;
  for (int32_t s = 0; s < stages && layer < end; s++) {
    double work = way;
    for (; layer < end; layer++) {
      work += (t->forward[layer] + t->backward[layer]) * share;
      if (work > limit) break;
      way += t->least_forward[layer] + t->least_back[layer];
    }
  }
  return layer == end;
}

static double pipeline_limit(const layer_table *t, double share, int32_t begin, int32_t end, int32_t stages) {
  double low = 0.0, high = (sum_of(t->forward, begin, end) + sum_of(t->backward, begin, end)) * share * 2;
  for (int i = 0; i < 30; i++) {
    double middle = 0.5 * (low + high);
    if (limit_holds(t, share, begin, end, stages, middle))
      high = middle;
    else
      low = middle;
  }
  return low;
}

/* What the replica with most to do takes at least: its share of all work, and the way of one microbatch. Where all
 * microbatches are alike every replica is that one, and the pipeline's stages bound it too. */
static double bound_of(const lister *l) {
  const mt_search_candidate *c = &l->now;
  const mt_model *model = l->problem->architecture->model;
  const layer_table *t = &l->table;
  int32_t trunk = model->modules[l->space->trunk].layer_begin, end = model->layer_count, begin;
  double share = 1.0 / c->data;
  double encoders = (sum_of(t->forward, 0, trunk) + sum_of(t->backward, 0, trunk)) * share;
  double rest = (sum_of(t->forward, trunk, end) + sum_of(t->backward, trunk, end)) * share;
  double bound = (encoders + rest) / (c->pipeline + c->dedicated);
  double way = sum_of(t->least_forward, trunk, end) + sum_of(t->least_back, trunk, end);
  if (l->batch->kinds > 1) return fmax(bound, way);
  mt_search_cut(l->space, c, &begin, &end);
  if (c->dedicated > 0) bound = fmax(encoders / c->dedicated, rest / c->pipeline);
  if (c->chunks == 1) bound = fmax(bound, pipeline_limit(t, share, begin, end, c->pipeline));
  return fmax(bound, way);
}

/* 1F1B's idle share comes on top of what the pipeline computes; transposed encoders fill it. */
static double estimate_of(const lister *l) {
  const mt_search_candidate *c = &l->now;
  int32_t begin, end;
  mt_search_cut(l->space, c, &begin, &end);
  if (c->manner == MT_MANNER_INLINE) begin = 0;
  double work = (sum_of(l->table.forward, begin, end) + sum_of(l->table.backward, begin, end)) / c->data;
  double idle = (double)(c->pipeline + c->dedicated - 1) / ((double)c->microbatches * c->chunks);
  return fmax(c->bound, work / c->pipeline * (1.0 + idle));
}

/* Bytes that weights and states alone take on the fullest cell, at least. */
static double least_bytes(const lister *l) {
  const mt_search_candidate *c = &l->now;
  const mt_architecture *architecture = l->problem->architecture;
  const mt_model *model = architecture->model;
  mt_search_parallels(l->space, c, l->parallels);
  mt_forecast forecast = {
      .architecture = architecture, .cluster = &l->problem->cluster, .parallel = l->parallels, .microbatches = 1};
  int32_t trunk = model->modules[l->space->trunk].layer_begin;
  mt_span encoders = {.layer_end = trunk}, rest = {.layer_begin = trunk, .layer_end = model->layer_count};
  mt_state_forecast first = {0}, second;
  if (trunk > 0) mt_forecast_state(&forecast, &encoders, 0, &first);
  mt_forecast_state(&forecast, &rest, 0, &second);
  double a = (double)first.static_bytes, b = (double)second.static_bytes / c->pipeline;
  if (c->manner == MT_MANNER_TRANSPOSE) return a + b;
  if (c->manner == MT_MANNER_DEDICATE) return fmax(a, b);
  return b + a / c->pipeline;
}

/* ---- the lists of values ---- */

static bool allowed(const mt_search_range *range, int32_t value, bool usual) {
  if (range->count == 0) return usual;
  for (int32_t i = 0; i < range->count; i++)
    if (range->values[i] == value) return true;
  return false;
}

static motet_status put(lister *l) {
  mt_search_space *space = l->space;
  double bytes = least_bytes(l);
  if (bytes > l->problem->memory_bytes) {
    space->excluded++;
    if (!(bytes < space->least_bytes)) return MOTET_OK;
    space->least_bytes = bytes;
    space->lightest = l->now;
    space->lightest.saving = l->problem->savings[0]   ? MT_SEARCH_RECOMPUTE
                             : l->problem->savings[1] ? MT_SEARCH_OFFLOAD
                                                      : MT_SEARCH_KEEP;
    return MOTET_OK;
  }
  l->now.bound = bound_of(l);
  l->now.estimate = estimate_of(l);
  for (int saving = 0; saving < MT_SEARCH_SAVINGS; saving++) {
    bool any = l->problem->savings[0] || l->problem->savings[1];
    if (saving == MT_SEARCH_KEEP ? any : !l->problem->savings[saving - 1]) continue;
    if (saving == MT_SEARCH_OFFLOAD && !(l->problem->cluster.device.host_bytes_per_second > 0)) continue;
    if (space->count == l->room) {
      int32_t room = l->room < 1024 ? 1024 : l->room * 2;
      mt_search_candidate *more = MT_ARENA_NEW(l->arena, mt_search_candidate, room);
      if (more == NULL) return mt_error_memory(l->error, (unsigned long long)room * sizeof *more, "candidates");
      if (space->count > 0) memcpy(more, space->candidates, (size_t)space->count * sizeof *more);
      space->candidates = more;
      l->room = room;
    }
    l->now.saving = (mt_search_saving)saving;
    space->candidates[space->count++] = l->now;
  }
  return MOTET_OK;
}

/* The widest data parallelism that the devices give and the microbatches divide by; 0: none. */
static int32_t widest_data(const lister *l) {
  int32_t cells = (l->now.pipeline + l->now.dedicated) * l->now.tensor * l->now.ulysses * l->now.ring;
  int32_t data = l->problem->cluster.devices / cells;
  if (data > l->batch->count) data = l->batch->count;
  while (data > 0 && l->batch->count % data != 0) data--;
  return data;
}

static motet_status list_rest(lister *l) {
  mt_search_candidate *c = &l->now;
  c->data = widest_data(l);
  if (c->data < 1) return MOTET_OK;
  int32_t cell = c->tensor * c->ulysses * c->ring;
  if ((cell * c->data) % c->expert != 0) return MOTET_OK;
  c->microbatches = l->batch->count / c->data;
  const mt_module *trunk = &l->problem->architecture->model->modules[l->space->trunk];
  int32_t layers = c->manner == MT_MANNER_CHAIN ? l->problem->architecture->model->layer_count
                                                : l->problem->architecture->model->layer_count - trunk->layer_begin;
  bool copies = c->data * c->ulysses * c->ring > 1;
  motet_status status = MOTET_OK;
  for (int32_t chunks = 1; chunks <= 8 && status == MOTET_OK; chunks++) {
    if (!allowed(&l->problem->chunks, chunks, chunks <= 2) || (chunks > 1 && c->pipeline == 1) ||
        (int64_t)c->pipeline * chunks > layers || (int64_t)c->pipeline * chunks * c->microbatches > 1 << 20)
      continue;
    for (int32_t zero = 0; zero <= 3 && status == MOTET_OK; zero++) {
      if (!allowed(&l->problem->zero, zero, copies ? zero == 1 || zero == 3 : zero == 0)) continue;
      c->chunks = chunks;
      c->zero = zero;
      status = put(l);
    }
  }
  return status;
}

/* Cells that the encoders' work calls for beside the trunk's, and one more and less. */
static motet_status list_dedicated(lister *l) {
  const mt_model *model = l->problem->architecture->model;
  int32_t trunk = model->modules[l->space->trunk].layer_begin;
  double encoders = sum_of(l->table.forward, 0, trunk) + sum_of(l->table.backward, 0, trunk);
  double rest =
      sum_of(l->table.forward, trunk, model->layer_count) + sum_of(l->table.backward, trunk, model->layer_count);
  double ideal = rest > 0 ? l->now.pipeline * encoders / rest : 1;
  int32_t middle = ideal < 1 ? 1 : ideal > 1024 ? 1024 : (int32_t)ideal;
  motet_status status = MOTET_OK;
  for (int32_t cells = middle > 1 ? middle - 1 : 1; cells <= middle + 1 && status == MOTET_OK; cells++) {
    l->now.dedicated = cells;
    status = list_rest(l);
  }
  l->now.dedicated = 0;
  return status;
}

static motet_status list_manners(lister *l) {
  const mt_search_space *space = l->space;
  motet_status status = MOTET_OK;
  for (int manner = 0; manner < MT_MANNERS && status == MOTET_OK; manner++) {
    bool alone = space->trunk == 0;
    if (!l->problem->manners[manner] && !alone) continue;
    if (alone && manner != MT_MANNER_CHAIN) continue;
    if (manner == MT_MANNER_CHAIN && !space->chain) continue;
    /* What a chain cut anywhere can be, too. */
    if (manner == MT_MANNER_INLINE && space->chain && l->problem->manners[MT_MANNER_CHAIN]) continue;
    l->now.manner = (mt_search_manner)manner;
    for (int32_t pipeline = 1; pipeline <= 128 && status == MOTET_OK; pipeline++) {
      static const int32_t usual[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128};
      bool known = false;
      for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) known |= usual[i] == pipeline;
      if (!allowed(&l->problem->pipeline, pipeline, known)) continue;
      /* On one cell all of them are the same. */
      if (pipeline == 1 && space->chain && l->problem->manners[MT_MANNER_CHAIN] && manner == MT_MANNER_TRANSPOSE)
        continue;
      l->now.pipeline = pipeline;
      status = manner == MT_MANNER_DEDICATE ? list_dedicated(l) : list_rest(l);
    }
  }
  return status;
}

static bool tensor_fits(const lister *l, int32_t module, int32_t tensor) {
  const mt_module_facts *facts = &l->problem->architecture->facts[module];
  if (facts->heads > 0 && facts->heads % tensor != 0) return false;
  return facts->intermediate <= 0 || facts->intermediate % tensor == 0;
}

static motet_status list_encoders(lister *l) {
  int32_t cell = l->now.tensor * l->now.ulysses * l->now.ring;
  motet_status status = MOTET_OK;
  for (int32_t tensor = 1; tensor <= l->now.tensor && status == MOTET_OK;
       tensor *= l->now.tensor > 1 ? l->now.tensor : 2) {
    bool fits = cell % tensor == 0;
    for (int32_t j = 0; j < l->space->trunk; j++) fits = fits && tensor_fits(l, j, tensor);
    if (!fits || (l->space->trunk == 0 && tensor > 1)) continue;
    l->now.encoder_tensor = l->space->trunk == 0 ? l->now.tensor : tensor;
    l->now.data = 1;
    l->now.pipeline = l->now.chunks = 1;
    l->now.zero = 1;
    l->now.dedicated = 0;
    status = fill_table(l);
    if (status == MOTET_OK) status = list_manners(l);
  }
  return status;
}

static motet_status list_experts(lister *l) {
  int64_t experts = l->problem->architecture->facts[l->space->trunk].experts;
  motet_status status = MOTET_OK;
  for (int32_t expert = 1; expert <= 64 && status == MOTET_OK; expert *= 2) {
    if (!allowed(&l->problem->expert, expert, true) || (expert > 1 && (experts == 0 || experts % expert != 0)))
      continue;
    l->now.expert = expert;
    status = list_encoders(l);
  }
  return status;
}

/* The largest Ulysses degree inside the fast domain that divides the key-value heads; a ring for the rest. */
static void split_context(lister *l, int32_t context) {
  const mt_module_facts *facts = &l->problem->architecture->facts[l->space->trunk];
  int64_t heads = facts->kv_heads > 0 ? facts->kv_heads : facts->heads;
  int32_t fast = l->problem->cluster.levels[l->problem->cluster.fast_level].devices;
  l->now.ulysses = 1;
  for (int32_t u = context; u > 1; u--)
    if (context % u == 0 && heads > 0 && heads % ((int64_t)u * l->now.tensor) == 0 && u * l->now.tensor <= fast) {
      l->now.ulysses = u;
      break;
    }
  l->now.ring = context / l->now.ulysses;
}

static motet_status list_cells(lister *l) {
  int32_t fast = l->problem->cluster.levels[l->problem->cluster.fast_level].devices;
  if (fast > 16) fast = 16;
  motet_status status = MOTET_OK;
  for (int32_t tensor = 1; tensor <= 1024 && status == MOTET_OK; tensor *= 2) {
    bool usual = tensor <= fast && tensor_fits(l, l->space->trunk, tensor);
    if (!allowed(&l->problem->tensor, tensor, usual)) continue;
    for (int32_t context = 1; context <= 1024 && status == MOTET_OK; context *= 2) {
      bool some = context <= 16 && (context == 1 || l->problem->architecture->decodes_text);
      if (!allowed(&l->problem->context, context, some)) continue;
      l->now.tensor = tensor;
      split_context(l, context);
      if ((int64_t)tensor * context <= l->problem->cluster.devices) status = list_experts(l);
    }
  }
  return status;
}

static int compare_candidates(const void *left, const void *right) {
  const mt_search_candidate *a = left, *b = right;
  if (a->estimate != b->estimate) return a->estimate < b->estimate ? -1 : 1;
#define BY(field)                                                                                                  \
  if (a->field != b->field) return a->field < b->field ? -1 : 1
  BY(tensor);
  BY(ring);
  BY(ulysses);
  BY(pipeline);
  BY(chunks);
  BY(zero);
  BY(saving);
  BY(manner);
  BY(expert);
  BY(encoder_tensor);
  BY(dedicated);
  BY(microbatch);
#undef BY
  return 0;
}

static motet_status make_batches(lister *l, const mt_search_data *data) {
  mt_search_space *space = l->space;
  space->batches = MT_ARENA_NEW(l->arena, mt_search_batch, MT_SEARCH_CHOICES);
  if (space->batches == NULL) return mt_error_memory(l->error, sizeof *space->batches, "microbatches");
  for (int32_t samples = 1; samples <= data->count && space->batch_count < MT_SEARCH_CHOICES; samples++) {
    bool usual = samples == 1 || samples == 2 || samples == 4 || samples == 8;
    if (!allowed(&l->problem->microbatch, samples, usual) || data->count % samples != 0) continue;
    motet_status status = mt_search_batch_make(l->arena, l->problem->architecture, data, samples, l->error,
                                               &space->batches[space->batch_count++]);
    if (status != MOTET_OK) return status;
  }
  if (space->batch_count > 0) return MOTET_OK;
  motet_status status =
      mt_error_set(l->error, MOTET_ERROR_ARGUMENT,
                   "no microbatch size of search.microbatch divides the %d samples of a step", data->count);
  mt_error_key(l->error, "search.microbatch");
  return status;
}

motet_status mt_search_space_make(mt_arena *arena, const mt_search_problem *problem, const mt_search_data *data,
                                  motet_error *error, mt_search_space *space) {
  const mt_model *model = problem->architecture->model;
  *space = (mt_search_space){
      .problem = problem, .trunk = mt_search_trunk(problem->architecture), .least_bytes = INFINITY};
  lister l = {.arena = arena,
              .space = space,
              .problem = problem,
              .error = error,
              .parallels = MT_ARENA_NEW(arena, mt_parallel, model->module_count),
              .table = {.forward = MT_ARENA_NEW(arena, double, model->layer_count),
                        .backward = MT_ARENA_NEW(arena, double, model->layer_count),
                        .least_forward = MT_ARENA_NEW(arena, double, model->layer_count),
                        .least_back = MT_ARENA_NEW(arena, double, model->layer_count)}};
  if (l.parallels == NULL || l.table.forward == NULL || l.table.backward == NULL || l.table.least_forward == NULL ||
      l.table.least_back == NULL || !set_gradients(arena, space))
    return mt_error_memory(error, (unsigned long long)model->layer_count * 32, "a search");
  motet_status status = make_batches(&l, data);
  for (int32_t b = 0; b < space->batch_count && status == MOTET_OK; b++) {
    l.batch = &space->batches[b];
    l.now = (mt_search_candidate){.microbatch = space->batches[b].samples};
    status = list_cells(&l);
  }
  if (status != MOTET_OK) return status;
  if (space->count > 0)
    qsort(space->candidates, (size_t)space->count, sizeof *space->candidates, compare_candidates);
  return MOTET_OK;
}
