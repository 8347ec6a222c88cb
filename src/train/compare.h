/** @file A run's measured steps beside their simulation. */
#ifndef MT_TRAIN_COMPARE_H
#define MT_TRAIN_COMPARE_H

#include "base/arena.h"
#include "motet/program.h"
#include "train/costs.h"

/** Seconds, each the median over the steps; both 0 where the class does not occur. */
typedef struct mt_comparison_pair {
  double measured, simulated;
} mt_comparison_pair;

typedef struct mt_comparison {
  int32_t steps;                                     /* that were looked at: all but the first few, which warm up */
  mt_comparison_pair makespan;                       /* of a step */
  double difference;                                 /* measured / simulated - 1 */
  mt_comparison_pair kinds[MOTET_INSTRUCTION_KINDS]; /* over all ranks */
  int32_t rank_count;
  mt_comparison_pair *ranks; /* busy time; in the arena */
} mt_comparison;

/** Reads timeline/steps.jsonl of the run at @p path. */
motet_status mt_comparison_read(const char *path, mt_arena *arena, motet_error *error, mt_comparison *comparison);

/** Scales the times of forward, of backward and of the optimizer by what the run measured of each over what was
 * simulated: what steps pay beyond layers measured alone. @p costs: those that the run was planned with. */
void mt_comparison_calibrate(const mt_comparison *comparison, mt_layer_costs *costs);

#endif
