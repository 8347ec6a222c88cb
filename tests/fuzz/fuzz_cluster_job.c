/* A cluster job from arbitrary bytes: what is accepted has a cluster, a model and numbers in range. */
#include "order/cluster_job.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  motet_error error;
  mt_cluster_job job;
  motet_error_clear(&error);
  mt_arena *arena = mt_arena_create();
  if (arena == NULL) return 0;
  if (mt_cluster_job_parse(arena, (const char *)data, size, "fuzz", 0, NULL, &error, &job) == MOTET_OK) {
    if (job.cluster == NULL || (job.model == NULL && job.config == NULL) || !(job.tensor >= 1) ||
        !isfinite(job.memory) || !(job.zero >= 0 && job.zero <= 3))
      abort();
  } else if (error.text[0] == '\0') {
    abort();
  }
  mt_arena_destroy(arena);
  return 0;
}
