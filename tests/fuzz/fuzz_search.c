/* A search's samples and its job from the same bytes: what is accepted has samples and numbers in range. */
#include "search/problem.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  motet_error error;
  mt_workload_samples samples;
  mt_search_problem *problem;
  motet_error_clear(&error);
  mt_arena *arena = mt_arena_create();
  if (arena == NULL) return 0;
  if (mt_workload_samples_parse(arena, (const char *)data, size, "fuzz", &error, &samples) == MOTET_OK) {
    if (samples.count < 1) abort();
    for (int32_t i = 0; i < samples.count; i++) {
      const mt_workload_sample *sample = &samples.samples[i];
      if (sample->tokens < 1 || sample->picture_begin < 0 || sample->picture_count < 0) abort();
      for (int32_t k = 0; k < sample->picture_count; k++)
        if (samples.pictures[sample->picture_begin + k].height < 1) abort();
    }
  } else if (error.text[0] == '\0') {
    abort();
  }
  mt_arena_destroy(arena);
  motet_error_clear(&error);
  if (mt_search_problem_parse((const char *)data, size, "fuzz", 0, NULL, &error, &problem) == MOTET_OK) {
    if (problem->data.count < 1 || problem->cluster.devices < 1 || !isfinite(problem->memory_bytes)) abort();
    mt_search_problem_destroy(problem);
  } else if (error.text[0] == '\0') {
    abort();
  }
  return 0;
}
