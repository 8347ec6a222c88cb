#include "sim/costs.h"

#include <math.h>

const int8_t mt_sim_cost_kind[MOTET_INSTRUCTION_KINDS] = {
    [MOTET_FWD] = MT_COST_FORWARD,
    [MOTET_BWD] = MT_COST_BACKWARD,
    [MOTET_BWD_X] = MT_COST_BACKWARD_X,
    [MOTET_BWD_W] = MT_COST_BACKWARD_W,
    [MOTET_RECOMPUTE] = MT_COST_RECOMPUTE,
    [MOTET_SEND] = -1,
    [MOTET_RECV] = -1,
    [MOTET_WAIT] = -1,
    [MOTET_REDUCE] = -1,
    [MOTET_REDUCE_SCATTER] = -1,
    [MOTET_ALL_GATHER] = -1,
    [MOTET_ALL_REDUCE] = -1,
    [MOTET_OFFLOAD] = MT_COST_OFFLOAD,
    [MOTET_FETCH] = MT_COST_OFFLOAD,
    [MOTET_LOAD] = MT_COST_LOAD,
    [MOTET_OPTIM] = -1,
    [MOTET_STEP_END] = -1,
};

motet_status mt_sim_costs_make(mt_arena *arena, const motet_program *program, const mt_cost_table *table,
                               motet_error *error, mt_sim_costs *costs) {
  *costs = (mt_sim_costs){.program = program, .table = table};
  costs->optimizer = MT_ARENA_NEW(arena, double, program->ranks);
  if (costs->optimizer == NULL)
    return mt_error_memory(error, (unsigned long long)program->ranks * sizeof(double), "optimizer times");
  costs->columns = MT_ARENA_NEW(arena, int32_t, program->microbatch_count);
  if (costs->columns == NULL)
    return mt_error_memory(error, (unsigned long long)program->microbatch_count * sizeof(int32_t), "columns");
  for (int32_t m = 0; m < program->microbatch_count; m++) costs->columns[m] = mt_column_first(program, m);
  if (table->optimizer_seconds == NULL) return MOTET_OK;
  for (int32_t stage = 0; stage < program->stage_count; stage++) {
    const motet_group *group = &program->groups[program->stages[stage].group];
    for (int32_t i = 0; i < group->count; i++)
      costs->optimizer[program->group_ranks[group->first + i]] += table->optimizer_seconds[stage];
  }
  return MOTET_OK;
}

static double ring_seconds(mt_link link, int32_t members, double bytes, double rounds) {
  double hops = rounds * (members - 1);
  double seconds = hops * link.latency_seconds;
  if (link.bytes_per_second > 0) seconds += hops / members * bytes / link.bytes_per_second;
  return seconds;
}

double mt_sim_collective_seconds(const mt_links *links, const motet_program *program, int32_t group_index, int kind,
                                 int64_t bytes) {
  const motet_group *group = &program->groups[group_index];
  if (kind == MOTET_STEP_END || group->count < 2) return 0.0;
  /* A ring over ascending ranks: every round moves bytes/n over every edge, the slowest edge sets the pace. */
  const int32_t *ranks = program->group_ranks + group->first;
  bool local = false, remote = false;
  for (int32_t i = 0; i < group->count; i++) {
    bool same = mt_links_same_node(links, ranks[i], ranks[(i + 1) % group->count]);
    local = local || same;
    remote = remote || !same;
  }
  double rounds = kind == MOTET_ALL_REDUCE ? 2.0 : 1.0, seconds = 0.0;
  if (local) seconds = fmax(seconds, ring_seconds(links->local, group->count, (double)bytes, rounds));
  if (remote) seconds = fmax(seconds, ring_seconds(links->remote, group->count, (double)bytes, rounds));
  return seconds;
}
