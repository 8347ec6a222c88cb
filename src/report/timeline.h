/** @file
 * A timeline as a picture for the terminal: one line a rank, time to the right. Works on simulated and on measured
 * times alike.
 */
#ifndef MT_REPORT_TIMELINE_H
#define MT_REPORT_TIMELINE_H

#include "base/text.h"
#include "sim/simulate.h"

typedef struct mt_timeline_options {
  int width;      /**< columns of the whole picture; 0: 80; at least 40 */
  bool color;     /**< 256-colour escapes, a palette that colour-blind readers can tell apart; else letters */
  bool unicode;   /**< line-drawing characters; else ASCII alone */
  bool digits;    /**< microbatch numbers in the blocks that have room for them */
  int rank_limit; /**< most ranks drawn, the first and the last ones; 0: 32 */
} mt_timeline_options;

/**
 * Draws the timeline into @p out: a time axis, a line a rank with its busy share, a legend of what occurs.
 * @p start, @p finish: [instructions] seconds; time between two instructions is idle. @p idle_cause:
 * [instructions] as in mt_simulation, or NULL: idle time without its cause.
 */
motet_status mt_report_timeline(const motet_program *program, const double *start, const double *finish,
                                const uint8_t *idle_cause, const mt_timeline_options *options, motet_error *error,
                                mt_text *out);

#endif
