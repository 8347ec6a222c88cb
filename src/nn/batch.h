/** @file A microbatch as the network sees it: packed rows without padding. */
#ifndef MT_NN_BATCH_H
#define MT_NN_BATCH_H

#include <stdint.h>

struct mt_context;

/**
 * Shapes are known to every rank (metadata); the pointers are only set on ranks that loaded that input. The
 * packed row holds `segments` sequences one after another: segment s is tokens
 * [segment_begin[s], segment_begin[s + 1]); attention never crosses a segment and positions restart at 0.
 *
 * With a `context` (nn/context.h) the rows here are one member's share of a longer packed row: tokens, segment
 * bounds (segments may be empty), ids, labels and feature rows are those of its own rows. There may be none.
 */
typedef struct mt_batch {
  int32_t tokens;
  int32_t segments;
  const int32_t *segment_begin; /* [segments + 1] */
  int32_t tiles;                /* image tiles; 0: text only */
  const int32_t *token_ids;     /* [tokens] or NULL */
  const int32_t *labels;        /* [tokens], already shifted: labels[t] is the token that t predicts; -100: none */
  const int32_t *feature_rows;  /* [tiles * tokens_per_tile] row of the packed sequence that each image feature
                                   replaces; set with token_ids */
  const float *pixels;          /* (tiles, 3, image_size, image_size), normalised, or NULL */
  const struct mt_context *context; /* or NULL: the whole packed row is here */
  int32_t features;                 /* with a context: image features among its rows; tiles are not looked at */
  double loss_weight;               /* each target token's weight: 1 / (target tokens of the global batch) */
  int32_t parts;                    /* microbatches behind one another whose losses are told apart; 0: it is one */
  const int32_t *part_begin;        /* [parts + 1] tokens of each, NULL without parts */
} mt_batch;

#endif
