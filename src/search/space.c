/* The list of candidates and their bounds. */
#include "search/bound.h"

#include "algebra/skeleton.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LOADS_MAX = 64 };
/* Encoders take more than one microbatch at a time where that could save this part of a step's work. */
static const double ENCODER_GAIN = 0.01;

typedef struct lister {
  mt_arena *arena;
  mt_search_space *space;
  const mt_search_problem *problem;
  const mt_search_batch *batch;
  mt_parallel *parallels;
  mt_search_table table;
  mt_search_load loads[LOADS_MAX]; /* by data-parallel width, of the table */
  int32_t load_count;
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

mt_search_batch *mt_search_space_batch(const mt_search_space *space, int32_t samples) {
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
    p->pipeline = mt_search_cells(space, c);
    p->zero_level = c->zero;
    p->layered = c->shard_devices > 0;
    p->expert = 1;
    if (j < space->trunk) {
      p->tensor = c->encoder_tensor;
      p->samples = cell / c->encoder_tensor;
      p->shard_group = c->shard_devices / p->tensor;
      continue;
    }
    p->tensor = c->tensor;
    p->ulysses = c->ulysses;
    p->ring = c->ring;
    p->shard_group = c->shard_devices / p->tensor;
    p->sequence_parallel = c->tensor > 1;
    if (space->problem->architecture->facts[j].experts > 0) p->expert = c->expert;
  }
}

void mt_search_place_optimizer(const mt_search_space *space, bool host, mt_parallel *parallels) {
  for (int32_t j = 0; j < space->problem->architecture->model->module_count; j++)
    parallels[j].host_optimizer = host;
}

void mt_search_cut(const mt_search_space *space, const mt_search_candidate *candidate, int32_t *begin,
                   int32_t *end) {
  const mt_model *model = space->problem->architecture->model;
  *begin = candidate->manner == MT_MANNER_CHAIN ? 0 : model->modules[space->trunk].layer_begin;
  *end = model->layer_count;
}

/* ---- the lists of values ---- */

static bool allowed(const mt_search_range *range, int32_t value, bool usual) {
  if (range->count == 0) return usual;
  for (int32_t i = 0; i < range->count; i++)
    if (range->values[i] == value) return true;
  return false;
}

/* Of degrees these are looked at where a job names none. */
static bool is_power(int32_t value) { return (value & (value - 1)) == 0; }

/* The load of the table with the candidate's data-parallel width. */
static motet_status find_load(lister *l, const mt_search_load **load) {
  int32_t together = mt_search_together(&l->now);
  for (int32_t i = 0; i < l->load_count; i++)
    if (l->loads[i].data == l->now.data && l->loads[i].together == together) return *load = &l->loads[i], MOTET_OK;
  mt_search_load *made = &l->loads[l->load_count < LOADS_MAX ? l->load_count++ : LOADS_MAX - 1];
  *load = made;
  return mt_search_load_make(l->arena, l->space, &l->table, l->now.data, together, l->error, made);
}

static motet_status put(lister *l) {
  mt_search_space *space = l->space;
  double bytes = mt_search_least_bytes(space, &l->table, &l->now, l->parallels);
  if (bytes > l->problem->memory_bytes) {
    space->excluded++;
    if (!(bytes < space->least_bytes)) return MOTET_OK;
    space->least_bytes = bytes;
  }
  const mt_search_load *load;
  motet_status status = find_load(l, &load);
  if (status != MOTET_OK) return status;
  l->now.microbatch_of = load->microbatch;
  if (bytes > l->problem->memory_bytes) {
    space->lightest = l->now;
    return MOTET_OK;
  }
  l->now.bound = mt_search_bound(space, load, &l->now);
  l->now.estimate = mt_search_estimate(space, load, &l->now);
  if (space->count == l->room) {
    int32_t room = l->room < 1024 ? 1024 : l->room * 2;
    mt_search_candidate *more = MT_ARENA_NEW(l->arena, mt_search_candidate, room);
    if (more == NULL) return mt_error_memory(l->error, (unsigned long long)room * sizeof *more, "candidates");
    if (space->count > 0) memcpy(more, space->candidates, (size_t)space->count * sizeof *more);
    space->candidates = more;
    l->room = room;
  }
  space->candidates[space->count++] = l->now;
  return MOTET_OK;
}

/* The widest data parallelism that the devices give and the microbatches divide by; 0: none. */
static int32_t widest_data(const lister *l) {
  int32_t cells = mt_search_cells(l->space, &l->now) * l->now.tensor * l->now.ulysses * l->now.ring;
  int32_t data = l->problem->cluster.devices / cells;
  if (data > l->batch->count) data = l->batch->count;
  while (data > 0 && l->batch->count % data != 0) data--;
  return data;
}

/* Whether groups of so many devices, more than one of them, divide the copies of every module's weights. */
static bool shards_fit(const lister *l, int32_t devices) {
  const mt_search_candidate *c = &l->now;
  int32_t stage = c->tensor * c->ulysses * c->ring * c->data;
  return devices < stage && stage % devices == 0 && devices % c->tensor == 0 && devices % c->encoder_tensor == 0;
}

/* All replicas divide what a level of ZeRO divides; of level 3 also a node's devices, or as many as the job says.
 */
static motet_status list_shards(lister *l) {
  const mt_search_range *range = &l->problem->shard_devices;
  int32_t node = mt_cluster_links(&l->problem->cluster).ranks_per_node;
  motet_status status = MOTET_OK;
  l->now.shard_devices = 0;
  if (allowed(range, 0, true)) status = put(l);
  for (int32_t i = 0; i < (range->count > 0 ? range->count : 1) && status == MOTET_OK && l->now.zero == 3; i++) {
    int32_t devices = range->count > 0 ? range->values[i] : node;
    if (devices < 2 || !shards_fit(l, devices)) continue;
    l->now.shard_devices = devices;
    status = put(l);
  }
  l->now.shard_devices = 0;
  return status;
}

/* So many microbatches at a time as leave every cell that encodes a run, if the job does not say how many. */
static bool batch_fits(const lister *l) {
  const mt_search_candidate *c = &l->now;
  int64_t runs = l->problem->encoder_batch.count > 0 ? 1 : c->dedicated > 0 ? c->dedicated : c->pipeline;
  return c->encoder_batch == 1 || c->encoder_batch * runs <= c->microbatches;
}

static motet_status list_rest(lister *l) {
  mt_search_candidate *c = &l->now;
  c->data = widest_data(l);
  if (c->data < 1) return MOTET_OK;
  int32_t cell = c->tensor * c->ulysses * c->ring;
  if ((cell * c->data) % c->expert != 0) return MOTET_OK;
  c->microbatches = l->batch->count / c->data;
  int32_t begin, end;
  mt_search_cut(l->space, c, &begin, &end);
  bool copies = c->data * c->ulysses * c->ring > 1;
  motet_status status = MOTET_OK;
  for (int trunk = 0; trunk < MT_SKELETON_KINDS && status == MOTET_OK; trunk++) {
    int32_t own = mt_skeleton_chunks((mt_skeleton_kind)trunk), most = trunk == MT_SKELETON_1F1B ? 8 : own;
    /* On one rank all trunks are 1F1B. */
    if (!l->problem->trunks[trunk] || (trunk != MT_SKELETON_1F1B && c->pipeline == 1)) continue;
    for (int32_t chunks = own; chunks <= most && status == MOTET_OK; chunks++) {
      bool interleaved = trunk == MT_SKELETON_1F1B && chunks > 1;
      if (interleaved && c->pipeline == 1) continue;
      if (trunk == MT_SKELETON_1F1B && !allowed(&l->problem->chunks, chunks, chunks <= 2)) continue;
      if ((int64_t)c->pipeline * chunks > end - begin || (int64_t)c->pipeline * chunks * c->microbatches > 1 << 20)
        continue;
      for (int32_t zero = 0; zero <= 3 && status == MOTET_OK; zero++) {
        if (!allowed(&l->problem->zero, zero, copies ? zero == 1 || zero == 3 : zero == 0)) continue;
        c->trunk = (mt_skeleton_kind)trunk;
        c->chunks = chunks;
        c->zero = zero;
        if (batch_fits(l)) status = list_shards(l);
      }
    }
  }
  return status;
}

/* Cells that the encoders' work calls for beside the trunk's, and one more and less. */
static motet_status list_dedicated(lister *l) {
  const mt_model *model = l->problem->architecture->model;
  int32_t trunk = model->modules[l->space->trunk].layer_begin;
  const mt_search_load *load;
  l->now.data = 1;
  motet_status status = find_load(l, &load);
  if (status != MOTET_OK) return status;
  double encoders = mt_search_sum(load->forward, 0, trunk) + mt_search_sum(load->backward, 0, trunk);
  double rest = mt_search_sum(load->forward, trunk, model->layer_count) +
                mt_search_sum(load->backward, trunk, model->layer_count);
  double ideal = rest > 0 ? l->now.pipeline * encoders / rest : 1;
  int32_t middle = ideal < 1 ? 1 : ideal > 1024 ? 1024 : (int32_t)ideal;
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
    if (l->now.encoder_batch > 1 && manner != MT_MANNER_TRANSPOSE && manner != MT_MANNER_DEDICATE) continue;
    /* What a chain cut anywhere can be, too. */
    if (manner == MT_MANNER_INLINE && space->chain && l->problem->manners[MT_MANNER_CHAIN]) continue;
    l->now.manner = (mt_search_manner)manner;
    for (int32_t pipeline = 1; pipeline <= 128 && status == MOTET_OK; pipeline++) {
      static const int32_t usual[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128};
      bool known = false;
      for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) known |= usual[i] == pipeline;
      if (!allowed(&l->problem->pipeline, pipeline, known)) continue;
      /* On one cell all of them are the same. */
      if (pipeline == 1 && space->chain && l->problem->manners[MT_MANNER_CHAIN] && manner == MT_MANNER_TRANSPOSE &&
          l->now.encoder_batch == 1)
        continue;
      l->now.pipeline = pipeline;
      status = manner == MT_MANNER_DEDICATE ? list_dedicated(l) : list_rest(l);
    }
  }
  return status;
}

static bool tensor_fits(const lister *l, int32_t module, int32_t tensor) {
  motet_error ignored;
  return mt_architecture_check_division(l->problem->architecture, module, tensor, 1, &ignored) == MOTET_OK;
}

/* All work of a step. */
static double step_seconds(const mt_search_table *table) {
  double sum = 0.0;
  for (int32_t k = 0; k < table->batch->kinds; k++) sum += table->batch->number[k] * table->kind_seconds[k];
  return sum;
}

/* Several microbatches at a time where that could save a part of a step's work, or where the job asks for it. */
static motet_status list_batches(lister *l) {
  const mt_search_range *range = &l->problem->encoder_batch;
  double least = INFINITY, narrow = INFINITY;
  motet_status status = MOTET_OK;
  for (int32_t batch = 1; batch <= MT_SEARCH_ENCODER_BATCH && status == MOTET_OK; batch++) {
    bool usual = batch == 1 || batch == 2 || batch == 4 || batch == 8;
    if (!allowed(range, batch, usual) || (batch > 1 && l->space->trunk == 0)) continue;
    l->now.encoder_batch = batch;
    l->load_count = 0;
    status = mt_search_table_make(l->arena, l->space, &l->now, l->error, &l->table);
    if (status != MOTET_OK) break;
    double seconds = step_seconds(&l->table), than = l->table.limit ? narrow : least;
    if (batch == 1) narrow = seconds;
    if (range->count == 0 && !(seconds < than * (1 - ENCODER_GAIN))) continue;
    least = fmin(least, seconds);
    status = list_manners(l);
  }
  return status;
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
    l->now.trunk = MT_SKELETON_1F1B;
    l->now.zero = 1;
    l->now.dedicated = 0;
    status = list_batches(l);
  }
  return status;
}

static motet_status list_experts(lister *l) {
  int64_t experts = l->problem->architecture->facts[l->space->trunk].experts;
  motet_status status = MOTET_OK;
  for (int32_t expert = 1; expert <= 1024 && status == MOTET_OK; expert++) {
    if (!allowed(&l->problem->expert, expert, expert <= 64 && is_power(expert)) ||
        (expert > 1 && (experts == 0 || experts % expert != 0)))
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
  for (int32_t tensor = 1; tensor <= 1024 && status == MOTET_OK; tensor++) {
    if (!allowed(&l->problem->tensor, tensor, tensor <= fast && is_power(tensor))) continue;
    if (!tensor_fits(l, l->space->trunk, tensor)) continue;
    for (int32_t context = 1; context <= 1024 && status == MOTET_OK; context++) {
      bool some = context <= 16 && is_power(context) && (context == 1 || l->problem->architecture->decodes_text);
      if (!allowed(&l->problem->context, context, some)) continue;
      l->now.tensor = tensor;
      split_context(l, context);
      if ((int64_t)tensor * context <= l->problem->cluster.devices) status = list_experts(l);
    }
  }
  return status;
}

motet_status mt_search_space_adopt(mt_arena *arena, const mt_search_space *space, mt_search_candidate *candidate,
                                   motet_error *error) {
  mt_search_table table;
  mt_search_load load;
  motet_status status = mt_search_table_make(arena, space, candidate, error, &table);
  int32_t together = mt_search_together(candidate);
  if (status == MOTET_OK)
    status = mt_search_load_make(arena, space, &table, candidate->data, together, error, &load);
  if (status == MOTET_OK) candidate->microbatch_of = load.microbatch;
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
  BY(shard_devices);
  BY(trunk);
  BY(manner);
  BY(expert);
  BY(encoder_tensor);
  BY(dedicated);
  BY(encoder_batch);
  BY(microbatch);
#undef BY
  return 0;
}

static motet_status make_batches(lister *l, const mt_workload_samples *data) {
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

motet_status mt_search_space_make(mt_arena *arena, const mt_search_problem *problem,
                                  const mt_workload_samples *data, motet_error *error, mt_search_space *space) {
  const mt_model *model = problem->architecture->model;
  *space = (mt_search_space){
      .problem = problem, .trunk = mt_architecture_trunk(problem->architecture), .least_bytes = INFINITY};
  lister l = {.arena = arena,
              .space = space,
              .problem = problem,
              .error = error,
              .parallels = MT_ARENA_NEW(arena, mt_parallel, model->module_count)};
  if (l.parallels == NULL || !set_gradients(arena, space))
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
