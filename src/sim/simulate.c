#include "sim/simulate.h"
#include "sim/attribution.h"
#include "sim/engine.h"

static const char *const cause_names[MT_IDLE_CAUSES] = {
    [MT_IDLE_WARM_UP] = "warm_up",
    [MT_IDLE_COOL_DOWN] = "cool_down",
    [MT_IDLE_STAGE_IMBALANCE] = "stage_imbalance",
    [MT_IDLE_MICROBATCH_VARIANCE] = "microbatch_variance",
    [MT_IDLE_COMMUNICATION] = "communication",
    [MT_IDLE_DATA_PARALLEL_WAIT] = "data_parallel_wait",
    [MT_IDLE_INPUT_STALL] = "input_stall",
};

const char *mt_idle_cause_name(mt_idle_cause cause) { return cause < MT_IDLE_CAUSES ? cause_names[cause] : NULL; }

void mt_simulation_summarise(const mt_trace *trace, int32_t ranks, mt_simulation *simulation) {
  double makespan = trace->makespan, most_body = 0.0, idle = 0.0;
  for (int32_t rank = 0; rank < ranks; rank++) {
    const mt_rank_trace *from = &trace->ranks[rank];
    double rest = makespan - from->busy;
    simulation->ranks[rank] = (mt_rank_result){.busy = from->busy, .idle = rest > 0 ? rest : 0};
    idle += simulation->ranks[rank].idle;
    if (from->body > most_body) most_body = from->body;
    double span = from->body_last - from->body_first;
    if (from->body_count == 0 || !(span > 0)) continue;
    double bubble = 1.0 - from->body / span;
    if (bubble > simulation->bubble_stage) simulation->bubble_stage = bubble;
  }
  simulation->makespan = makespan;
  simulation->events = trace->events;
  if (makespan > 0) {
    simulation->bubble_whole = 1.0 - most_body / makespan;
    simulation->idle_share = idle / (ranks * makespan);
  }
}

motet_status mt_simulate(mt_arena *arena, const motet_program *program, const mt_cost_table *costs,
                         const mt_simulate_options *options, motet_error *error, mt_simulation **result) {
  mt_sim_costs sim_costs;
  mt_features features;
  mt_trace trace = {0};
  motet_status status = mt_sim_costs_make(arena, program, costs, error, &sim_costs);
  if (status != MOTET_OK) return status;
  status = mt_features_make(arena, program, error, &features);
  if (status != MOTET_OK) return status;

  mt_simulation *simulation = MT_ARENA_NEW(arena, mt_simulation, 1);
  mt_rank_result *ranks = MT_ARENA_NEW(arena, mt_rank_result, program->ranks);
  if (simulation == NULL || ranks == NULL)
    return mt_error_memory(error, (unsigned long long)program->ranks * sizeof *ranks, "simulation");
  simulation->ranks = ranks;

  bool attribute = options != NULL && options->attribute;
  bool timeline = options != NULL && options->timeline;
  status = mt_engine_run(arena, &sim_costs, attribute || timeline, &features, error, &trace);
  if (status != MOTET_OK) goto done;
  mt_simulation_summarise(&trace, program->ranks, simulation);
  status = mt_features_peak(arena, &features, trace.makespan, error, &simulation->peak_features);
  if (status != MOTET_OK) goto done;
  if (timeline) {
    simulation->start = trace.start;
    simulation->finish = trace.finish;
  }
  if (attribute) {
    status = mt_attribute_idle(arena, &sim_costs, &trace, error, simulation);
    if (status != MOTET_OK) goto done;
    status = mt_critical_path(arena, program, &trace, error, simulation);
  }
done:
  mt_trace_release(&trace);
  if (status == MOTET_OK) *result = simulation;
  return status;
}
