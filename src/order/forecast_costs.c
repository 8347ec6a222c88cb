#include "order/forecast_costs.h"

mt_span mt_forecast_span_of(const mt_stage *stage) {
  return (mt_span){.layer_begin = stage->layer_begin,
                   .layer_end = stage->layer_end,
                   .first_trainable = stage->gate == MT_GATE_NONE ? -1 : stage->first_trainable,
                   .sends_gradient = stage->gate == MT_GATE_INPUT || stage->gate == MT_GATE_FULL};
}

double mt_host_bytes_of(const mt_derivation *derivation, const mt_host_bytes *host, const motet_rank_memory *memory,
                        int32_t rank) {
  double bytes = 0;
  for (int32_t s = 0; s < derivation->stage_count; s++) {
    if (!mt_stage_held(derivation, s, rank)) continue;
    double open = derivation->stages[s].rank < 0 ? memory->peak_features : memory->peak_activations;
    bytes += (double)host->states[s] + open * (double)host->activations[s];
  }
  return bytes;
}

uint64_t mt_forecast_present(const mt_architecture *architecture, const double *extents) {
  uint64_t present = 0;
  const mt_model *model = architecture->model;
  for (int32_t j = 0; j < model->module_count; j++) {
    bool work = false;
    for (int32_t l = model->modules[j].layer_begin; l < model->modules[j].layer_end && !work; l++) {
      const mt_layer_design *design = &architecture->designs[model->layers[l].kind];
      for (int e = 0; e < MT_EXTENTS; e++)
        work =
            work || (extents[e] > 0 && (design->rates[e].forward_flops > 0 || design->rates[e].output_bytes > 0));
    }
    if (work) present |= UINT64_C(1) << j;
  }
  return present;
}

/* Rooms of the tables while they fill. */
typedef struct tables_room {
  double *seconds[MT_COST_KINDS];
  int64_t *saved, *output, *held, *working, *gradients;
  mt_host_bytes host;
  double *optimizer, *reduce, *exchange;
  int64_t columns;
} tables_room;

static const mt_cost_kind filled[] = {MT_COST_FORWARD, MT_COST_BACKWARD, MT_COST_BACKWARD_X, MT_COST_BACKWARD_W,
                                      MT_COST_RECOMPUTE};
enum { FILLED = sizeof filled / sizeof *filled };

static motet_status make_room(mt_arena *arena, int32_t stages, int64_t columns, motet_error *error,
                              tables_room *room) {
  int64_t cells;
  if (__builtin_mul_overflow((int64_t)stages, columns, &cells))
    return mt_error_set(error, MOTET_ERROR_LIMIT, "%d stages by %lld microbatches are too many", stages,
                        (long long)columns);
  *room = (tables_room){.saved = MT_ARENA_NEW(arena, int64_t, cells),
                        .output = MT_ARENA_NEW(arena, int64_t, cells),
                        .held = MT_ARENA_NEW(arena, int64_t, stages),
                        .working = MT_ARENA_NEW(arena, int64_t, stages),
                        .gradients = MT_ARENA_NEW(arena, int64_t, stages),
                        .host = {MT_ARENA_NEW(arena, int64_t, stages), MT_ARENA_NEW(arena, int64_t, stages)},
                        .optimizer = MT_ARENA_NEW(arena, double, stages),
                        .reduce = MT_ARENA_NEW(arena, double, stages),
                        .exchange = MT_ARENA_NEW(arena, double, stages),
                        .columns = columns};
  bool good = room->saved != NULL && room->output != NULL && room->held != NULL && room->working != NULL &&
              room->gradients != NULL && room->optimizer != NULL && room->reduce != NULL &&
              room->exchange != NULL && room->host.states != NULL && room->host.activations != NULL;
  for (int k = 0; k < FILLED; k++) {
    room->seconds[filled[k]] = MT_ARENA_NEW(arena, double, cells);
    good = good && room->seconds[filled[k]] != NULL;
  }
  return good ? MOTET_OK
              : mt_error_memory(error, (unsigned long long)cells * sizeof(double), "a forecast's tables");
}

/* A stage's forecasts under construction. */
typedef struct stage_filler {
  const mt_derivation *derivation;
  const mt_forecast *forecast;
  const mt_forecast_shapes *shapes;
  int32_t stage;
  mt_span span;
  mt_span_forecast *alone; /* [shapes] a microbatch of each by itself */
  bool *known;             /* [shapes] */
  bool *done;              /* [microbatches] */
  int32_t *run, *last_run; /* [microbatches] those computed together now, and before */
  int32_t count, last_count;
  mt_span_forecast *together; /* [microbatches] of the run at hand */
} stage_filler;

static int32_t shape_of(const stage_filler *f, int32_t microbatch) {
  return f->shapes->of != NULL ? f->shapes->of[microbatch] : f->shapes->count > 1 ? microbatch : 0;
}

static uint64_t absent_of(const stage_filler *f, int32_t microbatch) {
  return ~(f->derivation->present[microbatch] & ~f->derivation->cached[microbatch]);
}

/* The microbatches that are computed together with @p first and stand behind it; those with other modules absent
 * are another computation to the forecast. */
static void collect_run(stage_filler *f, int32_t first) {
  const mt_region *region = &f->derivation->regions[f->derivation->stages[f->stage].region];
  int64_t end =
      (int64_t)mt_stage_run(f->derivation, f->stage, first) + (int64_t)region->skeleton.batch * region->data;
  f->count = 0;
  for (int64_t at = first; at < end && at < f->derivation->microbatches; at += region->data) {
    int32_t m = (int32_t)at;
    if (!mt_stage_active(f->derivation, f->stage, m) || absent_of(f, m) != absent_of(f, first)) continue;
    f->done[m] = true;
    f->run[f->count++] = m;
  }
}

/* Whether the run is of the same shapes as the one before, which then has its forecasts. */
static bool repeats(const stage_filler *f) {
  if (f->count != f->last_count) return false;
  for (int32_t i = 0; i < f->count; i++)
    if (shape_of(f, f->run[i]) != shape_of(f, f->last_run[i]) ||
        absent_of(f, f->run[i]) != absent_of(f, f->last_run[i]))
      return false;
  return true;
}

static void forecast_run(stage_filler *f) {
  double sum[MT_EXTENTS] = {0};
  f->span.absent = absent_of(f, f->run[0]);
  for (int32_t i = 0; i < f->count; i++) {
    int32_t shape = shape_of(f, f->run[i]);
    const double *own = f->shapes->extents + (int64_t)shape * MT_EXTENTS;
    if (!f->known[shape]) mt_forecast_span(f->forecast, &f->span, own, &f->alone[shape]);
    f->known[shape] = true;
    f->together[i] = f->alone[shape];
    for (int e = 0; e < MT_EXTENTS; e++) sum[e] += own[e];
  }
  if (f->count == 1) return;
  mt_span_forecast whole;
  mt_forecast_span(f->forecast, &f->span, sum, &whole);
  mt_forecast_share(&whole, f->count, f->together);
}

motet_status mt_forecast_stage(mt_arena *arena, const mt_derivation *derivation, const mt_forecast *forecast,
                               int32_t stage, const mt_forecast_shapes *shapes, motet_error *error,
                               mt_span_forecast *results) {
  int32_t microbatches = derivation->microbatches;
  stage_filler f = {.derivation = derivation,
                    .forecast = forecast,
                    .shapes = shapes,
                    .stage = stage,
                    .span = mt_forecast_span_of(&derivation->stages[stage]),
                    .alone = MT_ARENA_NEW(arena, mt_span_forecast, shapes->count),
                    .known = MT_ARENA_NEW(arena, bool, shapes->count),
                    .done = MT_ARENA_NEW(arena, bool, microbatches),
                    .run = MT_ARENA_NEW(arena, int32_t, microbatches),
                    .last_run = MT_ARENA_NEW(arena, int32_t, microbatches),
                    .together = MT_ARENA_NEW(arena, mt_span_forecast, microbatches)};
  if (f.alone == NULL || f.known == NULL || f.done == NULL || f.run == NULL || f.last_run == NULL ||
      f.together == NULL)
    return mt_error_memory(error, (unsigned long long)microbatches * sizeof *f.together, "a stage's forecasts");
  for (int32_t m = 0; m < microbatches; m++) {
    if (f.done[m]) continue;
    results[m] = (mt_span_forecast){0};
    if (!mt_stage_active(derivation, stage, m)) continue;
    collect_run(&f, m);
    if (!repeats(&f)) forecast_run(&f);
    for (int32_t i = 0; i < f.count; i++) results[f.run[i]] = f.together[i];
    int32_t *swap = f.last_run;
    f.last_run = f.run;
    f.last_count = f.count;
    f.run = swap;
  }
  return MOTET_OK;
}

static motet_status fill_stage(mt_arena *arena, const mt_derivation *derivation, const mt_forecast *forecast,
                               const mt_forecast_shapes *shapes, int32_t stage, motet_error *error,
                               tables_room *room) {
  int64_t working = 0, each = derivation->microbatches / room->columns;
  double backward = 0;
  uint64_t always_cached = UINT64_MAX; /* such modules need not be there at all */
  for (int32_t m = 0; m < derivation->microbatches; m++) always_cached &= derivation->cached[m];
  mt_span_forecast *results = MT_ARENA_NEW(arena, mt_span_forecast, derivation->microbatches);
  if (results == NULL) return mt_error_memory(error, sizeof *results, "a stage's forecasts");
  motet_status status = mt_forecast_stage(arena, derivation, forecast, stage, shapes, error, results);
  if (status != MOTET_OK) return status;
  for (int64_t m = 0; m < room->columns; m++) {
    int64_t cell = stage * room->columns + m;
    const mt_span_forecast *result = &results[m];
    for (int k = 0; k < FILLED; k++) room->seconds[filled[k]][cell] = result->seconds[filled[k]];
    room->saved[cell] = result->saved_bytes;
    room->output[cell] = result->output_bytes;
    room->exchange[stage] += result->exchange_seconds * (double)each;
    if (result->working_bytes > working) working = result->working_bytes;
    if (result->host_bytes > room->host.activations[stage]) room->host.activations[stage] = result->host_bytes;
    backward = result->seconds[MT_COST_BACKWARD];
  }
  mt_state_forecast state;
  mt_span span = mt_forecast_span_of(&derivation->stages[stage]);
  span.absent = always_cached;
  mt_forecast_state(forecast, &span, backward, &state);
  room->gradients[stage] = state.gradient_bytes;
  room->held[stage] = state.static_bytes;
  room->host.states[stage] = state.host_bytes;
  room->working[stage] = working;
  room->optimizer[stage] = state.optimizer_seconds + state.exposed_seconds;
  room->reduce[stage] = state.reduce_seconds;
  return MOTET_OK;
}

void mt_forecast_hold_working(const mt_derivation *derivation, const int64_t *working, int64_t *held) {
  int32_t replicated = -1;
  for (int32_t s = 0; s < derivation->stage_count; s++)
    if (derivation->stages[s].rank < 0 && (replicated < 0 || working[s] > working[replicated])) replicated = s;
  for (int32_t s = 0; s < derivation->stage_count; s++) {
    int32_t rank = derivation->stages[s].rank;
    if (rank < 0) continue;
    int64_t there = replicated >= 0 && mt_stage_held(derivation, replicated, rank) ? working[replicated] : 0;
    bool most = working[s] > there;
    for (int32_t o = 0; o < derivation->stage_count && most; o++)
      most = derivation->stages[o].rank != rank || working[o] < working[s] || (working[o] == working[s] && o >= s);
    if (most) held[s] += working[s] - there;
  }
  if (replicated >= 0) held[replicated] += working[replicated];
}

/* Microbatches with and without some module's data differ even where their shapes do not. */
static bool all_present(const mt_derivation *derivation) {
  for (int32_t m = 1; m < derivation->microbatches; m++)
    if (derivation->present[m] != derivation->present[0] || derivation->cached[m] != derivation->cached[0])
      return false;
  return true;
}

motet_status mt_forecast_tables_make(mt_arena *arena, const mt_derivation *derivation, const mt_forecast *forecast,
                                     const double *extents, int32_t extents_count, motet_error *error,
                                     mt_forecast_tables *tables) {
  if (extents_count != 1 && extents_count != derivation->microbatches)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT, "shapes of %d microbatches for a step of %d", extents_count,
                        derivation->microbatches);
  bool alike = extents_count == 1;
  if (alike && !all_present(derivation))
    return mt_error_set(error, MOTET_ERROR_ARGUMENT,
                        "one shape serves all microbatches only where all have data for the same modules");
  for (int32_t r = 0; r < derivation->region_count && alike; r++)
    alike = derivation->regions[r].skeleton.batch == 1;
  const mt_forecast_shapes shapes = {.count = extents_count, .extents = extents};
  tables_room room;
  motet_status status =
      make_room(arena, derivation->stage_count, alike ? 1 : derivation->microbatches, error, &room);
  for (int32_t s = 0; s < derivation->stage_count && status == MOTET_OK; s++)
    status = fill_stage(arena, derivation, forecast, &shapes, s, error, &room);
  if (status != MOTET_OK) return status;
  mt_forecast_hold_working(derivation, room.working, room.held);
  int64_t stride = alike ? 0 : 1;
  *tables = (mt_forecast_tables){
      .costs = {.optimizer_seconds = room.optimizer,
                .links = mt_parallel_links(&forecast->parallel[0], forecast->cluster)},
      .sizes = {.static_bytes = room.held,
                .weight_bytes = room.gradients,
                .saved_bytes = {.values = room.saved, .stage_stride = room.columns, .microbatch_stride = stride},
                .output_bytes = {.values = room.output, .stage_stride = room.columns, .microbatch_stride = stride},
                .memory_cap = (int64_t)forecast->cluster->device.memory_bytes},
      .host = room.host,
      .reduce_seconds = room.reduce,
      .exchange_seconds = room.exchange};
  for (int k = 0; k < FILLED; k++)
    tables->costs.seconds[filled[k]] = (mt_cost_values){
        .values = room.seconds[filled[k]], .stage_stride = room.columns, .microbatch_stride = stride};
  return MOTET_OK;
}
