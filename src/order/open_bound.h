/** @file A proven lower bound on the makespan where the order of the body is open too: see docs/order.md. */
#ifndef MT_ORDER_OPEN_BOUND_H
#define MT_ORDER_OPEN_BOUND_H

#include "order/order.h"

/** A makespan that no order of the derivation's work is below, whatever the order of its body and however many
 * activations a rank holds. @p options may be NULL. */
motet_status mt_order_open_bound(mt_arena *arena, const mt_derivation *derivation, const mt_cost_table *costs,
                                 const mt_order_options *options, motet_error *error, double *bound);

#endif
