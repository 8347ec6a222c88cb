/** @file
 * Generation: a sequence that grows, with the keys and values of its tokens kept, so that each further token costs
 * one row and not the whole sequence again.
 */
#ifndef MT_NN_GENERATION_H
#define MT_NN_GENERATION_H

#include "nn/network.h"

typedef struct mt_generation mt_generation;

/** An empty sequence of at most @p capacity tokens. The network must hold all decoder layers, and outlive it; it
 * may run other things between the calls below. */
motet_status mt_generation_create(mt_network *network, int32_t capacity, motet_error *error,
                                  mt_generation **generation);
void mt_generation_destroy(mt_generation *generation);

/**
 * Runs the tokens of @p batch behind those that are there, and gives the logits of the last one.
 *
 * Where positions are stretched (dynamic rotary scaling), tokens are turned by the length at which they come, and
 * keep that turn: as the published code generates, not as it would see the whole sequence at once.
 * @param batch    one segment; its feature rows count from its own first token
 * @param features (tiles * tokens_per_tile, hidden) image features; NULL where the batch has no tiles
 * @param logits   [vocabulary]
 */
motet_status mt_generation_extend(mt_generation *generation, const mt_batch *batch, const float *features,
                                  motet_error *error, float *logits);

#endif
