/** @file The cost of groups, compiled: one row of coefficients per allowed degree. */
#ifndef MT_PACK_COST_H
#define MT_PACK_COST_H

#include "base/arena.h"
#include "motet/pack.h"

/** `seconds = fixed + linear * tokens + max(attention * area, ring * tokens + latency)`. */
typedef struct mt_pack_row {
  int32_t degree;
  double fixed;     /* with the latency where nothing overlaps */
  double linear;    /* seconds per token, divided by the degree; with the ring where nothing overlaps */
  double attention; /* seconds per area, divided by the degree */
  double ring, latency;
} mt_pack_row;

typedef struct mt_pack_table {
  double fixed, linear, attention; /* as given: at degree 1 */
  int32_t count;
  const mt_pack_row *rows;      /* [count] by degree, ascending */
  const int32_t *index_at_most; /* [ranks + 1] row of the widest allowed degree <= d; -1: none */
} mt_pack_table;

/** Rows of the allowed degrees up to @p ranks; all of them where @p degrees is NULL. */
motet_status mt_pack_table_build(mt_arena *arena, const motet_pack_cost *cost, const int32_t *degrees,
                                 int32_t degree_count, int32_t ranks, motet_error *error, mt_pack_table *table);

static inline double mt_pack_row_seconds(const mt_pack_row *row, int64_t tokens, double area) {
  double length = (double)tokens;
  double attention = row->attention * area, ring = row->ring * length + row->latency;
  return row->fixed + row->linear * length + (attention > ring ? attention : ring);
}

/** Degrees that ranks_per_node and heads allow as U * R: U divides @p heads, R <= @p rings. Ascending, unique; at
 * most @p limit. Returns their number; @p degrees needs @p limit entries. */
int32_t mt_pack_degrees_usp(int32_t heads, int32_t rings, int32_t limit, int32_t *degrees);

/** Degrees from a text: all | pow2 | divisors:28 | list:1,2,3 | usp:HEADS,RINGS. `*degrees` is freed by the caller.
 */
motet_status mt_pack_degrees_parse(const char *text, int32_t limit, motet_error *error, int32_t **degrees,
                                   int32_t *count);

#endif
