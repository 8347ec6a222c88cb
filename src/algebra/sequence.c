/* Body sequences: each rank's events of the Sharded stages, in order. */
#include "algebra/build.h"
#include "algebra/wave.h"
#include "motet/program.h"

#include <string.h>

/* More events than this are no plan for a machine that exists. */
static const int64_t body_events_max = INT64_C(1) << 28;
/* Visited events spent on an open body before times are known. */
static const int64_t work_first = 30000;

/* How a stage's backward appears in the body. */
static int backward_kind(mt_gate gate) {
  static const int kinds[] = {[MT_GATE_NONE] = -1,
                              [MT_GATE_WEIGHTS] = MOTET_BWD,
                              [MT_GATE_INPUT] = MOTET_BWD_X,
                              [MT_GATE_FULL] = MOTET_BWD};
  return kinds[gate];
}

/* How a step of a body appears; below 0: not at all. */
static int event_kind(mt_body_kind kind, mt_gate gate) {
  switch (kind) {
  case MT_BODY_FORWARD: return MOTET_FWD;
  case MT_BODY_BACKWARD: return backward_kind(gate);
  case MT_BODY_INPUT: return gate == MT_GATE_NONE ? -1 : MOTET_BWD_X;
  case MT_BODY_WEIGHT: return (gate & MT_GATE_WEIGHTS) == 0 ? -1 : MOTET_BWD_W;
  }
  return -1;
}

/* Appends one rank's events: the steps of the skeleton's order that the data and the gates leave. */
static int64_t append_events(mt_derivation *d, const int32_t *stages, const mt_body_step *steps, int64_t step_count,
                             int64_t at) {
  for (int64_t i = 0; i < step_count; i++) {
    int32_t stage = stages[steps[i].chunk], microbatch = steps[i].microbatch;
    int kind = event_kind(steps[i].kind, d->stages[stage].gate);
    if (kind < 0 || !mt_stage_active(d, stage, microbatch)) continue;
    d->body[at++] = (mt_event){.kind = (uint8_t)kind, .stage = stage, .microbatch = microbatch};
  }
  return at;
}

/* The one Sharded region whose order is open, or NULL. */
static const mt_region *open_region(const mt_derivation *d) {
  for (int32_t r = 0; r < d->region_count; r++)
    if (mt_region_row(&d->regions[r])->held != NULL) return &d->regions[r];
  return NULL;
}

bool mt_body_is_open(const mt_derivation *derivation) { return open_region(derivation) != NULL; }

static motet_status check_size(const mt_derivation *d, int32_t chunks, int64_t steps_a_rank, motet_error *error) {
  if (steps_a_rank <= body_events_max / d->ranks) return MOTET_OK;
  return mt_error_set(error, MOTET_ERROR_LIMIT,
                      "%d ranks, %d chunks each and %d microbatches make more than %lld events", d->ranks, chunks,
                      d->microbatches, (long long)body_events_max);
}

/* The searched sequences as events, less what the data do not ask for. That cannot hang: events depend on events of
 * their own microbatch alone. */
static motet_status write_open(mt_arena *arena, mt_derivation *d, const mt_wave *wave, int32_t first, int64_t work,
                               bool split, motet_error *error) {
  int64_t room = mt_wave_steps(wave);
  mt_wave_step *steps = MT_ARENA_NEW(arena, mt_wave_step, room * wave->ranks);
  int64_t *counts = MT_ARENA_NEW(arena, int64_t, wave->ranks);
  d->body_begin = MT_ARENA_NEW(arena, int64_t, (size_t)d->ranks + 1);
  d->body = MT_ARENA_NEW(arena, mt_event, room * wave->ranks);
  if (steps == NULL || counts == NULL || d->body_begin == NULL || d->body == NULL ||
      !mt_wave_order(arena, wave, work, steps, counts))
    return mt_error_memory(error, (unsigned long long)(room * wave->ranks) * sizeof *d->body, "body sequences");
  static const int kinds[] = {
      [MT_WAVE_FORWARD] = MOTET_FWD, [MT_WAVE_INPUT] = MOTET_BWD_X, [MT_WAVE_WEIGHT] = MOTET_BWD_W};
  int64_t at = 0;
  for (int32_t r = 0; r < wave->ranks; r++) {
    for (int64_t i = 0; i < counts[r]; i++) {
      mt_wave_step step = steps[r * room + i];
      mt_layout layout = {.map = wave->map, .pipeline = wave->ranks, .data = 1, .context = 1};
      /* Within a chunk the slab map is its own inverse. */
      int32_t in_chunk = mt_layout_rank(&layout, step.chunk * wave->ranks + r);
      int32_t stage = first + step.chunk * wave->ranks + in_chunk;
      if (!mt_stage_active(d, stage, step.microbatch)) continue;
      int kind = step.kind == MT_WAVE_INPUT && !split ? backward_kind(d->stages[stage].gate) : kinds[step.kind];
      d->body[at++] = (mt_event){.kind = (uint8_t)kind, .stage = stage, .microbatch = step.microbatch};
    }
    d->body_begin[r + 1] = at;
  }
  return MOTET_OK;
}

bool mt_body_is_split(const mt_derivation *derivation) {
  const mt_region *region = open_region(derivation);
  return region != NULL && mt_region_row(region)->split;
}

motet_status mt_body_order_by(mt_arena *arena, mt_derivation *derivation, const mt_body_times *times,
                              motet_error *error) {
  const mt_region *region = open_region(derivation);
  const mt_skeleton_row *row = mt_region_row(region);
  int32_t first = 0;
  while (&derivation->regions[derivation->stages[first].region] != region) first++;
  int32_t chunks = region->skeleton.virtual_stages;
  mt_gate *gate = MT_ARENA_NEW(arena, mt_gate, region->slabs);
  if (gate == NULL) return mt_error_memory(error, sizeof *gate, "body sequences");
  /* A whole backward is an input gradient that takes the time of both: no weight gradient comes after it. */
  for (int32_t slab = 0; slab < region->slabs; slab++) {
    gate[slab] = derivation->stages[first + slab].gate;
    if (!row->split && gate[slab] != MT_GATE_NONE) gate[slab] = MT_GATE_INPUT;
  }
  mt_wave wave = {.ranks = derivation->ranks,
                  .chunks = chunks,
                  .microbatches = derivation->microbatches,
                  .map = row->layout(&region->skeleton, derivation->ranks).map,
                  .limit = row->held(derivation->ranks) * chunks,
                  .forward = times->forward + first,
                  .input = times->input + first,
                  .weight = times->weight + first,
                  .gate = gate,
                  .lag = times->lag};
  motet_status status = check_size(derivation, chunks, mt_wave_steps(&wave), error);
  return status == MOTET_OK ? write_open(arena, derivation, &wave, first, times->work, row->split, error) : status;
}

/* Before times are known all events of an open body take the same. */
static motet_status order_evenly(mt_build *build) {
  mt_derivation *d = build->result;
  double *ones = MT_ARENA_NEW(build->arena, double, d->stage_count);
  if (ones == NULL) return mt_error_memory(build->error, sizeof *ones, "body sequences");
  for (int32_t s = 0; s < d->stage_count; s++) ones[s] = 1.0;
  mt_body_times times = {.forward = ones, .input = ones, .weight = ones, .work = work_first};
  return mt_body_order_by(build->arena, d, &times, build->error);
}

motet_status mt_build_body(mt_build *build) {
  mt_derivation *d = build->result;
  if (mt_body_is_open(d)) return order_evenly(build);
  mt_body_order *order = NULL;
  int32_t sharded = 0;
  for (int32_t r = 0; r < d->region_count; r++) {
    const mt_skeleton_row *row = mt_region_row(&d->regions[r]);
    if (row->placement != MT_PLACEMENT_SHARDED) continue;
    order = row->body; /* one for all: mixed Sharded regions were refused */
    sharded += d->regions[r].slabs;
  }
  mt_body_shape shape = {.ranks = d->ranks, .chunks = sharded / d->ranks, .microbatches = d->microbatches};
  int64_t steps_a_rank = mt_body_steps(&shape); /* below 2^58 */
  motet_status status = check_size(d, shape.chunks, steps_a_rank, build->error);
  if (status != MOTET_OK) return status;
  d->body_begin = MT_ARENA_NEW(build->arena, int64_t, (size_t)d->ranks + 1);
  d->body = MT_ARENA_NEW(build->arena, mt_event, steps_a_rank * d->ranks);
  mt_body_step *steps = MT_ARENA_NEW(build->arena, mt_body_step, steps_a_rank);
  int32_t *stages = MT_ARENA_NEW(build->arena, int32_t, sharded); /* (ranks, chunks) */
  if (d->body_begin == NULL || d->body == NULL || steps == NULL || stages == NULL)
    return mt_error_memory(build->error, (unsigned long long)(steps_a_rank * d->ranks) * sizeof *d->body,
                           "body sequences");
  /* body_begin serves as the counter of a rank's chunks first. */
  for (int32_t s = 0; s < d->stage_count; s++)
    if (d->stages[s].rank >= 0)
      stages[(int64_t)d->stages[s].rank * shape.chunks + d->body_begin[d->stages[s].rank]++] = s;
  memset(d->body_begin, 0, ((size_t)d->ranks + 1) * sizeof *d->body_begin);
  for (int32_t rank = 0; rank < d->ranks; rank++) {
    int64_t count = order == NULL ? 0 : order(&shape, rank, steps);
    d->body_begin[rank + 1] =
        append_events(d, &stages[(int64_t)rank * shape.chunks], steps, count, d->body_begin[rank]);
  }
  return MOTET_OK;
}
