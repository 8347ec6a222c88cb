/** @file Orders of planes: from one list a pipeline rank to one a context rank. */
#ifndef MT_ORDER_EXPAND_H
#define MT_ORDER_EXPAND_H

#include "order/plan.h"

/**
 * Gives each context rank of a pipeline rank's plane its list, in place of @p order: of the body what it has a
 * share of, in the plane's one order, so that groups meet in the same order on all members; of the replicated
 * regions' work the microbatches that it encodes, dealt out to the least loaded. MOTET_ERROR_UNSUPPORTED for work
 * of the next step.
 */
motet_status mt_order_expand(mt_arena *arena, const mt_plan_replica *replica, motet_error *error, mt_order *order);

#endif
