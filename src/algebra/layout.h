/** @file
 * Layouts: which rank holds what, as a function (slab, microbatch, token range) -> ranks that depends on the
 * skeleton alone. Seams ask this function and nothing else.
 *
 * A layout spans data x pipeline x context ranks from `first_rank` on, numbered
 * `first_rank + (replica * pipeline + pipeline_rank) * context + context_rank`. Microbatch m belongs to replica
 * m mod data; context rank c holds tokens [c * tokens / context, (c + 1) * tokens / context).
 */
#ifndef MT_ALGEBRA_LAYOUT_H
#define MT_ALGEBRA_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

/** From slab to pipeline rank. */
typedef enum mt_slab_map {
  MT_SLAB_LOOP,  /* slab mod pipeline */
  MT_SLAB_FOLD,  /* forth and back: 0 1 2 3 3 2 1 0 */
  MT_SLAB_OWNER, /* one of the pipeline ranks, the microbatch's owner */
} mt_slab_map;

typedef struct mt_layout {
  mt_slab_map map;
  int32_t owner;      /* MT_SLAB_OWNER: the rule that picks owners; equal rules pick equal owners */
  int32_t slabs;      /* number of slabs */
  int32_t first_rank; /* > 0 for a region on dedicated ranks */
  int32_t pipeline;   /* pipeline ranks */
  int32_t data;       /* data-parallel width */
  int32_t context;    /* context-parallel degree */
} mt_layout;

/** Tokens [begin, end) lie on exactly one of the `count` ranks first, first + stride, ... A count above 1 stands
 * for an owner that is not chosen yet. */
typedef struct mt_piece {
  int64_t begin, end;
  int32_t first, stride, count;
  int32_t owner; /* the rule that will choose; -1 with count 1 */
} mt_piece;

/** Tokens [begin, end) of a microbatch that is @p tokens long. */
typedef struct mt_layout_query {
  int32_t slab, microbatch;
  int64_t tokens, begin, end;
} mt_layout_query;

/** The piece of the query that context rank @p context_rank holds; empty (begin >= end) where it holds none. */
mt_piece mt_layout_piece(const mt_layout *layout, const mt_layout_query *query, int32_t context_rank);

/** Number of microbatches after which the layout repeats. */
int32_t mt_layout_period(const mt_layout *layout);

/** The only rank that holds @p slab in replica 0 and context rank 0; -1 where the microbatch decides. */
int32_t mt_layout_rank(const mt_layout *layout, int32_t slab);

#endif
