/** @file
 * Orders: who encodes which microbatch, and where in each rank's body sequence. See docs/order.md.
 */
#ifndef MT_ORDER_ORDER_H
#define MT_ORDER_ORDER_H

#include "algebra/derive.h"
#include "cost/table.h"
#include "program/lower.h"

/** Effort for one of thousands of plans: a few passes of the greedy, and no proof of a bound. */
#define MT_ORDER_QUICK (-2.0)

typedef struct mt_order_options {
  double search_seconds; /* effort of local search and branch and bound is bounded by counted work derived from
                            this, never by a clock: same input, same order. 0: the default, which suits the
                            instance's size; below 0: the greedy alone */
  motet_size_table output_bytes; /* bytes of a stage's output and of its gradient, over (derived stage,
                                    microbatch), for the transfers' times; zero-filled: their latency alone */
  int32_t first_rank;            /* pipeline rank 0's number in the links (replica * P) */
  const motet_carried *carried;  /* order `ahead`: what the previous step left, or NULL: the steady state */
  int32_t carried_count;
} mt_order_options;

typedef struct mt_order_result {
  mt_order order;
  double makespan; /* on the plan's own timeline, transfers by the table's links */
  double bound;    /* proven lower bound on the makespan of any order of this derivation's transposed work, and
                      of its body where the skeleton leaves that open */
} mt_order_result;

/** Places the transposed regions' work into the body sequences as their skeletons ask; a derivation without
 * transposed regions gets its body. Without a window never slower than `prefix` with the same owners; with
 * balanced owners never slower than the encoder inside the consumer's stage. @p options may be NULL. Allocates
 * from @p arena. MOTET_ERROR_ILLEGAL for `ahead` with a region that has a backward, MOTET_ERROR_ARGUMENT for
 * times that are negative or not finite and for a body that cannot run in its order. */
motet_status mt_order_make(mt_arena *arena, const mt_derivation *derivation, const mt_cost_table *costs,
                           const mt_order_options *options, motet_error *error, mt_order_result *result);

#endif
