/** @file From a Megatron-LM layout and unit costs of its layers to what a derivation is asked for. */
#ifndef MT_ORDER_LAYOUT_UNITS_H
#define MT_ORDER_LAYOUT_UNITS_H

#include "algebra/megatron_layout.h"
#include "algebra/schedule.h"
#include "cost/unit.h"
#include "model/model.h"

/** What a layout stands for: one Sharded region of all kinds of layer, 1F1B, interleaved where the layout has more
 * stages than there are ranks. */
typedef struct mt_layout_units {
  const mt_megatron_layout *layout;
  mt_schedule *schedule;
  mt_model *model; /* a module for each kind that the layout has */
  mt_unit *units;  /* one a module, with times of one layer */
  int32_t unit_count;
  int32_t *unit_of_module;
} mt_layout_units;

/**
 * @p units: times of one layer of each kind, named E, t, m, L; a kind that is not named costs nothing. One unit
 * without a name is every kind's.
 * @param trainable kinds that train; NULL: those with backward times, and those without times where one has them
 */
motet_status mt_layout_units_make(mt_arena *arena, const char *text, const mt_unit *units, int32_t unit_count,
                                  int32_t ranks, const char *const *trainable, int32_t trainable_count,
                                  motet_error *error, mt_layout_units *result);

#endif
