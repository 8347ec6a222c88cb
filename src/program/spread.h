/** @file
 * How the microbatches of one pipeline are spread over context ranks: every pipeline rank of the plan is a plane of
 * `width` ranks, each microbatch is cut into token ranges, and a group of the plane computes each range.
 */
#ifndef MT_PROGRAM_SPREAD_H
#define MT_PROGRAM_SPREAD_H

#include "motet/program.h"

/** A member's share of a range. */
typedef struct mt_spread_share {
  int32_t range, member; /* place in the range's group, which is ascending by context rank */
  int32_t context_rank;
  int32_t tokens, features;
} mt_spread_share;

/** In the pipeline's own numbers: ranges from 0, without an entry for the whole. */
typedef struct mt_spread {
  int32_t width;
  int32_t range_count, share_count;
  motet_range *ranges;     /* by microbatch, then tokens; they tile every microbatch */
  mt_spread_share *shares; /* by range, then member */
  int32_t *begin;          /* [microbatches + 1] microbatch m has shares [begin[m], begin[m + 1]) */
  int32_t *place;          /* [microbatches * width] the share that a context rank computes, or -1 */
} mt_spread;

#endif
