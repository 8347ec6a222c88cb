/** @file Planning of a job file for the commands `plan` and `simulate`. */
#ifndef MT_CLI_JOB_PLAN_H
#define MT_CLI_JOB_PLAN_H

#include "order/plan.h"
#include "report/page.h"

#include <jansson.h>
#include <stdbool.h>

typedef struct mt_job_plan_options {
  const char *program_path, *trace_path, *page_path; /* written if not NULL */
  const char *job_path;                              /* of a search: the job that was found; or NULL */
  const char *trace_format;                          /* as mt_trace_files_write() takes it */
  const mt_page_fact *facts;                         /* of the page: what the plan is about */
  int32_t fact_count;
  bool json, summary;
} mt_job_plan_options;

/** Presents a plan. @p schedule as planned, or NULL: the program's; @p extra: members to add to the JSON document,
 * or NULL; it is released. Returns the exit code. */
int mt_job_plan_present(const mt_plan *plan, const char *schedule, const mt_job_plan_options *options,
                        json_t *extra);

/** Plans the first step of the job at @p path with `key=value` overrides and presents it. Returns the exit code. */
int mt_job_plan(const char *path, int override_count, char *const *overrides, const mt_job_plan_options *options);

#endif
