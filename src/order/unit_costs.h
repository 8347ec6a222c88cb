/** @file Planning on unit costs: the model, the shares and the tables that `--unit` stands for. */
#ifndef MT_ORDER_UNIT_COSTS_H
#define MT_ORDER_UNIT_COSTS_H

#include "algebra/derive.h"
#include "cost/unit.h"
#include "motet/program.h"

/**
 * The abstract model behind units: one module per unit, P layers for each Sharded chunk that the schedule asks for,
 * so that every slab of an even split has the same number; with a split [split_count], as many as it has. A unit
 * named `a+b` gives the modules a and b.
 * @param trainable names of units or modules that train; NULL: those with backward times
 * @param unit_of_module [module_count], allocated
 */
motet_status mt_unit_model(mt_arena *arena, const mt_schedule *schedule, const mt_unit *units, int32_t unit_count,
                           int32_t ranks, const int32_t *split, int32_t split_count, const char *const *trainable,
                           int32_t trainable_count, motet_error *error, mt_model **model, int32_t **unit_of_module);

/** What varies from microbatch to microbatch. */
typedef struct mt_unit_variation {
  const double *encode; /* forward times of the Replicated regions (of the inline ones where none is Replicated) */
  int32_t encode_count; /* 0: none; a time of 0 says that the microbatch has no data for these regions */
} mt_unit_variation;

/** Bit set of the modules whose times `encode` gives: those of the Replicated regions, of the inline ones where
 * none is Replicated. */
uint64_t mt_unit_varied_modules(const mt_derivation *derivation);

/** [M] modules that have data for each microbatch, or NULL where all have. @p derivation: made without presence. */
motet_status mt_unit_presence(mt_arena *arena, const mt_derivation *derivation, const mt_unit_variation *variation,
                              motet_error *error, uint64_t **present);

motet_status mt_unit_costs(mt_arena *arena, const mt_derivation *derivation, const mt_unit *units,
                           int32_t unit_count, const int32_t *unit_of_module, const mt_unit_variation *variation,
                           motet_error *error, mt_cost_table *table);

/** Unit costs for a program from outside. One unit without a name serves all modules; named ones must cover them.
 */
motet_status mt_unit_costs_of_program(mt_arena *arena, const motet_program *program, const mt_unit *units,
                                      int32_t unit_count, motet_error *error, mt_cost_table *table);

#endif
