/** @file The run's records: metrics.jsonl, a line a step, and the files under timeline/. Written by rank 0. */
#ifndef MT_TRAIN_METRICS_H
#define MT_TRAIN_METRICS_H

#include "order/plan.h"
#include "train/measure.h"

typedef struct mt_metrics mt_metrics;

typedef struct mt_metrics_step {
  int64_t step; /* from 1 */
  double loss, learning_rate, step_seconds;
  int64_t tokens;
  uint64_t weights_digest; /* behind the step */
  double mfu;              /* NAN: not known */
  double planning_seconds; /* of the step, ahead of it */
  double planning_wait;    /* seconds that the step began later for it */
  double group_wait;       /* and for the context groups; NAN: there are none */
  const mt_step_measure *measure;
  const mt_plan *plan;
} mt_metrics_step;

/** Opens the records under @p output_dir, which is made if it is missing. Lines of steps beyond @p last_step (from
 * a run that went on beyond the checkpoint that is resumed) are dropped. */
motet_status mt_metrics_open(const char *output_dir, int64_t last_step, motet_error *error, mt_metrics **metrics);
/** From here on the records go to a new event file under tensorboard/ too; @p last_step as above. */
motet_status mt_metrics_tensorboard(mt_metrics *metrics, int64_t last_step, motet_error *error);
void mt_metrics_close(mt_metrics *metrics);

/** Appends the step's line to metrics.jsonl and to timeline/steps.jsonl. */
motet_status mt_metrics_add(mt_metrics *metrics, const mt_metrics_step *step, motet_error *error);

/** Appends {"step", "eval_loss"} to evaluation.jsonl. */
motet_status mt_metrics_evaluation(mt_metrics *metrics, int64_t step, double loss, motet_error *error);

/** Writes timeline/step-N.program.json, .times.json (measured), .simulated.json (the plan's), .flops.json and
 * .trace.json. */
motet_status mt_metrics_timeline(mt_metrics *metrics, int64_t step, const mt_plan *plan, const double *start,
                                 const double *finish, motet_error *error);

#endif
