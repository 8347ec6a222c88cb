#include "algebra/wave_run.h"

#include <math.h>

bool mt_wave_runner_make(mt_arena *arena, const mt_wave *wave, mt_wave_runner *runner) {
  int64_t ranks = wave->ranks, slabs = ranks * wave->chunks, cells = slabs * wave->microbatches;
  *runner = (mt_wave_runner){.wave = wave,
                             .streams = 2 * wave->chunks,
                             .rank_of = MT_ARENA_NEW(arena, int32_t, slabs),
                             .slab_of = MT_ARENA_NEW(arena, int32_t, slabs),
                             .forward_end = MT_ARENA_NEW(arena, double, cells),
                             .backward_end = MT_ARENA_NEW(arena, double, cells),
                             .free = MT_ARENA_NEW(arena, double, ranks),
                             .begin = MT_ARENA_NEW(arena, double, ranks),
                             .wake = MT_ARENA_NEW(arena, double, ranks),
                             .late = MT_ARENA_NEW(arena, bool, ranks),
                             .winner = MT_ARENA_NEW(arena, int32_t, 2 * ranks),
                             .next = MT_ARENA_NEW(arena, int32_t, 2 * slabs),
                             .held = MT_ARENA_NEW(arena, int32_t, ranks),
                             .pending = MT_ARENA_NEW(arena, mt_wave_step, cells),
                             .pending_begin = MT_ARENA_NEW(arena, int64_t, ranks),
                             .pending_end = MT_ARENA_NEW(arena, int64_t, ranks),
                             .stack = MT_ARENA_NEW(arena, int32_t, ranks),
                             .stacked = MT_ARENA_NEW(arena, bool, ranks)};
  const void *const blocks[] = {runner->rank_of, runner->slab_of, runner->forward_end, runner->backward_end,
                                runner->free,    runner->begin,   runner->wake,        runner->late,
                                runner->next,    runner->held,    runner->pending,     runner->pending_begin,
                                runner->stack,   runner->stacked, runner->pending_end, runner->winner};
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
    if (blocks[i] == NULL) return false;
  mt_layout layout = {.map = wave->map, .pipeline = wave->ranks, .data = 1, .context = 1};
  for (int32_t slab = 0; slab < slabs; slab++) {
    runner->rank_of[slab] = mt_layout_rank(&layout, slab);
    runner->slab_of[runner->rank_of[slab] * wave->chunks + slab / wave->ranks] = slab;
  }
  return true;
}

static void put(const mt_wave_runner *r, const mt_wave_record *to, int32_t rank, mt_wave_step step) {
  if (to != NULL) to->steps[rank * mt_wave_steps(r->wave) + to->counts[rank]++] = step;
}

/* The stream that comes first in the pattern when @p next are the streams' next microbatches, or -1 at the end.
 * Equal times: the backward first. */
static int32_t first_stream(const mt_wave_runner *r, const mt_wave_pattern *p, int32_t rank, const int32_t *next) {
  int32_t found = -1;
  int64_t least = 0;
  for (int32_t i = r->streams - 1; i >= 0; i--) {
    if (next[i] == r->wave->microbatches) continue;
    int64_t key = p->offset[rank * r->streams + i] + p->period * next[i];
    if (found >= 0 && key >= least) continue;
    found = i;
    least = key;
  }
  return found;
}

static int32_t next_stream(const mt_wave_runner *r, const mt_wave_pattern *p, int32_t rank) {
  return first_stream(r, p, rank, r->next + rank * r->streams);
}

/* When the input of the stream's next event is there; below 0: not known yet. */
static double ready_time(const mt_wave_runner *r, int32_t rank, int32_t stream) {
  const mt_wave *wave = r->wave;
  int32_t microbatch = r->next[rank * r->streams + stream];
  int32_t slab = mt_wave_slab(r, rank, stream), slabs = wave->ranks * wave->chunks;
  bool forward = mt_wave_is_forward(r, stream);
  if (forward && slab == 0) return 0.0;
  bool turn = !forward && slab == slabs - 1;
  int32_t from = turn ? slab : forward ? slab - 1 : slab + 1;
  const double *ends = forward || turn ? r->forward_end : r->backward_end;
  double end = ends[(int64_t)from * wave->microbatches + microbatch];
  return end < 0.0 || r->rank_of[from] == rank ? end : end + wave->lag;
}

static bool has_pending(const mt_wave_runner *r, int32_t rank) {
  return r->pending_begin[rank] < r->pending_end[rank];
}

static const mt_wave_step *oldest_pending(const mt_wave_runner *r, int32_t rank) {
  return &r->pending[(int64_t)rank * r->wave->chunks * r->wave->microbatches + r->pending_begin[rank]];
}

static double weight_seconds(const mt_wave_runner *r, int32_t rank) {
  return r->wave->weight[r->slab_of[rank * r->wave->chunks + oldest_pending(r, rank)->chunk]];
}

static double event_seconds(const mt_wave_runner *r, int32_t rank, int32_t stream) {
  int32_t slab = mt_wave_slab(r, rank, stream);
  return mt_wave_is_forward(r, stream) ? r->wave->forward[slab] : r->wave->input[slab];
}

/* Whether the stream's next event would hold one activation more than the limit. */
static bool is_full(const mt_wave_runner *r, int32_t rank, int32_t stream) {
  return mt_wave_is_forward(r, stream) && mt_wave_has_backward(r->wave, mt_wave_slab(r, rank, stream)) &&
         r->held[rank] >= r->wave->limit;
}

static bool gap_takes_weight(const mt_wave_runner *r, int32_t rank, double gap, const mt_wave_rule *rule) {
  return gap > 0.0 && gap >= rule->gap * weight_seconds(r, rank) * (1.0 - 1e-9);
}

static void run_weight(mt_wave_runner *r, int32_t rank, const mt_wave_record *to) {
  mt_wave_step step = *oldest_pending(r, rank);
  r->free[rank] += weight_seconds(r, rank);
  r->pending_begin[rank]++;
  r->held[rank]--;
  put(r, to, rank, step);
}

/* Runs the stream's next event. Returns the rank that gets the result, or -1. */
static int32_t run_event(mt_wave_runner *r, int32_t rank, int32_t stream, double start, const mt_wave_record *to) {
  const mt_wave *wave = r->wave;
  int32_t slab = mt_wave_slab(r, rank, stream), chunk = slab / wave->ranks;
  int32_t microbatch = r->next[rank * r->streams + stream]++;
  int64_t cell = (int64_t)slab * wave->microbatches + microbatch;
  bool forward = mt_wave_is_forward(r, stream);
  if (r->begin[rank] < 0.0) r->begin[rank] = start;
  r->free[rank] = start + event_seconds(r, rank, stream);
  put(r, to, rank, (mt_wave_step){chunk, microbatch, forward ? MT_WAVE_FORWARD : MT_WAVE_INPUT});
  if (forward) {
    r->forward_end[cell] = r->free[rank];
    r->held[rank] += mt_wave_has_backward(wave, slab);
  } else {
    r->backward_end[cell] = r->free[rank];
    if (mt_wave_has_weight(wave, slab))
      r->pending[(int64_t)rank * wave->chunks * wave->microbatches + r->pending_end[rank]++] =
          (mt_wave_step){chunk, microbatch, MT_WAVE_WEIGHT};
    else
      r->held[rank]--;
  }
  int32_t to_slab = forward ? slab + 1 : slab - 1;
  return to_slab >= 0 && to_slab < wave->ranks * wave->chunks ? r->rank_of[to_slab] : -1;
}

/* ---- strictly in the pattern's order: rank after rank, each as far as what is known lets it ---- */

static void stack_rank(mt_wave_runner *r, int32_t rank, int32_t *depth) {
  if (rank < 0 || r->stacked[rank]) return;
  r->stacked[rank] = true;
  r->stack[(*depth)++] = rank;
}

/* False: the rank cannot go on within the limit. */
static bool run_rank(mt_wave_runner *r, const mt_wave_pattern *p, const mt_wave_rule *rule, int32_t rank,
                     const mt_wave_record *to, int32_t *depth) {
  for (;; r->work--) {
    int32_t stream = next_stream(r, p, rank);
    bool weight = has_pending(r, rank);
    if (stream < 0 && !weight) return true;
    if (stream >= 0) {
      double start = ready_time(r, rank, stream);
      if (start < 0.0) return true;
      start = fmax(start, r->free[rank]);
      bool full = is_full(r, rank, stream);
      if (full && !weight) return false;
      weight = weight && (full || gap_takes_weight(r, rank, start - r->free[rank], rule));
      if (!weight) stack_rank(r, run_event(r, rank, stream, start, to), depth);
    }
    if (weight) run_weight(r, rank, to);
  }
}

static bool run_in_order(mt_wave_runner *r, const mt_wave_pattern *p, const mt_wave_rule *rule,
                         const mt_wave_record *to) {
  int32_t depth = 0;
  for (int32_t rank = r->wave->ranks - 1; rank >= 0; rank--) stack_rank(r, rank, &depth);
  while (depth > 0) {
    int32_t rank = r->stack[--depth];
    r->stacked[rank] = false;
    if (!run_rank(r, p, rule, rank, to, &depth)) return false;
  }
  return true;
}

/* ---- with events that overtake: by the clock ---- */

/* Before the first gradient comes back, forwards of the second chunk shall find room when they arrive: what the
 * rank keeps free for them. The deeper the rank, the more arrive. */
static int32_t reserve(const mt_wave_runner *r, int32_t rank, int32_t stream) {
  const int32_t *next = r->next + rank * r->streams;
  if (r->wave->chunks == 1 || stream != 0 || next[2] > 0) return 0;
  int32_t most = rank + 1 < r->wave->limit / 2 ? rank + 1 : r->wave->limit / 2;
  int32_t coming = next[0] - next[1], room = most - next[1];
  return coming < room ? coming : room > 0 ? room : 0;
}

/* Whether the stream's next event may run before all that the pattern has in front of it: with one activation more,
 * the limit must hold for each of them. Pending weight gradients can free theirs at any time. */
static bool may_overtake(const mt_wave_runner *r, const mt_wave_pattern *p, int32_t rank, int32_t stream) {
  const mt_wave *wave = r->wave;
  if (!mt_wave_is_forward(r, stream) || !mt_wave_has_backward(wave, mt_wave_slab(r, rank, stream))) return true;
  if (is_full(r, rank, stream)) return false;
  int32_t held = r->held[rank] + 1 - (int32_t)(r->pending_end[rank] - r->pending_begin[rank]);
  if (held + reserve(r, rank, stream) > wave->limit) return false;
  int32_t next[MT_WAVE_STREAMS_MAX];
  for (int32_t i = 0; i < r->streams; i++) next[i] = r->next[rank * r->streams + i];
  for (int32_t at; (at = first_stream(r, p, rank, next)) != stream; next[at]++) {
    bool holds = mt_wave_has_backward(wave, mt_wave_slab(r, rank, at));
    held += mt_wave_is_forward(r, at) ? holds : -1;
    if (held > wave->limit) return false;
  }
  return true;
}

enum { WAITS = -1, TAKES_WEIGHT = -2 };

/* What the rank does at `time`: a stream, TAKES_WEIGHT or, until @p wake, nothing. */
static int32_t choose(const mt_wave_runner *r, const mt_wave_pattern *p, const mt_wave_rule *rule, int32_t rank,
                      double time, double *wake) {
  *wake = INFINITY;
  int32_t first = next_stream(r, p, rank);
  bool weight = has_pending(r, rank);
  if (first < 0) return weight ? TAKES_WEIGHT : WAITS;
  double ready = ready_time(r, rank, first), expected = INFINITY;
  bool full = is_full(r, rank, first);
  if (!full && ready >= 0.0 && ready <= time) return first;
  if (!full && ready >= 0.0) *wake = expected = ready;
  weight = weight && gap_takes_weight(r, rank, expected - time, rule);
  if (weight && rule->weight_first) return TAKES_WEIGHT;
  for (int32_t i = r->streams - 1; i >= 0; i--) {
    if (i == first || r->next[rank * r->streams + i] == r->wave->microbatches) continue;
    ready = ready_time(r, rank, i);
    if (ready > time) *wake = fmin(*wake, ready);
    if (ready < 0.0 || ready > time) continue;
    double end = time + event_seconds(r, rank, i);
    if (end <= expected * (1.0 + 1e-12) && may_overtake(r, p, rank, i)) return i;
  }
  return weight ? TAKES_WEIGHT : WAITS;
}

/* Whether rank @p a looks before @p b: those whose next event can begin go before those that would overtake, as
 * they decide what the others have to expect. */
static bool is_before(const mt_wave_runner *r, int32_t a, int32_t b) {
  if (r->wake[a] < r->wake[b] || r->wake[b] < r->wake[a]) return r->wake[a] < r->wake[b];
  return r->late[a] != r->late[b] ? r->late[b] : a < b;
}

/* The ranks' tournament: leaf ranks + i is rank i, node n has the winner of 2n and 2n + 1, node 1 that of all. A
 * bracket of any size will do, as is_before() is total. */
static void play(mt_wave_runner *r, int32_t node) {
  int32_t a = r->winner[2 * node], b = r->winner[2 * node + 1];
  r->winner[node] = is_before(r, a, b) ? a : b;
}

static void set_wake(mt_wave_runner *r, int32_t rank, double time, bool late) {
  r->wake[rank] = time;
  r->late[rank] = late;
  for (int32_t node = (r->wave->ranks + rank) / 2; node > 0; node /= 2) play(r, node);
}

static int32_t earliest_rank(const mt_wave_runner *r) { return r->winner[1]; }

static void run_by_clock(mt_wave_runner *r, const mt_wave_pattern *p, const mt_wave_rule *rule,
                         const mt_wave_record *to) {
  int32_t ranks = r->wave->ranks;
  for (int32_t rank = 0; rank < ranks; rank++) {
    r->wake[rank] = 0.0;
    r->late[rank] = false;
    r->winner[ranks + rank] = rank;
  }
  for (int32_t node = ranks - 1; node > 0; node--) play(r, node);
  for (int32_t rank; r->wake[rank = earliest_rank(r)] < INFINITY;) {
    double time = r->wake[rank], wake;
    int32_t stream = choose(r, p, rule, rank, time, &wake);
    if (!r->late[rank] && stream != next_stream(r, p, rank)) {
      set_wake(r, rank, time, true);
      continue;
    }
    r->work--;
    if (stream == WAITS) {
      set_wake(r, rank, wake, false);
      continue;
    }
    int32_t other = -1;
    if (stream == TAKES_WEIGHT) {
      r->free[rank] = time;
      run_weight(r, rank, to);
    } else {
      other = run_event(r, rank, stream, time, to);
    }
    set_wake(r, rank, r->free[rank], false);
    if (other < 0 || other == rank) continue;
    double arrival = fmax(r->free[other], r->free[rank] + r->wave->lag);
    if (arrival < r->wake[other]) set_wake(r, other, arrival, r->late[other]);
  }
}

double mt_wave_run(mt_wave_runner *r, const mt_wave_pattern *pattern, const mt_wave_rule *rule,
                   const mt_wave_record *to) {
  const mt_wave *wave = r->wave;
  int64_t cells = (int64_t)wave->ranks * wave->chunks * wave->microbatches;
  for (int64_t i = 0; i < cells; i++) r->forward_end[i] = r->backward_end[i] = -1.0;
  for (int32_t rank = 0; rank < wave->ranks; rank++) {
    r->free[rank] = 0.0;
    r->begin[rank] = -1.0;
    r->held[rank] = 0;
    r->stacked[rank] = false;
    r->pending_begin[rank] = r->pending_end[rank] = 0;
    for (int32_t i = 0; i < r->streams; i++)
      r->next[rank * r->streams + i] = mt_wave_has_stream(r, rank, i) ? 0 : wave->microbatches;
  }
  if (rule->overtakes)
    run_by_clock(r, pattern, rule, to);
  else if (!run_in_order(r, pattern, rule, to))
    return INFINITY;
  double makespan = r->span = 0.0;
  for (int32_t rank = 0; rank < wave->ranks; rank++) {
    if (next_stream(r, pattern, rank) >= 0 || has_pending(r, rank)) return INFINITY; /* waits for ever */
    makespan = fmax(makespan, r->free[rank]);
    r->span = fmax(r->span, r->free[rank] - r->begin[rank]);
  }
  return makespan;
}
