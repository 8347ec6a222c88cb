#include "sim/measured.h"

#include "sim/attribution.h"
#include "sim/engine.h"

#include <math.h>
#include <string.h>

typedef struct measured {
  mt_arena *arena;
  const motet_program *program;
  double *start, *finish; /* as given */
  double *reached;        /* [instructions] when its rank came to it: start, or for waiting the end before it */
  mt_trace trace;
} measured;

static motet_status check_times(const measured *m, motet_error *error) {
  for (int32_t rank = 0; rank < m->program->ranks; rank++)
    for (int64_t i = m->program->rank_begin[rank]; i < m->program->rank_begin[rank + 1]; i++) {
      if (isfinite(m->start[i]) && isfinite(m->finish[i]) && m->start[i] >= 0 && m->finish[i] >= m->start[i])
        continue;
      motet_status status = mt_error_set(
          error, MOTET_ERROR_ARGUMENT, "times %g to %g are no times of an instruction", m->start[i], m->finish[i]);
      mt_error_rule(error, "", rank, i - m->program->rank_begin[rank], -1);
      return status;
    }
  return MOTET_OK;
}

static motet_status make_table(measured *m, motet_error *error, mt_cost_table *costs) {
  const motet_program *program = m->program;
  size_t stages = (size_t)program->stage_count, microbatches = (size_t)mt_column_count(program);
  *costs = (mt_cost_table){0};
  bool used[MT_COST_KINDS] = {false};
  for (int64_t i = 0; i < program->rank_begin[program->ranks]; i++) {
    int kind = mt_sim_cost_kind[program->instructions[i].kind];
    if (kind >= 0) used[kind] = true;
  }
  if (microbatches > 0 && stages > SIZE_MAX / sizeof(double) / microbatches)
    return mt_error_set(error, MOTET_ERROR_LIMIT, "%zu stages by %zu microbatches are too many", stages,
                        microbatches);
  costs->optimizer_seconds = MT_ARENA_NEW(m->arena, double, stages);
  bool good = costs->optimizer_seconds != NULL;
  for (int kind = 0; kind < MT_COST_KINDS; kind++) {
    if (!used[kind]) continue;
    costs->seconds[kind] =
        (mt_cost_values){MT_ARENA_NEW(m->arena, double, stages *microbatches), (int64_t)microbatches, 1};
    good = good && costs->seconds[kind].values != NULL;
  }
  return good ? MOTET_OK : mt_error_memory(error, stages * microbatches * sizeof(double), "measured costs");
}

/* OFFLOAD and FETCH share a kind and take the longer. */
static void fill_table(measured *m, mt_cost_table *costs) {
  const motet_program *program = m->program;
  for (int32_t rank = 0; rank < program->ranks; rank++)
    for (int64_t i = program->rank_begin[rank]; i < program->rank_begin[rank + 1]; i++) {
      const motet_instruction *instruction = &program->instructions[i];
      int kind = mt_sim_cost_kind[instruction->kind];
      if (kind < 0 || instruction->stage < 0 || instruction->microbatch < 0) continue;
      int32_t column = mt_column_of(program, rank, instruction);
      if (column < 0) continue;
      double *value = &costs->seconds[kind].values[instruction->stage * costs->seconds[kind].stage_stride + column];
      double seconds = m->finish[i] - m->start[i];
      if (seconds > *value) *value = seconds;
    }
}

/* A rank's OPTIM, in equal parts to the stages that it holds; of several holders the slowest counts. */
static motet_status fill_optimizer(measured *m, motet_error *error, mt_cost_table *costs) {
  const motet_program *program = m->program;
  double *seconds = MT_ARENA_NEW(m->arena, double, program->ranks);
  int32_t *held = MT_ARENA_NEW(m->arena, int32_t, program->ranks);
  if (seconds == NULL || held == NULL) return mt_error_memory(error, sizeof *seconds, "measured costs");
  for (int32_t rank = 0; rank < program->ranks; rank++)
    for (int64_t i = program->rank_begin[rank]; i < program->rank_begin[rank + 1]; i++)
      if (program->instructions[i].kind == MOTET_OPTIM) seconds[rank] += m->finish[i] - m->start[i];
  for (int round = 0; round < 2; round++)
    for (int32_t stage = 0; stage < program->stage_count; stage++) {
      const motet_group *group = &program->groups[program->stages[stage].group];
      for (int32_t i = 0; i < group->count; i++) {
        int32_t rank = program->group_ranks[group->first + i];
        if (round == 0)
          held[rank]++;
        else if (seconds[rank] / held[rank] > costs->optimizer_seconds[stage])
          costs->optimizer_seconds[stage] = seconds[rank] / held[rank];
      }
    }
  return MOTET_OK;
}

static void date_ranks(measured *m) {
  const motet_program *program = m->program;
  m->trace.makespan = 0.0;
  for (int32_t rank = 0; rank < program->ranks; rank++) {
    mt_rank_trace *of = &m->trace.ranks[rank];
    double before = 0.0;
    *of = (mt_rank_trace){0};
    for (int64_t i = program->rank_begin[rank]; i < program->rank_begin[rank + 1]; i++) {
      const motet_instruction *instruction = &program->instructions[i];
      double seconds = m->finish[i] - m->start[i];
      bool compute = mt_sim_is_compute(instruction->kind);
      m->reached[i] = compute || before > m->start[i] ? m->start[i] : before;
      if (m->finish[i] > before) before = m->finish[i];
      if (!compute) continue;
      of->busy += seconds;
      if (instruction->kind == MOTET_OPTIM ||
          program->regions[program->stages[instruction->stage].region].replicated)
        continue;
      if (of->body_count++ == 0) of->body_first = m->start[i];
      of->body_last = m->finish[i];
      of->body += seconds;
    }
    of->end = before;
    if (before > m->trace.makespan) m->trace.makespan = before;
  }
}

/* Clocks differ by a little: nothing is posted after the end of who waited for it. */
static void date_transfers(measured *m) {
  const motet_program *program = m->program;
  int64_t count = program->rank_begin[program->ranks];
  for (int64_t i = 0; i < count; i++) {
    int kind = program->instructions[i].kind;
    if (kind != MOTET_SEND && kind != MOTET_RECV) continue;
    mt_transfer *transfer = mt_trace_transfer(&m->trace, m->trace.link[i]);
    *(kind == MOTET_SEND ? &transfer->send_seconds : &transfer->receive_seconds) = m->finish[i];
  }
  for (int64_t i = 0; i < count; i++) {
    if (program->instructions[i].kind != MOTET_WAIT) continue;
    mt_transfer *transfer = mt_trace_transfer(&m->trace, m->trace.link[i]);
    if (transfer->send_seconds > m->finish[i]) transfer->send_seconds = m->finish[i];
    if (transfer->receive_seconds > m->finish[i]) transfer->receive_seconds = m->finish[i];
  }
}

static void date_meetings(measured *m) {
  const motet_program *program = m->program;
  for (size_t k = 0; k < m->trace.meetings.count; k++) {
    m->trace.meetings.data[k].together = -1.0;
    m->trace.meetings.data[k].finish = 0.0;
  }
  for (int32_t rank = 0; rank < program->ranks; rank++)
    for (int64_t i = program->rank_begin[rank]; i < program->rank_begin[rank + 1]; i++) {
      if (!mt_sim_is_collective(program->instructions[i].kind)) continue;
      mt_meeting *meeting = &m->trace.meetings.data[m->trace.link[i]];
      if (m->finish[i] > meeting->finish) meeting->finish = m->finish[i];
      if (m->reached[i] <= meeting->together) continue;
      meeting->together = m->reached[i];
      meeting->last = i;
      meeting->last_rank = rank;
    }
}

static motet_status count_features(measured *m, motet_error *error, mt_simulation *simulation) {
  mt_features features;
  motet_status status = mt_features_make(m->arena, m->program, error, &features);
  if (status != MOTET_OK) return status;
  for (int64_t i = 0; i < m->program->rank_begin[m->program->ranks]; i++)
    if (m->program->instructions[i].kind == MOTET_FWD)
      mt_features_forward(&features, &m->program->instructions[i], m->finish[i]);
  return mt_features_peak(m->arena, &features, m->trace.makespan, error, &simulation->peak_features);
}

/* The engine is run for the structure that it finds: which instructions meet. Its times are replaced. */
static motet_status run_engine(measured *m, const mt_sim_costs *costs, motet_error *error) {
  mt_features features;
  motet_status status = mt_features_make(m->arena, m->program, error, &features);
  if (status == MOTET_OK) status = mt_engine_run(m->arena, costs, true, &features, error, &m->trace);
  if (status != MOTET_OK) return status;
  m->reached = MT_ARENA_NEW(m->arena, double, m->program->rank_begin[m->program->ranks]);
  if (m->reached == NULL) return mt_error_memory(error, sizeof *m->reached, "measured times");
  date_ranks(m);
  date_transfers(m);
  date_meetings(m);
  m->trace.start = m->reached;
  m->trace.finish = m->finish;
  m->trace.measured = true;
  return MOTET_OK;
}

motet_status mt_simulation_measured(mt_arena *arena, const motet_program *program, double *start, double *finish,
                                    motet_error *error, mt_simulation **result, mt_cost_table *costs) {
  measured m = {.arena = arena, .program = program, .start = start, .finish = finish};
  mt_sim_costs sim_costs;
  motet_status status = check_times(&m, error);
  if (status == MOTET_OK) status = make_table(&m, error, costs);
  if (status != MOTET_OK) return status;
  fill_table(&m, costs);
  status = fill_optimizer(&m, error, costs);
  if (status == MOTET_OK) status = mt_sim_costs_make(arena, program, costs, error, &sim_costs);
  if (status != MOTET_OK) return status;
  mt_simulation *simulation = MT_ARENA_NEW(arena, mt_simulation, 1);
  mt_rank_result *ranks = MT_ARENA_NEW(arena, mt_rank_result, program->ranks);
  if (simulation == NULL || ranks == NULL) return mt_error_memory(error, sizeof *ranks, "a measured step");
  simulation->ranks = ranks;
  status = run_engine(&m, &sim_costs, error);
  if (status == MOTET_OK) {
    mt_simulation_summarise(&m.trace, program->ranks, simulation);
    simulation->start = start;
    simulation->finish = finish;
    status = count_features(&m, error, simulation);
  }
  if (status == MOTET_OK) status = mt_attribute_idle(arena, &sim_costs, &m.trace, error, simulation);
  if (status == MOTET_OK) status = mt_critical_path(arena, program, &m.trace, error, simulation);
  mt_trace_release(&m.trace);
  if (status == MOTET_OK) *result = simulation;
  return status;
}
