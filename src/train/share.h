/** @file
 * A member's share of a token range: the tokens that are its, the image features among them, and the tiles that
 * these come from. Planner and interpreter work it out alike, from the shapes of the microbatch alone.
 */
#ifndef MT_TRAIN_SHARE_H
#define MT_TRAIN_SHARE_H

#include "model/internvl.h"
#include "nn/context.h"

typedef struct mt_share {
  mt_context *context; /* without an exchange */
  mt_batch range;      /* the range as a packed row of its own */
  mt_batch batch;      /* the share of it */
  int32_t features;
  int32_t *feature; /* [features] numbers among the microbatch's image features, ascending */
  int32_t tiles;
  int32_t *tile; /* [tiles] numbers of the microbatch's tiles with such a feature, ascending */
} mt_share;

/** Which part of a microbatch, and whose. */
typedef struct mt_share_query {
  int32_t begin, end;     /* tokens of the range; whole segments */
  int32_t ulysses;        /* most ranks that exchange heads, see mt_share_ulysses() */
  int32_t degree, member; /* of the group */
  const int32_t *ranks;   /* [degree] */
} mt_share_query;

/** Of a group of @p degree the ranks that exchange heads (Ulysses): the largest legal number up to @p most that
 * divides the degree. The others stand in the ring. */
int32_t mt_share_ulysses(const mt_internvl *config, int32_t most, int32_t degree);

/** @p whole: the microbatch's shapes with its feature rows; with ids and labels, the share has those too. */
motet_status mt_share_make(mt_arena *arena, const mt_internvl *config, const mt_batch *whole,
                           const mt_share_query *query, motet_error *error, mt_share *share);

#endif
