#include "order/plan.h"

#include <string.h>

/* Whether two replicas are the same object of planning, so that one order serves both. */
static bool alike(const mt_plan_replica *a, const mt_plan_replica *b) {
  return a->derivation == b->derivation && a->costs == b->costs && a->carried == b->carried;
}

/* Lays one kind's values of all replicas side by side: program microbatch = replica * M + local microbatch. */
static motet_status join_values(mt_arena *arena, const mt_plan_replica *replicas, int32_t replica_count,
                                mt_cost_kind kind, motet_error *error, mt_cost_values *joined) {
  const mt_derivation *derivation = replicas[0].derivation;
  int64_t local = derivation->microbatches, columns = local * replica_count;
  bool any = false, uniform = true;
  for (int32_t d = 0; d < replica_count; d++) {
    const mt_cost_values *values = &replicas[d].costs->seconds[kind];
    any |= values->values != NULL;
    uniform &= replicas[d].costs == replicas[0].costs && values->microbatch_stride == 0;
  }
  *joined = uniform ? replicas[0].costs->seconds[kind] : (mt_cost_values){0};
  if (uniform || !any) return MOTET_OK;
  joined->values = MT_ARENA_NEW(arena, double, columns * derivation->stage_count);
  if (joined->values == NULL)
    return mt_error_memory(error, (unsigned long long)(columns * derivation->stage_count) * sizeof(double),
                           "costs");
  joined->stage_stride = columns;
  joined->microbatch_stride = 1;
  for (int32_t d = 0; d < replica_count; d++)
    for (int32_t s = 0; s < derivation->stage_count; s++)
      for (int32_t m = 0; m < local; m++)
        joined->values[s * columns + d * local + m] = mt_cost_seconds(replicas[d].costs, kind, s, m);
  return MOTET_OK;
}

static motet_status join_costs(mt_arena *arena, const mt_plan_replica *replicas, int32_t replica_count,
                               motet_error *error, mt_cost_table *joined) {
  *joined = *replicas[0].costs;
  motet_status status = MOTET_OK;
  for (int kind = 0; replica_count > 1 && kind < MT_COST_KINDS && status == MOTET_OK; kind++)
    status = join_values(arena, replicas, replica_count, (mt_cost_kind)kind, error, &joined->seconds[kind]);
  return status;
}

motet_status mt_plan_make(mt_arena *arena, const mt_plan_replica *replicas, int32_t replica_count,
                          const mt_plan_options *options, motet_error *error, mt_plan *plan) {
  memset(plan, 0, sizeof *plan);
  mt_replica *parts = MT_ARENA_NEW(arena, mt_replica, replica_count);
  mt_order_result *results = MT_ARENA_NEW(arena, mt_order_result, replica_count);
  if (parts == NULL || results == NULL)
    return mt_error_memory(error, (unsigned long long)replica_count * sizeof *parts, "replicas");
  motet_status status = MOTET_OK;
  for (int32_t d = 0; d < replica_count && status == MOTET_OK; d++) {
    int32_t same = d > 0 && alike(&replicas[d], &replicas[d - 1]) ? d - 1 : -1;
    if (same < 0) {
      mt_order_options order = options->order;
      order.output_bytes = replicas[d].sizes.output_bytes;
      order.first_rank = d * replicas[d].derivation->ranks;
      order.carried = replicas[d].carried;
      order.carried_count = replicas[d].carried_count;
      status = mt_order_make(arena, replicas[d].derivation, replicas[d].costs, &order, error, &results[d]);
      if (status != MOTET_OK) break;
      parts[d].order = &results[d].order;
    } else {
      results[d] = results[same];
      parts[d].order = parts[same].order;
    }
    parts[d].derivation = replicas[d].derivation;
    parts[d].sizes = replicas[d].sizes;
    if (results[d].bound > plan->bound) plan->bound = results[d].bound;
  }
  if (status == MOTET_OK) status = join_costs(arena, replicas, replica_count, error, &plan->costs);
  if (status == MOTET_OK) status = mt_program_lower(parts, replica_count, error, &plan->program);
  motet_verify_options verify = {0};
  if (status == MOTET_OK) status = motet_verify(plan->program, &verify, error, &plan->verification);
  if (status == MOTET_OK)
    status = mt_simulate(arena, plan->program, &plan->costs, &options->simulate, error, &plan->simulation);
  if (status != MOTET_OK) mt_plan_free(plan);
  return status;
}

void mt_plan_free(mt_plan *plan) {
  if (plan == NULL) return;
  motet_verification_free(&plan->verification);
  motet_program_destroy(plan->program);
  memset(plan, 0, sizeof *plan);
}
