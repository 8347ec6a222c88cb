/* Exact sums of gradients against whole-number arithmetic: every addend cut to multiples of 2^-58, added as 128-bit
 * integers, and rounded once. */
#include "nn_case.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { BATCHES = 5 };

__extension__ typedef __int128 whole_number;

static mt_network *make(const mt_internvl *config, int64_t addends) {
  motet_error error;
  bool all[NN_CASE_LAYERS];
  mt_network *network;
  for (int i = 0; i < NN_CASE_LAYERS; i++) all[i] = true;
  if (mt_network_create(config, all, all, &error, &network) != MOTET_OK) fail_msg("%s", error.text);
  nn_case_weights(network);
  if (addends > 0 && mt_network_sum_exactly(network, addends, &error) != MOTET_OK) fail_msg("%s", error.text);
  return network;
}

/* Adds the gradients of the batch with its loss weighted by 3^number and every other sign. */
static void add_batch(mt_network *network, const mt_batch *plain, int number) {
  motet_error error;
  mt_batch batch = *plain;
  batch.loss_weight *= pow(-3, number);
  mt_arena *arena = mt_arena_create();
  mt_saved *saved;
  double loss = 0;
  if (mt_network_forward(network, 0, NN_CASE_LAYERS, &batch, NULL, NULL, true, 0, arena, &error, &saved, &loss) !=
          MOTET_OK ||
      mt_network_backward(network, 0, NN_CASE_LAYERS, 0, &batch, saved, NULL, NULL, &error) != MOTET_OK)
    fail_msg("%s", error.text);
  mt_arena_destroy(arena);
}

/* The nearest multiple of 2^-58, by its number; ties to even like the processor. */
static whole_number whole(float value) {
  double scaled = ldexp((double)value, 58); /* exact: only the exponent changes */
  return fabs(scaled) >= 0x1p60 ? (whole_number)ldexp((double)value, 40) * (1 << 18) : (whole_number)llrint(scaled);
}

static float rounded(whole_number sum) {
  long double value = (long double)(int64_t)(sum >> 32) * 0x1p32L + (long double)(uint32_t)sum;
  return (float)(double)(value * 0x1p-58L);
}

static void test_sums_are_exact_in_any_order(void **state) {
  (void)state;
  for (int tied = 0; tied < 2; tied++) {
    static nn_case_batch data;
    const mt_internvl config = nn_case_config(tied != 0);
    const mt_batch batch = nn_case_fill(&data);
    mt_network *forward = make(&config, BATCHES), *backward = make(&config, BATCHES), *single = make(&config, 0);
    for (int b = 0; b < BATCHES; b++) add_batch(forward, &batch, b);
    for (int b = BATCHES; b-- > 0;) add_batch(backward, &batch, b);
    mt_network_round_sums(forward);
    mt_network_round_sums(backward);
    int32_t count = mt_network_parameter_count(single);
    whole_number **sums = calloc((size_t)count, sizeof *sums);
    for (int32_t i = 0; i < count; i++)
      sums[i] = calloc((size_t)mt_network_parameter(single, i)->count, sizeof **sums);
    for (int b = 0; b < BATCHES; b++) {
      mt_network_zero_gradients(single);
      add_batch(single, &batch, b);
      for (int32_t i = 0; i < count; i++)
        for (int64_t e = 0; e < mt_network_parameter(single, i)->count; e++)
          sums[i][e] += whole(mt_network_parameter(single, i)->gradient[e]);
    }
    for (int32_t i = 0; i < count; i++) {
      const mt_parameter *one = mt_network_parameter(forward, i), *other = mt_network_parameter(backward, i);
      assert_memory_equal(one->gradient, other->gradient, (size_t)one->count * sizeof(float));
      /* A tied matrix gets two addends a batch, which `single` has added up in float32 already. */
      bool twice = tied && one->dims == 2 && (one->layer == 4 || one->layer == NN_CASE_LAYERS - 1);
      for (int64_t e = 0; e < one->count; e++) {
        float want = rounded(sums[i][e]), difference = fabsf(one->gradient[e] - want);
        if (twice ? difference > 1e-4F : difference != 0)
          fail_msg("%s[%lld]: %.9g, as whole numbers %.9g", one->name, (long long)e, (double)one->gradient[e],
                   (double)want);
      }
      free(sums[i]);
    }
    free(sums);
    mt_network_destroy(forward), mt_network_destroy(backward), mt_network_destroy(single);
  }
}

/* Gradients that the sums have no room for show as no number, whichever comes first. */
static void test_too_large_is_not_a_number(void **state) {
  (void)state;
  static nn_case_batch data;
  const mt_internvl config = nn_case_config(false);
  mt_batch batch = nn_case_fill(&data);
  batch.loss_weight = 1e9;
  for (int order = 0; order < 2; order++) {
    mt_network *network = make(&config, 1 << 17); /* an addend has to stay below 2^13 */
    mt_batch small = batch;
    small.loss_weight = 1;
    add_batch(network, order == 0 ? &batch : &small, 0);
    add_batch(network, order == 0 ? &small : &batch, 0);
    mt_network_round_sums(network);
    double sum = 0;
    for (int32_t i = 0; i < mt_network_parameter_count(network); i++)
      sum += mt_network_gradient_square_sum(network, i);
    assert_true(isnan(sum));
    mt_network_destroy(network);
  }
  motet_error error;
  mt_network *network = make(&config, 0);
  assert_int_equal(mt_network_sum_exactly(network, (1 << 17) + 1, &error), MOTET_ERROR_LIMIT);
  mt_network_destroy(network);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_sums_are_exact_in_any_order),
      cmocka_unit_test(test_too_large_is_not_a_number),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
