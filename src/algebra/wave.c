#include "algebra/wave.h"

#include "base/random.h"

#include <math.h>

/* A rank's forwards and input gradients are `streams` sequences that ascend in the microbatch: for two chunks F0,
 * F1, B1, B0, the way that a microbatch takes. A pattern gives each (rank, stream) an offset and all of them a
 * period; the rank's order is that of offset + period * microbatch. Weight gradients go where the rank would wait,
 * and where the limit asks for them. */
enum {
  STREAMS_MAX = 2 * MT_WAVE_CHUNKS_MAX,
  TICKS = 840,          /* of the longest event: halves, thirds, ... sevenths are whole */
  WARM_UPS = 5,         /* one chunk: warm-ups tried between 1F1B's and twice as long */
  PLACEMENTS_MOST = 64, /* moves of one event before a pattern is given up */
  IDLE_TRIES = 4096     /* patterns in a row that cannot be run: enough */
};

/* A weight gradient starts in a gap that is at least this part of its length. */
static const double gap_parts[] = {1.0 / 64, 0.5, 1.0};
enum { GAP_PARTS = sizeof gap_parts / sizeof *gap_parts };

typedef struct pattern {
  int64_t period;
  int64_t *offset; /* (ranks, streams) */
} pattern;

typedef struct searcher {
  const mt_wave *wave;
  int32_t streams;
  int32_t *rank_of, *slab_of;         /* [slabs]; (ranks, chunks) */
  int64_t *length;                    /* (ranks, streams) ticks */
  int64_t whole;                      /* ticks that the busiest rank computes for a microbatch */
  double *forward_end, *backward_end; /* (slabs, microbatches) */
  double *free;                       /* [ranks] */
  int32_t *next;                      /* (ranks, streams) next microbatch */
  int32_t *held;                      /* [ranks] */
  mt_wave_step *pending; /* (ranks, chunks * microbatches) weight gradients in the order of their inputs' */
  int64_t *pending_begin, *pending_end; /* [ranks] */
  int32_t *stack;                       /* [ranks] */
  bool *stacked;                        /* [ranks] */
  pattern now, best;
  double *begin; /* [ranks] of the first event; below 0: none yet */
  double span;   /* of the last run: the longest time from a rank's first to its last event */
  double best_makespan, best_span, best_gap;
  double bound, span_bound; /* no order has a smaller makespan, span */
  int64_t work;
} searcher;

static int32_t slab_rank(const searcher *s, int32_t slab) { return s->rank_of[slab]; }

static int32_t rank_slab(const searcher *s, int32_t rank, int32_t chunk) {
  return s->slab_of[rank * s->wave->chunks + chunk];
}

static bool is_forward(const searcher *s, int32_t stream) { return stream < s->wave->chunks; }

static int32_t stream_chunk(const searcher *s, int32_t stream) {
  return is_forward(s, stream) ? stream : s->streams - 1 - stream;
}

static bool has_backward(const mt_wave *wave, int32_t slab) { return wave->gate[slab] != MT_GATE_NONE; }
static bool has_weight(const mt_wave *wave, int32_t slab) { return (wave->gate[slab] & MT_GATE_WEIGHTS) != 0; }

static bool stream_exists(const searcher *s, int32_t rank, int32_t stream) {
  return is_forward(s, stream) || has_backward(s->wave, rank_slab(s, rank, stream_chunk(s, stream)));
}

/* ---- running a pattern ---- */

/* Where a run's events go: nowhere while the search goes on. */
typedef struct record {
  mt_wave_step *steps;
  int64_t *counts;
} record;

static void put(const searcher *s, const record *to, int32_t rank, mt_wave_step step) {
  if (to != NULL) to->steps[rank * mt_wave_steps(s->wave) + to->counts[rank]++] = step;
}

/* The stream with the rank's next forward or input gradient, or -1 at the end. Equal times: the backward first. */
static int32_t next_stream(const searcher *s, const pattern *p, int32_t rank) {
  int32_t found = -1;
  int64_t least = 0;
  for (int32_t i = s->streams - 1; i >= 0; i--) {
    int32_t m = s->next[rank * s->streams + i];
    if (m == s->wave->microbatches) continue;
    int64_t key = p->offset[rank * s->streams + i] + p->period * m;
    if (found >= 0 && key >= least) continue;
    found = i;
    least = key;
  }
  return found;
}

/* When the event's input is there; below 0: not known yet. */
static double ready_time(const searcher *s, int32_t rank, int32_t stream, int32_t microbatch) {
  const mt_wave *wave = s->wave;
  int32_t slab = rank_slab(s, rank, stream_chunk(s, stream)), slabs = wave->ranks * wave->chunks;
  bool forward = is_forward(s, stream);
  if (forward && slab == 0) return 0.0;
  bool turn = !forward && slab == slabs - 1;
  int32_t from = turn ? slab : forward ? slab - 1 : slab + 1;
  const double *ends = forward || turn ? s->forward_end : s->backward_end;
  double end = ends[(int64_t)from * wave->microbatches + microbatch];
  return end < 0.0 || slab_rank(s, from) == rank ? end : end + wave->lag;
}

static void wake(searcher *s, int32_t rank, int32_t *depth) {
  if (s->stacked[rank]) return;
  s->stacked[rank] = true;
  s->stack[(*depth)++] = rank;
}

static void run_weight(searcher *s, int32_t rank, const record *to) {
  const mt_wave *wave = s->wave;
  int64_t room = (int64_t)wave->chunks * wave->microbatches;
  mt_wave_step step = s->pending[rank * room + s->pending_begin[rank]++];
  s->free[rank] += wave->weight[rank_slab(s, rank, step.chunk)];
  s->held[rank]--;
  put(s, to, rank, step);
}

static void run_stream(searcher *s, int32_t rank, int32_t stream, double start, const record *to, int32_t *depth) {
  const mt_wave *wave = s->wave;
  int32_t chunk = stream_chunk(s, stream), slab = rank_slab(s, rank, chunk);
  int32_t microbatch = s->next[rank * s->streams + stream]++;
  int64_t cell = (int64_t)slab * wave->microbatches + microbatch;
  bool forward = is_forward(s, stream);
  if (s->begin[rank] < 0.0) s->begin[rank] = start;
  s->free[rank] = start + (forward ? wave->forward[slab] : wave->input[slab]);
  put(s, to, rank, (mt_wave_step){chunk, microbatch, forward ? MT_WAVE_FORWARD : MT_WAVE_INPUT});
  int32_t to_slab = forward ? slab + 1 : slab - 1;
  if (forward) {
    s->forward_end[cell] = s->free[rank];
    s->held[rank] += has_backward(wave, slab);
  } else {
    s->backward_end[cell] = s->free[rank];
    if (has_weight(wave, slab))
      s->pending[(int64_t)rank * wave->chunks * wave->microbatches + s->pending_end[rank]++] =
          (mt_wave_step){chunk, microbatch, MT_WAVE_WEIGHT};
    else
      s->held[rank]--;
  }
  if (to_slab >= 0 && to_slab < wave->ranks * wave->chunks) wake(s, slab_rank(s, to_slab), depth);
}

/* Runs a rank as far as what is known lets it. False: it cannot go on within the limit. */
static bool run_rank(searcher *s, const pattern *p, double gap_part, int32_t rank, const record *to,
                     int32_t *depth) {
  const mt_wave *wave = s->wave;
  for (;; s->work--) {
    int32_t stream = next_stream(s, p, rank);
    bool pending = s->pending_begin[rank] < s->pending_end[rank];
    if (stream < 0) {
      if (!pending) return true;
      run_weight(s, rank, to);
      continue;
    }
    double start = ready_time(s, rank, stream, s->next[rank * s->streams + stream]);
    if (start < 0.0) return true;
    if (start < s->free[rank]) start = s->free[rank];
    int32_t slab = rank_slab(s, rank, stream_chunk(s, stream));
    bool full = is_forward(s, stream) && has_backward(wave, slab) && s->held[rank] == wave->limit;
    if (full && !pending) return false;
    if (pending && !full) {
      int64_t room = (int64_t)wave->chunks * wave->microbatches;
      int32_t chunk = s->pending[rank * room + s->pending_begin[rank]].chunk;
      double gap = start - s->free[rank], length = wave->weight[rank_slab(s, rank, chunk)];
      pending = gap > 0.0 && gap >= gap_part * length * (1.0 - 1e-9);
    }
    if (pending)
      run_weight(s, rank, to);
    else
      run_stream(s, rank, stream, start, to, depth);
  }
}

/* The makespan, or infinity where the pattern breaks the limit. */
static double run_pattern(searcher *s, const pattern *p, double gap_part, const record *to) {
  const mt_wave *wave = s->wave;
  int64_t cells = (int64_t)wave->ranks * wave->chunks * wave->microbatches;
  for (int64_t i = 0; i < cells; i++) s->forward_end[i] = s->backward_end[i] = -1.0;
  int32_t depth = 0;
  for (int32_t r = wave->ranks - 1; r >= 0; r--) {
    s->free[r] = 0.0;
    s->begin[r] = -1.0;
    s->held[r] = 0;
    s->pending_begin[r] = s->pending_end[r] = 0;
    for (int32_t i = 0; i < s->streams; i++)
      s->next[r * s->streams + i] = stream_exists(s, r, i) ? 0 : wave->microbatches;
    s->stacked[r] = true;
    s->stack[depth++] = r;
  }
  while (depth > 0) {
    int32_t rank = s->stack[--depth];
    s->stacked[rank] = false;
    if (!run_rank(s, p, gap_part, rank, to, &depth)) return INFINITY;
  }
  double makespan = s->span = 0.0;
  for (int32_t r = 0; r < wave->ranks; r++) {
    if (next_stream(s, p, r) >= 0) return INFINITY; /* waits for ever */
    makespan = fmax(makespan, s->free[r]);
    s->span = fmax(s->span, s->free[r] - s->begin[r]);
  }
  return makespan;
}

static bool is_done(const searcher *s) {
  return s->best_makespan <= s->bound * (1.0 + 1e-12) && s->best_span <= s->span_bound * (1.0 + 1e-12);
}

/* Runs the pattern at hand with every gap rule and keeps it where it is the best: the least makespan, then the
 * least span. */
static void judge(searcher *s) {
  for (int g = 0; g < GAP_PARTS && !is_done(s); g++) {
    double makespan = run_pattern(s, &s->now, gap_parts[g], NULL);
    bool better = makespan < s->best_makespan * (1.0 - 1e-12) ||
                  (makespan <= s->best_makespan && s->span < s->best_span * (1.0 - 1e-12));
    if (makespan == INFINITY || !better) continue;
    s->best_makespan = makespan;
    s->best_span = s->span;
    s->best_gap = gap_parts[g];
    s->best.period = s->now.period;
    for (int32_t i = 0; i < s->wave->ranks * s->streams; i++) s->best.offset[i] = s->now.offset[i];
  }
}

/* ---- one chunk: 1F1B's order with longer warm-ups ---- */

static void search_line(searcher *s) {
  int64_t ranks = s->wave->ranks;
  s->now.period = 2;
  for (int64_t longer = 0; longer < WARM_UPS && (s->work > 0 || longer == 0); longer++) {
    for (int64_t r = 0; r < ranks; r++) {
      int64_t warm_up = ranks - r + (ranks - 1 - r) * longer / (WARM_UPS - 1);
      if (warm_up > s->wave->limit) warm_up = s->wave->limit;
      s->now.offset[2 * r] = 0;
      s->now.offset[2 * r + 1] = 2 * warm_up - 1;
    }
    judge(s);
  }
}

/* ---- two chunks: one microbatch is placed on the circle of a period ---- */

/* How the microbatch moves: what it waits before each event beyond what it must, and at its turns, in units of the
 * longest event. */
typedef struct pace {
  int8_t step[STREAMS_MAX], turn[STREAMS_MAX];
} pace;

/* Slow forwards on the first chunk keep many activations and fill the warm-up; without waits few are held. */
static const pace paces[] = {
    {{2, 2, 1, 1}, {0}}, {{2, 2, 1, 0}, {0}},          {{2, 2, 2, 2}, {0}},          {{1, 0, 0, 0}, {0}},
    {{0, 1, 0, 0}, {0}}, {{0, 0, 0, 0}, {0}},          {{0, 0, 0, 0}, {0, 0, 0, 3}}, {{0, 0, 0, 0}, {0, 0, 0, 2}},
    {{0, 0, 1, 0}, {0}}, {{0, 0, 0, 0}, {0, 3, 0, 0}}, {{0, 0, 0, 1}, {0}},          {{1, 0, 1, 0}, {0}},
};
enum { PACES = sizeof paces / sizeof *paces };

/* How far [at, at + length) must move to clear rank's streams before `stream` on the circle; 0: it is clear. */
static int64_t conflict(const searcher *s, int32_t rank, int32_t stream, int64_t at, int64_t length) {
  for (int32_t i = 0; i < stream; i++) {
    int64_t other = s->length[rank * s->streams + i];
    if (other == 0) continue;
    int64_t behind = (at - s->now.offset[rank * s->streams + i]) % s->now.period;
    if (behind < 0) behind += s->now.period;
    if (behind < other) return other - behind;
    if (s->now.period - behind < length) return s->now.period - behind + other;
  }
  return 0;
}

/* Follows one microbatch through all streams, each event at the first place from its time on that is free on its
 * rank's circle. False where there is none. */
static bool place(searcher *s, const pace *how, mt_random *random, uint64_t rarity) {
  int32_t ranks = s->wave->ranks;
  int64_t at = 0;
  for (int32_t i = 0; i < s->streams; i++) {
    at += (int64_t)how->turn[i] * TICKS;
    for (int32_t hop = 0; hop < ranks; hop++) {
      /* Forth, back, forth, back. */
      int32_t rank = i % 2 == 0 ? hop : ranks - 1 - hop;
      int64_t length = s->length[rank * s->streams + i];
      if (hop > 0) at += (int64_t)how->step[i] * TICKS;
      if (rarity > 0 && mt_random_below(random, rarity) == 0) at += TICKS / 2;
      for (int moves = 0; length > 0; moves++) {
        int64_t move = conflict(s, rank, i, at, length);
        if (move == 0) break;
        if (moves == PLACEMENTS_MOST) return false;
        at += move;
      }
      s->now.offset[rank * s->streams + i] = at;
      at += length;
    }
  }
  return true;
}

/* Whether what the period's microbatches hold can be within the limit once the pattern repeats. */
static bool fits(const searcher *s) {
  for (int32_t r = 0; r < s->wave->ranks; r++) {
    int64_t life = 0;
    for (int32_t c = 0; c < s->wave->chunks; c++) {
      int32_t forward = r * s->streams + c, backward = r * s->streams + s->streams - 1 - c;
      if (s->length[backward] > 0) life += s->now.offset[backward] + s->length[backward] - s->now.offset[forward];
    }
    if (life > s->now.period * s->wave->limit) return false;
  }
  return true;
}

/* Lengths in ticks: the real ones, or one and the same for all, whose patterns are the tidier. */
static void set_lengths(searcher *s, bool uniform) {
  const mt_wave *wave = s->wave;
  double longest = 0.0;
  for (int32_t slab = 0; slab < wave->ranks * wave->chunks; slab++)
    longest = fmax(longest, fmax(wave->forward[slab], fmax(wave->input[slab], wave->weight[slab])));
  double scale = uniform || longest <= 0.0 ? 0.0 : TICKS / longest;
  s->whole = 0;
  for (int32_t r = 0; r < wave->ranks; r++) {
    int64_t sum = 0;
    for (int32_t i = 0; i < s->streams; i++) {
      int32_t slab = rank_slab(s, r, stream_chunk(s, i));
      double seconds = is_forward(s, i) ? wave->forward[slab] : wave->input[slab];
      int64_t length = scale > 0.0 ? (int64_t)(seconds * scale + 0.5) : TICKS;
      if (length < 1) length = 1; /* so that time goes on along every path, and no order hangs */
      s->length[r * s->streams + i] = stream_exists(s, r, i) ? length : 0;
      sum += s->length[r * s->streams + i];
      if (!is_forward(s, i) && has_weight(wave, slab))
        sum += scale > 0.0 ? (int64_t)(wave->weight[slab] * scale + 0.5) : TICKS;
    }
    if (sum > s->whole) s->whole = sum;
  }
}

static pace random_pace(mt_random *random, uint64_t *rarity) {
  pace drawn = {{0}, {0}};
  for (int i = 0; i < STREAMS_MAX; i++) {
    drawn.step[i] = (int8_t)(mt_random_below(random, 2) * mt_random_below(random, 3));
    drawn.turn[i] = (int8_t)(i > 0 ? mt_random_below(random, 2) * mt_random_below(random, 4) : 0);
  }
  *rarity = mt_random_below(random, 2) * (4 + mt_random_below(random, 8));
  return drawn;
}

/* A period that is long enough holds one microbatch alone, so a pattern within any limit is found in the end. */
static void search_fold(searcher *s) {
  mt_random random = mt_random_stream(0, "wave");
  int64_t stretch = 0; /* eighths of the period */
  for (int idle = 0, n = 0; (s->work > 0 || s->best_makespan == INFINITY) && idle < IDLE_TRIES && !is_done(s);
       n++) {
    uint64_t rarity = 0;
    pace how = n / 2 < PACES ? paces[n / 2] : random_pace(&random, &rarity);
    set_lengths(s, n % 2 == 0);
    s->now.period = s->whole + s->whole * stretch / 8;
    s->work -= s->wave->ranks;
    if (place(s, &how, &random, rarity) && fits(s)) {
      judge(s);
      idle = 0;
    } else {
      idle++;
    }
    bool round_done = n / 2 >= PACES && s->best_makespan == INFINITY;
    if (round_done) stretch = stretch * 2 + 1;
    if (round_done) n = -1;
  }
}

/* ---- the whole ---- */

/* No rank begins before its first slab's input is there, and then it does all its work. */
static void set_bounds(searcher *s) {
  const mt_wave *wave = s->wave;
  double head = 0.0;
  for (int32_t slab = 0; slab < wave->ranks; slab++) {
    int32_t rank = slab_rank(s, slab);
    double work = 0.0;
    for (int32_t c = 0; c < wave->chunks; c++) {
      int32_t own = rank_slab(s, rank, c);
      work += wave->forward[own] + (has_backward(wave, own) ? wave->input[own] : 0.0) +
              (has_weight(wave, own) ? wave->weight[own] : 0.0);
    }
    s->span_bound = fmax(s->span_bound, work * wave->microbatches);
    s->bound = fmax(s->bound, head + work * wave->microbatches);
    head += wave->forward[slab] + wave->lag;
  }
}

static bool allocate(mt_arena *arena, searcher *s) {
  int64_t ranks = s->wave->ranks, cells = ranks * s->wave->chunks * s->wave->microbatches;
  s->rank_of = MT_ARENA_NEW(arena, int32_t, ranks * s->wave->chunks);
  s->slab_of = MT_ARENA_NEW(arena, int32_t, ranks * s->wave->chunks);
  s->length = MT_ARENA_NEW(arena, int64_t, ranks * s->streams);
  s->forward_end = MT_ARENA_NEW(arena, double, cells);
  s->backward_end = MT_ARENA_NEW(arena, double, cells);
  s->free = MT_ARENA_NEW(arena, double, ranks);
  s->begin = MT_ARENA_NEW(arena, double, ranks);
  s->next = MT_ARENA_NEW(arena, int32_t, ranks * s->streams);
  s->held = MT_ARENA_NEW(arena, int32_t, ranks);
  s->pending = MT_ARENA_NEW(arena, mt_wave_step, cells);
  s->pending_begin = MT_ARENA_NEW(arena, int64_t, ranks);
  s->pending_end = MT_ARENA_NEW(arena, int64_t, ranks);
  s->stack = MT_ARENA_NEW(arena, int32_t, ranks);
  s->stacked = MT_ARENA_NEW(arena, bool, ranks);
  s->now.offset = MT_ARENA_NEW(arena, int64_t, ranks * s->streams);
  s->best.offset = MT_ARENA_NEW(arena, int64_t, ranks * s->streams);
  return s->rank_of != NULL && s->slab_of != NULL && s->length != NULL && s->forward_end != NULL &&
         s->backward_end != NULL && s->free != NULL && s->begin != NULL && s->next != NULL && s->held != NULL &&
         s->pending != NULL && s->pending_begin != NULL && s->pending_end != NULL && s->stack != NULL &&
         s->stacked != NULL && s->now.offset != NULL && s->best.offset != NULL;
}

bool mt_wave_order(mt_arena *arena, const mt_wave *wave, int64_t work, mt_wave_step *steps, int64_t *counts) {
  searcher s = {
      .wave = wave, .streams = 2 * wave->chunks, .best_makespan = INFINITY, .best_span = INFINITY, .work = work};
  if (!allocate(arena, &s)) return false;
  mt_layout layout = {.map = wave->map, .pipeline = wave->ranks, .data = 1, .context = 1};
  for (int32_t slab = 0; slab < wave->ranks * wave->chunks; slab++) {
    s.rank_of[slab] = mt_layout_rank(&layout, slab);
    s.slab_of[s.rank_of[slab] * wave->chunks + slab / wave->ranks] = slab;
  }
  set_bounds(&s);
  if (wave->chunks == 1)
    search_line(&s);
  else
    search_fold(&s);
  for (int32_t r = 0; r < wave->ranks; r++) counts[r] = 0;
  record to = {steps, counts};
  run_pattern(&s, &s.best, s.best_gap, &to);
  return true;
}
