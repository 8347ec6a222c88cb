#include "nn/generation.h"

#include "nn/internal.h"

#include <stdlib.h>
#include <string.h>

struct mt_generation {
  mt_network *network;
  int32_t capacity, tokens;
  mt_layer_cache *layers; /* [decoder blocks] */
  float *data;            /* keys and values of all layers, (2 * blocks, capacity, K) */
  size_t bytes;
  void *hidden;  /* (capacity, H) what leaves the last block; only new rows are used */
  float *scores; /* [capacity] of one query against all keys */
  void *normed;  /* [H] */
};

motet_status mt_generation_create(mt_network *network, int32_t capacity, motet_error *error,
                                  mt_generation **result) {
  const mt_internvl_decoder *decoder = &network->config.decoder;
  const size_t hidden = (size_t)decoder->hidden, rows = (size_t)capacity;
  const size_t row = (size_t)decoder->kv_heads * (size_t)decoder->head_dim, blocks = (size_t)decoder->layers;
  size_t bytes;
  if (capacity < 1)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT, "a sequence of %d tokens; at least 1 is needed", capacity);
  if (__builtin_mul_overflow(2 * blocks * row * sizeof(float), rows, &bytes))
    return mt_error_set(error, MOTET_ERROR_LIMIT, "a sequence of %d tokens is too long", capacity);
  mt_generation *made = calloc(1, sizeof *made);
  if (made == NULL) return mt_error_memory(error, sizeof *made, "a sequence");
  void *data;
  motet_status status = mt_memory_map(bytes, false, "keys and values", error, &data);
  if (status == MOTET_OK) {
    made->network = network;
    made->capacity = capacity;
    made->data = data;
    made->bytes = bytes;
    made->layers = calloc(blocks, sizeof *made->layers);
    made->hidden = malloc(rows * hidden * sizeof(float));
    made->scores = malloc(rows * sizeof(float));
    made->normed = malloc(hidden * sizeof(float));
    if (made->layers == NULL || made->hidden == NULL || made->scores == NULL || made->normed == NULL)
      status = mt_error_memory(error, rows * hidden * sizeof(float), "a sequence");
  }
  if (status != MOTET_OK) {
    mt_generation_destroy(made);
    return status;
  }
  for (size_t b = 0; b < blocks; b++)
    made->layers[b] = (mt_layer_cache){.keys = made->data + 2 * b * rows * row,
                                       .values = made->data + (2 * b + 1) * rows * row,
                                       .scores = made->scores};
  *result = made;
  return MOTET_OK;
}

void mt_generation_destroy(mt_generation *generation) {
  if (generation == NULL) return;
  if (generation->data != NULL) mt_memory_unmap(generation->data, generation->bytes);
  free(generation->layers);
  free(generation->hidden);
  free(generation->scores);
  free(generation->normed);
  free(generation);
}

/* Final norm and logits of one row. */
static motet_status last_logits(mt_generation *generation, const void *row, motet_error *error, float *logits) {
  mt_network *network = generation->network;
  const mt_internvl_decoder *decoder = &network->config.decoder;
  float *const *weight = network->layers[network->layer_count - 1].weight;
  const mt_norm norm = {.rms = true,
                        .epsilon = decoder->norm_epsilon,
                        .rows = 1,
                        .columns = decoder->hidden,
                        .input = row,
                        .stride = decoder->hidden,
                        .weight = weight[MT_HEAD_NORM]};
  mt_parallel_norm_forward(&network->device, &norm, generation->normed);
  const mt_matmul product = {.transpose_b = true,
                             .b_float = true,
                             .c_float = true,
                             .m = 1,
                             .n = decoder->vocabulary,
                             .k = decoder->hidden,
                             .a = generation->normed,
                             .b = weight[MT_HEAD_WEIGHT],
                             .c = logits,
                             .a_stride = decoder->hidden,
                             .b_stride = decoder->hidden,
                             .c_stride = decoder->vocabulary};
  return mt_matmul_run(network->device.backend, network->device.team, &product, error);
}

motet_status mt_generation_extend(mt_generation *generation, const mt_batch *batch, const float *features,
                                  motet_error *error, float *logits) {
  mt_network *network = generation->network;
  const int32_t first = network->config.vision.layers + 2, head = network->layer_count - 1;
  if (batch->segments != 1 || batch->tokens < 1)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT, "a sequence is extended by one segment, not by %d",
                        batch->segments);
  if (batch->tokens > generation->capacity - generation->tokens)
    return mt_error_set(error, MOTET_ERROR_LIMIT, "%d tokens do not fit behind %d: the sequence has room for %d",
                        batch->tokens, generation->tokens, generation->capacity);
  if (!network->layers[head].held)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT, "layer %d is not held by this rank", head);
  for (int32_t b = 0; b < network->config.decoder.layers; b++) generation->layers[b].tokens = generation->tokens;
  network->caches = generation->layers;
  motet_status status = mt_network_forward(network, first, head, batch, features, generation->hidden, false, -1,
                                           NULL, error, NULL, NULL);
  network->caches = NULL;
  if (status != MOTET_OK) return status;
  generation->tokens += batch->tokens;
  const size_t row = (size_t)network->config.decoder.hidden * mt_element_bytes(mt_network_element(network));
  return last_logits(generation, (const char *)generation->hidden + (size_t)(batch->tokens - 1) * row, error,
                     logits);
}
