/** @file
 * Attention over a packed row that a group of ranks holds together. Internal to this folder and its tests.
 *
 * Ulysses first: the members of a set give each other tokens for heads, so that each has all rows of the set with
 * heads / U of the heads. Then the ring: the sets' keys and values pass by, block by block; the next block is under
 * way while this one is computed, and partial results are merged by their log-sum-exp. Backward sends keys and
 * values round again, and their gradients behind them, to which every member adds and which end at home.
 *
 * Elements sent by a member, T its tokens, d head_dim (where all members hold as many):
 *
 *     ring     forward   2 T kv d (R - 1)
 *              backward  4 T kv d (R - 1) + 2 T kv d
 *     Ulysses  each      (2 T heads d + 2 T kv d) (U - 1) / U
 *
 * with kv = max(kv_heads, U): heads of keys and values are sent repeatedly where there are fewer than U.
 */
#ifndef MT_NN_CONTEXT_ATTENTION_H
#define MT_NN_CONTEXT_ATTENTION_H

#include "nn/context.h"
#include "tensor/parallel.h"

typedef struct mt_context_attention {
  const mt_context *context;
  const mt_device *device;           /* of float32 elements; not read where only sizes are asked for */
  int32_t heads, kv_heads, head_dim; /* of the model */
  bool causal;                       /* a token sees those before it in its segment, and itself; else all of them */
  float scale;
} mt_context_attention;

/** Floats that forward keeps for backward (`backend` may be NULL), and floats that either needs meanwhile. */
size_t mt_context_attention_saved(const mt_context_attention *attention);
size_t mt_context_attention_scratch(const mt_context_attention *attention);

/** Own rows: qkv (T, (heads + 2 kv_heads) * head_dim), q and k rotated; output (T, heads * head_dim). Collective.
 */
motet_status mt_context_attention_forward(const mt_context_attention *attention, const float *qkv, float *saved,
                                          float *scratch, float *output, motet_error *error);

/** qkv_gradient is written, laid out as qkv. With U > 1, qkv and output are not read and may be NULL. Collective.
 */
motet_status mt_context_attention_backward(const mt_context_attention *attention, const float *qkv,
                                           const float *output, const float *output_gradient, float *saved,
                                           float *scratch, float *qkv_gradient, motet_error *error);

#endif
