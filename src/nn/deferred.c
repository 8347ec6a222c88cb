#include "nn/deferred.h"

#include <string.h>

enum { PRODUCTS_MOST = 4 }; /* of a layer */

typedef struct product {
  int32_t layer;
  int64_t rows, in, out;
  const void *output_gradient, *input; /* (rows, out), (rows, in) */
  bool input_float;
  float *weight_gradient, *bias_gradient;
  mt_scaled_slots scale;
} product;

struct mt_deferred {
  int32_t count, capacity, layer;
  const float *block; /* the layer's saved values */
  size_t block_floats;
  float *free; /* where the next copy goes */
  product products[];
};

static size_t header_bytes(int32_t layers) {
  return (sizeof(mt_deferred) + (size_t)layers * PRODUCTS_MOST * sizeof(product) + 63) / 64 * 64;
}

mt_deferred *mt_deferred_begin(void *memory, int32_t layers) {
  mt_deferred *deferred = memory;
  *deferred = (mt_deferred){.capacity = layers * PRODUCTS_MOST, .free = (float *)memory + header_bytes(layers) / 4};
  return deferred;
}

void mt_deferred_layer(mt_deferred *deferred, int32_t layer, const float *block, size_t floats) {
  deferred->layer = layer;
  deferred->block = block;
  deferred->block_floats = floats;
}

static const void *keep(mt_deferred *deferred, const void *array, mt_element element, int64_t count) {
  const float *begin = array;
  if (deferred->block != NULL && begin >= deferred->block && begin < deferred->block + deferred->block_floats)
    return array; /* saved values stay until the second half anyway */
  float *copy = deferred->free;
  memcpy(copy, array, (size_t)count * mt_element_bytes(element));
  deferred->free += mt_workspace_room(mt_element_floats(element, count));
  return copy;
}

motet_status mt_deferred_add(const mt_layer_call *call, int64_t rows, int64_t in, int64_t out,
                             const void *output_gradient, const void *input, bool input_float,
                             float *weight_gradient, float *bias_gradient, const mt_scaled_slots *scale) {
  static const mt_scaled_slots none = {-1, -1, -1};
  mt_deferred *deferred = call->deferred;
  const mt_element element = mt_layer_element(call);
  if (deferred->count == deferred->capacity)
    return mt_error_set(call->error, MOTET_ERROR_LIMIT, "a layer puts off more than %d products", PRODUCTS_MOST);
  deferred->products[deferred->count++] =
      (product){.layer = deferred->layer,
                .rows = rows,
                .in = in,
                .out = out,
                .output_gradient = keep(deferred, output_gradient, element, rows * out),
                .input = keep(deferred, input, input_float ? MT_ELEMENT_FLOAT32 : element, rows * in),
                .input_float = input_float,
                .weight_gradient = weight_gradient,
                .bias_gradient = bias_gradient,
                .scale = scale != NULL ? *scale : none};
  return MOTET_OK;
}

int32_t mt_deferred_count(const mt_deferred *deferred) { return deferred->count; }

int32_t mt_deferred_layer_of(const mt_deferred *deferred, int32_t index) { return deferred->products[index].layer; }

size_t mt_deferred_scratch(const mt_deferred *deferred, int32_t index) {
  const product *this = &deferred->products[index];
  if (this->scale.scale < 0) return 0;
  return mt_workspace_room((size_t)(this->out * this->in)) + mt_workspace_room((size_t)this->out);
}

motet_status mt_deferred_run(const mt_deferred *deferred, int32_t index, const mt_layer_call *call) {
  const product *this = &deferred->products[index];
  if (this->scale.scale < 0)
    return mt_linear_weight_gradient(call, this->rows, this->in, this->out, this->output_gradient, this->input,
                                     this->input_float, this->weight_gradient, this->bias_gradient);
  float *unscaled = mt_workspace_take(call->workspace, (size_t)(this->out * this->in));
  float *sums = mt_workspace_take(call->workspace, (size_t)this->out);
  return mt_scaled_linear_weight_gradient(call, this->rows, this->in, this->out, this->output_gradient, this->input,
                                          &this->scale, unscaled, sums);
}

static size_t room(mt_element element, int64_t rows, int64_t columns) {
  return mt_workspace_room(mt_element_floats(element, rows * columns));
}

/* Floats that a layer's products copy: what they read beside the saved block. */
static size_t copied_floats(const mt_internvl *config, mt_element element, int32_t layer, const mt_batch *batch) {
  const mt_internvl_vision *vision = &config->vision;
  const mt_internvl_decoder *decoder = &config->decoder;
  const int64_t rows = mt_vision_rows(config, batch), features = mt_feature_rows(config, batch);
  const int64_t tokens = batch->tokens, side = mt_internvl_shuffle(config);
  int32_t block;
  switch (mt_internvl_layer_kind(config, layer, &block)) {
  case MT_INTERNVL_VISION_EMBED:
    return room(element, batch->tiles * mt_tile_patches(config), vision->hidden) +
           room(MT_ELEMENT_FLOAT32, batch->tiles * mt_tile_patches(config),
                (int64_t)vision->channels * vision->patch_size * vision->patch_size);
  case MT_INTERNVL_VISION_BLOCK: /* gradients: output, up, middle, q/k/v; inputs: both norms', activation */
    return 4 * room(element, rows, vision->hidden) + 2 * room(element, rows, vision->intermediate) +
           room(element, rows, 3 * vision->hidden);
  case MT_INTERNVL_PROJECTOR: /* gradients: output, hidden; inputs: activation, norm's */
    return 3 * room(element, features, decoder->hidden) + room(element, features, side * side * vision->hidden);
  case MT_INTERNVL_DECODER_BLOCK:
    return 4 * room(element, tokens, decoder->hidden) + room(element, tokens, decoder->intermediate) +
           room(element, tokens, 2 * (int64_t)decoder->intermediate) +
           room(element, tokens, (int64_t)(decoder->heads + 2 * decoder->kv_heads) * decoder->head_dim);
  default: return 0;
  }
}

int64_t mt_network_deferred_bytes(const mt_internvl *config, mt_element element, const bool *trainable,
                                  int32_t layer_begin, int32_t layer_end, int32_t first_trainable,
                                  const mt_batch *batch) {
  if (first_trainable < 0) return 0;
  size_t floats = 0;
  for (int32_t layer = layer_begin > first_trainable ? layer_begin : first_trainable; layer < layer_end; layer++) {
    bool idle = batch->tiles == 0 && layer <= config->vision.layers + 1;
    if (trainable[layer] && !idle) floats += copied_floats(config, element, layer, batch);
  }
  return (int64_t)(header_bytes(layer_end - layer_begin) + floats * sizeof(float));
}
