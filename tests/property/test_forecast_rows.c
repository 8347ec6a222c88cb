/* Forecasts of published iterations by the A100 preset as it stands, which was fitted on the measured plans: the
 * other sets never saw a fit. bench/forecast has each row, and coefficients that never saw a model. */
#include "support/gpt_rows.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static mt_arena *arena;
static gpt_coefficients preset;
static gpt_rows rows;

static int set_up(void **state) {
  (void)state;
  mt_cluster cluster;
  motet_error error;
  if (mt_cluster_preset("a100-80gb", 8, &error, &cluster) != MOTET_OK) return 1;
  preset = (gpt_coefficients){cluster.device.matmul_efficiency, cluster.device.matmul_depth,
                              cluster.device.memory_efficiency, cluster.device.layer_host_seconds};
  arena = mt_arena_create();
  return arena == NULL;
}

static int tear_down(void **state) {
  (void)state;
  mt_arena_destroy(arena);
  return 0;
}

/* Mean and worst error; the simulated program is within 5% of the formula that fits are made with: that knows
 * nothing of transfers. */
static void hold(double mean, double worst) {
  double sum = 0;
  for (int r = 0; r < rows.count; r++) {
    const gpt_row *row = &rows.rows[r];
    double simulated = gpt_simulated_seconds(row, &preset), formula = gpt_formula_seconds(row, &preset);
    double error = fabs(simulated / row->seconds - 1);
    sum += error;
    if (error > worst)
      fail_msg("%s, tp %d, pp %d: %.2f s, published %.2f", row->model, row->tensor, row->pipeline, simulated,
               row->seconds);
    if (fabs(simulated / formula - 1) > 0.05)
      fail_msg("%s, tp %d, pp %d: simulated %.2f s, by formula %.2f", row->model, row->tensor, row->pipeline,
               simulated, formula);
  }
  if (sum / rows.count > mean) fail_msg("mean error %.3f", sum / rows.count);
}

static void test_korthikanti(void **state) {
  (void)state;
  gpt_read_korthikanti(arena, MOTET_TEST_DATA "/facts", &rows);
  assert_int_equal(rows.count, 8);
  hold(0.036, 0.08);
}

static void test_measured_plans(void **state) {
  (void)state;
  gpt_read_measured(arena, MOTET_TEST_DATA "/facts", &rows);
  assert_int_equal(rows.count, 54);
  hold(0.07, 0.40);
}

/* By hand: 1 2 3 4 against 1 3 2 4 is 1 - 6 * 2 / (4 * 15). */
static void test_rank_correlation(void **state) {
  (void)state;
  const double a[] = {1, 2, 3, 4}, b[] = {10, 30, 20, 40}, down[] = {4, 3, 2, 1};
  assert_true(fabs(gpt_rank_correlation(a, b, 4) - 0.8) < 1e-12);
  assert_true(fabs(gpt_rank_correlation(a, down, 4) + 1) < 1e-12);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_korthikanti), cmocka_unit_test(test_measured_plans),
                                     cmocka_unit_test(test_rank_correlation)};
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
