#include "cli/present.h"

#include "base/text.h"
#include "cli/terminal.h"
#include "cli/trace_files.h"
#include "program/json.h"
#include "report/page.h"
#include "report/plan_text.h"
#include "report/timeline.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static motet_status write_program(const mt_presentation *presentation, motet_error *error) {
  const mt_report_plan *report = &presentation->report;
  mt_program_times times = {.known = presentation->costs != NULL, .bound = report->bound, .flops = report->flops};
  if (times.known) times.costs = *presentation->costs;
  return mt_program_write_timed(report->program, &times, presentation->program_path, error);
}

static motet_status write_trace(const mt_presentation *presentation, motet_error *error) {
  const mt_report_plan *report = &presentation->report;
  const mt_simulation *simulation = report->simulation;
  mt_memory_timeline *memory;
  mt_arena *arena = mt_arena_create();
  if (arena == NULL) return mt_error_memory(error, sizeof(void *), "a trace");
  motet_status status =
      mt_memory_timeline_make(arena, report->program, simulation->start, simulation->finish, error, &memory);
  if (status == MOTET_OK) {
    mt_chrome_trace trace = {.program = report->program,
                             .start = simulation->start,
                             .finish = simulation->finish,
                             .idle_cause = simulation->idle_cause,
                             .memory = memory,
                             .title = "simulated"};
    status = mt_trace_files_write(&trace, presentation->trace_format, presentation->trace_path, error);
  }
  mt_arena_destroy(arena);
  return status;
}

static motet_status write_page(const mt_presentation *presentation, motet_error *error) {
  const mt_report_plan *report = &presentation->report;
  mt_page page = {.title = report->schedule != NULL ? report->schedule : report->program->schedule,
                  .side_count = 1,
                  .facts = presentation->facts,
                  .fact_count = presentation->fact_count};
  mt_page_side *side = &page.sides[0];
  *side = (mt_page_side){.title = "plan",
                         .program = report->program,
                         .verification = report->verification,
                         .bound = report->bound,
                         .flops = report->flops,
                         .timeline_count = 1,
                         .timelines = {{.title = "simulated", .simulation = report->simulation}}};
  mt_text text = {0};
  mt_what_if *rows;
  mt_arena *arena = mt_arena_create();
  if (arena == NULL) return mt_error_memory(error, sizeof(void *), "a report");
  motet_status status = mt_page_memory(arena, report->program, error, &side->timelines[0]);
  if (status == MOTET_OK && presentation->costs != NULL) {
    status = mt_what_if_make(arena, report->program, presentation->costs, error, &rows, &side->what_if_count);
    side->what_if = rows;
  }
  if (status == MOTET_OK) status = mt_report_page(&page, error, &text);
  if (status == MOTET_OK) status = mt_file_write(presentation->page_path, text.data, text.length, error);
  mt_text_free(&text);
  mt_arena_destroy(arena);
  return status;
}

static motet_status describe_json(const mt_presentation *presentation, motet_error *error, mt_text *text) {
  if (!isfinite(presentation->report.simulation->makespan))
    return mt_error_set(error, MOTET_ERROR_LIMIT, "the times add up to more than a number holds");
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
  if (presentation->program_path != NULL) status = write_program(presentation, &error);
  if (status == MOTET_OK && presentation->csv_path != NULL)
    status = motet_program_write_pytorch_csv(presentation->report.program, false, presentation->csv_path, &error);
  if (status == MOTET_OK && presentation->trace_path != NULL) status = write_trace(presentation, &error);
  if (status == MOTET_OK && presentation->page_path != NULL) status = write_page(presentation, &error);
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
