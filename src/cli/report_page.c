#include "cli/report_page.h"

#include "base/text.h"
#include "cli/timed_program.h"
#include "report/run.h"
#include "report/run_failure.h"
#include "report/run_metrics.h"
#include "sim/measured.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* What one of the page's sides is made of. */
typedef struct source {
  motet_program *program;
  motet_verification verification;
  mt_cost_table costs;
  bool is_run;
  mt_run_timeline run;
  mt_run_metrics metrics;
  mt_history history;
  const char *failure;
} source;

static void source_free(source *from) {
  motet_verification_free(&from->verification);
  motet_program_destroy(from->program);
  mt_history_free(&from->history);
}

static motet_status add_timeline(mt_arena *arena, const char *title, const mt_simulation *simulation,
                                 motet_error *error, mt_page_side *side) {
  mt_page_timeline *timeline = &side->timelines[side->timeline_count++];
  *timeline = (mt_page_timeline){.title = title, .simulation = simulation};
  return mt_page_memory(arena, side->program, error, timeline);
}

static motet_status add_simulated(mt_arena *arena, const char *title, const source *from, motet_error *error,
                                  mt_page_side *side) {
  mt_simulation *simulation;
  mt_simulate_options how = {.timeline = true, .attribute = true};
  motet_status status = mt_simulate(arena, from->program, &from->costs, &how, error, &simulation);
  return status == MOTET_OK ? add_timeline(arena, title, simulation, error, side) : status;
}

static motet_status read_program(mt_arena *arena, const char *path, const mt_report_request *request,
                                 motet_error *error, source *from, mt_page_side *side) {
  mt_times_options how = {.unit = request->unit,
                          .format = request->format,
                          .placement = request->placement,
                          .alpha = request->alpha,
                          .beta = request->beta};
  mt_timed_program timed;
  motet_status status = mt_timed_program_read(arena, path, &how, error, &timed);
  side->program = from->program = timed.program;
  from->verification = timed.verification;
  from->costs = timed.costs;
  side->flops = timed.flops;
  side->bound = timed.bound;
  return status == MOTET_OK ? add_timeline(arena, "simulated", timed.simulation, error, side) : status;
}

/* What a run says beside its timelines. */
static motet_status read_records(mt_arena *arena, const char *path, const mt_history *history, motet_error *error,
                                 source *from, mt_page_side *side) {
  motet_status status = mt_run_failure_read(arena, path, error, &from->failure);
  if (status == MOTET_OK && history == NULL) status = mt_history_update(&from->history, path, NULL, error);
  side->history = history != NULL ? history : &from->history;
  return status;
}

/* What the plan expected or, for want of that, the measured compute with nothing else. */
static motet_status add_expected(mt_arena *arena, const source *from, motet_error *error, mt_page_side *side) {
  if (from->run.simulated_start == NULL)
    return add_simulated(arena, "the same compute, with free transfers", from, error, side);
  mt_simulation *simulation;
  mt_cost_table expected;
  motet_status status = mt_simulation_measured(arena, from->program, from->run.simulated_start,
                                               from->run.simulated_finish, error, &simulation, &expected);
  return status == MOTET_OK ? add_timeline(arena, "simulated", simulation, error, side) : status;
}

/* Expected times first; under them the measured ones, which the page holds against those. */
static motet_status read_timelines(mt_arena *arena, const char *path, const mt_report_request *request,
                                   motet_error *error, source *from, mt_page_side *side) {
  motet_status status = mt_run_timeline_read(arena, path, request->step, error, &from->run);
  if (status != MOTET_OK) return status;
  side->program = from->program = from->run.program;
  side->flops = from->run.flops;
  status = mt_run_metrics_read(arena, path, from->run.step, error, &from->metrics);
  motet_verify_options verify = {0};
  if (status == MOTET_OK) status = motet_verify(from->program, &verify, error, &from->verification);
  mt_simulation *simulation;
  if (status == MOTET_OK)
    status = mt_simulation_measured(arena, from->program, from->run.start, from->run.finish, error, &simulation,
                                    &from->costs);
  if (status == MOTET_OK) status = add_expected(arena, from, error, side);
  return status == MOTET_OK ? add_timeline(arena, "measured", simulation, error, side) : status;
}

/* A run that has steps but no timeline, or one that has only been asked for, is its history alone. */
static motet_status read_run(mt_arena *arena, const char *path, const mt_history *history,
                             const mt_report_request *request, motet_error *error, source *from,
                             mt_page_side *side) {
  from->is_run = true;
  motet_status status = read_records(arena, path, history, error, from, side);
  if (status != MOTET_OK) return status;
  bool timed = mt_run_newest(path) > 0, told = side->history->steps.count > 0;
  if (!timed && (request->running || (told && request->step == 0))) return MOTET_OK;
  return read_timelines(arena, path, request, error, from, side);
}

const char *mt_report_name(mt_arena *arena, const char *path) {
  size_t end = strlen(path);
  while (end > 1 && path[end - 1] == '/') end--;
  size_t begin = end;
  while (begin > 0 && path[begin - 1] != '/') begin--;
  return mt_arena_format(arena, "%.*s", (int)(end - begin), path + begin);
}

static motet_status make_side(mt_arena *arena, const char *path, const mt_report_request *request,
                              motet_error *error, source *from, mt_page_side *side) {
  *side = (mt_page_side){.bound = NAN};
  bool first = path == request->path;
  motet_status status = (first && request->running) || mt_run_is(path)
                            ? read_run(arena, path, first ? request->history : NULL, request, error, from, side)
                            : read_program(arena, path, request, error, from, side);
  if (status != MOTET_OK) {
    if (error->file[0] == '\0') mt_error_place(error, path, 0);
    return status;
  }
  const char *name = mt_report_name(arena, path);
  side->title = from->is_run && from->program != NULL && name != NULL
                    ? mt_arena_format(arena, "%s step %" PRId64, name, from->run.step)
                    : name;
  if (side->title == NULL) return mt_error_memory(error, strlen(path), "a title");
  if (from->program == NULL) return MOTET_OK;
  side->verification = &from->verification;
  mt_what_if *rows;
  status = mt_what_if_make(arena, from->program, &from->costs, error, &rows, &side->what_if_count);
  side->what_if = rows;
  return status;
}

static motet_status add_facts(mt_arena *arena, const source *from, motet_error *error, mt_page *page) {
  mt_page_fact *facts = MT_ARENA_NEW(arena, mt_page_fact, from->metrics.value_count);
  if (facts == NULL) return mt_error_memory(error, sizeof *facts, "facts");
  for (int32_t i = 0; i < from->metrics.value_count; i++) {
    mt_text name = {0};
    const char *key = from->metrics.values[i].name;
    for (; *key != '\0'; key++) mt_text_append(&name, "%c", *key == '_' ? ' ' : *key);
    facts[i] =
        (mt_page_fact){mt_arena_text(arena, name.data != NULL ? name.data : ""), from->metrics.values[i].value};
    mt_text_free(&name);
    if (facts[i].name == NULL) return mt_error_memory(error, sizeof *facts, "facts");
  }
  page->facts = facts;
  page->fact_count = from->metrics.value_count;
  page->message = from->failure;
  return MOTET_OK;
}

static motet_status make_page(mt_arena *arena, const mt_report_request *request, source *sources,
                              motet_error *error) {
  const char *paths[MT_PAGE_SIDES] = {request->path, request->against};
  mt_page page = {.title = request->title, .live = request->live};
  motet_status status = MOTET_OK;
  for (; status == MOTET_OK && page.side_count < MT_PAGE_SIDES && paths[page.side_count] != NULL; page.side_count++)
    status = make_side(arena, paths[page.side_count], request, error, &sources[page.side_count],
                       &page.sides[page.side_count]);
  if (status == MOTET_OK && sources[0].is_run) status = add_facts(arena, &sources[0], error, &page);
  if (page.title == NULL) page.title = page.sides[0].title;
  mt_text text = {0};
  if (status == MOTET_OK) status = mt_report_page(&page, error, &text);
  if (status == MOTET_OK && mt_file_write(request->output, text.data, text.length, error) != MOTET_OK)
    status = error->status = MOTET_ERROR_FAILED; /* a failure while running, not unreadable input */
  mt_text_free(&text);
  return status;
}

motet_status mt_report_page_write(const mt_report_request *request, motet_error *error) {
  source sources[MT_PAGE_SIDES] = {0};
  mt_arena *arena = mt_arena_create();
  motet_status status = arena != NULL ? make_page(arena, request, sources, error)
                                      : mt_error_memory(error, sizeof(void *), "a report");
  for (int i = 0; i < MT_PAGE_SIDES; i++) source_free(&sources[i]);
  mt_arena_destroy(arena);
  return status;
}
