/** @file Bodies whose order depends on times: they are ordered here, before transposed work is placed into them. */
#ifndef MT_ORDER_OPEN_BODY_H
#define MT_ORDER_OPEN_BODY_H

#include "order/order.h"

/** The derivation itself where its skeletons fix the body's order; else a copy of it, in @p arena, with the body
 * ordered by the table's times, averaged over the microbatches that have work. @p quick: with less effort. */
motet_status mt_order_body(mt_arena *arena, const mt_derivation *derivation, const mt_cost_table *costs,
                           const mt_order_options *options, bool quick, motet_error *error,
                           const mt_derivation **ordered);

#endif
