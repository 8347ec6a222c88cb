/* Models composed of one's encoders and another's decoder, against models that were published so. */
#include "model/architecture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static motet_error failure;
static mt_arena *arena;

static const mt_architecture *published(const char *name) {
  char path[512];
  mt_architecture *model;
  snprintf(path, sizeof path, "%s/models/%s", MOTET_TEST_DATA, name);
  if (mt_architecture_read(arena, path, &failure, &model) != MOTET_OK) fail_msg("%s", failure.text);
  return model;
}

static mt_architecture *composed(const char *encoder, const char *decoder) {
  char path[1024];
  mt_architecture *model = NULL;
  snprintf(path, sizeof path, "%s/models/%s + %s/models/%s", MOTET_TEST_DATA, encoder, MOTET_TEST_DATA, decoder);
  return mt_architecture_read(arena, path, &failure, &model) == MOTET_OK ? model : NULL;
}

/* InternVL3-8B's encoder before Qwen2.5-0.5B is InternVL3-1B, which has both, but for words in the vocabulary. */
static void test_composed_models(void **state) {
  (void)state;
  const mt_architecture *ours = composed("InternVL3-8B", "Qwen2.5-0.5B"), *theirs = published("InternVL3-1B");
  if (ours == NULL) fail_msg("%s", failure.text);
  const mt_picture pictures[] = {{1, 448, 448}, {1, 448, 896}};
  const int64_t tokens = 2048;
  const mt_shape shape = {.segments = &tokens, .segment_count = 1, .pictures = pictures, .picture_count = 2};
  double a[MT_EXTENTS], b[MT_EXTENTS];
  assert_int_equal(mt_architecture_measure(ours, &shape, &failure, a), MOTET_OK);
  assert_int_equal(mt_architecture_measure(theirs, &shape, &failure, b), MOTET_OK);
  assert_memory_equal(a, b, sizeof a);
  assert_int_equal(ours->model->layer_count, theirs->model->layer_count);
  assert_int_equal(ours->model->edge_count, theirs->model->edge_count);
  for (int32_t e = 0; e < ours->model->edge_count; e++)
    assert_memory_equal(&ours->model->edges[e], &theirs->model->edges[e], sizeof *ours->model->edges);
  for (int32_t l = 0; l + 1 < ours->model->layer_count; l++) {
    mt_layer_cost one, other;
    mt_architecture_cost(ours, l, a, 1, &one);
    mt_architecture_cost(theirs, l, b, 1, &other);
    if (memcmp(&one, &other, sizeof one) != 0) fail_msg("%s costs otherwise", ours->model->layers[l].name);
    bool words = strcmp(ours->model->layers[l].name, "llm.embed") == 0;
    if (!words) assert_int_equal(ours->model->layers[l].parameters, theirs->model->layers[l].parameters);
    assert_int_equal(ours->model->layers[l].module, theirs->model->layers[l].module);
  }
  /* 2 x 1280 of a norm, 5120 and 7168 wide maps with biases. */
  const mt_architecture *large = composed("Qwen2-VL-7B-Instruct", "DeepSeek-V3");
  assert_non_null(large);
  assert_int_equal(mt_architecture_module_parameters(large, 1), 2 * 1280 + 5120 * 5120 + 5120 + 5120 * 7168 + 7168);
  assert_int_equal(mt_architecture_parameters(large) - mt_architecture_parameters(published("DeepSeek-V3")),
                   mt_architecture_module_parameters(large, 0) + mt_architecture_module_parameters(large, 1));
  assert_int_equal(mt_architecture_measure(large, &shape, &failure, a), MOTET_OK);
  assert_true(a[MT_ROWS_ROUTED] == 8.0 * 2048 && a[MT_ROWS_PATCHES] > 0);
  assert_null(composed("Qwen3-VL-8B-Instruct", "DeepSeek-V3"));
  assert_non_null(strstr(failure.text, "deepstack"));
  assert_null(composed("DeepSeek-V3", "InternVL3-1B"));
  assert_null(composed("InternVL3-8B", "InternVL3-1B"));
  assert_non_null(strstr(failure.text, "behind the +"));
}

int main(void) {
  arena = mt_arena_create();
  if (arena == NULL) return 1;
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_composed_models)};
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  mt_arena_destroy(arena);
  return failed;
}
