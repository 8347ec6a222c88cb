/** @file
 * A rank's timeline in the form that Holistic Trace Analysis reads: a profile as PyTorch writes it, a file a rank
 * (docs/formats/trace.md).
 */
#ifndef MT_REPORT_HTA_TRACE_H
#define MT_REPORT_HTA_TRACE_H

#include "report/chrome_trace.h"

/** Appends the trace of @p rank. @p partners: from mt_transfer_partners(). */
motet_status mt_report_hta_trace(const mt_chrome_trace *trace, int32_t rank, const int64_t *partners,
                                 motet_error *error, mt_text *out);

#endif
