/* Loss, logits and every gradient against PyTorch and transformers: tests/data/internvl, made by
 * tools/make_internvl_fixtures.py. Tolerance: 1e-4 of a tensor's norm; the reference's sums are in float64. */
#include "nn/network.h"
#include "tensor/safetensors.h"
#include "train/weights.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define TOLERANCE 1e-4

typedef struct fixture {
  mt_internvl config;
  mt_network *network;
  mt_safetensors *expected;
  mt_batch batch;
  int32_t layers;
  mt_arena *arena;
} fixture;

static motet_error failure;

static void must(motet_status status) {
  if (status != MOTET_OK) fail_msg("%s [%s: %d] %s", failure.text, failure.file, failure.line, failure.key);
}

static const mt_safetensor *expected(const fixture *f, const char *name) {
  const mt_safetensor *tensor = mt_safetensors_find(f->expected, name);
  assert_non_null(tensor);
  return tensor;
}

static float *floats_of(fixture *f, const char *name) {
  const mt_safetensor *tensor = expected(f, name);
  float *data = MT_ARENA_NEW(f->arena, float, tensor->count);
  must(mt_safetensor_floats(tensor, 0, tensor->count, &failure, data));
  return data;
}

static const int32_t *integers_of(fixture *f, const char *name) {
  const mt_safetensor *tensor = expected(f, name);
  assert_int_equal(tensor->bytes, 4 * tensor->count);
  int32_t *data = MT_ARENA_NEW(f->arena, int32_t, tensor->count);
  memcpy(data, tensor->data, tensor->bytes);
  return data;
}

/* In files InternLM2's wqkv has the heads of q of a group, its key and its value side by side, group after group;
 * the network has all of q, all of k, all of v. Puts `file` into the network's order. */
static void order_rows(const mt_internvl *config, const char *name, float *file, int64_t count) {
  if (strstr(name, ".wqkv.") == NULL) return;
  const int64_t dim = config->decoder.head_dim, groups = config->decoder.kv_heads, heads = config->decoder.heads;
  const int64_t block = dim * config->decoder.hidden, queries = heads / groups;
  float *ordered = malloc((size_t)count * sizeof *ordered), *next = file;
  for (int64_t g = 0; g < groups; g++) {
    for (int64_t q = 0; q < queries; q++, next += block)
      memcpy(ordered + (g * queries + q) * block, next, (size_t)block * sizeof *next);
    memcpy(ordered + (heads + g) * block, next, (size_t)block * sizeof *next);
    memcpy(ordered + (heads + groups + g) * block, next + block, (size_t)block * sizeof *next);
    next += 2 * block;
  }
  assert_int_equal(next - file, count);
  memcpy(file, ordered, (size_t)count * sizeof *file);
  free(ordered);
}

static void load_weights(const mt_internvl *config, mt_network *network, const char *directory) {
  mt_safetensors *file;
  must(mt_safetensors_open(directory, &failure, &file));
  /* The file has no other weights, but for those of the block that an earlier vision layer leaves out. */
  const int64_t surplus = mt_safetensors_count(file) - mt_network_parameter_count(network);
  assert_int_equal(surplus, strstr(directory, "/early") != NULL ? 18 : 0);
  for (int32_t i = 0; i < mt_network_parameter_count(network); i++) {
    mt_parameter *parameter = mt_network_parameter(network, i);
    const mt_safetensor *tensor;
    must(mt_safetensors_require(file, parameter->name, parameter->dims, parameter->shape, &failure, &tensor));
    must(mt_safetensor_floats(tensor, 0, tensor->count, &failure, parameter->value));
    order_rows(config, parameter->name, parameter->value, parameter->count);
  }
  mt_safetensors_close(file);
}

static fixture open_case(const char *name, bool trains) {
  fixture f = {.arena = mt_arena_create()};
  char directory[256];
  snprintf(directory, sizeof directory, "%s/internvl/%s", MOTET_TEST_DATA, name);
  must(mt_internvl_read(directory, &failure, &f.config));
  f.layers = mt_internvl_layer_count(&f.config);
  bool held[64], trainable[64];
  for (int i = 0; i < 64; i++) held[i] = true, trainable[i] = trains;
  must(mt_network_create(&f.config, held, trainable, &failure, &f.network));
  load_weights(&f.config, f.network, directory);
  char path[300];
  snprintf(path, sizeof path, "%s/expected.safetensors", directory);
  must(mt_safetensors_open(path, &failure, &f.expected));
  f.batch.tokens = (int32_t)expected(&f, "input_ids")->count;
  f.batch.token_ids = integers_of(&f, "input_ids");
  f.batch.segments = (int32_t)expected(&f, "segment_begin")->count - 1;
  f.batch.segment_begin = integers_of(&f, "segment_begin");
  f.batch.labels = integers_of(&f, "labels");
  f.batch.tiles = (int32_t)expected(&f, "pixels")->shape[0];
  f.batch.feature_rows = integers_of(&f, "feature_rows");
  f.batch.pixels = f.batch.tiles > 0 ? floats_of(&f, "pixels") : NULL;
  int32_t targets = 0;
  for (int32_t t = 0; t < f.batch.tokens; t++) targets += f.batch.labels[t] != -100;
  assert_true(targets > 0);
  f.batch.loss_weight = 1.0 / targets;
  return f;
}

static void close_case(fixture *f) {
  mt_network_destroy(f->network);
  mt_safetensors_close(f->expected);
  mt_arena_destroy(f->arena);
}

/* Distance over the norm of what is expected. A vision key's bias has a gradient of exactly 0 (it shifts all scores
 * of a row alike), of which rounding leaves 1e-8: norms below `floor` count as that. All others are above 0.001. */
static double distance(const float *found, const float *wanted, int64_t count) {
  double difference = 0, norm = 0;
  for (int64_t i = 0; i < count; i++) {
    const double d = (double)found[i] - (double)wanted[i];
    difference += d * d;
    norm += (double)wanted[i] * (double)wanted[i];
  }
  const double floor = 1e-3;
  return sqrt(difference) / (sqrt(norm) > floor ? sqrt(norm) : floor);
}

static void compare(fixture *f, const char *name, const float *found, int64_t count) {
  const mt_safetensor *tensor = expected(f, name);
  assert_int_equal(tensor->count, count);
  float *wanted = floats_of(f, name);
  order_rows(&f->config, name, wanted, count);
  const double off = distance(found, wanted, count);
  if (!(off < TOLERANCE)) fail_msg("%s is off by %g of its norm", name, off);
}

/* Logits by plain loops from the last block's output: the head never shows its own. */
static void compare_logits(fixture *f, const float *hidden) {
  const int32_t width = f->config.decoder.hidden, vocabulary = f->config.decoder.vocabulary;
  const float *norm = NULL, *matrix = NULL;
  for (int32_t i = 0; i < mt_network_parameter_count(f->network); i++) {
    const mt_parameter *parameter = mt_network_parameter(f->network, i);
    if (strcmp(parameter->name, "language_model.model.norm.weight") == 0) norm = parameter->value;
    const char *name = f->config.decoder.tied_embeddings ? "language_model.model.embed_tokens.weight"
                       : f->config.decoder.names == MT_INTERNVL_NAMES_INTERNLM2 ? "language_model.output.weight"
                                                                                : "language_model.lm_head.weight";
    if (strcmp(parameter->name, name) == 0) matrix = parameter->value;
  }
  assert_non_null(norm);
  assert_non_null(matrix);
  float *logits = MT_ARENA_NEW(f->arena, float, (int64_t)f->batch.tokens *vocabulary);
  for (int32_t t = 0; t < f->batch.tokens; t++) {
    double squares = 0;
    for (int32_t c = 0; c < width; c++) squares += pow((double)hidden[t * width + c], 2);
    const double scale = 1.0 / sqrt(squares / width + (double)f->config.decoder.norm_epsilon);
    for (int32_t v = 0; v < vocabulary; v++) {
      double sum = 0;
      for (int32_t c = 0; c < width; c++)
        sum += (double)hidden[t * width + c] * scale * (double)norm[c] * (double)matrix[v * width + c];
      logits[t * vocabulary + v] = (float)sum;
    }
  }
  compare(f, "logits", logits, (int64_t)f->batch.tokens * vocabulary);
}

/* Runs layers [begin, end) and gives what leaves them. */
static float *forward(fixture *f, int32_t begin, int32_t end, const float *input, mt_saved **saved, double *loss) {
  int64_t rows, columns;
  mt_network_output_shape(&f->config, end - 1, &f->batch, &rows, &columns);
  float *output = MT_ARENA_NEW(f->arena, float, rows *columns);
  must(mt_network_forward(f->network, begin, end, &f->batch, input, output, saved != NULL, begin, f->arena,
                          &failure, saved, loss));
  return output;
}

static void check_gradients(fixture *f) {
  int32_t compared = 0;
  for (int32_t i = 0; i < mt_network_parameter_count(f->network); i++) {
    const mt_parameter *parameter = mt_network_parameter(f->network, i);
    char name[128];
    snprintf(name, sizeof name, "gradient.%s", parameter->name);
    if (mt_safetensors_find(f->expected, name) == NULL) { /* took no part in this batch */
      for (int64_t e = 0; e < parameter->count; e++) assert_true(parameter->gradient[e] == 0.0F);
      continue;
    }
    compare(f, name, parameter->gradient, parameter->count);
    compared++;
  }
  int64_t wanted = 0;
  for (int64_t i = 0; i < mt_safetensors_count(f->expected); i++)
    wanted += strncmp(mt_safetensors_at(f->expected, i)->name, "gradient.", 9) == 0;
  assert_int_equal(compared, wanted);
  assert_true(compared > 20);
}

/* The whole model as four runs of layers, as a pipeline would have it, with what passes between them compared. */
static void run_in_parts(const char *name) {
  fixture f = open_case(name, true);
  const int32_t cuts[] = {0, f.config.vision.layers + 1, f.config.vision.layers + 2, f.layers - 1, f.layers};
  const char *const leaving[] = {"tower", "features", "hidden", NULL};
  mt_saved *saved[4] = {0};
  float *activation = NULL;
  double loss = 0;
  for (int part = f.batch.tiles > 0 ? 0 : 2; part < 4; part++) {
    activation = forward(&f, cuts[part], cuts[part + 1], activation, &saved[part], &loss);
    int64_t rows, columns;
    mt_network_output_shape(&f.config, cuts[part + 1] - 1, &f.batch, &rows, &columns);
    if (leaving[part] != NULL) compare(&f, leaving[part], activation, rows * columns);
    if (part == 2) compare_logits(&f, activation);
  }
  float wanted = *floats_of(&f, "loss");
  assert_true(fabs(loss - (double)wanted) < 1e-5 * (double)wanted);
  float *gradient = NULL;
  for (int part = 3; part >= (f.batch.tiles > 0 ? 0 : 2); part--) {
    float *entering = NULL;
    if (part > 0) {
      int64_t rows, columns;
      mt_network_output_shape(&f.config, cuts[part] - 1, &f.batch, &rows, &columns);
      entering = MT_ARENA_NEW(f.arena, float, rows *columns);
    }
    must(mt_network_backward(f.network, cuts[part], cuts[part + 1], cuts[part], &f.batch, saved[part], gradient,
                             entering, &failure));
    gradient = entering;
  }
  check_gradients(&f);
  close_case(&f);
}

static void run_whole(const char *name) {
  fixture f = open_case(name, true);
  mt_saved *saved;
  double loss = 0;
  for (int round = 0; round < 2; round++) { /* the second round must not see the first one's gradients */
    mt_network_zero_gradients(f.network);
    loss = 0;
    forward(&f, 0, f.layers, NULL, &saved, &loss);
    must(mt_network_backward(f.network, 0, f.layers, 0, &f.batch, saved, NULL, NULL, &failure));
  }
  const float wanted = *floats_of(&f, "loss");
  assert_true(fabs(loss - (double)wanted) < 1e-5 * (double)wanted);
  check_gradients(&f);
  close_case(&f);
}

/*
 * bfloat16 against the exact values, beside transformers with bfloat16 weights and activations: nothing may be more
 * than half as far off again as there, where the weights are rounded too. Rounding differs in place and luck, and
 * tensors of few elements have more of that: 0.004 (2^-8), a stored element's own rounding, is let pass.
 */
static void run_bfloat16(const char *name) {
  fixture f = open_case(name, true);
  char path[300];
  snprintf(path, sizeof path, "%s/internvl/%s/bfloat16.safetensors", MOTET_TEST_DATA, name);
  mt_safetensors *peer;
  must(mt_safetensors_open(path, &failure, &peer));
  must(mt_network_use(f.network, MT_ELEMENT_BFLOAT16, 2, &failure));
  mt_saved *saved;
  double loss = 0, own = 0, other = 0;
  forward(&f, 0, f.layers, NULL, &saved, &loss);
  must(mt_network_backward(f.network, 0, f.layers, 0, &f.batch, saved, NULL, NULL, &failure));
  const double wanted = (double)*floats_of(&f, "loss");
  float peer_loss;
  must(mt_safetensor_floats(mt_safetensors_find(peer, "loss"), 0, 1, &failure, &peer_loss));
  assert_true(fabs(loss - wanted) < 1.5 * fabs((double)peer_loss - wanted) + 0.004 * wanted);
  int32_t compared = 0;
  for (int32_t i = 0; i < mt_network_parameter_count(f.network); i++) {
    const mt_parameter *parameter = mt_network_parameter(f.network, i);
    char entry[128];
    snprintf(entry, sizeof entry, "gradient.%s", parameter->name);
    const mt_safetensor *tensor = mt_safetensors_find(peer, entry);
    if (tensor == NULL) continue;
    float peer_distance;
    must(mt_safetensor_floats(tensor, 0, 1, &failure, &peer_distance));
    const double off = distance(parameter->gradient, floats_of(&f, entry), parameter->count);
    if (!(off < 1.5 * (double)peer_distance + 0.004))
      fail_msg("%s in bfloat16 is off by %g of its norm, transformers by %g", entry, off, (double)peer_distance);
    own += off, other += (double)peer_distance;
    compared++;
  }
  assert_true(compared > 20);
  if (!(own < other)) fail_msg("gradients are off by %g on average, transformers' by %g", own, other);
  mt_safetensors_close(peer);
  close_case(&f);
}

static void test_bfloat16(void **state) {
  (void)state;
  run_bfloat16("grouped");
  run_bfloat16("tied");
  run_bfloat16("text");
}

static void test_grouped_queries_and_several_tiles(void **state) {
  (void)state;
  run_in_parts("grouped");
  run_whole("grouped");
}

static void test_original_form_is_the_same_model(void **state) {
  (void)state;
  run_in_parts("grouped_chat");
}

static void test_tied_embeddings_rms_norm_and_stretched_positions(void **state) {
  (void)state;
  run_in_parts("tied");
  run_whole("tied");
}

static void test_text_alone(void **state) {
  (void)state;
  run_in_parts("text");
  run_whole("text");
}

static void test_an_earlier_vision_layer(void **state) {
  (void)state;
  fixture f = open_case("early", true);
  assert_int_equal(f.config.vision.layers, 2); /* of three */
  close_case(&f);
  run_in_parts("early");
}

/* Norms over the heads of q and k, and heads wider than their share. */
static void test_qwen3(void **state) {
  (void)state;
  run_in_parts("qwen3");
  run_whole("qwen3");
}

/* The decoder of InternVL 2, stretched positions included. */
static void test_internlm2(void **state) {
  (void)state;
  run_in_parts("internlm2");
  run_whole("internlm2");
}

static const char *weights_file(char path[300], const char *directory) {
  snprintf(path, 300, "%s/model.safetensors", directory);
  return path;
}

/* What is read is what this file reads, and it is written again: the same names, shapes and bytes. */
static void test_internlm2_is_saved_as_it_was(void **state) {
  (void)state;
  fixture f = open_case("internlm2", true);
  float *wanted[64];
  assert_true(mt_network_parameter_count(f.network) < 64);
  for (int32_t i = 0; i < mt_network_parameter_count(f.network); i++) {
    const mt_parameter *parameter = mt_network_parameter(f.network, i);
    wanted[i] = MT_ARENA_NEW(f.arena, float, parameter->count);
    memcpy(wanted[i], parameter->value, (size_t)parameter->count * sizeof(float));
  }
  char directory[] = "/tmp/motet-golden-XXXXXX", path[300];
  assert_non_null(mkdtemp(directory));
  must(mt_weights_load(f.network, MOTET_TEST_DATA "/internvl/internlm2", &failure));
  for (int32_t i = 0; i < mt_network_parameter_count(f.network); i++) {
    const mt_parameter *parameter = mt_network_parameter(f.network, i);
    assert_memory_equal(parameter->value, wanted[i], (size_t)parameter->count * sizeof(float));
  }
  const bool trainable[64] = {true};
  const int32_t layer_rank[64] = {0};
  const mt_weights_owners owners = {&f.config, trainable, layer_rank, f.layers};
  must(mt_weights_save(f.network, &owners, 0, directory, &failure, NULL));
  mt_safetensors *saved, *original;
  must(mt_safetensors_open(weights_file(path, directory), &failure, &saved));
  must(mt_safetensors_open(weights_file(path, MOTET_TEST_DATA "/internvl/internlm2"), &failure, &original));
  assert_int_equal(mt_safetensors_count(saved), mt_safetensors_count(original));
  for (int64_t i = 0; i < mt_safetensors_count(saved); i++) {
    const mt_safetensor *one = mt_safetensors_at(saved, i), *other = mt_safetensors_at(original, i);
    assert_string_equal(one->name, other->name);
    assert_int_equal(one->bytes, other->bytes);
    assert_memory_equal(one->shape, other->shape, sizeof one->shape);
    assert_memory_equal(one->data, other->data, one->bytes);
  }
  mt_safetensors_close(saved);
  mt_safetensors_close(original);
  unlink(weights_file(path, directory));
  rmdir(directory);
  close_case(&f);
}

/* Backward down to a layer gives the same gradients there and touches nothing below. */
static void test_backward_stops_at_first_trainable(void **state) {
  (void)state;
  fixture f = open_case("grouped", true);
  const int32_t first = f.config.vision.layers + 3; /* the first decoder block */
  mt_saved *saved;
  double loss = 0;
  must(mt_network_forward(f.network, 0, f.layers, &f.batch, NULL, NULL, true, first, f.arena, &failure, &saved,
                          &loss));
  must(mt_network_backward(f.network, 0, f.layers, first, &f.batch, saved, NULL, NULL, &failure));
  for (int32_t i = 0; i < mt_network_parameter_count(f.network); i++) {
    const mt_parameter *parameter = mt_network_parameter(f.network, i);
    char name[128];
    snprintf(name, sizeof name, "gradient.%s", parameter->name);
    if (parameter->layer >= first)
      compare(&f, name, parameter->gradient, parameter->count);
    else
      for (int64_t e = 0; e < parameter->count; e++) assert_true(parameter->gradient[e] == 0.0F);
  }
  close_case(&f);
}

/* A frozen language model passes the gradient on: the vision tower's is the same. */
static void test_frozen_layers_pass_gradients(void **state) {
  (void)state;
  fixture f = open_case("grouped", true);
  bool held[64], trainable[64];
  for (int i = 0; i < 64; i++) held[i] = true, trainable[i] = i <= f.config.vision.layers;
  mt_network_destroy(f.network);
  must(mt_network_create(&f.config, held, trainable, &failure, &f.network));
  load_weights(&f.config, f.network, MOTET_TEST_DATA "/internvl/grouped");
  mt_saved *saved;
  double loss = 0;
  forward(&f, 0, f.layers, NULL, &saved, &loss);
  must(mt_network_backward(f.network, 0, f.layers, 0, &f.batch, saved, NULL, NULL, &failure));
  for (int32_t i = 0; i < mt_network_parameter_count(f.network); i++) {
    const mt_parameter *parameter = mt_network_parameter(f.network, i);
    char name[128];
    snprintf(name, sizeof name, "gradient.%s", parameter->name);
    if (parameter->layer <= f.config.vision.layers)
      compare(&f, name, parameter->gradient, parameter->count);
    else
      assert_null(parameter->gradient);
  }
  close_case(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_bfloat16),
      cmocka_unit_test(test_grouped_queries_and_several_tiles),
      cmocka_unit_test(test_original_form_is_the_same_model),
      cmocka_unit_test(test_tied_embeddings_rms_norm_and_stretched_positions),
      cmocka_unit_test(test_text_alone),
      cmocka_unit_test(test_an_earlier_vision_layer),
      cmocka_unit_test(test_qwen3),
      cmocka_unit_test(test_internlm2),
      cmocka_unit_test(test_internlm2_is_saved_as_it_was),
      cmocka_unit_test(test_backward_stops_at_first_trainable),
      cmocka_unit_test(test_frozen_layers_pass_gradients),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
