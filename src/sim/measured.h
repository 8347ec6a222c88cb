/** @file
 * Measured times seen as a simulation: the same results, idle time by cause and critical path among them, from
 * times that a run has taken instead of from costs.
 */
#ifndef MT_SIM_MEASURED_H
#define MT_SIM_MEASURED_H

#include "sim/simulate.h"

/**
 * @param start, finish [instructions] seconds, from the beginning of the step; not before 0, no finish before its
 *   start. The arrays are kept.
 * @param costs filled with what the compute took, by stage and microbatch, for simulating the program again; its
 *   links cost nothing
 * Idle time in front of an instruction that computes nothing counts with that instruction; the rest of it, between
 * one compute and the next, has no cause: `idle_by_cause` does not add up to the idle time by that much.
 */
motet_status mt_simulation_measured(mt_arena *arena, const motet_program *program, double *start, double *finish,
                                    motet_error *error, mt_simulation **simulation, mt_cost_table *costs);

#endif
