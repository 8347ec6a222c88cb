/* Open-Sora-Plan 1.3 (arXiv 2412.00131), from MindSpeed-MM's training config: an mT5 encoder and a wavelet
 * autoencoder (arXiv 2411.17459), both frozen, before a transformer whose middle blocks attend sparsely. */
#include "model/generator.h"

#include <motet/program.h>

#include <string.h>

enum { TIME_WIDTH = 256, MODULATIONS = 6, FIRST_SPARSE = 2, BEHIND_SPARSE = 30 };

/* Kernels: in a frame, over three frames, and of one position. */
enum { PLANE = 9, VOLUME = 27, POINT = 1, BAND_2D = 12, BAND_3D = 24 };

typedef struct autoencoder_sizes {
  int64_t base, latent, encoder_flow, decoder_flow, encoder_blocks, decoder_blocks, connect_blocks;
  bool attention;
} autoencoder_sizes;

static void convolution(mt_layer_design *design, mt_extent from, mt_extent to, int64_t in, int64_t out,
                        int64_t kernel) {
  mt_design_linear(design, to, in * kernel, out, MT_LINEAR_BIAS);
  mt_design_keep(design, from, in);
}

static void residual(mt_layer_design *design, mt_extent grid, int64_t in, int64_t out, int64_t kernel) {
  mt_design_norm(design, grid, in, 1, 2);
  mt_design_activation(design, grid, in, 1);
  convolution(design, grid, grid, in, out, kernel);
  mt_design_norm(design, grid, out, 1, 2);
  mt_design_activation(design, grid, out, 1);
  convolution(design, grid, grid, out, out, kernel);
  if (in != out) mt_design_linear(design, grid, in, out, MT_LINEAR_BIAS); /* of the input that the norm keeps */
}

static void grid_attention(mt_layer_design *design, int64_t width) {
  mt_design_norm(design, MT_ROWS_GRID_3, width, 1, 2);
  mt_design_linear(design, MT_ROWS_GRID_3, width, width, MT_LINEAR_BIAS | MT_LINEAR_SAVES);
  mt_design_linear(design, MT_ROWS_GRID_3, width, width, MT_LINEAR_BIAS);
  mt_design_linear(design, MT_ROWS_GRID_3, width, width, MT_LINEAR_BIAS);
  mt_attention attention = {.queries = MT_ROWS_GRID_3,
                            .keys = MT_ROWS_GRID_3,
                            .area = MT_AREA_GRID,
                            .heads = 1,
                            .kv_heads = 1,
                            .key_width = width,
                            .value_width = width};
  mt_design_attention(design, &attention);
  mt_design_linear(design, MT_ROWS_GRID_3, width, width, MT_LINEAR_BIAS);
}

/* The encoder starts from the 24 bands of a wavelet transform; bands of coarser ones join on the way. */
static void append_encoder(mt_draft *draft, const autoencoder_sizes *ae) {
  int64_t c = ae->base, flow = ae->encoder_flow;
  mt_layer_design *fine = mt_draft_design(draft, "fine grid");
  convolution(fine, MT_ROWS_GRID_1, MT_ROWS_GRID_1, BAND_3D, c, PLANE);
  for (int64_t i = 0; i < ae->encoder_blocks; i++) residual(fine, MT_ROWS_GRID_1, c, c, PLANE);
  convolution(fine, MT_ROWS_GRID_1, MT_ROWS_GRID_2, c, c, PLANE);
  convolution(fine, MT_ROWS_GRID_2, MT_ROWS_GRID_2, BAND_2D, flow, PLANE);
  mt_design_output(fine, MT_ROWS_GRID_2, c + flow);
  mt_draft_layers(draft, fine, 1, "down1");
  mt_layer_design *middle = mt_draft_design(draft, "middle grid");
  convolution(middle, MT_ROWS_GRID_2, MT_ROWS_GRID_2, c + flow, 2 * c, PLANE);
  for (int64_t i = 0; i < ae->encoder_blocks; i++) residual(middle, MT_ROWS_GRID_2, 2 * c, 2 * c, VOLUME);
  convolution(middle, MT_ROWS_GRID_2, MT_ROWS_GRID_3, 2 * c, 2 * c, VOLUME);
  convolution(middle, MT_ROWS_GRID_3, MT_ROWS_GRID_3, BAND_3D, flow, PLANE);
  mt_design_output(middle, MT_ROWS_GRID_3, 2 * c + flow);
  mt_draft_layers(draft, middle, 1, "down2");
  mt_layer_design *coarse = mt_draft_design(draft, "coarse grid");
  residual(coarse, MT_ROWS_GRID_3, 2 * c + flow, 4 * c, VOLUME);
  if (ae->attention) grid_attention(coarse, 4 * c);
  residual(coarse, MT_ROWS_GRID_3, 4 * c, 4 * c, VOLUME);
  mt_design_norm(coarse, MT_ROWS_GRID_3, 4 * c, 1, 2);
  mt_design_activation(coarse, MT_ROWS_GRID_3, 4 * c, 1);
  convolution(coarse, MT_ROWS_GRID_3, MT_ROWS_GRID_3, 4 * c, 2 * ae->latent, VOLUME);
  mt_design_output(coarse, MT_ROWS_GRID_3, 2 * ae->latent);
  mt_draft_layers(draft, coarse, 1, "mid");
}

/* Parameters of the decoder, which training never runs. */
static int64_t decoder_parameters(const autoencoder_sizes *ae) {
  mt_layer_design all = {0}; /* its list of products overflows, which parameters do not mind */
  mt_extent any = MT_ROWS_GRID_1;
  int64_t c = ae->base, flow = ae->decoder_flow;
  convolution(&all, any, any, ae->latent, 4 * c, VOLUME);
  residual(&all, any, 4 * c, 4 * c, VOLUME);
  if (ae->attention) grid_attention(&all, 4 * c);
  residual(&all, any, 4 * c, 4 * c + flow, VOLUME);
  for (int64_t i = 0; i < ae->decoder_blocks; i++) residual(&all, any, 4 * c, 4 * c, VOLUME);
  convolution(&all, any, any, 4 * c, 4 * c, VOLUME);
  residual(&all, any, 4 * c, 4 * c + flow, VOLUME);
  for (int64_t i = 0; i < ae->decoder_blocks; i++) residual(&all, any, i == 0 ? 4 * c : 2 * c, 2 * c, VOLUME);
  convolution(&all, any, any, 2 * c, 2 * c, PLANE);
  residual(&all, any, 2 * c, 2 * c, VOLUME);
  residual(&all, any, 2 * c, c, VOLUME);
  residual(&all, any, c, c, VOLUME);
  for (int64_t i = 0; i < 2 * ae->connect_blocks; i++) residual(&all, any, flow, flow, VOLUME);
  convolution(&all, any, any, flow, BAND_2D, PLANE);
  convolution(&all, any, any, flow, BAND_3D, PLANE);
  mt_design_norm(&all, any, c, 1, 2);
  convolution(&all, any, any, c, BAND_3D, PLANE);
  return all.parameters;
}

static void read_autoencoder(mt_draft *draft, autoencoder_sizes *ae) {
  if (strcmp(mt_draft_text(draft, "ae", "model_id", ""), "wfvae") != 0)
    mt_draft_fail(draft, MOTET_ERROR_UNSUPPORTED, "ae", "model_id", "only wfvae is supported");
  *ae = (autoencoder_sizes){
      .base = mt_draft_integer_or(draft, "ae", "base_channels", 8192, 128),
      .latent = mt_draft_integer_or(draft, "ae", "latent_dim", 4096, 8),
      .encoder_flow = mt_draft_integer_or(draft, "ae", "encoder_energy_flow_hidden_size", 8192, 64),
      .decoder_flow = mt_draft_integer_or(draft, "ae", "decoder_energy_flow_hidden_size", 8192, 128),
      .encoder_blocks = mt_draft_integer_or(draft, "ae", "encoder_num_resblocks", 8, 2),
      .decoder_blocks = mt_draft_integer_or(draft, "ae", "decoder_num_resblocks", 8, 2),
      .connect_blocks = mt_draft_integer_or(draft, "ae", "connect_res_layer_num", 8, 2),
      .attention = mt_draft_flag(draft, "ae", "use_attention", true)};
}

typedef struct predictor_sizes {
  mt_block block;
  mt_cross cross;
  int64_t layers, in, out, patch[3], caption;
} predictor_sizes;

static void read_predictor(mt_draft *draft, predictor_sizes *model) {
  static const char at[] = "predictor";
  mt_block *block = &model->block;
  *block = (mt_block){.rows = MT_ROWS_LATENT,
                      .area = MT_AREA_LATENT,
                      .heads = mt_draft_integer(draft, at, "num_heads", MT_HEADS_MAX),
                      .head_width = mt_draft_integer(draft, at, "head_dim", MT_HEADS_MAX),
                      .norm_tensors = mt_draft_flag(draft, at, "norm_elementwise_affine", true) ? 2 : 0,
                      .qkv_bias = mt_draft_flag(draft, at, "attention_q_bias", false),
                      .out_bias = true,
                      .mlp_bias = true};
  if (mt_draft_flag(draft, at, "attention_k_bias", false) != block->qkv_bias ||
      mt_draft_flag(draft, at, "attention_v_bias", false) != block->qkv_bias)
    mt_draft_fail(draft, MOTET_ERROR_UNSUPPORTED, at, "attention_k_bias",
                  "biases of queries, keys and values must be all there or all absent");
  block->kv_heads = block->heads;
  block->hidden = block->heads * block->head_width;
  block->intermediate = 4 * block->hidden;
  model->layers = mt_draft_integer(draft, at, "num_layers", MT_LAYERS_MAX);
  model->in = mt_draft_integer(draft, at, "in_channels", 4096);
  model->out = mt_draft_integer_or(draft, at, "out_channels", 4096, model->in);
  model->caption = mt_draft_integer(draft, at, "caption_channels", MT_WIDTH_MAX);
  model->cross = (mt_cross){.hidden = block->hidden,
                            .condition = mt_draft_integer_or(draft, at, "cross_attention_dim", MT_WIDTH_MAX,
                                                             block->hidden > 0 ? block->hidden : 1),
                            .heads = block->heads,
                            .head_width = block->head_width,
                            .bias = block->qkv_bias};
  model->patch[0] = model->patch[1] = model->patch[2] = 1;
  if (mt_draft_list(draft, at, "patch_size_thw", 1, 64, 3, model->patch) != 3 || model->patch[1] != model->patch[2])
    mt_draft_fail(draft, MOTET_ERROR_PARSE, at, "patch_size_thw",
                  "must be three whole numbers: frames, height and the equal width");
  if (model->cross.condition != block->hidden)
    mt_draft_fail(draft, MOTET_ERROR_PARSE, at, "cross_attention_dim", "must be num_heads times head_dim");
}

static void design_block(mt_layer_design *design, const predictor_sizes *model, bool sparse) {
  mt_block block = model->block;
  int64_t hidden = block.hidden;
  block.area = sparse ? MT_AREA_SPARSE : MT_AREA_LATENT;
  mt_design_values(design, MODULATIONS, hidden);
  mt_block_attention(design, &block);
  mt_generator_gate(design, block.rows, hidden);
  mt_generator_cross(design, &model->cross);
  mt_block_feed_forward(design, &block);
  mt_generator_gate(design, block.rows, hidden);
  mt_design_keep(design, block.rows, 2 * hidden); /* the two norms' results, which the sample scales */
  mt_design_output(design, block.rows, hidden);
  mt_design_output(design, MT_ROWS_CONDITION, hidden);
  mt_design_output(design, MT_ROWS_SAMPLES, (MODULATIONS + 1) * hidden);
}

static void append_predictor(mt_draft *draft, const predictor_sizes *model, bool sparse) {
  const mt_block *block = &model->block;
  int64_t hidden = block->hidden, square = model->patch[1] * model->patch[2];
  mt_generator_module(draft, block);
  mt_layer_design *embed = mt_draft_design(draft, "patch, caption and time embedding");
  mt_design_linear(embed, block->rows, square * model->in, hidden, MT_LINEAR_BIAS | MT_LINEAR_SAVES);
  mt_generator_embedding(embed, MT_ROWS_CONDITION, model->caption, hidden, hidden);
  mt_generator_embedding(embed, MT_ROWS_SAMPLES, TIME_WIDTH, hidden, hidden);
  mt_design_activation(embed, MT_ROWS_SAMPLES, hidden, 1);
  mt_design_linear(embed, MT_ROWS_SAMPLES, hidden, MODULATIONS * hidden, MT_LINEAR_BIAS | MT_LINEAR_SAVES);
  mt_design_keep(embed, MT_ROWS_CONDITION, hidden); /* for every block's keys and values */
  mt_design_output(embed, block->rows, hidden);
  mt_design_output(embed, MT_ROWS_CONDITION, hidden);
  mt_design_output(embed, MT_ROWS_SAMPLES, (MODULATIONS + 1) * hidden);
  mt_draft_layers(draft, embed, 1, "embed");
  mt_layer_design *full_block = mt_draft_design(draft, "block");
  mt_layer_design *sparse_block = mt_draft_design(draft, "sparse block");
  design_block(full_block, model, false);
  design_block(sparse_block, model, true);
  for (int64_t l = 0; l < model->layers && draft->json->status == MOTET_OK; l++)
    mt_draft_layers(draft, sparse && l >= FIRST_SPARSE && l < BEHIND_SPARSE ? sparse_block : full_block, 1, NULL);
  mt_layer_design *head = mt_draft_design(draft, "head");
  mt_design_values(head, 2, hidden);
  mt_generator_norm(head, block->rows, hidden, 0);
  mt_design_linear(head, block->rows, hidden, model->patch[0] * square * model->out,
                   MT_LINEAR_BIAS | MT_LINEAR_SAVES);
  mt_design_output(head, block->rows, model->patch[0] * square * model->out);
  mt_draft_layers(draft, head, 1, "head");
}

void mt_family_open_sora(mt_draft *draft) {
  autoencoder_sizes ae;
  predictor_sizes model = {0};
  if (strcmp(mt_draft_text(draft, "text_encoder", "model_id", ""), "MT5") != 0)
    mt_draft_fail(draft, MOTET_ERROR_UNSUPPORTED, "text_encoder", "model_id", "only MT5 is supported");
  read_autoencoder(draft, &ae);
  read_predictor(draft, &model);
  bool sparse = mt_draft_flag(draft, "predictor", "sparse1d", false);
  int64_t parts = mt_draft_integer_or(draft, "predictor", "sparse_n", 64, 2);
  if (draft->json->status == MOTET_OK && model.caption != mt_t5_xxl_multilingual.hidden)
    mt_draft_fail(draft, MOTET_ERROR_PARSE, "predictor", "caption_channels", "mT5-xxl gives 4096");
  if (draft->json->status == MOTET_OK && model.in != ae.latent)
    mt_draft_fail(draft, MOTET_ERROR_PARSE, "predictor", "in_channels", "must equal ae.latent_dim");
  if (draft->json->status != MOTET_OK) return;
  const mt_t5 *t5 = &mt_t5_xxl_multilingual;
  mt_module_facts *text = mt_draft_module(draft, "text_encoder", MOTET_INPUT_TOKENS, false);
  *text = (mt_module_facts){.hidden = t5->hidden,
                            .heads = t5->heads,
                            .kv_heads = t5->heads,
                            .head_width = t5->head_width,
                            .intermediate = t5->intermediate,
                            .vocabulary = t5->vocabulary};
  mt_t5_encoder(draft, t5);
  mt_draft_module(draft, "vae", MOTET_INPUT_PIXELS, false)->unused_parameters = decoder_parameters(&ae);
  append_encoder(draft, &ae);
  append_predictor(draft, &model, sparse);
  draft->modules[2].inputs = 0; /* its latents and captions come from the other two */
  mt_draft_edge(draft, 0, 2);
  mt_draft_edge(draft, 1, 2);
  mt_architecture *result = draft->result;
  result->rules = (mt_picture_rules){.patch = model.patch[1],
                                     .frame_patch = model.patch[0],
                                     .compression = 8,
                                     .frame_compression = 4,
                                     .condition_tokens = 512,
                                     .sparse_parts = sparse ? parts : 0};
  result->reads_pictures = true;
  result->usual_picture = (mt_picture){93, 640, 640};
  result->measure = mt_measure_latents;
}
