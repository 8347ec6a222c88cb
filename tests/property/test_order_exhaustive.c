/* Tiny pipelines against all orders there are: every owner, every place, every sequence. */
#include "../order_case.h"

#include "base/random.h"

enum { EVENTS_MOST = 24, RANKS_MOST = 3, ITEMS_MOST = 4 };

typedef struct tiny_event {
  int8_t kind; /* 0 body forward, 1 body backward, 2 encode, 3 its backward */
  int8_t microbatch;
} tiny_event;

/* One pipeline of plain 1F1B with integer times, stated anew. */
typedef struct tiny {
  int32_t ranks, microbatches;
  bool trainable;
  double forward[RANKS_MOST], backward[RANKS_MOST], encode[ITEMS_MOST], ratio, lag;
  tiny_event sequence[RANKS_MOST][EVENTS_MOST];
  int32_t count[RANKS_MOST];
  double best;
  int64_t orders;
} tiny;

static double later(double a, double b) { return a > b ? a : b; }

/* Makespan of the sequences, or -1 when they hang. */
static double tiny_makespan(const tiny *t) {
  double forward[RANKS_MOST][ITEMS_MOST], backward[RANKS_MOST][ITEMS_MOST], encode[ITEMS_MOST],
      clock[RANKS_MOST] = {0};
  int32_t at[RANKS_MOST] = {0}, owner[ITEMS_MOST] = {0}, left = 0;
  double makespan = 0;
  for (int32_t m = 0; m < ITEMS_MOST; m++) {
    encode[m] = -1;
    for (int32_t r = 0; r < RANKS_MOST; r++) forward[r][m] = backward[r][m] = -1;
  }
  for (int32_t r = 0; r < t->ranks; r++) left += t->count[r];
  for (bool moved = true; moved && left > 0;) {
    moved = false;
    for (int32_t r = 0; r < t->ranks; r++)
      for (; at[r] < t->count[r]; at[r]++, left--, moved = true) {
        tiny_event e = t->sequence[r][at[r]];
        int32_t m = e.microbatch, last = t->ranks - 1;
        double input = 0, length;
        if (e.kind == 0) {
          input = r == 0 ? encode[m] : forward[r - 1][m];
          if (input >= 0 && (r > 0 || owner[m] != 0)) input += t->lag;
          length = t->forward[r];
        } else if (e.kind == 1) {
          input = r == last ? forward[r][m] : backward[r + 1][m];
          if (input >= 0 && r < last) input += t->lag;
          length = t->backward[r];
        } else if (e.kind == 2) {
          length = t->encode[m];
        } else {
          input = backward[0][m];
          if (input >= 0 && r != 0) input += t->lag;
          length = t->encode[m] * t->ratio;
        }
        if (input < 0) break;
        double end = later(clock[r], input) + length;
        clock[r] = end;
        makespan = later(makespan, end);
        if (e.kind == 0) forward[r][m] = end;
        if (e.kind == 1) backward[r][m] = end;
        if (e.kind == 2) encode[m] = end, owner[m] = r;
      }
  }
  return left == 0 ? makespan : -1;
}

static void insert(tiny *t, int32_t rank, int32_t at, tiny_event event) {
  for (int32_t i = t->count[rank]++; i > at; i--) t->sequence[rank][i] = t->sequence[rank][i - 1];
  t->sequence[rank][at] = event;
}

static void strike(tiny *t, int32_t rank, int32_t at) {
  for (int32_t i = at; i + 1 < t->count[rank]; i++) t->sequence[rank][i] = t->sequence[rank][i + 1];
  t->count[rank]--;
}

static void try_all(tiny *t, int32_t microbatch) {
  if (microbatch == t->microbatches) {
    double makespan = tiny_makespan(t);
    t->orders++;
    if (makespan >= 0 && (t->best < 0 || makespan < t->best)) t->best = makespan;
    return;
  }
  for (int32_t r = 0; r < t->ranks; r++)
    for (int32_t i = 0; i <= t->count[r]; i++) {
      insert(t, r, i, (tiny_event){2, (int8_t)microbatch});
      if (!t->trainable) try_all(t, microbatch + 1);
      for (int32_t j = i + 1; t->trainable && j <= t->count[r]; j++) {
        insert(t, r, j, (tiny_event){3, (int8_t)microbatch});
        try_all(t, microbatch + 1);
        strike(t, r, j);
      }
      strike(t, r, i);
    }
}

static void tiny_body(tiny *t) {
  for (int32_t r = 0; r < t->ranks; r++) {
    int32_t warm_up = t->ranks - 1 - r < t->microbatches ? t->ranks - 1 - r : t->microbatches;
    t->count[r] = 0;
    for (int32_t m = 0; m < t->microbatches + warm_up; m++) {
      if (m < t->microbatches) t->sequence[r][t->count[r]++] = (tiny_event){0, (int8_t)m};
      if (m >= warm_up) t->sequence[r][t->count[r]++] = (tiny_event){1, (int8_t)(m - warm_up)};
    }
  }
}

static void compare(uint64_t seed, int32_t ranks, int32_t microbatches, bool trainable) {
  mt_random random = mt_random_stream(seed, "order.exhaustive");
  tiny t = {.ranks = ranks, .microbatches = microbatches, .trainable = trainable, .ratio = 2, .best = -1};
  double factors[RANKS_MOST];
  bool uneven = mt_random_below(&random, 2) == 0;
  if (mt_random_below(&random, 3) == 0) t.lag = 1;
  order_case c = {.schedule = "<transpose, 1f1b>",
                  .ranks = ranks,
                  .microbatches = microbatches,
                  .trainable = trainable,
                  .encode = t.encode,
                  .encode_count = microbatches,
                  .forward = (double)(1 + mt_random_below(&random, 3)),
                  .backward = (double)(1 + mt_random_below(&random, 3)),
                  .stage_factors = factors,
                  .links = {.local = {.latency_seconds = t.lag}},
                  .search_seconds = 0.01};
  for (int32_t r = 0; r < ranks; r++) {
    factors[r] = uneven ? (double)(1 + mt_random_below(&random, 3)) : 1.0;
    t.forward[r] = c.forward * factors[r];
    t.backward[r] = c.backward * factors[r];
  }
  for (int32_t m = 0; m < microbatches; m++) t.encode[m] = (double)(1 + mt_random_below(&random, 5));
  tiny_body(&t);
  try_all(&t, 0);
  order_run run;
  case_order(&c, &run);
  bool right = run.result.makespan < t.best + 1e-9 && run.result.makespan > t.best - 1e-9;
  if (!right || run.result.bound > t.best + 1e-9)
    fail_msg("seed %llu, P %d, M %d, %s: best of %lld orders %g, found %g, bound %g", (unsigned long long)seed,
             ranks, microbatches, trainable ? "trained" : "frozen", (long long)t.orders, t.best,
             run.result.makespan, run.result.bound);
  case_end(&run);
  /* Bounds where the makespan is no help: what is told beside slower orders holds for the best one, too. */
  static const char *const slower[] = {"<transpose, 1f1b>", "<transpose(order=prefix), 1f1b>",
                                       "<transpose(owner=round-robin), 1f1b>"};
  c.search_seconds = -1;
  for (size_t i = 0; i < sizeof slower / sizeof *slower; i++) {
    c.schedule = slower[i];
    case_order(&c, &run);
    if (run.result.makespan < t.best - 1e-9 || run.result.bound > t.best + 1e-9)
      fail_msg("seed %llu, P %d, M %d, %s: best of all orders %g, %s makespan %g, bound %g",
               (unsigned long long)seed, ranks, microbatches, trainable ? "trained" : "frozen", t.best, slower[i],
               run.result.makespan, run.result.bound);
    case_end(&run);
  }
}

static void test_frozen_orders_are_the_best_there_are(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= 40; seed++) {
    for (int32_t ranks = 1; ranks <= 3; ranks++)
      for (int32_t microbatches = 1; microbatches <= 3; microbatches++) compare(seed, ranks, microbatches, false);
    if (seed <= 4) compare(seed, 2, 4, false);
  }
}

static void test_trained_orders_are_the_best_there_are(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= 40; seed++)
    for (int32_t ranks = 1; ranks <= 3; ranks++)
      for (int32_t microbatches = 1; microbatches <= 2; microbatches++) compare(seed, ranks, microbatches, true);
  compare(1, 2, 3, true);
  compare(2, 2, 3, true);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_frozen_orders_are_the_best_there_are),
      cmocka_unit_test(test_trained_orders_are_the_best_there_are),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
