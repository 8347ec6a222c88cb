/** @file Searching for a job's plan: `motet plan JOB.yaml --search`. */
#ifndef MT_CLI_SEARCH_H
#define MT_CLI_SEARCH_H

#include "cli/job_plan.h"

/** Searches and prints; @p time_limit in seconds, 0: as the job says. Returns the exit code. */
int mt_search_plan_job(const char *path, int override_count, char *const *overrides, double time_limit,
                       const mt_job_plan_options *options);

#endif
