/*
 * Every layer kind by itself against finite differences. The scalar is L = <u, output> with a fixed random u (the
 * head's own loss for the head); for the input and for each weight, the gradient times a random direction is
 * compared with the central difference along it. Outputs are float32: a step of 1e-2 of the weights' size keeps
 * rounding below 1e-4 of the derivative and the cubic term below 1e-3.
 */
#include "nn_case.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const double step = 4e-3, tolerance = 5e-3;

typedef struct probe {
  mt_internvl config;
  mt_network *network;
  nn_case_batch data;
  mt_batch batch;
  mt_arena *arena;
  int32_t layer;
  int64_t input_count, output_count;
  float *input, *output, *seed; /* seed: u */
} probe;

static motet_error failure;

static void must(motet_status status) {
  if (status != MOTET_OK) fail_msg("%s", failure.text);
}

static void randomize(float *data, int64_t count, const char *name, double scale) {
  mt_random random = mt_random_stream(11, name);
  for (int64_t i = 0; i < count; i++) data[i] = (float)(scale * mt_random_normal(&random));
}

static void open_probe(probe *p, bool other, int32_t layer) {
  memset(p, 0, sizeof *p);
  p->config = nn_case_config(other);
  p->batch = nn_case_fill(&p->data);
  p->arena = mt_arena_create();
  p->layer = layer;
  bool held[NN_CASE_LAYERS], trainable[NN_CASE_LAYERS];
  for (int l = 0; l < NN_CASE_LAYERS; l++) held[l] = l == layer, trainable[l] = true;
  must(mt_network_create(&p->config, held, trainable, &failure, &p->network));
  nn_case_weights(p->network);
  int64_t rows = 0, columns = 0;
  if (layer > 0) mt_network_output_shape(&p->config, layer - 1, &p->batch, &rows, &columns);
  p->input_count = rows * columns;
  mt_network_output_shape(&p->config, layer, &p->batch, &rows, &columns);
  p->output_count = rows * columns;
  p->input = MT_ARENA_NEW(p->arena, float, p->input_count);
  p->output = MT_ARENA_NEW(p->arena, float, p->output_count);
  p->seed = MT_ARENA_NEW(p->arena, float, p->output_count);
  randomize(p->input, p->input_count, "input", 1.0);
  randomize(p->seed, p->output_count, "seed", 1.0);
}

static void close_probe(probe *p) {
  mt_network_destroy(p->network);
  mt_arena_destroy(p->arena);
}

static double value_at(probe *p) {
  double loss = 0;
  must(mt_network_forward(p->network, p->layer, p->layer + 1, &p->batch, p->input, p->output, false, -1, NULL,
                          &failure, NULL, &loss));
  for (int64_t i = 0; i < p->output_count; i++) loss += (double)p->seed[i] * (double)p->output[i];
  return loss;
}

/* Derivative along `direction` at `values` by differences; the values are put back. */
static double difference(probe *p, float *values, const float *direction, int64_t count) {
  float *before = malloc((size_t)count * sizeof *before);
  double ends[2];
  memcpy(before, values, (size_t)count * sizeof *before);
  for (int side = 0; side < 2; side++) {
    for (int64_t i = 0; i < count; i++)
      values[i] = (float)((double)before[i] + (side == 0 ? step : -step) * (double)direction[i]);
    ends[side] = value_at(p);
  }
  memcpy(values, before, (size_t)count * sizeof *before);
  free(before);
  return (ends[0] - ends[1]) / (2 * step);
}

static void compare(probe *p, const char *name, float *values, const float *gradient, int64_t count) {
  float *direction = malloc((size_t)count * sizeof *direction);
  double along = 0, norm = 0;
  randomize(direction, count, name, 1.0);
  /* Half along the gradient, half at random: neither a wrong sign nor a wrong component can hide. */
  for (int64_t i = 0; i < count; i++) norm += (double)gradient[i] * (double)gradient[i];
  for (int64_t i = 0; i < count; i++)
    direction[i] = (direction[i] / sqrtf((float)count) + gradient[i] / (float)sqrt(norm)) *
                   fminf(1.0F, sqrtf((float)count) / 8);
  for (int64_t i = 0; i < count; i++) along += (double)gradient[i] * (double)direction[i];
  const double measured = difference(p, values, direction, count);
  if (!(fabs(measured - along) <= tolerance * fabs(along)))
    fail_msg("layer %d, %s: derivative %g, difference %g", p->layer, name, along, measured);
  free(direction);
}

static void check_layer(bool other, int32_t layer) {
  probe p;
  open_probe(&p, other, layer);
  mt_saved *saved;
  double loss = 0;
  must(mt_network_forward(p.network, layer, layer + 1, &p.batch, p.input, p.output, true, layer, p.arena, &failure,
                          &saved, &loss));
  float *input_gradient = MT_ARENA_NEW(p.arena, float, p.input_count);
  must(mt_network_backward(p.network, layer, layer + 1, layer, &p.batch, saved, p.output_count > 0 ? p.seed : NULL,
                           layer > 0 ? input_gradient : NULL, &failure));
  if (layer > 0) compare(&p, "input", p.input, input_gradient, p.input_count);
  for (int32_t i = 0; i < mt_network_parameter_count(p.network); i++) {
    const mt_parameter *parameter = mt_network_parameter(p.network, i);
    /* A vision key's bias moves all scores of a row alike: its derivative is 0 and has no direction. */
    if (strstr(parameter->name, ".attention.k_proj.bias") != NULL) continue;
    compare(&p, parameter->name, parameter->value, parameter->gradient, parameter->count);
  }
  close_probe(&p);
}

static void both(int32_t layer) {
  check_layer(false, layer);
  check_layer(true, layer);
}

static void test_vision_embedding(void **state) { (void)state, both(0); }
static void test_vision_block(void **state) { (void)state, both(1); }
static void test_projector(void **state) { (void)state, both(3); }
static void test_token_embedding(void **state) { (void)state, both(4); }
static void test_decoder_block(void **state) { (void)state, both(5); }
static void test_head(void **state) { (void)state, both(7); }

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_vision_embedding), cmocka_unit_test(test_vision_block),
      cmocka_unit_test(test_projector),        cmocka_unit_test(test_token_embedding),
      cmocka_unit_test(test_decoder_block),    cmocka_unit_test(test_head),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
