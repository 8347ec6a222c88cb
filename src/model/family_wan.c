/* Wan 2.1, text to video (arXiv 2503.20314), in the publisher's form and in that of diffusers. */
#include "model/generator.h"

#include <string.h>

enum { COMPRESSION = 8, FRAME_COMPRESSION = 4, MODULATIONS = 6 };

typedef struct wan_sizes {
  mt_block block;
  int64_t layers, in, out, patch[3], text, text_length, frequencies;
} wan_sizes;

static void design_block(mt_layer_design *design, const wan_sizes *model) {
  const mt_block *block = &model->block;
  const mt_cross cross = {.hidden = block->hidden,
                          .condition = block->hidden,
                          .heads = block->heads,
                          .head_width = block->head_width,
                          .qk_norm = true,
                          .bias = true};
  int64_t hidden = block->hidden;
  mt_design_values(design, MODULATIONS, hidden);
  mt_block_attention(design, block);
  mt_generator_gate(design, MT_ROWS_LATENT, hidden);
  mt_design_norm(design, MT_ROWS_LATENT, hidden, 1, 2);
  mt_generator_cross(design, &cross);
  mt_block_feed_forward(design, block);
  mt_generator_gate(design, MT_ROWS_LATENT, hidden);
  mt_design_keep(design, MT_ROWS_LATENT, 2 * hidden); /* the two norms' results, which the sample scales */
  mt_design_output(design, MT_ROWS_LATENT, hidden);
  mt_design_output(design, MT_ROWS_CONDITION, hidden);
  mt_design_output(design, MT_ROWS_SAMPLES, (MODULATIONS + 1) * hidden);
}

static void append(mt_draft *draft, const wan_sizes *model) {
  const mt_block *block = &model->block;
  int64_t hidden = block->hidden, patch = model->patch[0] * model->patch[1] * model->patch[2];
  mt_generator_module(draft, block);
  mt_layer_design *embed = mt_draft_design(draft, "patch, text and time embedding");
  mt_design_linear(embed, MT_ROWS_LATENT, patch * model->in, hidden, MT_LINEAR_BIAS | MT_LINEAR_SAVES);
  mt_generator_embedding(embed, MT_ROWS_CONDITION, model->text, hidden, hidden);
  mt_generator_embedding(embed, MT_ROWS_SAMPLES, model->frequencies, hidden, hidden);
  mt_design_activation(embed, MT_ROWS_SAMPLES, hidden, 1);
  mt_design_linear(embed, MT_ROWS_SAMPLES, hidden, MODULATIONS * hidden, MT_LINEAR_BIAS | MT_LINEAR_SAVES);
  mt_design_keep(embed, MT_ROWS_CONDITION, hidden); /* for every block's keys and values */
  mt_design_output(embed, MT_ROWS_LATENT, hidden);
  mt_design_output(embed, MT_ROWS_CONDITION, hidden);
  mt_design_output(embed, MT_ROWS_SAMPLES, (MODULATIONS + 1) * hidden);
  mt_draft_layers(draft, embed, 1, "embed");
  mt_layer_design *design = mt_draft_design(draft, "block");
  design_block(design, model);
  mt_draft_layers(draft, design, model->layers, NULL);
  mt_layer_design *head = mt_draft_design(draft, "head");
  mt_design_values(head, 2, hidden);
  mt_generator_norm(head, MT_ROWS_LATENT, hidden, 0);
  mt_design_linear(head, MT_ROWS_LATENT, hidden, patch * model->out, MT_LINEAR_BIAS | MT_LINEAR_SAVES);
  mt_design_output(head, MT_ROWS_LATENT, patch * model->out);
  mt_draft_layers(draft, head, 1, "head");
}

/* The two forms' names of the same sizes; the publisher's gives the width, that of diffusers heads and their width.
 */
static void read_sizes(mt_draft *draft, wan_sizes *model) {
  mt_block *block = &model->block;
  bool publisher = strcmp(draft->result->name, "WanModel") == 0;
  if (publisher) {
    block->hidden = mt_draft_integer(draft, "", "dim", MT_WIDTH_MAX);
    block->heads = mt_draft_integer(draft, "", "num_heads", MT_HEADS_MAX);
    mt_draft_divides(draft, "", "num_heads", block->heads, block->hidden, "dim");
    block->head_width = block->hidden / block->heads;
  } else {
    block->heads = mt_draft_integer(draft, "", "num_attention_heads", MT_HEADS_MAX);
    block->head_width = mt_draft_integer(draft, "", "attention_head_dim", MT_HEADS_MAX);
    block->hidden = block->heads * block->head_width;
  }
  block->kv_heads = block->heads;
  block->intermediate = mt_draft_integer(draft, "", "ffn_dim", MT_WIDTH_MAX);
  model->layers = mt_draft_integer(draft, "", "num_layers", MT_LAYERS_MAX);
  model->in = mt_draft_integer_or(draft, "", publisher ? "in_dim" : "in_channels", 4096, 16);
  model->out = mt_draft_integer_or(draft, "", publisher ? "out_dim" : "out_channels", 4096, 16);
  model->text = mt_draft_integer_or(draft, "", "text_dim", MT_WIDTH_MAX, 4096);
  model->text_length = mt_draft_integer_or(draft, "", "text_len", 65536, 512);
  model->frequencies = mt_draft_integer_or(draft, "", "freq_dim", MT_WIDTH_MAX, 256);
}

void mt_family_wan(mt_draft *draft) {
  wan_sizes model = {.block = {.rows = MT_ROWS_LATENT,
                               .area = MT_AREA_LATENT,
                               .qkv_bias = true,
                               .out_bias = true,
                               .mlp_bias = true,
                               .qk_norm_tensors = 1,
                               .qk_norm_whole = true},
                     .patch = {1, 2, 2}};
  bool pictures = mt_draft_has(draft, "", "image_dim");
  if (pictures || strcmp(mt_draft_text(draft, "", "model_type", "t2v"), "t2v") != 0)
    mt_draft_fail(draft, MOTET_ERROR_UNSUPPORTED, "", pictures ? "image_dim" : "model_type",
                  "only text to video (t2v) is supported, without pictures that it begins with");
  read_sizes(draft, &model);
  if (mt_draft_has(draft, "", "patch_size") && mt_draft_list(draft, "", "patch_size", 1, 64, 3, model.patch) != 3)
    mt_draft_fail(draft, MOTET_ERROR_PARSE, "", "patch_size", "must be three whole numbers: frames, height, width");
  if (model.patch[1] != model.patch[2])
    mt_draft_fail(draft, MOTET_ERROR_UNSUPPORTED, "", "patch_size", "only square patches are supported");
  if (draft->json->status != MOTET_OK) return;
  append(draft, &model);
  mt_architecture *result = draft->result;
  result->rules = (mt_picture_rules){.patch = model.patch[1],
                                     .frame_patch = model.patch[0],
                                     .compression = COMPRESSION,
                                     .frame_compression = FRAME_COMPRESSION,
                                     .condition_tokens = model.text_length};
  result->reads_pictures = true;
  result->usual_picture = (mt_picture){81, 480, 832};
  result->measure = mt_measure_latents;
}
