#include "cli/present.h"

#include "base/text.h"
#include "cli/terminal.h"
#include "report/chrome_trace.h"
#include "report/plan_text.h"
#include "report/timeline.h"

#include <stdio.h>
#include <stdlib.h>

static motet_status write_trace(const mt_presentation *presentation, motet_error *error) {
  const mt_report_plan *report = &presentation->report;
  mt_chrome_trace trace = {.program = report->program,
                           .start = report->simulation->start,
                           .finish = report->simulation->finish,
                           .idle_cause = report->simulation->idle_cause,
                           .title = "simulated"};
  mt_text text = {0};
  motet_status status = mt_report_chrome_trace(&trace, error, &text);
  if (status == MOTET_OK && text.failed) status = mt_error_memory(error, text.length, "a trace");
  if (status == MOTET_OK) status = mt_file_write(presentation->trace_path, text.data, text.length, error);
  mt_text_free(&text);
  return status;
}

static motet_status describe_json(const mt_presentation *presentation, motet_error *error, mt_text *text) {
  json_t *document = mt_report_json_plan(&presentation->report);
  if (document == NULL) return mt_error_set(error, MOTET_ERROR_MEMORY, "no memory for the plan's JSON document");
  char *dump = NULL;
  if (presentation->extra == NULL || json_object_update(document, presentation->extra) == 0)
    dump = json_dumps(document, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
  json_decref(document);
  if (dump == NULL) return mt_error_set(error, MOTET_ERROR_MEMORY, "no memory for the plan's JSON document");
  mt_text_append(text, "%s\n", dump);
  free(dump);
  return MOTET_OK;
}

static motet_status describe(const mt_presentation *presentation, motet_error *error, mt_text *text) {
  const mt_report_plan *report = &presentation->report;
  mt_terminal terminal = mt_terminal_find();
  mt_plan_text_options summary = {.width = terminal.width, .unicode = terminal.unicode};
  mt_report_plan_text(report, &summary, text);
  if (presentation->summary) return MOTET_OK;
  mt_timeline_options picture = {
      .width = terminal.width, .color = terminal.color, .unicode = terminal.unicode, .digits = true};
  mt_text_append(text, "\n");
  return mt_report_timeline(report->program, report->simulation->start, report->simulation->finish,
                            report->simulation->idle_cause, &picture, error, text);
}

int mt_present(const mt_presentation *presentation) {
  motet_error error;
  motet_error_clear(&error);
  motet_status status = MOTET_OK;
  if (presentation->program_path != NULL)
    status = motet_program_write(presentation->report.program, presentation->program_path, &error);
  if (status == MOTET_OK && presentation->csv_path != NULL)
    status = motet_program_write_pytorch_csv(presentation->report.program, false, presentation->csv_path, &error);
  if (status == MOTET_OK && presentation->trace_path != NULL) status = write_trace(presentation, &error);
  if (status != MOTET_OK) {
    /* Failing to write is a failure while running, not unreadable input. */
    if (status == MOTET_ERROR_IO) error.status = MOTET_ERROR_FAILED;
    return mt_cli_fail(&error, presentation->json);
  }
  mt_text text = {0};
  status = presentation->json ? describe_json(presentation, &error, &text) : describe(presentation, &error, &text);
  if (status == MOTET_OK && text.failed) status = mt_error_memory(&error, text.length, "the plan's description");
  int code = status == MOTET_OK ? mt_cli_print(text.data) : mt_cli_fail(&error, presentation->json);
  mt_text_free(&text);
  return code;
}
