/** @file Planning of a job file for the commands `plan` and `simulate`. */
#ifndef MT_CLI_JOB_PLAN_H
#define MT_CLI_JOB_PLAN_H

#include <stdbool.h>

typedef struct mt_job_plan_options {
  const char *program_path, *trace_path, *page_path; /* written if not NULL */
  const char *trace_format;                          /* as mt_trace_files_write() takes it */
  bool json, summary;
} mt_job_plan_options;

/** Plans the first step of the job at @p path with `key=value` overrides and presents it. Returns the exit code. */
int mt_job_plan(const char *path, int override_count, char *const *overrides, const mt_job_plan_options *options);

#endif
