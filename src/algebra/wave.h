/** @file
 * Body orders that are searched for: zero-bubble schedules, whose backward is split into an input gradient, which
 * the stage before waits for, and a weight gradient, which nobody does. The order depends on the times of the slabs
 * and on how many activations a rank may hold. See docs/algebra.md, "Split orders".
 */
#ifndef MT_ALGEBRA_WAVE_H
#define MT_ALGEBRA_WAVE_H

#include "algebra/derive.h"
#include "algebra/layout.h"

typedef enum mt_wave_kind { MT_WAVE_FORWARD, MT_WAVE_INPUT, MT_WAVE_WEIGHT } mt_wave_kind;

/** One event of a rank's sequence. */
typedef struct mt_wave_step {
  int32_t chunk, microbatch;
  mt_wave_kind kind;
} mt_wave_step;

enum { MT_WAVE_CHUNKS_MAX = 2 };

typedef struct mt_wave {
  int32_t ranks, chunks, microbatches; /* 1 or 2 chunks; slab s is chunk s / ranks of its rank */
  mt_slab_map map;
  int32_t limit; /* chunks' activations a rank may hold, from F to the end of W; >= chunks */
  const double *forward, *input, *weight; /* [slabs] times of one event */
  const mt_gate *gate;                    /* [slabs] which backward events there are */
  double lag;                             /* from the end of an event to its neighbour's begin on another rank */
} mt_wave;

/** Events that a rank has at most. */
static inline int64_t mt_wave_steps(const mt_wave *wave) { return 3 * (int64_t)wave->chunks * wave->microbatches; }

/** Writes every rank's sequence: rank r's steps are steps[r * mt_wave_steps() ...], counts[r] of them. No rank
 * holds more than the limit, and the sequences cannot hang. @p work bounds the search in visited events; the same
 * input gives the same order. Returns false when memory is out. */
bool mt_wave_order(mt_arena *arena, const mt_wave *wave, int64_t work, mt_wave_step *steps, int64_t *counts);

#endif
