/** @file Context parallelism in a step's plan: the shares of its microbatches. Internal to the planner's files. */
#ifndef MT_TRAIN_PLANNER_CONTEXT_H
#define MT_TRAIN_PLANNER_CONTEXT_H

#include "train/planner_tables.h"

/**
 * Spreads a replica's microbatches over planes of @p width ranks by their groups: @p part gets its spread, and the
 * tables over whole microbatches in @p costs become those of planes, by which the order is sought: a stage takes as
 * long as its slowest share, and a plane encodes as many pictures at once as it has ranks.
 * @param tables of the whole microbatches
 */
motet_status mt_planner_context(const mt_planner_tables *tables, const mt_planner_microbatch *microbatches,
                                int32_t width, int32_t ulysses, motet_error *error, mt_plan_replica *part,
                                mt_cost_table *costs);

#endif
