/** @file
 * Columns: what the tables over (stage, microbatch) are indexed by. A column is a microbatch, or, where
 * microbatches are cut into token ranges, one member's share of one. A stage that computes a cut microbatch whole
 * (a replicated region's) has its place in the microbatch's first column.
 */
#ifndef MT_PROGRAM_COLUMNS_H
#define MT_PROGRAM_COLUMNS_H

#include "motet/program.h"

static inline int32_t mt_column_count(const motet_program *program) {
  return program->share_count > 0 ? program->share_count : program->microbatch_count;
}

/** The first column of a microbatch; of the number behind the last one, the number of columns. */
static inline int32_t mt_column_first(const motet_program *program, int32_t microbatch) {
  if (program->share_count == 0) return microbatch;
  int32_t low = 1, high = program->range_count; /* ranges stand in the order of their microbatches */
  while (low < high) {
    int32_t middle = low + (high - low) / 2;
    if (program->ranges[middle].microbatch < microbatch)
      low = middle + 1;
    else
      high = middle;
  }
  return low < program->range_count ? program->ranges[low].first_share : program->share_count;
}

/** The place of @p rank among a group's members, or -1. */
static inline int32_t mt_group_place(const motet_program *program, int32_t group, int32_t rank) {
  const int32_t *ranks = program->group_ranks + program->groups[group].first;
  int32_t low = 0, high = program->groups[group].count;
  while (low < high) {
    int32_t middle = low + (high - low) / 2;
    if (ranks[middle] < rank)
      low = middle + 1;
    else
      high = middle;
  }
  return low < program->groups[group].count && ranks[low] == rank ? low : -1;
}

/** Whether several ranks run the instruction together, each on its share: they wait for one another. */
static inline bool mt_is_shared(const motet_program *program, const motet_instruction *instruction) {
  return instruction->kind <= MOTET_RECOMPUTE && instruction->range > 0 &&
         program->groups[instruction->peer].count > 1;
}

/** The column of compute, LOAD, OFFLOAD or FETCH on @p rank; -1 where it is no member that has a share. */
static inline int32_t mt_column_of(const motet_program *program, int32_t rank,
                                   const motet_instruction *instruction) {
  if (instruction->range == 0) return mt_column_first(program, instruction->microbatch);
  int32_t place = mt_group_place(program, instruction->peer, rank);
  const motet_range *range = &program->ranges[instruction->range];
  return place < 0 || place >= range->degree ? -1 : range->first_share + place;
}

#endif
