/* Configs of text decoders as makers other than those in tests/data/models publish them. */
#include "model/architecture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define SIZES(hidden, layers, heads, intermediate, vocabulary)                                                     \
  "\"hidden_size\": " #hidden ", \"num_hidden_layers\": " #layers ", \"num_attention_heads\": " #heads             \
  ", \"num_key_value_heads\": 8, \"intermediate_size\": " #intermediate ", \"vocab_size\": " #vocabulary

/* What transformers 5 builds from the same numbers: mistralai's 7B, 8x7B and 8x22B, and a Nemotron, whose
 * feed-forward has no gate and whose norms have a shift. */
static void test_parameters(void **state) {
  (void)state;
  static const struct {
    const char *config;
    int64_t parameters;
  } cases[] = {
      {"{\"model_type\": \"mistral\", " SIZES(4096, 32, 32, 14336, 32000) "}", 7241732096},
      {"{\"model_type\": \"mixtral\", \"num_local_experts\": 8, \"num_experts_per_tok\": 2, " SIZES(
           4096, 32, 32, 14336, 32000) "}",
       46702792704},
      {"{\"model_type\": \"mixtral\", \"num_local_experts\": 8, \"num_experts_per_tok\": 2, " SIZES(
           6144, 56, 48, 16384, 32768) "}",
       140630071296},
      {"{\"model_type\": \"nemotron\", \"head_dim\": 128, " SIZES(3072, 32, 24, 9216, 256000) "}", 4190509056},
  };
  mt_arena *arena = mt_arena_create();
  assert_non_null(arena);
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    motet_error error;
    mt_architecture *model;
    if (mt_architecture_parse(arena, cases[c].config, strlen(cases[c].config), "config.json", &error, &model) !=
        MOTET_OK)
      fail_msg("%s", error.text);
    assert_true(mt_architecture_parameters(model) == cases[c].parameters);
  }
  mt_arena_destroy(arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_parameters)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
