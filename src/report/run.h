/** @file A training run's measured timelines, as the training loop leaves them under `timeline/` of its directory.
 */
#ifndef MT_REPORT_RUN_H
#define MT_REPORT_RUN_H

#include "base/arena.h"
#include "cost/flops.h"
#include "motet/program.h"

#include <stdbool.h>
#include <stdint.h>

/** One measured step. */
typedef struct mt_run_timeline {
  int64_t step;                               /* from 1 */
  motet_program *program;                     /* release with motet_program_destroy() */
  double *start, *finish;                     /* [instructions] seconds from the step's begin, in the arena */
  const mt_flops *flops;                      /* NULL where the run has not kept them */
  double *simulated_start, *simulated_finish; /* what the plan expected; NULL where the run has not kept it */
} mt_run_timeline;

/** Whether @p path is a run's directory: it has a `timeline/` in it. */
bool mt_run_is(const char *path);

/** Whether @p path can be followed: a directory or, with @p waits, a place where a run can make one. */
motet_status mt_run_check(const char *path, bool waits, motet_error *error);

/** The newest step of the run at @p path that has a timeline; 0: none has. */
int64_t mt_run_newest(const char *path);

/**
 * Reads the timeline of step @p step of the run at @p path, of the newest step that has one where it is 0. Errors
 * name the file; one that says that there is none names the steps that have one.
 */
motet_status mt_run_timeline_read(mt_arena *arena, const char *path, int64_t step, motet_error *error,
                                  mt_run_timeline *timeline);

#endif
