/** @file
 * Which ranks form a group: rings inside nodes where they fit, few nodes otherwise, and rank sets used again,
 * because every distinct set of two ranks or more costs a communicator.
 */
#ifndef MT_PACK_PLACE_H
#define MT_PACK_PLACE_H

#include "base/array.h"

#include <stdbool.h>
#include <stdint.h>

/** The rank sets made so far. With a budget, part of it is kept for the aligned blocks of powers of two (the base
 * family), into which any plan of such degrees can be placed. */
typedef struct mt_pack_sets {
  int32_t ranks, ranks_per_node, nodes;
  int32_t words;      /* 64-bit words of a set */
  int64_t budget;     /* 0: no limit */
  int32_t base_least; /* least degree of the base family, a power of two */
  int64_t base_count, custom_made, made, hits;
  int32_t *head; /* [ranks + 1] newest set of each degree, -1: none */
  MT_ARRAY(int32_t) degree;
  MT_ARRAY(int32_t) next;    /* older set of the same degree */
  MT_ARRAY(int32_t) spans;   /* nodes that it touches */
  MT_ARRAY(int64_t) used_in; /* last plan that used it */
  MT_ARRAY(uint64_t) bits;   /* [sets * words] */
  uint64_t *busy;            /* [words] ranks taken in the current microbatch */
  uint64_t *trial;           /* [words] */
  int32_t *free_in_node;     /* [nodes] */
  int32_t wide_placed;       /* groups wider than a node in the current microbatch */
  int32_t next_single;       /* no rank below it is free */
} mt_pack_sets;

/** False when memory is out. @p ranks_per_node 0: one node. */
bool mt_pack_sets_create(int32_t ranks, int32_t ranks_per_node, int64_t budget, mt_pack_sets *sets);
void mt_pack_sets_destroy(mt_pack_sets *sets);

/** Degrees of the base family. */
bool mt_pack_sets_base(const mt_pack_sets *sets, int32_t degree);

/** How placing a microbatch's groups went. */
typedef enum mt_pack_placing { MT_PACK_PLACED, MT_PACK_BEYOND_BUDGET, MT_PACK_PLACE_NO_MEMORY } mt_pack_placing;

/**
 * Places groups side by side. @p groups are visited in the given order, which must be by degree, descending.
 * @param degrees [groups]
 * @param plan    number of the plan, for counting its distinct sets
 * @param first   [groups] in: where in @p ranks each group's ranks go
 * @param ranks   out, ascending per group
 * @param distinct added to: sets that @p plan had not used before
 * Beyond the budget, nothing is made and the caller plans again with degrees of the base family.
 */
mt_pack_placing mt_pack_place(mt_pack_sets *sets, int32_t groups, const int32_t *order, const int32_t *degrees,
                              const int64_t *first, int64_t plan, int32_t *ranks, int32_t *distinct);

/** Records a set that is given by its ranks (ascending), as the global scope does. False when memory is out. */
bool mt_pack_sets_use(mt_pack_sets *sets, const int32_t *ranks, int32_t degree, int64_t plan, int32_t *distinct);

#endif
