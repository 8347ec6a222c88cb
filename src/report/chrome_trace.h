/** @file
 * Timelines as Chrome trace event JSON, which Perfetto (ui.perfetto.dev) and the browser's tracing page open. Works
 * on simulated and on measured times alike.
 */
#ifndef MT_REPORT_CHROME_TRACE_H
#define MT_REPORT_CHROME_TRACE_H

#include "base/text.h"
#include "sim/memory.h"
#include "sim/simulate.h"

typedef struct mt_chrome_trace {
  const motet_program *program;
  const double *start, *finish;     /**< [instructions] seconds */
  const uint8_t *idle_cause;        /**< [instructions] as in mt_simulation, or NULL */
  const mt_memory_timeline *memory; /**< counter tracks, or NULL */
  const char *title;                /**< "simulated", "measured": in the trace's metadata; NULL: none */
} mt_chrome_trace;

/**
 * Appends the trace to @p out: a process a replica, a thread a rank, a complete event for every instruction that
 * takes time (waits with their cause), flow arrows for transfers, a counter of held bytes per rank. An arrow's
 * name is the buffer's; a buffer that travels twice between the same ranks has one arrow through all its ends.
 */
motet_status mt_report_chrome_trace(const mt_chrome_trace *trace, motet_error *error, mt_text *out);

/** Appends @p text as a JSON string with its quotes. Bytes that are no UTF-8 become U+FFFD. */
void mt_report_json_string(mt_text *out, const char *text);

#endif
