/* CogVideoX (arXiv 2408.06072): text and latents in one row, each with its own adaptive norms of the same weights.
 */
#include "model/generator.h"

enum { COMPRESSION = 8, MODULATIONS = 6 };

typedef struct cogvideox_sizes {
  mt_block block;
  int64_t layers, in, out, patch, frame_patch, text, time;
  int64_t offset; /* width of the embedding of motion (ofs) of pictures set in motion; 0: none */
} cogvideox_sizes;

static void design_block(mt_layer_design *design, const cogvideox_sizes *model) {
  const mt_block *block = &model->block;
  int64_t hidden = block->hidden;
  for (int i = 0; i < 2; i++) {
    mt_design_linear(design, MT_ROWS_SAMPLES, model->time, MODULATIONS * hidden, MT_LINEAR_BIAS | MT_LINEAR_SAVES);
    mt_design_keep(design, block->rows, hidden);
    mt_generator_gate(design, block->rows, hidden);
  }
  mt_block_design(design, block);
  mt_design_output(design, MT_ROWS_SAMPLES, model->time);
}

static void append(mt_draft *draft, const cogvideox_sizes *model) {
  const mt_block *block = &model->block;
  int64_t hidden = block->hidden, patch = model->patch * model->patch * model->frame_patch;
  mt_generator_module(draft, block);
  mt_layer_design *embed = mt_draft_design(draft, "patch, text and time embedding");
  mt_design_linear(embed, MT_ROWS_LATENT, patch * model->in, hidden, MT_LINEAR_BIAS | MT_LINEAR_SAVES);
  mt_design_linear(embed, MT_ROWS_CONDITION, model->text, hidden, MT_LINEAR_BIAS | MT_LINEAR_SAVES);
  mt_generator_embedding(embed, MT_ROWS_SAMPLES, hidden, model->time, model->time);
  if (model->offset > 0)
    mt_generator_embedding(embed, MT_ROWS_SAMPLES, model->offset, model->offset, model->offset);
  mt_design_output(embed, block->rows, hidden);
  mt_design_output(embed, MT_ROWS_SAMPLES, model->time);
  mt_draft_layers(draft, embed, 1, "embed");
  mt_layer_design *design = mt_draft_design(draft, "block");
  design_block(design, model);
  mt_draft_layers(draft, design, model->layers, NULL);
  mt_layer_design *head = mt_draft_design(draft, "head");
  mt_design_norm(head, block->rows, hidden, 1, block->norm_tensors);
  mt_generator_norm(head, MT_ROWS_LATENT, hidden, block->norm_tensors);
  mt_design_linear(head, MT_ROWS_SAMPLES, model->time, 2 * hidden, MT_LINEAR_BIAS | MT_LINEAR_SAVES);
  mt_design_linear(head, MT_ROWS_LATENT, hidden, patch * model->out, MT_LINEAR_BIAS | MT_LINEAR_SAVES);
  mt_design_output(head, MT_ROWS_LATENT, patch * model->out);
  mt_draft_layers(draft, head, 1, "head");
}

static void set_rules(mt_draft *draft, const cogvideox_sizes *model) {
  mt_architecture *result = draft->result;
  int64_t frames = mt_draft_integer_or(draft, "", "sample_frames", 65536, 49);
  int64_t height = mt_draft_integer_or(draft, "", "sample_height", MT_SIDE_MAX, 60);
  int64_t width = mt_draft_integer_or(draft, "", "sample_width", MT_SIDE_MAX, 90);
  result->rules =
      (mt_picture_rules){.patch = model->patch,
                         .frame_patch = model->frame_patch,
                         .compression = COMPRESSION,
                         .frame_compression = mt_draft_integer_or(draft, "", "temporal_compression_ratio", 64, 4),
                         .condition_tokens = mt_draft_integer_or(draft, "", "max_text_seq_length", 65536, 226)};
  result->reads_pictures = true;
  result->usual_picture =
      (mt_picture){(int32_t)frames, (int32_t)(height * COMPRESSION), (int32_t)(width * COMPRESSION)};
  result->measure = mt_measure_latents;
}

void mt_family_cogvideox(mt_draft *draft) {
  cogvideox_sizes model = {.layers = mt_draft_integer(draft, "", "num_layers", MT_LAYERS_MAX),
                           .in = mt_draft_integer(draft, "", "in_channels", 4096),
                           .out = mt_draft_integer_or(draft, "", "out_channels", 4096, 16),
                           .patch = mt_draft_integer(draft, "", "patch_size", MT_SIDE_MAX),
                           .text = mt_draft_integer_or(draft, "", "text_embed_dim", MT_WIDTH_MAX, 4096),
                           .time = mt_draft_integer_or(draft, "", "time_embed_dim", MT_WIDTH_MAX, 512)};
  model.offset = mt_draft_count_or(draft, "", "ofs_embed_dim", MT_WIDTH_MAX, 0);
  bool affine = mt_draft_flag(draft, "", "norm_elementwise_affine", true);
  model.frame_patch = mt_draft_integer_or(draft, "", "patch_size_t", 64, 1);
  model.block = (mt_block){.rows = MT_ROWS_JOINT,
                           .area = MT_AREA_JOINT,
                           .heads = mt_draft_integer(draft, "", "num_attention_heads", MT_HEADS_MAX),
                           .head_width = mt_draft_integer(draft, "", "attention_head_dim", MT_HEADS_MAX),
                           .norm_tensors = affine ? 2 : 0,
                           .qkv_bias = mt_draft_flag(draft, "", "attention_bias", true),
                           .out_bias = true,
                           .mlp_bias = true,
                           .qk_norm_tensors = 2};
  if (draft->json->status != MOTET_OK) return;
  model.block.kv_heads = model.block.heads;
  model.block.hidden = model.block.heads * model.block.head_width;
  model.block.intermediate = 4 * model.block.hidden;
  append(draft, &model);
  set_rules(draft, &model);
}
