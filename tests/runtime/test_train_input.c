/* Waits for pictures against what must hold of any such forecast: no decoding is lost, none is done twice, and what
 * ranks have idle is used before anybody waits. */
#include "model/internvl.h"
#include "train/planner.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MICROBATCHES = 6, ANY_ROWS = 1000 };

static const int32_t segment[] = {0, 300};
static const double shares[MICROBATCHES] = {1, 3, 0, 2, 0.5, 1}; /* the third has no picture */

typedef struct setting {
  const char *schedule;
  int32_t pipeline, spare, rows;
  double decode; /* seconds of a share */
} setting;

static void with_plan(const mt_internvl *config, const setting *of, void (*look)(const mt_plan *, void *),
                      void *to) {
  mt_planner_options options = {.config = config,
                                .schedule = of->schedule,
                                .trainable = {false, true, true},
                                .pipeline = of->pipeline,
                                .replicas = 1,
                                .microbatches = MICROBATCHES,
                                .decode_threads = 1,
                                .decode_rows = of->rows};
  mt_planner_microbatch data[MICROBATCHES] = {0};
  for (int m = 0; m < MICROBATCHES; m++)
    data[m] = (mt_planner_microbatch){
        .batch = {.tokens = 300, .segments = 1, .segment_begin = segment, .tiles = shares[m] > 0 ? 1 : 0},
        .targets = 20,
        .decode_seconds = of->decode * shares[m]};
  mt_layer_costs_from_operations(config, &options.costs);
  options.costs.spare_processors = of->spare;
  motet_error error;
  mt_planner *planner;
  mt_plan plan;
  mt_arena *arena = mt_arena_create();
  if (mt_planner_create(&options, &error, &planner) != MOTET_OK) fail_msg("%s: %s", of->schedule, error.text);
  if (mt_planner_plan(planner, MT_PLANNER_TRAIN, data, NULL, 0, arena, &error, &plan) != MOTET_OK)
    fail_msg("%s: %s", of->schedule, error.text);
  look(&plan, to);
  mt_plan_free(&plan);
  mt_planner_destroy(planner);
  mt_arena_destroy(arena);
}

static void take_makespan(const mt_plan *plan, void *to) { *(double *)to = plan->simulation->makespan; }

static double makespan_of(const mt_internvl *config, setting of) {
  double makespan;
  with_plan(config, &of, take_makespan, &makespan);
  return makespan;
}

static void open_config(mt_internvl *config) {
  motet_error error;
  assert_int_equal(mt_internvl_read(MOTET_TEST_DATA "/models/InternVL2-1B/config.json", &error, config), MOTET_OK);
  config->vision.layers = 3; /* of the published 24 each: planning takes less */
  config->decoder.layers = 5;
}

static double all_shares(void) {
  double sum = 0;
  for (int m = 0; m < MICROBATCHES; m++) sum += shares[m];
  return sum;
}

static void test_one_rank_computes_and_decodes_in_turn_or_side_by_side(void **state) {
  (void)state;
  mt_internvl config;
  open_config(&config);
  const char *schedule = "<vision+projector: inline, llm: 1f1b>";
  const double compute = makespan_of(&config, (setting){schedule, 1, 0, ANY_ROWS, 0});
  for (double part = 0.25; part < 3; part *= 2) { /* of the time that computing takes */
    const double share = part * compute / all_shares();
    const double in_turn = makespan_of(&config, (setting){schedule, 1, 0, ANY_ROWS, share});
    const double beside = makespan_of(&config, (setting){schedule, 1, 1, ANY_ROWS, share});
    assert_true(fabs(in_turn - compute * (1 + part)) < 1e-9 * compute);
    assert_true(fabs(beside - compute * fmax(1, part)) < 1e-9 * compute);
    /* One row ahead: the largest takes 3 / 7.5 of the decoding, beside one of six microbatches. */
    const double narrow = makespan_of(&config, (setting){schedule, 1, 1, 1, share});
    assert_true(narrow >= beside - 1e-9 * compute && narrow <= in_turn + 1e-9 * compute);
    assert_true(part < 0.3 || part > 2 || narrow > beside + 1e-3 * compute);
  }
}

/** Every rank decodes what it loads: in its idle time first, and then before the loads. */
static void check_ranks(const mt_plan *plan, void *to) {
  const motet_program *program = plan->program;
  const double share = *(const double *)to, makespan = plan->simulation->makespan;
  double decoded = 0;
  for (int32_t rank = 0; rank < program->ranks; rank++) {
    double own = 0, waits = 0;
    for (int64_t i = program->rank_begin[rank]; i < program->rank_begin[rank + 1]; i++) {
      const motet_instruction *instruction = &program->instructions[i];
      if (instruction->kind != MOTET_LOAD) continue;
      waits += plan->simulation->finish[i] - plan->simulation->start[i];
      if ((program->stages[instruction->stage].inputs & MOTET_INPUT_PIXELS) != 0)
        own += share * shares[instruction->microbatch];
    }
    const double idle = makespan - plan->simulation->ranks[rank].busy - waits;
    assert_true(idle >= -1e-9 * makespan);
    if (fabs(waits - fmax(0, own - idle)) > 0.02 * makespan)
      fail_msg("rank %d waits %g s, decodes %g s and has %g s idle", (int)rank, waits, own, idle);
    decoded += own;
  }
  assert_true(fabs(decoded - share * all_shares()) < 1e-9 * decoded);
}

static void test_ranks_decode_while_they_wait(void **state) {
  (void)state;
  static const char *const schedules[] = {"<vision+projector: transpose, llm: 1f1b>",
                                          "<vision+projector: transpose(order=prefix), llm: 1f1b>",
                                          "<vision+projector: inline, llm: 1f1b>", "<vision+projector+llm: 1f1b>"};
  mt_internvl config;
  open_config(&config);
  for (size_t s = 0; s < sizeof schedules / sizeof *schedules; s++)
    for (int32_t pipeline = 2; pipeline <= 3; pipeline++) {
      const double without = makespan_of(&config, (setting){schedules[s], pipeline, 0, ANY_ROWS, 0});
      double before = without;
      for (double part = 0.02; part < 2; part *= 3) {
        setting of = {schedules[s], pipeline, 0, ANY_ROWS, part * without / all_shares()};
        with_plan(&config, &of, check_ranks, &of.decode);
        const double makespan = makespan_of(&config, of);
        assert_true(makespan >= before - 0.02 * without);
        before = makespan;
        of.spare = 1;
        assert_true(makespan_of(&config, of) <= makespan + 1e-9 * without);
      }
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_one_rank_computes_and_decodes_in_turn_or_side_by_side),
      cmocka_unit_test(test_ranks_decode_while_they_wait),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
