/** @file
 * Times of compute, per stage and microbatch: what the order search and the simulator charge. Built from unit
 * costs, from a measured profile or from a device model; nobody above this floor knows which.
 */
#ifndef MT_COST_TABLE_H
#define MT_COST_TABLE_H

#include "cluster/links.h"

#include <stdint.h>

typedef enum mt_cost_kind {
  MT_COST_FORWARD,    /* FWD */
  MT_COST_BACKWARD,   /* BWD: as much as the stage's gate asks for */
  MT_COST_BACKWARD_X, /* BWD_X */
  MT_COST_BACKWARD_W, /* BWD_W */
  MT_COST_RECOMPUTE,
  MT_COST_LOAD,
  MT_COST_OFFLOAD, /* OFFLOAD and FETCH */
  MT_COST_KINDS
} mt_cost_kind;

/** Seconds of one kind: `values[stage * stage_stride + microbatch * microbatch_stride]`; NULL: all zero. */
typedef struct mt_cost_values {
  double *values;
  int64_t stage_stride, microbatch_stride;
} mt_cost_values;

typedef struct mt_cost_table {
  mt_cost_values seconds[MT_COST_KINDS];
  double *optimizer_seconds; /* [stage]: a holder's share of OPTIM; NULL: zero */
  mt_links links;
} mt_cost_table;

static inline double mt_cost_seconds(const mt_cost_table *table, mt_cost_kind kind, int32_t stage,
                                     int32_t microbatch) {
  const mt_cost_values *seconds = &table->seconds[kind];
  if (seconds->values == 0) return 0.0;
  return seconds->values[stage * seconds->stage_stride + microbatch * seconds->microbatch_stride];
}

#endif
