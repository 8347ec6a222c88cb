/** @file The training loop: every rank runs it over one job. */
#ifndef MT_TRAIN_LOOP_H
#define MT_TRAIN_LOOP_H

#include "train/board.h"
#include "train/setup.h"

#include "comm/transport.h"

/** What the loop tells of itself, on rank 0 alone. NULL functions are not called. */
typedef struct mt_train_listener {
  void *context;
  void (*opened)(void *context, const mt_job *job); /* everything that the job names was read, and steps begin */
  void (*line)(void *context, const char *text);    /* one line for people, without its end */
  void (*progress)(void *context, int64_t step, int64_t steps, double remaining_seconds);
} mt_train_listener;

typedef struct mt_train_options {
  mt_transport *transport;
  mt_board *board;             /* or NULL */
  const volatile int *stopped; /* not 0: finish the step, save, and return MOTET_ERROR_INTERRUPTED; or NULL */
  mt_train_listener listener;
} mt_train_options;

/**
 * Trains as @p job says, from the newest checkpoint if it asks for that. Called by all ranks with the same job. An
 * error is this rank's own: tell the others with mt_transport_fail(). MOTET_ERROR_INTERRUPTED: stopped on request,
 * state saved, on all ranks.
 */
motet_status mt_train_run(const mt_job *job, const mt_train_options *options, motet_error *error);

#endif
