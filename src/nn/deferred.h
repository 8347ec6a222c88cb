/**
 * @file
 * Weight gradients that are put off: a backward that is split computes input gradients and the gradients of vectors
 * (norms, position embeddings), keeps what the matrices' products need, and computes those in a second half. The
 * head puts nothing off: its output gradients are the logits of the whole vocabulary, which nobody wants to keep.
 */
#ifndef MT_NN_DEFERRED_H
#define MT_NN_DEFERRED_H

#include "nn/internal.h"

/** Begins a list in @p memory, of mt_network_deferred_bytes(). */
mt_deferred *mt_deferred_begin(void *memory, int32_t layers);

/** Before a layer's first product: where its saved block lies. What a product reads there is not copied. */
void mt_deferred_layer(mt_deferred *deferred, int32_t layer, const float *block, size_t floats);

/** Keeps the product of mt_linear_weight_gradient(); with @p scale, the one whose result is scaled. */
motet_status mt_deferred_add(const mt_layer_call *call, int64_t rows, int64_t in, int64_t out,
                             const void *output_gradient, const void *input, bool input_float,
                             float *weight_gradient, float *bias_gradient, const mt_scaled_slots *scale);

/** How many products were kept, and each of them. */
int32_t mt_deferred_count(const mt_deferred *deferred);
int32_t mt_deferred_layer_of(const mt_deferred *deferred, int32_t index);
/** Floats of workspace that product @p index takes. */
size_t mt_deferred_scratch(const mt_deferred *deferred, int32_t index);
/** Computes it; @p call is one of its layer's. */
motet_status mt_deferred_run(const mt_deferred *deferred, int32_t index, const mt_layer_call *call);

#endif
