/* A backward in two halves adds the bits of the whole one, wherever it stops, and takes the memory that it says. */
#include "nn_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { GUARD = 64, MARK = 0xAB };

static mt_network *make(const mt_internvl *config, const bool *trainable, mt_element element) {
  motet_error error;
  bool all[NN_CASE_LAYERS];
  mt_network *network;
  for (int i = 0; i < NN_CASE_LAYERS; i++) all[i] = true;
  if (mt_network_create(config, all, trainable, &error, &network) != MOTET_OK) fail_msg("%s", error.text);
  nn_case_weights(network);
  if (mt_network_use(network, element, 2, &error) != MOTET_OK) fail_msg("%s", error.text);
  return network;
}

static void run(mt_network *network, const mt_internvl *config, const bool *trainable, int first_trainable,
                const mt_batch *batch, bool halves) {
  motet_error error;
  mt_arena *arena = mt_arena_create();
  mt_saved *saved;
  mt_deferred *deferred;
  double loss = 0;
  motet_status status = mt_network_forward(network, 0, NN_CASE_LAYERS, batch, NULL, NULL, true, first_trainable,
                                           arena, &error, &saved, &loss);
  if (status == MOTET_OK && !halves)
    status = mt_network_backward(network, 0, NN_CASE_LAYERS, first_trainable, batch, saved, NULL, NULL, &error);
  if (status == MOTET_OK && halves) {
    size_t bytes = (size_t)mt_network_deferred_bytes(config, mt_network_element(network), trainable, 0,
                                                     NN_CASE_LAYERS, first_trainable, batch);
    unsigned char *memory = aligned_alloc(64, (bytes + GUARD + 63) / 64 * 64);
    memset(memory, MARK, bytes + GUARD);
    status = mt_network_backward_inputs(network, 0, NN_CASE_LAYERS, first_trainable, batch, saved, NULL, NULL,
                                        memory, &error, &deferred);
    for (int i = 0; i < GUARD; i++) assert_int_equal(memory[bytes + (size_t)i], MARK);
    int untouched = 0; /* at the end, in whole arrays' rounding */
    while (memory[bytes - 1 - (size_t)untouched] == MARK) untouched++;
    assert_true(untouched < 64);
    if (status == MOTET_OK) status = mt_network_backward_weights(network, batch, deferred, &error);
    free(memory);
  }
  if (status != MOTET_OK) fail_msg("%s", error.text);
  mt_arena_destroy(arena);
}

static void compare_as(const mt_internvl *model, mt_element element, const bool *trainable, int first_trainable) {
  static nn_case_batch data;
  const mt_internvl config = *model;
  const mt_batch batch = nn_case_fill(&data);
  mt_network *whole = make(&config, trainable, element), *halves = make(&config, trainable, element);
  run(whole, &config, trainable, first_trainable, &batch, false);
  run(halves, &config, trainable, first_trainable, &batch, true);
  for (int32_t i = 0; i < mt_network_parameter_count(whole); i++) {
    const mt_parameter *one = mt_network_parameter(whole, i), *other = mt_network_parameter(halves, i);
    if (one->gradient == NULL) continue;
    assert_true(mt_network_gradient_square_sum(whole, i) > 0);
    if (memcmp(one->gradient, other->gradient, (size_t)one->count * sizeof(float)) != 0)
      fail_msg("the gradient of %s has other bits", one->name);
  }
  mt_network_destroy(whole), mt_network_destroy(halves);
}

static void compare(bool other_form, const bool *trainable, int first_trainable) {
  mt_internvl config = nn_case_config(other_form);
  compare_as(&config, MT_ELEMENT_FLOAT32, trainable, first_trainable);
  compare_as(&config, MT_ELEMENT_BFLOAT16, trainable, first_trainable);
  config.decoder.qk_norm = true; /* Qwen3 */
  compare_as(&config, MT_ELEMENT_FLOAT32, trainable, first_trainable);
}

static void test_everything_trains(void **state) {
  (void)state;
  const bool trainable[NN_CASE_LAYERS] = {true, true, true, true, true, true, true, true};
  for (int form = 0; form < 2; form++) compare(form != 0, trainable, 0);
}

static void test_in_the_middle(void **state) {
  (void)state;
  const bool projector[NN_CASE_LAYERS] = {false, false, false, true, false, false, false, false};
  const bool blocks[NN_CASE_LAYERS] = {false, false, true, false, false, true, false, false};
  compare(false, projector, 3);
  compare(true, blocks, 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_everything_trains),
      cmocka_unit_test(test_in_the_middle),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
