/* A model's config.json from arbitrary bytes: what is accepted describes a model whose sizes can be counted. */
#include "model/internvl.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  motet_error error;
  mt_internvl config;
  if (mt_internvl_parse(data, size, "fuzz", &error, &config) != MOTET_OK) {
    if (error.text[0] == '\0') abort();
    return 0;
  }
  const mt_internvl_vision *vision = &config.vision;
  const mt_internvl_decoder *decoder = &config.decoder;
  if (vision->layers < 0 || vision->hidden % vision->heads != 0 || vision->image_size % vision->patch_size != 0 ||
      decoder->heads % decoder->kv_heads != 0 || decoder->head_dim % 2 != 0 || config.tokens_per_tile < 1 ||
      config.image_token >= decoder->vocabulary || config.min_tiles > config.max_tiles)
    abort();
  const bool trainable[3] = {true, false, true};
  mt_arena *arena = mt_arena_create();
  mt_model *model;
  if (arena == NULL || mt_internvl_model(arena, &config, trainable, &error, &model) != MOTET_OK) abort();
  int64_t total = 0;
  for (int32_t layer = 0; layer < model->layer_count; layer++)
    if (model->layers[layer].parameters < 1 ||
        __builtin_add_overflow(total, model->layers[layer].parameters, &total))
      abort();
  mt_arena_destroy(arena);
  return 0;
}
