/* Greedy generation with kept keys and values against `generate` of transformers (tests/data/internvl, made by
 * tools/make_generate_fixtures.py) and against running the whole sequence again for each token. */
#include "nn/generation.h"
#include "tensor/safetensors.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct fixture {
  mt_internvl config;
  mt_network *network;
  mt_safetensors *file;
  mt_arena *arena;
  const int32_t *ids, *rows, *generated;
  int32_t prompt, count; /* tokens */
  float *features, *logits;
} fixture;

static motet_error failure;

static void must(motet_status status) {
  if (status != MOTET_OK) fail_msg("%s [%s: %d] %s", failure.text, failure.file, failure.line, failure.key);
}

static const int32_t *integers_of(fixture *f, const char *name, int32_t *count) {
  const mt_safetensor *tensor = mt_safetensors_find(f->file, name);
  assert_non_null(tensor);
  int32_t *data = MT_ARENA_NEW(f->arena, int32_t, tensor->count);
  memcpy(data, tensor->data, tensor->bytes);
  *count = (int32_t)tensor->count;
  return data;
}

static fixture open_case(const char *name) {
  fixture f = {.arena = mt_arena_create()};
  char path[300];
  snprintf(path, sizeof path, "%s/internvl/%s", MOTET_TEST_DATA, name);
  must(mt_internvl_read(path, &failure, &f.config));
  bool held[64], trainable[64] = {0};
  for (int i = 0; i < 64; i++) held[i] = true;
  must(mt_network_create(&f.config, held, trainable, &failure, &f.network));
  mt_safetensors *weights;
  must(mt_safetensors_open(path, &failure, &weights));
  for (int32_t i = 0; i < mt_network_parameter_count(f.network); i++) {
    mt_parameter *parameter = mt_network_parameter(f.network, i);
    const mt_safetensor *tensor;
    must(mt_safetensors_require(weights, parameter->name, parameter->dims, parameter->shape, &failure, &tensor));
    must(mt_safetensor_floats(tensor, 0, tensor->count, &failure, parameter->value));
  }
  mt_safetensors_close(weights);
  snprintf(path, sizeof path, "%s/internvl/%s/generated.safetensors", MOTET_TEST_DATA, name);
  must(mt_safetensors_open(path, &failure, &f.file));
  int32_t features;
  f.ids = integers_of(&f, "input_ids", &f.prompt);
  f.rows = integers_of(&f, "feature_rows", &features);
  f.generated = integers_of(&f, "generated", &f.count);
  f.features = MT_ARENA_NEW(f.arena, float, features *f.config.decoder.hidden);
  f.logits = MT_ARENA_NEW(f.arena, float, f.config.decoder.vocabulary);
  return f;
}

static void close_case(fixture *f) {
  mt_network_destroy(f->network);
  mt_safetensors_close(f->file);
  mt_arena_destroy(f->arena);
}

static void encode(fixture *f) {
  const mt_safetensor *tensor = mt_safetensors_find(f->file, "pixels");
  float *pixels = MT_ARENA_NEW(f->arena, float, tensor->count);
  must(mt_safetensor_floats(tensor, 0, tensor->count, &failure, pixels));
  const int32_t bounds[2] = {0, f->prompt};
  const mt_batch batch = {
      .tokens = f->prompt, .segments = 1, .segment_begin = bounds, .tiles = 1, .pixels = pixels};
  must(mt_network_forward(f->network, 0, f->config.vision.layers + 2, &batch, NULL, f->features, false, -1, NULL,
                          &failure, NULL, NULL));
}

static motet_status extend(fixture *f, mt_generation *generation, const int32_t *ids, int32_t count, bool image) {
  const int32_t bounds[2] = {0, count};
  const mt_batch batch = {.tokens = count,
                          .segments = 1,
                          .segment_begin = bounds,
                          .tiles = image,
                          .token_ids = ids,
                          .feature_rows = f->rows};
  return mt_generation_extend(generation, &batch, image ? f->features : NULL, &failure, f->logits);
}

static int32_t likeliest(const fixture *f) {
  int32_t best = 0;
  for (int32_t v = 1; v < f->config.decoder.vocabulary; v++)
    if (f->logits[v] > f->logits[best]) best = v;
  return best;
}

static void check_case(const char *name) {
  fixture f = open_case(name);
  encode(&f);
  mt_generation *generation;
  must(mt_generation_create(f.network, f.prompt + f.count, &failure, &generation));
  must(extend(&f, generation, f.ids, f.prompt, true));
  for (int32_t i = 0; i < f.count; i++) {
    const int32_t token = likeliest(&f);
    assert_int_equal(token, f.generated[i]);
    must(extend(&f, generation, &token, 1, false));
  }
  mt_generation_destroy(generation);
  close_case(&f);
}

static void test_tokens_of_transformers(void **state) {
  (void)state;
  check_case("grouped");
}

/* Positions are stretched from the 33rd token on, while earlier keys keep their turn. */
static void test_tokens_of_transformers_beyond_the_trained_length(void **state) {
  (void)state;
  check_case("tied");
}

/* However a text is cut into pieces, its last token's logits are the same to rounding. */
static void test_pieces_make_the_whole(void **state) {
  (void)state;
  fixture f = open_case("grouped");
  const int32_t count = f.count, vocabulary = f.config.decoder.vocabulary;
  float whole[64];
  mt_generation *generation;
  must(mt_generation_create(f.network, count, &failure, &generation));
  must(extend(&f, generation, f.generated, count, false));
  memcpy(whole, f.logits, (size_t)vocabulary * sizeof *whole);
  mt_generation_destroy(generation);
  must(mt_generation_create(f.network, count, &failure, &generation));
  for (int32_t begin = 0, piece = 1; begin < count; begin += piece, piece = piece % 4 + 1) {
    if (piece > count - begin) piece = count - begin;
    must(extend(&f, generation, f.generated + begin, piece, false));
  }
  for (int32_t v = 0; v < vocabulary; v++) assert_true(fabsf(f.logits[v] - whole[v]) < 1e-4F);
  assert_int_equal(extend(&f, generation, f.generated, 1, false), MOTET_ERROR_LIMIT); /* it is full */
  mt_generation_destroy(generation);
  assert_int_equal(mt_generation_create(f.network, 0, &failure, &generation), MOTET_ERROR_ARGUMENT);
  close_case(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_tokens_of_transformers),
      cmocka_unit_test(test_tokens_of_transformers_beyond_the_trained_length),
      cmocka_unit_test(test_pieces_make_the_whole),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
