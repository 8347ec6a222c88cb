/* Right programs are accepted, whoever makes them: drawn event by event in the tests, or derived, ordered and
 * lowered from random models, schedules, flags, masks, P, M and replicas. */
#include "program_builder.h"
#include "program_run.h"
#include "sim/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const foreign[] = {"1f1b_p4_m8",
                                      "1f1bv_p4_m8",
                                      "vhalf_p4_m8",
                                      "vmin_p4_m8",
                                      "vpp2_p4_m8",
                                      "vpp4_p4_m8",
                                      "zb1p_p4_m8",
                                      "zb2p_p4_m8",
                                      "zbv_p4_m8",
                                      "zb1p_2rank_2stagep_comms",
                                      "zb1p_2rank_2stagep_compute"};

enum { DRAWS = 3000, PLANS = 3000 };

/* Peaks against lifetimes looked up one by one. */
static void assert_peaks(const motet_program *program, const motet_verification *verification, uint64_t seed) {
  motet_rank_memory *memory = calloc((size_t)program->ranks, sizeof *memory);
  program_peaks(program, memory);
  for (int32_t rank = 0; rank < program->ranks; rank++) {
    const motet_rank_memory *a = &verification->memory[rank], *b = &memory[rank];
    double difference = a->peak_activations - b->peak_activations;
    if (a->peak_bytes != b->peak_bytes || a->peak_instruction != b->peak_instruction ||
        a->peak_features != b->peak_features || difference > 1e-9 || difference < -1e-9)
      fail_msg("seed %llu rank %d: %lld bytes at %lld, %g activations, %d features; should be %lld at %lld, %g, %d",
               (unsigned long long)seed, rank, (long long)a->peak_bytes, (long long)a->peak_instruction,
               a->peak_activations, a->peak_features, (long long)b->peak_bytes, (long long)b->peak_instruction,
               b->peak_activations, b->peak_features);
  }
  free(memory);
}

/* And against the simulator's memory over time, with the place in the list for the time. */
static void assert_timeline(const motet_program *program, const motet_verification *verification, uint64_t seed) {
  mt_arena *arena = mt_arena_create();
  int64_t length = program->rank_begin[program->ranks];
  double *start = MT_ARENA_NEW(arena, double, length), *finish = MT_ARENA_NEW(arena, double, length);
  for (int32_t rank = 0; rank < program->ranks; rank++) {
    for (int64_t i = program->rank_begin[rank]; i < program->rank_begin[rank + 1]; i++) {
      start[i] = (double)(i - program->rank_begin[rank]);
      finish[i] = start[i] + 0.5;
    }
  }
  mt_memory_timeline *timeline;
  motet_error error;
  if (mt_memory_timeline_make(arena, program, start, finish, &error, &timeline) != MOTET_OK)
    fail_msg("%s", error.text);
  for (int32_t rank = 0; rank < program->ranks; rank++) {
    if (timeline->peak_bytes[rank] != verification->memory[rank].peak_bytes)
      fail_msg("seed %llu rank %d: peak %lld, over time %lld", (unsigned long long)seed, rank,
               (long long)verification->memory[rank].peak_bytes, (long long)timeline->peak_bytes[rank]);
  }
  mt_arena_destroy(arena);
}

static void assert_accepted(const motet_program *program, uint64_t seed, const char *schedule) {
  motet_error error;
  motet_verification verification;
  motet_verify_options options = {.check_blocking = true, .capacity = (int32_t)(seed % 3)};
  if (motet_verify(program, &options, &error, &verification) != MOTET_OK)
    fail_msg("seed %llu %s: %s: %s (rank %d, instruction %lld)", (unsigned long long)seed, schedule, error.rule,
             error.text, error.rank, error.instruction);
  assert_true(verification.blocking_hangs == (verification.cycle_count > 0));
  assert_peaks(program, &verification, seed);
  assert_timeline(program, &verification, seed);
  motet_verification_free(&verification);
}

static void test_drawn_programs_are_accepted(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < DRAWS; seed++) {
    mt_random random = mt_random_stream(seed, "accepts");
    motet_program *program = program_draw(&random);
    assert_accepted(program, seed, "");
    char reason[RUN_REASON_SIZE];
    if (!program_runs(program, reason)) fail_msg("seed %llu: %s", (unsigned long long)seed, reason);
    program_free(program);
  }
}

static void test_foreign_orders_are_accepted(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++) {
    char path[512];
    snprintf(path, sizeof path, "%s/schedules/%s.csv", MOTET_TEST_DATA, foreign[i]);
    motet_program *program;
    motet_error error;
    if (motet_program_read_pytorch_csv(path, MOTET_PLACEMENT_AUTO, &error, &program) != MOTET_OK)
      fail_msg("%s: %s", path, error.text);
    assert_accepted(program, i, foreign[i]);
    motet_program_destroy(program);
  }
}

static void test_lowered_plans_are_accepted(void **state) {
  (void)state;
  int legal = 0;
  for (uint64_t seed = 0; seed < PLANS; seed++) {
    mt_random random = mt_random_stream(seed, "plans");
    char schedule[PLAN_TEXT_SIZE], reason[RUN_REASON_SIZE];
    motet_error error;
    motet_program *program = plan_draw_program(&random, schedule, &error);
    if (program == NULL && error.status != MOTET_ERROR_ILLEGAL)
      fail_msg("seed %llu %s: %s", (unsigned long long)seed, schedule, error.text);
    if (program == NULL) continue;
    assert_accepted(program, seed, schedule);
    if (!program_runs(program, reason)) fail_msg("seed %llu %s: %s", (unsigned long long)seed, schedule, reason);
    motet_program_destroy(program);
    legal++;
  }
  assert_true(legal > PLANS / 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_drawn_programs_are_accepted),
      cmocka_unit_test(test_foreign_orders_are_accepted),
      cmocka_unit_test(test_lowered_plans_are_accepted),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
