/** @file Proven lower bounds on the makespan: see docs/order.md for what they are and why they hold. */
#ifndef MT_ORDER_BOUND_H
#define MT_ORDER_BOUND_H

#include "order/search.h"

/**
 * The largest makespan found that no order of the instance can be below. At least windows->critical, at most
 * @p upper, the makespan of a plan. @p work is lowered by the work done; where it is used up, the bound is
 * what has been proven so far. False when memory is out.
 */
bool mt_bound_find(mt_arena *arena, const mt_instance *instance, const mt_windows *windows, mt_ticks upper,
                   int64_t *work, mt_ticks *bound);

#endif
