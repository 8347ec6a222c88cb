/** @file
 * A board on which every rank of this machine notes what it is at, in shared memory: when a rank is killed and can
 * say nothing any more, whoever started the ranks reads there where it was.
 */
#ifndef MT_TRAIN_BOARD_H
#define MT_TRAIN_BOARD_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum mt_board_state {
  MT_BOARD_ABSENT, /* has not begun */
  MT_BOARD_STARTED,
  MT_BOARD_RUNNING, /* in instruction `instruction` */
  MT_BOARD_SAVING,
  MT_BOARD_FINISHED, /* came to its end, good or bad, on its own */
  MT_BOARD_STOPPED   /* was asked to end by a signal, or ended for the sake of a rank that had ended before */
} mt_board_state;

/** One rank's place. */
typedef struct mt_board_place {
  int32_t state; /* mt_board_state */
  int32_t process;
  int64_t step, instruction;
  int32_t kind; /* motet_instruction_kind, -1 between instructions */
  int32_t microbatch;
  int32_t missed; /* the rank that was gone when this one ended for its sake, and 1; 0: none, or several were */
  char region[48];
} mt_board_place;

typedef struct mt_board mt_board;

/** Makes the file of a board for @p ranks at @p path, or opens what is there; NULL: a board of this process alone.
 */
motet_status mt_board_open(const char *path, int32_t ranks, motet_error *error, mt_board **board);
void mt_board_close(mt_board *board);

mt_board_place *mt_board_at(mt_board *board, int32_t rank);

/** Notes that the job's end (a failure, an interruption) has been reported, and the exit code that belongs to it;
 * the first call counts. */
void mt_board_note_report(mt_board *board, int code);
/** That code, or -1 where nothing has been reported. */
int mt_board_reported(const mt_board *board);

/**
 * For a rank that is about to abort, also from a signal's handler: where another rank of this machine is gone, it
 * is noted that this one ends for its sake. The kernel takes a process's memory before its files, which may take a
 * while, and a message library that misses the memory aborts at once; then the launcher ends the others.
 */
void mt_board_note_abort(mt_board *board, int32_t rank);

/** The rank that another one missed, or -1. */
int32_t mt_board_missed(mt_board *board);

/** The rank that ended without saying so, or -1: the one that was killed. */
int32_t mt_board_victim(mt_board *board);

/** "rank 1 was at instruction 17 of step 3 (FWD of vision, microbatch 4)". */
void mt_board_describe(mt_board *board, int32_t rank, char *text, size_t size);

#endif
