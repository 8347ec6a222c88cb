/* The bound of an open body. Whatever the orders are, an event waits for the way of its microbatch to it, its head,
 * and behind it lies the rest of that way, its tail: longest paths over the derivation's edges, with the transfers
 * between ranks that are known.
 *
 * One rank runs one event at a time, so for every set of its events the makespan is at least their least head,
 * their lengths, and their least tail. The largest of these over all sets is what the preemptive schedule by
 * longest tail takes (Jackson 1955; that it is the largest: Carlier 1982, proposition 2). It needs no more than to
 * be run.
 *
 * All ranks that share the work together do no more than one rank that is so many times as fast: the same bound, of
 * all their events and of those that any of them may own, with lengths divided by their number. */
#include "order/open_bound.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* An event, or events of several microbatches that are alike. */
typedef struct job {
  double head, length, tail;
  int32_t rank; /* -1: whoever owns it */
} job;

/* What there is to do for a microbatch; [stages] each, but lag. What a stage lacks takes no time. */
typedef struct work {
  int32_t *rank;                       /* -1: whoever owns it; NOWHERE: nothing to do */
  double *forward, *backward, *weight; /* seconds; backward: of all that the stage before waits for */
  double *lag;                         /* [edges] of a transfer, forth as back */
} work;
enum { NOWHERE = -2 };

typedef struct bounder {
  const mt_derivation *derivation;
  const mt_cost_table *costs;
  const mt_order_options *options;
  work now, last; /* last: of `alike` microbatches that are not among the jobs yet */
  int32_t alike;
  double *forward_head, *backward_head; /* [stages] least starts */
  double *forward_tail, *backward_tail; /* [stages] least times from their ends to the end of everything */
  job *jobs;
  int32_t count;
  int32_t *heap; /* [jobs] */
  double most;   /* the bound so far */
} bounder;

/* ---- one machine ---- */

static int compare_jobs(const void *left, const void *right) {
  const job *a = left, *b = right;
  if (a->head != b->head) return a->head < b->head ? -1 : 1;
  return (a->tail < b->tail) - (a->tail > b->tail);
}

static void sift_up(const job *jobs, int32_t *heap, int32_t at) {
  for (int32_t parent = (at - 1) / 2; at > 0 && jobs[heap[parent]].tail < jobs[heap[at]].tail;
       at = parent, parent = (at - 1) / 2) {
    int32_t swap = heap[at];
    heap[at] = heap[parent];
    heap[parent] = swap;
  }
}

static void sift_down(const job *jobs, int32_t *heap, int32_t count) {
  for (int32_t at = 0, child = 1; child < count; at = child, child = 2 * at + 1) {
    if (child + 1 < count && jobs[heap[child]].tail < jobs[heap[child + 1]].tail) child++;
    if (!(jobs[heap[at]].tail < jobs[heap[child]].tail)) break;
    int32_t swap = heap[at];
    heap[at] = heap[child];
    heap[child] = swap;
  }
}

/* The makespan of the preemptive schedule that runs the longest tail of what has come. @p jobs, by head, are used
 * up. */
static double run_machine(job *jobs, int32_t count, int32_t *heap) {
  double now = 0.0, makespan = 0.0;
  int32_t next = 0, open = 0;
  while (next < count || open > 0) {
    if (open == 0 && now < jobs[next].head) now = jobs[next].head;
    for (; next < count && jobs[next].head <= now; next++) {
      heap[open] = next;
      sift_up(jobs, heap, open++);
    }
    job *run = &jobs[heap[0]];
    if (next < count && now + run->length > jobs[next].head) {
      run->length -= jobs[next].head - now;
      now = jobs[next].head;
      continue;
    }
    now += run->length;
    makespan = fmax(makespan, now + run->tail);
    heap[0] = heap[--open];
    sift_down(jobs, heap, open);
  }
  return makespan;
}

/* ---- a microbatch's way ---- */

/* Encodes that a step may find done are no work of it for certain. */
static bool is_ahead(const mt_derivation *d, int32_t stage) {
  const mt_region *region = &d->regions[d->stages[stage].region];
  return region->replicated && region->skeleton.order == MT_ORDER_AHEAD;
}

static void set_lengths(bounder *b, int32_t stage, int32_t m) {
  const mt_derivation *d = b->derivation;
  const mt_stage *place = &d->stages[stage];
  work *w = &b->now;
  w->forward[stage] = w->backward[stage] = w->weight[stage] = 0.0;
  w->rank[stage] = mt_stage_active(d, stage, m) ? mt_stage_rank(d, stage, m) : NOWHERE;
  if (w->rank[stage] == NOWHERE) return;
  if (!is_ahead(d, stage)) w->forward[stage] = mt_cost_seconds(b->costs, MT_COST_FORWARD, stage, m);
  if (place->gate == MT_GATE_NONE) return;
  bool weighs = (place->gate & MT_GATE_WEIGHTS) != 0, split = place->rank >= 0 && mt_body_is_split(d, stage);
  w->backward[stage] =
      mt_cost_seconds(b->costs, weighs && !split ? MT_COST_BACKWARD : MT_COST_BACKWARD_X, stage, m);
  if (weighs && split) w->weight[stage] = mt_cost_seconds(b->costs, MT_COST_BACKWARD_W, stage, m);
}

/* An owner's transfers may be none: the other end may be the owner. */
static void set_lag(bounder *b, int32_t e, int32_t m) {
  const mt_edge *edge = &b->derivation->edges[e];
  const mt_links *links = &b->costs->links;
  const mt_order_options *options = b->options;
  int32_t from = b->now.rank[edge->from], to = b->now.rank[edge->to];
  b->now.lag[e] = 0.0;
  if (from < 0 || to < 0 || from == to) return;
  int64_t bytes = 0;
  if (options != NULL && options->output_bytes.values != NULL)
    bytes =
        options->output_bytes
            .values[edge->from * options->output_bytes.stage_stride + m * options->output_bytes.microbatch_stride];
  int32_t first = options != NULL ? options->first_rank : 0;
  bool near = mt_links_same_node(links, first + from, first + to);
  b->now.lag[e] = mt_link_seconds(near ? links->local : links->remote, bytes);
}

static void raise_to(double *value, double least) {
  if (least > *value) *value = least;
}

/* Longest paths of the last microbatch. Edges lead up and are sorted by where they come from: those into a stage
 * stand before those out of it. */
static void set_paths(bounder *b) {
  const mt_derivation *d = b->derivation;
  const work *w = &b->last;
  for (int32_t s = 0; s < d->stage_count; s++) {
    b->forward_head[s] = 0.0;
    b->backward_tail[s] = w->weight[s];
  }
  for (int32_t e = 0; e < d->edge_count; e++) {
    int32_t from = d->edges[e].from, to = d->edges[e].to;
    if (w->rank[from] == NOWHERE || w->rank[to] == NOWHERE) continue;
    raise_to(&b->forward_head[to], b->forward_head[from] + w->forward[from] + w->lag[e]);
    if (d->edges[e].gradient)
      raise_to(&b->backward_tail[to], w->lag[e] + w->backward[from] + b->backward_tail[from]);
  }
  for (int32_t s = 0; s < d->stage_count; s++) {
    b->backward_head[s] = b->forward_head[s] + w->forward[s];
    b->forward_tail[s] = w->backward[s] + b->backward_tail[s];
  }
  for (int32_t e = d->edge_count; e-- > 0;) {
    int32_t from = d->edges[e].from, to = d->edges[e].to;
    if (w->rank[from] == NOWHERE || w->rank[to] == NOWHERE) continue;
    raise_to(&b->forward_tail[from], w->lag[e] + w->forward[to] + b->forward_tail[to]);
    if (d->edges[e].gradient) raise_to(&b->backward_head[from], b->backward_head[to] + w->backward[to] + w->lag[e]);
  }
}

static void add_job(bounder *b, int32_t rank, double head, double length, double tail) {
  raise_to(&b->most, head + length + tail);
  if (length > 0.0) b->jobs[b->count++] = (job){head, b->alike * length, tail, rank};
}

static void add_jobs(bounder *b) {
  const work *w = &b->last;
  if (b->alike == 0) return;
  set_paths(b);
  for (int32_t s = 0; s < b->derivation->stage_count; s++) {
    int32_t rank = w->rank[s];
    if (rank == NOWHERE) continue;
    add_job(b, rank, b->forward_head[s], w->forward[s], b->forward_tail[s]);
    add_job(b, rank, b->backward_head[s], w->backward[s], b->backward_tail[s]);
    add_job(b, rank, b->backward_head[s] + w->backward[s], w->weight[s], 0.0);
  }
}

static void list_jobs(bounder *b) {
  const mt_derivation *d = b->derivation;
  size_t values = 3 * (size_t)d->stage_count + (size_t)d->edge_count;
  for (int32_t m = 0; m < d->microbatches; m++) {
    for (int32_t s = 0; s < d->stage_count; s++) set_lengths(b, s, m);
    for (int32_t e = 0; e < d->edge_count; e++) set_lag(b, e, m);
    bool alike = m > 0 && memcmp(b->now.rank, b->last.rank, (size_t)d->stage_count * sizeof *b->now.rank) == 0 &&
                 memcmp(b->now.forward, b->last.forward, values * sizeof *b->now.forward) == 0;
    if (!alike) {
      work swap = b->last;
      add_jobs(b);
      b->last = b->now;
      b->now = swap;
      b->alike = 0;
    }
    b->alike++;
  }
  add_jobs(b);
}

/* ---- all of them ---- */

/* One block of times, that microbatches are compared by. */
static bool open_work(mt_arena *arena, const mt_derivation *d, work *w) {
  w->rank = MT_ARENA_NEW(arena, int32_t, d->stage_count);
  w->forward = MT_ARENA_NEW(arena, double, 3 * (int64_t)d->stage_count + d->edge_count);
  if (w->rank == NULL || w->forward == NULL) return false;
  w->backward = w->forward + d->stage_count;
  w->weight = w->backward + d->stage_count;
  w->lag = w->weight + d->stage_count;
  return true;
}

/* The jobs of each rank. Returns how many jobs no rank has for certain; -1: memory is out. */
static int32_t run_ranks(mt_arena *arena, bounder *b) {
  const mt_derivation *d = b->derivation;
  int32_t *begin = MT_ARENA_NEW(arena, int32_t, d->ranks + 1);
  job *own = MT_ARENA_NEW(arena, job, b->count);
  if (begin == NULL || own == NULL) return -1;
  for (int32_t i = 0; i < b->count; i++)
    if (b->jobs[i].rank >= 0) begin[b->jobs[i].rank]++;
  for (int32_t r = 0; r < d->ranks; r++) begin[r + 1] += begin[r];
  for (int32_t i = b->count; i-- > 0;)
    if (b->jobs[i].rank >= 0) own[--begin[b->jobs[i].rank]] = b->jobs[i];
  for (int32_t r = 0; r < d->ranks; r++)
    raise_to(&b->most, run_machine(own + begin[r], begin[r + 1] - begin[r], b->heap));
  return b->count - begin[d->ranks];
}

/* All jobs of the ranks that share the work, spread over them. */
static double run_shared(bounder *b) {
  const mt_derivation *d = b->derivation;
  int32_t shared = 0;
  for (int32_t i = 0; i < b->count; i++) {
    int32_t place = b->jobs[i].rank - d->shared_first;
    if (b->jobs[i].rank >= 0 && (place < 0 || place >= d->shared_ranks)) continue;
    b->jobs[shared] = b->jobs[i];
    b->jobs[shared++].length /= d->shared_ranks;
  }
  return run_machine(b->jobs, shared, b->heap);
}

/* Where every job has its rank, the busiest of a set has no less of it than the ranks on average, no sooner and
 * with no shorter tail: the ranks' own bounds are enough. */
static bool run_machines(mt_arena *arena, bounder *b) {
  b->heap = MT_ARENA_NEW(arena, int32_t, b->count);
  if (b->heap == NULL) return false;
  qsort(b->jobs, (size_t)b->count, sizeof *b->jobs, compare_jobs);
  int32_t free_jobs = run_ranks(arena, b);
  if (free_jobs > 0) raise_to(&b->most, run_shared(b));
  return free_jobs >= 0;
}

motet_status mt_order_open_bound(mt_arena *arena, const mt_derivation *d, const mt_cost_table *costs,
                                 const mt_order_options *options, motet_error *error, double *bound) {
  int64_t stages = d->stage_count, jobs = 3 * stages * d->microbatches;
  bounder b = {.derivation = d,
               .costs = costs,
               .options = options,
               .forward_head = MT_ARENA_NEW(arena, double, stages),
               .backward_head = MT_ARENA_NEW(arena, double, stages),
               .forward_tail = MT_ARENA_NEW(arena, double, stages),
               .backward_tail = MT_ARENA_NEW(arena, double, stages),
               .jobs = jobs <= INT32_MAX ? MT_ARENA_NEW(arena, job, jobs) : NULL};
  bool room = b.forward_head != NULL && b.backward_head != NULL && b.forward_tail != NULL &&
              b.backward_tail != NULL && b.jobs != NULL && open_work(arena, d, &b.now) &&
              open_work(arena, d, &b.last);
  if (room) list_jobs(&b);
  if (!room || !run_machines(arena, &b))
    return mt_error_memory(error, (unsigned long long)jobs * sizeof(job), "a lower bound");
  *bound = b.most;
  return MOTET_OK;
}
