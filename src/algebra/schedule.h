/** @file
 * The schedule's text form and its syntax tree: `<vision+projector: transpose(order=fill, window=8), llm: 1f1b>`.
 * See docs/algebra.md for the grammar.
 */
#ifndef MT_ALGEBRA_SCHEDULE_H
#define MT_ALGEBRA_SCHEDULE_H

#include "base/arena.h"
#include "base/error.h"

#include <stdint.h>

typedef enum mt_skeleton_kind {
  MT_SKELETON_1F1B,
  MT_SKELETON_GPIPE,
  MT_SKELETON_TRANSPOSE,
  MT_SKELETON_INLINE,
  MT_SKELETON_ZB1P,
  MT_SKELETON_ZB2P,
  MT_SKELETON_FOLD,
  MT_SKELETON_ZBV,
  MT_SKELETON_VHALF,
  MT_SKELETON_VMIN,
  MT_SKELETON_DUALPIPEV,
  MT_SKELETON_DEDICATE, /* how `dedicate` is written; its skeletons are of the inner one's kind, with ranks > 0 */
  MT_SKELETON_KINDS
} mt_skeleton_kind;

typedef enum mt_order_kind { MT_ORDER_FILL, MT_ORDER_PREFIX, MT_ORDER_AHEAD, MT_ORDER_KINDS } mt_order_kind;
typedef enum mt_owner_kind { MT_OWNER_BALANCED, MT_OWNER_ROUND_ROBIN, MT_OWNER_KINDS } mt_owner_kind;

typedef struct mt_skeleton {
  mt_skeleton_kind kind;
  int32_t virtual_stages; /* chunks a rank, >= 1: an option of 1f1b, 2 where the slab map is folded */
  mt_order_kind order;    /* transpose */
  mt_owner_kind owner;    /* transpose */
  int32_t window;         /* transpose: most features alive at once; 0: no bound */
  int32_t ranks;          /* dedicate: of its own; 0: those that the other regions share */
  int32_t data;           /* data-parallel width, >= 1: an option of dedicate */
  int32_t batch;          /* microbatches that are computed together, >= 1 */
} mt_skeleton;

/** One element of the schedule between commas. */
typedef struct mt_term {
  int32_t module_count; /* names before the colon; 0 where the element is positional */
  const char *const *modules;
  int32_t branch; /* elements joined by '|' share a branch group: its number from 1; else 0 */
  mt_skeleton skeleton;
  int32_t column; /* in the text, from 1, for messages */
} mt_term;

typedef struct mt_schedule {
  int32_t term_count;
  mt_term *terms;
} mt_schedule;

/** Parses @p text. Errors name the column and what would be accepted there. Allocates from @p arena. */
motet_status mt_schedule_parse(mt_arena *arena, const char *text, motet_error *error, mt_schedule **schedule);

/** The canonical text: parsing it gives the same schedule. NULL when memory is out. */
char *mt_schedule_print(mt_arena *arena, const mt_schedule *schedule);

/** Canonical text of one skeleton, options at their defaults left out. */
char *mt_skeleton_print(mt_arena *arena, const mt_skeleton *skeleton);

#endif
