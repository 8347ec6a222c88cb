/** @file A plan's or a simulation's summary for people. */
#ifndef MT_REPORT_PLAN_TEXT_H
#define MT_REPORT_PLAN_TEXT_H

#include "base/text.h"
#include "report/document.h"

typedef struct mt_plan_text_options {
  int width;      /**< columns; 0: 80 */
  bool unicode;   /**< bars of block characters; else '#' */
  int rank_limit; /**< most ranks in the table, the first and the last ones; 0: 16 */
} mt_plan_text_options;

/** Makespan, bound and gap; idle time by cause; a table of ranks; the head of the critical path where the
 * simulation has one. */
void mt_report_plan_text(const mt_report_plan *plan, const mt_plan_text_options *options, mt_text *out);

#endif
