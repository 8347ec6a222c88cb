/** @file
 * A report as one HTML page that needs nothing else: ranks by time to look into, idle time by its cause, memory,
 * critical path, tables, what would change the step. docs/report.md describes the page and the data inside it.
 */
#ifndef MT_REPORT_PAGE_H
#define MT_REPORT_PAGE_H

#include "base/text.h"
#include "cost/flops.h"
#include "report/history.h"
#include "report/what_if.h"
#include "sim/memory.h"
#include "sim/simulate.h"

/** One set of times over a program. */
typedef struct mt_page_timeline {
  const char *title;                /**< "simulated", "measured" */
  const mt_simulation *simulation;  /**< with timeline and attribution */
  const mt_memory_timeline *memory; /**< NULL: none */
  bool memory_counts; /**< memory counts held activations in MT_PAGE_ACTIVATION units, for want of sizes */
} mt_page_timeline;

enum { MT_PAGE_ACTIVATION = 1000000, MT_PAGE_TIMELINES = 2, MT_PAGE_SIDES = 2 };

/** One program with its times; a run that has no timeline yet has a history alone. */
typedef struct mt_page_side {
  const char *title;
  const motet_program *program;           /**< NULL: none yet; nothing but title and history counts then */
  const motet_verification *verification; /**< NULL: not verified */
  double bound;                           /**< no order takes less; NAN: not known */
  int32_t timeline_count;
  mt_page_timeline timelines[MT_PAGE_TIMELINES];
  const mt_what_if *what_if; /**< of the first timeline */
  int32_t what_if_count;
  const mt_flops *flops;     /**< of the step; NULL: not known */
  const mt_history *history; /**< of a training run, all its steps; NULL: none */
} mt_page_side;

/** A row of the page's first table: what a run was and did. */
typedef struct mt_page_fact {
  const char *name, *value;
} mt_page_fact;

/** Where a page that is written anew while a run goes on finds what has happened since (report/page_history.h). */
typedef struct mt_page_live {
  const char *file; /**< beside the page; its address relative to the page's */
  int64_t page;     /**< this page's number */
  double seconds;   /**< between two looks */
} mt_page_live;

typedef struct mt_page {
  const char *title;
  int32_t side_count; /**< 1, or 2 to compare */
  mt_page_side sides[MT_PAGE_SIDES];
  const mt_page_fact *facts;
  int32_t fact_count;
  const char *message;      /**< what went wrong, in front of everything; NULL: nothing */
  const mt_page_live *live; /**< NULL: the page needs nothing else and stays as it is */
} mt_page;

/** Appends the page to @p out. Names from outside may hold any bytes. */
motet_status mt_report_page(const mt_page *page, motet_error *error, mt_text *out);

/** Appends the page's data alone: script elements of JSON and of columns. */
motet_status mt_report_page_data(const mt_page *page, motet_error *error, mt_text *out);

/**
 * Memory for a page: bytes where the program knows sizes, else held activations, a microbatch on a rank's whole
 * share counting MT_PAGE_ACTIVATION; `memory_counts` says which.
 */
motet_status mt_page_memory(mt_arena *arena, const motet_program *program, motet_error *error,
                            mt_page_timeline *timeline);

#endif
