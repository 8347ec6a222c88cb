/* Qwen2-VL (arXiv 2409.12191), Qwen2.5-VL (2502.13923) and Qwen3-VL (2511.21631), dense and with experts. */
#include "model/draft.h"

#include <motet/program.h>

#include <string.h>

enum { DEEP_MOST = 16 };

typedef struct vision_sizes {
  mt_block block;
  int64_t layers, channels, patch, merge, frame_patch, out;
} vision_sizes;

static const char PREFIX[] = "vision_config";

static void read_vision(mt_draft *draft, vision_sizes *vision, const char *width, const char *channels,
                        int64_t frame_patch_usual) {
  mt_block *block = &vision->block;
  *block = (mt_block){.rows = MT_ROWS_PATCHES,
                      .area = MT_AREA_PICTURE,
                      .norm_tensors = 2,
                      .qkv_bias = true,
                      .out_bias = true,
                      .mlp_bias = true};
  vision->layers = mt_draft_integer(draft, PREFIX, "depth", MT_LAYERS_MAX);
  block->hidden = mt_draft_integer(draft, PREFIX, width, MT_WIDTH_MAX);
  block->heads = block->kv_heads = mt_draft_integer(draft, PREFIX, "num_heads", MT_HEADS_MAX);
  mt_draft_divides(draft, PREFIX, "num_heads", block->heads, block->hidden, width);
  block->head_width = block->hidden / block->heads;
  vision->channels = mt_draft_integer_or(draft, PREFIX, channels, 64, 3);
  vision->patch = mt_draft_integer(draft, PREFIX, "patch_size", MT_SIDE_MAX);
  vision->merge = mt_draft_integer_or(draft, PREFIX, "spatial_merge_size", 64, 2);
  vision->frame_patch = mt_draft_integer_or(draft, PREFIX, "temporal_patch_size", 64, frame_patch_usual);
}

/* A list of blocks, or what transformers' class has where the config is silent. */
static int32_t list_or(mt_draft *draft, const char *key, int64_t last, int32_t most, const int64_t *usual,
                       int32_t usual_count, int64_t *values) {
  if (mt_draft_has(draft, PREFIX, key)) return mt_draft_list(draft, PREFIX, key, 0, last, most, values);
  for (int32_t i = 0; i < usual_count; i++) {
    values[i] = usual[i];
    if (usual[i] > last)
      mt_draft_fail(draft, MOTET_ERROR_PARSE, PREFIX, key, "missing, and the usual blocks are more than there are");
  }
  return usual_count;
}

static void set_rules(mt_draft *draft, const vision_sizes *vision, int64_t minimum_pixels, int64_t maximum_pixels) {
  mt_architecture *result = draft->result;
  result->rules = (mt_picture_rules){.patch = vision->patch,
                                     .merge = vision->merge,
                                     .frame_patch = vision->frame_patch,
                                     .minimum_pixels = minimum_pixels,
                                     .maximum_pixels = maximum_pixels};
  result->reads_pictures = true;
  result->usual_picture = (mt_picture){1, 448, 448};
  result->measure = mt_measure_patches;
}

/* Patch embedding: a convolution whose kernel is the patch, so one product a patch. */
static void embed_module(mt_draft *draft, const vision_sizes *vision, bool bias, int64_t positions) {
  const mt_block *block = &vision->block;
  mt_module_facts *facts = mt_draft_module(draft, "vision", MOTET_INPUT_PIXELS, true);
  *facts = (mt_module_facts){.hidden = block->hidden,
                             .heads = block->heads,
                             .kv_heads = block->kv_heads,
                             .head_width = block->head_width,
                             .intermediate = block->intermediate};
  mt_layer_design *embed = mt_draft_design(draft, "patch embedding");
  mt_design_linear(embed, MT_ROWS_PATCHES, vision->channels * vision->frame_patch * vision->patch * vision->patch,
                   block->hidden, MT_LINEAR_SAVES | (bias ? MT_LINEAR_BIAS : 0));
  mt_design_values(embed, positions, block->hidden);
  mt_design_output(embed, MT_ROWS_PATCHES, block->hidden);
  mt_draft_layers(draft, embed, 1, "embed");
}

/* Merges a square of patches into one feature; `norm` before the merge or behind it. */
static void merger(mt_draft *draft, const vision_sizes *vision, bool norm_merged, int norm_tensors,
                   const char *name, const char *suffix, int64_t handed_on) {
  int64_t square = vision->merge * vision->merge, merged = square * vision->block.hidden;
  mt_layer_design *design = mt_draft_design(draft, name);
  if (norm_merged)
    mt_design_norm(design, MT_ROWS_FEATURES, merged, 1, norm_tensors);
  else
    mt_design_norm(design, MT_ROWS_PATCHES, vision->block.hidden, 1, norm_tensors);
  mt_design_linear(design, MT_ROWS_FEATURES, merged, merged, MT_LINEAR_BIAS | MT_LINEAR_SAVES);
  mt_design_activation(design, MT_ROWS_FEATURES, merged, 1);
  mt_design_linear(design, MT_ROWS_FEATURES, merged, vision->out, MT_LINEAR_BIAS | MT_LINEAR_SAVES);
  mt_design_output(design, MT_ROWS_FEATURES, vision->out + handed_on);
  mt_draft_layers(draft, design, 1, suffix);
}

static void projector_module(mt_draft *draft, const vision_sizes *vision) {
  mt_module_facts *facts = mt_draft_module(draft, "projector", 0, true);
  facts->hidden = vision->merge * vision->merge * vision->block.hidden;
}

/* Newer files nest the decoder's keys under text_config. */
static const char *text_prefix(mt_draft *draft) {
  return mt_draft_has(draft, "", "text_config") ? "text_config" : "";
}

static void finish(mt_draft *draft, const vision_sizes *vision, const mt_decoder *decoder, int64_t carried) {
  if (draft->json->status == MOTET_OK && vision->out != decoder->block.hidden)
    mt_draft_fail(draft, MOTET_ERROR_PARSE, PREFIX, "out_hidden_size",
                  "the projector's width must be the decoder's hidden_size");
  mt_decoder_append(draft, decoder, carried);
  mt_draft_edge(draft, 0, 1);
  mt_draft_edge(draft, 1, 2);
}

void mt_family_qwen2_vl(mt_draft *draft) {
  vision_sizes vision = {0};
  mt_decoder decoder;
  read_vision(draft, &vision, "embed_dim", "in_chans", 2);
  int64_t ratio = mt_draft_integer_or(draft, PREFIX, "mlp_ratio", 64, 4);
  vision.out = mt_draft_integer(draft, PREFIX, "hidden_size", MT_WIDTH_MAX);
  vision.block.intermediate = ratio * vision.block.hidden;
  mt_decoder_read(draft, text_prefix(draft), "qwen2", &decoder);
  if (draft->json->status != MOTET_OK) return;
  embed_module(draft, &vision, false, 0);
  mt_layer_design *block = mt_draft_design(draft, "vision block");
  mt_block_design(block, &vision.block);
  mt_draft_layers(draft, block, vision.layers, NULL);
  projector_module(draft, &vision);
  merger(draft, &vision, false, 2, "patch merger", "", 0);
  finish(draft, &vision, &decoder, 0);
  set_rules(draft, &vision, 56 * 56, 28 * 28 * 16384);
}

void mt_family_qwen2_5_vl(mt_draft *draft) {
  vision_sizes vision = {0};
  mt_decoder decoder;
  int64_t full[MT_LAYERS_MAX];
  read_vision(draft, &vision, "hidden_size", "in_chans", 2);
  vision.block.intermediate = mt_draft_integer(draft, PREFIX, "intermediate_size", MT_WIDTH_MAX);
  vision.out = mt_draft_integer(draft, PREFIX, "out_hidden_size", MT_WIDTH_MAX);
  vision.block.norm_tensors = 1;
  vision.block.gated = true;
  int64_t window = mt_draft_integer(draft, PREFIX, "window_size", MT_SIDE_MAX);
  int32_t full_count = list_or(draft, "fullatt_block_indexes", MT_LAYERS_MAX - 1, MT_LAYERS_MAX,
                               (const int64_t[]){7, 15, 23, 31}, 4, full);
  mt_draft_divides(draft, PREFIX, "window_size", vision.patch * vision.merge, window, "window_size");
  mt_decoder_read(draft, text_prefix(draft), "qwen2", &decoder);
  if (draft->json->status != MOTET_OK) return;
  embed_module(draft, &vision, false, 0);
  mt_layer_design *whole = mt_draft_design(draft, "vision block");
  mt_block_design(whole, &vision.block);
  mt_block in_windows = vision.block;
  in_windows.area = MT_AREA_WINDOW;
  mt_layer_design *windowed = mt_draft_design(draft, "vision block in windows");
  mt_block_design(windowed, &in_windows);
  for (int64_t l = 0; l < vision.layers && draft->json->status == MOTET_OK; l++) {
    bool listed = false;
    for (int32_t i = 0; i < full_count; i++) listed = listed || full[i] == l;
    mt_draft_layers(draft, listed ? whole : windowed, 1, NULL);
  }
  projector_module(draft, &vision);
  merger(draft, &vision, false, 1, "patch merger", "", 0);
  finish(draft, &vision, &decoder, 0);
  set_rules(draft, &vision, 56 * 56, 28 * 28 * 16384);
  draft->result->rules.window = window / vision.patch;
}

/* From the listed blocks on, their outputs travel on beside the stream, through mergers of their own, to the first
 * blocks of the decoder (deepstack). */
void mt_family_qwen3_vl(mt_draft *draft) {
  static const char *const names[DEEP_MOST] = {"deep0",  "deep1",  "deep2",  "deep3", "deep4",  "deep5",
                                               "deep6",  "deep7",  "deep8",  "deep9", "deep10", "deep11",
                                               "deep12", "deep13", "deep14", "deep15"};
  vision_sizes vision = {0};
  mt_decoder decoder;
  int64_t deep[DEEP_MOST];
  read_vision(draft, &vision, "hidden_size", "in_channels", 2);
  vision.block.intermediate = mt_draft_integer(draft, PREFIX, "intermediate_size", MT_WIDTH_MAX);
  vision.out = mt_draft_integer(draft, PREFIX, "out_hidden_size", MT_WIDTH_MAX);
  int64_t positions = mt_draft_integer(draft, PREFIX, "num_position_embeddings", MT_VOCABULARY_MAX);
  int32_t deep_count = list_or(draft, "deepstack_visual_indexes", vision.layers - 1, DEEP_MOST,
                               (const int64_t[]){8, 16, 24}, 3, deep);
  for (int32_t i = 1; i < deep_count; i++)
    if (deep[i] <= deep[i - 1])
      mt_draft_fail(draft, MOTET_ERROR_PARSE, PREFIX, "deepstack_visual_indexes", "must ascend");
  bool experts = strcmp(draft->result->name, "qwen3_vl_moe") == 0;
  mt_decoder_read(draft, text_prefix(draft), experts ? "qwen3_vl_moe_text" : "qwen3_vl_text", &decoder);
  if (draft->json->status != MOTET_OK) return;
  embed_module(draft, &vision, true, positions);
  mt_layer_design *block = NULL;
  int32_t seen = 0;
  for (int64_t l = 0; l < vision.layers && draft->json->status == MOTET_OK; l++) {
    bool listed = seen < deep_count && deep[seen] == l;
    seen += listed ? 1 : 0;
    if (listed || block == NULL) {
      block = mt_draft_design(draft, "vision block");
      mt_block_design(block, &vision.block);
      mt_design_output(block, MT_ROWS_PATCHES, seen * vision.block.hidden);
    }
    mt_draft_layers(draft, block, 1, NULL);
  }
  projector_module(draft, &vision);
  /* Still to merge travels as patches, merged already as features. */
  int64_t square = vision.merge * vision.merge * vision.block.hidden;
  merger(draft, &vision, false, 2, "patch merger", "merge", deep_count * square);
  for (int32_t i = 0; i < deep_count; i++)
    merger(draft, &vision, true, 2, "deepstack merger", names[i],
           (i + 1) * vision.out + (deep_count - 1 - i) * square);
  finish(draft, &vision, &decoder, deep_count);
  set_rules(draft, &vision, 256 * 256, 4096 * 4096);
}
