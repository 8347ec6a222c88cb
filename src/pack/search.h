/** @file
 * Grouping for time: constructors of a grouping, local search on the slowest group, and full enumeration of few
 * sequences. All effort is counted, never clocked.
 */
#ifndef MT_PACK_SEARCH_H
#define MT_PACK_SEARCH_H

#include "pack/state.h"

/** Effort so far and most allowed, in trials (a trial evaluates one or two groups' times). */
typedef struct mt_pack_work {
  int64_t done, limit;
} mt_pack_work;

/**
 * A grouping for the target time @p target: sequences that need more than one rank get the fewest ranks that reach
 * it (in a group of their own, one that has room, or one that grows), the others go longest first to the least
 * loaded of those groups and of new ones of the degree at @p width_index. Degrees are then allocated exactly.
 * @return false if memory or the ranks do not suffice
 */
bool mt_pack_construct(const mt_pack_problem *problem, double target, int32_t width_index, mt_pack_scratch *scratch,
                       mt_pack_work *work, mt_pack_state *state);

/** A grouping for batches that nearly fill the memory: groups of the degree at @p width_index (and what longer
 * sequences need), dealt by tokens, then repaired and merged until all are within their memory. False if that
 * fails. */
bool mt_pack_construct_tight(const mt_pack_problem *problem, const int32_t *by_tokens, int32_t width_index,
                             mt_pack_scratch *scratch, mt_pack_work *work, mt_pack_state *state);

/** The least target at which the wide sequences' ranks and the others' work fit the ranks, by bisection. */
double mt_pack_target(const mt_pack_problem *problem, double low, double high, mt_pack_work *work,
                      mt_pack_state *state);

/** Published packing: by tokens, descending, into the bin of least remaining memory, or a new one. Opens groups of
 * least degree without regard to the number of ranks. */
void mt_pack_best_fit(const mt_pack_problem *problem, const int32_t *by_tokens, mt_pack_scratch *scratch,
                      mt_pack_work *work, mt_pack_state *state);

/** Lowers the slowest group's time by changes of degree, moves, swaps, merges and splits until none helps or the
 * work is used up; true in the first case. @p bound: stop when reached. */
bool mt_pack_improve(const mt_pack_problem *problem, double bound, mt_pack_scratch *scratch, mt_pack_work *work,
                     mt_pack_state *state);

enum { MT_PACK_ENUMERATE_MAX = 7 };

/** Tries every set partition of at most MT_PACK_ENUMERATE_MAX sequences, with exact allocation. False if none fits.
 * Otherwise @p state is the fastest of all. */
bool mt_pack_enumerate(const mt_pack_problem *problem, mt_pack_scratch *scratch, mt_pack_state *trial,
                       mt_pack_work *work, mt_pack_state *state);

/** Sorts @p items so that keys descend; ties keep ascending items. @p spare: [count] scratch. */
void mt_pack_sort(const double *keys, int32_t count, int32_t *items, int32_t *spare);

#endif
