/** @file
 * Simulation of a program on unit costs: whoever made it, it is proven first. See docs/simulation.md for the model.
 * The handle owns all it hands out, and refers to the program, which must live as long.
 */
#ifndef MOTET_SIMULATE_H
#define MOTET_SIMULATE_H

#include "motet/plan.h"
#include "motet/program.h"
#include "motet/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** What is charged. Zero-filled fields take the defaults in brackets; the text stays the caller's. */
typedef struct motet_simulate_options {
  const char *unit;     /**< "f=1, x=1, w=1": times of everything a rank holds; or per module of the program */
  double alpha_seconds; /**< latency of a transfer */
  double beta_bytes_per_second; /**< bandwidth [unlimited] */
} motet_simulate_options;

/** What came of it. Arrays belong to the simulation. */
typedef struct motet_simulation_result {
  double makespan;   /**< seconds */
  double idle_share; /**< idle / (ranks * makespan) */
  double bubble_whole, bubble_stage;
  motet_idle idle;
  int32_t peak_features;
  const motet_rank_memory *memory; /**< [ranks] */
  const double *start, *finish;    /**< seconds, per instruction of the program's flat array */
} motet_simulation_result;

typedef struct motet_simulation motet_simulation;

/** Proves and simulates. MOTET_ERROR_REFUSED for a program that breaks a rule of the verifier. @p simulation is
 * NULL on failure; release it with motet_simulation_destroy(). */
motet_status motet_simulation_create(const motet_program *program, const motet_simulate_options *options,
                                     motet_error *error, motet_simulation **simulation);

void motet_simulation_destroy(motet_simulation *simulation);

const motet_simulation_result *motet_simulation_get(const motet_simulation *simulation);

#ifdef __cplusplus
}
#endif

#endif
