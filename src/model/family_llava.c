/* LLaVA 1.5 (arXiv 2310.03744): in its original form the tower is given by name, and its sizes are a row here; in
 * transformers' form tower and decoder have configs of their own. */
#include "model/draft.h"

#include <motet/program.h>

#include <string.h>

/* CLIP towers (arXiv 2103.00020, table 20), by the names that configs have. */
typedef struct tower_sizes {
  const char *name;
  int64_t layers, hidden, heads, image, patch;
  int64_t intermediate; /* 0: four times the width */
} tower_sizes;

static const tower_sizes towers[] = {
    {"openai/clip-vit-large-patch14-336", 24, 1024, 16, 336, 14, 0},
    {"openai/clip-vit-large-patch14", 24, 1024, 16, 224, 14, 0},
    {"openai/clip-vit-base-patch16", 12, 768, 12, 224, 16, 0},
    {"openai/clip-vit-base-patch32", 12, 768, 12, 224, 32, 0},
};
enum { TOWERS = sizeof towers / sizeof *towers, CHANNELS = 3 };

static const tower_sizes *find_tower(mt_draft *draft) {
  const char *name = mt_draft_text(draft, "", "mm_vision_tower", "");
  for (int t = 0; t < TOWERS; t++)
    if (strcmp(name, towers[t].name) == 0) return &towers[t];
  mt_draft_fail(draft, MOTET_ERROR_UNSUPPORTED, "", "mm_vision_tower",
                "no such tower is known; openai/clip-vit-large-patch14-336, -large-patch14, -base-patch16 and "
                "-base-patch32 are");
  return NULL;
}

static const char PREFIX[] = "vision_config";

static void read_tower(mt_draft *draft, tower_sizes *tower) {
  if (strcmp(mt_draft_text(draft, PREFIX, "model_type", "clip_vision_model"), "clip_vision_model") != 0)
    mt_draft_fail(draft, MOTET_ERROR_UNSUPPORTED, PREFIX, "model_type", "only clip_vision_model is supported");
  *tower = (tower_sizes){.name = "its own",
                         .layers = mt_draft_integer(draft, PREFIX, "num_hidden_layers", MT_LAYERS_MAX),
                         .hidden = mt_draft_integer(draft, PREFIX, "hidden_size", MT_WIDTH_MAX),
                         .heads = mt_draft_integer(draft, PREFIX, "num_attention_heads", MT_HEADS_MAX),
                         .image = mt_draft_square(draft, PREFIX, "image_size", 0),
                         .patch = mt_draft_square(draft, PREFIX, "patch_size", 0),
                         .intermediate = mt_draft_integer(draft, PREFIX, "intermediate_size", MT_WIDTH_MAX)};
  mt_draft_divides(draft, PREFIX, "num_attention_heads", tower->heads, tower->hidden, "hidden_size");
  mt_draft_holds(draft, PREFIX, tower->patch, tower->image);
}

static void vision_module(mt_draft *draft, const tower_sizes *tower, int64_t layers) {
  const mt_block shape = {.rows = MT_ROWS_PATCHES,
                          .area = MT_AREA_PICTURE,
                          .hidden = tower->hidden,
                          .heads = tower->heads,
                          .kv_heads = tower->heads,
                          .head_width = tower->hidden / tower->heads,
                          .intermediate = tower->intermediate > 0 ? tower->intermediate : 4 * tower->hidden,
                          .norm_tensors = 2,
                          .qkv_bias = true,
                          .out_bias = true,
                          .mlp_bias = true};
  int64_t grid = tower->image / tower->patch;
  mt_module_facts *facts = mt_draft_module(draft, "vision", MOTET_INPUT_PIXELS,
                                           mt_draft_flag(draft, "", "unfreeze_mm_vision_tower", false));
  *facts = (mt_module_facts){.hidden = shape.hidden,
                             .heads = shape.heads,
                             .kv_heads = shape.kv_heads,
                             .head_width = shape.head_width,
                             .intermediate = shape.intermediate};
  mt_layer_design *embed = mt_draft_design(draft, "patch embedding");
  mt_design_linear(embed, MT_ROWS_PATCHES, CHANNELS * tower->patch * tower->patch, tower->hidden, MT_LINEAR_SAVES);
  mt_design_values(embed, grid * grid + 2, tower->hidden);
  mt_design_norm(embed, MT_ROWS_PATCHES, tower->hidden, 1, 2);
  mt_design_output(embed, MT_ROWS_PATCHES, tower->hidden);
  mt_draft_layers(draft, embed, 1, "embed");
  mt_layer_design *block = mt_draft_design(draft, "vision block");
  mt_block_design(block, &shape);
  mt_draft_layers(draft, block, layers, NULL);
  /* Behind the chosen block nothing runs, nor does the norm behind the last. */
  facts->unused_parameters = (tower->layers - layers) * block->parameters + 2 * tower->hidden;
}

static void projector_module(mt_draft *draft, int64_t in, int64_t hidden, bool biased) {
  int bias = biased ? MT_LINEAR_BIAS : 0;
  mt_module_facts *facts = mt_draft_module(draft, "projector", 0, true);
  facts->hidden = hidden;
  mt_layer_design *design = mt_draft_design(draft, "projector");
  mt_design_linear(design, MT_ROWS_FEATURES, in, hidden, bias | MT_LINEAR_SAVES);
  mt_design_activation(design, MT_ROWS_FEATURES, hidden, 1);
  mt_design_linear(design, MT_ROWS_FEATURES, hidden, hidden, bias | MT_LINEAR_SAVES);
  mt_design_output(design, MT_ROWS_FEATURES, hidden);
  mt_draft_layers(draft, design, 1, "");
}

/* The original form. */
static void read_named(mt_draft *draft, tower_sizes *tower, mt_decoder *decoder) {
  const tower_sizes *named = find_tower(draft);
  mt_decoder_read(draft, "", "llama", decoder);
  if (draft->json->status != MOTET_OK) return;
  *tower = *named;
  int64_t in = mt_draft_integer_or(draft, "", "mm_hidden_size", MT_WIDTH_MAX, tower->hidden);
  if (in != tower->hidden)
    mt_draft_fail(draft, MOTET_ERROR_PARSE, "", "mm_hidden_size", "is not the width of the tower");
  if (strcmp(mt_draft_text(draft, "", "mm_projector_type", "linear"), "mlp2x_gelu") != 0)
    mt_draft_fail(draft, MOTET_ERROR_UNSUPPORTED, "", "mm_projector_type", "only mlp2x_gelu is supported");
}

void mt_family_llava(mt_draft *draft) {
  mt_decoder decoder;
  tower_sizes sizes = {0}, *tower = &sizes;
  bool nested = !mt_draft_has(draft, "", "mm_vision_tower") &&
                (mt_draft_has(draft, "", PREFIX) || mt_draft_has(draft, "", "text_config"));
  if (nested) {
    read_tower(draft, tower);
    mt_decoder_read(draft, "text_config", mt_draft_text(draft, "text_config", "model_type", "llama"), &decoder);
    /* Many a LLaVA says so in its decoder's config alone, and transformers adds a "false" above it. */
    decoder.tied = decoder.tied || mt_draft_flag(draft, "text_config", "tie_word_embeddings", false);
  } else {
    read_named(draft, tower, &decoder);
  }
  if (draft->json->status != MOTET_OK) return;
  int64_t select = mt_json_integer_or(draft->json, nested ? "vision_feature_layer" : "mm_vision_select_layer",
                                      -tower->layers - 1, tower->layers, -2);
  if (draft->json->status != MOTET_OK) return;
  const char *feature =
      mt_draft_text(draft, "", nested ? "vision_feature_select_strategy" : "mm_vision_select_feature",
                    nested ? "default" : "patch");
  vision_module(draft, tower, select < 0 ? tower->layers + 1 + select : select);
  projector_module(draft, tower->hidden, decoder.block.hidden,
                   mt_draft_flag(draft, "", "multimodal_projector_bias", true));
  mt_decoder_append(draft, &decoder, 0);
  mt_draft_edge(draft, 0, 1);
  mt_draft_edge(draft, 1, 2);
  mt_architecture *result = draft->result;
  result->rules = (mt_picture_rules){
      .patch = tower->patch, .merge = 1, .side = tower->image, .extra_tokens = 1, .maximum_tiles = 1};
  bool whole = strcmp(feature, "full") == 0 || strcmp(feature, "cls_patch") == 0;
  result->rules.extra_features = whole ? 1 : 0;
  result->reads_pictures = true;
  result->usual_picture = (mt_picture){1, (int32_t)tower->image, (int32_t)tower->image};
  result->measure = mt_measure_tiles;
}
