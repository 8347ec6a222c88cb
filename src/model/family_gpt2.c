/* GPT-2 and the GPT models of Megatron-LM's publications: LayerNorms, biases, learned positions, dropout. */
#include "model/draft.h"

#include <motet/program.h>

void mt_family_gpt2(mt_draft *draft) {
  mt_decoder decoder = {.layers = mt_draft_integer(draft, "", "n_layer", MT_LAYERS_MAX),
                        .vocabulary = mt_draft_integer(draft, "", "vocab_size", MT_VOCABULARY_MAX),
                        .tied = mt_draft_flag(draft, "", "tie_word_embeddings", true)};
  mt_block *block = &decoder.block;
  *block = (mt_block){.rows = MT_ROWS_TEXT,
                      .area = MT_AREA_TEXT,
                      .hidden = mt_draft_integer(draft, "", "n_embd", MT_WIDTH_MAX),
                      .heads = mt_draft_integer(draft, "", "n_head", MT_HEADS_MAX),
                      .norm_tensors = 2,
                      .qkv_bias = true,
                      .out_bias = true,
                      .mlp_bias = true};
  mt_draft_divides(draft, "", "n_head", block->heads, block->hidden, "n_embd");
  block->intermediate = mt_draft_integer_or(draft, "", "n_inner", MT_WIDTH_MAX, 4 * block->hidden);
  block->kv_heads = block->heads;
  block->head_width = block->hidden / block->heads;
  int64_t positions = mt_draft_integer_or(draft, "", "n_positions", MT_VOCABULARY_MAX, 1024);
  bool embedding_dropout = mt_json_number_or(draft->json, "embd_pdrop", 0, 1, 0.1) > 0;
  bool residual_dropout = mt_json_number_or(draft->json, "resid_pdrop", 0, 1, 0.1) > 0;
  if (draft->json->status != MOTET_OK) return;
  mt_module_facts *facts = mt_draft_module(draft, "llm", MOTET_INPUT_TOKENS, true);
  *facts = (mt_module_facts){.hidden = block->hidden,
                             .heads = block->heads,
                             .kv_heads = block->kv_heads,
                             .head_width = block->head_width,
                             .intermediate = block->intermediate,
                             .vocabulary = decoder.vocabulary};
  mt_layer_design *embed = mt_draft_design(draft, "token embedding");
  mt_design_values(embed, decoder.vocabulary + positions, block->hidden);
  if (embedding_dropout) mt_design_factor(embed, block->rows, block->hidden, 1);
  mt_design_output(embed, block->rows, block->hidden);
  mt_draft_layers(draft, embed, 1, "embed");
  mt_layer_design *design = mt_draft_design(draft, "decoder block");
  mt_block_design(design, block);
  if (residual_dropout) mt_design_factor(design, block->rows, 2 * block->hidden, 1);
  mt_draft_layers(draft, design, decoder.layers, NULL);
  mt_layer_design *head = mt_draft_design(draft, "head");
  mt_design_norm(head, block->rows, block->hidden, 1, 2);
  mt_design_linear(head, block->rows, block->hidden, decoder.vocabulary, MT_LINEAR_SAVES);
  if (decoder.tied) head->parameters -= block->hidden * decoder.vocabulary;
  mt_design_loss(head, block->rows, decoder.vocabulary);
  mt_draft_layers(draft, head, 1, "head");
  draft->result->model->tied_embeddings = decoder.tied;
  draft->result->decodes_text = true;
  draft->result->usual_tokens = positions < 4096 ? positions : 4096;
  draft->result->measure = mt_measure_text;
}
