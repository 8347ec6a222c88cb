/** @file
 * Body orders: the sequence in which one rank runs the chunks of the Sharded regions. All Sharded regions of a
 * schedule form one wavefront of `chunks` chunks; chunk c's slab on rank r is stage c * ranks + r of it.
 */
#ifndef MT_ALGEBRA_BODY_H
#define MT_ALGEBRA_BODY_H

#include <stdbool.h>
#include <stdint.h>

typedef struct mt_body_shape {
  int32_t ranks, chunks, microbatches;
} mt_body_shape;

/** Forward or backward of one (chunk, microbatch). */
typedef struct mt_body_step {
  int32_t chunk, microbatch;
  bool backward;
} mt_body_step;

/** Writes rank @p rank's 2 * chunks * microbatches steps: every (chunk, microbatch) forward and backward once. */
typedef void mt_body_order(const mt_body_shape *shape, int32_t rank, mt_body_step *steps);

mt_body_order mt_body_1f1b, mt_body_gpipe;

#endif
