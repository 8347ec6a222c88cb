/** @file How a run ended where it failed: `failure.json` in its output directory. */
#ifndef MT_REPORT_RUN_FAILURE_H
#define MT_REPORT_RUN_FAILURE_H

#include "base/arena.h"
#include "base/error.h"

/** Keeps @p failure for reports. What cannot be written is let go: the run has a failure to tell already. */
void mt_run_failure_write(const char *directory, const motet_error *failure);

/** A run that begins anew has not failed yet. */
void mt_run_failure_forget(const char *directory);

/** A sentence with rank, instruction and microbatch as far as they are known, in @p arena; NULL: it has not failed.
 */
motet_status mt_run_failure_read(mt_arena *arena, const char *directory, motet_error *error, const char **failure);

#endif
