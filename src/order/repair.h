/** @file
 * Search for a plan of a given makespan: free tasks are inserted into partial plans that keep it, and where one
 * does not fit, another is ejected, by penalties that remember who was hard to place. See docs/order.md.
 */
#ifndef MT_ORDER_REPAIR_H
#define MT_ORDER_REPAIR_H

#include "base/random.h"
#include "order/search.h"

typedef struct mt_repair mt_repair;

/** NULL when memory is out. The instance must have no windows. */
mt_repair *mt_repair_create(mt_arena *arena, const mt_instance *instance, const mt_windows *windows);

/**
 * Tries to find a plan whose makespan is at most @p target, starting from @p seed, a complete plan.
 * @p work is lowered by the work done, counted in node visits; the search ends where it is used up.
 * @return whether one was found; it is then in @p plan, without its makespan.
 */
bool mt_repair_run(mt_repair *repair, mt_ticks target, const mt_candidate *seed, int64_t *work, mt_candidate *plan);

#endif
