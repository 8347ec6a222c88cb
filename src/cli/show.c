#include "base/text.h"
#include "cli/commands.h"
#include "cli/terminal.h"
#include "cli/timed_program.h"
#include "report/flops_table.h"
#include "report/run.h"
#include "report/timeline.h"
#include "sim/measured.h"

#include <inttypes.h>
#include <stdio.h>

typedef struct show_options {
  const char *unit, *format;
  int64_t width, step;
  bool json;
} show_options;

static const mt_option options[] = {
    {"unit", MT_OPTION_TEXT, offsetof(show_options, unit), "TEXT",
     "times to draw a program with, as for 'motet simulate' (the file's own; where it has none f=1, x=1, w=1)"},
    {"format", MT_OPTION_TEXT, offsetof(show_options, format), "auto|program|pytorch-csv", "form of FILE"},
    {"step", MT_OPTION_COUNT, offsetof(show_options, step), "N", "step of a run (the newest that has a timeline)"},
    {"width", MT_OPTION_COLUMNS, offsetof(show_options, width), "COLUMNS", "columns to fill (the terminal's)"},
    {"json", MT_OPTION_FLAG, offsetof(show_options, json), NULL, "print one JSON document, errors too"},
};

/* What is shown: a program with its times. */
typedef struct shown {
  mt_timed_program timed;
  int64_t step; /* of a run; 0: a program alone */
} shown;

static motet_status read_file(mt_arena *arena, const char *path, const show_options *chosen, motet_error *error,
                              shown *what) {
  mt_times_options how = {.unit = chosen->unit, .standard = MT_STANDARD_UNIT, .format = chosen->format};
  motet_status status = mt_timed_program_read(arena, path, &how, error, &what->timed);
  if (status == MOTET_OK && what->timed.standard)
    fprintf(stderr, "motet: %s has no times of its own: drawn with --unit '%s'\n", path, MT_STANDARD_UNIT);
  return status;
}

static motet_status read_run(mt_arena *arena, const char *path, const show_options *chosen, motet_error *error,
                             shown *what) {
  mt_run_timeline measured;
  motet_status status = mt_run_timeline_read(arena, path, chosen->step, error, &measured);
  if (status != MOTET_OK) return status;
  *what =
      (shown){.timed = {.program = measured.program, .flops = measured.flops, .bound = NAN}, .step = measured.step};
  motet_verify_options verify = {0};
  status = motet_verify(what->timed.program, &verify, error, &what->timed.verification);
  if (status != MOTET_OK) return status;
  return mt_simulation_measured(arena, measured.program, measured.start, measured.finish, error,
                                &what->timed.simulation, &what->timed.costs);
}

static motet_status draw(const shown *what, const show_options *chosen, motet_error *error, mt_text *text) {
  mt_terminal terminal = mt_terminal_find();
  mt_timeline_options picture = {.width = chosen->width > 0 ? (int)chosen->width : terminal.width,
                                 .color = terminal.color,
                                 .unicode = terminal.unicode,
                                 .digits = true};
  if (what->step > 0) mt_text_append(text, "step %" PRId64 ", measured\n", what->step);
  const mt_timed_program *timed = &what->timed;
  motet_status status = mt_report_timeline(timed->program, timed->simulation->start, timed->simulation->finish,
                                           timed->simulation->idle_cause, &picture, error, text);
  if (timed->flops != NULL) mt_text_append(text, "\n");
  mt_flops_table_text(timed->program, timed->simulation, timed->flops, text);
  return status;
}

static motet_status show(mt_arena *arena, const char *path, const show_options *chosen, motet_error *error,
                         mt_text *text) {
  shown what = {0};
  motet_status status =
      mt_run_is(path) ? read_run(arena, path, chosen, error, &what) : read_file(arena, path, chosen, error, &what);
  if (status == MOTET_OK)
    status = chosen->json ? mt_timed_program_document(&what.timed, what.step, error, text)
                          : draw(&what, chosen, error, text);
  if (status == MOTET_OK && text->failed) status = mt_error_memory(error, text->length, "a timeline");
  mt_timed_program_free(&what.timed);
  return status;
}

/* What would change nothing. */
static void check_use(const mt_command *command, const show_options *chosen, mt_options_given given,
                      const char *path, motet_error *error) {
  static const char *const of_runs[] = {"step", NULL}, *const of_files[] = {"unit", "format", NULL},
                           *const of_pictures[] = {"width", NULL};
  if (mt_run_is(path))
    mt_cli_refuse_given(command, given, of_files, "is for programs and orders; a run has its own", error);
  else
    mt_cli_refuse_given(command, given, of_runs, "is for the output directory of a run, which this is not", error);
  if (chosen->json)
    mt_cli_refuse_given(command, given, of_pictures, "is for the picture, and --json draws none", error);
}

static int run(const mt_command *command, int argc, char **argv) {
  show_options chosen = {0};
  motet_error error;
  motet_error_clear(&error);
  mt_options_given given;
  int words = mt_cli_parse(command, argc, argv, &chosen, &given, &error);
  if (words >= 0 && words != 1)
    mt_error_set(&error, MOTET_ERROR_ARGUMENT, "show takes one FILE or RUN, not %d", words);
  if (words == 1) check_use(command, &chosen, given, argv[0], &error);
  if (error.status != MOTET_OK) return mt_cli_usage(command, &error, chosen.json);
  mt_text text = {0};
  mt_arena *arena = mt_arena_create();
  motet_status status = arena != NULL ? show(arena, argv[0], &chosen, &error, &text)
                                      : mt_error_memory(&error, sizeof(void *), "a timeline");
  int code = status == MOTET_OK ? mt_cli_print(text.data) : mt_cli_fail(&error, chosen.json);
  mt_text_free(&text);
  mt_arena_destroy(arena);
  return code;
}

const mt_command mt_command_show = {
    .name = "show",
    .arguments = "FILE|RUN [options]",
    .summary = "draw a timeline in the terminal",
    .details =
        "FILE is a program (JSON) or a PyTorch pipelining order (CSV), drawn on the times that it has, else on\n"
        "unit times. RUN is the output directory of a training run: its newest measured step is drawn, and its\n"
        "operations are told by module, with their share of what the ranks could do (MFU).",
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .run = run,
};
