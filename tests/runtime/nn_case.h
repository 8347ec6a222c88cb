/** @file A small InternVL model and a packed batch for it, for the tests of this folder. */
#ifndef MT_TESTS_NN_CASE_H
#define MT_TESTS_NN_CASE_H

#include "base/random.h"
#include "nn/network.h"

enum { NN_CASE_LAYERS = 8, NN_CASE_TOKENS = 90, NN_CASE_TILES = 2, NN_CASE_PATCHES = 16, NN_CASE_FEATURES = 4 };

/* Two vision blocks, two decoder blocks; embeddings, projector and head: layers 0; 1, 2; 3; 4; 5, 6; 7. */
static inline mt_internvl nn_case_config(bool other) {
  return (mt_internvl){.hf_form = other,
                       .vision = {.layers = 2,
                                  .hidden = 24,
                                  .intermediate = 36,
                                  .heads = 3,
                                  .image_size = 16,
                                  .patch_size = 4,
                                  .channels = 3,
                                  .norm_epsilon = 1e-5F,
                                  .rms_norm = other,
                                  .qkv_bias = !other,
                                  .qk_norm = other},
                       .decoder = {.layers = 2,
                                   .hidden = 40,
                                   .intermediate = 44,
                                   .heads = 4,
                                   .kv_heads = other ? 4 : 2,
                                   .head_dim = other ? 12 : 10,
                                   .vocabulary = 75,
                                   .norm_epsilon = 1e-5F,
                                   .rope_theta = 1e4,
                                   .attention_bias = !other,
                                   .tied_embeddings = other},
                       .downsample_ratio = 0.5F,
                       .vision_select_layer = -1,
                       .tokens_per_tile = NN_CASE_FEATURES};
}

typedef struct nn_case_batch {
  int32_t begin[4], ids[NN_CASE_TOKENS], labels[NN_CASE_TOKENS], rows[NN_CASE_TILES * NN_CASE_FEATURES];
  float pixels[NN_CASE_TILES * 3 * 16 * 16];
} nn_case_batch;

static inline mt_batch nn_case_fill(nn_case_batch *data) {
  mt_random random = mt_random_stream(3, "batch");
  const int32_t begin[4] = {0, 68, 69, NN_CASE_TOKENS};
  for (int i = 0; i < 4; i++) data->begin[i] = begin[i];
  for (int t = 0; t < NN_CASE_TOKENS; t++) {
    data->ids[t] = (int32_t)mt_random_below(&random, 75);
    data->labels[t] = t % 3 == 0 ? -100 : (int32_t)mt_random_below(&random, 75);
  }
  for (int f = 0; f < NN_CASE_TILES * NN_CASE_FEATURES; f++) data->rows[f] = f < NN_CASE_FEATURES ? 5 + f : 70 + f;
  for (int i = 0; i < NN_CASE_TILES * 3 * 16 * 16; i++) data->pixels[i] = (float)mt_random_normal(&random);
  return (mt_batch){.tokens = NN_CASE_TOKENS,
                    .segments = 3,
                    .segment_begin = data->begin,
                    .tiles = NN_CASE_TILES,
                    .token_ids = data->ids,
                    .labels = data->labels,
                    .feature_rows = data->rows,
                    .pixels = data->pixels,
                    .loss_weight = 1.0 / 60};
}

/* Weights that leave no term of a derivative at zero: norms near 1, everything else of order one over its width. */
static inline void nn_case_weights(mt_network *network) {
  mt_network_initialize(network, 5);
  for (int32_t i = 0; i < mt_network_parameter_count(network); i++) {
    mt_parameter *parameter = mt_network_parameter(network, i);
    mt_random random = mt_random_stream(9, parameter->name);
    const double scale = parameter->dims >= 2 ? 0.3 : 0.2;
    for (int64_t e = 0; e < parameter->count; e++)
      parameter->value[e] =
          (parameter->dims == 1 ? parameter->value[e] : 0.0F) + (float)(scale * mt_random_normal(&random));
  }
}

#endif
