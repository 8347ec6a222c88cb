/** @file Idle time by cause, and the critical path: docs/simulation.md says how each is decided. */
#ifndef MT_SIM_ATTRIBUTION_H
#define MT_SIM_ATTRIBUTION_H

#include "sim/engine.h"
#include "sim/simulate.h"

/** Makespan, each rank's busy and idle seconds, idle share and the two bubbles, from the ranks' traces. */
void mt_simulation_summarise(const mt_trace *trace, int32_t ranks, mt_simulation *simulation);

/** Fills `idle_by_cause` and `idle_cause`; needs a kept trace. */
motet_status mt_attribute_idle(mt_arena *arena, const mt_sim_costs *costs, const mt_trace *trace,
                               motet_error *error, mt_simulation *simulation);

/** Fills `critical` and `critical_count`; needs a kept trace. */
motet_status mt_critical_path(mt_arena *arena, const motet_program *program, const mt_trace *trace,
                              motet_error *error, mt_simulation *simulation);

#endif
