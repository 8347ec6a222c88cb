/** @file
 * Seams: what must move between two layouts, found by joining them. No schedule and no skeleton is named here.
 */
#ifndef MT_ALGEBRA_SEAM_H
#define MT_ALGEBRA_SEAM_H

#include "algebra/derive.h"
#include "algebra/layout.h"

/** One side of a seam. */
typedef struct mt_seam_side {
  const mt_layout *layout;
  int32_t slab;
} mt_seam_side;

/** One row of the join: tokens [from.begin, from.end) = [to.begin, to.end) lie on `from` and are wanted on `to`. */
typedef struct mt_seam_row {
  mt_piece from, to;
  bool local; /* both sides name the same rank, whatever owner is chosen: nothing moves */
} mt_seam_row;

/** Joins the two sides over all tokens of @p microbatch. Writes at most @p capacity rows to @p rows (context
 * degrees a and b give at most a + b - 1) and returns how many there are. Rows are in token order. */
int32_t mt_seam_join(mt_seam_side from, mt_seam_side to, int32_t microbatch, int64_t tokens, mt_seam_row *rows,
                     int32_t capacity);

/** The display name of the movement from one side to the other over microbatches [0, microbatches). */
mt_pattern mt_seam_pattern(mt_seam_side from, mt_seam_side to, int32_t microbatches);

#endif
