/** @file Microbatches: samples packed so many at a time, and dealt out to replicas. */
#ifndef MT_SEARCH_BATCH_H
#define MT_SEARCH_BATCH_H

#include "search/problem.h"

enum { MT_SEARCH_DEALS = 64 };

/** Microbatches dealt out to so many replicas. */
typedef struct mt_search_deal {
  int32_t data;
  int32_t *owner; /* [count] */
} mt_search_deal;

/** All microbatches of a step, heaviest first. */
typedef struct mt_search_batch {
  int32_t samples; /* in each */
  int32_t count;
  int32_t *members; /* (count, samples) samples of each */
  double (*extents)[MT_EXTENTS];
  double *load;  /* operations of a forward */
  int32_t *kind; /* [count] equal ones have one number, in the order of their first */
  int32_t kinds;
  int32_t *first; /* [kinds] a microbatch of each kind */
  double *number; /* [kinds] of microbatches */
  int32_t deal_count;
  mt_search_deal deals[MT_SEARCH_DEALS]; /* that were asked for */
} mt_search_batch;

/**
 * Packs the step's samples, @p samples in each microbatch, longest first to the lightest one that has room: within
 * 4/3 of the best balance (Graham 1969). A rest that fills no microbatch is left out.
 */
motet_status mt_search_batch_make(mt_arena *arena, const mt_architecture *architecture,
                                  const mt_workload_samples *data, int32_t samples, motet_error *error,
                                  mt_search_batch *batch);

/** Deals loads, heaviest first, to the lightest of @p bins that has fewer than @p each: @p owner [count], @p sum
 * and
 * @p held [bins]. */
void mt_search_deal_loads(const double *load, int32_t count, int32_t bins, int32_t each, double *sum, int32_t *held,
                          int32_t *owner);

/** The replica of each microbatch, of @p data: heaviest first to the lightest that has fewer than its share. Kept
 * for who asks again, so not for several threads at once. NULL when memory is out. */
const int32_t *mt_search_batch_owners(mt_arena *arena, mt_search_batch *batch, int32_t data);

#endif
