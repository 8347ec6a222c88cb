/** @file
 * Body orders: the sequence in which one rank runs the chunks of the Sharded regions. All Sharded regions of a
 * schedule form one wavefront of `chunks` chunks; chunk c's slab on rank r is stage c * ranks + r of it.
 */
#ifndef MT_ALGEBRA_BODY_H
#define MT_ALGEBRA_BODY_H

#include <stdint.h>

typedef struct mt_body_shape {
  int32_t ranks, chunks, microbatches;
  int32_t ahead; /* microbatches that a rank of the last chunk has under way beyond these ranks: its input gradients
                    come from elsewhere */
} mt_body_shape;

typedef enum mt_body_kind { MT_BODY_FORWARD, MT_BODY_BACKWARD, MT_BODY_INPUT, MT_BODY_WEIGHT } mt_body_kind;

/** Work on one (chunk, microbatch): forward; backward, whole or as input gradient and weight gradient. */
typedef struct mt_body_step {
  int32_t chunk, microbatch;
  mt_body_kind kind;
} mt_body_step;

/** Steps that a rank has at most. */
static inline int64_t mt_body_steps(const mt_body_shape *shape) {
  return 3 * (int64_t)shape->chunks * shape->microbatches;
}

/** Writes rank @p rank's steps: every (chunk, microbatch) forward and backward once. Returns their number. */
typedef int64_t mt_body_order(const mt_body_shape *shape, int32_t rank, mt_body_step *steps);

mt_body_order mt_body_1f1b, mt_body_gpipe, mt_body_dualpipev;

#endif
