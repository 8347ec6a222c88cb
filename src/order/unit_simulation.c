#include "order/unit_simulation.h"

#include "order/unit_costs.h"

#include <stdlib.h>

struct motet_simulation {
  mt_arena *arena;
  mt_simulation *inner;
  motet_verification verification;
  motet_simulation_result result;
};

motet_idle mt_unit_idle(const double by_cause[MT_IDLE_CAUSES]) {
  return (motet_idle){.warm_up = by_cause[MT_IDLE_WARM_UP],
                      .cool_down = by_cause[MT_IDLE_COOL_DOWN],
                      .stage_imbalance = by_cause[MT_IDLE_STAGE_IMBALANCE],
                      .microbatch_variance = by_cause[MT_IDLE_MICROBATCH_VARIANCE],
                      .communication = by_cause[MT_IDLE_COMMUNICATION],
                      .data_parallel_wait = by_cause[MT_IDLE_DATA_PARALLEL_WAIT],
                      .input_stall = by_cause[MT_IDLE_INPUT_STALL]};
}

static motet_status check_options(const motet_simulate_options *options, motet_error *error) {
  if (options->unit == NULL)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT, "a simulation needs times, as in 'f=1, b=2'");
  if (!(options->alpha_seconds >= 0) || !(options->beta_bytes_per_second >= 0))
    return mt_error_set(error, MOTET_ERROR_ARGUMENT, "latency and bandwidth cannot be negative");
  return MOTET_OK;
}

static motet_status simulate(motet_simulation *simulation, const motet_program *program,
                             const motet_simulate_options *options, motet_error *error) {
  motet_verify_options verify = {0};
  motet_status status = motet_verify(program, &verify, error, &simulation->verification);
  mt_unit *units;
  int32_t unit_count;
  if (status == MOTET_OK) status = mt_unit_parse(simulation->arena, options->unit, error, &units, &unit_count);
  mt_cost_table costs = {.links.local = {options->alpha_seconds, options->beta_bytes_per_second}};
  if (status == MOTET_OK)
    status = mt_unit_costs_of_program(simulation->arena, program, units, unit_count, error, &costs);
  mt_simulate_options how = {.timeline = true, .attribute = true};
  if (status == MOTET_OK) status = mt_simulate(simulation->arena, program, &costs, &how, error, &simulation->inner);
  return status;
}

motet_status motet_simulation_create(const motet_program *program, const motet_simulate_options *options,
                                     motet_error *error, motet_simulation **result) {
  *result = NULL;
  motet_error_clear(error);
  motet_status status = check_options(options, error);
  if (status != MOTET_OK) return status;
  motet_simulation *simulation = calloc(1, sizeof *simulation);
  if (simulation != NULL) simulation->arena = mt_arena_create();
  if (simulation == NULL || simulation->arena == NULL) {
    motet_simulation_destroy(simulation);
    return mt_error_memory(error, sizeof *simulation, "a simulation");
  }
  status = simulate(simulation, program, options, error);
  if (status != MOTET_OK) {
    motet_simulation_destroy(simulation);
    return status;
  }
  const mt_simulation *inner = simulation->inner;
  simulation->result = (motet_simulation_result){.makespan = inner->makespan,
                                                 .idle_share = inner->idle_share,
                                                 .bubble_whole = inner->bubble_whole,
                                                 .bubble_stage = inner->bubble_stage,
                                                 .idle = mt_unit_idle(inner->idle_by_cause),
                                                 .peak_features = inner->peak_features,
                                                 .memory = simulation->verification.memory,
                                                 .start = inner->start,
                                                 .finish = inner->finish};
  *result = simulation;
  return MOTET_OK;
}

void motet_simulation_destroy(motet_simulation *simulation) {
  if (simulation == NULL) return;
  motet_verification_free(&simulation->verification);
  mt_arena_destroy(simulation->arena);
  free(simulation);
}

const motet_simulation_result *motet_simulation_get(const motet_simulation *simulation) {
  return &simulation->result;
}
