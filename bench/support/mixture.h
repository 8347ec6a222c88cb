/** @file An encoder and a language model as chains of layers with times, under any schedule: what bench/mpipe and
 * bench/published compare. */
#ifndef BENCH_MIXTURE_H
#define BENCH_MIXTURE_H

#include "base/arena.h"

#include <stdbool.h>
#include <stdint.h>

/** Seconds of a layer. `input` is the gradient of its input with recomputation. */
typedef struct mixture_layer {
  double forward, input, weight;
} mixture_layer;

typedef struct mixture {
  int32_t encoder_layers, decoder_layers;
  const mixture_layer *encoder, *decoder; /* of a mean microbatch */
  bool encoder_trains;
  int32_t ranks, microbatches;
  const double *spread; /* [microbatches] of the encoder's times, mean 1; NULL: all 1 */
} mixture;

/** Least makespan of `schedule` on the modules `vision` and `llm`; @p split as mt_derive() takes it, or NULL. */
double mixture_seconds(const mixture *mixed, const char *schedule, const int32_t *split, int32_t split_count);

/** Cuts @p count layers into @p parts contiguous ones with the least largest sum of @p seconds; fills
 * counts[0 .. parts). With @p first seconds already on part 0. */
void mixture_cut(const double *seconds, int32_t count, int32_t parts, double first, int32_t *counts);

#endif
