/* Fits against systems whose answer is known, and costs through their file. */
#include "model/architecture.h"
#include "train/costs.h"
#include "train/fit.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void near(double value, double expected) {
  assert_true(fabs(value - expected) <= 1e-9 * (1 + fabs(expected)));
}

static void test_exact_system_is_found(void **state) {
  (void)state;
  double features[12], targets[4], found[3];
  for (int i = 0; i < 4; i++) {
    double tokens = 100 * (i + 1), area = tokens * tokens * (1 + 0.1 * i);
    features[3 * i] = 1, features[3 * i + 1] = tokens, features[3 * i + 2] = area;
    targets[i] = 2e-5 + 3e-7 * tokens + 4e-10 * area;
  }
  assert_int_equal(mt_fit(features, targets, 4, 3, NULL, found), MOTET_OK);
  near(found[0], 2e-5);
  near(found[1], 3e-7);
  near(found[2], 4e-10);
}

/* y falls with x: the free line has a negative slope; the best one >= 0 is the constant that minimises the relative
 * errors, sum(1/y) / sum(1/y^2). */
static void test_negative_slope_becomes_zero(void **state) {
  (void)state;
  double features[] = {1, 1, 1, 2, 1, 3}, targets[] = {4, 2, 1}, found[2];
  assert_int_equal(mt_fit(features, targets, 3, 2, NULL, found), MOTET_OK);
  near(found[1], 0);
  near(found[0], (0.25 + 0.5 + 1) / (0.0625 + 0.25 + 1));
}

static void test_dependent_features_are_left_out(void **state) {
  (void)state;
  double features[] = {1, 2, 2, 4, 3, 6}, targets[] = {2, 4, 6}, found[2];
  assert_int_equal(mt_fit(features, targets, 3, 2, NULL, found), MOTET_OK);
  near(found[0] + 2 * found[1], 2);
}

static void test_bad_measurements_are_refused(void **state) {
  (void)state;
  double features[] = {1, 1}, found[1];
  double zero[] = {1, 0}, infinite[] = {1, INFINITY};
  motet_error error;
  assert_int_equal(mt_fit(features, zero, 2, 1, &error, found), MOTET_ERROR_ARGUMENT);
  assert_non_null(strstr(error.text, "measurement 2"));
  assert_int_equal(mt_fit(features, infinite, 2, 1, NULL, found), MOTET_ERROR_ARGUMENT);
  assert_int_equal(mt_fit(features, features, 0, 1, NULL, found), MOTET_ERROR_ARGUMENT);
}

static void test_features_of_a_batch(void **state) {
  (void)state;
  const int32_t begin[] = {0, 3, 10};
  mt_batch batch = {.tokens = 10, .segments = 2, .segment_begin = begin, .tiles = 4};
  double features[MT_COST_FEATURES];
  mt_cost_features(&batch, 6, features);
  assert_true(features[MT_COST_FIXED] == 1 && features[MT_COST_TOKENS] == 10 && features[MT_COST_TILES] == 4);
  assert_true(features[MT_COST_AREA] == 9 + 49 && features[MT_COST_TARGETS] == 6);
}

/* The decoder block of InternVL2-1B by hand: hidden 896, intermediate 4864, 14 heads of 64, 2 key and value heads.
 * A token costs 2 operations a weight; a query-key pair 4 a channel, half of them masked. */
static void test_operations_of_a_published_model(void **state) {
  (void)state;
  mt_internvl config;
  motet_error error;
  assert_int_equal(mt_internvl_read(MOTET_TEST_DATA "/models/InternVL2-1B/config.json", &error, &config), MOTET_OK);
  mt_layer_costs costs;
  mt_layer_costs_from_operations(&config, &costs);
  double rate = MT_OPERATIONS_PER_MICROSECOND * 1e6;
  double weights = 896.0 * (896 + 2 * 128) + 896.0 * 896 + 3.0 * 896 * 4864;
  const double one_token[MT_COST_FEATURES] = {[MT_COST_TOKENS] = 1}, pair[MT_COST_FEATURES] = {[MT_COST_AREA] = 1};
  near(mt_layer_seconds(&costs, MT_INTERNVL_DECODER_BLOCK, MT_PASS_FORWARD, one_token) * rate, 2 * weights);
  near(mt_layer_seconds(&costs, MT_INTERNVL_DECODER_BLOCK, MT_PASS_BACKWARD, one_token) * rate, 4 * weights);
  near(mt_layer_seconds(&costs, MT_INTERNVL_DECODER_BLOCK, MT_PASS_FORWARD, pair) * rate, 2 * 896);
}

/* The same from the architecture's own description, which counts products one by one (src/model). It takes the
 * scores again in the backward, where model FLOPs do not: 2 operations a channel and pair. */
static void test_operations_equal_the_architecture_s(void **state) {
  (void)state;
  mt_internvl config;
  motet_error error;
  mt_architecture *architecture;
  mt_arena *arena = mt_arena_create();
  assert_int_equal(mt_internvl_read(MOTET_TEST_DATA "/models/InternVL2-1B/config.json", &error, &config), MOTET_OK);
  assert_int_equal(
      mt_architecture_read(arena, MOTET_TEST_DATA "/models/InternVL2-1B/config.json", &error, &architecture),
      MOTET_OK);
  const mt_model *model = architecture->model;
  const double tokens = 100, pairs = 5000, tiles = 3, rows = tiles * (32 * 32 + 1);
  double extents[MT_EXTENTS] = {[MT_ROWS_TEXT] = tokens,
                                [MT_AREA_TEXT] = pairs,
                                [MT_ROWS_PATCHES] = rows,
                                [MT_AREA_PICTURE] = rows * (32 * 32 + 1),
                                [MT_ROWS_FEATURES] = tiles * 256};
  const double features[MT_COST_FEATURES] = {[MT_COST_TOKENS] = tokens,
                                             [MT_COST_AREA] = 2 * pairs, /* the full square */
                                             [MT_COST_TILES] = tiles,
                                             [MT_COST_TARGETS] = tokens};
  static const struct {
    int module, layer; /* from the end where negative */
    mt_internvl_kind kind;
    double scores; /* channels of all heads */
  } layers[] = {{0, 1, MT_INTERNVL_VISION_BLOCK, 1024},
                {1, 0, MT_INTERNVL_PROJECTOR, 0},
                {2, 1, MT_INTERNVL_DECODER_BLOCK, 896},
                {2, -1, MT_INTERNVL_HEAD, 0}};
  for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
    const mt_module *module = &model->modules[layers[i].module];
    int32_t layer = layers[i].layer >= 0 ? module->layer_begin + layers[i].layer : module->layer_end - 1;
    mt_layer_cost cost;
    mt_architecture_cost(architecture, layer, extents, 1, &cost);
    mt_layer_operations of = mt_layer_operations_of(&config, layers[i].kind, features);
    double area = layers[i].module == 0 ? extents[MT_AREA_PICTURE] : pairs;
    near(of.linear + of.attention, cost.forward_flops);
    near(of.linear, cost.weight_flops);
    near(of.linear + 2 * of.attention, cost.input_flops - 2 * layers[i].scores * area);
  }
  mt_arena_destroy(arena);
}

/* What a backward of weights alone spares: the gradient of the layer's input, which for a block is that of q, k, v.
 */
static void test_operations_of_the_first_trained_layer(void **state) {
  (void)state;
  mt_internvl config;
  motet_error error;
  assert_int_equal(mt_internvl_read(MOTET_TEST_DATA "/models/InternVL2-1B/config.json", &error, &config), MOTET_OK);
  const double one_token[MT_COST_FEATURES] = {[MT_COST_TOKENS] = 1}, pair[MT_COST_FEATURES] = {[MT_COST_AREA] = 1};
  near(mt_layer_operations_of(&config, MT_INTERNVL_DECODER_BLOCK, one_token).entry, 2 * 896.0 * (896 + 2 * 128));
  mt_layer_costs costs;
  mt_layer_costs_from_operations(&config, &costs);
  double rate = MT_OPERATIONS_PER_MICROSECOND * 1e6;
  near(mt_layer_seconds(&costs, MT_INTERNVL_DECODER_BLOCK, MT_PASS_BACKWARD_X, pair) * rate, 4 * 896);
  near(mt_layer_seconds(&costs, MT_INTERNVL_DECODER_BLOCK, MT_PASS_BACKWARD_W, pair) * rate, 4 * 896);
  double weights = 896.0 * (896 + 2 * 128) + 896.0 * 896 + 3.0 * 896 * 4864;
  near(mt_layer_seconds(&costs, MT_INTERNVL_DECODER_BLOCK, MT_PASS_BACKWARD_W, one_token) * rate,
       4 * weights - 2 * 896.0 * (896 + 2 * 128));
}

static void test_profile_file_reads_back(void **state) {
  (void)state;
  char path[] = "/tmp/motet-profile-XXXXXX";
  int file = mkstemp(path);
  assert_true(file >= 0);
  close(file);
  mt_layer_costs costs = {.optimizer_seconds_per_parameter = 1.5e-10,
                          .peak_operations_per_second = 2e11,
                          .link = {.latency_seconds = 1e-6, .bytes_per_second = 3e9},
                          .decode = {1e-3, 2e-9, 3e-4, .measured = true},
                          .spare_processors = 3};
  for (int kind = MT_INTERNVL_VISION_EMBED; kind < MT_LAYER_KINDS; kind++)
    for (int pass = 0; pass < MT_PASSES; pass++)
      for (int i = 0; i < MT_COST_FEATURES; i++) costs.seconds[kind][pass][i] = kind + 0.1 * pass + 0.01 * i;
  motet_error error;
  mt_layer_costs read;
  assert_int_equal(mt_layer_costs_write(&costs, path, &error), MOTET_OK);
  assert_int_equal(mt_layer_costs_read(path, &error, &read), MOTET_OK);
  assert_true(read.measured);
  near(read.optimizer_seconds_per_parameter, 1.5e-10);
  near(read.peak_operations_per_second, 2e11);
  near(read.link.bytes_per_second, 3e9);
  near(read.decode.medium_seconds, 1e-3);
  near(read.decode.pixel_seconds, 2e-9);
  near(read.decode.tile_seconds, 3e-4);
  assert_true(read.decode.measured && read.spare_processors == 3);
  near(read.seconds[MT_INTERNVL_HEAD][MT_PASS_BACKWARD_W][MT_COST_TARGETS], MT_INTERNVL_HEAD + 0.34);
  FILE *damaged = fopen(path, "w");
  fputs("{\"optimizer_seconds_per_parameter\": 1, \"link\": {\"latency_seconds\": -1}}", damaged);
  fclose(damaged);
  assert_int_equal(mt_layer_costs_read(path, &error, &read), MOTET_ERROR_PARSE);
  assert_string_equal(error.key, "link.latency_seconds");
  unlink(path);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_exact_system_is_found),
      cmocka_unit_test(test_negative_slope_becomes_zero),
      cmocka_unit_test(test_dependent_features_are_left_out),
      cmocka_unit_test(test_bad_measurements_are_refused),
      cmocka_unit_test(test_features_of_a_batch),
      cmocka_unit_test(test_operations_of_a_published_model),
      cmocka_unit_test(test_operations_equal_the_architecture_s),
      cmocka_unit_test(test_operations_of_the_first_trained_layer),
      cmocka_unit_test(test_profile_file_reads_back),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
