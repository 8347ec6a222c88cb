/** @file A training run as it stands, as one JSON document. */
#ifndef MT_REPORT_RUN_DOCUMENT_H
#define MT_REPORT_RUN_DOCUMENT_H

#include "base/text.h"

/**
 * Appends {"run", "planned_steps", "finished", "failure", "timeline_step", "last_step", "evaluations"} of the run
 * at
 * @p directory: `last_step` is the last whole line of its metrics.jsonl as it stands there, null before the first
 * step; `failure` a text or null. A run that has not started has nothing of all that, which is no error.
 */
motet_status mt_run_document(const char *directory, motet_error *error, mt_text *text);

#endif
