/* InternVL 1.5 to 3 (arXiv 2404.16821, 2412.05271, 2504.10479), in the original form and in that of transformers.
 * The runtime's own reader, internvl.h, also names weights and is stricter about what it can compute. */
#include "model/draft.h"

#include <motet/program.h>

#include <math.h>
#include <string.h>

typedef struct vision_sizes {
  mt_block block;
  int64_t layers, unused; /* blocks that run; blocks behind the chosen one */
  int64_t image, patch, channels, shuffle;
  bool positions, mask_token;
} vision_sizes;

/* What the two forms call the same thing, and what each assumes where the file is silent. */
typedef struct form {
  const char *decoder, *qkv_bias, *qk_norm, *select_layer;
  bool qk_norm_usual;
  const char *norm_usual;
} form;

static const form chat = {"llm_config", "qkv_bias", "qk_normalization", "select_layer", true, "rms_norm"};
static const form hf = {"text_config", "attention_bias", "use_qk_norm", "vision_feature_layer",
                        false,         "layer_norm"};
static const char PREFIX[] = "vision_config";

static void read_block(mt_draft *draft, const form *keys, mt_block *block) {
  *block = (mt_block){.rows = MT_ROWS_PATCHES,
                      .area = MT_AREA_PICTURE,
                      .norm_tensors = 2,
                      .out_bias = true,
                      .mlp_bias = true,
                      .qk_norm_whole = true,
                      .layer_scale = true};
  block->hidden = mt_draft_integer(draft, PREFIX, "hidden_size", MT_WIDTH_MAX);
  block->intermediate = mt_draft_integer(draft, PREFIX, "intermediate_size", MT_WIDTH_MAX);
  block->heads = block->kv_heads = mt_draft_integer(draft, PREFIX, "num_attention_heads", MT_HEADS_MAX);
  mt_draft_divides(draft, PREFIX, "num_attention_heads", block->heads, block->hidden, "hidden_size");
  block->head_width = block->hidden / block->heads;
  block->qkv_bias = mt_draft_flag(draft, PREFIX, keys->qkv_bias, false);
  block->qk_norm_tensors = mt_draft_flag(draft, PREFIX, keys->qk_norm, keys->qk_norm_usual) ? 1 : 0;
  const char *norm = mt_draft_text(draft, PREFIX, "norm_type", keys->norm_usual);
  if (strcmp(norm, "rms_norm") == 0)
    block->norm_tensors = 1;
  else if (strcmp(norm, "layer_norm") != 0)
    mt_draft_fail(draft, MOTET_ERROR_UNSUPPORTED, PREFIX, "norm_type", "layer_norm and rms_norm are supported");
}

static void read_vision(mt_draft *draft, const form *keys, vision_sizes *vision) {
  read_block(draft, keys, &vision->block);
  int64_t layers = mt_draft_integer(draft, PREFIX, "num_hidden_layers", MT_LAYERS_MAX);
  int64_t select = mt_json_integer_or(draft->json, keys->select_layer, -layers - 1, layers, -1);
  vision->layers = select < 0 ? layers + 1 + select : select;
  vision->unused = layers - vision->layers;
  vision->image = mt_draft_square(draft, PREFIX, "image_size", 0);
  vision->patch = mt_draft_square(draft, PREFIX, "patch_size", 14);
  vision->channels = mt_draft_integer_or(draft, PREFIX, "num_channels", 64, 3);
  vision->positions = keys == &chat || mt_draft_flag(draft, PREFIX, "use_absolute_position_embeddings", true);
  vision->mask_token = keys == &hf && mt_draft_flag(draft, PREFIX, "use_mask_token", false);
  mt_draft_holds(draft, PREFIX, vision->patch, vision->image);
  double ratio = mt_json_number_or(draft->json, "downsample_ratio", 1.0 / 64, 1.0, 0.5);
  vision->shuffle = llround(1.0 / ratio);
  if (fabs((double)vision->shuffle * ratio - 1.0) > 1e-6)
    mt_draft_fail(draft, MOTET_ERROR_UNSUPPORTED, "", "downsample_ratio", "must be one over a whole number");
  mt_draft_divides(draft, "", "downsample_ratio", vision->shuffle, vision->image / vision->patch,
                   "a side's patches,");
}

static void vision_module(mt_draft *draft, const vision_sizes *vision) {
  const mt_block *block = &vision->block;
  int64_t grid = vision->image / vision->patch;
  mt_module_facts *facts = mt_draft_module(draft, "vision", MOTET_INPUT_PIXELS, true);
  *facts = (mt_module_facts){.hidden = block->hidden,
                             .heads = block->heads,
                             .kv_heads = block->kv_heads,
                             .head_width = block->head_width,
                             .intermediate = block->intermediate};
  mt_layer_design *embed = mt_draft_design(draft, "patch embedding");
  mt_design_linear(embed, MT_ROWS_PATCHES, vision->channels * vision->patch * vision->patch, block->hidden,
                   MT_LINEAR_BIAS | MT_LINEAR_SAVES);
  mt_design_values(embed, 1 + (vision->positions ? grid * grid + 1 : 0),
                   block->hidden); /* class token, positions */
  mt_design_output(embed, MT_ROWS_PATCHES, block->hidden);
  mt_draft_layers(draft, embed, 1, "embed");
  mt_layer_design *design = mt_draft_design(draft, "vision block");
  mt_block_design(design, block);
  mt_draft_layers(draft, design, vision->layers, NULL);
  facts->unused_parameters = vision->unused * design->parameters + (vision->mask_token ? block->hidden : 0);
}

static void projector_module(mt_draft *draft, const vision_sizes *vision, int64_t hidden) {
  int64_t shuffled = vision->shuffle * vision->shuffle * vision->block.hidden;
  mt_module_facts *facts = mt_draft_module(draft, "projector", 0, true);
  facts->hidden = hidden;
  mt_layer_design *design = mt_draft_design(draft, "projector");
  mt_design_norm(design, MT_ROWS_FEATURES, shuffled, 1, 2);
  mt_design_linear(design, MT_ROWS_FEATURES, shuffled, hidden, MT_LINEAR_BIAS | MT_LINEAR_SAVES);
  mt_design_activation(design, MT_ROWS_FEATURES, hidden, 1);
  mt_design_linear(design, MT_ROWS_FEATURES, hidden, hidden, MT_LINEAR_BIAS | MT_LINEAR_SAVES);
  mt_design_output(design, MT_ROWS_FEATURES, hidden);
  mt_draft_layers(draft, design, 1, "");
}

static void set_rules(mt_draft *draft, const vision_sizes *vision, bool hf_form) {
  mt_architecture *result = draft->result;
  bool tiles = hf_form || mt_draft_flag(draft, "", "dynamic_image_size", false);
  int64_t least = mt_draft_integer_or(draft, "", "min_dynamic_patch", 4096, 1);
  int64_t most = mt_draft_integer_or(draft, "", "max_dynamic_patch", 4096, hf_form ? 12 : 6);
  if (most < least)
    mt_draft_fail(draft, MOTET_ERROR_PARSE, "", "max_dynamic_patch", "is less than min_dynamic_patch");
  result->rules = (mt_picture_rules){.patch = vision->patch,
                                     .merge = vision->shuffle,
                                     .side = vision->image,
                                     .extra_tokens = 1,
                                     .minimum_tiles = tiles ? least : 1,
                                     .maximum_tiles = tiles ? most : 1,
                                     .thumbnail = mt_draft_flag(draft, "", "use_thumbnail", hf_form)};
  result->reads_pictures = true;
  result->usual_picture = (mt_picture){1, 448, 448};
  result->measure = mt_measure_tiles;
}

void mt_family_internvl(mt_draft *draft) {
  bool hf_form = strcmp(draft->result->name, "internvl") == 0;
  const form *keys = hf_form ? &hf : &chat;
  vision_sizes vision = {0};
  mt_decoder decoder;
  const char *type = mt_draft_text(draft, keys->decoder, "model_type", "");
  mt_decoder_read(draft, keys->decoder, type, &decoder);
  if (draft->json->status == MOTET_OK) read_vision(draft, keys, &vision);
  if (draft->json->status != MOTET_OK) return;
  vision_module(draft, &vision);
  projector_module(draft, &vision, decoder.block.hidden);
  mt_decoder_append(draft, &decoder, 0);
  mt_draft_edge(draft, 0, 1);
  mt_draft_edge(draft, 1, 2);
  set_rules(draft, &vision, hf_form);
}
