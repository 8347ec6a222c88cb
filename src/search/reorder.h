/** @file
 * The order of unlike microbatches through a 1F1B pipeline. Gradients are summed over all of them: no order changes
 * what a step learns. See docs/search.md.
 */
#ifndef MT_SEARCH_REORDER_H
#define MT_SEARCH_REORDER_H

#include "base/arena.h"
#include "base/error.h"

#include <stdint.h>

typedef enum mt_reorder_rule {
  MT_REORDER_GIVEN,
  MT_REORDER_RANDOM,
  MT_REORDER_DISTTRAIN, /* arXiv 2408.04275, section 6: the smallest first, the P - 1 next smallest last, and
                           between them the one that fits best beside what the other stages do */
  MT_REORDER_CLIMB,     /* from the best of the others: exchanges and moves that simulate shorter */
  MT_REORDER_RULES
} mt_reorder_rule;

typedef struct mt_reorder_request {
  int32_t ranks, microbatches;
  const double *forward, *backward; /* (ranks, microbatches) seconds */
  double lag;
  uint64_t seed;
  int64_t evaluations; /* of the climb; 0: the usual */
} mt_reorder_request;

/** Writes which microbatch goes k-th: order[microbatches]. @p seconds: the step's, simulated. */
motet_status mt_reorder(mt_arena *arena, const mt_reorder_request *request, mt_reorder_rule rule,
                        motet_error *error, int32_t *order, double *seconds);

#endif
