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

static mt_architecture *read_config(mt_arena *arena, const char *config) {
  motet_error error;
  mt_architecture *model;
  assert_non_null(arena);
  if (mt_architecture_parse(arena, config, strlen(config), "config.json", &error, &model) != MOTET_OK)
    fail_msg("%s", error.text);
  return model;
}

static int64_t count_of(const char *config) {
  mt_arena *arena = mt_arena_create();
  mt_architecture *model = read_config(arena, config);
  int64_t count = mt_architecture_parameters(model);
  mt_arena_destroy(arena);
  return count;
}

static void refused(const char *config, const char *key, const char *text) {
  motet_error error;
  mt_architecture *model;
  mt_arena *arena = mt_arena_create();
  assert_non_null(arena);
  motet_error_clear(&error);
  assert_int_not_equal(mt_architecture_parse(arena, config, strlen(config), "config.json", &error, &model),
                       MOTET_OK);
  assert_string_equal(error.key, key);
  assert_non_null(strstr(error.text, text));
  mt_arena_destroy(arena);
}

/* Nested configs say only what differs from their classes' values: LLaVA 1.5 of llava-hf, and Qwen2.5-VL-7B and
 * Qwen3-VL-30B-A3B saved again by transformers, with the counts of their whole configs (tests/data/models). */
static void test_nested_defaults(void **state) {
  (void)state;
#define CLIP                                                                                                       \
  "\"vision_config\": {\"model_type\": \"clip_vision_model\", \"hidden_size\": 1024, \"intermediate_size\": "      \
  "4096, "                                                                                                         \
  "\"num_hidden_layers\": 24, \"num_attention_heads\": 16, \"image_size\": 336, \"patch_size\": 14}, "
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
  assert_true(
      count_of(
          "{\"model_type\": \"qwen3_vl_moe\", \"tie_word_embeddings\": false, \"text_config\": "
          "{\"model_type\": \"qwen3_vl_moe_text\", \"num_hidden_layers\": 48, "
          "\"num_attention_heads\": 32, \"num_key_value_heads\": 4, \"head_dim\": 128, \"num_local_experts\": 128, "
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

/* What transformers 5.24 builds where configs are silent about a key, or have one that few files have. */
static void test_silent_and_rare_keys(void **state) {
  (void)state;
#define SMALL(width, heads)                                                                                        \
  "\"hidden_size\": " #width ", \"num_attention_heads\": " #heads                                                  \
  ", \"intermediate_size\": 96, \"num_hidden_layers\": 2, \"vocab_size\": 100"
#define TEXT(type) "\"text_config\": {\"model_type\": \"" type "\", \"num_key_value_heads\": "
#define LLAVA(vision) "{\"model_type\": \"llava\", \"vision_config\": {" vision "}, "
#define TOWER                                                                                                      \
  "\"hidden_size\": 32, \"intermediate_size\": 48, \"num_hidden_layers\": 3, \"num_attention_heads\": 2, "         \
  "\"image_size\": 64, \"patch_size\": 16"
#define INTERNVL(keys)                                                                                             \
  "{\"model_type\": \"internvl\", \"tie_word_embeddings\": false, \"vision_config\": {\"hidden_size\": 32, "       \
  "\"intermediate_size\": 48, \"num_hidden_layers\": 3, \"num_attention_heads\": 2, \"image_size\": [56, 56], "    \
  "\"patch_size\": [14, 14]" keys "}, " TEXT("qwen2") "2, " SMALL(64, 4) "}}"
  static const struct {
    const char *config;
    int64_t parameters;
  } cases[] = {
      {"{\"model_type\": \"mistral\", " SMALL(256, 32) "}", 527616},
      {"{\"model_type\": \"mixtral\", \"num_local_experts\": 4, \"num_experts_per_tok\": 2, " SMALL(256, 32) "}",
       972032},
      {"{\"model_type\": \"qwen2\", " SMALL(256, 32) "}", 725760},
      {"{\"model_type\": \"qwen3\", " SMALL(256, 32) "}", 8589056},
      {"{\"model_type\": \"qwen3_moe\", \"num_experts\": 4, \"num_experts_per_tok\": 2, "
       "\"moe_intermediate_size\": 8, " SMALL(256, 32) "}",
       398624},
      {LLAVA("\"hidden_size\": 1024, \"num_attention_heads\": 16") TEXT("llama") "4, " SMALL(64, 4) "}}",
       129331136},
      {LLAVA(TOWER) "\"tie_word_embeddings\": false, " TEXT("llama") "4, \"tie_word_embeddings\": true, " SMALL(
           64, 4) "}}",
       130416},
      {LLAVA(TOWER) "\"multimodal_projector_bias\": false, " TEXT("llama") "4, " SMALL(64, 4) "}}", 136688},
      {INTERNVL(""), 129328},
      {INTERNVL(", \"use_mask_token\": true"), 129360},
      {INTERNVL(", \"use_absolute_position_embeddings\": false"), 128784},
      {INTERNVL(", \"use_mask_token\": true, \"use_absolute_position_embeddings\": false"), 128816},
      {"{\"model_type\": \"qwen3_vl_moe\", \"tie_word_embeddings\": false, \"vision_config\": {\"depth\": 2, "
       "\"hidden_size\": 32, \"num_heads\": 2, \"intermediate_size\": 48, \"patch_size\": 8, "
       "\"num_position_embeddings\": 16, \"deepstack_visual_indexes\": [0], \"out_hidden_size\": 64}, " TEXT(
           "qwen3_vl_moe_text") "2, \"num_experts\": 4, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": "
                                "8, " SMALL(64, 4) "}}",
       128256},
  };
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    int64_t count = count_of(cases[c].config);
    if (count != cases[c].parameters)
      fail_msg("%s\n%lld for %lld", cases[c].config, (long long)count, (long long)cases[c].parameters);
  }
}

/* Pairs of a query and a key that `layer` attends to, by the operations that they cost, for segments of 3 and 10.
 */
static double pairs_of(const char *config, int32_t layer) {
  motet_error error;
  mt_arena *arena = mt_arena_create();
  mt_architecture *model = read_config(arena, config);
  const int64_t segments[] = {3, 10};
  const mt_shape shape = {.segments = segments, .segment_count = 2};
  double extents[MT_EXTENTS];
  mt_layer_cost cost;
  assert_int_equal(mt_architecture_measure(model, &shape, &error, extents), MOTET_OK);
  mt_architecture_cost(model, layer, extents, 1, &cost);
  double width = (double)(model->facts[0].heads * model->facts[0].head_width);
  mt_arena_destroy(arena);
  return cost.attention_flops / (4 * width); /* two products, two operations a multiply-add */
}

static double brute_pairs(int window) {
  double pairs = 0;
  for (int s = 0; s < 2; s++)
    for (int query = 0; query < (s == 0 ? 3 : 10); query++)
      for (int key = 0; key <= query; key++) pairs += query - key < window ? 1 : 0;
  return pairs;
}

/* Which blocks look back on a window: as transformers' classes read sliding_window, use_sliding_window and
 * max_window_layers. */
static void test_sliding_windows(void **state) {
  (void)state;
#define WINDOWED(type, keys) "{\"model_type\": \"" type "\", " keys SMALL(64, 4) ", \"num_key_value_heads\": 4}"
#define ROUTED "\"num_experts\": 4, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 8, "
  static const struct {
    const char *config;
    int windows[2]; /* of the two blocks; 99: they see everything */
  } cases[] = {
      {WINDOWED("mistral", "\"sliding_window\": 4, "), {4, 4}},
      {WINDOWED("mistral", "\"sliding_window\": 1, "), {1, 1}},
      {WINDOWED("mistral", "\"sliding_window\": 64, "), {64, 64}},
      {WINDOWED("mistral", "\"sliding_window\": null, "), {99, 99}},
      {WINDOWED("phi3", "\"sliding_window\": 5, "), {5, 5}},
      {WINDOWED("llama", "\"sliding_window\": 4, "), {99, 99}},
      {WINDOWED("qwen2", "\"sliding_window\": 4, "), {99, 99}},
      {WINDOWED("qwen2", "\"use_sliding_window\": true, \"sliding_window\": 4, "), {99, 99}},
      {WINDOWED("qwen2", "\"use_sliding_window\": true, \"sliding_window\": 4, \"max_window_layers\": 1, "),
       {99, 4}},
      {WINDOWED("qwen3", "\"use_sliding_window\": true, \"sliding_window\": 4, \"max_window_layers\": 0, "),
       {4, 4}},
      {WINDOWED("qwen3_moe", ROUTED "\"use_sliding_window\": true, \"sliding_window\": 3, "), {3, 3}},
  };
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
    for (int32_t block = 0; block < 2; block++) {
      double pairs = pairs_of(cases[c].config, 1 + block), wanted = brute_pairs(cases[c].windows[block]);
      if (pairs != wanted) fail_msg("%s\nblock %d: %g pairs, not %g", cases[c].config, block, pairs, wanted);
    }
}

/* Towers whose patches do not fill a picture (SmolVLM-2.2B's: 27 a side of 384 pixels, of 14), counted as
 * transformers 5.24 builds them, and generators as diffusers 0.42 does. */
static void test_towers_and_generators(void **state) {
  (void)state;
#define COGVIDEOX                                                                                                  \
  "{\"_class_name\": \"CogVideoXTransformer3DModel\", \"num_attention_heads\": 48, \"attention_head_dim\": 64, "   \
  "\"num_layers\": 42, \"in_channels\": 32, \"out_channels\": 16, \"patch_size\": 2, \"patch_size_t\": 2"
#define SMOLVLM(image)                                                                                             \
  "{\"model_type\": \"smolvlm\", \"scale_factor\": 3, \"tie_word_embeddings\": false, \"text_config\": "           \
  "{\"model_type\": \"llama\", \"hidden_size\": 2048, \"intermediate_size\": 8192, \"num_hidden_layers\": 24, "    \
  "\"num_attention_heads\": 32, \"num_key_value_heads\": 32, \"vocab_size\": 49280}, \"vision_config\": "          \
  "{\"hidden_size\": 1152, \"intermediate_size\": 4304, \"num_attention_heads\": 16, \"num_hidden_layers\": 27, "  \
  "\"patch_size\": 14, \"image_size\": " image "}}"
#define DIT(norm)                                                                                                  \
  "{\"_class_name\": \"Transformer2DModel\", \"norm_type\": \"" norm "\", \"num_embeds_ada_norm\": 1000, "         \
  "\"attention_head_dim\": 72, \"num_attention_heads\": 16, \"num_layers\": 28, \"in_channels\": 4, "              \
  "\"out_channels\": 8, \"patch_size\": 2, \"sample_size\": 32}"
  assert_true(count_of(SMOLVLM("384")) == 2246784880);
  assert_true(count_of(LLAVA("\"hidden_size\": 32, \"intermediate_size\": 48, \"num_hidden_layers\": 3, "
                             "\"num_attention_heads\": 2, \"image_size\": 70, \"patch_size\": 16")
                           TEXT("llama") "4, " SMALL(64, 4) "}}") == 136816);
  assert_true(count_of(COGVIDEOX "}") == 5571069568);
  assert_true(count_of(COGVIDEOX ", \"ofs_embed_dim\": 512}") == 5571594880);
  assert_true(count_of(DIT("ada_norm_zero")) == 749826464);
  refused(SMOLVLM("13"), "vision_config.patch_size", "14 is more than image_size 13");
  refused(DIT("ada_norm_single"), "norm_type", "ada_norm_zero");
  refused("{\"_class_name\": \"WanTransformer3DModel\", \"image_dim\": 1280}", "image_dim", "text to video");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_nested_defaults), cmocka_unit_test(test_parameters),
                                     cmocka_unit_test(test_silent_and_rare_keys),
                                     cmocka_unit_test(test_sliding_windows),
                                     cmocka_unit_test(test_towers_and_generators)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
