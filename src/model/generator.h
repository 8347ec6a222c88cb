/** @file What transformers that generate pictures and clips share: conditioning by a vector a sample. */
#ifndef MT_MODEL_GENERATOR_H
#define MT_MODEL_GENERATOR_H

#include "model/draft.h"

/** A norm whose result is scaled and shifted by the sample (adaptive LayerNorm): what it gives is kept. */
void mt_generator_norm(mt_layer_design *design, mt_extent rows, int64_t width, int tensors);

/** A product with a vector of the sample: its other factor, what the sublayer gave, is kept. */
void mt_generator_gate(mt_layer_design *design, mt_extent rows, int64_t width);

/** Two linear maps with biases and an activation between them, of a sample's or a condition's vector. */
void mt_generator_embedding(mt_layer_design *design, mt_extent rows, int64_t in, int64_t width, int64_t out);

/** Queries from latents, keys and values from the condition; biases everywhere. */
typedef struct mt_cross {
  int64_t hidden, condition, heads, head_width;
  bool qk_norm; /* over all heads' values together */
  bool bias;
} mt_cross;
void mt_generator_cross(mt_layer_design *design, const mt_cross *cross);

/** The module "dit" with its facts. */
void mt_generator_module(mt_draft *draft, const mt_block *block);

#endif
