#include "search/pipeline.h"

#include "algebra/body.h"

#include <math.h>

/* One event in the order in which all can run. Cells are stage * microbatches + microbatch. */
typedef struct event {
  int32_t rank, stage, cell;
  bool backward;
} event;

struct mt_search_pipeline {
  int32_t ranks, stages, microbatches;
  int64_t event_count;
  event *events;
  double *forward, *backward; /* [stages] */
  bool *trains;               /* [stages] */
  int32_t *held;              /* [stages] */
  double *forward_end, *backward_end, *free;
};

typedef struct orders {
  const mt_body_shape *shape;
  mt_body_step *steps; /* (ranks, room) */
  int64_t room, *count, *next;
} orders;

/* Whether what the step needs has been written. */
static bool ready(const mt_search_pipeline *p, const bool *done, const event *e) {
  int32_t m = e->cell - e->stage * p->microbatches;
  int64_t half = (int64_t)p->stages * p->microbatches;
  if (!e->backward) return e->stage == 0 || done[e->cell - p->microbatches];
  if (!done[e->cell]) return false;
  return e->stage == p->stages - 1 || done[half + (int64_t)(e->stage + 1) * p->microbatches + m];
}

static event event_of(const mt_search_pipeline *p, const orders *o, int32_t rank, const mt_body_step *step) {
  int32_t stage = step->chunk * o->shape->ranks + rank;
  return (event){.rank = rank,
                 .stage = stage,
                 .cell = stage * p->microbatches + step->microbatch,
                 .backward = step->kind != MT_BODY_FORWARD};
}

/* Merges the ranks' sequences; they cannot hang (body.c). */
static void merge(mt_search_pipeline *p, orders *o, bool *done, int32_t *open) {
  int64_t total = 0, half = (int64_t)p->stages * p->microbatches;
  for (int32_t r = 0; r < p->ranks; r++) total += o->count[r];
  for (int32_t r = 0; p->event_count < total; r = (r + 1) % p->ranks)
    while (o->next[r] < o->count[r]) {
      event e = event_of(p, o, r, &o->steps[r * o->room + o->next[r]]);
      if (!ready(p, done, &e)) break;
      done[e.backward ? half + e.cell : e.cell] = true;
      open[e.stage] += e.backward ? -1 : 1;
      if (open[e.stage] > p->held[e.stage]) p->held[e.stage] = open[e.stage];
      p->events[p->event_count++] = e;
      o->next[r]++;
    }
}

motet_status mt_search_pipeline_create(mt_arena *arena, int32_t ranks, int32_t chunks, int32_t microbatches,
                                       motet_error *error, mt_search_pipeline **pipeline) {
  mt_body_shape shape = {.ranks = ranks, .chunks = chunks, .microbatches = microbatches};
  mt_search_pipeline *p = MT_ARENA_NEW(arena, mt_search_pipeline, 1);
  int64_t stages = (int64_t)ranks * chunks, cells = stages * microbatches, room = mt_body_steps(&shape);
  orders o = {.shape = &shape,
              .steps = MT_ARENA_NEW(arena, mt_body_step, room * ranks),
              .room = room,
              .count = MT_ARENA_NEW(arena, int64_t, ranks),
              .next = MT_ARENA_NEW(arena, int64_t, ranks)};
  bool *done = MT_ARENA_NEW(arena, bool, 2 * cells);
  int32_t *open = MT_ARENA_NEW(arena, int32_t, stages);
  if (p == NULL || o.steps == NULL || o.count == NULL || o.next == NULL || done == NULL || open == NULL)
    return mt_error_memory(error, (unsigned long long)cells * 24, "a pipeline");
  *p = (mt_search_pipeline){.ranks = ranks,
                            .stages = (int32_t)stages,
                            .microbatches = microbatches,
                            .events = MT_ARENA_NEW(arena, event, 2 * cells),
                            .forward = MT_ARENA_NEW(arena, double, stages),
                            .backward = MT_ARENA_NEW(arena, double, stages),
                            .trains = MT_ARENA_NEW(arena, bool, stages),
                            .held = MT_ARENA_NEW(arena, int32_t, stages),
                            .forward_end = MT_ARENA_NEW(arena, double, cells),
                            .backward_end = MT_ARENA_NEW(arena, double, cells),
                            .free = MT_ARENA_NEW(arena, double, ranks)};
  if (p->events == NULL || p->forward == NULL || p->backward == NULL || p->trains == NULL || p->held == NULL ||
      p->forward_end == NULL || p->backward_end == NULL || p->free == NULL)
    return mt_error_memory(error, (unsigned long long)cells * 48, "a pipeline");
  for (int32_t r = 0; r < ranks; r++) o.count[r] = mt_body_1f1b(&shape, r, o.steps + r * room);
  merge(p, &o, done, open);
  *pipeline = p;
  return MOTET_OK;
}

double *mt_search_pipeline_forward(mt_search_pipeline *pipeline) { return pipeline->forward; }

double *mt_search_pipeline_backward(mt_search_pipeline *pipeline) { return pipeline->backward; }

void mt_search_pipeline_trains(mt_search_pipeline *pipeline, int32_t stage, bool trains) {
  pipeline->trains[stage] = trains;
}

int32_t mt_search_pipeline_held(const mt_search_pipeline *pipeline, int32_t stage) { return pipeline->held[stage]; }

/* The innermost loop of every search over stages: comparisons in place of calls of fmax(). */
static inline double later(double a, double b) { return a > b ? a : b; }

double mt_search_pipeline_run(mt_search_pipeline *p, double lag, double limit) {
  double makespan = 0.0, hop = p->ranks > 1 ? lag : 0.0;
  for (int32_t r = 0; r < p->ranks; r++) p->free[r] = 0.0;
  for (int64_t i = 0; i < p->event_count; i++) {
    const event *e = &p->events[i];
    if (e->backward && !p->trains[e->stage]) continue;
    double end = p->free[e->rank];
    if (!e->backward) {
      if (e->stage > 0) end = later(end, p->forward_end[e->cell - p->microbatches] + hop);
      end += p->forward[e->stage];
      p->forward_end[e->cell] = end;
    } else {
      if (e->stage < p->stages - 1) end = later(end, p->backward_end[e->cell + p->microbatches] + hop);
      end += p->backward[e->stage];
      p->backward_end[e->cell] = end;
    }
    p->free[e->rank] = end;
    if (end <= makespan) continue;
    makespan = end;
    if (makespan >= limit) return INFINITY;
  }
  return makespan;
}

double mt_search_pipeline_run_order(mt_search_pipeline *p, const double *forward, const double *backward,
                                    const int32_t *order, double lag) {
  double makespan = 0.0, hop = p->ranks > 1 ? lag : 0.0;
  for (int32_t r = 0; r < p->ranks; r++) p->free[r] = 0.0;
  for (int64_t i = 0; i < p->event_count; i++) {
    const event *e = &p->events[i];
    int64_t row = (int64_t)e->stage * p->microbatches;
    int64_t cell = row + order[e->cell - row];
    double start = p->free[e->rank];
    if (!e->backward) {
      if (e->stage > 0) start = later(start, p->forward_end[e->cell - p->microbatches] + hop);
      p->free[e->rank] = p->forward_end[e->cell] = start + forward[cell];
    } else {
      if (e->stage < p->stages - 1) start = later(start, p->backward_end[e->cell + p->microbatches] + hop);
      p->free[e->rank] = p->backward_end[e->cell] = start + backward[cell];
    }
    if (p->free[e->rank] > makespan) makespan = p->free[e->rank];
  }
  return makespan;
}
