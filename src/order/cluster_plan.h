/** @file The plan of a cluster job: one replica's step, derived, ordered, proven and simulated on forecasts. */
#ifndef MT_ORDER_CLUSTER_PLAN_H
#define MT_ORDER_CLUSTER_PLAN_H

#include "order/cluster_job.h"
#include "order/forecast_costs.h"
#include "order/plan.h"

typedef struct mt_cluster_plan {
  mt_plan plan; /* release with mt_plan_free() */
  mt_derivation *derivation;
  mt_forecast_tables tables;
  const char *schedule; /* canonical text */
  double host_bytes;    /* in host memory, of the device that has most there; 0: nothing is */
} mt_cluster_plan;

/** Without data every microbatch has work for all modules whose rows it has. A plan that needs more memory than a
 * device has, or more of the host's than its share, is refused, MOTET_ERROR_REFUSED, naming rank and bytes. */
motet_status mt_cluster_plan_make(mt_arena *arena, const mt_cluster_setup *setup, motet_error *error,
                                  mt_cluster_plan *result);

#endif
