/** @file `motet plan JOB.yaml` for a job that names a cluster: forecasts instead of measured costs. */
#ifndef MT_CLI_CLUSTER_PLAN_H
#define MT_CLI_CLUSTER_PLAN_H

#include "cli/job_plan.h"

/** Plans and presents the job at @p path, which mt_cluster_job_is(). Returns the exit code. */
int mt_cluster_plan_present(const char *path, int override_count, char *const *overrides,
                            const mt_job_plan_options *options);

#endif
