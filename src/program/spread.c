/* The tables of cut microbatches: ranges, shares, and for each range the group of every pipeline rank's plane that
 * shares it. Ranges with the same members have one group. */
#include "program/pipeline.h"
#include "program/tables.h"

#include <string.h>

static motet_status fill_ranges(const mt_replica *replicas, motet_error *error, motet_program *program) {
  int64_t ranges = 1, shares = 0;
  for (int32_t k = 0; k < program->replicas; k++) {
    ranges += replicas[k].spread->range_count;
    shares += replicas[k].spread->share_count;
  }
  if (ranges > INT32_MAX || shares > INT32_MAX)
    return mt_error_set(error, MOTET_ERROR_LIMIT,
                        "%lld token ranges with %lld shares are more than a program may have", (long long)ranges,
                        (long long)shares);
  program->ranges = MT_ARENA_NEW(program->arena, motet_range, ranges);
  program->shares = MT_ARENA_NEW(program->arena, motet_share, shares);
  if (program->ranges == NULL || program->shares == NULL)
    return mt_error_memory(error, (unsigned long long)shares * sizeof(motet_share), "token ranges");
  program->ranges[0] = (motet_range){.begin = 0, .end = -1, .microbatch = -1};
  program->range_count = 1;
  for (int32_t k = 0; k < program->replicas; k++) {
    const mt_spread *spread = replicas[k].spread;
    for (int32_t r = 0; r < spread->range_count; r++) {
      motet_range *range = &program->ranges[program->range_count++];
      *range = spread->ranges[r];
      range->microbatch += k * replicas[k].derivation->microbatches;
      range->first_share += program->share_count;
    }
    for (int32_t s = 0; s < spread->share_count; s++)
      program->shares[program->share_count + s] =
          (motet_share){.tokens = spread->shares[s].tokens, .features = spread->shares[s].features};
    program->share_count += spread->share_count;
  }
  return MOTET_OK;
}

static bool same_members(const mt_spread *spread, int32_t one, int32_t other) {
  const motet_range *a = &spread->ranges[one], *b = &spread->ranges[other];
  if (a->degree != b->degree) return false;
  for (int32_t i = 0; i < a->degree; i++)
    if (spread->shares[a->first_share + i].context_rank != spread->shares[b->first_share + i].context_rank)
      return false;
  return true;
}

/* For each range the first one with the same members; the number of different sets and of their members. */
static void find_sets(const mt_spread *spread, int32_t *first, int32_t *sets, int64_t *members) {
  for (int32_t r = 0; r < spread->range_count; r++) {
    first[r] = 0;
    while (!same_members(spread, first[r], r)) first[r]++;
    if (first[r] < r) continue;
    ++*sets;
    *members += spread->ranges[r].degree;
  }
}

/* Room for more groups behind those that are there. */
static motet_status grow_groups(motet_program *program, int64_t groups, int64_t ranks, motet_error *error,
                                int64_t *used) {
  *used = program->group_rank_count;
  if (program->group_count + groups > INT32_MAX)
    return mt_error_set(error, MOTET_ERROR_LIMIT, "%lld rank groups are more than a program may have",
                        (long long)groups);
  motet_group *more = MT_ARENA_NEW(program->arena, motet_group, program->group_count + groups);
  int32_t *more_ranks = MT_ARENA_NEW(program->arena, int32_t, *used + ranks);
  if (more == NULL || more_ranks == NULL)
    return mt_error_memory(error, (unsigned long long)(*used + ranks) * sizeof(int32_t), "context groups");
  memcpy(more, program->groups, (size_t)program->group_count * sizeof *more);
  memcpy(more_ranks, program->group_ranks, (size_t)*used * sizeof *more_ranks);
  program->groups = more;
  program->group_ranks = more_ranks;
  program->group_rank_count = *used + ranks;
  return MOTET_OK;
}

static void add_group(motet_program *program, const mt_spread *spread, int32_t range, int32_t plane,
                      int64_t *used) {
  const motet_range *members = &spread->ranges[range];
  program->groups[program->group_count++] = (motet_group){.first = *used, .count = members->degree};
  for (int32_t i = 0; i < members->degree; i++)
    program->group_ranks[(*used)++] = plane * spread->width + spread->shares[members->first_share + i].context_rank;
}

motet_status mt_tables_spread(const mt_replica *replicas, mt_arena *scratch, motet_error *error,
                              motet_program *program, int32_t **range_groups) {
  motet_status status = fill_ranges(replicas, error, program);
  if (status != MOTET_OK) return status;
  int32_t pipeline = replicas[0].derivation->ranks, ranges = 1;
  int32_t *first = MT_ARENA_NEW(scratch, int32_t, program->range_count);
  int32_t *groups = MT_ARENA_NEW(scratch, int32_t, (int64_t)program->range_count * pipeline);
  if (first == NULL || groups == NULL)
    return mt_error_memory(error, (unsigned long long)program->range_count * 8, "context groups");
  for (int32_t k = 0; k < program->replicas; k++) {
    const mt_spread *spread = replicas[k].spread;
    int32_t sets = 0;
    int64_t members = 0, used;
    find_sets(spread, first, &sets, &members);
    status = grow_groups(program, (int64_t)sets * pipeline, members * pipeline, error, &used);
    if (status != MOTET_OK) return status;
    for (int32_t r = 0; r < spread->range_count; r++, ranges++)
      for (int32_t p = 0; p < pipeline; p++) {
        int32_t *group = &groups[(int64_t)ranges * pipeline + p];
        *group = first[r] == r ? program->group_count : groups[(int64_t)(ranges - r + first[r]) * pipeline + p];
        if (first[r] == r) add_group(program, spread, r, k * pipeline + p, &used);
      }
  }
  *range_groups = groups;
  return MOTET_OK;
}
