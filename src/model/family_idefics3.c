/* Idefics3 (arXiv 2408.12637) and SmolVLM (2504.05299): a SigLIP tower, pixel shuffle, one linear map, Llama. */
#include "model/draft.h"

#include <motet/program.h>

static const char PREFIX[] = "vision_config";

static void vision_module(mt_draft *draft, const mt_block *block, int64_t layers, int64_t grid, int64_t kernel) {
  mt_module_facts *facts = mt_draft_module(draft, "vision", MOTET_INPUT_PIXELS, true);
  *facts = (mt_module_facts){.hidden = block->hidden,
                             .heads = block->heads,
                             .kv_heads = block->kv_heads,
                             .head_width = block->head_width,
                             .intermediate = block->intermediate};
  mt_layer_design *embed = mt_draft_design(draft, "patch embedding");
  mt_design_linear(embed, MT_ROWS_PATCHES, kernel, block->hidden, MT_LINEAR_BIAS | MT_LINEAR_SAVES);
  mt_design_values(embed, grid * grid, block->hidden);
  mt_design_output(embed, MT_ROWS_PATCHES, block->hidden);
  mt_draft_layers(draft, embed, 1, "embed");
  mt_layer_design *design = mt_draft_design(draft, "vision block");
  mt_block_design(design, block);
  mt_draft_layers(draft, design, layers, NULL);
  mt_layer_design *norm = mt_draft_design(draft, "norm");
  mt_design_norm(norm, MT_ROWS_PATCHES, block->hidden, 1, 2);
  mt_design_output(norm, MT_ROWS_PATCHES, block->hidden);
  mt_draft_layers(draft, norm, 1, "norm");
}

void mt_family_idefics3(mt_draft *draft) {
  mt_decoder decoder;
  mt_block block = {.rows = MT_ROWS_PATCHES,
                    .area = MT_AREA_PICTURE,
                    .norm_tensors = 2,
                    .qkv_bias = true,
                    .out_bias = true,
                    .mlp_bias = true};
  int64_t layers = mt_draft_integer_or(draft, PREFIX, "num_hidden_layers", MT_LAYERS_MAX, 12);
  block.hidden = mt_draft_integer(draft, PREFIX, "hidden_size", MT_WIDTH_MAX);
  block.intermediate = mt_draft_integer_or(draft, PREFIX, "intermediate_size", MT_WIDTH_MAX, 3072);
  block.heads = block.kv_heads = mt_draft_integer(draft, PREFIX, "num_attention_heads", MT_HEADS_MAX);
  mt_draft_divides(draft, PREFIX, "num_attention_heads", block.heads, block.hidden, "hidden_size");
  block.head_width = block.hidden / block.heads;
  int64_t image = mt_draft_square(draft, PREFIX, "image_size", 0);
  int64_t patch = mt_draft_square(draft, PREFIX, "patch_size", 0);
  int64_t channels = mt_draft_integer_or(draft, PREFIX, "num_channels", 64, 3);
  int64_t scale = mt_draft_integer_or(draft, "", "scale_factor", 64, 2);
  mt_draft_holds(draft, PREFIX, patch, image);
  mt_draft_divides(draft, "", "scale_factor", scale, image / patch, "a side's patches,");
  int64_t longest = mt_draft_integer_or(draft, "vision_config.size", "longest_edge", MT_SIDE_MAX, 4 * image);
  mt_decoder_read(draft, "text_config", mt_draft_text(draft, "text_config", "model_type", "llama"), &decoder);
  if (draft->json->status != MOTET_OK) return;
  vision_module(draft, &block, layers, image / patch, channels * patch * patch);
  mt_module_facts *facts = mt_draft_module(draft, "projector", 0, true);
  facts->hidden = decoder.block.hidden;
  mt_layer_design *projector = mt_draft_design(draft, "projector");
  mt_design_linear(projector, MT_ROWS_FEATURES, block.hidden * scale * scale, decoder.block.hidden,
                   MT_LINEAR_SAVES);
  mt_design_output(projector, MT_ROWS_FEATURES, decoder.block.hidden);
  mt_draft_layers(draft, projector, 1, "");
  mt_decoder_append(draft, &decoder, 0);
  mt_draft_edge(draft, 0, 1);
  mt_draft_edge(draft, 1, 2);
  mt_architecture *result = draft->result;
  result->rules = (mt_picture_rules){
      .patch = patch, .merge = scale, .side = image, .maximum_tiles = 1, .thumbnail = true, .longest = longest};
  result->reads_pictures = true;
  result->usual_picture = (mt_picture){1, 448, 448};
  result->measure = mt_measure_tiles;
}
