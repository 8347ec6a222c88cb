/** @file
 * What a step measured: each rank's busy time and time by kind of instruction, brought together on rank 0 and set
 * beside the simulation's. Times of machines are aligned by their offsets to rank 0's clock.
 */
#ifndef MT_TRAIN_MEASURE_H
#define MT_TRAIN_MEASURE_H

#include "comm/collective.h"
#include "data/prefetch.h"
#include "order/plan.h"
#include "train/interpreter.h"

/** One rank's part of a step. */
typedef struct mt_rank_measure {
  double first, last; /* begin of the first and end of the last instruction, rank 0's clock */
  double busy;        /* compute of any kind */
  double gradient_norm;
  double kinds[MOTET_INSTRUCTION_KINDS];    /* seconds */
  int64_t activation_bytes, resident_bytes; /* peaks: counted, and the process's */
  mt_prefetch_work decoded;                 /* meanwhile, for this step or a coming one */
} mt_rank_measure;

/** The whole step, on rank 0. */
typedef struct mt_step_measure {
  double makespan, busy, gradient_norm;
  double kinds[MOTET_INSTRUCTION_KINDS];    /* over all ranks */
  double input_stall;                       /* seconds of LOAD on the rank that has most */
  mt_prefetch_work decoded;                 /* over all ranks */
  int64_t activation_bytes, resident_bytes; /* of the rank that has most */
  const mt_rank_measure *ranks;
} mt_step_measure;

/** Seconds to add to this rank's clock to get rank 0's. Called by all ranks. */
motet_status mt_clock_offset(mt_transport *transport, motet_error *error, double *offset);

/** Called by all ranks; @p decoded is what this rank decoded since the step before. @p measure is filled on rank 0
 * alone, from @p arena. */
motet_status mt_measure_gather(mt_transport *transport, const motet_program *program, const mt_step_result *result,
                               const mt_prefetch_work *decoded, double offset, mt_arena *arena, motet_error *error,
                               mt_step_measure *measure);

/** The times of all instructions in the program's flat order, from the step's begin. Called by all ranks; @p start
 * and @p finish are filled on rank 0 alone, from @p arena. */
motet_status mt_measure_timeline(mt_transport *transport, const motet_program *program,
                                 const mt_step_result *result, double offset, mt_arena *arena, motet_error *error,
                                 double **start, double **finish);

/** Whether the kind counts as busy time. */
bool mt_measure_is_compute(int kind);

#endif
