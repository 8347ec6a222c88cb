/** @file How plans and simulations are shown: one JSON document, or a summary with a timeline; files on request. */
#ifndef MT_CLI_PRESENT_H
#define MT_CLI_PRESENT_H

#include "cli/cli.h"
#include "report/document.h"
#include "report/page.h"

typedef struct mt_presentation {
  mt_report_plan report;
  const char *program_path;   /* write the program there, or NULL */
  const char *csv_path;       /* write the compute order as PyTorch pipelining CSV there, or NULL */
  const char *trace_path;     /* write a trace there, or NULL */
  const char *trace_format;   /* as mt_trace_files_write() takes it */
  const char *page_path;      /* write the report's page there, or NULL */
  const mt_cost_table *costs; /* what was simulated with, for the page and the program's file; NULL: not known */
  bool json;
  bool summary;              /* without the timeline */
  const mt_page_fact *facts; /* for the page: what the plan is about */
  int32_t fact_count;
  json_t *extra; /* members to add to the JSON document, or NULL; stays the caller's */
} mt_presentation;

/** Writes the files, then prints. Returns the exit code. */
int mt_present(const mt_presentation *presentation);

#endif
