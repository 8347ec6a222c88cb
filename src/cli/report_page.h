/** @file Writing the page of `motet report`: a plan's, a run's, or two of them side by side. */
#ifndef MT_CLI_REPORT_PAGE_H
#define MT_CLI_REPORT_PAGE_H

#include "report/page.h"

typedef struct mt_report_request {
  const char *path, *against; /* programs, orders, runs; against: or NULL */
  const char *unit, *format, *placement, *title;
  int64_t step; /* of a run; 0: the newest that has a timeline */
  double alpha, beta;
  const char *output;
  bool running;              /* path is a run that goes on: it need not have a timeline yet, or a directory */
  const mt_history *history; /* of path, where it is a run and the caller follows it; NULL: it is read */
  const mt_page_live *live;  /* of the page, or NULL */
} mt_report_request;

motet_status mt_report_page_write(const mt_report_request *request, motet_error *error);

/** "run" of "/there/run/": what a path is called in titles. NULL when memory is out. */
const char *mt_report_name(mt_arena *arena, const char *path);

#endif
