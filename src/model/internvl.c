#include "model/internvl.h"

#include "model/json.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* Beyond these no model exists; a larger number is a slip of the pen, and products of two of them fit 64 bits. */
enum {
  LAYERS_MAX = 4096,
  WIDTH_MAX = 1 << 20,
  HEADS_MAX = 4096,
  VOCABULARY_MAX = 1 << 26,
  IMAGE_MAX = 1 << 14,
  POSITIONS_MAX = 1 << 30,
  TILES_MAX = 4096
};

/* What the two published forms call the same thing, and what each assumes where the file is silent. */
typedef struct form {
  const char *model_type;
  const char *decoder;
  const char *qkv_bias, *qk_norm, *select_layer;
  bool qk_norm_default;
  const char *norm_default;
} form;

static const form forms[] = {
    {"internvl_chat", "llm_config", "vision_config.qkv_bias", "vision_config.qk_normalization", "select_layer",
     true, "rms_norm"},
    {"internvl", "text_config", "vision_config.attention_bias", "vision_config.use_qk_norm", "vision_feature_layer",
     false, "layer_norm"},
};

static motet_status unsupported(mt_json *json, const char *key, const char *is, const char *wanted) {
  return mt_json_fail(json, MOTET_ERROR_UNSUPPORTED, key, "\"%s\" is not supported; %s is", is, wanted);
}

static void want_text(mt_json *json, const char *key, const char *wanted) {
  const char *text = mt_json_text_or(json, key, wanted);
  if (strcmp(text, wanted) != 0) unsupported(json, key, text, wanted);
}

static void want_boolean(mt_json *json, const char *key, bool wanted) {
  if (mt_json_boolean_or(json, key, wanted) != wanted)
    mt_json_fail(json, MOTET_ERROR_UNSUPPORTED, key, "%s is not supported; %s is", wanted ? "false" : "true",
                 wanted ? "true" : "false");
}

static void want_zero(mt_json *json, const char *key) {
  if (mt_json_number_or(json, key, 0, 1, 0) > 0)
    mt_json_fail(json, MOTET_ERROR_UNSUPPORTED, key, "dropout is not supported; 0 is");
}

/* Images and patches are squares: one number, or a pair of equal ones as the -hf form writes them. */
static int32_t read_square(mt_json *json, const char *key, int64_t fallback) {
  const json_t *value = mt_json_find(json, key);
  if (!json_is_array(value)) return (int32_t)mt_json_integer_or(json, key, 1, IMAGE_MAX, fallback);
  const json_t *height = json_array_get(value, 0), *width = json_array_get(value, 1);
  if (json_array_size(value) != 2 || !json_is_integer(height) || !json_is_integer(width)) {
    mt_json_fail(json, MOTET_ERROR_PARSE, key, "must be a whole number or a pair of them");
    return 1;
  }
  int64_t side = json_integer_value(height);
  if (side != json_integer_value(width)) {
    mt_json_fail(json, MOTET_ERROR_UNSUPPORTED, key, "only squares are supported, not %lld x %lld", (long long)side,
                 (long long)json_integer_value(width));
    return 1;
  }
  if (side < 1 || side > IMAGE_MAX) {
    mt_json_fail(json, MOTET_ERROR_PARSE, key, "is %lld; 1 to %d belongs here", (long long)side, IMAGE_MAX);
    return 1;
  }
  return (int32_t)side;
}

static void read_vision(mt_json *json, const form *keys, mt_internvl_vision *vision) {
  vision->layers = (int32_t)mt_json_integer(json, "vision_config.num_hidden_layers", 1, LAYERS_MAX);
  vision->hidden = (int32_t)mt_json_integer(json, "vision_config.hidden_size", 1, WIDTH_MAX);
  vision->intermediate = (int32_t)mt_json_integer(json, "vision_config.intermediate_size", 1, WIDTH_MAX);
  vision->heads = (int32_t)mt_json_integer(json, "vision_config.num_attention_heads", 1, HEADS_MAX);
  if (mt_json_find(json, "vision_config.image_size") == NULL)
    mt_json_integer(json, "vision_config.image_size", 1, IMAGE_MAX); /* reports it as missing */
  vision->image_size = read_square(json, "vision_config.image_size", 0);
  vision->patch_size = read_square(json, "vision_config.patch_size", 14);
  vision->channels = (int32_t)mt_json_integer_or(json, "vision_config.num_channels", 1, 64, 3);
  vision->norm_epsilon = (float)mt_json_number_or(json, "vision_config.layer_norm_eps", 1e-12, 0.1, 1e-6);
  vision->qkv_bias = mt_json_boolean_or(json, keys->qkv_bias, false);
  vision->qk_norm = mt_json_boolean_or(json, keys->qk_norm, keys->qk_norm_default);
  const char *norm = mt_json_text_or(json, "vision_config.norm_type", keys->norm_default);
  vision->rms_norm = strcmp(norm, "rms_norm") == 0;
  if (!vision->rms_norm && strcmp(norm, "layer_norm") != 0)
    unsupported(json, "vision_config.norm_type", norm, "\"layer_norm\" or \"rms_norm\"");
  want_text(json, "vision_config.hidden_act", "gelu");
  want_zero(json, "vision_config.attention_dropout");
  want_zero(json, "vision_config.dropout");
  want_zero(json, "vision_config.hidden_dropout_prob");
  want_zero(json, "vision_config.projection_dropout");
  want_boolean(json, "vision_config.use_mask_token", false);
  want_boolean(json, "vision_config.use_absolute_position_embeddings", true);
  want_boolean(json, "vision_config.use_mean_pooling", true);
  if (json->status != MOTET_OK) return;
  if (vision->hidden % vision->heads != 0)
    mt_json_fail(json, MOTET_ERROR_PARSE, "vision_config.num_attention_heads",
                 "%d heads do not divide hidden_size %d", vision->heads, vision->hidden);
  if (vision->image_size % vision->patch_size != 0)
    mt_json_fail(json, MOTET_ERROR_PARSE, "vision_config.image_size", "%d is not a multiple of patch_size %d",
                 vision->image_size, vision->patch_size);
}

/* Key inside the decoder's object; the result lives until the next call with the same buffer. */
static const char *inside(const form *keys, const char *key, char path[MOTET_ERROR_KEY_SIZE]) {
  snprintf(path, MOTET_ERROR_KEY_SIZE, "%s.%s", keys->decoder, key);
  return path;
}

/* rope_theta and rope_scaling, or both in rope_parameters as newer files have it. */
static void read_rotary(mt_json *json, const form *keys, mt_internvl_decoder *decoder) {
  char path[MOTET_ERROR_KEY_SIZE];
  bool joined = mt_json_find(json, inside(keys, "rope_parameters", path)) != NULL;
  const char *theta = joined ? "rope_parameters.rope_theta" : "rope_theta";
  decoder->rope_theta = mt_json_number_or(json, inside(keys, theta, path), 1.0, 1e12, 10000.0);
  decoder->rope_factor = 0;
  const char *type = joined ? "rope_parameters.rope_type" : "rope_scaling.rope_type";
  if (mt_json_find(json, inside(keys, type, path)) == NULL) type = joined ? type : "rope_scaling.type";
  const char *kind = mt_json_text_or(json, inside(keys, type, path), "default");
  if (strcmp(kind, "default") == 0) return;
  if (strcmp(kind, "dynamic") != 0) {
    unsupported(json, path, kind, "\"default\" or \"dynamic\"");
    return;
  }
  const char *factor = joined ? "rope_parameters.factor" : "rope_scaling.factor";
  decoder->rope_factor = mt_json_number_or(json, inside(keys, factor, path), 1.0, 1e6, 1.0);
  if (decoder->max_positions == 0)
    mt_json_fail(json, MOTET_ERROR_PARSE, inside(keys, "max_position_embeddings", path),
                 "missing; dynamic rope scaling starts behind it");
}

/* What a decoder's model_type says. */
static const struct {
  const char *type;
  mt_internvl_names names;
  bool attention_bias;           /* on q, k and v */
  bool qk_norm;                  /* a norm over each head of q and k */
  const char *switches[2];       /* keys that would put biases where none are supported */
  bool switched;                 /* what the first one is where the file is silent */
  int32_t positions;             /* trained length where the file is silent; 0: unknown */
  int32_t head_dim;              /* where the file is silent; 0: hidden_size / heads */
  bool chat_alone;               /* published in the original form alone */
  mt_internvl_template template; /* where the file is silent */
} decoders[] = {
    {.type = "qwen2", .attention_bias = true},
    {.type = "qwen3", .qk_norm = true, .switches = {"attention_bias"}, .head_dim = 128},
    {.type = "llama", .switches = {"attention_bias", "mlp_bias"}, .template = MT_INTERNVL_TEMPLATE_HERMES2},
    {.type = "internlm2",
     .names = MT_INTERNVL_NAMES_INTERNLM2,
     .switches = {"bias"},
     .switched = true,
     .positions = 2048,
     .chat_alone = true,
     .template = MT_INTERNVL_TEMPLATE_INTERNLM2},
};
enum { DECODERS = sizeof decoders / sizeof *decoders };

static int find_decoder(mt_json *json, const char *key) {
  static const char known[] = "\"qwen2\", \"qwen3\", \"llama\" or \"internlm2\"";
  const char *type = mt_json_text_or(json, key, "");
  for (int d = 0; d < DECODERS; d++)
    if (strcmp(type, decoders[d].type) == 0) return d;
  if (json->status == MOTET_OK && type[0] == '\0')
    mt_json_fail(json, MOTET_ERROR_PARSE, key, "missing; the decoder's type belongs here, %s", known);
  unsupported(json, key, type, known);
  return -1;
}

static void read_decoder(mt_json *json, const form *keys, mt_internvl_decoder *decoder) {
  char path[MOTET_ERROR_KEY_SIZE];
  const int kind = find_decoder(json, inside(keys, "model_type", path));
  if (kind < 0) return;
  if (decoders[kind].chat_alone && keys != &forms[0])
    unsupported(json, path, decoders[kind].type, "its original form, model_type \"internvl_chat\",");
  decoder->names = decoders[kind].names;
  decoder->layers = (int32_t)mt_json_integer(json, inside(keys, "num_hidden_layers", path), 1, LAYERS_MAX);
  decoder->hidden = (int32_t)mt_json_integer(json, inside(keys, "hidden_size", path), 1, WIDTH_MAX);
  decoder->intermediate = (int32_t)mt_json_integer(json, inside(keys, "intermediate_size", path), 1, WIDTH_MAX);
  decoder->heads = (int32_t)mt_json_integer(json, inside(keys, "num_attention_heads", path), 1, HEADS_MAX);
  decoder->kv_heads =
      (int32_t)mt_json_integer_or(json, inside(keys, "num_key_value_heads", path), 1, HEADS_MAX, decoder->heads);
  decoder->vocabulary = (int32_t)mt_json_integer(json, inside(keys, "vocab_size", path), 1, VOCABULARY_MAX);
  decoder->norm_epsilon = (float)mt_json_number_or(json, inside(keys, "rms_norm_eps", path), 1e-12, 0.1, 1e-6);
  decoder->max_positions = (int32_t)mt_json_integer_or(json, inside(keys, "max_position_embeddings", path), 1,
                                                       POSITIONS_MAX, decoders[kind].positions);
  decoder->attention_bias = decoders[kind].attention_bias;
  decoder->qk_norm = decoders[kind].qk_norm;
  /* Llama's and InternLM2's switches would put one on the output projection too. */
  for (int s = 0; s < 2 && decoders[kind].switches[s] != NULL; s++)
    if (mt_json_boolean_or(json, inside(keys, decoders[kind].switches[s], path), s == 0 && decoders[kind].switched))
      mt_json_fail(json, MOTET_ERROR_UNSUPPORTED, path, "true%s is not supported; false is",
                   mt_json_find(json, path) == NULL ? ", which it means where it is missing," : "");
  want_text(json, inside(keys, "hidden_act", path), "silu");
  want_zero(json, inside(keys, "attention_dropout", path));
  want_boolean(json, inside(keys, "use_sliding_window", path), false);
  read_rotary(json, keys, decoder);
  /* Newer -hf files state the tie at the top, older ones in the decoder alone. */
  bool tied = mt_json_boolean_or(json, inside(keys, "tie_word_embeddings", path), false);
  decoder->tied_embeddings = mt_json_boolean_or(json, "tie_word_embeddings", tied);
  if (json->status != MOTET_OK) return;
  inside(keys, "head_dim", path);
  const int32_t usual = decoders[kind].head_dim;
  if (mt_json_find(json, path) == NULL && usual == 0 && decoder->hidden % decoder->heads != 0) {
    mt_json_fail(json, MOTET_ERROR_PARSE, inside(keys, "num_attention_heads", path),
                 "%d heads do not divide hidden_size %d", decoder->heads, decoder->hidden);
    return;
  }
  decoder->head_dim =
      (int32_t)mt_json_integer_or(json, path, 1, 4096, usual > 0 ? usual : decoder->hidden / decoder->heads);
  if (decoder->head_dim % 2 != 0)
    mt_json_fail(json, MOTET_ERROR_PARSE, path, "is %d; rotary embedding needs an even one", decoder->head_dim);
  if (decoder->heads % decoder->kv_heads != 0)
    mt_json_fail(json, MOTET_ERROR_PARSE, inside(keys, "num_key_value_heads", path),
                 "%d key and value heads do not divide %d heads", decoder->kv_heads, decoder->heads);
}

/* Which block's output is taken: -1 the last, -2 the one before; 0 the embeddings, 1 the first block, ... */
static void read_select_layer(mt_json *json, const char *key, mt_internvl *config) {
  if (json_is_array(mt_json_find(json, key))) {
    mt_json_fail(json, MOTET_ERROR_UNSUPPORTED, key, "a list of layers is not supported; one number is");
    return;
  }
  int64_t layers = config->vision.layers;
  int64_t select = mt_json_integer_or(json, key, -layers - 1, layers, -1);
  config->vision_select_layer = (int32_t)select;
  config->vision.layers = (int32_t)(select < 0 ? layers + 1 + select : select);
}

static void read_tiles(mt_json *json, mt_internvl *config) {
  bool dynamic = config->hf_form || mt_json_boolean_or(json, "dynamic_image_size", false);
  config->min_tiles = (int32_t)mt_json_integer_or(json, "min_dynamic_patch", 1, TILES_MAX, 1);
  config->max_tiles =
      (int32_t)mt_json_integer_or(json, "max_dynamic_patch", 1, TILES_MAX, config->hf_form ? 12 : 6);
  config->use_thumbnail = mt_json_boolean_or(json, "use_thumbnail", config->hf_form);
  if (config->max_tiles < config->min_tiles)
    mt_json_fail(json, MOTET_ERROR_PARSE, "max_dynamic_patch", "%d is less than min_dynamic_patch %d",
                 config->max_tiles, config->min_tiles);
  if (!dynamic) config->min_tiles = config->max_tiles = 1;
}

static void read_shuffle(mt_json *json, mt_internvl *config) {
  double ratio = mt_json_number_or(json, "downsample_ratio", 1.0 / 64, 1.0, 0.5);
  config->downsample_ratio = (float)ratio;
  int32_t side = mt_internvl_shuffle(config), grid = config->vision.image_size / config->vision.patch_size;
  if (json->status != MOTET_OK) return;
  if ((float)(1.0 / side) != config->downsample_ratio) {
    mt_json_fail(json, MOTET_ERROR_UNSUPPORTED, "downsample_ratio", "%g is not one over a whole number", ratio);
    return;
  }
  if (grid % side != 0) {
    mt_json_fail(json, MOTET_ERROR_PARSE, "downsample_ratio", "a grid of %d x %d patches cannot be shuffled by %d",
                 grid, grid, side);
    return;
  }
  config->tokens_per_tile = grid / side * (grid / side);
}

static void read_template(mt_json *json, mt_internvl *config) {
  static const struct {
    const char *name;
    mt_internvl_template template;
  } templates[] = {{"internvl2_5", MT_INTERNVL_TEMPLATE_INTERNVL2_5},
                   {"Hermes-2", MT_INTERNVL_TEMPLATE_HERMES2},
                   {"internlm2-chat", MT_INTERNVL_TEMPLATE_INTERNLM2}};
  const char *name = mt_json_text_or(json, "template", "");
  if (name[0] == '\0') {
    const char *type = mt_json_text_or(json, "llm_config.model_type", "");
    for (int d = 0; d < DECODERS; d++)
      if (strcmp(type, decoders[d].type) == 0) config->template = decoders[d].template;
    return;
  }
  for (size_t t = 0; t < sizeof templates / sizeof *templates; t++)
    if (strcmp(name, templates[t].name) == 0) {
      config->template = templates[t].template;
      return;
    }
  unsupported(json, "template", name, "\"internvl2_5\", \"Hermes-2\" or \"internlm2-chat\"");
}

static void read_chat(mt_json *json, mt_internvl *config) {
  want_text(json, "ps_version", "v2");
  if (mt_json_find(json, "ps_version") == NULL)
    mt_json_fail(json, MOTET_ERROR_UNSUPPORTED, "ps_version",
                 "missing, which means \"v1\"; only \"v2\" is supported");
  int64_t size = config->vision.image_size;
  int64_t forced = mt_json_integer_or(json, "force_image_size", 1, IMAGE_MAX, size);
  if (forced != size)
    mt_json_fail(json, MOTET_ERROR_UNSUPPORTED, "force_image_size",
                 "%lld differs from vision_config.image_size %lld; interpolated positions are not supported",
                 (long long)forced, (long long)size);
  read_template(json, config);
  config->image_token = -1; /* a token of the tokenizer: <IMG_CONTEXT> */
}

static void read_hf(mt_json *json, mt_internvl *config) {
  want_text(json, "vision_feature_select_strategy", "default");
  want_text(json, "projector_hidden_act", "gelu");
  int64_t last = config->decoder.vocabulary - 1;
  config->image_token = (int32_t)mt_json_integer(json, "image_token_id", 0, last);
  int64_t tokens = mt_json_integer_or(json, "image_seq_length", 1, INT32_MAX, config->tokens_per_tile);
  if (config->tokens_per_tile != tokens)
    mt_json_fail(json, MOTET_ERROR_PARSE, "image_seq_length", "is %lld, but a tile of this model has %d features",
                 (long long)tokens, config->tokens_per_tile);
}

/* Which form it is, or NULL with an error. */
static const form *find_form(mt_json *json) {
  const char *type = mt_json_text_or(json, "model_type", "");
  for (size_t f = 0; f < sizeof forms / sizeof *forms; f++)
    if (strcmp(type, forms[f].model_type) == 0) return &forms[f];
  if (type[0] == '\0')
    mt_json_fail(json, MOTET_ERROR_PARSE, "model_type", "missing; \"internvl_chat\" or \"internvl\" belongs here");
  unsupported(json, "model_type", type, "\"internvl_chat\" or \"internvl\"");
  return NULL;
}

static motet_status read_model(mt_json *json, mt_internvl *config) {
  *config = (mt_internvl){0};
  const form *keys = find_form(json);
  if (keys == NULL) return json->status;
  config->hf_form = keys == &forms[1];
  const char *parts[] = {"vision_config", keys->decoder};
  for (int part = 0; part < 2; part++)
    if (!json_is_object(mt_json_find(json, parts[part])))
      return mt_json_fail(json, MOTET_ERROR_PARSE, parts[part], "missing; an object {...} belongs here");
  read_decoder(json, keys, &config->decoder);
  if (json->status == MOTET_OK) read_vision(json, keys, &config->vision);
  if (json->status != MOTET_OK) return json->status;
  read_select_layer(json, keys->select_layer, config);
  read_tiles(json, config);
  read_shuffle(json, config);
  if (json->status != MOTET_OK) return json->status;
  if (config->hf_form)
    read_hf(json, config);
  else
    read_chat(json, config);
  return json->status;
}

motet_status mt_internvl_read(const char *path, motet_error *error, mt_internvl *config) {
  mt_json json;
  motet_status status = mt_json_open(path, "config.json", error, &json);
  if (status != MOTET_OK) return status;
  status = read_model(&json, config);
  mt_json_close(&json);
  return status;
}

motet_status mt_internvl_parse(const void *data, size_t bytes, const char *name, motet_error *error,
                               mt_internvl *config) {
  mt_json json;
  motet_status status = mt_json_parse(data, bytes, name, error, &json);
  if (status != MOTET_OK) return status;
  status = read_model(&json, config);
  mt_json_close(&json);
  return status;
}

/* What a model of given weights computes with; not how its files call them, nor how pictures are cut. */
#define FIELD(name)                                                                                                \
  { #name, offsetof(mt_internvl, name), sizeof((mt_internvl *)0)->name }
static const struct {
  const char *name;
  size_t offset, bytes;
} FIELDS[] = {
    FIELD(vision.layers),           FIELD(vision.hidden),
    FIELD(vision.intermediate),     FIELD(vision.heads),
    FIELD(vision.image_size),       FIELD(vision.patch_size),
    FIELD(vision.channels),         FIELD(vision.norm_epsilon),
    FIELD(vision.rms_norm),         FIELD(vision.qkv_bias),
    FIELD(vision.qk_norm),          FIELD(decoder.layers),
    FIELD(decoder.hidden),          FIELD(decoder.intermediate),
    FIELD(decoder.heads),           FIELD(decoder.kv_heads),
    FIELD(decoder.head_dim),        FIELD(decoder.vocabulary),
    FIELD(decoder.norm_epsilon),    FIELD(decoder.rope_theta),
    FIELD(decoder.rope_factor),     FIELD(decoder.max_positions),
    FIELD(decoder.attention_bias),  FIELD(decoder.qk_norm),
    FIELD(decoder.tied_embeddings), FIELD(downsample_ratio),
};

const char *mt_internvl_difference(const mt_internvl *one, const mt_internvl *other) {
  for (size_t i = 0; i < sizeof FIELDS / sizeof *FIELDS; i++)
    if (memcmp((const char *)one + FIELDS[i].offset, (const char *)other + FIELDS[i].offset, FIELDS[i].bytes) != 0)
      return FIELDS[i].name;
  return NULL;
}
