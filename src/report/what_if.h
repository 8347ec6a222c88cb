/** @file What the step would take if something took less: the program simulated again on changed costs. */
#ifndef MT_REPORT_WHAT_IF_H
#define MT_REPORT_WHAT_IF_H

#include "base/arena.h"
#include "base/error.h"
#include "cost/table.h"
#include "motet/program.h"

typedef struct mt_what_if {
  const char *change; /**< "vision 20% faster" */
  double makespan;    /**< simulated with the change, the order as it is */
  double before;      /**< simulated without it */
} mt_what_if;

/**
 * For every region (regions of one name together): 20% and 50% faster. For the whole: microbatches of equal cost,
 * links twice as fast, free links; each only where it differs from what there is.
 */
motet_status mt_what_if_make(mt_arena *arena, const motet_program *program, const mt_cost_table *costs,
                             motet_error *error, mt_what_if **rows, int32_t *count);

#endif
