/** @file
 * A plan: derivations lowered to one program, proven and simulated. The one way from the algebra to a program that
 * anybody above this floor takes.
 */
#ifndef MT_ORDER_PLAN_H
#define MT_ORDER_PLAN_H

#include "cost/flops.h"
#include "order/order.h"
#include "sim/simulate.h"

/** Context parallelism: how a replica's microbatches are spread, and what their shares cost and take. The order is
 * sought on the pipeline's own costs, a plane of ranks standing for one, and then given to each rank of the plane.
 */
typedef struct mt_plan_spread {
  mt_spread spread;
  mt_cost_table costs; /* over (stage, share); a replicated stage's in its microbatch's first share */
  mt_sizes sizes;      /* likewise; a replicated stage's outputs as the parts that the shares read */
} mt_plan_spread;

/** One replica's part. Replicas that are alike share the pointer to one derivation and one cost table. */
typedef struct mt_plan_replica {
  const mt_derivation *derivation;
  const mt_cost_table *costs; /* over the replica's own microbatches; all replicas' links must be equal */
  mt_sizes sizes;
  const mt_plan_spread *spread; /* or NULL */
  const motet_carried *carried; /* order `ahead`: what the step before left, in the replica's own numbers; NULL: the
                                   steady state */
  int32_t carried_count;
} mt_plan_replica;

typedef struct mt_plan_options {
  mt_order_options order; /* output_bytes, first_rank and carried are set for each replica */
  mt_simulate_options simulate;
} mt_plan_options;

typedef struct mt_plan {
  motet_program *program;
  mt_cost_table costs; /* over the program's columns */
  mt_simulation *simulation;
  motet_verification verification;
  double bound;          /* proven: no order of the derived work has a smaller makespan */
  const mt_flops *flops; /* for who makes plans of a known model to set; NULL: not known */
} mt_plan;

/** Orders, lowers, verifies and simulates. Tables and simulation live in @p arena, which the derivations may share;
 * release the rest with mt_plan_free(). A plan that the verifier refuses is an error: MOTET_ERROR_REFUSED. */
motet_status mt_plan_make(mt_arena *arena, const mt_plan_replica *replicas, int32_t replica_count,
                          const mt_plan_options *options, motet_error *error, mt_plan *plan);

void mt_plan_free(mt_plan *plan);

#endif
