/** @file Proven lower bounds; the proofs are in docs/pack.md under the names used here. */
#ifndef MT_PACK_BOUND_H
#define MT_PACK_BOUND_H

#include "pack/search.h"

/** Scratch: arrays of the table's rows and of the ranks. */
typedef struct mt_pack_bound_scratch {
  double *ratio, *linear, *ring; /* [table rows + 1] */
  int64_t *quanta;               /* [table rows] */
  int64_t *best;                 /* [ranks + 1] */
} mt_pack_bound_scratch;

bool mt_pack_bound_scratch_create(mt_arena *arena, const mt_pack_table *table, int32_t ranks,
                                  mt_pack_bound_scratch *scratch);

/**
 * No plan of this one microbatch takes less: the greatest of the plain bound, the floors, and the largest target
 * that the threshold bound or a quantum bound refutes.
 * @param value     a plan's value, the upper end of the search
 * @param by_tokens [count] sequences by tokens, descending
 */
double mt_pack_bound(const mt_pack_problem *problem, const int32_t *by_tokens, double value,
                     mt_pack_bound_scratch *scratch, mt_pack_work *work);

/** Least seconds of a sequence alone, at any degree that its memory allows. */
double mt_pack_floor(const mt_pack_problem *problem, int32_t sequence);

/** The plain bound and the floors alone, O(count * rows). */
double mt_pack_bound_plain(const mt_pack_problem *problem);

/** Any number of microbatches with barriers, each of at most ranks * memory tokens.
 * @param by_density [count] sequences by work per token, descending */
double mt_pack_bound_barriers(const mt_pack_problem *problem, const int32_t *by_density,
                              mt_pack_bound_scratch *scratch);

/** No barriers: groups anywhere on the ranks' timelines, each within its memory. */
double mt_pack_bound_global(const mt_pack_problem *problem, double value, mt_pack_bound_scratch *scratch);

#endif
