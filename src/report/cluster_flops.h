/** @file The operations of a cluster plan's step: model FLOPs of its microbatches, from the model's layers alone.
 */
#ifndef MT_REPORT_CLUSTER_FLOPS_H
#define MT_REPORT_CLUSTER_FLOPS_H

#include "cost/flops.h"
#include "order/cluster_plan.h"

/** Of one replica, a rank being a cell of devices. The peak is what a cell's products could do in the precision
 * that the job names for them. Everything lives in @p arena. */
motet_status mt_cluster_flops_make(mt_arena *arena, const mt_cluster_setup *setup, const mt_derivation *derivation,
                                   motet_error *error, mt_flops **flops);

#endif
