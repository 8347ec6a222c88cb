/* The weights of every layer kind in both published forms, and the planning view that follows from them. */
#include "model/internvl.h"

#include <motet/program.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { FORM_CHAT = 1, FORM_HF = 2, FORM_BOTH = 3 };

/* Sizes that shapes are made of. */
typedef enum extent {
  NONE,
  ONE,
  VISION,
  VISION_3,
  VISION_UP,
  CHANNELS,
  PATCH,
  POSITIONS,
  SHUFFLED,
  HIDDEN,
  QUERY,
  KEY,
  QUERY_KEYS,
  HEAD,
  UP,
  VOCABULARY,
  EXTENTS
} extent;

/* A row without condition is always there. */
typedef enum condition {
  ALWAYS,
  LAYER_NORM,
  QKV_BIAS,
  QK_NORM,
  ATTENTION_BIAS,
  HEAD_NORM,
  UNTIED,
  CONDITIONS
} condition;

typedef struct row {
  int slot;
  int forms;
  const char *chat, *hf; /* name behind the layer's prefix; hf NULL: as chat */
  extent shape[4];
  condition when;
  bool decay;
} row;

static const row vision_embed[] = {
    {MT_VISION_EMBED_CLASS, FORM_BOTH, "class_embedding", "cls_token", {ONE, ONE, VISION}, ALWAYS, false},
    {MT_VISION_EMBED_POSITION,
     FORM_BOTH,
     "position_embedding",
     "position_embeddings",
     {ONE, POSITIONS, VISION},
     ALWAYS,
     false},
    {MT_VISION_EMBED_PATCH,
     FORM_BOTH,
     "patch_embedding.weight",
     "patch_embeddings.projection.weight",
     {VISION, CHANNELS, PATCH, PATCH},
     ALWAYS,
     true},
    {MT_VISION_EMBED_PATCH_BIAS,
     FORM_BOTH,
     "patch_embedding.bias",
     "patch_embeddings.projection.bias",
     {VISION},
     ALWAYS,
     false},
    {.slot = -1},
};

static const row vision_block[] = {
    {MT_VISION_BLOCK_NORM1, FORM_BOTH, "norm1.weight", "layernorm_before.weight", {VISION}, ALWAYS, false},
    {MT_VISION_BLOCK_NORM1_BIAS, FORM_BOTH, "norm1.bias", "layernorm_before.bias", {VISION}, LAYER_NORM, false},
    {MT_VISION_BLOCK_QKV, FORM_CHAT, "attn.qkv.weight", NULL, {VISION_3, VISION}, ALWAYS, true},
    {MT_VISION_BLOCK_QKV, FORM_HF, "", "attention.q_proj.weight", {VISION, VISION}, ALWAYS, true},
    {MT_VISION_BLOCK_QKV, FORM_HF, "", "attention.k_proj.weight", {VISION, VISION}, ALWAYS, true},
    {MT_VISION_BLOCK_QKV, FORM_HF, "", "attention.v_proj.weight", {VISION, VISION}, ALWAYS, true},
    {MT_VISION_BLOCK_QKV_BIAS, FORM_CHAT, "attn.qkv.bias", NULL, {VISION_3}, QKV_BIAS, false},
    {MT_VISION_BLOCK_QKV_BIAS, FORM_HF, "", "attention.q_proj.bias", {VISION}, QKV_BIAS, false},
    {MT_VISION_BLOCK_QKV_BIAS, FORM_HF, "", "attention.k_proj.bias", {VISION}, QKV_BIAS, false},
    {MT_VISION_BLOCK_QKV_BIAS, FORM_HF, "", "attention.v_proj.bias", {VISION}, QKV_BIAS, false},
    {MT_VISION_BLOCK_Q_NORM, FORM_BOTH, "attn.q_norm.weight", "attention.q_norm.weight", {VISION}, QK_NORM, false},
    {MT_VISION_BLOCK_K_NORM, FORM_BOTH, "attn.k_norm.weight", "attention.k_norm.weight", {VISION}, QK_NORM, false},
    {MT_VISION_BLOCK_OUT,
     FORM_BOTH,
     "attn.proj.weight",
     "attention.projection_layer.weight",
     {VISION, VISION},
     ALWAYS,
     true},
    {MT_VISION_BLOCK_OUT_BIAS,
     FORM_BOTH,
     "attn.proj.bias",
     "attention.projection_layer.bias",
     {VISION},
     ALWAYS,
     false},
    {MT_VISION_BLOCK_SCALE1, FORM_BOTH, "ls1", "lambda_1", {VISION}, ALWAYS, false},
    {MT_VISION_BLOCK_NORM2, FORM_BOTH, "norm2.weight", "layernorm_after.weight", {VISION}, ALWAYS, false},
    {MT_VISION_BLOCK_NORM2_BIAS, FORM_BOTH, "norm2.bias", "layernorm_after.bias", {VISION}, LAYER_NORM, false},
    {MT_VISION_BLOCK_UP, FORM_BOTH, "mlp.fc1.weight", NULL, {VISION_UP, VISION}, ALWAYS, true},
    {MT_VISION_BLOCK_UP_BIAS, FORM_BOTH, "mlp.fc1.bias", NULL, {VISION_UP}, ALWAYS, false},
    {MT_VISION_BLOCK_DOWN, FORM_BOTH, "mlp.fc2.weight", NULL, {VISION, VISION_UP}, ALWAYS, true},
    {MT_VISION_BLOCK_DOWN_BIAS, FORM_BOTH, "mlp.fc2.bias", NULL, {VISION}, ALWAYS, false},
    {MT_VISION_BLOCK_SCALE2, FORM_BOTH, "ls2", "lambda_2", {VISION}, ALWAYS, false},
    {.slot = -1},
};

static const row projector[] = {
    {MT_PROJECTOR_NORM, FORM_BOTH, "0.weight", "layer_norm.weight", {SHUFFLED}, ALWAYS, false},
    {MT_PROJECTOR_NORM_BIAS, FORM_BOTH, "0.bias", "layer_norm.bias", {SHUFFLED}, ALWAYS, false},
    {MT_PROJECTOR_IN, FORM_BOTH, "1.weight", "linear_1.weight", {HIDDEN, SHUFFLED}, ALWAYS, true},
    {MT_PROJECTOR_IN_BIAS, FORM_BOTH, "1.bias", "linear_1.bias", {HIDDEN}, ALWAYS, false},
    {MT_PROJECTOR_OUT, FORM_BOTH, "3.weight", "linear_2.weight", {HIDDEN, HIDDEN}, ALWAYS, true},
    {MT_PROJECTOR_OUT_BIAS, FORM_BOTH, "3.bias", "linear_2.bias", {HIDDEN}, ALWAYS, false},
    {.slot = -1},
};

static const row token_embed[] = {
    {MT_TOKEN_EMBED_WEIGHT, FORM_BOTH, "embed_tokens.weight", NULL, {VOCABULARY, HIDDEN}, ALWAYS, true},
    {.slot = -1},
};

static const row decoder_block[] = {
    {MT_DECODER_BLOCK_NORM1, FORM_BOTH, "input_layernorm.weight", NULL, {HIDDEN}, ALWAYS, false},
    {MT_DECODER_BLOCK_QKV, FORM_BOTH, "self_attn.q_proj.weight", NULL, {QUERY, HIDDEN}, ALWAYS, true},
    {MT_DECODER_BLOCK_QKV, FORM_BOTH, "self_attn.k_proj.weight", NULL, {KEY, HIDDEN}, ALWAYS, true},
    {MT_DECODER_BLOCK_QKV, FORM_BOTH, "self_attn.v_proj.weight", NULL, {KEY, HIDDEN}, ALWAYS, true},
    {MT_DECODER_BLOCK_QKV_BIAS, FORM_BOTH, "self_attn.q_proj.bias", NULL, {QUERY}, ATTENTION_BIAS, false},
    {MT_DECODER_BLOCK_QKV_BIAS, FORM_BOTH, "self_attn.k_proj.bias", NULL, {KEY}, ATTENTION_BIAS, false},
    {MT_DECODER_BLOCK_QKV_BIAS, FORM_BOTH, "self_attn.v_proj.bias", NULL, {KEY}, ATTENTION_BIAS, false},
    {MT_DECODER_BLOCK_Q_NORM, FORM_BOTH, "self_attn.q_norm.weight", NULL, {HEAD}, HEAD_NORM, false},
    {MT_DECODER_BLOCK_K_NORM, FORM_BOTH, "self_attn.k_norm.weight", NULL, {HEAD}, HEAD_NORM, false},
    {MT_DECODER_BLOCK_OUT, FORM_BOTH, "self_attn.o_proj.weight", NULL, {HIDDEN, QUERY}, ALWAYS, true},
    {MT_DECODER_BLOCK_NORM2, FORM_BOTH, "post_attention_layernorm.weight", NULL, {HIDDEN}, ALWAYS, false},
    {MT_DECODER_BLOCK_GATE_UP, FORM_BOTH, "mlp.gate_proj.weight", NULL, {UP, HIDDEN}, ALWAYS, true},
    {MT_DECODER_BLOCK_GATE_UP, FORM_BOTH, "mlp.up_proj.weight", NULL, {UP, HIDDEN}, ALWAYS, true},
    {MT_DECODER_BLOCK_DOWN, FORM_BOTH, "mlp.down_proj.weight", NULL, {HIDDEN, UP}, ALWAYS, true},
    {.slot = -1},
};

static const row internlm2_embed[] = {
    {MT_TOKEN_EMBED_WEIGHT, FORM_BOTH, "tok_embeddings.weight", NULL, {VOCABULARY, HIDDEN}, ALWAYS, true},
    {.slot = -1},
};

static const row internlm2_block[] = {
    {MT_DECODER_BLOCK_NORM1, FORM_BOTH, "attention_norm.weight", NULL, {HIDDEN}, ALWAYS, false},
    {MT_DECODER_BLOCK_QKV, FORM_BOTH, "attention.wqkv.weight", NULL, {QUERY_KEYS, HIDDEN}, ALWAYS, true},
    {MT_DECODER_BLOCK_OUT, FORM_BOTH, "attention.wo.weight", NULL, {HIDDEN, QUERY}, ALWAYS, true},
    {MT_DECODER_BLOCK_NORM2, FORM_BOTH, "ffn_norm.weight", NULL, {HIDDEN}, ALWAYS, false},
    {MT_DECODER_BLOCK_GATE_UP, FORM_BOTH, "feed_forward.w1.weight", NULL, {UP, HIDDEN}, ALWAYS, true},
    {MT_DECODER_BLOCK_GATE_UP, FORM_BOTH, "feed_forward.w3.weight", NULL, {UP, HIDDEN}, ALWAYS, true},
    {MT_DECODER_BLOCK_DOWN, FORM_BOTH, "feed_forward.w2.weight", NULL, {HIDDEN, UP}, ALWAYS, true},
    {.slot = -1},
};

static const row internlm2_head[] = {
    {MT_HEAD_NORM, FORM_BOTH, "model.norm.weight", NULL, {HIDDEN}, ALWAYS, false},
    {MT_HEAD_WEIGHT, FORM_BOTH, "output.weight", NULL, {VOCABULARY, HIDDEN}, UNTIED, true},
    {.slot = -1},
};

static const row head[] = {
    {MT_HEAD_NORM, FORM_BOTH, "model.norm.weight", NULL, {HIDDEN}, ALWAYS, false},
    {MT_HEAD_WEIGHT, FORM_BOTH, "lm_head.weight", NULL, {VOCABULARY, HIDDEN}, UNTIED, true},
    {.slot = -1},
};

/* A prefix that ends in '#' has the block's number and a dot there. */
static const struct {
  const row *rows;
  const char *chat, *hf;
} kinds[] = {
    [MT_INTERNVL_VISION_EMBED] = {vision_embed, "vision_model.embeddings.", "vision_tower.embeddings."},
    [MT_INTERNVL_VISION_BLOCK] = {vision_block, "vision_model.encoder.layers.#", "vision_tower.encoder.layer.#"},
    [MT_INTERNVL_PROJECTOR] = {projector, "mlp1.", "multi_modal_projector."},
    [MT_INTERNVL_TOKEN_EMBED] = {token_embed, "language_model.model.", "language_model.model."},
    [MT_INTERNVL_DECODER_BLOCK] = {decoder_block, "language_model.model.layers.#", "language_model.model.layers.#"},
    [MT_INTERNVL_HEAD] = {head, "language_model.", "language_model."},
};

/* The rows of a kind under the decoder's own names. */
static const row *rows_of(const mt_internvl *config, mt_internvl_kind kind) {
  if (config->decoder.names == MT_INTERNVL_NAMES_INTERNLM2) switch (kind) {
    case MT_INTERNVL_TOKEN_EMBED: return internlm2_embed;
    case MT_INTERNVL_DECODER_BLOCK: return internlm2_block;
    case MT_INTERNVL_HEAD: return internlm2_head;
    default: break;
    }
  return kinds[kind].rows;
}

int32_t mt_internvl_shuffle(const mt_internvl *config) {
  return (int32_t)lround(1.0 / (double)config->downsample_ratio);
}

int32_t mt_internvl_layer_count(const mt_internvl *config) {
  return config->vision.layers + config->decoder.layers + 4;
}

mt_internvl_kind mt_internvl_layer_kind(const mt_internvl *config, int32_t layer, int32_t *block) {
  int32_t vision = config->vision.layers, decoder = config->decoder.layers;
  *block = 0;
  if (layer == 0) return MT_INTERNVL_VISION_EMBED;
  if (layer <= vision) {
    *block = layer - 1;
    return MT_INTERNVL_VISION_BLOCK;
  }
  if (layer == vision + 1) return MT_INTERNVL_PROJECTOR;
  if (layer == vision + 2) return MT_INTERNVL_TOKEN_EMBED;
  if (layer == vision + decoder + 3) return MT_INTERNVL_HEAD;
  *block = layer - vision - 3;
  return MT_INTERNVL_DECODER_BLOCK;
}

static void fill_extents(const mt_internvl *config, int64_t extents[EXTENTS]) {
  const mt_internvl_vision *vision = &config->vision;
  const mt_internvl_decoder *decoder = &config->decoder;
  int64_t grid = vision->image_size / vision->patch_size, shuffle = mt_internvl_shuffle(config);
  const int64_t values[EXTENTS] = {
      [ONE] = 1,
      [VISION] = vision->hidden,
      [VISION_3] = 3 * (int64_t)vision->hidden,
      [VISION_UP] = vision->intermediate,
      [CHANNELS] = vision->channels,
      [PATCH] = vision->patch_size,
      [POSITIONS] = grid * grid + 1,
      [SHUFFLED] = vision->hidden * shuffle * shuffle,
      [HIDDEN] = decoder->hidden,
      [QUERY] = (int64_t)decoder->heads * decoder->head_dim,
      [KEY] = (int64_t)decoder->kv_heads * decoder->head_dim,
      [QUERY_KEYS] = ((int64_t)decoder->heads + 2 * (int64_t)decoder->kv_heads) * decoder->head_dim,
      [HEAD] = decoder->head_dim,
      [UP] = decoder->intermediate,
      [VOCABULARY] = decoder->vocabulary,
  };
  memcpy(extents, values, sizeof values);
}

/* The name in memory of the published library since its models lost the inner `model.`; files have both. */
static void write_alias(const mt_internvl *config, mt_internvl_weight *weight) {
  static const char inner[] = "language_model.model.", outer[] = "language_model.";
  weight->alias[0] = '\0';
  if (!config->hf_form) return;
  const char *name = weight->name;
  if (strncmp(name, inner, sizeof inner - 1) == 0)
    snprintf(weight->alias, sizeof weight->alias, "model.language_model.%.60s", name + sizeof inner - 1);
  else if (strncmp(name, outer, sizeof outer - 1) == 0)
    snprintf(weight->alias, sizeof weight->alias, "%.60s", name + sizeof outer - 1);
  else
    snprintf(weight->alias, sizeof weight->alias, "model.%.80s", name);
}

int32_t mt_internvl_weights(const mt_internvl *config, int32_t layer,
                            mt_internvl_weight weights[MT_INTERNVL_WEIGHTS_MAX]) {
  int32_t block, count = 0;
  mt_internvl_kind kind = mt_internvl_layer_kind(config, layer, &block);
  const char *prefix = config->hf_form ? kinds[kind].hf : kinds[kind].chat;
  int length = (int)strcspn(prefix, "#");
  char number[16] = "";
  if (prefix[length] == '#') snprintf(number, sizeof number, "%d.", block);
  int64_t extents[EXTENTS];
  fill_extents(config, extents);
  const bool holds[CONDITIONS] = {[ALWAYS] = true,
                                  [LAYER_NORM] = !config->vision.rms_norm,
                                  [QKV_BIAS] = config->vision.qkv_bias,
                                  [QK_NORM] = config->vision.qk_norm,
                                  [ATTENTION_BIAS] = config->decoder.attention_bias,
                                  [HEAD_NORM] = config->decoder.qk_norm,
                                  [UNTIED] = !config->decoder.tied_embeddings};
  for (const row *r = rows_of(config, kind); r->slot >= 0; r++) {
    if (!holds[r->when] || !(r->forms & (config->hf_form ? FORM_HF : FORM_CHAT))) continue;
    mt_internvl_weight *weight = &weights[count++];
    *weight = (mt_internvl_weight){.slot = r->slot, .count = 1, .decay = r->decay};
    const char *name = config->hf_form && r->hf != NULL ? r->hf : r->chat;
    snprintf(weight->name, sizeof weight->name, "%.*s%s%s", length, prefix, number, name);
    write_alias(config, weight);
    if (r->shape[0] == QUERY_KEYS)
      weight->grouping = (mt_internvl_grouping){.groups = config->decoder.kv_heads,
                                                .queries = config->decoder.heads / config->decoder.kv_heads,
                                                .rows = config->decoder.head_dim};
    for (; weight->dims < 4 && r->shape[weight->dims] != NONE; weight->dims++) {
      weight->shape[weight->dims] = extents[r->shape[weight->dims]];
      weight->count *= weight->shape[weight->dims];
    }
  }
  return count;
}

motet_status mt_internvl_model(mt_arena *arena, const mt_internvl *config, const bool trainable[3],
                               motet_error *error, mt_model **result) {
  static const char *const names[] = {"vision", "projector", "llm"};
  const int32_t layers[] = {config->vision.layers + 1, 1, config->decoder.layers + 2};
  mt_model *model;
  motet_status status = mt_model_abstract(arena, 3, names, layers, trainable, error, &model);
  if (status != MOTET_OK) return status;
  for (int32_t layer = 0; layer < model->layer_count; layer++) {
    mt_internvl_weight weights[MT_INTERNVL_WEIGHTS_MAX];
    int32_t block, count = mt_internvl_weights(config, layer, weights);
    mt_internvl_kind kind = mt_internvl_layer_kind(config, layer, &block);
    mt_layer *described = &model->layers[layer];
    described->kind = (int32_t)kind;
    for (int32_t w = 0; w < count; w++) described->parameters += weights[w].count;
    const char *name = kind == MT_INTERNVL_VISION_EMBED  ? "vision.embed"
                       : kind == MT_INTERNVL_PROJECTOR   ? "projector"
                       : kind == MT_INTERNVL_TOKEN_EMBED ? "llm.embed"
                       : kind == MT_INTERNVL_HEAD        ? "llm.head"
                                                         : NULL;
    described->name = name != NULL ? mt_arena_text(arena, name)
                                   : mt_arena_format(arena, "%s.%d", names[described->module], block);
    if (described->name == NULL) return mt_error_memory(error, sizeof weights[0].name, "a layer name");
  }
  model->modules[0].inputs = MOTET_INPUT_PIXELS;
  model->modules[2].inputs = MOTET_INPUT_TOKENS;
  model->last_inputs = MOTET_INPUT_LABELS;
  model->tied_embeddings = config->decoder.tied_embeddings;
  *result = model;
  return MOTET_OK;
}
