/* Body sequences: each rank's events of the Sharded stages, in order.
 *
 * Regions that share their ranks run in one wavefront: a crew. A crew that others depend on runs ahead of them by
 * as many microbatches as they have under way, as the first stages of one long pipeline would: then a backward
 * never waits for a forward that its own rank has put behind another backward. */
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

bool mt_body_is_split(const mt_derivation *derivation, int32_t stage) {
  return mt_region_row(&derivation->regions[derivation->stages[stage].region])->split;
}

bool mt_body_is_open(const mt_derivation *derivation) {
  for (int32_t r = 0; r < derivation->region_count; r++)
    if (mt_region_row(&derivation->regions[r])->held != NULL) return true;
  return false;
}

/* The ranks of one wavefront, data pipelines side by side. */
typedef struct crew {
  const mt_region *region; /* the first of its Sharded regions; all have one skeleton's order */
  int32_t chunks;
  bool done;
  int64_t *begin; /* [data * pipeline + 1] in events */
  mt_event *events;
} crew;

typedef struct bodies {
  mt_arena *arena;
  mt_derivation *derivation;
  const mt_body_times *times; /* NULL: not known yet */
  int64_t work;               /* then */
  motet_error *error;
  int32_t crew_count;
  crew *crews;
  int32_t *crew_of;     /* [stages] -1: replicated */
  int32_t *chunk_begin; /* [P + 1] */
  int32_t *chunks;      /* stages of each pipeline's rank of microbatch 0 */
  int32_t *lead;        /* [stages] how many microbatches before the one of a backward its rank has sent forward */
  int32_t *latest;      /* [stages] the same under construction */
} bodies;

static motet_status no_room(const bodies *b, unsigned long long bytes) {
  return mt_error_memory(b->error, bytes, "body sequences");
}

static motet_status find_crews(bodies *b) {
  mt_derivation *d = b->derivation;
  b->crews = MT_ARENA_NEW(b->arena, crew, d->region_count);
  b->crew_of = MT_ARENA_NEW(b->arena, int32_t, d->stage_count);
  b->chunk_begin = MT_ARENA_NEW(b->arena, int32_t, (size_t)d->ranks + 1);
  b->chunks = MT_ARENA_NEW(b->arena, int32_t, d->stage_count);
  b->lead = MT_ARENA_NEW(b->arena, int32_t, d->stage_count);
  b->latest = MT_ARENA_NEW(b->arena, int32_t, d->stage_count);
  int32_t *next = MT_ARENA_NEW(b->arena, int32_t, d->ranks);
  if (b->crews == NULL || b->crew_of == NULL || b->chunk_begin == NULL || b->chunks == NULL || b->lead == NULL ||
      b->latest == NULL || next == NULL)
    return no_room(b, (unsigned long long)d->stage_count * 16);
  for (int32_t s = 0; s < d->stage_count; s++) {
    const mt_region *region = &d->regions[d->stages[s].region];
    b->crew_of[s] = -1;
    if (d->stages[s].rank < 0) continue;
    b->chunk_begin[d->stages[s].rank + 1]++;
    int32_t c = 0;
    while (c < b->crew_count && b->crews[c].region->first_rank != region->first_rank) c++;
    b->crew_of[s] = c;
    if (c == b->crew_count) b->crews[b->crew_count++] = (crew){.region = region};
    if (d->stages[s].rank == region->first_rank) b->crews[c].chunks++;
  }
  for (int32_t r = 0; r < d->ranks; r++) b->chunk_begin[r + 1] += b->chunk_begin[r];
  for (int32_t s = 0; s < d->stage_count; s++) {
    int32_t rank = d->stages[s].rank;
    if (rank >= 0) b->chunks[b->chunk_begin[rank] + next[rank]++] = s;
  }
  return MOTET_OK;
}

/* Microbatches of one of a crew's pipelines: number, number + data, ... */
static int32_t pipeline_microbatches(const bodies *b, const crew *c, int32_t pipeline) {
  return (b->derivation->microbatches - pipeline + c->region->data - 1) / c->region->data;
}

/* Runs of them that are computed together: a body's steps are of runs. */
static int32_t pipeline_runs(const bodies *b, const crew *c, int32_t pipeline) {
  int32_t batch = c->region->skeleton.batch;
  return (pipeline_microbatches(b, c, pipeline) + batch - 1) / batch;
}

static motet_status check_size(const bodies *b, const crew *c, int64_t steps_a_rank) {
  const mt_derivation *d = b->derivation;
  if (steps_a_rank <= body_events_max / d->ranks) return MOTET_OK;
  return mt_error_set(b->error, MOTET_ERROR_LIMIT,
                      "%d ranks, %d chunks each and %d microbatches make more than %lld events", d->ranks,
                      c->chunks, d->microbatches, (long long)body_events_max);
}

/* Appends the events of a run that the data ask for. Leaving events out cannot hang: events depend on events of
 * their own microbatches alone. */
static int64_t append(bodies *b, crew *c, int kind, int32_t stage, int32_t lane, int32_t run, int64_t at) {
  const mt_derivation *d = b->derivation;
  int32_t data = c->region->data, batch = c->region->skeleton.batch, last = -1;
  for (int32_t i = 0; kind >= 0 && i < batch; i++) {
    int64_t microbatch = lane + ((int64_t)run * batch + i) * data;
    if (microbatch >= d->microbatches) break;
    int32_t m = (int32_t)microbatch;
    if (!mt_stage_active(d, stage, m)) continue;
    if (kind == MOTET_FWD) {
      b->latest[stage] = m;
    } else if (kind != MOTET_BWD_W && b->latest[stage] - m > b->lead[stage]) {
      b->lead[stage] = b->latest[stage] - m;
    }
    if (last >= 0) c->events[at - 1].joined = true;
    last = m;
    c->events[at++] = (mt_event){.kind = (uint8_t)kind, .stage = stage, .microbatch = m};
  }
  return at;
}

/* ---- orders of events that the skeleton fixes ---- */

static motet_status write_fixed(bodies *b, crew *c, int32_t ahead) {
  mt_derivation *d = b->derivation;
  mt_body_order *order = mt_region_row(c->region)->body;
  int32_t pipeline = c->region->pipeline;
  mt_body_shape longest = {.ranks = pipeline, .chunks = c->chunks, .microbatches = pipeline_runs(b, c, 0)};
  mt_body_step *steps = MT_ARENA_NEW(b->arena, mt_body_step, mt_body_steps(&longest));
  if (steps == NULL) return no_room(b, (unsigned long long)d->microbatches * sizeof *steps);
  int64_t at = 0;
  for (int32_t lane = 0; lane < c->region->data; lane++) {
    mt_body_shape shape = longest;
    shape.microbatches = pipeline_runs(b, c, lane);
    shape.ahead = ahead;
    for (int32_t r = 0; r < pipeline; r++) {
      int64_t count = shape.microbatches > 0 ? order(&shape, r, steps) : 0;
      for (int64_t i = 0; i < count; i++) {
        int32_t stage = b->chunks[b->chunk_begin[c->region->first_rank + r] + steps[i].chunk];
        int kind = event_kind(steps[i].kind, d->stages[stage].gate);
        at = append(b, c, kind, stage, lane, steps[i].microbatch, at);
      }
      c->begin[lane * pipeline + r + 1] = at;
    }
  }
  return MOTET_OK;
}

/* ---- orders that are searched for ---- */

static int64_t write_open_rank(bodies *b, crew *c, const mt_wave *wave, const mt_wave_step *steps, int64_t count,
                               int32_t rank, int32_t lane, int64_t at) {
  static const int kinds[] = {
      [MT_WAVE_FORWARD] = MOTET_FWD, [MT_WAVE_INPUT] = MOTET_BWD_X, [MT_WAVE_WEIGHT] = MOTET_BWD_W};
  int32_t runs = pipeline_runs(b, c, lane);
  int32_t begin = b->chunk_begin[c->region->first_rank + rank];
  for (int64_t i = 0; i < count; i++) {
    if (steps[i].microbatch >= runs) continue;
    int32_t stage = b->chunks[begin + steps[i].chunk];
    bool whole = steps[i].kind == MT_WAVE_INPUT && !mt_body_is_split(b->derivation, stage);
    int kind = whole ? backward_kind(b->derivation->stages[stage].gate) : kinds[steps[i].kind];
    at = append(b, c, kind, stage, lane, steps[i].microbatch, at);
  }
  c->begin[lane * wave->ranks + rank + 1] = at;
  return at;
}

/* Before times are known all events of an open body take the same. */
static const mt_body_times *even_times(bodies *b) {
  mt_body_times *times = MT_ARENA_NEW(b->arena, mt_body_times, 1);
  double *ones = MT_ARENA_NEW(b->arena, double, b->derivation->stage_count);
  if (times == NULL || ones == NULL) return NULL;
  for (int32_t s = 0; s < b->derivation->stage_count; s++) ones[s] = 1.0;
  *times = (mt_body_times){.forward = ones, .input = ones, .weight = ones, .work = b->work};
  return times;
}

static motet_status write_open(bodies *b, crew *c) {
  mt_derivation *d = b->derivation;
  const mt_skeleton_row *row = mt_region_row(c->region);
  int32_t first = 0, pipeline = c->region->pipeline;
  while (&d->regions[d->stages[first].region] != c->region) first++;
  mt_gate *gate = MT_ARENA_NEW(b->arena, mt_gate, c->region->slabs);
  const mt_body_times *times = b->times != NULL ? b->times : even_times(b);
  if (gate == NULL || times == NULL) return no_room(b, sizeof *gate);
  /* A whole backward is an input gradient that takes the time of both: no weight gradient comes after it. */
  for (int32_t slab = 0; slab < c->region->slabs; slab++) {
    gate[slab] = d->stages[first + slab].gate;
    if (!row->split && gate[slab] != MT_GATE_NONE) gate[slab] = MT_GATE_INPUT;
  }
  mt_wave wave = {.ranks = pipeline,
                  .chunks = c->chunks,
                  .microbatches = pipeline_runs(b, c, 0),
                  .map = row->layout(&c->region->skeleton, pipeline).map,
                  .limit = row->held(pipeline) * c->chunks,
                  .forward = times->forward + first,
                  .input = times->input + first,
                  .weight = times->weight + first,
                  .gate = gate,
                  .lag = times->lag};
  int64_t room = mt_wave_steps(&wave), at = 0;
  mt_wave_step *steps = MT_ARENA_NEW(b->arena, mt_wave_step, room * pipeline);
  int64_t *counts = MT_ARENA_NEW(b->arena, int64_t, pipeline);
  if (steps == NULL || counts == NULL || !mt_wave_order(b->arena, &wave, times->work, steps, counts))
    return no_room(b, (unsigned long long)(room * pipeline) * sizeof *steps);
  for (int32_t lane = 0; lane < c->region->data; lane++)
    for (int32_t r = 0; r < pipeline; r++)
      at = write_open_rank(b, c, &wave, steps + r * room, counts[r], r, lane, at);
  return MOTET_OK;
}

/* ---- crews behind one another ---- */

/* What stands between the forward and the backward of a stage of crew @p own as its microbatches see it: forwards
 * that the crews behind it need before, in microbatches. -1: a crew behind it has no sequence yet; 0: no gradient
 * comes from elsewhere. */
static int32_t lead_behind(const bodies *b, int32_t own, int32_t stage) {
  const mt_derivation *d = b->derivation;
  int32_t most = 0;
  for (int32_t e = 0; e < d->edge_count; e++) {
    if (d->edges[e].from != stage || !d->edges[e].gradient) continue;
    int32_t to = d->edges[e].to, other = b->crew_of[to], lead = 0;
    if (other == own) continue;
    if (other < 0)
      lead = lead_behind(b, own, to);
    else
      lead = b->crews[other].done ? b->lead[to] + b->crews[other].region->data : -1;
    if (lead < 0) return -1;
    if (lead > most) most = lead;
  }
  return most;
}

/* How many runs a crew is ahead; -1: not known yet. */
static int32_t crew_ahead(const bodies *b, int32_t own) {
  int32_t most = 0, last = -1;
  for (int32_t e = 0; e < b->derivation->edge_count; e++) {
    int32_t stage = b->derivation->edges[e].from;
    if (stage == last || b->crew_of[stage] != own) continue;
    last = stage;
    int32_t to = b->derivation->edges[e].to;
    bool inside = b->crew_of[to] == own;
    bool single = e + 1 == b->derivation->edge_count || b->derivation->edges[e + 1].from != stage;
    if (inside && single) continue;
    int32_t lead = lead_behind(b, own, stage);
    if (lead < 0) return -1;
    if (lead > most) most = lead;
  }
  int64_t step = (int64_t)b->crews[own].region->data * b->crews[own].region->skeleton.batch;
  return (int32_t)((most + step - 1) / step);
}

static motet_status refuse_open(const bodies *b, const crew *c) {
  const char *skeleton = mt_region_row(c->region)->name;
  mt_error_set(
      b->error, MOTET_ERROR_ILLEGAL,
      "region %s is %s, and regions on other ranks send it gradients, with which its order is not defined; "
      "accepted: 1f1b or gpipe for it, or %s for a last region alone",
      c->region->name, skeleton, skeleton);
  mt_error_rule(b->error, "mixed", -1, -1, -1);
  mt_error_key(b->error, c->region->name);
  return MOTET_ERROR_ILLEGAL;
}

static motet_status write_crew(bodies *b, crew *c, int32_t ahead) {
  bool open = mt_region_row(c->region)->held != NULL;
  if ((open || mt_region_row(c->region)->split) && ahead > 0) return refuse_open(b, c);
  int64_t each = 3 * (int64_t)c->chunks * pipeline_microbatches(b, c, 0); /* below 2^58 */
  int64_t ranks = (int64_t)c->region->pipeline * c->region->data;
  motet_status status = check_size(b, c, each);
  if (status != MOTET_OK) return status;
  c->begin = MT_ARENA_NEW(b->arena, int64_t, ranks + 1);
  c->events = MT_ARENA_NEW(b->arena, mt_event, each * ranks);
  if (c->begin == NULL || c->events == NULL)
    return no_room(b, (unsigned long long)(each * ranks) * sizeof(mt_event));
  c->done = true;
  return open ? write_open(b, c) : write_fixed(b, c, ahead);
}

/* Crews depend on one another without a cycle (ranks.c refuses others): the last first. */
static motet_status write_crews(bodies *b) {
  for (int32_t done = 0; done < b->crew_count;)
    for (int32_t c = b->crew_count; c-- > 0;) {
      int32_t ahead = b->crews[c].done ? -1 : crew_ahead(b, c);
      if (ahead < 0) continue;
      motet_status status = write_crew(b, &b->crews[c], ahead);
      if (status != MOTET_OK) return status;
      done++;
    }
  return MOTET_OK;
}

/* The crews' sequences as those of all ranks. */
static motet_status join_crews(bodies *b) {
  mt_derivation *d = b->derivation;
  if (b->crew_count == 1 && b->crews[0].region->pipeline == d->ranks) {
    d->body_begin = b->crews[0].begin;
    d->body = b->crews[0].events;
    return MOTET_OK;
  }
  int64_t *begin = MT_ARENA_NEW(b->arena, int64_t, (size_t)d->ranks + 1), total = 0;
  for (int32_t c = 0; c < b->crew_count; c++) {
    const mt_region *region = b->crews[c].region;
    int32_t ranks = region->pipeline * region->data;
    for (int32_t r = 0; begin != NULL && r < ranks; r++)
      begin[region->first_rank + r + 1] = b->crews[c].begin[r + 1] - b->crews[c].begin[r];
    total += b->crews[c].begin[ranks];
  }
  mt_event *events = MT_ARENA_NEW(b->arena, mt_event, total);
  if (begin == NULL || events == NULL) return no_room(b, (unsigned long long)total * sizeof *events);
  for (int32_t r = 0; r < d->ranks; r++) begin[r + 1] += begin[r];
  for (int32_t c = 0; c < b->crew_count; c++) {
    const mt_region *region = b->crews[c].region;
    int64_t count = b->crews[c].begin[region->pipeline * region->data];
    if (count > 0) memcpy(events + begin[region->first_rank], b->crews[c].events, (size_t)count * sizeof *events);
  }
  d->body_begin = begin;
  d->body = events;
  return MOTET_OK;
}

static motet_status make_bodies(bodies *b) {
  motet_status status = find_crews(b);
  if (status == MOTET_OK) status = write_crews(b);
  return status == MOTET_OK ? join_crews(b) : status;
}

motet_status mt_body_order_by(mt_arena *arena, mt_derivation *derivation, const mt_body_times *times,
                              motet_error *error) {
  return make_bodies(&(bodies){.arena = arena, .derivation = derivation, .times = times, .error = error});
}

motet_status mt_build_body(mt_build *build) {
  int64_t work = build->request->body_work > 0 ? build->request->body_work : work_first;
  return make_bodies(
      &(bodies){.arena = build->arena, .derivation = build->result, .work = work, .error = build->error});
}
