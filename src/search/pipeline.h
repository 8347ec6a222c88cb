/** @file
 * A 1F1B pipeline whose stages' times change while its order stays: what searches over stages simulate thousands of
 * times. It is the (max,+) recurrence of the derived body (src/algebra/body.h), with every microbatch alike.
 */
#ifndef MT_SEARCH_PIPELINE_H
#define MT_SEARCH_PIPELINE_H

#include "base/arena.h"
#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct mt_search_pipeline mt_search_pipeline;

motet_status mt_search_pipeline_create(mt_arena *arena, int32_t ranks, int32_t chunks, int32_t microbatches,
                                       motet_error *error, mt_search_pipeline **pipeline);

/** [ranks * chunks] seconds of a stage's forward and backward, to be set before a run. */
double *mt_search_pipeline_forward(mt_search_pipeline *pipeline);
double *mt_search_pipeline_backward(mt_search_pipeline *pipeline);

/** Whether a stage has a backward. */
void mt_search_pipeline_trains(mt_search_pipeline *pipeline, int32_t stage, bool trains);

/** Microbatches of a stage that are under way at once, at most. */
int32_t mt_search_pipeline_held(const mt_search_pipeline *pipeline, int32_t stage);

/** The makespan; infinite where it is @p limit or more. */
double mt_search_pipeline_run(mt_search_pipeline *pipeline, double lag, double limit);

/** The makespan of unlike microbatches: @p forward and @p backward are (stages, microbatches), order[k] goes k-th.
 * All stages have a backward. */
double mt_search_pipeline_run_order(mt_search_pipeline *pipeline, const double *forward, const double *backward,
                                    const int32_t *order, double lag);

#endif
