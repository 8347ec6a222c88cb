/* DeepSeek-V2 (arXiv 2405.04434) and V3 (2412.19437): latent attention, shared and routed experts, multi-token
 * prediction. The weights of a prediction module that only repeat the main model's (embedding, head) are shared. */
#include "model/draft.h"

#include <motet/program.h>

#include <string.h>

typedef struct deepseek_sizes {
  mt_decoder decoder;           /* experts, widths and vocabulary; its block holds the dense sizes */
  int64_t query_rank, key_rank; /* query_rank 0: no compression of queries */
  int64_t plain_width, rotary_width, value_width;
  int64_t shared_experts, dense_layers, sparse_step, predictions;
  bool bias;
} deepseek_sizes;

static void read_deepseek(mt_draft *draft, deepseek_sizes *model) {
  mt_decoder *decoder = &model->decoder;
  mt_block *block = &decoder->block;
  *block = (mt_block){.rows = MT_ROWS_TEXT, .area = MT_AREA_TEXT, .norm_tensors = 1, .gated = true};
  decoder->layers = mt_draft_integer(draft, "", "num_hidden_layers", MT_LAYERS_MAX);
  decoder->vocabulary = mt_draft_integer(draft, "", "vocab_size", MT_VOCABULARY_MAX);
  decoder->tied = mt_draft_flag(draft, "", "tie_word_embeddings", false);
  block->hidden = mt_draft_integer(draft, "", "hidden_size", MT_WIDTH_MAX);
  block->heads = block->kv_heads = mt_draft_integer(draft, "", "num_attention_heads", MT_HEADS_MAX);
  block->intermediate = mt_draft_integer(draft, "", "intermediate_size", MT_WIDTH_MAX);
  model->query_rank =
      mt_draft_has(draft, "", "q_lora_rank") ? mt_draft_integer(draft, "", "q_lora_rank", MT_WIDTH_MAX) : 0;
  model->key_rank = mt_draft_integer(draft, "", "kv_lora_rank", MT_WIDTH_MAX);
  model->plain_width = mt_draft_integer(draft, "", "qk_nope_head_dim", MT_HEADS_MAX);
  model->rotary_width = mt_draft_integer(draft, "", "qk_rope_head_dim", MT_HEADS_MAX);
  model->value_width = mt_draft_integer(draft, "", "v_head_dim", MT_HEADS_MAX);
  model->bias = mt_draft_flag(draft, "", "attention_bias", false);
  decoder->experts = mt_draft_integer(draft, "", "n_routed_experts", MT_EXPERTS_MAX);
  decoder->experts_per_token = mt_draft_integer(draft, "", "num_experts_per_tok", decoder->experts);
  decoder->expert_width = mt_draft_integer(draft, "", "moe_intermediate_size", MT_WIDTH_MAX);
  model->shared_experts = mt_json_integer_or(draft->json, "n_shared_experts", 0, 4096, 0);
  model->dense_layers = mt_json_integer_or(draft->json, "first_k_dense_replace", 0, MT_LAYERS_MAX, 0);
  model->sparse_step = mt_draft_integer_or(draft, "", "moe_layer_freq", MT_LAYERS_MAX, 1);
  model->predictions = mt_json_integer_or(draft->json, "num_nextn_predict_layers", 0, 64, 0);
  block->head_width = model->plain_width + model->rotary_width;
}

static void design_attention(mt_layer_design *design, const deepseek_sizes *model) {
  const mt_block *block = &model->decoder.block;
  mt_extent rows = block->rows;
  int64_t hidden = block->hidden, query = block->heads * block->head_width;
  int bias = model->bias ? MT_LINEAR_BIAS : 0;
  mt_design_norm(design, rows, hidden, 1, 1);
  if (model->query_rank > 0) {
    mt_design_linear(design, rows, hidden, model->query_rank, bias | MT_LINEAR_SAVES);
    mt_design_norm(design, rows, model->query_rank, 1, 1);
    mt_design_linear(design, rows, model->query_rank, query, MT_LINEAR_SAVES);
  } else {
    mt_design_linear(design, rows, hidden, query, MT_LINEAR_SAVES);
  }
  mt_design_linear(design, rows, hidden, model->key_rank + model->rotary_width, bias);
  mt_design_norm(design, rows, model->key_rank, 1, 1);
  mt_design_linear(design, rows, model->key_rank, block->heads * (model->plain_width + model->value_width),
                   MT_LINEAR_SAVES);
  mt_attention attention = {.queries = rows,
                            .keys = rows,
                            .area = block->area,
                            .heads = block->heads,
                            .kv_heads = block->heads,
                            .key_width = block->head_width,
                            .value_width = model->value_width};
  mt_design_attention(design, &attention);
  mt_design_linear(design, rows, block->heads * model->value_width, hidden, bias | MT_LINEAR_SPLIT);
  mt_design_residual(design, rows, hidden);
}

static void design_gated(mt_layer_design *design, mt_extent rows, int64_t hidden, int64_t width) {
  mt_design_linear(design, rows, hidden, width, 0);
  mt_design_linear(design, rows, hidden, width, 0);
  mt_design_activation(design, rows, width, 2);
  mt_design_linear(design, rows, width, hidden, MT_LINEAR_SAVES | MT_LINEAR_SPLIT);
}

static void design_routed(mt_layer_design *design, const deepseek_sizes *model) {
  const mt_decoder *decoder = &model->decoder;
  int64_t hidden = decoder->block.hidden, width = decoder->expert_width, count = decoder->experts;
  mt_design_norm(design, MT_ROWS_TEXT, hidden, 1, 1);
  mt_design_linear(design, MT_ROWS_TEXT, hidden, count, MT_LINEAR_SAVES);
  mt_design_factor(design, MT_ROWS_TEXT, count, 2);
  if (model->shared_experts > 0) design_gated(design, MT_ROWS_TEXT, hidden, model->shared_experts * width);
  mt_design_experts(design, MT_ROWS_ROUTED, count, hidden, width, MT_LINEAR_SAVES);
  mt_design_experts(design, MT_ROWS_ROUTED, count, hidden, width, 0);
  mt_design_activation(design, MT_ROWS_ROUTED, width, 2);
  mt_design_experts(design, MT_ROWS_ROUTED, count, width, hidden, MT_LINEAR_SAVES | MT_LINEAR_SPLIT);
  mt_design_reorder(design, MT_ROWS_ROUTED, hidden);   /* by expert */
  mt_design_factor(design, MT_ROWS_ROUTED, hidden, 2); /* what the router's weights multiply */
  mt_design_residual(design, MT_ROWS_TEXT, hidden);
}

static void design_block(mt_layer_design *design, const deepseek_sizes *model, bool routed) {
  const mt_block *block = &model->decoder.block;
  design_attention(design, model);
  if (routed)
    design_routed(design, model);
  else
    mt_block_feed_forward(design, block);
  mt_design_output(design, block->rows, block->hidden);
}

static mt_module_facts facts_of(const deepseek_sizes *model) {
  const mt_decoder *decoder = &model->decoder;
  return (mt_module_facts){.hidden = decoder->block.hidden,
                           .heads = decoder->block.heads,
                           .kv_heads = decoder->block.kv_heads,
                           .head_width = decoder->block.head_width,
                           .intermediate = decoder->block.intermediate,
                           .experts = decoder->experts,
                           .experts_per_token = decoder->experts_per_token,
                           .expert_width = decoder->expert_width,
                           .vocabulary = decoder->vocabulary};
}

/* One depth: two norms and a map that joins the stream with the next token's embedding, a block, a norm, the shared
 * head (arXiv 2412.19437, section 2.2). */
static void prediction_module(mt_draft *draft, const deepseek_sizes *model) {
  const mt_decoder *decoder = &model->decoder;
  int64_t hidden = decoder->block.hidden;
  mt_module_facts *facts = mt_draft_module(draft, "mtp", MOTET_INPUT_TOKENS, true);
  *facts = facts_of(model);
  facts->auxiliary = true;
  mt_layer_design *design = mt_draft_design(draft, "multi-token prediction");
  mt_design_norm(design, MT_ROWS_TEXT, hidden, 1, 1);
  mt_design_norm(design, MT_ROWS_TEXT, hidden, 1, 1);
  mt_design_linear(design, MT_ROWS_TEXT, 2 * hidden, hidden, MT_LINEAR_SAVES);
  design_block(design, model, true);
  mt_design_norm(design, MT_ROWS_TEXT, hidden, 1, 1);
  mt_design_linear(design, MT_ROWS_TEXT, hidden, decoder->vocabulary, MT_LINEAR_SAVES);
  design->parameters -= hidden * decoder->vocabulary; /* the main model's */
  mt_design_loss(design, MT_ROWS_TEXT, decoder->vocabulary);
  mt_draft_layers(draft, design, model->predictions, NULL);
}

void mt_family_deepseek(mt_draft *draft) {
  deepseek_sizes model = {0};
  read_deepseek(draft, &model);
  if (draft->json->status != MOTET_OK) return;
  mt_decoder *decoder = &model.decoder;
  int64_t hidden = decoder->block.hidden;
  *mt_draft_module(draft, "llm", MOTET_INPUT_TOKENS, true) = facts_of(&model);
  mt_layer_design *embed = mt_draft_design(draft, "token embedding");
  mt_design_values(embed, decoder->vocabulary, hidden);
  mt_design_output(embed, MT_ROWS_TEXT, hidden);
  mt_draft_layers(draft, embed, 1, "embed");
  mt_layer_design *dense = mt_draft_design(draft, "decoder block");
  mt_layer_design *routed = mt_draft_design(draft, "decoder block with experts");
  design_block(dense, &model, false);
  design_block(routed, &model, true);
  for (int64_t l = 0; l < decoder->layers && draft->json->status == MOTET_OK; l++)
    mt_draft_layers(draft, l >= model.dense_layers && l % model.sparse_step == 0 ? routed : dense, 1, NULL);
  mt_decoder_head(draft, decoder, "head");
  if (model.predictions > 0) {
    prediction_module(draft, &model);
    mt_draft_edge(draft, 0, 1);
  }
  draft->result->model->tied_embeddings = decoder->tied;
  draft->result->decodes_text = true;
  draft->result->measure = mt_measure_text;
}
