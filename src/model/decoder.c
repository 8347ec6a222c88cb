/* Causal decoders of text: Llama, Mistral, Phi-3, Granite, Qwen2, Qwen3, InternLM2, Nemotron, dense or with routed
 * experts. */
#include "model/draft.h"

#include <motet/program.h>

#include <string.h>

/* Whether sliding_window is heeded: never, always, or where use_sliding_window is true. */
typedef enum window_rule { WINDOW_NEVER, WINDOW_ALWAYS, WINDOW_SWITCHED } window_rule;

/* What a decoder's model_type says about biases and norms where the config is silent. */
typedef struct decoder_kind {
  const char *name;
  bool qkv_bias;        /* always there */
  const char *all_bias; /* key of a switch for the biases of all four projections, or NULL */
  bool mlp_switch;      /* mlp_bias may switch biases of the feed-forward on */
  bool qk_norm;
  bool head_width_apart; /* head_dim has a default of its own */
  const char *experts;   /* key of the number of routed experts, or NULL */
  bool plain;            /* LayerNorms, and no gate in the feed-forward */
  int64_t kv_heads;      /* where the config does not say; 0: as many as heads */
  window_rule window;
  int64_t window_usual;  /* tokens, where the config does not say; 0: all */
  int64_t windowed_from; /* max_window_layers where the config does not say; 0: there is no such key */
} decoder_kind;

static const decoder_kind kinds[] = {
    {"llama", false, "attention_bias", true, false, false, NULL, false, 0, WINDOW_NEVER, 0, 0},
    {"mistral", false, NULL, false, false, false, NULL, false, 8, WINDOW_ALWAYS, 4096, 0},
    {"phi3", false, NULL, false, false, false, NULL, false, 0, WINDOW_ALWAYS, 0, 0},
    {"granite", false, "attention_bias", true, false, false, NULL, false, 0, WINDOW_NEVER, 0, 0},
    {"mixtral", false, NULL, false, false, false, "num_local_experts", false, 8, WINDOW_ALWAYS, 0, 0},
    {"nemotron", false, "attention_bias", true, false, false, NULL, true, 0, WINDOW_NEVER, 0, 0},
    {"qwen2", true, NULL, false, false, false, NULL, false, 32, WINDOW_SWITCHED, 4096, 28},
    {"qwen2_vl_text", true, NULL, false, false, false, NULL, false, 0, WINDOW_SWITCHED, 4096, 80},
    {"qwen2_5_vl_text", true, NULL, false, false, false, NULL, false, 0, WINDOW_SWITCHED, 4096, 80},
    {"internlm2", false, "bias", false, false, false, NULL, false, 0, WINDOW_NEVER, 0, 0},
    {"qwen3", false, "attention_bias", false, true, true, NULL, false, 32, WINDOW_SWITCHED, 4096, 28},
    {"qwen3_vl_text", false, "attention_bias", false, true, true, NULL, false, 0, WINDOW_NEVER, 0, 0},
    {"qwen3_moe", false, "attention_bias", false, true, false, "num_experts", false, 4, WINDOW_SWITCHED, 4096, 0},
    {"qwen3_vl_moe_text", false, "attention_bias", false, true, false, "num_experts", false, 0, WINDOW_NEVER, 0, 0},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static const decoder_kind *find_kind(mt_draft *draft, const char *prefix, const char *type) {
  for (int k = 0; k < KINDS; k++)
    if (strcmp(type, kinds[k].name) == 0) return &kinds[k];
  mt_draft_fail(draft, MOTET_ERROR_UNSUPPORTED, prefix, "model_type",
                "no decoder of this kind is known; llama, mistral, mixtral, phi3, granite, nemotron, qwen2, qwen3, "
                "qwen3_moe and internlm2 are");
  return NULL;
}

/* Mixtral's experts have the width that a dense layer would have. Their number has two names: transformers 5 saves
 * Qwen's under Mixtral's. */
static void read_experts(mt_draft *draft, const char *prefix, const char *key, mt_decoder *decoder) {
  static const char *const names[] = {"num_experts", "num_local_experts"};
  const char *found = key;
  for (int n = 0; n < 2; n++)
    if (!mt_draft_has(draft, prefix, key) && mt_draft_has(draft, prefix, names[n])) found = names[n];
  decoder->experts = mt_draft_integer(draft, prefix, found, MT_EXPERTS_MAX);
  decoder->experts_per_token = mt_draft_integer(draft, prefix, "num_experts_per_tok", decoder->experts);
  const char *width = strcmp(key, "num_local_experts") == 0 ? "intermediate_size" : "moe_intermediate_size";
  decoder->expert_width = mt_draft_integer(draft, prefix, width, MT_WIDTH_MAX);
  decoder->sparse_step = mt_draft_integer_or(draft, prefix, "decoder_sparse_step", MT_LAYERS_MAX, 1);
}

static void read_window(mt_draft *draft, const char *prefix, const decoder_kind *kind, mt_decoder *decoder) {
  bool heeded = kind->window == WINDOW_ALWAYS ||
                (kind->window == WINDOW_SWITCHED && mt_draft_flag(draft, prefix, "use_sliding_window", false));
  if (!heeded || mt_draft_is_null(draft, prefix, "sliding_window") ||
      (kind->window_usual == 0 && !mt_draft_has(draft, prefix, "sliding_window")))
    return;
  decoder->window = mt_draft_integer_or(draft, prefix, "sliding_window", INT32_MAX, kind->window_usual);
  if (kind->windowed_from > 0)
    decoder->windowed_from = mt_draft_count_or(draft, prefix, "max_window_layers", INT32_MAX, kind->windowed_from);
}

void mt_decoder_read(mt_draft *draft, const char *prefix, const char *type, mt_decoder *decoder) {
  *decoder = (mt_decoder){.prefix = prefix};
  const decoder_kind *kind = find_kind(draft, prefix, type);
  if (kind == NULL) return;
  mt_block *block = &decoder->block;
  *block = (mt_block){
      .rows = MT_ROWS_TEXT, .area = MT_AREA_TEXT, .norm_tensors = kind->plain ? 2 : 1, .gated = !kind->plain};
  decoder->layers = mt_draft_integer(draft, prefix, "num_hidden_layers", MT_LAYERS_MAX);
  block->hidden = mt_draft_integer(draft, prefix, "hidden_size", MT_WIDTH_MAX);
  block->heads = mt_draft_integer(draft, prefix, "num_attention_heads", MT_HEADS_MAX);
  bool as_heads = kind->kv_heads == 0 || mt_draft_is_null(draft, prefix, "num_key_value_heads");
  block->kv_heads = mt_draft_integer_or(draft, prefix, "num_key_value_heads", MT_HEADS_MAX,
                                        as_heads ? block->heads : kind->kv_heads);
  block->intermediate = kind->experts != NULL
                            ? mt_draft_integer_or(draft, prefix, "intermediate_size", MT_WIDTH_MAX, 1)
                            : mt_draft_integer(draft, prefix, "intermediate_size", MT_WIDTH_MAX);
  decoder->vocabulary = mt_draft_integer(draft, prefix, "vocab_size", MT_VOCABULARY_MAX);
  decoder->tied =
      mt_draft_flag(draft, "", "tie_word_embeddings", mt_draft_flag(draft, prefix, "tie_word_embeddings", false));
  bool all_bias = kind->all_bias != NULL && mt_draft_flag(draft, prefix, kind->all_bias, false);
  block->qkv_bias = kind->qkv_bias || all_bias;
  block->out_bias = all_bias;
  block->mlp_bias = kind->mlp_switch && mt_draft_flag(draft, prefix, "mlp_bias", false);
  block->qk_norm_tensors = kind->qk_norm ? 1 : 0;
  if (kind->experts != NULL) read_experts(draft, prefix, kind->experts, decoder);
  read_window(draft, prefix, kind, decoder);
  if (!mt_draft_has(draft, prefix, "head_dim") && !kind->head_width_apart)
    mt_draft_divides(draft, prefix, "num_attention_heads", block->heads, block->hidden, "hidden_size");
  int64_t usual = kind->head_width_apart ? 128 : block->hidden / block->heads;
  block->head_width = mt_draft_integer_or(draft, prefix, "head_dim", MT_HEADS_MAX, usual > 0 ? usual : 1);
  mt_draft_divides(draft, prefix, "num_key_value_heads", block->kv_heads, block->heads, "num_attention_heads");
}

static void design_routed(mt_layer_design *design, const mt_decoder *decoder, const mt_block *block) {
  mt_block_attention(design, block);
  mt_design_norm(design, block->rows, block->hidden, 1, 1);
  mt_design_linear(design, block->rows, block->hidden, decoder->experts, MT_LINEAR_SAVES);
  mt_design_factor(design, block->rows, decoder->experts, 2); /* the router's softmax */
  mt_design_experts(design, MT_ROWS_ROUTED, decoder->experts, block->hidden, decoder->expert_width,
                    MT_LINEAR_SAVES);
  mt_design_experts(design, MT_ROWS_ROUTED, decoder->experts, block->hidden, decoder->expert_width, 0);
  mt_design_activation(design, MT_ROWS_ROUTED, decoder->expert_width, 2);
  mt_design_experts(design, MT_ROWS_ROUTED, decoder->experts, decoder->expert_width, block->hidden,
                    MT_LINEAR_SAVES | MT_LINEAR_SPLIT);
  /* The router's weights multiply what experts give: their gradient needs it. */
  mt_design_reorder(design, MT_ROWS_ROUTED, block->hidden); /* by expert */
  mt_design_factor(design, MT_ROWS_ROUTED, block->hidden, 2);
  mt_design_residual(design, block->rows, block->hidden);
}

void mt_decoder_head(mt_draft *draft, const mt_decoder *decoder, const char *suffix) {
  const mt_block *block = &decoder->block;
  mt_layer_design *head = mt_draft_design(draft, "head");
  mt_design_norm(head, block->rows, block->hidden, 1, block->norm_tensors);
  mt_design_linear(head, block->rows, block->hidden, decoder->vocabulary, MT_LINEAR_SAVES);
  if (decoder->tied) head->parameters -= block->hidden * decoder->vocabulary;
  mt_design_loss(head, block->rows, decoder->vocabulary);
  mt_draft_layers(draft, head, 1, suffix);
}

/* Designs that blocks share; [routed][windowed]. */
typedef struct block_designs {
  const mt_layer_design *known[2][2];
} block_designs;

/* `carried`: sets of features that the block hands on. */
static const mt_layer_design *block_design(mt_draft *draft, const mt_decoder *decoder, bool routed, bool windowed,
                                           int64_t carried, block_designs *designs) {
  static const char *const names[2][2] = {
      {"decoder block", "decoder block in a sliding window"},
      {"decoder block with experts", "decoder block with experts in a sliding window"}};
  const mt_layer_design **shared = &designs->known[routed][windowed];
  if (carried == 0 && *shared != NULL) return *shared;
  mt_layer_design *design = mt_draft_design(draft, names[routed][windowed]);
  mt_block block = decoder->block;
  if (windowed) block.area = MT_AREA_SLIDING;
  if (routed) {
    design_routed(design, decoder, &block);
    mt_design_output(design, block.rows, block.hidden);
  } else {
    mt_block_design(design, &block);
  }
  mt_design_output(design, MT_ROWS_FEATURES, carried * decoder->block.hidden);
  if (carried == 0) *shared = design;
  return design;
}

void mt_decoder_append(mt_draft *draft, const mt_decoder *decoder, int64_t carried) {
  const mt_block *block = &decoder->block;
  int64_t dense[MT_LAYERS_MAX];
  int32_t dense_count = 0;
  if (decoder->experts > 0)
    dense_count =
        mt_draft_list(draft, decoder->prefix, "mlp_only_layers", 0, MT_LAYERS_MAX - 1, MT_LAYERS_MAX, dense);
  mt_module_facts *facts = mt_draft_module(draft, "llm", MOTET_INPUT_TOKENS, true);
  *facts = (mt_module_facts){.hidden = block->hidden,
                             .heads = block->heads,
                             .kv_heads = block->kv_heads,
                             .head_width = block->head_width,
                             .intermediate = block->intermediate,
                             .experts = decoder->experts,
                             .experts_per_token = decoder->experts_per_token,
                             .expert_width = decoder->expert_width,
                             .vocabulary = decoder->vocabulary};
  mt_layer_design *embed = mt_draft_design(draft, "token embedding");
  mt_design_values(embed, decoder->vocabulary, block->hidden);
  mt_design_output(embed, block->rows, block->hidden);
  mt_design_output(embed, MT_ROWS_FEATURES, carried * block->hidden);
  mt_draft_layers(draft, embed, 1, "embed");
  block_designs designs = {0};
  for (int64_t l = 0; l < decoder->layers && draft->json->status == MOTET_OK; l++) {
    bool routed = decoder->experts > 0 && (l + 1) % decoder->sparse_step == 0;
    for (int32_t i = 0; i < dense_count; i++) routed = routed && dense[i] != l;
    int64_t left = carried > l + 1 ? carried - l - 1 : 0;
    bool windowed = decoder->window > 0 && l >= decoder->windowed_from;
    mt_draft_layers(draft, block_design(draft, decoder, routed, windowed, left, &designs), 1, NULL);
    if (windowed) draft->result->sliding_window = decoder->window;
  }
  mt_decoder_head(draft, decoder, "head");
  draft->result->model->tied_embeddings = decoder->tied;
  draft->result->decodes_text = true;
}

void mt_family_text(mt_draft *draft) {
  mt_decoder decoder;
  mt_decoder_read(draft, "", mt_draft_text(draft, "", "model_type", ""), &decoder);
  if (draft->json->status != MOTET_OK) return;
  mt_decoder_append(draft, &decoder, 0);
  draft->result->measure = mt_measure_text;
}
