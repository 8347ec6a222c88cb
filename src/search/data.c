/* Samples of a step: from a trace, a distribution, or all alike. */
#include "base/random.h"
#include "motet/program.h"
#include "search/problem.h"
#include "workload/trace.h"

#include <string.h>

/* Of a sample's row. */
enum { TOKENS_MAX = 1 << 26 };

/* Tokens of a sample's row that its pictures become. */
static motet_status picture_tokens(const mt_search_problem *problem, motet_error *error, int64_t *tokens) {
  double extents[MT_EXTENTS] = {0};
  int64_t row = TOKENS_MAX;
  mt_picture pictures[64];
  int32_t count = problem->picture_count < 64 ? problem->picture_count : 64;
  for (int32_t i = 0; i < count; i++) pictures[i] = problem->picture;
  mt_shape shape = {.segments = &row, .segment_count = 1, .pictures = pictures, .picture_count = count};
  *tokens = 0;
  if (count == 0 || !problem->architecture->decodes_text) return MOTET_OK;
  motet_status status = mt_architecture_measure(problem->architecture, &shape, error, extents);
  *tokens = (int64_t)(extents[MT_ROWS_FEATURES] * problem->picture_count / count);
  return status;
}

/* A distribution's lengths are those of text; what pictures add comes on top. */
static motet_status draw_distribution(const mt_search_problem *problem, int64_t seed, motet_error *error,
                                      mt_workload_samples *data) {
  mt_distribution distribution = {.name = problem->distribution,
                                  .count = problem->global_batch,
                                  .seed = (uint64_t)seed,
                                  .ranks = problem->cluster.devices,
                                  .memory_tokens = TOKENS_MAX / 64};
  mt_trace trace;
  int64_t added = 0;
  motet_status status = picture_tokens(problem, error, &added);
  if (status == MOTET_OK) status = mt_distribution_draw(&distribution, error, &trace);
  if (status != MOTET_OK) return status;
  for (int32_t i = 0; i < data->count; i++) data->samples[i].tokens = trace.items[i % trace.count].tokens + added;
  mt_trace_destroy(&trace);
  return MOTET_OK;
}

motet_status mt_search_data_draw(const mt_search_problem *problem, int64_t seed, mt_arena *arena,
                                 motet_error *error, mt_workload_samples *data) {
  data->count = problem->global_batch;
  data->samples = MT_ARENA_NEW(arena, mt_workload_sample, data->count);
  data->pictures = problem->pool.pictures;
  if (problem->trace == NULL) {
    data->pictures = MT_ARENA_NEW(arena, mt_picture, problem->picture_count);
    for (int32_t i = 0; data->pictures != NULL && i < problem->picture_count; i++)
      data->pictures[i] = problem->picture;
  }
  if (data->samples == NULL || data->pictures == NULL)
    return mt_error_memory(error, (unsigned long long)data->count * sizeof *data->samples, "samples");
  mt_random random = mt_random_stream((uint64_t)seed, "search.data");
  for (int32_t i = 0; i < data->count; i++) {
    uint64_t pool = problem->trace != NULL ? (uint64_t)problem->pool.count : 1;
    /* The file's own seed takes a trace from its beginning. */
    int32_t from = seed == problem->seed ? (int32_t)((uint64_t)i % pool) : (int32_t)mt_random_below(&random, pool);
    data->samples[i] = problem->trace != NULL ? problem->pool.samples[from]
                                              : (mt_workload_sample){.tokens = problem->tokens,
                                                                     .picture_count = problem->picture_count};
  }
  return problem->distribution != NULL ? draw_distribution(problem, seed, error, data) : MOTET_OK;
}
