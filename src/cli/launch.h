/** @file Starting a job's ranks, and the frame in which one rank runs. */
#ifndef MT_CLI_LAUNCH_H
#define MT_CLI_LAUNCH_H

#include "comm/transport.h"
#include "train/board.h"
#include "train/job.h"

/** One rank's work. Returns what became of it; @p error is reported by the frame. */
typedef motet_status mt_rank_body(const mt_job *job, mt_transport *transport, mt_board *board,
                                  const volatile int *stopped, void *context, motet_error *error);

typedef struct mt_launch_options {
  mt_rank_body *body;
  void *context; /* the body's */
  bool saves;    /* the body heeds `stopped` and saves its work; otherwise Ctrl-C and SIGTERM end it at once */
  bool json;     /* errors are JSON documents on standard output, where the body prints one; what else is said goes
                    to standard error */
} mt_launch_options;

/**
 * Runs the body on all ranks of @p job: on this process alone if the job has one rank, as one of them if a launcher
 * started it, and otherwise by starting the ranks with the launcher of the MPI library, each of which comes here
 * again with the same @p arguments (words behind the program's name, NULL at the end). Returns the exit code.
 */
int mt_launch(const mt_job *job, char *const *arguments, const mt_launch_options *options);

#endif
