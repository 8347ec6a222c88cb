/** @file
 * A training run's steps so far, read while it writes them: metrics.jsonl and evaluation.jsonl grow line by line,
 * and a run that is resumed goes back some steps and rewrites both.
 */
#ifndef MT_REPORT_HISTORY_H
#define MT_REPORT_HISTORY_H

#include "base/array.h"
#include "base/error.h"

#include <stdint.h>

/** What of a step's line is kept. */
typedef enum mt_history_value {
  MT_HISTORY_LOSS,
  MT_HISTORY_LEARNING_RATE,
  MT_HISTORY_GRADIENT_NORM,
  MT_HISTORY_TOKENS,
  MT_HISTORY_STEP_SECONDS,
  MT_HISTORY_MAKESPAN_SECONDS,
  MT_HISTORY_SIMULATED_SECONDS,
  MT_HISTORY_MFU,
  MT_HISTORY_IDLE_SHARE,
  MT_HISTORY_MEMORY_BYTES,
  MT_HISTORY_VALUES
} mt_history_value;

typedef struct mt_history_step {
  int64_t step;
  double values[MT_HISTORY_VALUES]; /* NAN: not known */
} mt_history_step;

typedef struct mt_history_evaluation {
  int64_t step;
  double loss;
} mt_history_evaluation;

enum { MT_HISTORY_MARK = 64 };

/* How far a file is read, and the bytes before that place: where they are others now, it is another file. */
typedef struct mt_history_place {
  int64_t offset;
  char mark[MT_HISTORY_MARK];
} mt_history_place;

/** Start with `mt_history history = {0}`; free with mt_history_free(). */
typedef struct mt_history {
  MT_ARRAY(mt_history_step) steps; /* rising by step */
  MT_ARRAY(mt_history_evaluation) evaluations;
  int64_t planned_steps; /* the job's; 0: not known */
  int64_t spoilt_lines;  /* whole lines that are no record, passed over */
  int64_t rewinds; /* how often steps or evaluations were taken away: the run was resumed, or is another one */
  mt_history_place metrics_place, evaluation_place;
} mt_history;

/**
 * Takes in what the run at @p directory has written since the last time; @p changed (or NULL) says whether there
 * was anything. What is missing is no error: the run has not started. A last line without its end waits for the
 * rest. A file that is shorter than it was, or another one, is read anew; a line of an earlier step takes all later
 * ones away.
 */
motet_status mt_history_update(mt_history *history, const char *directory, bool *changed, motet_error *error);

void mt_history_free(mt_history *history);

/** Whether the last planned step is done. */
bool mt_history_is_finished(const mt_history *history);

/** A step's tokens per second, NAN where it is not known. */
double mt_history_throughput(const mt_history_step *step);

/** Seconds that the steps to come will take at the pace of the last ones; NAN where it is not known. */
double mt_history_remaining_seconds(const mt_history *history);

/** "loss", "learning_rate": the key in metrics.jsonl. */
const char *mt_history_key(mt_history_value value);

#endif
