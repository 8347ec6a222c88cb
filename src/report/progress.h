/** @file A training run as it stands, in words and plots for the terminal. */
#ifndef MT_REPORT_PROGRESS_H
#define MT_REPORT_PROGRESS_H

#include "base/text.h"
#include "report/history.h"

typedef struct mt_progress {
  const char *name; /* of the run */
  const mt_history *history;
  const char *failure;  /* what went wrong, from outside: any bytes; NULL: nothing */
  const char *timeline; /* the newest one, drawn by mt_report_timeline(); NULL: none */
  int64_t timeline_step;
  double quiet_seconds; /* since the last line was written; NAN: not known */
  int width;            /* columns */
  int height;           /* lines to fill; 0: as many as read well */
  bool unicode;
} mt_progress;

/** Draws @p progress into @p out. A run without steps says that it has not started. */
void mt_progress_draw(const mt_progress *progress, mt_text *out);

/** "3 min 12 s", "2 h 5 min", "850 ms". */
void mt_progress_duration(mt_text *text, double seconds);

#endif
