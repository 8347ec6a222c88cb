/** @file
 * What a search knows before it plans: the layers' times with the degrees of a cell, the replica with most to do,
 * and from both a candidate's lower bounds. See docs/search.md.
 */
#ifndef MT_SEARCH_BOUND_H
#define MT_SEARCH_BOUND_H

#include "search/candidate.h"

/** Layers by the degrees of a cell. Layers that differ in nothing have one class. */
typedef struct mt_search_table {
  mt_search_batch *batch;
  int32_t classes;
  int32_t *class_of;                /* [layers] */
  double *forward, *input, *weight; /* (kinds, classes) seconds of one layer; input and weight: of its backward */
  int64_t *saved;                   /* [classes] bytes from forward to backward, of the worst microbatch */
  double *kind_seconds;             /* [kinds] forward and backward of all layers */
  bool limit; /* encoders take several unlike microbatches at a time: their times are those of very many */
} mt_search_table;

motet_status mt_search_table_make(mt_arena *arena, const mt_search_space *space,
                                  const mt_search_candidate *candidate, motet_error *error, mt_search_table *table);

/** What the replica with most to do has of it. */
typedef struct mt_search_load {
  int32_t data, microbatches;
  int32_t together;                       /* replicas that wait for one another in each microbatch; 1: none does */
  int32_t *microbatch;                    /* [microbatches] in the batch, in the order in which they go */
  double *forward, *backward;             /* [layers] all its microbatches */
  double *least_forward, *least_backward; /* [layers] the fastest of them */
  double way, way_split; /* the slowest microbatch forth and back, with and without weight gradients */
} mt_search_load;

/** Replicas that gather weights, or reduce gradients, in each microbatch, and so go through the step in lockstep:
 * the k-th heaviest of all of them stands for the k-th of one. */
int32_t mt_search_together(const mt_search_candidate *candidate);

motet_status mt_search_load_make(mt_arena *arena, const mt_search_space *space, const mt_search_table *table,
                                 int32_t data, int32_t together, motet_error *error, mt_search_load *load);

/** No plan of the candidate is faster. */
double mt_search_bound(const mt_search_space *space, const mt_search_load *load,
                       const mt_search_candidate *candidate);

/** About what it may take: the bound, or the work with the usual idle share of its trunk. */
double mt_search_estimate(const mt_search_space *space, const mt_search_load *load,
                          const mt_search_candidate *candidate);

/** Bytes that a device of the fullest cell needs at least: weights and states, or one layer with what it saves. */
double mt_search_least_bytes(const mt_search_space *space, const mt_search_table *table,
                             const mt_search_candidate *candidate, mt_parallel *parallels);

/** Sum of [begin, end). */
double mt_search_sum(const double *values, int32_t begin, int32_t end);

#endif
