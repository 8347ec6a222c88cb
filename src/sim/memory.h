/** @file Memory over time, per rank, from a program's size tables and its simulated (or measured) times. */
#ifndef MT_SIM_MEMORY_H
#define MT_SIM_MEMORY_H

#include "base/arena.h"
#include "base/error.h"
#include "motet/program.h"

/** From `seconds` on, until the next step, the rank holds `bytes`. */
typedef struct mt_memory_step {
  double seconds;
  int64_t bytes;
} mt_memory_step;

typedef struct mt_memory_timeline {
  int64_t *begin;        /* [ranks + 1] rank r's steps are steps[begin[r] .. begin[r + 1]); the first is at 0 */
  mt_memory_step *steps; /* ascending in time; more than one at a time where memory rises and falls in no time */
  int64_t *peak_bytes;   /* [ranks] */
} mt_memory_timeline;

/**
 * Follows what every rank holds through its list (liveness: docs/simulation.md, the verifier's rules) and dates
 * every change by @p start and @p finish, [instructions]: what an instruction needs is held from its start, what it
 * is the last to need until its finish. A posted receive takes its buffer at once.
 */
motet_status mt_memory_timeline_make(mt_arena *arena, const motet_program *program, const double *start,
                                     const double *finish, motet_error *error, mt_memory_timeline **timeline);

#endif
