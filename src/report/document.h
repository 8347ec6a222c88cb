/** @file
 * A plan's results as people and scripts read them: the `--json` document of the command contract and its parts.
 * Numbers are printed with 17 digits, enough to read back the same double.
 */
#ifndef MT_REPORT_DOCUMENT_H
#define MT_REPORT_DOCUMENT_H

#include "cost/flops.h"
#include "sim/simulate.h"

#include <jansson.h>
#include <math.h>

/** What a report speaks of. All parts stay the caller's. */
typedef struct mt_report_plan {
  const motet_program *program;
  const mt_simulation *simulation;
  const motet_verification *verification; /**< of the accepted program; NULL where it was not verified */
  const char *schedule;                   /**< canonical text; NULL: the program's */
  const mt_flops *flops;                  /**< of the step; NULL: not known */
  double bound;                           /**< proven lower bound on the makespan, NAN where there is none */
} mt_report_plan;

/** The document of `motet plan` and `motet simulate` (docs/commands.md): a new reference, NULL when memory is
 * out or a number is not finite. Members whose source is absent (`bound`, `peak_activations`, `peak_bytes`,
 * `memory`) are null. */
json_t *mt_report_json_plan(const mt_report_plan *plan);

/** {"warm_up": .., ...}: rank-seconds by cause. */
json_t *mt_report_json_idle(const mt_simulation *simulation);

/** [{"rank": r, "peak_bytes": n, "at": "FWD of stage 2, microbatch 1"}]: where each rank's memory peaks. */
json_t *mt_report_json_memory(const motet_program *program, const motet_verification *verification);

/** {"ranks": [[{"instruction": i, "kind": "FWD", "stage": s, "microbatch": m, "start": .., "finish": ..}]]}: what
 * other tools plot from; needs a timeline. */
json_t *mt_report_json_timeline(const motet_program *program, const double *start, const double *finish);

#endif
