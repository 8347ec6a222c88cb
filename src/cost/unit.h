/** @file
 * Unit costs: abstract times per region, as in `vision: f=1; llm: f=1, b=2`. They let the algebra be studied
 * without a model. Times are in seconds, or in any unit the user thinks in.
 */
#ifndef MT_COST_UNIT_H
#define MT_COST_UNIT_H

#include "base/arena.h"
#include "base/error.h"

#include "cost/table.h"

#include <stdbool.h>
#include <stdint.h>

/** Times of one unit. A unit without a name (`f=1, b=2`) stands for every module. */
typedef struct mt_unit {
  const char *name; /* "" where the text has none */
  double forward;
  double backward; /* b, or x + w */
  double input;    /* x, or half of b */
  double weight;   /* w, or the other half */
  bool has_forward, has_backward;
  bool per_layer; /* times of one layer; else of a rank's share or of all layers */
} mt_unit;

/** Parses the text of `--unit`. Errors name the column and what would be accepted. Units and names live in @p
 * arena. */
motet_status mt_unit_parse(mt_arena *arena, const char *text, motet_error *error, mt_unit **units,
                           int32_t *unit_count);

/** Parses a comma-separated list of finite numbers >= 0, as `--encode` takes. @p what names it in messages. */
motet_status mt_unit_numbers(mt_arena *arena, const char *text, const char *what, motet_error *error,
                             double **numbers, int32_t *number_count);

/** Part of a unit's work that one stage does. */
typedef struct mt_unit_share {
  int32_t stage, unit;
  double forward;   /**< of the unit's time: the part of its layers, times P where the time is a rank's share */
  double trainable; /**< the part whose layers train */
  double frozen;    /**< the part that frozen layers only pass a gradient through */
} mt_unit_share;

/** How units turn into a table. */
typedef struct mt_unit_request {
  const mt_unit *units;
  const mt_unit_share *shares;
  int32_t unit_count, share_count, stage_count, microbatches;
  const double *encode; /**< forward times of the varied units, repeated over the microbatches, or NULL */
  int32_t encode_count;
  uint64_t varied;        /**< bit u: unit u takes its forward time from `encode`, its backward in proportion */
  const uint64_t *active; /**< [microbatches] bit u: unit u has work for the microbatch; NULL: always */
} mt_unit_request;

/** Fills @p table (links stay as they are) with one value a stage, or one a stage and microbatch where they differ.
 */
motet_status mt_unit_table(mt_arena *arena, const mt_unit_request *request, motet_error *error,
                           mt_cost_table *table);

#endif
