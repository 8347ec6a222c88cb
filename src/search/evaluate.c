/* From a candidate to a proven and simulated plan. */
#include "algebra/skeleton.h"
#include "motet/program.h"
#include "order/forecast_costs.h"
#include "order/open_bound.h"
#include "search/candidate.h"
#include "search/partition.h"
#include "search/reorder.h"
#include "search/saving.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Simulations that one partition may cost: a search makes thousands of plans. */
static const int64_t PARTITION_EVALUATIONS = 600;
static const int64_t REORDER_EVALUATIONS = 20000;
/* The part of the memory that states must have for a plan with them in host memory to be made too. */
static const double WORTH = 0.05;

/* Mean times and largest sizes of the layers. */
typedef struct layer_means {
  double *forward, *backward, *weight; /* weight: of the backward, what nobody waits for */
  int64_t *fixed, *saved, *kept;       /* static; of a microbatch, whole; of a microbatch, with the saving */
} layer_means;

typedef struct maker {
  mt_arena *arena;
  const mt_search_space *space;
  const mt_search_candidate *candidate;
  const mt_search_batch *batch;
  motet_error *error;
  mt_parallel *parallels;
  mt_forecast forecast;
  int32_t *microbatch; /* [M] of the replica at hand, indices in the batch */
  int32_t *kinds;      /* [kinds] that occur in it */
  int32_t kind_count;
  double (*extents)[MT_EXTENTS]; /* [kind_count] of them */
  int32_t *place;                /* [batch's kinds] where one stands in kinds[] */
  int32_t *shape;                /* [M] of the replica at hand, where its kind stands there */
  int32_t begin, end;            /* layers that the pipeline cuts */
  mt_derivation *derivation;
  mt_cost_table costs;
  mt_sizes sizes;
  int64_t *fixed, *weights, *working; /* [stages] */
  mt_host_bytes host;
  int64_t *states;    /* [stages] of the optimizer */
  double *exchange;   /* [stages] seconds a step */
  layer_means means;  /* [layers] */
  double cut_seconds; /* of the stages, as they were cut */
  mt_search_plan *result;
} maker;

static motet_status no_room(const maker *m) {
  return mt_error_memory(m->error, (unsigned long long)m->candidate->microbatches * 1024, "a candidate's plan");
}

static bool open_maker(maker *m) {
  const mt_model *model = m->space->problem->architecture->model;
  m->parallels = MT_ARENA_NEW(m->arena, mt_parallel, model->module_count);
  m->microbatch = MT_ARENA_NEW(m->arena, int32_t, m->candidate->microbatches);
  m->kinds = MT_ARENA_NEW(m->arena, int32_t, m->batch->kinds);
  m->place = MT_ARENA_NEW(m->arena, int32_t, m->batch->kinds);
  m->shape = MT_ARENA_NEW(m->arena, int32_t, m->candidate->microbatches);
  if (m->parallels == NULL || m->microbatch == NULL || m->kinds == NULL || m->place == NULL || m->shape == NULL)
    return false;
  mt_search_parallels(m->space, m->candidate, m->parallels);
  mt_search_cut(m->space, m->candidate, &m->begin, &m->end);
  m->forecast = (mt_forecast){.architecture = m->space->problem->architecture,
                              .cluster = &m->space->problem->cluster,
                              .parallel = m->parallels,
                              .fit = mt_collective_fit_usual(),
                              .microbatches = m->candidate->microbatches};
  return true;
}

/* ---- the replica with most to do ---- */

static motet_status take_replica(maker *m) {
  const mt_search_batch *batch = m->batch;
  bool *seen = MT_ARENA_NEW(m->arena, bool, batch->kinds);
  if (seen == NULL) return no_room(m);
  for (int32_t i = 0; i < m->candidate->microbatches; i++) {
    m->microbatch[i] = m->candidate->microbatch_of[i];
    int32_t kind = batch->kind[m->microbatch[i]];
    if (!seen[kind]) m->place[kind] = m->kind_count;
    if (!seen[kind]) m->kinds[m->kind_count++] = kind;
    seen[kind] = true;
  }
  m->extents = mt_arena_array(m->arena, (size_t)m->kind_count, sizeof *m->extents);
  if (m->extents == NULL) return no_room(m);
  for (int32_t k = 0; k < m->kind_count; k++)
    memcpy(m->extents[k], batch->extents[batch->first[m->kinds[k]]], sizeof *m->extents);
  return MOTET_OK;
}

/* ---- layers into stages ---- */

static motet_status measure_layers(maker *m) {
  layer_means *means = &m->means;
  const mt_model *model = m->space->problem->architecture->model;
  int32_t count = model->layer_count;
  *means = (layer_means){MT_ARENA_NEW(m->arena, double, count),  MT_ARENA_NEW(m->arena, double, count),
                         MT_ARENA_NEW(m->arena, double, count),  MT_ARENA_NEW(m->arena, int64_t, count),
                         MT_ARENA_NEW(m->arena, int64_t, count), MT_ARENA_NEW(m->arena, int64_t, count)};
  double *number = MT_ARENA_NEW(m->arena, double, m->batch->kinds);
  if (means->forward == NULL || means->backward == NULL || means->weight == NULL || means->fixed == NULL ||
      means->saved == NULL || means->kept == NULL || number == NULL)
    return no_room(m);
  for (int32_t i = 0; i < m->candidate->microbatches; i++) number[m->batch->kind[m->microbatch[i]]] += 1.0;
  for (int32_t l = 0; l < count; l++) {
    const mt_layer *described = &model->layers[l];
    bool reached = mt_search_reached(m->space, l);
    mt_state_forecast state;
    mt_span span = {.layer_begin = l, .layer_end = l + 1, .first_trainable = reached ? l : -1};
    bool alike = l > 0 && described->kind == model->layers[l - 1].kind &&
                 described->module == model->layers[l - 1].module &&
                 described->trainable == model->layers[l - 1].trainable;
    if (alike && reached == mt_search_reached(m->space, l - 1) && m->space->passes[l] == m->space->passes[l - 1]) {
      means->forward[l] = means->forward[l - 1];
      means->backward[l] = means->backward[l - 1];
      means->weight[l] = means->weight[l - 1];
      means->fixed[l] = means->fixed[l - 1];
      means->saved[l] = means->saved[l - 1];
      means->kept[l] = means->kept[l - 1];
      continue;
    }
    mt_forecast_state(&m->forecast, &span, 0, &state);
    means->fixed[l] = state.static_bytes;
    for (int32_t k = 0; k < m->kind_count; k++) {
      mt_layer_forecast layer;
      mt_forecast_layer(&m->forecast, l, m->batch->extents[m->batch->first[m->kinds[k]]], &layer);
      double share = number[m->kinds[k]] / m->candidate->microbatches;
      means->forward[l] += share * (layer.forward + layer.forward_exchange);
      if (!reached) continue;
      if (m->space->passes[l]) means->backward[l] += share * (layer.input_gradient + layer.input_exchange);
      if (described->trainable) means->weight[l] += share * (layer.weight_gradient + layer.weight_exchange);
      int64_t saved = described->trainable ? layer.saved_bytes : layer.passed_bytes;
      if (saved > means->saved[l]) means->saved[l] = saved;
      if (layer.output_bytes > means->kept[l]) means->kept[l] = layer.output_bytes;
    }
    means->backward[l] += means->weight[l];
  }
  return MOTET_OK;
}

/* Microbatches that a rank of a trunk with an order of its own may hold; 0: 1F1B's. */
static int32_t open_most(const mt_search_candidate *c) {
  const mt_skeleton_row *row = &mt_skeleton_rows[c->trunk];
  if (c->trunk == MT_SKELETON_1F1B) return 0;
  int32_t most = row->held != NULL ? row->held(c->pipeline) : c->pipeline + 1;
  return most < c->microbatches ? most : c->microbatches;
}

static motet_status cut_layers(maker *m, double memory_bytes, bool dropped) {
  const layer_means *means = &m->means;
  const mt_search_candidate *c = m->candidate;
  int32_t first = m->end;
  for (int32_t l = m->end; l-- > m->begin;)
    if (mt_search_reached(m->space, l)) first = l;
  mt_links links = mt_parallel_links(&m->parallels[m->space->trunk], &m->space->problem->cluster);
  mt_partition_request request = {.layers = m->end - m->begin,
                                  .ranks = c->pipeline,
                                  .chunks = c->chunks,
                                  .microbatches = c->microbatches,
                                  .held = open_most(c),
                                  .folded = mt_skeleton_chunks(c->trunk) > 1,
                                  .weight = mt_skeleton_rows[c->trunk].split ? means->weight + m->begin : NULL,
                                  .forward = means->forward + m->begin,
                                  .backward = means->backward + m->begin,
                                  .first_trainable = first - m->begin,
                                  .lag = links.remote.latency_seconds,
                                  .static_bytes = means->fixed + m->begin,
                                  .saved_bytes = (dropped ? means->kept : means->saved) + m->begin,
                                  .memory_bytes = (int64_t)memory_bytes,
                                  .least = 1,
                                  .evaluations = PARTITION_EVALUATIONS};
  mt_partition partition;
  motet_status status = mt_partition_find(m->arena, &request, m->error, &partition);
  if (status != MOTET_OK) return status;
  m->result->split = partition.split;
  m->result->split_count = c->pipeline * c->chunks;
  m->cut_seconds = partition.seconds;
  return MOTET_OK;
}

/* No plan with these stages is faster: a rank's own work, and where all microbatches are alike what the pipeline
 * alone takes. */
static double least_seconds(const maker *m) {
  const mt_search_candidate *c = m->candidate;
  double most = m->kind_count == 1 ? m->cut_seconds : 0.0;
  for (int32_t rank = 0; rank < c->pipeline; rank++) {
    double work = 0.0;
    int32_t layer = m->begin;
    for (int32_t s = 0; s < c->pipeline * c->chunks; s++) {
      int32_t chunk = s / c->pipeline, slot = s % c->pipeline, end = layer + m->result->split[s];
      bool folded = mt_skeleton_chunks(c->trunk) > 1 && chunk % 2 == 1;
      bool own = (folded ? c->pipeline - 1 - slot : slot) == rank;
      for (; layer < end; layer++) work += own ? m->means.forward[layer] + m->means.backward[layer] : 0.0;
    }
    most = fmax(most, work * c->microbatches);
  }
  return most;
}

/* ---- derivation ---- */

char *mt_search_schedule(mt_arena *arena, const mt_search_space *space, const mt_search_candidate *c) {
  const mt_model *model = space->problem->architecture->model;
  mt_text text = {0};
  char trunk[48], encoder[64], together[32] = "";
  bool interleaved = c->trunk == MT_SKELETON_1F1B && c->chunks > 1;
  snprintf(trunk, sizeof trunk, interleaved ? "%s(virtual=%d)" : "%s", mt_skeleton_rows[c->trunk].name, c->chunks);
  if (c->encoder_batch > 1) snprintf(together, sizeof together, "batch=%d", c->encoder_batch);
  if (c->manner == MT_MANNER_DEDICATE)
    snprintf(encoder, sizeof encoder, "dedicate(ranks=%d, data=%d%s%s)", c->dedicated, c->dedicated,
             *together != '\0' ? ", " : "", together);
  else if (c->manner == MT_MANNER_TRANSPOSE)
    snprintf(encoder, sizeof encoder, "transpose(%s)", together);
  else
    snprintf(encoder, sizeof encoder, "inline");
  mt_text_append(&text, "<");
  if (c->manner == MT_MANNER_CHAIN) {
    for (int32_t j = 0; j < model->module_count; j++)
      mt_text_append(&text, "%s%s", j > 0 ? "+" : "", model->modules[j].name);
    mt_text_append(&text, ": %s>", trunk);
  } else {
    /* Modules that follow one another alone are one term; the others stand in terms of their own. */
    for (int32_t j = 0; j < space->trunk; j++) {
      bool joined = space->chain && j + 1 < space->trunk;
      mt_text_append(&text, "%s%s", model->modules[j].name, joined ? "+" : "");
      if (!joined) mt_text_append(&text, ": %s, ", encoder);
    }
    for (int32_t j = space->trunk; j < model->module_count; j++)
      mt_text_append(&text, "%s%s", j > space->trunk ? "+" : "", model->modules[j].name);
    mt_text_append(&text, ": %s>", trunk);
  }
  char *copy = text.failed ? NULL : mt_arena_text(arena, text.data);
  mt_text_free(&text);
  return copy;
}

/* The pipeline's split, and one layer list a dedicated region of single cells. */
static motet_status derive(maker *m) {
  const mt_search_candidate *c = m->candidate;
  const mt_model *model = m->space->problem->architecture->model;
  int32_t terms = c->manner == MT_MANNER_DEDICATE ? (m->space->chain ? 1 : m->space->trunk) : 0;
  int32_t count = m->result->split_count + terms;
  int32_t *split = MT_ARENA_NEW(m->arena, int32_t, count);
  char *text = mt_search_schedule(m->arena, m->space, c);
  if (split == NULL || text == NULL) return no_room(m);
  for (int32_t t = 0; t < terms; t++)
    split[t] = m->space->chain ? m->begin : model->modules[t].layer_end - model->modules[t].layer_begin;
  memcpy(split + terms, m->result->split, (size_t)m->result->split_count * sizeof *split);
  m->result->stage_layers = split;
  m->result->stage_count = count;
  mt_schedule *schedule;
  motet_status status = mt_schedule_parse(m->arena, text, m->error, &schedule);
  uint64_t *present = MT_ARENA_NEW(m->arena, uint64_t, c->microbatches);
  if (present == NULL) return no_room(m);
  for (int32_t i = 0; i < c->microbatches; i++)
    present[i] = mt_forecast_present(m->space->problem->architecture, m->batch->extents[m->microbatch[i]]);
  mt_derive_request request = {.model = model,
                               .schedule = schedule,
                               .ranks = mt_search_cells(m->space, c),
                               .microbatches = c->microbatches,
                               .present = present,
                               .split = split,
                               .split_count = count,
                               .body_work = 1};
  if (status == MOTET_OK) status = mt_derive(m->arena, &request, m->error, &m->derivation);
  return status;
}

/* ---- costs and sizes ---- */

static motet_status allocate_tables(maker *m) {
  int64_t stages = m->derivation->stage_count, cells = stages * m->candidate->microbatches;
  for (int k = MT_COST_FORWARD; k <= MT_COST_BACKWARD_W; k++) {
    m->costs.seconds[k] = (mt_cost_values){MT_ARENA_NEW(m->arena, double, cells), m->candidate->microbatches, 1};
    if (m->costs.seconds[k].values == NULL) return no_room(m);
  }
  m->costs.optimizer_seconds = MT_ARENA_NEW(m->arena, double, stages);
  m->costs.links = mt_parallel_links(&m->parallels[m->space->trunk], &m->space->problem->cluster);
  m->fixed = MT_ARENA_NEW(m->arena, int64_t, stages);
  m->weights = MT_ARENA_NEW(m->arena, int64_t, stages);
  m->sizes.saved_bytes = (motet_size_table){MT_ARENA_NEW(m->arena, int64_t, cells), m->candidate->microbatches, 1};
  m->sizes.output_bytes = (motet_size_table){MT_ARENA_NEW(m->arena, int64_t, cells), m->candidate->microbatches, 1};
  m->working = MT_ARENA_NEW(m->arena, int64_t, stages);
  m->exchange = MT_ARENA_NEW(m->arena, double, stages);
  m->host = (mt_host_bytes){MT_ARENA_NEW(m->arena, int64_t, stages), MT_ARENA_NEW(m->arena, int64_t, stages)};
  m->states = MT_ARENA_NEW(m->arena, int64_t, stages);
  if (m->states == NULL || m->costs.optimizer_seconds == NULL || m->fixed == NULL || m->weights == NULL ||
      m->sizes.saved_bytes.values == NULL || m->sizes.output_bytes.values == NULL || m->working == NULL ||
      m->exchange == NULL || m->host.states == NULL || m->host.activations == NULL)
    return no_room(m);
  m->sizes.static_bytes = m->fixed;
  m->sizes.weight_bytes = m->weights;
  return MOTET_OK;
}

static motet_status fill_stage(maker *m, int32_t stage) {
  const mt_forecast_shapes shapes = {.count = m->kind_count, .extents = *m->extents, .of = m->shape};
  mt_span_forecast *forecasts = MT_ARENA_NEW(m->arena, mt_span_forecast, m->candidate->microbatches);
  if (forecasts == NULL) return no_room(m);
  motet_status status =
      mt_forecast_stage(m->arena, m->derivation, &m->forecast, stage, &shapes, m->error, forecasts);
  if (status != MOTET_OK) return status;
  double backward = 0.0;
  m->working[stage] = m->host.activations[stage] = 0;
  m->exchange[stage] = 0.0;
  for (int32_t i = 0; i < m->candidate->microbatches; i++) {
    const mt_span_forecast *f = &forecasts[i];
    int64_t at = (int64_t)stage * m->candidate->microbatches + i;
    for (int k = MT_COST_FORWARD; k <= MT_COST_BACKWARD_W; k++) m->costs.seconds[k].values[at] = f->seconds[k];
    m->sizes.saved_bytes.values[at] = f->saved_bytes;
    m->sizes.output_bytes.values[at] = f->output_bytes;
    if (f->working_bytes > m->working[stage]) m->working[stage] = f->working_bytes;
    if (f->host_bytes > m->host.activations[stage]) m->host.activations[stage] = f->host_bytes;
    m->exchange[stage] += f->exchange_seconds;
    backward = f->seconds[MT_COST_BACKWARD];
  }
  mt_span span = mt_forecast_span_of(&m->derivation->stages[stage]);
  mt_state_forecast state;
  mt_forecast_state(&m->forecast, &span, backward, &state);
  m->fixed[stage] = state.static_bytes;
  m->host.states[stage] = state.host_bytes;
  m->states[stage] = state.state_bytes;
  /* A region that several cells of a pipeline hold is reduced over them in the program; replicas of it, and of all
   * others, before that. */
  m->weights[stage] = state.gradient_bytes;
  m->costs.optimizer_seconds[stage] = state.optimizer_seconds + state.exposed_seconds;
  m->exchange[stage] += state.exposed_seconds;
  return MOTET_OK;
}

static motet_status fill_tables(maker *m) {
  motet_status status = m->working == NULL ? allocate_tables(m) : MOTET_OK;
  for (int32_t i = 0; i < m->candidate->microbatches; i++) m->shape[i] = m->place[m->batch->kind[m->microbatch[i]]];
  for (int32_t s = 0; s < m->derivation->stage_count && status == MOTET_OK; s++) status = fill_stage(m, s);
  if (status == MOTET_OK) mt_forecast_hold_working(m->derivation, m->working, m->fixed);
  return status;
}

/* Unlike microbatches go through the trunk's pipeline in the order that a climb finds; then what a stage has to do
 * for the k-th is another's. */
static motet_status reorder(maker *m) {
  const mt_search_candidate *c = m->candidate;
  if (m->kind_count < 2 || c->trunk != MT_SKELETON_1F1B || c->chunks > 1 || c->pipeline < 2) return MOTET_OK;
  motet_status status = fill_tables(m);
  if (status != MOTET_OK) return status;
  int64_t first = (int64_t)(m->derivation->stage_count - c->pipeline) * c->microbatches;
  int32_t *order = MT_ARENA_NEW(m->arena, int32_t, c->microbatches);
  int32_t *taken = MT_ARENA_NEW(m->arena, int32_t, c->microbatches);
  if (order == NULL || taken == NULL) return no_room(m);
  mt_reorder_request request = {.ranks = c->pipeline,
                                .microbatches = c->microbatches,
                                .forward = m->costs.seconds[MT_COST_FORWARD].values + first,
                                .backward = m->costs.seconds[MT_COST_BACKWARD].values + first,
                                .lag = m->costs.links.remote.latency_seconds,
                                .evaluations = REORDER_EVALUATIONS};
  double seconds;
  status = mt_reorder(m->arena, &request, MT_REORDER_CLIMB, m->error, order, &seconds);
  if (status != MOTET_OK) return status;
  for (int32_t k = 0; k < c->microbatches; k++) taken[k] = m->microbatch[order[k]];
  memcpy(m->microbatch, taken, (size_t)c->microbatches * sizeof *taken);
  return derive(m);
}

/* ---- plans ---- */

static motet_status make_plan(maker *m, double search_seconds, bool keep, mt_plan *plan) {
  mt_plan_replica replica = {.derivation = m->derivation, .costs = &m->costs, .sizes = m->sizes};
  mt_plan_options options = {.order = {.search_seconds = search_seconds},
                             .simulate = {.timeline = keep, .attribute = keep}};
  return mt_plan_make(m->arena, &replica, 1, &options, m->error, plan);
}

/* What the devices that have most hold, in their own memory and in the host's. */
static void weigh(maker *m, const mt_plan *plan) {
  m->result->memory_bytes = m->result->host_bytes = 0.0;
  for (int32_t r = 0; r < m->derivation->ranks; r++) {
    const motet_rank_memory *memory = &plan->verification.memory[r];
    double bytes = (double)memory->peak_bytes, host = mt_host_bytes_of(m->derivation, &m->host, memory, r);
    if (host > m->result->host_bytes) m->result->host_bytes = host;
    if (bytes <= m->result->memory_bytes) continue;
    m->result->memory_bytes = bytes;
    m->result->memory_rank = r;
    m->result->state_bytes = 0.0;
    for (int32_t s = 0; s < m->derivation->stage_count; s++)
      m->result->state_bytes += mt_stage_held(m->derivation, s, r) ? (double)m->states[s] : 0.0;
  }
}

/* Whether no order of what has been derived is faster than the limit; giving up activations only takes longer. */
static motet_status is_slow(maker *m, double limit, bool *slow) {
  const mt_order_options options = {.output_bytes = m->sizes.output_bytes};
  double bound;
  motet_status status = mt_order_open_bound(m->arena, m->derivation, &m->costs, &options, m->error, &bound);
  *slow = status == MOTET_OK && bound * (1 - 1e-9) >= limit;
  return status;
}

/* Plans, weighs, and drops activations where a cell holds too much, until it fits or nothing is left to drop. */
static motet_status plan_within(maker *m, const mt_search_effort *effort) {
  enum { ROUNDS = 6 };
  double cap = m->space->problem->memory_bytes;
  uint8_t *savings = MT_ARENA_NEW(m->arena, uint8_t, m->space->problem->architecture->model->layer_count);
  if (savings == NULL) return no_room(m);
  int32_t heaviest = m->kinds[0];
  for (int32_t k = 1; k < m->kind_count; k++)
    if (m->kinds[k] < heaviest) heaviest = m->kinds[k];
  m->forecast.savings = savings;
  mt_search_savings given_up = {.arena = m->arena,
                                .space = m->space,
                                .candidate = m->candidate,
                                .derivation = m->derivation,
                                .forecast = &m->forecast,
                                .in_host = &m->host,
                                .extents = m->batch->extents[m->batch->first[heaviest]],
                                .saved = m->means.saved,
                                .kept = m->means.kept,
                                .open = open_most(m->candidate),
                                .of = savings};
  mt_plan plan;
  for (int round = 0;; round++) {
    bool slow = false;
    motet_status status = fill_tables(m);
    if (status == MOTET_OK && round == 0 && effort->limit > 0) status = is_slow(m, effort->limit, &slow);
    if (slow) m->result->seconds = m->result->memory_bytes = INFINITY;
    if (status == MOTET_OK && !slow) status = make_plan(m, effort->order_seconds, effort->keep, &plan);
    if (status != MOTET_OK || slow) return status;
    weigh(m, &plan);
    bool dropped = false;
    if (m->result->memory_bytes > cap && round < ROUNDS) {
      status = mt_search_savings_open(&given_up, m->error);
      dropped = status == MOTET_OK && mt_search_savings_make_room(&given_up, plan.verification.memory);
    }
    if (!dropped && status == MOTET_OK) break;
    mt_plan_free(&plan);
    if (status != MOTET_OK) return status;
  }
  m->result->seconds = plan.simulation->makespan;
  for (int32_t s = 0; s < m->derivation->stage_count; s++)
    m->result->exchange_seconds = fmax(m->result->exchange_seconds, m->exchange[s]);
  m->result->savings = savings;
  m->result->host_optimizer = m->parallels[0].host_optimizer;
  m->result->microbatch = m->microbatch;
  m->result->derivation = m->derivation;
  if (effort->keep)
    m->result->plan = plan;
  else
    mt_plan_free(&plan);
  return MOTET_OK;
}

/* Whether layers are cut for what a cell's memory holds. */
static bool memory_cuts(const mt_search_space *space, const mt_search_candidate *candidate) {
  return candidate->pipeline > 1 && (candidate->manner == MT_MANNER_CHAIN || space->trunk == 0);
}

/* With the optimizer's states in the device's memory or in the host's. */
static motet_status evaluate(mt_arena *arena, const mt_search_space *space, const mt_search_candidate *candidate,
                             const mt_search_effort *effort, bool host, motet_error *error, mt_search_plan *plan) {
  memset(plan, 0, sizeof *plan);
  maker m = {.arena = arena,
             .space = space,
             .candidate = candidate,
             .batch = mt_search_space_batch(space, candidate->microbatch),
             .error = error,
             .result = plan};
  if (!open_maker(&m)) return no_room(&m);
  mt_search_place_optimizer(space, host, m.parallels);
  motet_status status = take_replica(&m);
  if (status == MOTET_OK) status = measure_layers(&m);
  if (status != MOTET_OK) return status;
  double cap = memory_cuts(space, candidate) ? space->problem->memory_bytes : 0.0;
  bool saves = space->problem->savings[MT_SEARCH_RECOMPUTE] || space->problem->savings[MT_SEARCH_OFFLOAD];
  /* Activations that may be dropped do not bind the cut; if they do not fit even so, the fastest cut says by how
   * much.
   */
  status = cut_layers(&m, cap, saves);
  if (status == MOTET_ERROR_ILLEGAL && cap > 0) status = cut_layers(&m, 0.0, false);
  if (status == MOTET_OK && effort->limit > 0 && least_seconds(&m) * (1 - 1e-9) >= effort->limit) {
    plan->seconds = plan->memory_bytes = INFINITY;
    return MOTET_OK;
  }
  if (status == MOTET_OK) status = derive(&m);
  if (status == MOTET_OK && effort->reordered) status = reorder(&m);
  return status == MOTET_OK ? plan_within(&m, effort) : status;
}

/* Whether a plan is the better one: it fits, or is nearer to that; then the faster one. */
static bool is_better(const mt_search_problem *problem, const mt_search_plan *a, const mt_search_plan *b) {
  double cap = problem->memory_bytes;
  double over = fmax(mt_search_plan_bytes(problem, a), cap), others = fmax(mt_search_plan_bytes(problem, b), cap);
  return over < others || (over == others && a->seconds < b->seconds);
}

motet_status mt_search_evaluate(mt_arena *arena, const mt_search_space *space, const mt_search_candidate *candidate,
                                const mt_search_effort *effort, motet_error *error, mt_search_plan *plan) {
  const mt_search_problem *problem = space->problem;
  motet_status status = evaluate(arena, space, candidate, effort, false, error, plan);
  if (status != MOTET_OK || !mt_search_may_save(problem, MT_SEARCH_OPTIMIZER)) return status;
  mt_search_effort less = *effort;
  if (isinf(plan->seconds)) {
    if (!memory_cuts(space, candidate)) return status; /* no other cut */
  } else {
    bool fits = mt_search_plan_bytes(problem, plan) <= problem->memory_bytes, kept = true;
    for (int32_t l = 0; l < problem->architecture->model->layer_count; l++)
      kept &= plan->savings[l] == MT_SAVING_ALL;
    if (fits && (kept || plan->state_bytes < WORTH * problem->memory_bytes)) return status;
    if (fits && (less.limit <= 0 || plan->seconds < less.limit)) less.limit = plan->seconds;
  }
  mt_search_plan other;
  status = evaluate(arena, space, candidate, &less, true, error, &other);
  bool better = status == MOTET_OK && is_better(problem, &other, plan);
  mt_plan_free(better ? &plan->plan : &other.plan);
  if (better) *plan = other;
  return status == MOTET_ERROR_ILLEGAL ? MOTET_OK : status;
}

double mt_search_plan_bytes(const mt_search_problem *problem, const mt_search_plan *plan) {
  double room = problem->cluster.device.host_memory_bytes;
  return room > 0 && plan->host_bytes > room ? INFINITY : plan->memory_bytes;
}

void mt_search_candidate_text(const mt_search_candidate *c, mt_text *text) {
  mt_text_append(text, "tensor %d", c->tensor);
  if (c->encoder_tensor != c->tensor) mt_text_append(text, " (encoders %d)", c->encoder_tensor);
  if (c->ulysses * c->ring > 1) mt_text_append(text, ", context %d", c->ulysses * c->ring);
  if (c->ulysses > 1 && c->ring > 1) mt_text_append(text, " (Ulysses %d, ring %d)", c->ulysses, c->ring);
  mt_text_append(text, ", pipeline %d", c->pipeline);
  if (c->trunk != MT_SKELETON_1F1B) mt_text_append(text, " (%s)", mt_skeleton_rows[c->trunk].name);
  if (c->trunk == MT_SKELETON_1F1B && c->chunks > 1) mt_text_append(text, " (%d chunks a rank)", c->chunks);
  if (c->dedicated > 0) mt_text_append(text, " + %d for the encoders", c->dedicated);
  mt_text_append(text, ", data %d", c->data);
  if (c->pipeline > 1 && c->manner == MT_MANNER_TRANSPOSE) mt_text_append(text, ", encoders transposed");
  if (c->pipeline > 1 && c->manner == MT_MANNER_INLINE) mt_text_append(text, ", encoders inline");
  if (c->expert > 1) mt_text_append(text, ", expert %d", c->expert);
  if (c->zero > 0) mt_text_append(text, ", ZeRO %d", c->zero);
  if (c->shard_devices > 0) mt_text_append(text, " in groups of %d devices, states over all", c->shard_devices);
  mt_text_append(text, ", microbatch %d", c->microbatch);
  if (c->encoder_batch > 1) mt_text_append(text, " (encoders take %d at a time)", c->encoder_batch);
}
