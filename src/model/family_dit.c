/* DiT (arXiv 2212.09748) as diffusers stores it: every block embeds the time step and the class itself. */
#include "model/generator.h"

#include <string.h>

enum { TIME_WIDTH = 256, LATENT_COMPRESSION = 8, MODULATIONS = 6 };

static void design_block(mt_layer_design *design, const mt_block *block, int64_t classes) {
  mt_extent rows = block->rows;
  int64_t hidden = block->hidden;
  mt_generator_embedding(design, MT_ROWS_SAMPLES, TIME_WIDTH, hidden, hidden);
  mt_design_values(design, classes + 1, hidden); /* and one for no class */
  mt_design_activation(design, MT_ROWS_SAMPLES, hidden, 1);
  mt_design_linear(design, MT_ROWS_SAMPLES, hidden, MODULATIONS * hidden, MT_LINEAR_BIAS | MT_LINEAR_SAVES);
  mt_block_attention(design, block);
  mt_block_feed_forward(design, block);
  for (int i = 0; i < 2; i++) mt_generator_gate(design, rows, hidden);
  mt_design_keep(design, rows, 2 * hidden); /* the two norms' results, which the sample scales */
  mt_design_output(design, rows, hidden);
}

static void append(mt_draft *draft, const mt_block *block, int64_t layers, int64_t classes, int64_t in,
                   int64_t out) {
  int64_t hidden = block->hidden;
  mt_generator_module(draft, block);
  mt_layer_design *embed = mt_draft_design(draft, "patch embedding");
  mt_design_linear(embed, block->rows, in, hidden, MT_LINEAR_BIAS | MT_LINEAR_SAVES);
  mt_design_output(embed, block->rows, hidden);
  mt_draft_layers(draft, embed, 1, "embed");
  mt_layer_design *design = mt_draft_design(draft, "block");
  design_block(design, block, classes);
  mt_draft_layers(draft, design, layers, NULL);
  mt_layer_design *head = mt_draft_design(draft, "head");
  /* Conditioned by the first block's embedding, computed once more with that block's weights. */
  mt_generator_embedding(head, MT_ROWS_SAMPLES, TIME_WIDTH, hidden, hidden);
  head->parameters = 0;
  mt_generator_norm(head, block->rows, hidden, 0);
  mt_design_linear(head, MT_ROWS_SAMPLES, hidden, 2 * hidden, MT_LINEAR_BIAS | MT_LINEAR_SAVES);
  mt_design_linear(head, block->rows, hidden, out, MT_LINEAR_BIAS | MT_LINEAR_SAVES);
  mt_design_output(head, block->rows, out);
  mt_draft_layers(draft, head, 1, "head");
}

void mt_family_dit(mt_draft *draft) {
  if (strcmp(mt_draft_text(draft, "", "norm_type", "ada_norm_zero"), "ada_norm_zero") != 0)
    mt_draft_fail(draft, MOTET_ERROR_UNSUPPORTED, "", "norm_type", "only DiT's ada_norm_zero is supported");
  mt_block block = {.rows = MT_ROWS_LATENT,
                    .area = MT_AREA_LATENT,
                    .heads = mt_draft_integer(draft, "", "num_attention_heads", MT_HEADS_MAX),
                    .head_width = mt_draft_integer(draft, "", "attention_head_dim", MT_HEADS_MAX),
                    .qkv_bias = mt_draft_flag(draft, "", "attention_bias", true),
                    .out_bias = true,
                    .mlp_bias = true};
  int64_t layers = mt_draft_integer(draft, "", "num_layers", MT_LAYERS_MAX);
  int64_t in = mt_draft_integer(draft, "", "in_channels", 4096);
  int64_t out = mt_draft_integer_or(draft, "", "out_channels", 4096, in);
  int64_t patch = mt_draft_integer(draft, "", "patch_size", MT_SIDE_MAX);
  int64_t side = mt_draft_integer_or(draft, "", "sample_size", MT_SIDE_MAX, 32);
  int64_t classes = mt_draft_integer_or(draft, "", "num_embeds_ada_norm", MT_WIDTH_MAX, 1000);
  block.norm_tensors = mt_draft_flag(draft, "", "norm_elementwise_affine", false) ? 2 : 0;
  if (block.norm_tensors > 0)
    mt_draft_fail(draft, MOTET_ERROR_UNSUPPORTED, "", "norm_elementwise_affine", "true is not supported");
  mt_draft_divides(draft, "", "patch_size", patch, side, "sample_size");
  if (draft->json->status != MOTET_OK) return;
  block.kv_heads = block.heads;
  block.hidden = block.heads * block.head_width;
  block.intermediate = 4 * block.hidden;
  append(draft, &block, layers, classes, patch * patch * in, patch * patch * out);
  mt_architecture *result = draft->result;
  int32_t pixels = (int32_t)(side * LATENT_COMPRESSION);
  result->rules = (mt_picture_rules){.patch = patch, .frame_patch = 1, .compression = LATENT_COMPRESSION};
  result->reads_pictures = true;
  result->usual_picture = (mt_picture){1, pixels, pixels};
  result->measure = mt_measure_latents;
}
