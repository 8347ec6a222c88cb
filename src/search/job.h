/** @file
 * A plan that was found, as a job for a cluster: what `motet plan` takes and plans to the same makespan. See
 * docs/search.md and docs/formats/cluster-job.md.
 */
#ifndef MT_SEARCH_JOB_H
#define MT_SEARCH_JOB_H

#include "search/search.h"

/** Writes the job to @p path and, where microbatches are unlike, their samples to `path.jsonl`, which the job
 * names. */
motet_status mt_search_job_write(const mt_search_space *space, const mt_search_result *result, const char *path,
                                 motet_error *error);

#endif
