#include "nn/layer.h"

#include <math.h>
#include <stdlib.h>

/* Frequencies and angles are rounded to single precision as the family's training code has them: at position
 * 30,000 that shifts angles by a thousandth, and the weights have seen it. */
static void fill(int32_t positions, int32_t head_dim, double base, float *cosines, float *sines) {
  const int32_t half = head_dim / 2;
  for (int32_t c = 0; c < half; c++) {
    const float exponent = (float)(2 * c) / (float)head_dim;
    const float frequency = 1.0F / powf((float)base, exponent);
    for (int32_t p = 0; p < positions; p++) {
      const float angle = (float)p * frequency;
      cosines[(int64_t)p * half + c] = (float)cos((double)angle);
      sines[(int64_t)p * half + c] = (float)sin((double)angle);
    }
  }
}

motet_status mt_rotary_table(mt_rotary_cache *cache, const mt_internvl_decoder *decoder, int32_t length,
                             motet_error *error, const float **cosines, const float **sines) {
  double base = decoder->rope_theta;
  const bool stretch = decoder->rope_factor > 0 && length > decoder->max_positions;
  if (stretch) {
    /* Dynamic scaling: the base grows with the length beyond the trained one. */
    const double grown = decoder->rope_factor * length / decoder->max_positions - (decoder->rope_factor - 1.0);
    base *= pow(grown, (double)decoder->head_dim / (decoder->head_dim - 2));
  }
  mt_rotary_positions *table = stretch ? &cache->stretched : &cache->plain;
  if (table->cosines == NULL || table->positions < length || table->base != base) {
    const int32_t wanted = stretch ? length : (length + 255) / 256 * 256;
    const size_t bytes = (size_t)wanted * (size_t)(decoder->head_dim / 2) * sizeof(float);
    float *fresh = malloc(2 * bytes);
    if (fresh == NULL) return mt_error_memory(error, 2 * bytes, "rotary embeddings");
    free(table->cosines);
    table->cosines = fresh;
    table->sines = fresh + bytes / sizeof(float);
    table->positions = wanted;
    table->base = base;
    fill(wanted, decoder->head_dim, base, table->cosines, table->sines);
  }
  *cosines = table->cosines;
  *sines = table->sines;
  return MOTET_OK;
}

void mt_rotary_free(mt_rotary_cache *cache) {
  free(cache->plain.cosines);
  free(cache->stretched.cosines);
  *cache = (mt_rotary_cache){0};
}
