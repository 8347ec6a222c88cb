/** @file A step of a training run, as its output directory tells it. */
#ifndef MT_REPORT_RUN_STEP_H
#define MT_REPORT_RUN_STEP_H

#include "base/arena.h"
#include "base/error.h"
#include "motet/program.h"

typedef struct mt_run_value {
  const char *name, *value;
} mt_run_value;

/** Texts and times live in the arena; the program is freed with motet_program_destroy(). */
typedef struct mt_run_step {
  int64_t step;
  motet_program *program;
  double *start, *finish;                     /* [instructions] measured seconds from the step's begin */
  double *simulated_start, *simulated_finish; /* the plan's own; NULL where the run did not keep them */
  const mt_run_value *values;                 /* the step's line of metrics.jsonl, as texts */
  int32_t value_count;
} mt_run_step;

/** Reads `timeline/step-N.*` under @p directory; @p step 0: the last one that has a timeline. */
motet_status mt_run_step_read(mt_arena *arena, const char *directory, int64_t step, motet_error *error,
                              mt_run_step *run);

#endif
