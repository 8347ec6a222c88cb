/* mT5 (arXiv 2010.11934): T5 1.1, gated feed-forward, no biases, a table of relative positions in the first block.
 */
#include "model/draft.h"

#include <motet/program.h>

#include <string.h>

/* google/mt5-xxl's config.json; generators name it and say no more. */
const mt_t5 mt_t5_xxl_multilingual = {.layers = 24,
                                      .hidden = 4096,
                                      .heads = 64,
                                      .head_width = 64,
                                      .intermediate = 10240,
                                      .vocabulary = 250112,
                                      .buckets = 32,
                                      .gated = true};

static mt_block block_of(const mt_t5 *t5, mt_extent rows, mt_extent area) {
  return (mt_block){.rows = rows,
                    .area = area,
                    .hidden = t5->hidden,
                    .heads = t5->heads,
                    .kv_heads = t5->heads,
                    .head_width = t5->head_width,
                    .intermediate = t5->intermediate,
                    .norm_tensors = 1,
                    .gated = t5->gated};
}

void mt_t5_encoder(mt_draft *draft, const mt_t5 *t5) {
  const mt_block block = block_of(t5, MT_ROWS_CONDITION, MT_AREA_CONDITION);
  mt_layer_design *embed = mt_draft_design(draft, "token embedding");
  mt_design_values(embed, t5->vocabulary, t5->hidden);
  mt_design_output(embed, block.rows, t5->hidden);
  mt_draft_layers(draft, embed, 1, "embed");
  mt_layer_design *first = mt_draft_design(draft, "encoder block with positions");
  mt_block_design(first, &block);
  mt_design_values(first, t5->buckets, t5->heads);
  mt_draft_layers(draft, first, 1, NULL);
  mt_layer_design *design = mt_draft_design(draft, "encoder block");
  mt_block_design(design, &block);
  mt_draft_layers(draft, design, t5->layers - 1, NULL);
  mt_layer_design *norm = mt_draft_design(draft, "norm");
  mt_design_norm(norm, block.rows, t5->hidden, 1, 1);
  mt_design_output(norm, block.rows, t5->hidden);
  mt_draft_layers(draft, norm, 1, "norm");
}

static void design_decoder(mt_layer_design *design, const mt_t5 *t5) {
  const mt_block block = block_of(t5, MT_ROWS_TEXT, MT_AREA_TEXT);
  int64_t inner = t5->heads * t5->head_width;
  mt_block_attention(design, &block);
  mt_design_norm(design, MT_ROWS_TEXT, t5->hidden, 1, 1);
  mt_design_linear(design, MT_ROWS_TEXT, t5->hidden, inner, MT_LINEAR_SAVES);
  mt_design_linear(design, MT_ROWS_CONDITION, t5->hidden, inner, 0); /* the encoder's output is kept once */
  mt_design_linear(design, MT_ROWS_CONDITION, t5->hidden, inner, 0);
  mt_attention cross = {.queries = MT_ROWS_TEXT,
                        .keys = MT_ROWS_CONDITION,
                        .area = MT_AREA_CROSS,
                        .heads = t5->heads,
                        .kv_heads = t5->heads,
                        .key_width = t5->head_width,
                        .value_width = t5->head_width};
  mt_design_attention(design, &cross);
  mt_design_linear(design, MT_ROWS_TEXT, inner, t5->hidden, MT_LINEAR_SPLIT);
  mt_design_residual(design, MT_ROWS_TEXT, t5->hidden);
  mt_block_feed_forward(design, &block);
  /* The encoder's output travels on to the next block. */
  mt_design_output(design, MT_ROWS_TEXT, t5->hidden);
  mt_design_output(design, MT_ROWS_CONDITION, t5->hidden);
}

static mt_module_facts facts_of(const mt_t5 *t5) {
  return (mt_module_facts){.hidden = t5->hidden,
                           .heads = t5->heads,
                           .kv_heads = t5->heads,
                           .head_width = t5->head_width,
                           .intermediate = t5->intermediate,
                           .vocabulary = t5->vocabulary};
}

void mt_family_mt5(mt_draft *draft) {
  mt_t5 t5 = {.layers = mt_draft_integer(draft, "", "num_layers", MT_LAYERS_MAX),
              .hidden = mt_draft_integer(draft, "", "d_model", MT_WIDTH_MAX),
              .heads = mt_draft_integer(draft, "", "num_heads", MT_HEADS_MAX),
              .head_width = mt_draft_integer(draft, "", "d_kv", MT_HEADS_MAX),
              .intermediate = mt_draft_integer(draft, "", "d_ff", MT_WIDTH_MAX),
              .vocabulary = mt_draft_integer(draft, "", "vocab_size", MT_VOCABULARY_MAX),
              .buckets = mt_draft_integer_or(draft, "", "relative_attention_num_buckets", 4096, 32)};
  int64_t decoder_layers = mt_draft_integer_or(draft, "", "num_decoder_layers", MT_LAYERS_MAX, t5.layers);
  t5.gated = strncmp(mt_draft_text(draft, "", "feed_forward_proj", "gated-gelu"), "gated-", 6) == 0;
  mt_decoder head = {.block = block_of(&t5, MT_ROWS_TEXT, MT_AREA_TEXT),
                     .vocabulary = t5.vocabulary,
                     .tied = mt_draft_flag(draft, "", "tie_word_embeddings", false)};
  if (draft->json->status != MOTET_OK) return;
  *mt_draft_module(draft, "encoder", MOTET_INPUT_TOKENS, true) = facts_of(&t5);
  mt_t5_encoder(draft, &t5);
  *mt_draft_module(draft, "decoder", MOTET_INPUT_TOKENS, true) = facts_of(&t5);
  mt_layer_design *embed = mt_draft_design(draft, "shared token embedding"); /* the encoder's weight */
  mt_design_keep(embed, MT_ROWS_CONDITION, t5.hidden); /* the encoder's output, for every block's keys and values */
  mt_design_output(embed, MT_ROWS_TEXT, t5.hidden);
  mt_design_output(embed, MT_ROWS_CONDITION, t5.hidden);
  mt_draft_layers(draft, embed, 1, "embed");
  mt_layer_design *first = mt_draft_design(draft, "decoder block with positions");
  design_decoder(first, &t5);
  mt_design_values(first, t5.buckets, t5.heads);
  mt_draft_layers(draft, first, 1, NULL);
  mt_layer_design *design = mt_draft_design(draft, "decoder block");
  design_decoder(design, &t5);
  mt_draft_layers(draft, design, decoder_layers - 1, NULL);
  mt_decoder_head(draft, &head, "head");
  mt_draft_edge(draft, 0, 1);
  draft->result->decodes_text = true;
  draft->result->usual_tokens = 512;
  draft->result->measure = mt_measure_pair;
}
