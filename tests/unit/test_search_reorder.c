/* Orders of microbatches: every rule gives all of them once, and the climb is between the best of all orders and
 * the rules that it starts from. Dealing keeps Graham's bound. */
#include "base/random.h"
#include "search/batch.h"
#include "search/reorder.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 3, MICROBATCHES = 6, CELLS = RANKS * MICROBATCHES };

/* The 1F1B step of an order, microbatch by microbatch from its rules alone: rank r runs RANKS - 1 - r forwards
 * first. */
static double by_rules(const mt_reorder_request *q, const int32_t *order) {
  double forward_end[CELLS], backward_end[CELLS], free[RANKS] = {0};
  bool done[2][CELLS] = {{false}};
  int32_t next[RANKS] = {0};
  for (int32_t left = 2 * CELLS; left > 0;)
    for (int32_t r = 0; r < RANKS; r++) {
      int32_t warm_up = RANKS - 1 - r, k = next[r];
      if (k == 2 * MICROBATCHES) continue;
      bool back = k >= warm_up && (k - warm_up) % 2 == 1;
      if (k >= 2 * MICROBATCHES - warm_up) back = true;
      int32_t forwards = k < warm_up ? k : (k - warm_up + 1) / 2 + warm_up;
      if (forwards > MICROBATCHES) forwards = MICROBATCHES;
      int32_t slot = back ? k - forwards : forwards, cell = r * MICROBATCHES + slot;
      bool ready = !back ? r == 0 || done[0][cell - MICROBATCHES]
                         : done[0][cell] && (r == RANKS - 1 || done[1][cell + MICROBATCHES]);
      if (!ready) continue;
      double start = free[r], *end = back ? &backward_end[cell] : &forward_end[cell];
      if (!back && r > 0) start = fmax(start, forward_end[cell - MICROBATCHES]);
      if (back && r < RANKS - 1) start = fmax(start, backward_end[cell + MICROBATCHES]);
      int32_t own = r * MICROBATCHES + order[slot];
      *end = free[r] = start + (back ? q->backward[own] : q->forward[own]);
      done[back][cell] = true;
      next[r]++;
      left--;
    }
  return fmax(free[0], fmax(free[1], free[2]));
}

static double best_of_all(const mt_reorder_request *q, int32_t *order, int32_t at) {
  if (at == MICROBATCHES) return by_rules(q, order);
  double best = INFINITY;
  for (int32_t i = at; i < MICROBATCHES; i++) {
    int32_t kept = order[at];
    order[at] = order[i], order[i] = kept;
    best = fmin(best, best_of_all(q, order, at + 1));
    kept = order[at];
    order[at] = order[i], order[i] = kept;
  }
  return best;
}

static void test_rules(void **state) {
  (void)state;
  mt_random random = mt_random_stream(8, "reorder");
  int optimal = 0;
  for (int turn = 0; turn < 20; turn++) {
    double forward[CELLS], backward[CELLS];
    for (int i = 0; i < CELLS; i++) {
      forward[i] = i < MICROBATCHES ? exp(mt_random_normal(&random)) : 1.0;
      backward[i] = 2 * forward[i];
    }
    mt_reorder_request request = {
        .ranks = RANKS, .microbatches = MICROBATCHES, .forward = forward, .backward = backward, .seed = 1};
    mt_arena *arena = mt_arena_create();
    motet_error error;
    double seconds[MT_REORDER_RULES];
    int32_t order[MICROBATCHES];
    for (int rule = 0; rule < MT_REORDER_RULES; rule++) {
      motet_status status = mt_reorder(arena, &request, (mt_reorder_rule)rule, &error, order, &seconds[rule]);
      assert_int_equal(status, MOTET_OK);
      uint32_t seen = 0;
      for (int m = 0; m < MICROBATCHES; m++) seen |= UINT32_C(1) << order[m];
      assert_int_equal(seen, (1 << MICROBATCHES) - 1);
      assert_true(fabs(seconds[rule] - by_rules(&request, order)) < 1e-9);
    }
    double climbed = seconds[MT_REORDER_CLIMB];
    assert_true(climbed <= seconds[MT_REORDER_GIVEN] && climbed <= seconds[MT_REORDER_DISTTRAIN]);
    for (int m = 0; m < MICROBATCHES; m++) order[m] = m;
    double best = best_of_all(&request, order, 0);
    assert_true(climbed >= best - 1e-9);
    optimal += climbed <= best + 1e-9;
    mt_arena_destroy(arena);
  }
  assert_true(optimal >= 10);
}

/* Within 4/3 of the mean or of the heaviest load, whichever is more: no map can be below both (Graham 1969). */
static void test_dealing(void **state) {
  (void)state;
  mt_random random = mt_random_stream(9, "deal");
  enum { COUNT = 96, BINS = 8 };
  for (int turn = 0; turn < 50; turn++) {
    double load[COUNT], sum[BINS], all = 0, most = 0;
    int32_t held[BINS], owner[COUNT];
    for (int i = 0; i < COUNT; i++) load[i] = exp(2 - 4.0 * i / COUNT + mt_random_unit(&random) * 1e-3);
    for (int i = 1; i < COUNT; i++)
      if (load[i] > load[i - 1]) load[i] = load[i - 1];
    for (int i = 0; i < COUNT; i++) all += load[i];
    mt_search_deal_loads(load, COUNT, BINS, COUNT, sum, held, owner);
    for (int b = 0; b < BINS; b++) most = fmax(most, sum[b]);
    assert_true(most <= 4.0 / 3 * fmax(all / BINS, load[0]));
    /* With room for its share alone every bin gets so many. */
    mt_search_deal_loads(load, COUNT, BINS, COUNT / BINS, sum, held, owner);
    for (int b = 0; b < BINS; b++) assert_int_equal(held[b], COUNT / BINS);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_rules), cmocka_unit_test(test_dealing)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
