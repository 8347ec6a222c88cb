/*
 * Attention in parts: queries against some of the keys, results merged, gradients added up, for every table of
 * kernels. Whatever way the keys are divided, it must be what the kernel gives for all of them at once (its own
 * tests hold that against the definition).
 */
#include "base/random.h"
#include "tensor/backend.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { HEADS = 6, KV_HEADS = 2, DIM = 20, WIDE = HEADS * DIM, KV = 2 * KV_HEADS * DIM, SEGMENTS = 4, PARTS = 3 };

static const int32_t begin[SEGMENTS + 1] = {0, 1, 71, 71, 200};
enum { ROWS = 200 };

static float queries[ROWS * WIDE], keys[ROWS * KV], output_gradient[ROWS * WIDE];
static float part_keys[ROWS * KV], part_output[ROWS * WIDE], part_log_sum[HEADS * ROWS], part_gradient[ROWS * KV];

typedef struct attention_result {
  float output[ROWS * WIDE], log_sum[HEADS * ROWS], query_gradient[ROWS * WIDE], key_gradient[ROWS * KV];
} attention_result;

static mt_attention describe(const float *key, bool causal) {
  return (mt_attention){.query = queries,
                        .key = key,
                        .value = key + KV / 2,
                        .query_stride = WIDE,
                        .key_stride = KV,
                        .value_stride = KV,
                        .heads = HEADS,
                        .kv_heads = KV_HEADS,
                        .head_dim = DIM,
                        .segments = SEGMENTS,
                        .segment_begin = begin,
                        .causal = causal,
                        .scale = 0.25F};
}

static mt_attention_gradients gradients_of(attention_result *result, float *key) {
  return (mt_attention_gradients){.output = result->output,
                                  .output_gradient = output_gradient,
                                  .output_stride = WIDE,
                                  .output_gradient_stride = WIDE,
                                  .log_sum = result->log_sum,
                                  .query = result->query_gradient,
                                  .key = key,
                                  .value = key + KV / 2,
                                  .query_stride = WIDE,
                                  .key_stride = KV,
                                  .value_stride = KV};
}

/* The keys of one part, which has the rows with part_of[row] == part: their rows, bounds, and who sees how many. */
static int32_t take_part(const int32_t *part_of, int32_t part, bool causal, int32_t *rows, int32_t *bounds,
                         int32_t *visible) {
  int32_t count = 0;
  for (int32_t s = 0; s < SEGMENTS; s++) {
    bounds[s] = count;
    for (int32_t row = begin[s]; row < begin[s + 1]; row++)
      if (part_of[row] == part) {
        memcpy(part_keys + count * KV, keys + row * KV, KV * sizeof(float));
        rows[count++] = row;
      }
    for (int32_t row = begin[s]; row < begin[s + 1]; row++) {
      visible[row] = 0;
      for (int32_t k = bounds[s]; k < count; k++) visible[row] += !causal || rows[k] <= row;
    }
  }
  bounds[SEGMENTS] = count;
  return count;
}

/* All heads of all segments. */
static void attend(const mt_tensor_backend *backend, const mt_attention *attention, float *scratch, float *output,
                   float *log_sum) {
  for (int32_t s = 0; s < SEGMENTS; s++)
    for (int32_t h = 0; h < KV_HEADS; h++)
      backend->attention_forward(attention, s, h, scratch, output, WIDE, log_sum);
}

static void differentiate(const mt_tensor_backend *backend, const mt_attention *attention,
                          const mt_attention_gradients *gradients, float *scratch) {
  for (int32_t s = 0; s < SEGMENTS; s++)
    for (int32_t h = 0; h < KV_HEADS; h++) backend->attention_backward(attention, gradients, s, h, scratch);
}

static void in_parts(const mt_tensor_backend *backend, const int32_t *part_of, bool causal, float *scratch,
                     attention_result *result) {
  int32_t rows[ROWS], bounds[SEGMENTS + 1], visible[ROWS];
  memset(result, 0, sizeof *result);
  for (int32_t i = 0; i < HEADS * ROWS; i++) result->log_sum[i] = -INFINITY; /* attention over no key at all */
  for (int32_t part = 0; part < PARTS; part++) {
    take_part(part_of, part, causal, rows, bounds, visible);
    mt_attention attention = describe(part_keys, false);
    attention.key_begin = bounds;
    attention.visible = causal ? visible : NULL;
    attend(backend, &attention, scratch, part_output, part_log_sum);
    for (int32_t row = 0; row < ROWS; row++)
      if (visible[row] == 0) assert_true(part_log_sum[3 * ROWS + row] == -INFINITY && part_output[row * WIDE] == 0);
    backend->attention_merge(ROWS, HEADS, DIM, part_output, WIDE, part_log_sum, result->output, WIDE,
                             result->log_sum);
  }
  for (int32_t part = 0; part < PARTS; part++) {
    const int32_t count = take_part(part_of, part, causal, rows, bounds, visible);
    mt_attention attention = describe(part_keys, false);
    attention.key_begin = bounds;
    attention.visible = causal ? visible : NULL;
    memset(part_gradient, 0, sizeof part_gradient);
    mt_attention_gradients gradients = gradients_of(result, part_gradient);
    gradients.accumulate = true;
    differentiate(backend, &attention, &gradients, scratch);
    for (int32_t k = 0; k < count; k++)
      memcpy(result->key_gradient + rows[k] * KV, part_gradient + k * KV, KV * sizeof(float));
  }
}

static void close_to(const char *what, const mt_tensor_backend *backend, const float *found, const float *wanted,
                     int32_t count) {
  double most = 0, largest = 0;
  for (int32_t i = 0; i < count; i++) {
    const double off = fabs((double)found[i] - (double)wanted[i]);
    most = off > most || isnan(off) ? off : most;
    largest = fmax(largest, fabs((double)wanted[i]));
  }
  if (!(most <= 2e-6 * largest)) fail_msg("%s of %s is off by %g of %g", what, backend->name, most, largest);
}

static void test_parts_add_up(void **state) {
  (void)state;
  static attention_result whole, parts;
  const mt_tensor_backend *backends[8];
  const int backend_count = mt_tensor_backend_list(backends, 8);
  mt_random random = mt_random_stream(7, "parts");
  for (int32_t i = 0; i < ROWS * WIDE; i++) queries[i] = (float)mt_random_normal(&random);
  for (int32_t i = 0; i < ROWS * WIDE; i++) output_gradient[i] = (float)mt_random_normal(&random);
  for (int32_t i = 0; i < ROWS * KV; i++) keys[i] = (float)mt_random_normal(&random);
  for (int b = 0; b < backend_count; b++)
    for (int form = 0; form < 8; form++) {
      const bool causal = form % 2 == 0;
      if (backends[b]->element != MT_ELEMENT_FLOAT32) continue; /* parts are exchanged and merged in float32 */
      int32_t part_of[ROWS];
      /* at random; in stretches; everything in one part; the later tokens first */
      for (int32_t row = 0; row < ROWS; row++)
        part_of[row] = form / 2 == 0   ? (int32_t)mt_random_below(&random, PARTS)
                       : form / 2 == 1 ? row / 32 % PARTS
                       : form / 2 == 2 ? 1
                                       : (ROWS - row) / 70;
      float *scratch = malloc(backends[b]->attention_scratch(DIM, 129) * sizeof *scratch);
      const mt_attention attention = describe(keys, causal);
      const mt_attention_gradients gradients = gradients_of(&whole, whole.key_gradient);
      attend(backends[b], &attention, scratch, whole.output, whole.log_sum);
      differentiate(backends[b], &attention, &gradients, scratch);
      in_parts(backends[b], part_of, causal, scratch, &parts);
      close_to("output", backends[b], parts.output, whole.output, ROWS * WIDE);
      close_to("log of the sum", backends[b], parts.log_sum, whole.log_sum, HEADS * ROWS);
      close_to("the queries' gradient", backends[b], parts.query_gradient, whole.query_gradient, ROWS * WIDE);
      close_to("the keys' gradient", backends[b], parts.key_gradient, whole.key_gradient, ROWS * KV);
      free(scratch);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_parts_add_up)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
