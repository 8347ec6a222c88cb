#include "algebra/wave.h"

#include "algebra/wave_run.h"
#include "base/random.h"

#include <math.h>
#include <string.h>

enum {
  TICKS = 840,          /* of the longest event: halves, thirds, ... sevenths are whole */
  FEW = 2,              /* microbatches a rank by which patterns are judged */
  WARM_UPS = 5,         /* one chunk: warm-ups tried between 1F1B's and twice as long */
  PLACEMENTS_MOST = 64, /* moves of one event before a pattern is given up */
  IDLE_TRIES = 4096     /* patterns in a row that cannot be run: enough */
};

/* Each pattern is run by each of these. */
static const mt_wave_rule rules[] = {
    {1.0 / 64, false, false}, {0.5, false, false}, {1.0, false, false}, {1.0 / 64, true, false}, {1.0, true, true},
};
enum { RULES = sizeof rules / sizeof *rules };

typedef struct searcher {
  const mt_wave *wave;
  mt_wave_runner run;
  int64_t *length; /* (ranks, streams) ticks */
  int64_t whole;   /* ticks that the busiest rank computes for a microbatch */
  mt_wave_pattern now, best;
  double best_makespan, best_span;
  const mt_wave_rule *best_rule;
  double bound, span_bound; /* no order has a smaller makespan, span */
} searcher;

static bool is_done(const searcher *s) {
  return s->best_makespan <= s->bound * (1.0 + 1e-12) && s->best_span <= s->span_bound * (1.0 + 1e-12);
}

/* Runs the pattern at hand by every rule and keeps it where it is the best: the least makespan, then the least
 * span. */
static void judge(searcher *s) {
  for (int i = 0; i < RULES && !is_done(s); i++) {
    double makespan = mt_wave_run(&s->run, &s->now, &rules[i], NULL), span = s->run.span;
    bool better = makespan < s->best_makespan * (1.0 - 1e-12) ||
                  (makespan <= s->best_makespan && span < s->best_span * (1.0 - 1e-12));
    if (makespan == INFINITY || !better) continue;
    s->best_makespan = makespan;
    s->best_span = span;
    s->best_rule = &rules[i];
    s->best.period = s->now.period;
    memcpy(s->best.offset, s->now.offset, (size_t)s->wave->ranks * (size_t)s->run.streams * sizeof *s->now.offset);
  }
}

/* ---- one chunk: 1F1B's order with longer warm-ups ---- */

static void search_line(searcher *s) {
  int64_t ranks = s->wave->ranks;
  s->now.period = 2;
  for (int64_t longer = 0; longer < WARM_UPS && (s->run.work > 0 || longer == 0); longer++) {
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

/* How the microbatch moves: what it waits before each event beyond what it must, and at its turns, in halves of the
 * longest event. */
typedef struct pace {
  int8_t step[MT_WAVE_STREAMS_MAX], turn[MT_WAVE_STREAMS_MAX];
} pace;

/* Slow forwards on the first chunk keep many activations and fill the warm-up; without waits few are held. */
static const pace paces[] = {
    {{4, 4, 2, 2}, {0}},          {{4, 4, 2, 0}, {0}},          {{4, 4, 4, 4}, {0}},
    {{2, 0, 0, 0}, {0}},          {{0, 2, 0, 0}, {0}},          {{0, 0, 0, 0}, {0}},
    {{0, 0, 0, 0}, {0, 0, 0, 6}}, {{0, 0, 0, 0}, {0, 0, 0, 4}}, {{0, 0, 2, 0}, {0}},
    {{0, 0, 0, 0}, {0, 6, 0, 0}}, {{0, 0, 0, 2}, {0}},          {{2, 0, 2, 0}, {0}},
    {{0, 2, 0, 0}, {0, 3, 1, 0}}, {{0, 2, 0, 0}, {0, 4, 2, 2}},
};
enum { PACES = sizeof paces / sizeof *paces };

/* How far [at, at + length) must move to clear rank's streams before `stream` on the circle; 0: it is clear. */
static int64_t conflict(const searcher *s, int32_t rank, int32_t stream, int64_t at, int64_t length) {
  for (int32_t i = 0; i < stream; i++) {
    int64_t other = s->length[rank * s->run.streams + i];
    if (other == 0) continue;
    int64_t behind = (at - s->now.offset[rank * s->run.streams + i]) % s->now.period;
    if (behind < 0) behind += s->now.period;
    if (behind < other) return other - behind;
    if (s->now.period - behind < length) return s->now.period - behind + other;
  }
  return 0;
}

/* Follows one microbatch through all streams, each event at the first place from its time on that is free on its
 * rank's circle. False where there is none. */
static bool place(searcher *s, const pace *how, mt_random *random, uint64_t rarity) {
  int32_t ranks = s->wave->ranks, streams = s->run.streams;
  int64_t at = 0;
  for (int32_t i = 0; i < streams; i++) {
    at += (int64_t)how->turn[i] * (TICKS / 2);
    for (int32_t hop = 0; hop < ranks; hop++) {
      /* Forth, back, forth, back. */
      int32_t rank = i % 2 == 0 ? hop : ranks - 1 - hop;
      int64_t length = s->length[rank * streams + i];
      if (hop > 0) at += (int64_t)how->step[i] * (TICKS / 2);
      if (rarity > 0 && mt_random_below(random, rarity) == 0) at += TICKS / 2;
      for (int moves = 0; length > 0; moves++) {
        int64_t move = conflict(s, rank, i, at, length);
        if (move == 0) break;
        if (moves == PLACEMENTS_MOST) return false;
        at += move;
      }
      s->now.offset[rank * streams + i] = at;
      at += length;
    }
  }
  return true;
}

/* Ticks for which the busiest rank holds a microbatch's activations, each chunk's counted. */
static int64_t pattern_life(const searcher *s) {
  int64_t most = 0;
  int32_t streams = s->run.streams;
  for (int32_t r = 0; r < s->wave->ranks; r++) {
    int64_t life = 0;
    for (int32_t c = 0; c < s->wave->chunks; c++) {
      int32_t forward = r * streams + c, backward = r * streams + streams - 1 - c;
      if (s->length[backward] > 0) life += s->now.offset[backward] + s->length[backward] - s->now.offset[forward];
    }
    if (life > most) most = life;
  }
  return most;
}

/* Whether what is held can be within the limit once the pattern repeats. */
static bool fits(const searcher *s) { return pattern_life(s) <= s->now.period * s->wave->limit; }

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
    for (int32_t i = 0; i < s->run.streams; i++) {
      int32_t slab = mt_wave_slab(&s->run, r, i);
      double seconds = mt_wave_is_forward(&s->run, i) ? wave->forward[slab] : wave->input[slab];
      int64_t length = scale > 0.0 ? (int64_t)(seconds * scale + 0.5) : TICKS;
      if (length < 1) length = 1; /* so that time goes on along every path, and no order hangs */
      s->length[r * s->run.streams + i] = mt_wave_has_stream(&s->run, r, i) ? length : 0;
      sum += s->length[r * s->run.streams + i];
      if (!mt_wave_is_forward(&s->run, i) && mt_wave_has_weight(wave, slab))
        sum += scale > 0.0 ? (int64_t)(wave->weight[slab] * scale + 0.5) : TICKS;
    }
    if (sum > s->whole) s->whole = sum;
  }
}

/* Which of the known paces fit, those that hold the most first: they use what the limit gives. A whole backward
 * leaves no weight gradients to fill waits with; there those that hold the least come first, and overtaking fills
 * the rest. */
typedef struct trial {
  const pace *how;
  bool uniform;
  double life; /* periods */
} trial;

static int32_t list_trials(searcher *s, mt_random *random, bool split, trial *trials) {
  int32_t count = 0;
  for (int n = 0; n < 2 * PACES; n++) {
    trial next = {.how = &paces[n / 2], .uniform = n % 2 == 0};
    if (next.uniform && !split) continue;
    set_lengths(s, next.uniform);
    s->now.period = s->whole;
    s->run.work -= s->wave->ranks;
    if (!place(s, next.how, random, 0) || !fits(s)) continue;
    next.life = (double)pattern_life(s) / (double)s->now.period;
    int32_t at = count++;
    for (; at > 0 && (split ? trials[at - 1].life < next.life : trials[at - 1].life > next.life); at--)
      trials[at] = trials[at - 1];
    trials[at] = next;
  }
  return count;
}

static pace random_pace(mt_random *random, uint64_t *rarity) {
  pace drawn = {{0}, {0}};
  for (int i = 0; i < MT_WAVE_STREAMS_MAX; i++) {
    drawn.step[i] = (int8_t)(mt_random_below(random, 2) * mt_random_below(random, 5));
    drawn.turn[i] = (int8_t)(i > 0 ? mt_random_below(random, 2) * mt_random_below(random, 8) : 0);
  }
  *rarity = mt_random_below(random, 2) * (4 + mt_random_below(random, 8));
  return drawn;
}

/* A period that is long enough holds one microbatch alone, so a pattern within any limit is found in the end. */
static void search_fold(searcher *s) {
  mt_random random = mt_random_stream(0, "wave");
  bool split = false;
  for (int32_t slab = 0; slab < s->wave->ranks * s->wave->chunks; slab++)
    split = split || mt_wave_has_weight(s->wave, slab);
  trial trials[2 * PACES];
  int32_t count = list_trials(s, &random, split, trials);
  int64_t stretch = 0; /* eighths of the period */
  for (int idle = 0, n = 0; (s->run.work > 0 || s->best_makespan == INFINITY) && idle < IDLE_TRIES && !is_done(s);
       n++) {
    uint64_t rarity = 0;
    pace how = n < count ? *trials[n].how : random_pace(&random, &rarity);
    set_lengths(s, n < count ? trials[n].uniform : n % 2 == 0);
    s->now.period = s->whole + s->whole * stretch / 8;
    s->run.work -= s->wave->ranks;
    bool runs = place(s, &how, &random, rarity) && fits(s);
    if (runs) judge(s);
    idle = runs ? 0 : idle + 1;
    if (n >= count && s->best_makespan == INFINITY) stretch = stretch * 2 + 1;
  }
}

/* ---- the whole ---- */

/* No rank begins before its first slab's input is there, and then it does all its work. */
static void set_bounds(searcher *s) {
  const mt_wave *wave = s->wave;
  double head = s->bound = s->span_bound = 0.0;
  for (int32_t slab = 0; slab < wave->ranks; slab++) {
    int32_t rank = s->run.rank_of[slab];
    double work = 0.0;
    for (int32_t c = 0; c < wave->chunks; c++) {
      int32_t own = s->run.slab_of[rank * wave->chunks + c];
      work += wave->forward[own] + (mt_wave_has_backward(wave, own) ? wave->input[own] : 0.0) +
              (mt_wave_has_weight(wave, own) ? wave->weight[own] : 0.0);
    }
    s->span_bound = fmax(s->span_bound, work * wave->microbatches);
    s->bound = fmax(s->bound, head + work * wave->microbatches);
    head += wave->forward[slab] + wave->lag;
  }
}

static void search(searcher *s) {
  set_bounds(s);
  if (s->wave->chunks == 1)
    search_line(s);
  else
    search_fold(s);
}

bool mt_wave_order(mt_arena *arena, const mt_wave *wave, int64_t work, mt_wave_step *steps, int64_t *counts) {
  int64_t slots = 2 * (int64_t)wave->ranks * wave->chunks;
  searcher s = {.wave = wave,
                .length = MT_ARENA_NEW(arena, int64_t, slots),
                .now.offset = MT_ARENA_NEW(arena, int64_t, slots),
                .best.offset = MT_ARENA_NEW(arena, int64_t, slots),
                .best_makespan = INFINITY,
                .best_span = INFINITY};
  if (s.length == NULL || s.now.offset == NULL || s.best.offset == NULL ||
      !mt_wave_runner_make(arena, wave, &s.run))
    return false;
  s.run.work = work;
  /* Patterns repeat: what fills and empties the pipeline is judged by few microbatches as well as by many. */
  mt_wave few = *wave;
  if (few.microbatches > FEW * wave->ranks) few.microbatches = FEW * wave->ranks;
  s.wave = s.run.wave = &few;
  search(&s);
  s.run.wave = wave;
  if (mt_wave_run(&s.run, &s.best, s.best_rule, NULL) == INFINITY) {
    s.wave = wave;
    s.best_makespan = s.best_span = INFINITY;
    search(&s);
  }
  memset(counts, 0, (size_t)wave->ranks * sizeof *counts);
  mt_wave_record to = {steps, counts};
  mt_wave_run(&s.run, &s.best, s.best_rule, &to);
  return true;
}
