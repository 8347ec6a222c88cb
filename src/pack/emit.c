/* From a solution to the plan's flat arrays. */
#include "base/digest.h"
#include "base/error.h"
#include "pack/packer.h"

#include <string.h>

static motet_status no_memory(motet_error *error) { return mt_error_memory(error, 0, "a plan's groups"); }

/* Groups and their sequences, ascending; ranks are left open. */
static bool add_groups(motet_packer *packer, const mt_pack_solver *solver, const mt_pack_state *state,
                       const int32_t *members) {
  int32_t microbatch = (int32_t)packer->microbatches.count, count = solver->problem.count;
  size_t base = packer->groups.count, first = packer->sequences.count, rank_first = packer->ranks.count;
  for (int32_t g = 0; g < state->groups; g++) {
    const mt_pack_row *row = &solver->problem.table->rows[state->degree[g]];
    motet_pack_group group = {.microbatch = microbatch,
                              .degree = row->degree,
                              .rank_first = (int64_t)rank_first,
                              .sequence_first = (int64_t)first,
                              .tokens = state->tokens[g]};
    if (!MT_ARRAY_PUSH(&packer->groups, group)) return false;
    rank_first += (size_t)row->degree;
    first += (size_t)state->size[g];
  }
  if (!mt_array_reserve((void **)&packer->ranks.data, &packer->ranks.capacity, rank_first, sizeof(int32_t)) ||
      !mt_array_reserve((void **)&packer->sequences.data, &packer->sequences.capacity, first, sizeof(int32_t)))
    return false;
  packer->ranks.count = rank_first;
  packer->sequences.count = first;
  motet_pack_group *groups = packer->groups.data + base;
  for (int32_t k = 0; k < count; k++) {
    motet_pack_group *group = &groups[state->owner[k]];
    packer->sequences.data[group->sequence_first + group->sequence_count++] = members[k];
    group->area += solver->problem.area[k];
  }
  /* Sums anew in a fixed order: the search's own carry the rounding of its steps. */
  for (int32_t g = 0; g < state->groups; g++)
    groups[g].seconds =
        mt_pack_row_seconds(&solver->problem.table->rows[state->degree[g]], groups[g].tokens, groups[g].area);
  return true;
}

/* Puts the groups from @p base on into the order of their first ranks, then starts: two stable sorts. */
static void sort_groups(motet_packer *packer, size_t base) {
  motet_pack_group *groups = packer->groups.data + base;
  int32_t count = (int32_t)(packer->groups.count - base);
  for (int32_t g = 0; g < count; g++) {
    packer->group_order[g] = g;
    packer->keys[g] = -groups[g].start;
  }
  mt_pack_sort(packer->keys, count, packer->group_order, packer->sorted);
  for (int32_t g = 0; g < count; g++) packer->keys[g] = -packer->ranks.data[groups[g].rank_first];
  mt_pack_sort(packer->keys, count, packer->group_order, packer->sorted);
  for (int32_t g = 0; g < count; g++) packer->group_copy[g] = groups[packer->group_order[g]];
  memcpy(groups, packer->group_copy, (size_t)count * sizeof *groups);
}

static bool add_microbatch(motet_packer *packer, size_t base, double value, double bound) {
  motet_pack_microbatch microbatch = {.group_first = (int64_t)base,
                                      .group_count = (int64_t)(packer->groups.count - base),
                                      .value = value,
                                      .lower_bound = bound < value ? bound : value};
  return MT_ARRAY_PUSH(&packer->microbatches, microbatch);
}

motet_status mt_pack_emit(motet_packer *packer, const mt_pack_solver *solver, const mt_pack_solution *solution,
                          const int32_t *members, mt_pack_placing *placing, motet_error *error) {
  size_t base = packer->groups.count, sequences = packer->sequences.count, ranks = packer->ranks.count;
  if (!add_groups(packer, solver, solution->state, members)) return no_memory(error);
  int32_t count = solution->state->groups;
  for (int32_t g = 0; g < count; g++) {
    packer->group_degree[g] = packer->groups.data[base + (size_t)g].degree;
    packer->group_first[g] = packer->groups.data[base + (size_t)g].rank_first;
    packer->keys[g] = packer->group_degree[g];
    packer->group_order[g] = g;
  }
  mt_pack_sort(packer->keys, count, packer->group_order, packer->sorted);
  int32_t distinct = 0;
  *placing = mt_pack_place(&packer->sets, count, packer->group_order, packer->group_degree, packer->group_first,
                           packer->plans, packer->ranks.data, &distinct);
  if (*placing == MT_PACK_PLACE_NO_MEMORY) return no_memory(error);
  if (*placing == MT_PACK_BEYOND_BUDGET) {
    packer->groups.count = base;
    packer->sequences.count = sequences;
    packer->ranks.count = ranks;
    return MOTET_OK;
  }
  packer->plan.distinct_groups += distinct;
  sort_groups(packer, base);
  double value = 0;
  for (size_t g = base; g < packer->groups.count; g++)
    if (packer->groups.data[g].seconds > value) value = packer->groups.data[g].seconds;
  return add_microbatch(packer, base, value, solution->bound) ? MOTET_OK : no_memory(error);
}

motet_status mt_pack_emit_global(motet_packer *packer, const mt_pack_solution *solution, const int32_t *members,
                                 motet_error *error) {
  size_t base = packer->groups.count;
  if (!add_groups(packer, &packer->solver, solution->state, members)) return no_memory(error);
  double value = 0;
  for (int32_t g = 0; g < solution->state->groups; g++) {
    motet_pack_group *group = &packer->groups.data[base + (size_t)g];
    const mt_pack_slot *slot = &packer->timeline.slots[g];
    group->start = slot->start;
    for (int32_t r = 0; r < group->degree; r++) packer->ranks.data[group->rank_first + r] = slot->first_rank + r;
    if (!mt_pack_sets_use(&packer->sets, packer->ranks.data + group->rank_first, group->degree, packer->plans,
                          &packer->plan.distinct_groups))
      return no_memory(error);
    if (group->start + group->seconds > value) value = group->start + group->seconds;
  }
  sort_groups(packer, base);
  return add_microbatch(packer, base, value, solution->bound) ? MOTET_OK : no_memory(error);
}

static void put(motet_packer *packer, int64_t value) {
  for (int i = 0; i < 8; i++)
    packer->canonical.data[packer->canonical.count++] = (unsigned char)((uint64_t)value >> (8 * i));
}

static void put_number(motet_packer *packer, double value) {
  int64_t bits;
  memcpy(&bits, &value, sizeof bits);
  put(packer, bits);
}

uint64_t mt_pack_digest(motet_packer *packer, bool *made) {
  size_t words =
      8 * packer->groups.count + packer->ranks.count + packer->sequences.count + packer->deferred.count + 4;
  packer->canonical.count = 0;
  *made = mt_array_reserve((void **)&packer->canonical.data, &packer->canonical.capacity, 8 * words, 1);
  if (!*made) return 0;
  put(packer, (int64_t)packer->groups.count);
  for (size_t g = 0; g < packer->groups.count; g++) {
    const motet_pack_group *group = &packer->groups.data[g];
    put(packer, group->microbatch);
    put(packer, group->degree);
    put(packer, group->sequence_count);
    put_number(packer, group->start);
    put_number(packer, group->seconds);
    for (int32_t r = 0; r < group->degree; r++) put(packer, packer->ranks.data[group->rank_first + r]);
    for (int32_t i = 0; i < group->sequence_count; i++)
      put(packer, packer->sequences.data[group->sequence_first + i]);
  }
  for (size_t i = 0; i < packer->deferred.count; i++) put(packer, packer->deferred.data[i]);
  return mt_digest_of(packer->canonical.data, packer->canonical.count);
}
