#include "base/text.h"
#include "cli/commands.h"
#include "cli/program_file.h"
#include "order/unit_costs.h"
#include "report/page.h"
#include "report/run.h"
#include "report/run_failure.h"
#include "report/run_metrics.h"
#include "sim/measured.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

typedef struct report_options {
  const char *unit, *format, *placement, *against, *title, *output;
  int64_t step;
  double alpha, beta;
  bool json;
} report_options;

static const mt_option options[] = {
    {"output", MT_OPTION_TEXT, offsetof(report_options, output), "FILE", "the page to write (short: -o)"},
    {"unit", MT_OPTION_TEXT, offsetof(report_options, unit), "TEXT",
     "times of a rank's whole share, as in 'f=1, x=1, w=1', or per module; for programs and orders"},
    {"against", MT_OPTION_TEXT, offsetof(report_options, against), "FILE|RUN", "a second one, on the same scale"},
    {"title", MT_OPTION_TEXT, offsetof(report_options, title), "TEXT", "of the page"},
    {"step", MT_OPTION_INTEGER, offsetof(report_options, step), "N", "of a run (the last with a timeline)"},
    {"format", MT_OPTION_TEXT, offsetof(report_options, format), "auto|program|pytorch-csv", "form of FILE"},
    {"placement", MT_OPTION_TEXT, offsetof(report_options, placement), "loop|v", "how a CSV's stages lie"},
    {"alpha", MT_OPTION_NUMBER, offsetof(report_options, alpha), "SECONDS", "latency of a transfer (0)"},
    {"beta", MT_OPTION_NUMBER, offsetof(report_options, beta), "BYTES", "bytes per second of a link (unlimited)"},
    {"json", MT_OPTION_FLAG, offsetof(report_options, json), NULL, "print errors as JSON"},
};

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

static motet_status read_program(mt_arena *arena, const char *path, const report_options *chosen,
                                 motet_error *error, source *from, mt_page_side *side) {
  if (chosen->unit == NULL)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT, "a report on %s takes its times, as in --unit 'f=1, b=2'",
                        path);
  mt_program_file file;
  motet_status status = mt_program_file_read(path, chosen->format, chosen->placement, error, &file);
  if (status != MOTET_OK) return status;
  side->program = from->program = file.program;
  motet_verify_options verify = {0};
  status = motet_verify(from->program, &verify, error, &from->verification);
  mt_unit *units;
  int32_t unit_count;
  if (status == MOTET_OK) status = mt_unit_parse(arena, chosen->unit, error, &units, &unit_count);
  from->costs.links.local = (mt_link){chosen->alpha, chosen->beta};
  if (status == MOTET_OK)
    status = mt_unit_costs_of_program(arena, from->program, units, unit_count, error, &from->costs);
  return status == MOTET_OK ? add_simulated(arena, "simulated", from, error, side) : status;
}

/* Measured times first; under them what the plan expected or, for want of that, the same compute with nothing else.
 */
static motet_status read_run(mt_arena *arena, const char *path, const report_options *chosen, motet_error *error,
                             source *from, mt_page_side *side) {
  from->is_run = true;
  motet_status status = mt_run_timeline_read(arena, path, chosen->step, error, &from->run);
  if (status != MOTET_OK) return status;
  side->program = from->program = from->run.program;
  status = mt_run_metrics_read(arena, path, from->run.step, error, &from->metrics);
  if (status == MOTET_OK) status = mt_run_failure_read(arena, path, error, &from->failure);
  if (status == MOTET_OK) status = mt_history_update(&from->history, path, NULL, error);
  if (from->history.steps.count > 0) side->history = &from->history;
  motet_verify_options verify = {0};
  if (status == MOTET_OK) status = motet_verify(from->program, &verify, error, &from->verification);
  mt_simulation *simulation;
  if (status == MOTET_OK)
    status = mt_simulation_measured(arena, from->program, from->run.start, from->run.finish, error, &simulation,
                                    &from->costs);
  if (status == MOTET_OK) status = add_timeline(arena, "measured", simulation, error, side);
  if (status != MOTET_OK) return status;
  if (from->run.simulated_start == NULL)
    return add_simulated(arena, "the same compute, with free transfers", from, error, side);
  mt_cost_table expected;
  status = mt_simulation_measured(arena, from->program, from->run.simulated_start, from->run.simulated_finish,
                                  error, &simulation, &expected);
  return status == MOTET_OK ? add_timeline(arena, "simulated", simulation, error, side) : status;
}

/* "run" of "/there/run/". */
static const char *last_name(mt_arena *arena, const char *path) {
  size_t end = strlen(path);
  while (end > 1 && path[end - 1] == '/') end--;
  size_t begin = end;
  while (begin > 0 && path[begin - 1] != '/') begin--;
  return mt_arena_format(arena, "%.*s", (int)(end - begin), path + begin);
}

static motet_status make_side(mt_arena *arena, const char *path, const report_options *chosen, motet_error *error,
                              source *from, mt_page_side *side) {
  *side = (mt_page_side){.bound = NAN};
  motet_status status = mt_run_is(path) ? read_run(arena, path, chosen, error, from, side)
                                        : read_program(arena, path, chosen, error, from, side);
  if (status != MOTET_OK) {
    if (error->file[0] == '\0') mt_error_place(error, path, 0);
    return status;
  }
  const char *name = last_name(arena, path);
  side->title =
      from->is_run && name != NULL ? mt_arena_format(arena, "%s step %" PRId64, name, from->run.step) : name;
  if (side->title == NULL) return mt_error_memory(error, strlen(path), "a title");
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

static motet_status make_report(mt_arena *arena, const char *path, const report_options *chosen, source *sources,
                                motet_error *error) {
  const char *paths[MT_PAGE_SIDES] = {path, chosen->against};
  mt_page page = {.title = chosen->title};
  motet_status status = MOTET_OK;
  for (; status == MOTET_OK && page.side_count < MT_PAGE_SIDES && paths[page.side_count] != NULL; page.side_count++)
    status = make_side(arena, paths[page.side_count], chosen, error, &sources[page.side_count],
                       &page.sides[page.side_count]);
  if (status == MOTET_OK && sources[0].is_run) status = add_facts(arena, &sources[0], error, &page);
  if (page.title == NULL) page.title = page.sides[0].title;
  mt_text text = {0};
  if (status == MOTET_OK) status = mt_report_page(&page, error, &text);
  if (status == MOTET_OK && mt_file_write(chosen->output, text.data, text.length, error) != MOTET_OK)
    status = error->status = MOTET_ERROR_FAILED; /* a failure while running, not unreadable input */
  mt_text_free(&text);
  return status;
}

static int run(const mt_command *command, int argc, char **argv) {
  report_options chosen = {0};
  motet_error error;
  motet_error_clear(&error);
  int words = mt_cli_parse(command, argc, argv, &chosen, &error);
  if (words >= 0 && words != 1)
    mt_error_set(&error, MOTET_ERROR_ARGUMENT, "report takes one program, order or run, not %d", words);
  else if (words == 1 && chosen.output == NULL)
    mt_error_set(&error, MOTET_ERROR_ARGUMENT, "report takes the page to write, as in -o report.html");
  if (error.status != MOTET_OK) return mt_cli_usage(command, &error, chosen.json);
  source sources[MT_PAGE_SIDES] = {0};
  mt_arena *arena = mt_arena_create();
  motet_status status = arena != NULL ? make_report(arena, argv[0], &chosen, sources, &error)
                                      : mt_error_memory(&error, sizeof(void *), "a report");
  int code = status == MOTET_OK ? MT_EXIT_DONE : mt_cli_fail(&error, chosen.json);
  for (int i = 0; i < MT_PAGE_SIDES; i++) source_free(&sources[i]);
  mt_arena_destroy(arena);
  return code;
}

const mt_command mt_command_report = {
    .name = "report",
    .arguments = "FILE|RUN -o report.html [options]",
    .summary = "write a step as a page to look into",
    .details =
        "FILE is a program (JSON) or a PyTorch pipelining order (CSV), simulated on unit times. RUN is a training\n"
        "run's output directory: its measured times, with the simulated ones under them. The page needs nothing\n"
        "but a browser.",
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .run = run,
};
