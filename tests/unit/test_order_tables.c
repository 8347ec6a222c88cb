/* The tables of makespans that the order floor must reproduce (inline, prefix) and reach (optimum): f = 1, b = 2,
 * communication free; optima proven with a constraint solver apart from this code. */
#include "../order_case.h"

typedef struct table_row {
  int32_t ranks, microbatches;
  double encode[4];
  int32_t encode_count;
  bool trainable;
  double inlined, prefix, greedy_round_robin, optimum;
} table_row;

static const table_row rows[] = {
    {4, 4, {1}, 1, false, 22, 22, 22, 22},
    {4, 16, {1}, 1, false, 70, 61, 58, 58},
    {4, 16, {2}, 1, false, 83, 65, 62, 61},
    {8, 16, {1}, 1, false, 78, 71, 70, 70},
    {8, 32, {1}, 1, false, 142, 121, 118, 118},
    {8, 32, {2}, 1, false, 167, 125, 122, 119},
    {4, 16, {0.4, 0.4, 0.4, 2.0}, 4, false, 67, 65, 0, 57.4},
    {4, 8, {1}, 1, true, 51, 39, 0, 36},
    {4, 16, {1}, 1, true, 99, 69, 0, 63},
    {8, 16, {1}, 1, true, 103, 75, 0, 72},
    {8, 32, {1}, 1, true, 199, 129, 0, 120},
};

static double run_row(const table_row *row, const char *schedule, double *bound) {
  order_case c = {.schedule = schedule,
                  .ranks = row->ranks,
                  .microbatches = row->microbatches,
                  .trainable = row->trainable,
                  .encode = row->encode,
                  .encode_count = row->encode_count,
                  .forward = 1,
                  .backward = 2};
  order_run run;
  replay check;
  case_order(&c, &run);
  double makespan = replay_order(&run, &check);
  assert_seconds_near(makespan, run.result.makespan);
  if (bound != NULL) *bound = run.result.bound;
  case_end(&run);
  return makespan;
}

static void test_inline_and_prefix_columns_are_met_exactly(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    assert_seconds_near(run_row(&rows[i], "<inline, 1f1b>", NULL), rows[i].inlined);
    assert_seconds_near(run_row(&rows[i], "<transpose(order=prefix), 1f1b>", NULL), rows[i].prefix);
  }
}

static void test_fill_reaches_the_optimum_and_proves_it(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    double bound;
    assert_seconds_near(run_row(&rows[i], "<transpose, 1f1b>", &bound), rows[i].optimum);
    assert_seconds_near(bound, rows[i].optimum);
  }
}

static void test_round_robin_owners_are_kept_and_no_slower_than_the_greedy_column(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    double bound, makespan = run_row(&rows[i], "<transpose(owner=round-robin), 1f1b>", &bound);
    if (rows[i].greedy_round_robin > 0) assert_true(makespan <= rows[i].greedy_round_robin + 1e-9);
    assert_true(makespan >= rows[i].optimum - 1e-9);
    assert_true(bound <= rows[i].optimum + 1e-9); /* whoever owns what */
  }
}

/* Twice as many microbatches of half the times, two at a time everywhere, are the row's own. */
static void test_pairs_are_microbatches_of_their_sum(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    for (int prefix = 0; prefix < 2; prefix++) {
      double halves[8];
      for (int32_t k = 0; k < 2 * rows[i].encode_count; k++) halves[k] = rows[i].encode[k / 2] / 2;
      order_case c = {.schedule = prefix ? "<transpose(order=prefix, batch=2), 1f1b(batch=2)>"
                                         : "<transpose(batch=2), 1f1b(batch=2)>",
                      .ranks = rows[i].ranks,
                      .microbatches = 2 * rows[i].microbatches,
                      .trainable = rows[i].trainable,
                      .encode = halves,
                      .encode_count = 2 * rows[i].encode_count,
                      .forward = 0.5,
                      .backward = 1};
      order_run run;
      case_order(&c, &run);
      assert_seconds_near(run.result.makespan, prefix ? rows[i].prefix : rows[i].optimum);
      assert_seconds_near(run.result.bound, rows[i].optimum);
      case_end(&run);
    }
}

static void test_the_bound_of_prefix_holds_for_every_order(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    double bound;
    run_row(&rows[i], "<transpose(order=prefix), 1f1b>", &bound);
    assert_seconds_near(bound, rows[i].optimum);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_inline_and_prefix_columns_are_met_exactly),
      cmocka_unit_test(test_fill_reaches_the_optimum_and_proves_it),
      cmocka_unit_test(test_round_robin_owners_are_kept_and_no_slower_than_the_greedy_column),
      cmocka_unit_test(test_pairs_are_microbatches_of_their_sum),
      cmocka_unit_test(test_the_bound_of_prefix_holds_for_every_order),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
