#include "model/draft.h"

#include <motet/program.h>

#include <stdio.h>
#include <string.h>

enum { PATH_SIZE = MOTET_ERROR_KEY_SIZE };

static const char *path_of(const char *prefix, const char *key, char path[PATH_SIZE]) {
  snprintf(path, PATH_SIZE, "%s%s%s", prefix, prefix[0] != '\0' ? "." : "", key);
  return path;
}

/* What transformers' classes have where a nested config is silent: it saves of them only what differs. Of text
 * configs for the named kind alone. */
typedef struct nested_default {
  const char *families; /* values of the whole config's model_type, a blank between */
  const char *kind;     /* of the nested config, where it says one; NULL: any */
  const char *path;
  int64_t value;
} nested_default;

static const nested_default nested_defaults[] = {
    {"qwen2_vl", NULL, "vision_config.embed_dim", 1280},
    {"qwen2_vl qwen2_5_vl", NULL, "vision_config.depth", 32},
    {"qwen2_vl qwen2_5_vl", NULL, "vision_config.hidden_size", 3584},
    {"qwen2_vl qwen2_5_vl", NULL, "vision_config.patch_size", 14},
    {"qwen2_5_vl", NULL, "vision_config.intermediate_size", 3420},
    {"qwen2_5_vl qwen3_vl qwen3_vl_moe", NULL, "vision_config.out_hidden_size", 3584},
    {"qwen2_5_vl", NULL, "vision_config.window_size", 112},
    {"qwen3_vl qwen3_vl_moe", NULL, "vision_config.depth", 27},
    {"qwen3_vl qwen3_vl_moe", NULL, "vision_config.hidden_size", 1152},
    {"qwen3_vl qwen3_vl_moe", NULL, "vision_config.intermediate_size", 4304},
    {"qwen3_vl qwen3_vl_moe", NULL, "vision_config.num_position_embeddings", 2304},
    {"qwen3_vl qwen3_vl_moe", NULL, "vision_config.patch_size", 16},
    {"qwen2_vl qwen2_5_vl qwen3_vl qwen3_vl_moe", NULL, "vision_config.num_heads", 16},
    {"idefics3 smolvlm", NULL, "vision_config.hidden_size", 1152},
    {"idefics3 smolvlm", NULL, "vision_config.num_attention_heads", 16},
    {"idefics3 smolvlm", NULL, "vision_config.image_size", 224},
    {"idefics3 smolvlm", NULL, "vision_config.patch_size", 32},
    {"llava", NULL, "vision_config.hidden_size", 768},
    {"llava", NULL, "vision_config.intermediate_size", 3072},
    {"llava", NULL, "vision_config.num_hidden_layers", 12},
    {"llava", NULL, "vision_config.num_attention_heads", 12},
    {"llava", NULL, "vision_config.image_size", 224},
    {"llava", NULL, "vision_config.patch_size", 32},
    {"idefics3 smolvlm llava", "llama", "text_config.vocab_size", 32000},
    {"idefics3 smolvlm llava", "llama", "text_config.hidden_size", 4096},
    {"idefics3 smolvlm llava", "llama", "text_config.intermediate_size", 11008},
    {"idefics3 smolvlm llava", "llama", "text_config.num_hidden_layers", 32},
    {"idefics3 smolvlm llava", "llama", "text_config.num_attention_heads", 32},
    {"qwen2_vl qwen2_5_vl", NULL, "text_config.vocab_size", 152064},
    {"qwen2_vl qwen2_5_vl", NULL, "text_config.hidden_size", 8192},
    {"qwen2_vl qwen2_5_vl", NULL, "text_config.intermediate_size", 29568},
    {"qwen2_vl qwen2_5_vl", NULL, "text_config.num_hidden_layers", 80},
    {"qwen2_vl qwen2_5_vl", NULL, "text_config.num_attention_heads", 64},
    {"qwen2_vl qwen2_5_vl", NULL, "text_config.num_key_value_heads", 8},
    {"qwen3_vl qwen3_vl_moe", NULL, "text_config.vocab_size", 151936},
    {"qwen3_vl", NULL, "text_config.hidden_size", 4096},
    {"qwen3_vl", NULL, "text_config.intermediate_size", 22016},
    {"qwen3_vl", NULL, "text_config.num_hidden_layers", 32},
    {"qwen3_vl", NULL, "text_config.num_attention_heads", 32},
    {"qwen3_vl", NULL, "text_config.num_key_value_heads", 32},
    {"qwen3_vl_moe", NULL, "text_config.hidden_size", 2048},
    {"qwen3_vl_moe", NULL, "text_config.intermediate_size", 5632},
    {"qwen3_vl_moe", NULL, "text_config.num_hidden_layers", 24},
    {"qwen3_vl_moe", NULL, "text_config.num_attention_heads", 16},
    {"qwen3_vl_moe", NULL, "text_config.num_key_value_heads", 16},
    {"qwen3_vl_moe", NULL, "text_config.num_experts", 60},
    {"qwen3_vl_moe", NULL, "text_config.num_experts_per_tok", 4},
    {"qwen3_vl_moe", NULL, "text_config.moe_intermediate_size", 1408},
};
enum { NESTED_DEFAULTS = sizeof nested_defaults / sizeof *nested_defaults };

static bool is_listed(const char *list, const char *word) {
  size_t length = strlen(word);
  for (const char *at = list; at != NULL; at = strchr(at, ' ') != NULL ? strchr(at, ' ') + 1 : NULL)
    if (length > 0 && strcspn(at, " ") == length && strncmp(at, word, length) == 0) return true;
  return false;
}

/* The value of a key that is not there, or 0: none is usual. */
static int64_t nested_default_of(mt_draft *draft, const char *prefix, const char *path) {
  const json_t *family = mt_json_find(draft->json, "model_type");
  char kind_path[PATH_SIZE];
  const json_t *kind = mt_json_find(draft->json, path_of(prefix, "model_type", kind_path));
  if (prefix[0] == '\0' || !json_is_string(family) || !json_is_object(mt_json_find(draft->json, prefix))) return 0;
  for (int d = 0; d < NESTED_DEFAULTS; d++) {
    const nested_default *usual = &nested_defaults[d];
    if (strcmp(usual->path, path) == 0 && is_listed(usual->families, json_string_value(family)) &&
        (usual->kind == NULL || !json_is_string(kind) || strcmp(json_string_value(kind), usual->kind) == 0))
      return usual->value;
  }
  return 0;
}

int64_t mt_draft_integer(mt_draft *draft, const char *prefix, const char *key, int64_t maximum) {
  char path[PATH_SIZE];
  int64_t usual = nested_default_of(draft, prefix, path_of(prefix, key, path));
  return usual > 0 ? mt_json_integer_or(draft->json, path, 1, maximum, usual)
                   : mt_json_integer(draft->json, path, 1, maximum);
}

int64_t mt_draft_integer_or(mt_draft *draft, const char *prefix, const char *key, int64_t maximum,
                            int64_t fallback) {
  char path[PATH_SIZE];
  int64_t usual = nested_default_of(draft, prefix, path_of(prefix, key, path));
  return mt_json_integer_or(draft->json, path, 1, maximum, usual > 0 ? usual : fallback);
}

int64_t mt_draft_count_or(mt_draft *draft, const char *prefix, const char *key, int64_t maximum, int64_t fallback) {
  char path[PATH_SIZE];
  return mt_json_integer_or(draft->json, path_of(prefix, key, path), 0, maximum, fallback);
}

bool mt_draft_flag(mt_draft *draft, const char *prefix, const char *key, bool fallback) {
  char path[PATH_SIZE];
  return mt_json_boolean_or(draft->json, path_of(prefix, key, path), fallback);
}

const char *mt_draft_text(mt_draft *draft, const char *prefix, const char *key, const char *fallback) {
  char path[PATH_SIZE];
  return mt_json_text_or(draft->json, path_of(prefix, key, path), fallback);
}

bool mt_draft_has(mt_draft *draft, const char *prefix, const char *key) {
  char path[PATH_SIZE];
  return mt_json_find(draft->json, path_of(prefix, key, path)) != NULL;
}

bool mt_draft_is_null(mt_draft *draft, const char *prefix, const char *key) {
  const json_t *around = prefix[0] == '\0' ? draft->json->root : mt_json_find(draft->json, prefix);
  return json_is_null(json_object_get(around, key));
}

motet_status mt_draft_fail(mt_draft *draft, motet_status status, const char *prefix, const char *key,
                           const char *text) {
  char path[PATH_SIZE];
  return mt_json_fail(draft->json, status, path_of(prefix, key, path), "%s", text);
}

int32_t mt_draft_list(mt_draft *draft, const char *prefix, const char *key, int64_t minimum, int64_t maximum,
                      int32_t most, int64_t *values) {
  char path[PATH_SIZE];
  const json_t *list = mt_json_find(draft->json, path_of(prefix, key, path));
  if (list == NULL) return 0;
  if (!json_is_array(list) || json_array_size(list) > (size_t)most) {
    mt_json_fail(draft->json, MOTET_ERROR_PARSE, path, "must be a list of at most %d whole numbers", most);
    return 0;
  }
  int32_t count = (int32_t)json_array_size(list);
  for (int32_t i = 0; i < count; i++) {
    const json_t *entry = json_array_get(list, (size_t)i);
    values[i] = json_is_integer(entry) ? json_integer_value(entry) : minimum - 1;
    if (values[i] < minimum || values[i] > maximum) {
      mt_json_fail(draft->json, MOTET_ERROR_PARSE, path, "entry %d must be a whole number from %lld to %lld", i,
                   (long long)minimum, (long long)maximum);
      return 0;
    }
  }
  return count;
}

int64_t mt_draft_square(mt_draft *draft, const char *prefix, const char *key, int64_t fallback) {
  char path[PATH_SIZE];
  if (!json_is_array(mt_json_find(draft->json, path_of(prefix, key, path)))) {
    return fallback > 0 ? mt_draft_integer_or(draft, prefix, key, MT_SIDE_MAX, fallback)
                        : mt_draft_integer(draft, prefix, key, MT_SIDE_MAX);
  }
  int64_t sides[2] = {1, 1};
  int32_t count = mt_draft_list(draft, prefix, key, 1, MT_SIDE_MAX, 2, sides);
  if (count != 2 || sides[0] != sides[1])
    mt_json_fail(draft->json, MOTET_ERROR_UNSUPPORTED, path, "only squares are supported");
  return sides[0];
}

void mt_draft_divides(mt_draft *draft, const char *prefix, const char *key, int64_t divisor, int64_t whole,
                      const char *what) {
  char path[PATH_SIZE];
  if (draft->json->status == MOTET_OK && whole % divisor != 0)
    mt_json_fail(draft->json, MOTET_ERROR_PARSE, path_of(prefix, key, path), "%lld does not divide %s %lld",
                 (long long)divisor, what, (long long)whole);
}

void mt_draft_holds(mt_draft *draft, const char *prefix, int64_t patch, int64_t image) {
  char path[PATH_SIZE];
  if (draft->json->status == MOTET_OK && patch > image)
    mt_json_fail(draft->json, MOTET_ERROR_PARSE, path_of(prefix, "patch_size", path),
                 "%lld is more than image_size %lld", (long long)patch, (long long)image);
}

mt_module_facts *mt_draft_module(mt_draft *draft, const char *name, uint32_t inputs, bool trainable) {
  int32_t module = draft->module_count++;
  draft->modules[module] = (mt_module){.name = name,
                                       .layer_begin = (int32_t)draft->layers.count,
                                       .layer_end = (int32_t)draft->layers.count,
                                       .inputs = inputs};
  draft->trainable[module] = trainable;
  draft->block = 0;
  return &draft->facts[module];
}

mt_layer_design *mt_draft_design(mt_draft *draft, const char *name) {
  if (draft->design_count == MT_DRAFT_DESIGNS) {
    draft->json->status = mt_error_set(draft->json->error, MOTET_ERROR_LIMIT,
                                       "the model has more than %d kinds of layers", MT_DRAFT_DESIGNS);
    draft->design_count--;
  }
  mt_layer_design *design = &draft->designs[draft->design_count++];
  *design = (mt_layer_design){.name = name};
  return design;
}

static const char *layer_name(mt_draft *draft, const char *suffix) {
  const char *module = draft->modules[draft->module_count - 1].name;
  if (suffix == NULL) return mt_arena_format(draft->arena, "%s.%d", module, draft->block++);
  if (suffix[0] == '\0') return mt_arena_text(draft->arena, module);
  return mt_arena_format(draft->arena, "%s.%s", module, suffix);
}

void mt_draft_layers(mt_draft *draft, const mt_layer_design *design, int64_t count, const char *suffix) {
  int32_t module = draft->module_count - 1;
  if (draft->json->status == MOTET_OK && design->overflow)
    draft->json->status =
        mt_error_set(draft->json->error, MOTET_ERROR_LIMIT,
                     "a %s has more parameters than 64 bits can count, or too many parts", design->name);
  for (int64_t i = 0; i < count && draft->json->status == MOTET_OK; i++) {
    mt_layer layer = {.name = layer_name(draft, suffix),
                      .module = module,
                      .kind = (int32_t)(design - draft->designs),
                      .trainable = draft->trainable[module],
                      .parameters = design->parameters};
    if (layer.name == NULL || !MT_ARRAY_PUSH(&draft->layers, layer))
      draft->json->status = mt_error_memory(draft->json->error, sizeof layer, "a layer");
  }
  draft->modules[module].layer_end = (int32_t)draft->layers.count;
}

void mt_draft_edge(mt_draft *draft, int32_t from, int32_t to) {
  draft->edges[draft->edge_count++] = (mt_module_edge){from, to};
}

void mt_block_attention(mt_layer_design *design, const mt_block *block) {
  int64_t query = block->heads * block->head_width, key = block->kv_heads * block->head_width;
  int bias = block->qkv_bias ? MT_LINEAR_BIAS : 0;
  mt_design_norm(design, block->rows, block->hidden, 1, block->norm_tensors);
  mt_design_linear(design, block->rows, block->hidden, query, bias | MT_LINEAR_SAVES);
  mt_design_linear(design, block->rows, block->hidden, key, bias);
  mt_design_linear(design, block->rows, block->hidden, key, bias);
  if (block->qk_norm_tensors > 0) {
    bool whole = block->qk_norm_whole;
    mt_design_head_norm(design, block->rows, whole ? query : block->head_width, whole ? 1 : block->heads,
                        block->qk_norm_tensors);
    mt_design_head_norm(design, block->rows, whole ? key : block->head_width, whole ? 1 : block->kv_heads,
                        block->qk_norm_tensors);
  }
  mt_attention attention = {.queries = block->rows,
                            .keys = block->rows,
                            .area = block->area,
                            .heads = block->heads,
                            .kv_heads = block->kv_heads,
                            .key_width = block->head_width,
                            .value_width = block->head_width};
  mt_design_attention(design, &attention);
  mt_design_linear(design, block->rows, query, block->hidden,
                   MT_LINEAR_SPLIT | (block->out_bias ? MT_LINEAR_BIAS : 0));
  mt_design_residual(design, block->rows, block->hidden);
  if (block->layer_scale) {
    mt_design_values(design, 1, block->hidden);
    mt_design_keep(design, block->rows, block->hidden);
  }
}

void mt_block_feed_forward(mt_layer_design *design, const mt_block *block) {
  int bias = block->mlp_bias ? MT_LINEAR_BIAS : 0;
  mt_design_norm(design, block->rows, block->hidden, 1, block->norm_tensors);
  mt_design_linear(design, block->rows, block->hidden, block->intermediate, bias | MT_LINEAR_SAVES);
  if (block->gated) mt_design_linear(design, block->rows, block->hidden, block->intermediate, bias);
  mt_design_activation(design, block->rows, block->intermediate, block->gated ? 2 : 1);
  mt_design_linear(design, block->rows, block->intermediate, block->hidden,
                   bias | MT_LINEAR_SAVES | MT_LINEAR_SPLIT);
  mt_design_residual(design, block->rows, block->hidden);
  if (block->layer_scale) {
    mt_design_values(design, 1, block->hidden);
    mt_design_keep(design, block->rows, block->hidden);
  }
}

void mt_block_design(mt_layer_design *design, const mt_block *block) {
  mt_block_attention(design, block);
  mt_block_feed_forward(design, block);
  mt_design_output(design, block->rows, block->hidden);
}
