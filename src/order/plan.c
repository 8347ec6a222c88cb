#include "order/plan.h"

#include "order/expand.h"
#include "sim/costs.h"

#include <string.h>

/* Whether two replicas are the same object of planning, so that one order serves both. */
static bool alike(const mt_plan_replica *a, const mt_plan_replica *b) {
  return a->derivation == b->derivation && a->costs == b->costs && a->carried == b->carried &&
         a->spread == b->spread;
}

/* What a replica's part of the program costs, and over how many columns. */
static const mt_cost_table *costs_of(const mt_plan_replica *replica, int32_t *columns) {
  *columns = replica->spread != NULL ? replica->spread->spread.share_count : replica->derivation->microbatches;
  return replica->spread != NULL ? &replica->spread->costs : replica->costs;
}

/* Lays one kind's values of all replicas side by side: program columns (program/columns.h). */
static motet_status join_values(mt_arena *arena, const mt_plan_replica *replicas, int32_t replica_count,
                                mt_cost_kind kind, motet_error *error, mt_cost_values *joined) {
  const mt_derivation *derivation = replicas[0].derivation;
  int32_t local;
  const mt_cost_table *first = costs_of(&replicas[0], &local);
  int64_t columns = 0;
  bool any = false, uniform = true;
  for (int32_t d = 0; d < replica_count; d++) {
    const mt_cost_table *costs = costs_of(&replicas[d], &local);
    any |= costs->seconds[kind].values != NULL;
    uniform &= costs == first && costs->seconds[kind].microbatch_stride == 0;
    columns += local;
  }
  *joined = uniform ? first->seconds[kind] : (mt_cost_values){0};
  if (uniform || !any) return MOTET_OK;
  joined->values = MT_ARENA_NEW(arena, double, columns * derivation->stage_count);
  if (joined->values == NULL)
    return mt_error_memory(error, (unsigned long long)(columns * derivation->stage_count) * sizeof(double),
                           "costs");
  joined->stage_stride = columns;
  joined->microbatch_stride = 1;
  int64_t filled = 0;
  for (int32_t d = 0; d < replica_count; d++, filled += local) {
    const mt_cost_table *costs = costs_of(&replicas[d], &local);
    for (int32_t s = 0; s < derivation->stage_count; s++)
      for (int32_t m = 0; m < local; m++)
        joined->values[s * columns + filled + m] = mt_cost_seconds(costs, kind, s, m);
  }
  return MOTET_OK;
}

static motet_status join_costs(mt_arena *arena, const mt_plan_replica *replicas, int32_t replica_count,
                               motet_error *error, mt_cost_table *joined) {
  int32_t columns;
  *joined = *costs_of(&replicas[0], &columns);
  motet_status status = MOTET_OK;
  for (int kind = 0; replica_count > 1 && kind < MT_COST_KINDS && status == MOTET_OK; kind++)
    status = join_values(arena, replicas, replica_count, (mt_cost_kind)kind, error, &joined->seconds[kind]);
  return status;
}

/* With shares: what the busiest rank's own shares take, or all work dealt out evenly over a replica's ranks. */
static motet_status bound_shares(mt_arena *arena, motet_error *error, mt_plan *plan) {
  const motet_program *program = plan->program;
  int32_t replica_ranks = program->ranks / program->replicas;
  mt_sim_costs costs;
  motet_status status = mt_sim_costs_make(arena, program, &plan->costs, error, &costs);
  if (status != MOTET_OK) return status;
  double all = 0;
  plan->bound = 0;
  for (int32_t rank = 0; rank < program->ranks; rank++) {
    double own = 0;
    if (rank % replica_ranks == 0) all = 0;
    for (int64_t i = program->rank_begin[rank]; i < program->rank_begin[rank + 1]; i++) {
      const motet_instruction *instruction = &program->instructions[i];
      if (!mt_sim_is_compute(instruction->kind)) continue;
      double seconds = mt_sim_seconds(&costs, rank, instruction);
      all += seconds;
      if (instruction->range > 0 || instruction->kind == MOTET_OPTIM) own += seconds;
    }
    if (own > plan->bound) plan->bound = own;
    if ((rank + 1) % replica_ranks == 0 && all / replica_ranks > plan->bound) plan->bound = all / replica_ranks;
  }
  return MOTET_OK;
}

motet_status mt_plan_make(mt_arena *arena, const mt_plan_replica *replicas, int32_t replica_count,
                          const mt_plan_options *options, motet_error *error, mt_plan *plan) {
  memset(plan, 0, sizeof *plan);
  mt_replica *parts = MT_ARENA_NEW(arena, mt_replica, replica_count);
  mt_order_result *results = MT_ARENA_NEW(arena, mt_order_result, replica_count);
  if (parts == NULL || results == NULL)
    return mt_error_memory(error, (unsigned long long)replica_count * sizeof *parts, "replicas");
  motet_status status = MOTET_OK;
  int32_t width = replicas[0].spread != NULL ? replicas[0].spread->spread.width : 1;
  for (int32_t d = 0; d < replica_count && status == MOTET_OK; d++) {
    int32_t same = d > 0 && alike(&replicas[d], &replicas[d - 1]) ? d - 1 : -1;
    if (same < 0) {
      mt_order_options order = options->order;
      order.output_bytes = replicas[d].sizes.output_bytes;
      order.first_rank = d * replicas[d].derivation->ranks * width;
      order.carried = replicas[d].carried;
      order.carried_count = replicas[d].carried_count;
      status = mt_order_make(arena, replicas[d].derivation, replicas[d].costs, &order, error, &results[d]);
      if (status == MOTET_OK && replicas[d].spread != NULL)
        status = mt_order_expand(arena, &replicas[d], error, &results[d].order);
      if (status != MOTET_OK) break;
      parts[d].order = &results[d].order;
    } else {
      results[d] = results[same];
      parts[d].order = parts[same].order;
    }
    parts[d].derivation = replicas[d].derivation;
    parts[d].sizes = replicas[d].spread != NULL ? replicas[d].spread->sizes : replicas[d].sizes;
    parts[d].spread = replicas[d].spread != NULL ? &replicas[d].spread->spread : NULL;
    if (results[d].bound > plan->bound) plan->bound = results[d].bound;
  }
  if (status == MOTET_OK) status = join_costs(arena, replicas, replica_count, error, &plan->costs);
  if (status == MOTET_OK) status = mt_program_lower(parts, replica_count, error, &plan->program);
  motet_verify_options verify = {0};
  if (status == MOTET_OK) status = motet_verify(plan->program, &verify, error, &plan->verification);
  if (status == MOTET_OK)
    status = mt_simulate(arena, plan->program, &plan->costs, &options->simulate, error, &plan->simulation);
  /* The orders' own bounds are of planes, whose ranks do not wait for one another where they share nothing. */
  if (status == MOTET_OK && replicas[0].spread != NULL) status = bound_shares(arena, error, plan);
  if (status != MOTET_OK) mt_plan_free(plan);
  return status;
}

void mt_plan_free(mt_plan *plan) {
  if (plan == NULL) return;
  motet_verification_free(&plan->verification);
  motet_program_destroy(plan->program);
  memset(plan, 0, sizeof *plan);
}
