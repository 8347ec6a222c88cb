/** @file
 * What an instruction costs: the one place from which the event simulation and the (max,+) recurrence take
 * their durations, so that the two can agree to the last digit although they share nothing else.
 */
#ifndef MT_SIM_COSTS_H
#define MT_SIM_COSTS_H

#include "base/arena.h"
#include "base/error.h"
#include "cost/table.h"
#include "motet/program.h"
#include "program/columns.h"

typedef struct mt_sim_costs {
  const motet_program *program;
  const mt_cost_table *table;
  double *optimizer; /* [ranks] seconds of OPTIM */
  int32_t *columns;  /* [microbatches] the first column of each */
} mt_sim_costs;

/** Sums each rank's optimizer seconds; the rest is read from @p table when asked. */
motet_status mt_sim_costs_make(mt_arena *arena, const motet_program *program, const mt_cost_table *table,
                               motet_error *error, mt_sim_costs *costs);

/** mt_cost_kind of an instruction kind, -1 for kinds that cost nothing of their own or cost otherwise. */
extern const int8_t mt_sim_cost_kind[MOTET_INSTRUCTION_KINDS];

/** Seconds of compute, LOAD, OFFLOAD, FETCH or OPTIM on @p rank; 0 for all other kinds. The cost table is indexed
 * by columns (program/columns.h): a share of a token range has costs of its own. */
static inline double mt_sim_seconds(const mt_sim_costs *costs, int32_t rank, const motet_instruction *instruction) {
  int kind = mt_sim_cost_kind[instruction->kind];
  if (kind < 0) return instruction->kind == MOTET_OPTIM ? costs->optimizer[rank] : 0.0;
  int32_t column = instruction->range > 0 ? mt_column_of(costs->program, rank, instruction)
                                          : costs->columns[instruction->microbatch];
  return column < 0 ? 0.0 : mt_cost_seconds(costs->table, (mt_cost_kind)kind, instruction->stage, column);
}

/** Whether instructions of this kind keep the rank busy; time in all others is idle time. */
static inline bool mt_sim_is_compute(int kind) { return kind <= MOTET_RECOMPUTE || kind == MOTET_OPTIM; }

static inline bool mt_sim_is_collective(int kind) {
  return (kind >= MOTET_REDUCE && kind <= MOTET_ALL_REDUCE) || kind == MOTET_STEP_END;
}

static inline bool mt_sim_is_backward(int kind) { return kind >= MOTET_BWD && kind <= MOTET_BWD_W; }

static inline double mt_sim_transfer_seconds(const mt_links *links, int32_t source, int32_t destination,
                                             int64_t bytes) {
  return mt_link_seconds(mt_links_same_node(links, source, destination) ? links->local : links->remote, bytes);
}

/** Seconds of a collective of @p kind over a group, from its last member's arrival (docs/simulation.md). */
double mt_sim_collective_seconds(const mt_links *links, const motet_program *program, int32_t group, int kind,
                                 int64_t bytes);

/** Bytes of an instruction's buffer, 0 without one. */
static inline int64_t mt_sim_buffer_bytes(const motet_program *program, const motet_instruction *instruction) {
  return instruction->buffer >= 0 ? program->buffers[instruction->buffer].bytes : 0;
}

#endif
