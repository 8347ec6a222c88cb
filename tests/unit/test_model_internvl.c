/* Reading of published InternVL configs, their parameter counts, and what malformed ones are told. */
#include "base/text.h"
#include "model/internvl.h"

#include <motet/program.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static motet_error failure;

static mt_internvl published(const char *name) {
  char path[512];
  snprintf(path, sizeof path, "%s/models/%s", MOTET_TEST_DATA, name);
  mt_internvl config;
  if (mt_internvl_read(path, &failure, &config) != MOTET_OK) fail_msg("%s: %s", name, failure.text);
  return config;
}

static int64_t parameters_of(const mt_internvl *config, int32_t module) {
  const bool trainable[3] = {true, true, true};
  mt_arena *arena = mt_arena_create();
  mt_model *model;
  assert_int_equal(mt_internvl_model(arena, config, trainable, &failure, &model), MOTET_OK);
  int64_t total = 0;
  for (int32_t l = 0; l < model->layer_count; l++)
    if (module < 0 || model->layers[l].module == module) total += model->layers[l].parameters;
  mt_arena_destroy(arena);
  return total;
}

/* Published totals in millions, as rounded there: the InternVL2-1B card counts the tower with the projector and the
 * language model; the InternVL3-1B checkpoint has 1.88 GB in bfloat16. */
static void test_totals_equal_published_counts(void **state) {
  (void)state;
  mt_internvl config = published("InternVL2-1B");
  assert_int_equal(llround((double)(parameters_of(&config, 0) + parameters_of(&config, 1)) / 1e5), 3085);
  assert_int_equal(llround((double)parameters_of(&config, 2) / 1e5), 6297);
  assert_int_equal(llround((double)parameters_of(&config, -1) / 1e5), 9382);
  config = published("InternVL3-1B");
  assert_int_equal(llround((double)parameters_of(&config, -1) * 2 / 1e7), 188);
}

/* Qwen2.5's model cards state the parameters without embeddings: the blocks and the final norm. */
static void test_decoders_equal_published_counts(void **state) {
  (void)state;
  static const struct {
    const char *name;
    double billions;
  } cases[] = {{"InternVL3-1B", 0.36}, {"InternVL3-2B", 1.31},  {"InternVL2.5-4B", 2.77},
               {"InternVL3-8B", 6.53}, {"InternVL3-78B", 70.0}, {"InternVL2.5-1B", 0.36}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    mt_internvl config = published(cases[i].name);
    assert_false(config.decoder.tied_embeddings);
    double without =
        (double)parameters_of(&config, 2) - 2.0 * (double)config.decoder.vocabulary * config.decoder.hidden;
    assert_true(fabs(without / 1e9 - cases[i].billions) <= (cases[i].billions > 10 ? 0.25 : 0.005));
  }
}

static void test_published_configs_are_understood(void **state) {
  (void)state;
  mt_internvl config = published("InternVL3-1B");
  assert_false(config.hf_form);
  assert_int_equal(config.tokens_per_tile, 256); /* stated by the family's cards for 448 x 448 pixels */
  assert_int_equal(config.vision.layers, 24);
  assert_false(config.vision.rms_norm);
  assert_true(config.vision.qkv_bias);
  assert_int_equal(config.decoder.kv_heads, 2);
  assert_int_equal(config.decoder.head_dim, 64);
  assert_true(config.decoder.rope_theta == 1e6);
  assert_true(config.decoder.rope_factor == 2.0);
  assert_int_equal(config.decoder.max_positions, 32768);
  assert_int_equal(config.image_token, -1);
  assert_int_equal(config.max_tiles, 12);
  config = published("InternVL3-78B"); /* InternViT-6B */
  assert_true(config.vision.rms_norm && config.vision.qk_norm && !config.vision.qkv_bias);
  assert_int_equal(config.vision.hidden / config.vision.heads, 128);
  config = published("InternVL2.5-4B");
  assert_true(config.decoder.rope_factor == 0);
}

/* A published file with one text changed for another. */
static motet_status parse_changed(const char *name, const char *from, const char *to, mt_internvl *config) {
  char path[512], *text;
  size_t bytes;
  snprintf(path, sizeof path, "%s/models/%s/config.json", MOTET_TEST_DATA, name);
  assert_int_equal(mt_file_read(path, &failure, &text, &bytes), MOTET_OK);
  char *place = strstr(text, from);
  assert_non_null(place);
  mt_text changed = {0};
  mt_text_append(&changed, "%.*s%s%s", (int)(place - text), text, to, place + strlen(from));
  motet_status status = mt_internvl_parse(changed.data, changed.length, "config.json", &failure, config);
  mt_text_free(&changed);
  free(text);
  return status;
}

static void test_a_decoder_of_another_kind_is_named(void **state) {
  (void)state;
  mt_internvl config;
  assert_int_equal(parse_changed("InternVL2-2B", "\"internlm2\"", "\"phi3\"", &config), MOTET_ERROR_UNSUPPORTED);
  assert_non_null(strstr(failure.text, "phi3"));
  assert_string_equal(failure.key, "llm_config.model_type");
}

/* Qwen3's defaults: heads of 128, no biases, norms over the heads: 2 * 128 weights a block more and the biases
 * less. */
static void test_qwen3_configs(void **state) {
  (void)state;
  mt_internvl config, other = published("InternVL3-1B");
  assert_int_equal(parse_changed("InternVL3-1B", "\"model_type\": \"qwen2\"",
                                 "\"head_dim\": 64, \"model_type\": \"qwen3\"", &config),
                   MOTET_OK);
  assert_true(config.decoder.qk_norm && !config.decoder.attention_bias);
  assert_int_equal(parameters_of(&config, 2) - parameters_of(&other, 2),
                   (int64_t)config.decoder.layers *
                       (2 * 64 - (config.decoder.heads + 2 * config.decoder.kv_heads) * 64));
  assert_int_equal(parse_changed("InternVL3-1B", "\"model_type\": \"qwen2\"", "\"model_type\": \"qwen3\"", &config),
                   MOTET_OK);
  assert_int_equal(config.decoder.head_dim, 128);
}

/* InternLM2's decoder: biases are its default, and its own names and templates follow from the type. The card of
 * InternVL2.5-2B, the same architecture, counts 2.206 billion parameters. */
static void test_internlm2_configs(void **state) {
  (void)state;
  mt_internvl config = published("InternVL2-2B");
  assert_int_equal(config.decoder.names, MT_INTERNVL_NAMES_INTERNLM2);
  assert_int_equal(config.template, MT_INTERNVL_TEMPLATE_INTERNLM2);
  assert_false(config.decoder.attention_bias);
  assert_int_equal(llround((double)parameters_of(&config, -1) / 1e6), 2206);
  assert_int_equal(parse_changed("InternVL2-2B", "\"bias\": false", "\"bias\": true", &config),
                   MOTET_ERROR_UNSUPPORTED);
  assert_string_equal(failure.key, "llm_config.bias");
  assert_int_equal(parse_changed("InternVL2-2B", "\"bias\": false", "\"boas\": false", &config),
                   MOTET_ERROR_UNSUPPORTED);
  assert_int_equal(parse_changed("InternVL2-2B", "\"select_layer\": -1",
                                 "\"select_layer\": -1, \"template\": \"Hermes-2\"", &config),
                   MOTET_OK);
  assert_int_equal(config.template, MT_INTERNVL_TEMPLATE_HERMES2);
  assert_int_equal(parse_changed("InternVL2-2B", "\"select_layer\": -1",
                                 "\"select_layer\": -1, \"template\": \"plain\"", &config),
                   MOTET_ERROR_UNSUPPORTED);
  assert_string_equal(failure.key, "template");
}

static void test_model_is_a_chain_of_three_modules(void **state) {
  (void)state;
  mt_internvl config = published("InternVL3-2B");
  const bool trainable[3] = {false, true, false};
  mt_arena *arena = mt_arena_create();
  mt_model *model;
  assert_int_equal(mt_internvl_model(arena, &config, trainable, &failure, &model), MOTET_OK);
  assert_int_equal(model->module_count, 3);
  assert_int_equal(model->edge_count, 2);
  assert_int_equal(model->layer_count, 1 + 24 + 1 + 1 + 28 + 1);
  assert_int_equal(model->layer_count, mt_internvl_layer_count(&config));
  assert_int_equal(model->modules[0].inputs, MOTET_INPUT_PIXELS);
  assert_int_equal(model->modules[2].inputs, MOTET_INPUT_TOKENS);
  assert_int_equal(model->last_inputs, MOTET_INPUT_LABELS);
  assert_string_equal(model->layers[0].name, "vision.embed");
  assert_string_equal(model->layers[1].name, "vision.0");
  assert_string_equal(model->layers[25].name, "projector");
  assert_string_equal(model->layers[27].name, "llm.0");
  assert_string_equal(model->layers[55].name, "llm.head");
  for (int32_t l = 0; l < model->layer_count; l++) assert_int_equal(model->layers[l].trainable, l == 25);
  mt_arena_destroy(arena);
}

/* A small config in the -hf form; the line numbers below count from its first. */
static const char *const hf_lines[] = {
    "{",
    "  \"model_type\": \"internvl\",",
    "  \"image_token_id\": 60,",
    "  \"image_seq_length\": 4,",
    "  \"downsample_ratio\": 0.5,",
    "  \"vision_feature_layer\": -1,",
    "  \"projector_hidden_act\": \"gelu\",",
    "  \"vision_config\": {",
    "    \"hidden_size\": 16,",
    "    \"num_hidden_layers\": 3,",
    "    \"num_attention_heads\": 2,",
    "    \"intermediate_size\": 20,",
    "    \"image_size\": [16, 16],",
    "    \"patch_size\": [4, 4],",
    "    \"norm_type\": \"layer_norm\",",
    "    \"attention_bias\": true",
    "  },",
    "  \"tie_word_embeddings\": true,",
    "  \"text_config\": {",
    "    \"model_type\": \"qwen2\",",
    "    \"hidden_size\": 36,",
    "    \"num_hidden_layers\": 2,",
    "    \"num_attention_heads\": 6,",
    "    \"num_key_value_heads\": 2,",
    "    \"intermediate_size\": 40,",
    "    \"vocab_size\": 61,",
    "    \"tie_word_embeddings\": false,",
    "    \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 5000.0}",
    "  }",
    "}",
};

/* Reads the small config with line @p number (from 1) replaced; 0: none. */
static motet_status read_changed(int number, const char *line, mt_internvl *config) {
  char path[] = "/tmp/motet-internvl-XXXXXX";
  int descriptor = mkstemp(path);
  assert_true(descriptor >= 0);
  close(descriptor);
  mt_text text = {0};
  for (int i = 0; i < (int)(sizeof hf_lines / sizeof *hf_lines); i++)
    mt_text_append(&text, "%s\n", i + 1 == number ? line : hf_lines[i]);
  assert_int_equal(mt_file_write(path, text.data, text.length, &failure), MOTET_OK);
  motet_error_clear(&failure);
  motet_status status = mt_internvl_read(path, &failure, config);
  if (status != MOTET_OK) assert_string_equal(failure.file, path);
  unlink(path);
  mt_text_free(&text);
  return status;
}

static void test_hf_form_is_understood(void **state) {
  (void)state;
  mt_internvl config;
  if (read_changed(0, NULL, &config) != MOTET_OK) fail_msg("%s", failure.text);
  assert_true(config.hf_form);
  assert_int_equal(config.image_token, 60);
  assert_int_equal(config.tokens_per_tile, 4); /* a grid of 4 x 4 patches, shuffled 2 x 2 */
  assert_true(config.decoder.tied_embeddings); /* the top counts, as in transformers 5 */
  assert_true(config.decoder.rope_theta == 5000.0);
  assert_int_equal(config.decoder.head_dim, 6);
  assert_int_equal(read_changed(18, "  \"use_cache\": true,", &config), MOTET_OK);
  assert_false(config.decoder.tied_embeddings);
  assert_int_equal(read_changed(6, "  \"vision_feature_layer\": -3,", &config), MOTET_OK);
  assert_int_equal(config.vision.layers, 1); /* hidden state -3 of embeddings and 3 blocks */
  assert_int_equal(read_changed(6, "  \"vision_feature_layer\": 2,", &config), MOTET_OK);
  assert_int_equal(config.vision.layers, 2);
}

/* Each error names its key and its line; "" as a line removes it. */
static void test_errors_name_key_and_line(void **state) {
  (void)state;
  static const struct {
    int number;
    const char *line;
    motet_status status;
    const char *key;
    int where;
  } cases[] = {
      {2, "  \"model_type\": \"llava\",", MOTET_ERROR_UNSUPPORTED, "model_type", 2},
      {2, "", MOTET_ERROR_PARSE, "model_type", 1},
      {3, "", MOTET_ERROR_PARSE, "image_token_id", 1},
      {3, "  \"image_token_id\": 61,", MOTET_ERROR_PARSE, "image_token_id", 3},
      {4, "  \"image_seq_length\": 256,", MOTET_ERROR_PARSE, "image_seq_length", 4},
      {5, "  \"downsample_ratio\": 0.4,", MOTET_ERROR_UNSUPPORTED, "downsample_ratio", 5},
      {5, "  \"downsample_ratio\": 0.333333333333,", MOTET_ERROR_PARSE, "downsample_ratio", 5},
      {6, "  \"vision_feature_layer\": -5,", MOTET_ERROR_PARSE, "vision_feature_layer", 6},
      {6, "  \"vision_feature_layer\": [-1, -2],", MOTET_ERROR_UNSUPPORTED, "vision_feature_layer", 6},
      {7, "  \"projector_hidden_act\": \"relu\",", MOTET_ERROR_UNSUPPORTED, "projector_hidden_act", 7},
      {9, "    \"hidden_size\": \"16\",", MOTET_ERROR_PARSE, "vision_config.hidden_size", 9},
      {9, "", MOTET_ERROR_PARSE, "vision_config.hidden_size", 8},
      {9, "    \"hidden_size\": 1e3,", MOTET_ERROR_PARSE, "vision_config.hidden_size", 9},
      {9, "    \"hidden_size\": 17,", MOTET_ERROR_PARSE, "vision_config.num_attention_heads", 11},
      {10, "    \"num_hidden_layers\": 100000,", MOTET_ERROR_PARSE, "vision_config.num_hidden_layers", 10},
      {13, "    \"image_size\": [16, 18],", MOTET_ERROR_UNSUPPORTED, "vision_config.image_size", 13},
      {13, "    \"image_size\": 18,", MOTET_ERROR_PARSE, "vision_config.image_size", 13},
      {13, "    \"image_size\": 12,", MOTET_ERROR_PARSE, "downsample_ratio", 5},
      {13, "    \"image_size\": [16],", MOTET_ERROR_PARSE, "vision_config.image_size", 13},
      {15, "    \"norm_type\": \"batch_norm\",", MOTET_ERROR_UNSUPPORTED, "vision_config.norm_type", 15},
      {16, "    \"attention_bias\": 1", MOTET_ERROR_PARSE, "vision_config.attention_bias", 16},
      {16, "    \"use_mask_token\": true", MOTET_ERROR_UNSUPPORTED, "vision_config.use_mask_token", 16},
      {20, "    \"model_type\": \"mamba\",", MOTET_ERROR_UNSUPPORTED, "text_config.model_type", 20},
      {20, "", MOTET_ERROR_PARSE, "text_config.model_type", 19},
      {21, "    \"hidden_size\": 37,", MOTET_ERROR_PARSE, "text_config.num_attention_heads", 23},
      {21, "    \"hidden_size\": 30,", MOTET_ERROR_PARSE, "text_config.head_dim", 19}, /* 5 is odd */
      {22, "    \"num_hidden_layers\": 0,", MOTET_ERROR_PARSE, "text_config.num_hidden_layers", 22},
      {24, "    \"num_key_value_heads\": 4,", MOTET_ERROR_PARSE, "text_config.num_key_value_heads", 24},
      {26, "    \"vocab_size\": -1,", MOTET_ERROR_PARSE, "text_config.vocab_size", 26},
      {27, "    \"hidden_act\": \"gelu\",", MOTET_ERROR_UNSUPPORTED, "text_config.hidden_act", 27},
      {27, "    \"attention_dropout\": 0.1,", MOTET_ERROR_UNSUPPORTED, "text_config.attention_dropout", 27},
      {27, "    \"rms_norm_eps\": 0,", MOTET_ERROR_PARSE, "text_config.rms_norm_eps", 27},
      {28, "    \"rope_parameters\": {\"rope_type\": \"yarn\"}", MOTET_ERROR_UNSUPPORTED,
       "text_config.rope_parameters.rope_type", 28},
      {28, "    \"rope_parameters\": {\"rope_type\": \"dynamic\", \"factor\": 2}", MOTET_ERROR_PARSE,
       "text_config.max_position_embeddings", 19},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    mt_internvl config;
    motet_status status = read_changed(cases[i].number, cases[i].line, &config);
    if (status != cases[i].status || strcmp(failure.key, cases[i].key) != 0 || failure.line != cases[i].where)
      fail_msg("line %d as %s: status %d, key %s, line %d: %s", cases[i].number, cases[i].line, status, failure.key,
               failure.line, failure.text);
  }
}

static void test_malformed_files_are_refused(void **state) {
  (void)state;
  mt_internvl config;
  assert_int_equal(read_changed(11, "    \"hidden_size\": 16,", &config), MOTET_ERROR_PARSE); /* twice */
  assert_int_equal(failure.line, 11);
  assert_int_equal(read_changed(30, "", &config), MOTET_ERROR_PARSE);
  assert_int_equal(read_changed(8, "  \"vision_config\": null, \"x\": {", &config), MOTET_ERROR_PARSE);
  assert_string_equal(failure.key, "vision_config");
  assert_int_equal(mt_internvl_read("/nonexistent/config.json", &failure, &config), MOTET_ERROR_IO);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_totals_equal_published_counts),
      cmocka_unit_test(test_decoders_equal_published_counts),
      cmocka_unit_test(test_published_configs_are_understood),
      cmocka_unit_test(test_a_decoder_of_another_kind_is_named),
      cmocka_unit_test(test_internlm2_configs),
      cmocka_unit_test(test_qwen3_configs),
      cmocka_unit_test(test_model_is_a_chain_of_three_modules),
      cmocka_unit_test(test_hf_form_is_understood),
      cmocka_unit_test(test_errors_name_key_and_line),
      cmocka_unit_test(test_malformed_files_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
