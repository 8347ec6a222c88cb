/** @file
 * What planning a job needs, opened and checked: the model's config, tokenizer and data sets, layer costs, planner.
 * The same on every rank.
 */
#ifndef MT_TRAIN_SETUP_H
#define MT_TRAIN_SETUP_H

#include "comm/transport.h"
#include "data/dataset.h"
#include "nn/network.h"
#include "train/grouping.h"
#include "train/job.h"
#include "train/planner.h"

typedef struct mt_setup {
  const mt_job *job;
  mt_internvl config;
  const char *config_path, *tokenizer_path; /* files, to be copied into checkpoints */
  mt_tokenizer *tokenizer;
  mt_dataset *train, *eval; /* eval: NULL if the job has none */
  mt_planner *planner;
  int32_t ranks, rows; /* P * D; microbatches of a step over all replicas */
  mt_element element;  /* of activations and their gradients */
  mt_arena *arena;
} mt_setup;

/** @p job must outlive the set-up. Release with mt_setup_close(), also after a failure. */
motet_status mt_setup_open(const mt_job *job, motet_error *error, mt_setup *setup);
void mt_setup_close(mt_setup *setup);

/** Derives every phase's schedule, so that what is wrong with a later one shows before the first step. */
motet_status mt_setup_check_phases(const mt_job *job, motet_error *error);

/** Threads that a rank computes with: the job's, or those of the transport where it leaves them open. */
int32_t mt_setup_threads(const mt_setup *setup, const mt_transport *transport);

/** Makes the network compute as the job says: element and threads; those of the transport where it leaves them
 * open. */
motet_status mt_setup_network(const mt_setup *setup, const mt_transport *transport, mt_network *network,
                              motet_error *error);

/** The rows of step @p step (from 0) as planning sees them; everything in @p arena. */
motet_status mt_setup_rows(const mt_setup *setup, int64_t step, mt_arena *arena, motet_error *error,
                           const mt_row **rows, mt_planner_microbatch **microbatches);

/** Who groups the samples of the job's microbatches over context ranks; NULL where there are none. */
motet_status mt_setup_grouping(const mt_setup *setup, motet_error *error, mt_grouping **grouping);

/** As mt_setup_shapes(), of rows that were submitted to @p grouping (may be NULL): their samples are ordered by
 * group, and where image features stand is looked up. */
motet_status mt_setup_grouped(const mt_setup *setup, const mt_dataset *dataset, mt_grouping *grouping,
                              mt_arena *arena, motet_error *error, const mt_row **rows,
                              mt_planner_microbatch **microbatches);

/** The shapes of given rows, and what it takes to decode their pictures. */
motet_status mt_setup_shapes(const mt_setup *setup, const mt_dataset *dataset, const mt_row *rows, int32_t count,
                             mt_arena *arena, motet_error *error, mt_planner_microbatch **microbatches);

/** The plan of a job's first step: what `motet plan JOB` shows. Free with mt_plan_free(). */
motet_status mt_setup_plan(const mt_setup *setup, mt_arena *arena, motet_error *error, mt_plan *plan);

#endif
