#include "../sim_builder.h"
#include "sim/measured.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

static mt_simulation *measure(builder *b, const motet_program *program, double *start, double *finish,
                              mt_cost_table *costs) {
  mt_simulation *simulation = NULL;
  motet_error error;
  if (mt_simulation_measured(b->arena, program, start, finish, &error, &simulation, costs) != MOTET_OK)
    fail_msg("%s", error.text);
  return simulation;
}

static void build_pipeline(builder *b, motet_program **program) {
  builder_begin(b, 4, 1, 4, 8);
  builder_cost_all(b, 1.0, 2.0);
  for (int32_t m = 0; m < 8; m += 3) b->costs.seconds[MT_COST_FORWARD].values[1 * 8 + m] = 2.5;
  builder_pipeline(b, 0, 4, 1, 0, 8, false, 0);
  builder_send_waits(b);
  builder_collective(b, MOTET_STEP_END, 0, -1, -1);
  *program = builder_end(b);
}

/* What the simulation says of its own times, a run with these times is told too. */
static void test_simulated_times_measured(void **state) {
  (void)state;
  builder b;
  motet_program *program;
  build_pipeline(&b, &program);
  mt_simulation *simulated = builder_simulate(&b, program);
  mt_cost_table costs;
  mt_simulation *measured = measure(&b, program, simulated->start, simulated->finish, &costs);
  ASSERT_NEAR(measured->makespan, simulated->makespan);
  ASSERT_NEAR(measured->idle_share, simulated->idle_share);
  ASSERT_NEAR(measured->bubble_whole, simulated->bubble_whole);
  ASSERT_NEAR(measured->bubble_stage, simulated->bubble_stage);
  for (int cause = 0; cause < MT_IDLE_CAUSES; cause++)
    ASSERT_NEAR(measured->idle_by_cause[cause], simulated->idle_by_cause[cause]);
  for (int32_t rank = 0; rank < 4; rank++) ASSERT_NEAR(measured->ranks[rank].busy, simulated->ranks[rank].busy);
  assert_int_equal(measured->critical_count, simulated->critical_count);
  for (int64_t k = 0; k < measured->critical_count; k++)
    assert_int_equal(measured->critical[k], simulated->critical[k]);
  /* The costs found are the costs given. */
  for (int kind = MT_COST_FORWARD; kind <= MT_COST_BACKWARD; kind++)
    for (int32_t stage = 0; stage < 4; stage++)
      for (int32_t m = 0; m < 8; m++)
        ASSERT_NEAR(mt_cost_seconds(&costs, (mt_cost_kind)kind, stage, m),
                    mt_cost_seconds(&b.costs, (mt_cost_kind)kind, stage, m));
  builder_free(&b);
}

/* A rank that dawdles between two computes: that time is idle, and has no cause. */
static void test_gaps_have_no_cause(void **state) {
  (void)state;
  builder b;
  builder_begin(&b, 1, 1, 1, 2);
  builder_compute(&b, 0, MOTET_FWD, 0, 0);
  builder_compute(&b, 0, MOTET_BWD, 0, 0);
  builder_compute(&b, 0, MOTET_LOAD, 0, 1);
  builder_compute(&b, 0, MOTET_FWD, 0, 1);
  motet_program *program = builder_end(&b);
  double start[] = {0, 1.5, 4, 5}, finish[] = {1, 3.5, 5, 6};
  mt_cost_table costs;
  mt_simulation *s = measure(&b, program, start, finish, &costs);
  ASSERT_NEAR(s->makespan, 6);
  ASSERT_NEAR(s->ranks[0].idle, 2);
  ASSERT_NEAR(s->idle_by_cause[MT_IDLE_INPUT_STALL], 1.5); /* with the half second before it */
  double sum = 0;
  for (int cause = 0; cause < MT_IDLE_CAUSES; cause++) sum += s->idle_by_cause[cause];
  ASSERT_NEAR(sum, 1.5);
  builder_free(&b);
}

/* A measured wait takes some time even where the data were there long before: the path stays on its rank. */
static void test_path_passes_over_waits_for_nothing(void **state) {
  (void)state;
  builder b;
  builder_begin(&b, 2, 1, 2, 2);
  int32_t buffer = builder_buffer(&b, MOTET_BUFFER_ACTIVATION, 0, builder_edge(&b, 0, 1), 0, 1);
  builder_compute(&b, 0, MOTET_FWD, 0, 0);
  builder_add(&b, 0, MOTET_SEND, 0, 0, 0, buffer, 1);
  builder_add(&b, 1, MOTET_RECV, 0, 0, 0, buffer, 0);
  builder_compute(&b, 1, MOTET_FWD, 1, 1);
  builder_add(&b, 1, MOTET_WAIT, MOTET_FLAG_RECV, 0, 0, buffer, 0);
  builder_compute(&b, 1, MOTET_FWD, 1, 0);
  motet_program *program = builder_end(&b);
  double start[] = {0, 1, 0, 0, 5, 5.25}, finish[] = {1, 1, 0, 5, 5.25, 7};
  mt_cost_table costs;
  mt_simulation *s = measure(&b, program, start, finish, &costs);
  static const int64_t path[] = {3, 4, 5};
  assert_int_equal(s->critical_count, 3);
  for (int k = 0; k < 3; k++) assert_int_equal(s->critical[k], path[k]);
  builder_free(&b);
}

/* Times with clocks that disagree: all is still finite, adds up to no more than the idle time, and the critical
 * path comes to an end. */
static void test_random_times(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= 200; seed++) {
    mt_random random = mt_random_stream(seed, "measured");
    builder b;
    motet_program *program = builder_random(&b, &random);
    mt_simulation *simulated = builder_simulate(&b, program);
    assert_non_null(simulated);
    int64_t count = program->rank_begin[program->ranks];
    double *start = MT_ARENA_NEW(b.arena, double, count), *finish = MT_ARENA_NEW(b.arena, double, count);
    for (int32_t rank = 0; rank < program->ranks; rank++) {
      double skew = 0.3 * mt_random_unit(&random), before = 0;
      for (int64_t i = program->rank_begin[rank]; i < program->rank_begin[rank + 1]; i++) {
        start[i] = fmax(before, simulated->start[i] + skew + 0.01 * mt_random_unit(&random));
        finish[i] = before = fmax(start[i], simulated->finish[i] + skew + 0.01 * mt_random_unit(&random));
      }
    }
    mt_cost_table costs;
    mt_simulation *s = measure(&b, program, start, finish, &costs);
    double causes = 0, idle = 0;
    for (int cause = 0; cause < MT_IDLE_CAUSES; cause++) {
      assert_true(s->idle_by_cause[cause] >= -1e-9);
      causes += s->idle_by_cause[cause];
    }
    for (int32_t rank = 0; rank < program->ranks; rank++) idle += s->ranks[rank].idle;
    if (!(causes <= idle + 1e-9)) fail_msg("seed %d: causes %g, idle %g", (int)seed, causes, idle);
    assert_true(s->critical_count <= 2 * count);
    for (int64_t k = 0; k < s->critical_count; k++) assert_true(s->critical[k] >= 0 && s->critical[k] < count);
    builder_free(&b);
  }
}

static void test_wrong_times_are_refused(void **state) {
  (void)state;
  builder b;
  motet_program *program;
  build_pipeline(&b, &program);
  mt_simulation *simulated = builder_simulate(&b, program), *s;
  mt_cost_table costs;
  motet_error error;
  static const double wrong[] = {-1.0, NAN, INFINITY};
  for (int i = 0; i < 3; i++) {
    double right = simulated->start[40];
    simulated->start[40] = wrong[i];
    assert_int_equal(
        mt_simulation_measured(b.arena, program, simulated->start, simulated->finish, &error, &s, &costs),
        MOTET_ERROR_ARGUMENT);
    assert_int_equal(program->rank_begin[error.rank] + error.instruction, 40);
    simulated->start[40] = right;
  }
  builder_free(&b);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_simulated_times_measured),
      cmocka_unit_test(test_gaps_have_no_cause),
      cmocka_unit_test(test_path_passes_over_waits_for_nothing),
      cmocka_unit_test(test_random_times),
      cmocka_unit_test(test_wrong_times_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
