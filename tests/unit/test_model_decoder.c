/* Configs of other makers than those in tests/data/models, and as libraries save them again. */
#include "model/architecture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define SIZES(hidden, layers, heads, intermediate, vocabulary)                                                     \
  "\"hidden_size\": " #hidden ", \"num_hidden_layers\": " #layers ", \"num_attention_heads\": " #heads             \
  ", \"num_key_value_heads\": 8, \"intermediate_size\": " #intermediate ", \"vocab_size\": " #vocabulary

static int64_t count_of(const char *config) {
  motet_error error;
  mt_architecture *model;
  mt_arena *arena = mt_arena_create();
  assert_non_null(arena);
  if (mt_architecture_parse(arena, config, strlen(config), "config.json", &error, &model) != MOTET_OK)
    fail_msg("%s", error.text);
  int64_t count = mt_architecture_parameters(model);
  mt_arena_destroy(arena);
  return count;
}

/* Nested configs say only what differs from their classes' values: LLaVA 1.5 of llava-hf, and Qwen2.5-VL-7B and
 * Qwen3-VL-30B-A3B saved again by transformers, with the counts of their whole configs (tests/data/models). */
static void test_nested_defaults(void **state) {
  (void)state;
#define CLIP "\"vision_config\": {\"model_type\": \"clip_vision_model\", \"hidden_size\": 1024}, "
  assert_true(count_of("{\"model_type\": \"llava\", " CLIP
                       "\"text_config\": {\"model_type\": \"llama\", \"vocab_size\": 32064}}") == 7063427072);
  assert_true(count_of("{\"model_type\": \"llava\", " CLIP
                       "\"text_config\": {\"model_type\": \"llama\", \"hidden_size\": 5120, "
                       "\"intermediate_size\": 13824, \"num_hidden_layers\": 40, \"num_attention_heads\": 40, "
                       "\"vocab_size\": 32064}}") == 13351494656);
  assert_true(count_of("{\"model_type\": \"qwen2_5_vl\", \"hidden_size\": 3584, \"intermediate_size\": 18944, "
                       "\"num_hidden_layers\": 28, \"num_attention_heads\": 28, \"num_key_value_heads\": 4, "
                       "\"vocab_size\": 152064, \"tie_word_embeddings\": false, "
                       "\"vision_config\": {\"hidden_size\": 1280}}") == 8292166656);
  assert_true(count_of("{\"model_type\": \"qwen3_vl_moe\", \"tie_word_embeddings\": false, \"text_config\": "
                       "{\"model_type\": \"qwen3_vl_moe_text\", \"num_hidden_layers\": 48, "
                       "\"num_attention_heads\": 32, \"num_key_value_heads\": 4, \"num_local_experts\": 128, "
                       "\"num_experts_per_tok\": 8, \"moe_intermediate_size\": 768}, "
                       "\"vision_config\": {\"out_hidden_size\": 2048}}") == 31070754032);
  /* A nested config that is none has no usual values. */
  motet_error error;
  mt_architecture *model;
  mt_arena *arena = mt_arena_create();
  static const char wrong[] = "{\"model_type\": \"qwen2_5_vl\", \"vision_config\": 3}";
  assert_int_equal(mt_architecture_parse(arena, wrong, strlen(wrong), "config.json", &error, &model),
                   MOTET_ERROR_PARSE);
  assert_string_equal(error.key, "vision_config.depth");
  assert_string_equal(error.file, "config.json");
  mt_arena_destroy(arena);
}

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
      {"{\"model_type\": \"phi3\", " SIZES(5120, 40, 40, 17920, 100352) "}", 14554649600},
      {"{\"model_type\": \"granite\", \"tie_word_embeddings\": true, " SIZES(4096, 40, 32, 12800, 49155) "}",
       8170848256},
      {"{\"model_type\": \"nemotron\", \"head_dim\": 128, " SIZES(3072, 32, 24, 9216, 256000) "}", 4190509056},
  };
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
    assert_true(count_of(cases[c].config) == cases[c].parameters);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_nested_defaults), cmocka_unit_test(test_parameters)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
