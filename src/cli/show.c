#include "base/text.h"
#include "cli/commands.h"
#include "cli/program_file.h"
#include "cli/terminal.h"
#include "order/unit_costs.h"
#include "report/run.h"
#include "report/timeline.h"
#include "sim/measured.h"

typedef struct show_options {
  const char *unit, *format;
  int64_t width, step;
} show_options;

static const mt_option options[] = {
    {"unit", MT_OPTION_TEXT, offsetof(show_options, unit), "TEXT",
     "times to draw a program with, as for 'motet simulate' (f=1, x=1, w=1)"},
    {"format", MT_OPTION_TEXT, offsetof(show_options, format), "auto|program|pytorch-csv", "form of FILE"},
    {"step", MT_OPTION_INTEGER, offsetof(show_options, step), "N",
     "step of a run (the newest that has a timeline)"},
    {"width", MT_OPTION_INTEGER, offsetof(show_options, width), "COLUMNS", "columns to fill (the terminal's)"},
};

static motet_status draw(const motet_program *program, const double *start, const double *finish,
                         const uint8_t *idle_cause, const show_options *chosen, motet_error *error, mt_text *text) {
  mt_terminal terminal = mt_terminal_find();
  mt_timeline_options picture = {.width = chosen->width > 0 ? (int)chosen->width : terminal.width,
                                 .color = terminal.color,
                                 .unicode = terminal.unicode,
                                 .digits = true};
  motet_status status = mt_report_timeline(program, start, finish, idle_cause, &picture, error, text);
  if (status == MOTET_OK && text->failed) status = mt_error_memory(error, text->length, "a timeline");
  return status;
}

static motet_status simulate(mt_arena *arena, const motet_program *program, const char *unit, motet_error *error,
                             mt_simulation **simulation) {
  mt_unit *units;
  int32_t unit_count;
  mt_cost_table costs = {0};
  mt_simulate_options how = {.timeline = true, .attribute = true};
  motet_status status = mt_unit_parse(arena, unit, error, &units, &unit_count);
  if (status == MOTET_OK) status = mt_unit_costs_of_program(arena, program, units, unit_count, error, &costs);
  return status == MOTET_OK ? mt_simulate(arena, program, &costs, &how, error, simulation) : status;
}

static motet_status draw_file(mt_arena *arena, const char *path, const show_options *chosen, motet_error *error,
                              mt_text *text) {
  mt_program_file file = {0};
  mt_simulation *simulation;
  motet_status status = mt_program_file_read(path, chosen->format, NULL, error, &file);
  if (status == MOTET_OK) status = simulate(arena, file.program, chosen->unit, error, &simulation);
  if (status == MOTET_OK)
    status = draw(file.program, simulation->start, simulation->finish, simulation->idle_cause, chosen, error, text);
  motet_program_destroy(file.program);
  return status;
}

static motet_status draw_run(mt_arena *arena, const char *path, const show_options *chosen, motet_error *error,
                             mt_text *text) {
  mt_run_timeline measured;
  motet_status status = mt_run_timeline_read(arena, path, chosen->step, error, &measured);
  if (status != MOTET_OK) return status;
  mt_text_append(text, "step %lld, measured\n", (long long)measured.step);
  mt_simulation *simulation;
  mt_cost_table costs;
  status =
      mt_simulation_measured(arena, measured.program, measured.start, measured.finish, error, &simulation, &costs);
  if (status == MOTET_OK)
    status = draw(measured.program, measured.start, measured.finish, simulation->idle_cause, chosen, error, text);
  motet_program_destroy(measured.program);
  return status;
}

static int run(const mt_command *command, int argc, char **argv) {
  show_options chosen = {.unit = "f=1, x=1, w=1"};
  motet_error error;
  motet_error_clear(&error);
  int words = mt_cli_parse(command, argc, argv, &chosen, &error);
  if (words >= 0 && words != 1)
    mt_error_set(&error, MOTET_ERROR_ARGUMENT, "show takes one FILE or RUN, not %d", words);
  else if (chosen.width > 1000)
    mt_error_set(&error, MOTET_ERROR_ARGUMENT, "--width: at most 1000 columns");
  if (error.status != MOTET_OK) return mt_cli_usage(command, &error, false);
  mt_text text = {0};
  mt_arena *arena = mt_arena_create();
  motet_status status = arena == NULL        ? mt_error_memory(&error, sizeof(void *), "a timeline")
                        : mt_run_is(argv[0]) ? draw_run(arena, argv[0], &chosen, &error, &text)
                                             : draw_file(arena, argv[0], &chosen, &error, &text);
  int code = status == MOTET_OK ? mt_cli_print(text.data) : mt_cli_fail(&error, false);
  mt_text_free(&text);
  mt_arena_destroy(arena);
  return code;
}

const mt_command mt_command_show = {
    .name = "show",
    .arguments = "FILE|RUN [options]",
    .summary = "draw a timeline in the terminal",
    .details =
        "FILE is a program (JSON) or a PyTorch pipelining order (CSV), drawn on unit times. RUN is the output\n"
        "directory of a training run: its newest measured step is drawn.",
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .run = run,
};
