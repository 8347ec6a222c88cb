/** @file The inside of the public motet_plan handle, for this project's own commands. */
#ifndef MT_ORDER_UNIT_PLAN_H
#define MT_ORDER_UNIT_PLAN_H

#include "motet/plan.h"
#include "order/plan.h"

/** The plan behind the handle; lives as long as the handle. */
const mt_plan *mt_unit_plan_inner(const motet_plan *plan);

#endif
