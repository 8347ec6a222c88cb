/* The vision tower (InternViT): patch embedding and pre-norm blocks with layer scale. */
#include "nn/deferred.h"

#include <math.h>
#include <string.h>

static mt_shape tower_output(const mt_internvl *config, const mt_batch *batch) {
  return (mt_shape){mt_vision_rows(config, batch), config->vision.hidden};
}

static int64_t patch_floats(const mt_internvl *config) {
  return (int64_t)config->vision.channels * config->vision.patch_size * config->vision.patch_size;
}

static size_t embed_saved(const mt_internvl *config, mt_element element, const mt_batch *batch) {
  (void)config, (void)element, (void)batch;
  return 0;
}

static size_t embed_scratch(const mt_internvl *config, mt_element element, const mt_batch *batch) {
  mt_cutter count = {.element = element};
  mt_cut_floats(&count, mt_tile_patches(config) * batch->tiles, patch_floats(config));
  mt_cut(&count, mt_tile_patches(config) * batch->tiles, config->vision.hidden);
  return count.used;
}

/* pixels (tiles, channels, size, size) -> columns (tiles * patches, channels * patch * patch): with it the
 * convolution is a product. */
static void patches_to_rows(const mt_internvl *config, const mt_batch *batch, float *columns) {
  const int64_t size = config->vision.image_size, patch = config->vision.patch_size, grid = size / patch;
  for (int64_t tile = 0; tile < batch->tiles; tile++)
    for (int64_t y = 0; y < grid; y++)
      for (int64_t x = 0; x < grid; x++)
        for (int64_t channel = 0; channel < config->vision.channels; channel++) {
          const float *plane = batch->pixels + (tile * config->vision.channels + channel) * size * size;
          for (int64_t row = 0; row < patch; row++, columns += patch)
            memcpy(columns, plane + (y * patch + row) * size + x * patch, (size_t)patch * sizeof *columns);
        }
}

static motet_status embed_forward(const mt_layer_call *call) {
  const mt_internvl *config = call->config;
  const int64_t patches = mt_tile_patches(config), rows = patches * call->batch->tiles;
  const int64_t hidden = config->vision.hidden, tile_elements = (patches + 1) * hidden;
  if (call->batch->pixels == NULL)
    return mt_error_set(call->error, MOTET_ERROR_ARGUMENT, "the vision embedding needs the batch's pixels");
  float *columns = mt_workspace_take(call->workspace, (size_t)(rows * patch_floats(config)));
  void *embedded = mt_workspace_take(call->workspace, mt_element_floats(mt_layer_element(call), rows * hidden));
  patches_to_rows(config, call->batch, columns);
  const mt_matmul product = {.transpose_b = true,
                             .a_float = true,
                             .b_float = true,
                             .m = rows,
                             .n = hidden,
                             .k = patch_floats(config),
                             .a = columns,
                             .b = call->weight[MT_VISION_EMBED_PATCH],
                             .c = embedded,
                             .a_stride = patch_floats(config),
                             .b_stride = patch_floats(config),
                             .c_stride = hidden,
                             .bias = call->weight[MT_VISION_EMBED_PATCH_BIAS]};
  MT_TRY(mt_layer_multiply(call, &product));
  const mt_tensor_backend *backend = call->device->backend;
  const float *positions = call->weight[MT_VISION_EMBED_POSITION];
  for (int64_t tile = 0; tile < call->batch->tiles; tile++) {
    void *out = mt_layer_at(call, call->output, tile * tile_elements);
    backend->add_floats(hidden, positions, NULL, out);
    backend->add_floats(hidden, call->weight[MT_VISION_EMBED_CLASS], out, out);
    backend->add_floats(patches * hidden, positions + hidden, mt_layer_at(call, embedded, tile * patches * hidden),
                        mt_layer_at(call, out, hidden));
  }
  return MOTET_OK;
}

static motet_status embed_backward(const mt_layer_call *call) {
  if (!call->trains) return MOTET_OK;
  const mt_internvl *config = call->config;
  const mt_tensor_backend *backend = call->device->backend;
  const int64_t patches = mt_tile_patches(config), rows = patches * call->batch->tiles;
  const int64_t hidden = config->vision.hidden, tile_elements = (patches + 1) * hidden;
  float *columns = mt_workspace_take(call->workspace, (size_t)(rows * patch_floats(config)));
  void *gradient = mt_workspace_take(call->workspace, mt_element_floats(mt_layer_element(call), rows * hidden));
  patches_to_rows(config, call->batch, columns);
  for (int64_t tile = 0; tile < call->batch->tiles; tile++) {
    const void *dy = mt_layer_at(call, call->output_gradient, tile * tile_elements);
    backend->add_to_floats(tile_elements, dy, call->gradient[MT_VISION_EMBED_POSITION]);
    backend->add_to_floats(hidden, dy, call->gradient[MT_VISION_EMBED_CLASS]);
    memcpy(mt_layer_at(call, gradient, tile * patches * hidden), mt_layer_at(call, dy, hidden),
           mt_layer_bytes(call, patches * hidden));
  }
  return mt_linear_weight_gradient(call, rows, patch_floats(config), hidden, gradient, columns, true,
                                   call->gradient[MT_VISION_EMBED_PATCH],
                                   call->gradient[MT_VISION_EMBED_PATCH_BIAS]);
}

const mt_layer_kind mt_layer_vision_embed = {.output = tower_output,
                                             .saved = embed_saved,
                                             .scratch = embed_scratch,
                                             .forward = embed_forward,
                                             .backward = embed_backward};

/* What a block keeps; R rows, H hidden, U intermediate. */
typedef struct block_saved {
  void *input;     /* (R, H) */
  void *qkv;       /* (R, 3 H), before the norms of q and k */
  void *attention; /* (R, H), before the output projection */
  float *log_sum;  /* (heads, R) */
  void *middle;    /* (R, H), behind the first residual */
  void *up;        /* (R, U), before GELU */
} block_saved;

static size_t cut_block(const mt_internvl *config, mt_element element, const mt_batch *batch, float *data,
                        block_saved *saved) {
  const int64_t rows = mt_vision_rows(config, batch), hidden = config->vision.hidden;
  mt_cutter cutter = {.data = data, .element = element};
  saved->input = mt_cut(&cutter, rows, hidden);
  saved->qkv = mt_cut(&cutter, rows, 3 * hidden);
  saved->attention = mt_cut(&cutter, rows, hidden);
  saved->log_sum = mt_cut_floats(&cutter, rows, config->vision.heads);
  saved->middle = mt_cut(&cutter, rows, hidden);
  saved->up = mt_cut(&cutter, rows, config->vision.intermediate);
  return cutter.used;
}

static size_t block_saved_floats(const mt_internvl *config, mt_element element, const mt_batch *batch) {
  block_saved saved;
  return cut_block(config, element, batch, NULL, &saved);
}

/* Workspace of both directions: one layout, the backward's, which is the larger. */
typedef struct block_scratch {
  void *normed;    /* (R, H) */
  void *projected; /* (R, H) */
  void *middle;    /* (R, H) gradient at `middle` */
  void *normed_qk; /* (R, 3 H): queries and keys behind their norms; v's place is not used */
  void *qkv;       /* (R, 3 H) gradient */
  void *activated; /* (R, U) */
  void *up;        /* (R, U) gradient */
  float *product;  /* (H, U) gradient of a scaled linear layer before its scale */
  float *sums;     /* (H) */
  int32_t *begin;  /* [tiles + 1] tiles as attention's segments */
} block_scratch;

static size_t cut_block_scratch(const mt_internvl *config, mt_element element, const mt_batch *batch, float *data,
                                block_scratch *scratch) {
  const mt_internvl_vision *vision = &config->vision;
  const int64_t rows = mt_vision_rows(config, batch), hidden = vision->hidden, up = vision->intermediate;
  mt_cutter cutter = {.data = data, .element = element};
  scratch->normed = mt_cut(&cutter, rows, hidden);
  scratch->projected = mt_cut(&cutter, rows, hidden);
  scratch->middle = mt_cut(&cutter, rows, hidden);
  scratch->normed_qk = mt_cut(&cutter, rows, vision->qk_norm ? 3 * hidden : 0);
  scratch->qkv = mt_cut(&cutter, rows, 3 * hidden);
  scratch->activated = mt_cut(&cutter, rows, up);
  scratch->up = mt_cut(&cutter, rows, up);
  scratch->product = mt_cut_floats(&cutter, hidden, up > hidden ? up : hidden);
  scratch->sums = mt_cut_floats(&cutter, 1, hidden);
  scratch->begin = (void *)mt_cut_floats(&cutter, 1, batch->tiles + 1);
  return cutter.used;
}

static size_t block_scratch_floats(const mt_internvl *config, mt_element element, const mt_batch *batch) {
  block_scratch scratch;
  return cut_block_scratch(config, element, batch, NULL, &scratch);
}

static block_scratch take_scratch(const mt_layer_call *call) {
  block_scratch scratch;
  size_t floats = block_scratch_floats(call->config, mt_layer_element(call), call->batch);
  cut_block_scratch(call->config, mt_layer_element(call), call->batch, mt_workspace_take(call->workspace, floats),
                    &scratch);
  for (int32_t tile = 0; tile <= call->batch->tiles; tile++)
    scratch.begin[tile] = (int32_t)(tile * (mt_tile_patches(call->config) + 1));
  return scratch;
}

static mt_norm block_norm(const mt_layer_call *call, const void *input, int weight, int bias) {
  return (mt_norm){.rms = call->config->vision.rms_norm,
                   .epsilon = call->config->vision.norm_epsilon,
                   .rows = mt_vision_rows(call->config, call->batch),
                   .columns = call->config->vision.hidden,
                   .input = input,
                   .stride = call->config->vision.hidden,
                   .weight = call->weight[weight],
                   .bias = call->weight[bias]};
}

/* Norm of the queries or keys over all heads, inside rows of 3 H; `part` 0: q, 1: k. */
static mt_norm part_norm(const mt_layer_call *call, const block_saved *saved, int part) {
  const int64_t hidden = call->config->vision.hidden;
  return (mt_norm){.rms = true,
                   .epsilon = call->config->vision.norm_epsilon,
                   .rows = mt_vision_rows(call->config, call->batch),
                   .columns = hidden,
                   .input = mt_layer_at(call, saved->qkv, part * hidden),
                   .stride = 3 * hidden,
                   .weight = call->weight[part == 0 ? MT_VISION_BLOCK_Q_NORM : MT_VISION_BLOCK_K_NORM]};
}

static mt_attention block_attention(const mt_layer_call *call, const block_saved *saved,
                                    const block_scratch *scratch) {
  const mt_internvl_vision *vision = &call->config->vision;
  const int64_t hidden = vision->hidden;
  const void *query = saved->qkv;
  if (vision->qk_norm) {
    for (int part = 0; part < 2; part++) {
      const mt_norm norm = part_norm(call, saved, part);
      mt_parallel_norm_forward(call->device, &norm, mt_layer_at(call, scratch->normed_qk, part * hidden));
    }
    query = scratch->normed_qk;
  }
  return (mt_attention){.query = query,
                        .key = mt_layer_at(call, query, hidden),
                        .value = mt_layer_at(call, saved->qkv, 2 * hidden),
                        .query_stride = 3 * hidden,
                        .key_stride = 3 * hidden,
                        .value_stride = 3 * hidden,
                        .heads = vision->heads,
                        .kv_heads = vision->heads,
                        .head_dim = vision->hidden / vision->heads,
                        .segments = call->batch->tiles,
                        .segment_begin = scratch->begin,
                        .scale = 1.0F / sqrtf((float)(vision->hidden / vision->heads))};
}

static motet_status block_forward(const mt_layer_call *call) {
  const int64_t rows = mt_vision_rows(call->config, call->batch), hidden = call->config->vision.hidden;
  const int64_t up = call->config->vision.intermediate;
  const block_scratch s = take_scratch(call);
  block_saved saved;
  cut_block(call->config, mt_layer_element(call), call->batch, call->saved, &saved);
  const mt_norm norm1 = block_norm(call, call->input, MT_VISION_BLOCK_NORM1, MT_VISION_BLOCK_NORM1_BIAS);
  mt_parallel_norm_forward(call->device, &norm1, s.normed);
  MT_TRY(mt_linear_forward(call, rows, hidden, 3 * hidden, s.normed, call->weight[MT_VISION_BLOCK_QKV],
                           call->weight[MT_VISION_BLOCK_QKV_BIAS], saved.qkv));
  const mt_attention attention = block_attention(call, &saved, &s);
  MT_TRY(
      mt_parallel_attention_forward(call->device, &attention, saved.attention, hidden, saved.log_sum, call->error));
  MT_TRY(mt_linear_residual(call, rows, hidden, hidden, saved.attention, call->weight[MT_VISION_BLOCK_OUT],
                            call->weight[MT_VISION_BLOCK_OUT_BIAS], call->weight[MT_VISION_BLOCK_SCALE1],
                            call->input, saved.middle));
  const mt_norm norm2 = block_norm(call, saved.middle, MT_VISION_BLOCK_NORM2, MT_VISION_BLOCK_NORM2_BIAS);
  mt_parallel_norm_forward(call->device, &norm2, s.normed);
  MT_TRY(mt_linear_forward(call, rows, hidden, up, s.normed, call->weight[MT_VISION_BLOCK_UP],
                           call->weight[MT_VISION_BLOCK_UP_BIAS], saved.up));
  mt_parallel_gelu_forward(call->device, rows * up, saved.up, s.activated);
  return mt_linear_residual(call, rows, up, hidden, s.activated, call->weight[MT_VISION_BLOCK_DOWN],
                            call->weight[MT_VISION_BLOCK_DOWN_BIAS], call->weight[MT_VISION_BLOCK_SCALE2],
                            saved.middle, call->output);
}

static motet_status scaled_weight_gradients(const mt_layer_call *call, const block_scratch *s, int64_t in,
                                            const void *output_gradient, const void *input, int weight, int bias,
                                            int scale) {
  const mt_scaled_slots slots = {.weight = weight, .bias = bias, .scale = scale};
  return mt_scaled_linear_weight_gradient(call, mt_vision_rows(call->config, call->batch), in,
                                          call->config->vision.hidden, output_gradient, input, &slots, s->product,
                                          s->sums);
}

/* Gradient at `middle` from the output's, into s.middle. */
static motet_status backward_mlp(const mt_layer_call *call, const block_saved *saved, const block_scratch *s) {
  const int64_t rows = mt_vision_rows(call->config, call->batch), hidden = call->config->vision.hidden;
  const int64_t up = call->config->vision.intermediate;
  const mt_norm norm = block_norm(call, saved->middle, MT_VISION_BLOCK_NORM2, MT_VISION_BLOCK_NORM2_BIAS);
  mt_parallel_scale_columns(call->device, rows, hidden, call->weight[MT_VISION_BLOCK_SCALE2], call->output_gradient,
                            s->projected);
  MT_TRY(mt_linear_input_gradient(call, rows, up, hidden, s->projected, call->weight[MT_VISION_BLOCK_DOWN], s->up));
  mt_parallel_gelu_backward(call->device, rows * up, saved->up, s->up, call->trains ? s->activated : NULL);
  if (call->trains) {
    MT_TRY(scaled_weight_gradients(call, s, up, call->output_gradient, s->activated, MT_VISION_BLOCK_DOWN,
                                   MT_VISION_BLOCK_DOWN_BIAS, MT_VISION_BLOCK_SCALE2));
    mt_parallel_norm_forward(call->device, &norm, s->normed);
    MT_TRY(mt_linear_weight_gradient(call, rows, hidden, up, s->up, s->normed, false,
                                     call->gradient[MT_VISION_BLOCK_UP], call->gradient[MT_VISION_BLOCK_UP_BIAS]));
  }
  MT_TRY(mt_linear_input_gradient(call, rows, hidden, up, s->up, call->weight[MT_VISION_BLOCK_UP], s->normed));
  MT_TRY(mt_parallel_norm_backward(call->device, &norm, s->normed, call->output_gradient, s->middle,
                                   call->trains ? call->gradient[MT_VISION_BLOCK_NORM2] : NULL,
                                   call->trains ? call->gradient[MT_VISION_BLOCK_NORM2_BIAS] : NULL, call->error));
  return MOTET_OK;
}

static motet_status backward_attention(const mt_layer_call *call, const block_saved *saved,
                                       const block_scratch *s) {
  const int64_t hidden = call->config->vision.hidden;
  const mt_attention attention = block_attention(call, saved, s);
  const mt_attention_gradients gradients = {.output = saved->attention,
                                            .output_gradient = s->normed,
                                            .output_stride = hidden,
                                            .output_gradient_stride = hidden,
                                            .log_sum = saved->log_sum,
                                            .query = s->qkv,
                                            .key = mt_layer_at(call, s->qkv, hidden),
                                            .value = mt_layer_at(call, s->qkv, 2 * hidden),
                                            .query_stride = 3 * hidden,
                                            .key_stride = 3 * hidden,
                                            .value_stride = 3 * hidden};
  MT_TRY(mt_parallel_attention_backward(call->device, &attention, &gradients, call->error));
  if (!call->config->vision.qk_norm) return MOTET_OK;
  for (int part = 0; part < 2; part++) {
    const mt_norm norm = part_norm(call, saved, part);
    void *gradient = mt_layer_at(call, s->qkv, part * hidden);
    float *weight =
        call->trains ? call->gradient[part == 0 ? MT_VISION_BLOCK_Q_NORM : MT_VISION_BLOCK_K_NORM] : NULL;
    MT_TRY(mt_parallel_norm_backward(call->device, &norm, gradient, NULL, gradient, weight, NULL, call->error));
  }
  return MOTET_OK;
}

static motet_status block_backward(const mt_layer_call *call) {
  const int64_t rows = mt_vision_rows(call->config, call->batch), hidden = call->config->vision.hidden;
  const block_scratch s = take_scratch(call);
  block_saved saved;
  cut_block(call->config, mt_layer_element(call), call->batch, call->saved, &saved);
  MT_TRY(backward_mlp(call, &saved, &s));
  if (call->trains)
    MT_TRY(scaled_weight_gradients(call, &s, hidden, s.middle, saved.attention, MT_VISION_BLOCK_OUT,
                                   MT_VISION_BLOCK_OUT_BIAS, MT_VISION_BLOCK_SCALE1));
  mt_parallel_scale_columns(call->device, rows, hidden, call->weight[MT_VISION_BLOCK_SCALE1], s.middle,
                            s.projected);
  MT_TRY(mt_linear_input_gradient(call, rows, hidden, hidden, s.projected, call->weight[MT_VISION_BLOCK_OUT],
                                  s.normed));
  MT_TRY(backward_attention(call, &saved, &s));
  const mt_norm norm = block_norm(call, saved.input, MT_VISION_BLOCK_NORM1, MT_VISION_BLOCK_NORM1_BIAS);
  if (call->trains) {
    mt_parallel_norm_forward(call->device, &norm, s.normed);
    MT_TRY(mt_linear_weight_gradient(call, rows, hidden, 3 * hidden, s.qkv, s.normed, false,
                                     call->gradient[MT_VISION_BLOCK_QKV],
                                     call->gradient[MT_VISION_BLOCK_QKV_BIAS]));
  }
  MT_TRY(
      mt_linear_input_gradient(call, rows, hidden, 3 * hidden, s.qkv, call->weight[MT_VISION_BLOCK_QKV], s.normed));
  MT_TRY(mt_parallel_norm_backward(call->device, &norm, s.normed, s.middle, call->input_gradient,
                                   call->trains ? call->gradient[MT_VISION_BLOCK_NORM1] : NULL,
                                   call->trains ? call->gradient[MT_VISION_BLOCK_NORM1_BIAS] : NULL, call->error));
  return MOTET_OK;
}

const mt_layer_kind mt_layer_vision_block = {.keeps_input = true,
                                             .output = tower_output,
                                             .saved = block_saved_floats,
                                             .scratch = block_scratch_floats,
                                             .forward = block_forward,
                                             .backward = block_backward};
