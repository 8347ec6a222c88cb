/** @file The state of a training run on one rank; internal to the loop's files. */
#ifndef MT_TRAIN_TRAINER_H
#define MT_TRAIN_TRAINER_H

#include "train/checkpoint.h"
#include "train/feed.h"
#include "train/loop.h"
#include "train/metrics.h"

#include <pthread.h>

/** A step's data and program, planned while the step before it still has to run. */
typedef struct mt_planned_step {
  mt_arena *arena;
  int64_t step; /* from 0; -1: empty */
  const mt_row *rows, *next_rows;
  double seconds;    /* that planning took */
  double group_wait; /* before that: for the context groups */
  double waited;     /* that the step before it was done and the plan was not */
  mt_planner_microbatch *microbatches;
  mt_plan plan;
  motet_carried *carried; /* what it leaves to the next step */
  int32_t carried_count;
  struct mt_trainer *trainer;
  pthread_t thread; /* that plans, if `threaded`; status and error are its */
  bool threaded;
  motet_status status;
  motet_error error;
} mt_planned_step;

/** A run's part with one plan for all its steps: a phase of the job. */
typedef struct mt_trainer_part {
  int64_t begin, end;     /* steps of the phase, from 0; learning rates rise and fall over them */
  const char *checkpoint; /* to go on from, or NULL: the job's own weights */
} mt_trainer_part;

typedef struct mt_trainer {
  const mt_job *job;
  const mt_train_options *options;
  mt_transport *transport;
  mt_setup setup;
  mt_network *network;
  mt_interpreter *interpreter;
  mt_prefetch_work decoded; /* by the feed, up to the last step's record */
  mt_feed *feed, *eval_feed;
  mt_feature_cache *cache;               /* or NULL */
  mt_grouping *grouping, *eval_grouping; /* of context ranks, or NULL */
  int64_t grouped_up_to;                 /* steps that were given to `grouping` */
  mt_metrics *metrics;                   /* rank 0 */
  mt_checkpoint_writer writer;
  mt_collective_scratch scratch;
  mt_arena *arena, *step_arena;
  mt_planned_step planned[2];
  double clock_offset;
  double *sums; /* [rows + 1] losses, and whether somebody wants to stop */
  int64_t eval_key;
  mt_trainer_part part;
  int64_t first_step;                       /* of this run, from 0 */
  int64_t moments_from[MT_NETWORK_MODULES]; /* steps done when a module's moments began; -1: it does not train */
  double seconds_per_step;                  /* smoothed, for the remaining time */
} mt_trainer;

/** Opens everything, loads weights or the checkpoint. @p job is without phases. Release with mt_trainer_close(),
 * also on failure. */
motet_status mt_trainer_open(const mt_job *job, const mt_trainer_part *part, const mt_train_options *options,
                             motet_error *error, mt_trainer *trainer);
void mt_trainer_close(mt_trainer *trainer);

/** Says a line on rank 0. */
void mt_trainer_say(const mt_trainer *trainer, const char *format, ...) MT_PRINTF(2, 3);
void mt_train_say(const mt_train_options *options, const char *format, ...) MT_PRINTF(2, 3);

/** All ranks must come with the same @p value; @p what says of what it is the digest. */
motet_status mt_trainer_agree(mt_trainer *trainer, uint64_t value, const char *what, motet_error *error);

/** The plan of step @p step (from 0), made now or ahead; its pictures are being decoded. */
motet_status mt_trainer_plan(mt_trainer *trainer, int64_t step, motet_error *error, mt_planned_step **planned);

/** Has a thread plan step @p step and then have its pictures decoded, for mt_trainer_plan() to take. The step
 * before it must have been planned. Nothing else may be planned, nor a cache be filled, before mt_trainer_await().
 */
motet_status mt_trainer_plan_ahead(mt_trainer *trainer, int64_t step, motet_error *error);

/** Waits for the thread, if there is one. */
void mt_trainer_await(mt_planned_step *planned);

/** The mean loss per target token over the evaluation set. */
motet_status mt_trainer_evaluate(mt_trainer *trainer, motet_error *error, double *loss);

/** Saves a checkpoint after @p step steps. */
motet_status mt_trainer_save(mt_trainer *trainer, int64_t step, motet_error *error);

#endif
