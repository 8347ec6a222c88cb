/** @file A program from a file with times for it: the file's own, as `motet plan` leaves them, or those of
 * `--unit`. */
#ifndef MT_CLI_TIMED_PROGRAM_H
#define MT_CLI_TIMED_PROGRAM_H

#include "base/text.h"
#include "report/document.h"

#define MT_STANDARD_UNIT "f=1, x=1, w=1"

typedef struct mt_times_options {
  const char *unit;     /* as --unit takes it; NULL: the file's own times */
  const char *standard; /* unit times of a file that has none; NULL: it is refused then */
  const char *format, *placement;
  double alpha, beta; /* of the links, beside unit; 0: free, unlimited */
} mt_times_options;

typedef struct mt_timed_program {
  motet_program *program;
  motet_verification verification;
  mt_cost_table costs;
  mt_simulation *simulation; /* with timeline and causes */
  const mt_flops *flops;     /* of a file with its own times, or NULL */
  double bound;              /* likewise, or NAN */
  bool standard;             /* drawn with the standard times */
} mt_timed_program;

/** Reads, proves and simulates. Tables lie in @p arena or with the program; release the rest with
 * mt_timed_program_free(), also after an error. Errors name the file. */
motet_status mt_timed_program_read(mt_arena *arena, const char *path, const mt_times_options *options,
                                   motet_error *error, mt_timed_program *timed);

void mt_timed_program_free(mt_timed_program *timed);

/** The document of `motet show`: a report's, with the number of the measured @p step, 0 for a plan. */
motet_status mt_timed_program_document(const mt_timed_program *timed, int64_t step, motet_error *error,
                                       mt_text *text);

/** What a report says about it. */
mt_report_plan mt_timed_program_report(const mt_timed_program *timed);

#endif
