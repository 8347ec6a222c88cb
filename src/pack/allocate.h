/** @file
 * Allocation: given the groups, how many ranks does each get? Minimises the slowest group's time. Two exact
 * methods: the published two-dimensional dynamic program, and a heap that needs O(steps log groups).
 */
#ifndef MT_PACK_ALLOCATE_H
#define MT_PACK_ALLOCATE_H

#include "base/arena.h"

#include <stdint.h>

/** Seconds of @p group at the degree with this index; INFINITY where it is not allowed. */
typedef double (*mt_allocate_seconds)(const void *context, int32_t group, int32_t degree_index);

typedef struct mt_allocate_problem {
  int32_t groups, ranks, degree_count;
  const int32_t *degrees; /* [degree_count] ascending */
  const int32_t *least;   /* [groups] index of the least degree allowed to each */
  mt_allocate_seconds seconds;
  const void *context;
} mt_allocate_problem;

/**
 * Every group starts at its least degree; the slowest moves to its next degree with a strictly lower time, until
 * that is more ranks than there are or no such degree is left. Exact for any times, monotone or not (docs/pack.md).
 * @param heap   [groups] scratch
 * @param times  [groups] out: each group's seconds
 * @param chosen [groups] out: each group's degree index
 * @return the slowest group's seconds; INFINITY if the least degrees are too many ranks
 */
double mt_allocate_heap(const mt_allocate_problem *problem, int32_t *heap, double *times, int32_t *chosen);

/**
 * `best[i][j] = min over d of max(best[i - 1][j - d], T_i(d))`, O(groups * ranks^2), as published.
 * @param arena  gives `(groups + 1) * (ranks + 1)` doubles and choices
 * @param chosen [groups] out, NULL if not wanted
 * @return as above; NAN when memory is out
 */
double mt_allocate_table(const mt_allocate_problem *problem, mt_arena *arena, int32_t *chosen);

#endif
