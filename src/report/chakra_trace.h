/** @file
 * A rank's list as a Chakra execution trace: nodes with their dependencies, in the protobuf form that network
 * simulators feed from (docs/formats/trace.md).
 */
#ifndef MT_REPORT_CHAKRA_TRACE_H
#define MT_REPORT_CHAKRA_TRACE_H

#include "report/chrome_trace.h"
#include "report/page_columns.h"

/** Appends the trace of @p rank to @p out: messages, each behind its length. */
motet_status mt_report_chakra_trace(const mt_chrome_trace *trace, int32_t rank, motet_error *error, mt_column *out);

#endif
