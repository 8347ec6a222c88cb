/** @file What a training run's metrics.jsonl says of a step. */
#ifndef MT_REPORT_RUN_METRICS_H
#define MT_REPORT_RUN_METRICS_H

#include "base/arena.h"
#include "base/error.h"

#include <stdint.h>

typedef struct mt_run_value {
  const char *name, *value; /* in the arena */
} mt_run_value;

typedef struct mt_run_metrics {
  const mt_run_value *values; /* in the line's order; a null is "not known", sizes, times and shares are in words */
  int32_t value_count;
} mt_run_metrics;

/** The step's last line. A run without metrics, or without this step in them, has none: that is no error. */
motet_status mt_run_metrics_read(mt_arena *arena, const char *directory, int64_t step, motet_error *error,
                                 mt_run_metrics *metrics);

#endif
