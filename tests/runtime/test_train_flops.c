/* Operations of a planned step against a count layer by layer, for frozen and trained modules, whatever the
 * schedule and however the layers are cut. */
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

enum { MICROBATCHES = 4, MODULES = 3 };

static const int32_t one_segment[] = {0, 40}, two_segments[] = {0, 10, 30};

/* The second has no picture. */
static const mt_planner_microbatch data[MICROBATCHES] = {
    {.batch = {.tokens = 40, .segments = 1, .segment_begin = one_segment, .tiles = 2}, .targets = 7},
    {.batch = {.tokens = 30, .segments = 2, .segment_begin = two_segments, .tiles = 0}, .targets = 30},
    {.batch = {.tokens = 40, .segments = 1, .segment_begin = one_segment, .tiles = 1}, .targets = 1},
    {.batch = {.tokens = 30, .segments = 2, .segment_begin = two_segments, .tiles = 3}, .targets = 12},
};

static bool close_to(double a, double b) { return fabs(a - b) <= 1e-9 * (fabs(a) + fabs(b)); }

/* A chain from the first to the last layer: backward begins at the first one that trains. */
static void count(const mt_internvl *config, const mt_model *model, double sums[MODULES][MT_FLOPS_PARTS]) {
  int32_t first = 0;
  while (first < model->layer_count && !model->layers[first].trainable) first++;
  memset(sums, 0, MODULES * sizeof *sums);
  for (int m = 0; m < MICROBATCHES; m++) {
    double features[MT_COST_FEATURES];
    mt_cost_features(&data[m].batch, data[m].targets, features);
    for (int32_t layer = 0; layer < model->layer_count; layer++) {
      const mt_layer *of = &model->layers[layer];
      mt_layer_operations operations = mt_layer_operations_of(config, (mt_internvl_kind)of->kind, features);
      double *parts = sums[of->module];
      parts[MT_FLOPS_FORWARD] += operations.linear + operations.attention;
      if (layer >= first) parts[MT_FLOPS_INPUT] += operations.linear + 2 * operations.attention;
      if (layer == first) parts[MT_FLOPS_INPUT] -= operations.entry;
      if (of->trainable) parts[MT_FLOPS_WEIGHT] += operations.linear;
    }
  }
}

static void check(const mt_internvl *config, const char *schedule, int32_t pipeline, int32_t replicas,
                  const bool *trainable) {
  mt_planner_options options = {.config = config,
                                .schedule = schedule,
                                .pipeline = pipeline,
                                .replicas = replicas,
                                .microbatches = MICROBATCHES / replicas,
                                .costs = {.peak_operations_per_second = 1e9}};
  memcpy(options.trainable, trainable, sizeof options.trainable);
  mt_layer_costs_from_operations(config, &options.costs);
  options.costs.peak_operations_per_second = 1e9;
  motet_error error;
  mt_planner *planner;
  mt_plan plan;
  mt_arena *arena = mt_arena_create();
  if (mt_planner_create(&options, &error, &planner) != MOTET_OK) fail_msg("%s: %s", schedule, error.text);
  if (mt_planner_plan(planner, MT_PLANNER_TRAIN, data, NULL, 0, arena, &error, &plan) != MOTET_OK)
    fail_msg("%s: %s", schedule, error.text);
  double expected[MODULES][MT_FLOPS_PARTS], found[MT_FLOPS_PARTS], total = 0;
  count(config, mt_planner_model(planner), expected);
  for (int32_t module = 0; module < MODULES; module++) {
    mt_flops_sum(plan.flops, -1, module, found);
    for (int part = 0; part < MT_FLOPS_PARTS; part++) {
      if (!close_to(found[part], expected[module][part]))
        fail_msg("%s, module %d, part %d: %g, expected %g", schedule, module, part, found[part],
                 expected[module][part]);
      total += expected[module][part];
    }
    assert_true(trainable[module] || found[MT_FLOPS_WEIGHT] == 0);
  }
  assert_true(close_to(mt_flops_total(plan.flops), total));
  assert_true(close_to(mt_flops_utilization(plan.flops, total, pipeline * replicas, 2),
                       total / (2e9 * pipeline * replicas)));
  assert_int_equal(plan.flops->microbatch_count, plan.program->microbatch_count);
  for (int32_t i = 0; i < plan.flops->piece_count; i++) {
    const mt_flops_piece *piece = &plan.flops->pieces[i];
    const motet_program_stage *stage = &plan.program->stages[piece->stage];
    assert_true(stage->layer_begin < plan.program->modules[piece->module].layer_end &&
                stage->layer_end > plan.program->modules[piece->module].layer_begin);
    if (piece->module < 2) assert_true(piece->parts[MT_FLOPS_FORWARD][1] == 0); /* no picture */
  }
  mt_plan_free(&plan);
  mt_planner_destroy(planner);
  mt_arena_destroy(arena);
}

static void test_operations_follow_the_model_alone(void **state) {
  (void)state;
  static const char *const schedules[] = {"<vision+projector: transpose, llm: 1f1b>",
                                          "<vision+projector: inline, llm: 1f1b>", "<vision+projector+llm: 1f1b>"};
  static const bool trainable[][3] = {
      {true, true, true}, {false, true, true}, {false, true, false}, {false, false, true}};
  mt_internvl config;
  motet_error error;
  assert_int_equal(mt_internvl_read(MOTET_TEST_DATA "/models/InternVL2-1B/config.json", &error, &config), MOTET_OK);
  config.vision.layers = 3; /* of the published 24 each: planning takes less */
  config.decoder.layers = 5;
  for (size_t s = 0; s < sizeof schedules / sizeof *schedules; s++)
    for (size_t t = 0; t < sizeof trainable / sizeof *trainable; t++)
      for (int32_t pipeline = 1; pipeline <= 2; pipeline++)
        check(&config, schedules[s], pipeline, 1 + (s + t) % 2, trainable[t]);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_operations_follow_the_model_alone)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
