/* What a network holds, what it keeps, how it starts, and what it refuses. */
#include "nn_case.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static motet_error failure;

static void must(motet_status status) {
  if (status != MOTET_OK) fail_msg("%s", failure.text);
}

static mt_network *make(const mt_internvl *config, int32_t begin, int32_t end, bool trains) {
  bool held[NN_CASE_LAYERS], trainable[NN_CASE_LAYERS];
  for (int l = 0; l < NN_CASE_LAYERS; l++) held[l] = l >= begin && l < end, trainable[l] = trains;
  mt_network *network;
  must(mt_network_create(config, held, trainable, &failure, &network));
  return network;
}

static mt_parameter *named(mt_network *network, const char *name) {
  for (int32_t i = 0; i < mt_network_parameter_count(network); i++)
    if (strcmp(mt_network_parameter(network, i)->name, name) == 0) return mt_network_parameter(network, i);
  return NULL;
}

/* A rank that holds some layers starts with the values that one with all of them has. */
static void test_start_does_not_depend_on_what_is_held(void **state) {
  (void)state;
  for (int other = 0; other < 2; other++) {
    const mt_internvl config = nn_case_config(other);
    mt_network *all = make(&config, 0, NN_CASE_LAYERS, true);
    mt_network_initialize(all, 42);
    int32_t seen = 0;
    for (int32_t cut = 0; cut < NN_CASE_LAYERS; cut += 4) {
      mt_network *part = make(&config, cut, cut + 4, true);
      mt_network_initialize(part, 42);
      for (int32_t i = 0; i < mt_network_parameter_count(part); i++, seen++) {
        const mt_parameter *mine = mt_network_parameter(part, i), *whole = named(all, mine->name);
        assert_non_null(whole);
        assert_memory_equal(mine->value, whole->value, (size_t)mine->count * sizeof(float));
        assert_int_equal(mine->layer, whole->layer);
      }
      mt_network_destroy(part);
    }
    assert_int_equal(seen, mt_network_parameter_count(all));
    mt_network_destroy(all);
  }
}

static void test_start_is_the_published_one(void **state) {
  (void)state;
  const mt_internvl config = nn_case_config(true);
  mt_network *network = make(&config, 0, NN_CASE_LAYERS, true);
  mt_network_initialize(network, 1);
  const mt_parameter *matrix = named(network, "language_model.model.layers.0.mlp.gate_proj.weight");
  double squares = 0;
  for (int64_t e = 0; e < matrix->count; e++) squares += pow((double)matrix->value[e], 2);
  assert_true(fabs(sqrt(squares / (double)matrix->count) - 0.02) < 0.002);
  assert_true(matrix->decay && matrix->trainable && matrix->gradient != NULL);
  assert_string_equal(matrix->alias, "model.language_model.layers.0.mlp.gate_proj.weight");
  const mt_parameter *norm = named(network, "vision_tower.encoder.layer.1.layernorm_after.weight");
  const mt_parameter *scale = named(network, "vision_tower.encoder.layer.1.lambda_2");
  assert_true(norm->value[3] == 1.0F && !norm->decay);
  assert_true(scale->value[3] == 0.1F && !scale->decay);
  assert_string_equal(named(network, "multi_modal_projector.linear_1.bias")->alias,
                      "model.multi_modal_projector.linear_1.bias");
  mt_network_destroy(network);
}

static void test_tied_head(void **state) {
  (void)state;
  static const char embedding[] = "language_model.model.embed_tokens.weight";
  const mt_internvl config = nn_case_config(true);
  mt_network *both = make(&config, 4, NN_CASE_LAYERS, true), *last = make(&config, 7, 8, true);
  assert_null(named(both, "language_model.lm_head.weight"));
  assert_int_equal(named(both, embedding)->layer, 4);
  assert_int_equal(mt_network_parameter_count(last), 2); /* the norm and a copy */
  assert_int_equal(named(last, embedding)->layer, 7);
  mt_network_destroy(both);
  mt_network_destroy(last);
  bool held[NN_CASE_LAYERS] = {0}, trainable[NN_CASE_LAYERS] = {0};
  held[4] = held[7] = trainable[4] = true;
  mt_network *network;
  assert_int_equal(mt_network_create(&config, held, trainable, &failure, &network), MOTET_ERROR_UNSUPPORTED);
}

/* Bytes counted by hand for a decoder block: every array rounded up to 64 bytes, one header of 64. */
static void test_saved_bytes_are_exact(void **state) {
  (void)state;
  nn_case_batch data;
  const mt_batch batch = nn_case_fill(&data);
  const mt_internvl config = nn_case_config(false);
  const int64_t arrays[] = {90 * 40, 90 * (40 + 2 * 20), 90 * 40, 90 * 4, 90 * 40, 90 * 88};
  int64_t bytes = 64;
  for (int i = 0; i < 6; i++) bytes += (arrays[i] * 4 + 63) / 64 * 64;
  assert_int_equal(mt_network_saved_bytes(&config, MT_ELEMENT_FLOAT32, NULL, 5, 6, 5, &batch), bytes);
  assert_int_equal(mt_network_saved_bytes(&config, MT_ELEMENT_FLOAT32, NULL, 5, 6, -1, &batch), 0);
  /* A fresh arena holds its first small block for the header and one block of exactly the activations. */
  mt_network *network = make(&config, 0, NN_CASE_LAYERS, true);
  nn_case_weights(network);
  for (int first = 0; first < NN_CASE_LAYERS; first += 3) {
    mt_arena *arena = mt_arena_create();
    mt_arena_array(arena, 1, 1);
    const size_t empty = mt_arena_bytes(arena);
    mt_saved *saved;
    double loss = 0;
    must(mt_network_forward(network, 0, NN_CASE_LAYERS, &batch, NULL, NULL, true, first, arena, &failure, &saved,
                            &loss));
    const int64_t forecast =
        mt_network_saved_bytes(&config, MT_ELEMENT_FLOAT32, NULL, 0, NN_CASE_LAYERS, first, &batch);
    const int64_t header = 128; /* three numbers and a pointer a layer */
    if (forecast > 1 << 16) assert_int_equal(mt_arena_bytes(arena) - empty, forecast - header);
    mt_arena_destroy(arena);
  }
  mt_network_destroy(network);
}

/* One step's gradients, with the layers run as two stages cut before @p cut; 0: as one. Returns the loss. */
static double step_cut_at(const mt_internvl *config, const mt_batch *batch, int32_t cut, mt_network **network) {
  *network = make(config, 0, NN_CASE_LAYERS, true);
  nn_case_weights(*network);
  mt_arena *arena = mt_arena_create();
  mt_saved *first = NULL, *second;
  float *between = NULL, *gradient = NULL;
  double loss = 0;
  if (cut > 0) {
    int64_t rows, columns;
    mt_network_output_shape(config, cut - 1, batch, &rows, &columns);
    between = MT_ARENA_NEW(arena, float, rows *columns);
    gradient = MT_ARENA_NEW(arena, float, rows *columns);
    must(mt_network_forward(*network, 0, cut, batch, NULL, between, true, 0, arena, &failure, &first, &loss));
  }
  must(mt_network_forward(*network, cut, NN_CASE_LAYERS, batch, between, NULL, true, cut, arena, &failure, &second,
                          &loss));
  must(mt_network_backward(*network, cut, NN_CASE_LAYERS, cut, batch, second, NULL, gradient, &failure));
  if (cut > 0) must(mt_network_backward(*network, 0, cut, 0, batch, first, gradient, NULL, &failure));
  mt_arena_destroy(arena);
  return loss;
}

/* Cutting the chain into stages, or keeping nothing, changes no bit; nor does running again. */
static void test_runs_are_equal_to_the_bit(void **state) {
  (void)state;
  nn_case_batch data;
  const mt_batch batch = nn_case_fill(&data);
  for (int other = 0; other < 2; other++) {
    const mt_internvl config = nn_case_config(other);
    mt_network *whole;
    const double loss = step_cut_at(&config, &batch, 0, &whole);
    assert_true(isfinite(loss) && loss > 1);
    double again = 0;
    must(mt_network_forward(whole, 0, NN_CASE_LAYERS, &batch, NULL, NULL, false, -1, NULL, &failure, NULL, &again));
    assert_true(again == loss);
    for (int32_t cut = 0; cut < NN_CASE_LAYERS; cut++) {
      mt_network *parts;
      assert_true(step_cut_at(&config, &batch, cut, &parts) == loss);
      for (int32_t i = 0; i < mt_network_parameter_count(whole); i++) {
        const mt_parameter *a = mt_network_parameter(whole, i), *b = mt_network_parameter(parts, i);
        assert_memory_equal(a->gradient, b->gradient, (size_t)a->count * sizeof(float));
      }
      mt_network_destroy(parts);
    }
    mt_network_destroy(whole);
  }
}

/* A batch of text runs through a stage that holds the image modules too. */
static void test_text_steps_over_the_image_modules(void **state) {
  (void)state;
  nn_case_batch data;
  mt_batch batch = nn_case_fill(&data);
  batch.tiles = 0;
  batch.pixels = NULL;
  batch.feature_rows = NULL;
  const mt_internvl config = nn_case_config(false);
  mt_network *network = make(&config, 0, NN_CASE_LAYERS, true);
  nn_case_weights(network);
  mt_arena *arena = mt_arena_create();
  mt_saved *saved;
  double whole = 0, text = 0;
  must(
      mt_network_forward(network, 0, NN_CASE_LAYERS, &batch, NULL, NULL, true, 0, arena, &failure, &saved, &whole));
  must(mt_network_backward(network, 0, NN_CASE_LAYERS, 0, &batch, saved, NULL, NULL, &failure));
  assert_int_equal(mt_network_saved_bytes(&config, MT_ELEMENT_FLOAT32, NULL, 0, 4, 0, &batch),
                   64 + 64); /* no activation */
  must(mt_network_forward(network, 4, NN_CASE_LAYERS, &batch, NULL, NULL, false, -1, NULL, &failure, NULL, &text));
  assert_true(whole == text);
  for (int32_t i = 0; i < mt_network_parameter_count(network); i++) {
    const mt_parameter *parameter = mt_network_parameter(network, i);
    const bool moved = mt_network_gradient_square_sum(network, i) > 0;
    assert_int_equal(moved, parameter->layer >= 4);
  }
  mt_arena_destroy(arena);
  mt_network_destroy(network);
}

static motet_status run(mt_network *network, const mt_batch *batch) {
  double loss = 0;
  return mt_network_forward(network, 0, NN_CASE_LAYERS, batch, NULL, NULL, false, -1, NULL, &failure, NULL, &loss);
}

static void test_wrong_batches_are_refused(void **state) {
  (void)state;
  nn_case_batch data;
  const mt_batch good = nn_case_fill(&data);
  const mt_internvl config = nn_case_config(false);
  mt_network *network = make(&config, 0, NN_CASE_LAYERS, false);
  nn_case_weights(network);
  must(run(network, &good));
  mt_batch bad = good;
  bad.pixels = NULL;
  assert_int_equal(run(network, &bad), MOTET_ERROR_ARGUMENT);
  assert_non_null(strstr(failure.text, "pixels"));
  struct {
    int32_t *place, value;
    const char *says;
  } cases[] = {{&data.ids[20], 75, "token 20 has id 75"},
               {&data.ids[20], -1, "token 20 has id -1"},
               {&data.labels[20], 75, "label 75"},
               {&data.labels[20], -1, "label -1"},
               {&data.rows[1], 90, "row 90"},
               {&data.rows[1], data.rows[0], "taken already"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const int32_t before = *cases[i].place;
    *cases[i].place = cases[i].value;
    assert_int_equal(run(network, &good), MOTET_ERROR_ARGUMENT);
    if (strstr(failure.text, cases[i].says) == NULL) fail_msg("%s: %s", cases[i].says, failure.text);
    *cases[i].place = before;
  }
  must(run(network, &good));
  double loss = 0;
  assert_int_equal(mt_network_forward(network, 5, 6, &good, NULL, NULL, false, -1, NULL, &failure, NULL, &loss),
                   MOTET_ERROR_ARGUMENT);
  assert_int_equal(mt_network_backward(network, 0, 8, 0, &good, NULL, NULL, NULL, &failure), MOTET_ERROR_ARGUMENT);
  assert_int_equal(mt_network_forward(network, 0, 2, &good, NULL, NULL, false, -1, NULL, &failure, NULL, &loss),
                   MOTET_ERROR_ARGUMENT);
  assert_int_equal(mt_network_forward(network, 0, 9, &good, NULL, NULL, false, -1, NULL, &failure, NULL, &loss),
                   MOTET_ERROR_ARGUMENT);
  bad = good;
  const int32_t backwards[4] = {0, 69, 68, NN_CASE_TOKENS}, shorter[4] = {0, 68, 69, NN_CASE_TOKENS - 1};
  bad.segment_begin = backwards;
  assert_int_equal(run(network, &bad), MOTET_ERROR_ARGUMENT);
  bad.segment_begin = shorter;
  assert_int_equal(run(network, &bad), MOTET_ERROR_ARGUMENT);
  bad.segment_begin = good.segment_begin;
  bad.parts = 3, bad.part_begin = shorter;
  assert_int_equal(run(network, &bad), MOTET_ERROR_ARGUMENT);
  bad = good;
  bad.tiles = INT32_MAX;
  assert_int_equal(run(network, &bad), MOTET_ERROR_LIMIT);
  mt_network_destroy(network);
  mt_network *part = make(&config, 4, 8, false);
  assert_int_equal(run(part, &good), MOTET_ERROR_ARGUMENT);
  mt_network_destroy(part);
}

/* Some steps on one batch: the loss of a model of this size falls well below its start. */
static void test_training_lowers_the_loss(void **state) {
  (void)state;
  nn_case_batch data;
  const mt_batch batch = nn_case_fill(&data);
  const mt_internvl config = nn_case_config(false);
  mt_network *network = make(&config, 0, NN_CASE_LAYERS, true);
  mt_network_initialize(network, 1);
  mt_arena *arena = mt_arena_create();
  const mt_adamw options = {
      .learning_rate = 3e-3, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1};
  double first = 0, loss = 0;
  for (int step = 1; step <= 40; step++) {
    mt_saved *saved;
    loss = 0;
    mt_arena_reset(arena);
    mt_network_zero_gradients(network);
    must(mt_network_forward(network, 0, NN_CASE_LAYERS, &batch, NULL, NULL, true, 0, arena, &failure, &saved,
                            &loss));
    must(mt_network_backward(network, 0, NN_CASE_LAYERS, 0, &batch, saved, NULL, NULL, &failure));
    must(mt_network_adamw(network, &options, step, 1.0, &failure));
    if (step == 1) first = loss;
  }
  assert_true(fabs(first - log(75.0)) < 0.1); /* 60 targets, each as good as drawn at random */
  assert_true(loss < 0.3 * first);
  mt_arena_destroy(arena);
  mt_network_destroy(network);
}

/* Without gradients a step only decays: matrices by rate times decay, and nothing else. */
static void test_decay_takes_matrices_alone(void **state) {
  (void)state;
  const mt_internvl config = nn_case_config(false);
  mt_network *network = make(&config, 0, NN_CASE_LAYERS, true);
  nn_case_weights(network);
  const mt_adamw options = {
      .learning_rate = 0.1, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.5};
  for (int32_t i = 0; i < mt_network_parameter_count(network); i++) {
    const mt_parameter *parameter = mt_network_parameter(network, i);
    parameter->value[0] = 2.0F;
    const bool matrix = strstr(parameter->name, "weight") != NULL && parameter->dims > 1;
    assert_int_equal(parameter->decay, matrix);
  }
  must(mt_network_adamw(network, &options, 1, 1.0, &failure));
  for (int32_t i = 0; i < mt_network_parameter_count(network); i++) {
    const mt_parameter *parameter = mt_network_parameter(network, i);
    assert_true(fabs((double)parameter->value[0] - (parameter->decay ? 1.9 : 2.0)) < 1e-6);
    float *first, *second;
    mt_network_moments(network, i, &first, &second);
    assert_true(first != NULL && second != NULL && first[0] == 0.0F && second[0] == 0.0F);
  }
  assert_int_equal(mt_network_adamw(network, &options, 0, 1.0, &failure), MOTET_ERROR_ARGUMENT);
  mt_network_destroy(network);
}

/* More targets than the head computes at once: the same as in short batches one after another. */
static void test_head_in_chunks(void **state) {
  (void)state;
  enum { LONG = 1300, SHORT = 130, WIDTH = 40 };
  const mt_internvl config = nn_case_config(false);
  static float input[LONG * WIDTH], whole[LONG * WIDTH], part[LONG * WIDTH];
  static int32_t labels[LONG];
  mt_random random = mt_random_stream(1, "long");
  for (int i = 0; i < LONG * WIDTH; i++) input[i] = (float)mt_random_normal(&random);
  for (int t = 0; t < LONG; t++) labels[t] = t % 7 == 3 ? -100 : (int32_t)mt_random_below(&random, 75);
  mt_network *networks[2];
  double losses[2] = {0, 0};
  mt_arena *arena = mt_arena_create();
  for (int cut = 0; cut < 2; cut++) {
    const int32_t length = cut == 0 ? LONG : SHORT;
    networks[cut] = make(&config, 7, 8, true);
    nn_case_weights(networks[cut]);
    for (int32_t begin = 0; begin < LONG; begin += length) {
      const int32_t segment[2] = {0, length};
      const mt_batch batch = {
          .tokens = length, .segments = 1, .segment_begin = segment, .labels = labels + begin, .loss_weight = 0.01};
      mt_saved *saved;
      must(mt_network_forward(networks[cut], 7, 8, &batch, input + begin * WIDTH, NULL, true, 7, arena, &failure,
                              &saved, &losses[cut]));
      must(mt_network_backward(networks[cut], 7, 8, 7, &batch, saved, NULL,
                               (cut == 0 ? whole : part) + begin * WIDTH, &failure));
    }
  }
  assert_true(fabs(losses[0] / losses[1] - 1) < 1e-6);
  /* Told apart, with parts of which one has no target and one no token: each is what its rows alone have. */
  const int32_t all[2] = {0, LONG}, parts[6] = {0, 3, 4, 4, 1001, LONG};
  double told[5] = {0}, alone[5] = {0}, sum = 0;
  for (int p = -1; p < 5; p++) {
    const int32_t begin = p < 0 ? 0 : parts[p], bounds[2] = {0, p < 0 ? LONG : parts[p + 1] - begin};
    mt_batch batch = {
        .tokens = bounds[1], .segments = 1, .segment_begin = bounds, .labels = labels + begin, .loss_weight = 0.01};
    if (p < 0) batch.segment_begin = all, batch.parts = 5, batch.part_begin = parts;
    must(mt_network_forward(networks[0], 7, 8, &batch, input + begin * WIDTH, NULL, false, -1, arena, &failure,
                            NULL, p < 0 ? told : &alone[p]));
    if (p >= 0 && !(fabs(told[p] - alone[p]) <= 1e-6 * alone[p])) fail_msg("part %d: %g, %g", p, told[p], alone[p]);
    if (p >= 0) sum += told[p];
  }
  assert_true(told[1] == 0 && told[2] == 0 && fabs(sum / losses[0] - 1) < 1e-6);
  for (int i = 0; i < LONG * WIDTH; i++) assert_true(fabsf(whole[i] - part[i]) <= 1e-6F * (1 + fabsf(part[i])));
  for (int32_t i = 0; i < mt_network_parameter_count(networks[0]); i++) {
    const mt_parameter *a = mt_network_parameter(networks[0], i), *b = mt_network_parameter(networks[1], i);
    double off = 0, norm = 0;
    for (int64_t e = 0; e < a->count; e++) {
      off += pow((double)a->gradient[e] - (double)b->gradient[e], 2);
      norm += pow((double)b->gradient[e], 2);
    }
    assert_true(norm > 0 && sqrt(off / norm) < 1e-5);
  }
  mt_arena_destroy(arena);
  mt_network_destroy(networks[0]);
  mt_network_destroy(networks[1]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_start_does_not_depend_on_what_is_held),
      cmocka_unit_test(test_start_is_the_published_one),
      cmocka_unit_test(test_tied_head),
      cmocka_unit_test(test_saved_bytes_are_exact),
      cmocka_unit_test(test_runs_are_equal_to_the_bit),
      cmocka_unit_test(test_text_steps_over_the_image_modules),
      cmocka_unit_test(test_wrong_batches_are_refused),
      cmocka_unit_test(test_training_lowers_the_loss),
      cmocka_unit_test(test_decay_takes_matrices_alone),
      cmocka_unit_test(test_head_in_chunks),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
