/** @file A run's steps as JSON, for the page and for the news that a followed page reads. */
#ifndef MT_REPORT_PAGE_HISTORY_H
#define MT_REPORT_PAGE_HISTORY_H

#include "base/text.h"
#include "report/history.h"

/** Which steps and evaluations: those behind these numbers. */
typedef struct mt_page_history_after {
  int64_t step, evaluation; /* 0: all */
} mt_page_history_after;

/** Appends {"planned_steps":n,"step":[..],"loss":[..],..}: a list for each value, null where it is not known. */
void mt_page_history(const mt_history *history, mt_page_history_after after, mt_text *json);

/**
 * The news of a run since its page was written, as a script that a page can load from beside itself, which works
 * without a server too: a call of `motetLive`. docs/report.md describes it.
 */
typedef struct mt_page_news {
  int64_t page;  /* number of the page as it stands in its file now: a page with another one loads itself anew */
  int64_t beat;  /* another one each time, so that the page notices when nobody writes any more */
  bool finished; /* the last planned step is done */
  const char *failure; /* NULL: none */
  const mt_history *history;
  mt_page_history_after after; /* from where on the news tell it: no further than the page does */
} mt_page_news;

void mt_page_news_write(const mt_page_news *news, mt_text *out);

#endif
