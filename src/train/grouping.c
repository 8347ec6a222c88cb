#include "train/grouping.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

enum { STEPS_AHEAD = 2 };

struct mt_grouping {
  mt_grouping_options options;
  motet_pack_service *service;
  motet_pack_sequence *sequences; /* of one row */
  int32_t capacity;
  double *load; /* [width] seconds that the step's rows so far take on each rank: nothing waits between them */
  double waited;
};

/* Seconds of a feature in forward and backward together. */
static double both_passes(const mt_layer_costs *costs, mt_internvl_kind kind, mt_cost_feature feature) {
  return costs->seconds[kind][MT_PASS_FORWARD][feature] + costs->seconds[kind][MT_PASS_BACKWARD][feature];
}

motet_pack_cost mt_grouping_cost(const mt_grouping_options *options) {
  const mt_internvl_decoder *decoder = &options->config->decoder;
  const mt_layer_costs *costs = options->costs;
  const double layers = (double)decoder->layers / options->pipeline;
  const mt_internvl_kind block = MT_INTERNVL_DECODER_BLOCK;
  /* Keys and values pass once in forward, and once more in backward with their gradients behind them. */
  const double ring_floats = 3.0 * 2 * decoder->kv_heads * decoder->head_dim;
  motet_pack_cost cost = {.attention_seconds_per_area =
                              2 * layers * both_passes(costs, block, MT_COST_AREA), /* an area is tokens^2 / 2 */
                          .linear_seconds_per_token =
                              layers * both_passes(costs, block, MT_COST_TOKENS) +
                              both_passes(costs, MT_INTERNVL_HEAD, MT_COST_TARGETS) / options->pipeline,
                          .fixed_seconds = layers * both_passes(costs, block, MT_COST_FIXED),
                          .ring_bytes_per_token = layers * ring_floats * sizeof(float),
                          .latency_seconds_per_hop = 3 * layers * costs->link.latency_seconds,
                          .no_overlap = true}; /* the cores that compute also copy the messages */
  if (costs->link.bytes_per_second > 0) {
    cost.bandwidth_count = 1;
    cost.bandwidth_degree[0] = 2;
    cost.bandwidth_bytes_per_second[0] = costs->link.bytes_per_second;
  }
  return cost;
}

motet_status mt_grouping_create(const mt_grouping_options *options, motet_error *error, mt_grouping **result) {
  if (options->width < 1 || options->pipeline < 1 || options->rows < 1 || options->rank_tokens < 0 ||
      options->replicas > options->rows)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT,
                        "planes of %d ranks for %d microbatches: 1 or more belong there", (int)options->width,
                        (int)options->rows);
  mt_grouping *grouping = calloc(1, sizeof *grouping);
  if (grouping == NULL) return mt_error_memory(error, sizeof *grouping, "context groups");
  grouping->options = *options;
  const motet_pack_options pack = {.ranks = options->width,
                                   .memory_tokens = options->rank_tokens > 0 ? options->rank_tokens : INT32_MAX,
                                   .cost = mt_grouping_cost(options),
                                   .scope = MOTET_PACK_MICROBATCH,
                                   .batch = MOTET_PACK_ALL};
  motet_status status = MOTET_OK;
  grouping->load = calloc((size_t)options->width, sizeof *grouping->load);
  if (grouping->load == NULL) status = mt_error_memory(error, (unsigned)options->width, "context groups");
  if (status == MOTET_OK && !options->fixed)
    status = motet_pack_service_create(&pack, STEPS_AHEAD * options->rows, error, &grouping->service);
  if (status == MOTET_OK)
    *result = grouping;
  else
    mt_grouping_destroy(grouping);
  return status;
}

void mt_grouping_destroy(mt_grouping *grouping) {
  if (grouping == NULL) return;
  motet_pack_service_destroy(grouping->service);
  free(grouping->sequences);
  free(grouping->load);
  free(grouping);
}

double mt_grouping_waited(const mt_grouping *grouping) { return grouping->waited; }

static motet_status submit_row(mt_grouping *grouping, const mt_row *row, motet_error *error) {
  if (row->samples > grouping->capacity) {
    motet_pack_sequence *larger = realloc(grouping->sequences, (size_t)row->samples * sizeof *larger);
    if (larger == NULL) return mt_error_memory(error, (size_t)row->samples * sizeof *larger, "context groups");
    grouping->sequences = larger;
    grouping->capacity = row->samples;
  }
  for (int32_t s = 0; s < row->samples; s++) {
    const int64_t tokens = row->segment_begin[s + 1] - row->segment_begin[s];
    grouping->sequences[s] = (motet_pack_sequence){.tokens = tokens, .area = motet_pack_causal_area(tokens)};
  }
  return motet_pack_service_submit(grouping->service, grouping->sequences, row->samples, error);
}

motet_status mt_grouping_submit(mt_grouping *grouping, const mt_row *rows, motet_error *error) {
  motet_status status = MOTET_OK;
  for (int32_t m = 0; m < grouping->options.rows && grouping->service != NULL && status == MOTET_OK; m++)
    status = submit_row(grouping, &rows[m], error);
  return status;
}

/* All ranks together, the samples as they stand. */
static motet_status one_group(const mt_grouping *grouping, const mt_row *row, mt_arena *arena, motet_error *error,
                              mt_grouped_row *grouped) {
  const int32_t width = grouping->options.width;
  const int64_t limit = grouping->options.rank_tokens * width;
  if (limit > 0 && row->tokens > limit)
    return mt_error_set(
        error, MOTET_ERROR_ILLEGAL,
        "a microbatch has %d tokens; %d ranks of a plane take %lld each: more microbatches, or more "
        "tokens a rank, would do",
        (int)row->tokens, (int)width, (long long)grouping->options.rank_tokens);
  mt_row_group *group = MT_ARENA_NEW(arena, mt_row_group, 1);
  int32_t *ranks = MT_ARENA_NEW(arena, int32_t, width);
  if (group == NULL || ranks == NULL) return mt_error_memory(error, (unsigned)width, "context groups");
  for (int32_t rank = 0; rank < width; rank++) ranks[rank] = rank;
  *group = (mt_row_group){.segment_end = row->samples, .degree = width, .ranks = ranks};
  *grouped = (mt_grouped_row){.row = *row, .group_count = 1, .groups = group};
  return MOTET_OK;
}

static motet_status left_over(const mt_grouping *grouping, const mt_row *row, const motet_pack_plan *plan,
                              motet_error *error) {
  const int32_t segment = plan->deferred[0];
  return mt_error_set(
      error, MOTET_ERROR_ILLEGAL,
      "%lld of a microbatch's %d samples, the first of %d tokens, find no room on %d ranks that take "
      "%lld tokens each: more microbatches, or more tokens a rank, would do",
      (long long)plan->deferred_count, (int)row->samples,
      (int)(row->segment_begin[segment + 1] - row->segment_begin[segment]), (int)grouping->options.width,
      (long long)grouping->options.rank_tokens);
}

/* When a set of ranks is through with what it has. */
static double free_at(const mt_grouping *grouping, const int32_t *ranks, int32_t degree) {
  double latest = 0;
  for (int32_t i = 0; i < degree; i++)
    latest = grouping->load[ranks[i]] > latest ? grouping->load[ranks[i]] : latest;
  return latest;
}

/* Gives the rank sets of one degree to the groups of that degree anew: the longest group to the set that is free
 * first. The plan knows this row alone; over the rows of a step the ranks' loads then even out. */
static void deal_sets(mt_grouping *grouping, const motet_pack_plan *plan, int32_t degree, bool *taken,
                      mt_row_group *groups) {
  for (;;) {
    int64_t longest = -1, first = -1;
    double earliest = 0;
    for (int64_t g = 0; g < plan->group_count; g++) {
      if (groups[g].degree != degree) continue;
      if (groups[g].ranks == NULL && (longest < 0 || plan->groups[g].seconds > plan->groups[longest].seconds))
        longest = g;
      const double free_from = free_at(grouping, plan->ranks + plan->groups[g].rank_first, degree);
      if (!taken[g] && (first < 0 || free_from < earliest)) first = g, earliest = free_from;
    }
    if (longest < 0) return;
    taken[first] = true;
    groups[longest].ranks = plan->ranks + plan->groups[first].rank_first;
    for (int32_t i = 0; i < degree; i++)
      grouping->load[groups[longest].ranks[i]] = earliest + plan->groups[longest].seconds;
  }
}

/* Ranks of every group; the sets are the plan's, copied to the arena. */
static motet_status deal_ranks(mt_grouping *grouping, const motet_pack_plan *plan, mt_arena *arena,
                               motet_error *error, mt_row_group *groups) {
  bool *taken = MT_ARENA_NEW(arena, bool, plan->group_count);
  if (taken == NULL) return mt_error_memory(error, (size_t)plan->group_count, "context groups");
  for (int32_t degree = grouping->options.width; degree > 0; degree--)
    deal_sets(grouping, plan, degree, taken, groups);
  for (int64_t g = 0; g < plan->group_count; g++) {
    int32_t *ranks = MT_ARENA_NEW(arena, int32_t, groups[g].degree);
    if (ranks == NULL) return mt_error_memory(error, (unsigned)groups[g].degree, "context groups");
    memcpy(ranks, groups[g].ranks, (size_t)groups[g].degree * sizeof *ranks);
    groups[g].ranks = ranks;
  }
  return MOTET_OK;
}

/* The plan's groups, and the row's samples in their order. */
static motet_status apply(mt_grouping *grouping, const mt_row *row, const motet_pack_plan *plan, mt_arena *arena,
                          motet_error *error, mt_grouped_row *grouped) {
  mt_row_group *groups = MT_ARENA_NEW(arena, mt_row_group, plan->group_count);
  int32_t *sample = MT_ARENA_NEW(arena, int32_t, row->samples),
          *begin = MT_ARENA_NEW(arena, int32_t, row->samples + 1);
  if (groups == NULL || sample == NULL || begin == NULL)
    return mt_error_memory(error, (size_t)row->samples * 2 * sizeof *sample, "context groups");
  int32_t placed = 0;
  for (int64_t g = 0; g < plan->group_count; g++) {
    const motet_pack_group *from = &plan->groups[g];
    groups[g] = (mt_row_group){.segment_begin = placed, .degree = from->degree};
    for (int32_t i = 0; i < from->sequence_count; i++, placed++) {
      const int32_t segment = plan->sequences[from->sequence_first + i];
      sample[placed] = row->sample[segment];
      begin[placed + 1] = begin[placed] + row->segment_begin[segment + 1] - row->segment_begin[segment];
    }
    groups[g].segment_end = placed;
  }
  *grouped = (mt_grouped_row){.row = *row, .group_count = (int32_t)plan->group_count, .groups = groups};
  grouped->row.sample = sample;
  grouped->row.segment_begin = begin;
  return deal_ranks(grouping, plan, arena, error, groups);
}

static motet_status take_row(mt_grouping *grouping, const mt_row *row, mt_arena *arena, motet_error *error,
                             mt_grouped_row *grouped) {
  if (grouping->service == NULL) return one_group(grouping, row, arena, error, grouped);
  const motet_pack_plan *plan;
  bool fresh;
  const double begin = mt_clock_seconds();
  motet_status status = motet_pack_service_take(grouping->service, true, error, &fresh, &plan);
  grouping->waited += mt_clock_seconds() - begin;
  if (status != MOTET_OK) return status;
  if (!fresh)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT, "the groups of a step are taken that was not submitted");
  return plan->deferred_count > 0 ? left_over(grouping, row, plan, error)
                                  : apply(grouping, row, plan, arena, error, grouped);
}

motet_status mt_grouping_take(mt_grouping *grouping, const mt_row *rows, mt_arena *arena, motet_error *error,
                              mt_grouped_row **result) {
  mt_grouped_row *grouped = MT_ARENA_NEW(arena, mt_grouped_row, grouping->options.rows);
  if (grouped == NULL) return mt_error_memory(error, (unsigned)grouping->options.rows, "context groups");
  const int32_t share = grouping->options.rows / (grouping->options.replicas > 1 ? grouping->options.replicas : 1);
  for (int32_t m = 0; m < grouping->options.rows; m++) {
    if (m % share == 0) /* another replica's plane */
      memset(grouping->load, 0, (size_t)grouping->options.width * sizeof *grouping->load);
    motet_status status = take_row(grouping, &rows[m], arena, error, &grouped[m]);
    if (status != MOTET_OK) return mt_error_context(error, status, "microbatch %d", (int)m);
  }
  *result = grouped;
  return MOTET_OK;
}
