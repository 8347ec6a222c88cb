/** @file Bodies whose order depends on times: they are ordered here, before transposed work is placed into them. */
#ifndef MT_ORDER_OPEN_BODY_H
#define MT_ORDER_OPEN_BODY_H

#include "order/order.h"

/** The derivation itself where its skeletons fix the body's order; else a copy of it, in @p arena, with the body
 * ordered by the table's times, averaged over the microbatches that have work. @p quick: with less effort. */
motet_status mt_order_body(mt_arena *arena, const mt_derivation *derivation, const mt_cost_table *costs,
                           const mt_order_options *options, bool quick, motet_error *error,
                           const mt_derivation **ordered);

/** A makespan that no order of the derivation's work is below, whatever the order of its body: no rank begins
 * before its first input is there, and then it does all its body; all ranks together do all work; a microbatch goes
 * forth and back. */
motet_status mt_order_open_bound(mt_arena *arena, const mt_derivation *derivation, const mt_cost_table *costs,
                                 motet_error *error, double *bound);

#endif
