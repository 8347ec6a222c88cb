/** @file Simulation of a program: see docs/simulation.md. */
#ifndef MT_SIM_SIMULATE_H
#define MT_SIM_SIMULATE_H

#include "base/arena.h"
#include "cost/table.h"
#include "motet/program.h"

/** Causes of idle time: the closed set of 08-commands. */
typedef enum mt_idle_cause {
  MT_IDLE_WARM_UP,         /* before a rank's first backward */
  MT_IDLE_COOL_DOWN,       /* after its last body forward */
  MT_IDLE_STAGE_IMBALANCE, /* between them, by what came late */
  MT_IDLE_MICROBATCH_VARIANCE,
  MT_IDLE_COMMUNICATION,
  MT_IDLE_DATA_PARALLEL_WAIT,
  MT_IDLE_INPUT_STALL,
  MT_IDLE_CAUSES
} mt_idle_cause;

const char *mt_idle_cause_name(mt_idle_cause cause); /* "warm_up", ... */

typedef struct mt_simulate_options {
  bool timeline;  /* keep start and finish of every instruction */
  bool attribute; /* idle by cause, critical path */
} mt_simulate_options;

typedef struct mt_rank_result {
  double busy; /* seconds of compute of any kind */
  double idle; /* makespan - busy - exposed communication counted as idle too: busy + idle = makespan */
} mt_rank_result;

/** Arrays live in the arena given to mt_simulate(). */
typedef struct mt_simulation {
  double makespan;
  int64_t events; /* instructions executed */
  mt_rank_result *ranks;
  double idle_by_cause[MT_IDLE_CAUSES]; /* rank-seconds; sums to the ranks' idle */
  double idle_share;                    /* sum of idle / (ranks * makespan) */
  int32_t peak_features;                /* most features alive at once in one replica: from the end of a replicated
                                           stage's forward to the end of its consumer's, wherever they lie */
  double bubble_whole, bubble_stage;    /* 08-commands */
  double *start, *finish; /* with timeline: [instructions]; a WAIT's start is when the rank reached it */
  uint8_t *idle_cause;    /* with attribute: [instructions] main cause of the idle time in an instruction;
                             MT_IDLE_CAUSES where there is none */
  int64_t critical_count; /* with attribute: the critical path, first to last */
  int64_t *critical;      /* instruction indices in the program's flat array */
} mt_simulation;

/** Discrete-event simulation with shared links. The cost table is indexed by the program's stages and microbatches,
 * which number over all replicas. The program need not be verified, but one that hangs is
 * MOTET_ERROR_FAILED with the ranks that stand still. */
motet_status mt_simulate(mt_arena *arena, const motet_program *program, const mt_cost_table *costs,
                         const mt_simulate_options *options, motet_error *error, mt_simulation **simulation);

/** The same program as a longest path in (max,+) form, written apart from the event simulation: no shared
 * links (MOTET_ERROR_UNSUPPORTED with shared_nic over several nodes). @p finish: [instructions] of the flat array,
 * may be NULL. */
motet_status mt_simulate_max_plus(mt_arena *arena, const motet_program *program, const mt_cost_table *costs,
                                  motet_error *error, double *makespan, double *finish);

#endif
