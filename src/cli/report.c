#include "base/error.h"
#include "cli/commands.h"
#include "cli/follow.h"
#include "report/run.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#define STANDARD_INTERVAL 1.0
#define LEAST_INTERVAL 0.1

typedef struct report_options {
  const char *unit, *format, *placement, *against, *title, *output;
  int64_t step;
  double alpha, beta, interval;
  bool json, follow;
} report_options;

static const mt_option options[] = {
    {"output", MT_OPTION_TEXT, offsetof(report_options, output), "FILE", "the page to write (short: -o)"},
    {"unit", MT_OPTION_TEXT, offsetof(report_options, unit), "TEXT",
     "times of a rank's whole share, as in 'f=1, x=1, w=1', or per module; for programs and orders "
     "(the file's own)"},
    {"against", MT_OPTION_TEXT, offsetof(report_options, against), "FILE|RUN", "a second one, on the same scale"},
    {"title", MT_OPTION_TEXT, offsetof(report_options, title), "TEXT", "of the page"},
    {"step", MT_OPTION_COUNT, offsetof(report_options, step), "N", "of a run (the last with a timeline)"},
    {"follow", MT_OPTION_FLAG, offsetof(report_options, follow), NULL,
     "write the page of a run anew as it goes on; the open page follows by itself"},
    {"interval", MT_OPTION_POSITIVE, offsetof(report_options, interval), "SECONDS",
     "with --follow: between two looks at the run (1)"},
    {"format", MT_OPTION_TEXT, offsetof(report_options, format), "auto|program|pytorch-csv", "form of FILE"},
    {"placement", MT_OPTION_TEXT, offsetof(report_options, placement), "loop|v", "how a CSV's stages lie"},
    {"alpha", MT_OPTION_NUMBER, offsetof(report_options, alpha), "SECONDS", "latency of a transfer (0)"},
    {"beta", MT_OPTION_POSITIVE, offsetof(report_options, beta), "BYTES/S",
     "bytes per second of a link (unlimited)"},
    {"json", MT_OPTION_FLAG, offsetof(report_options, json), NULL, "print one JSON document, errors too"},
};

static int print_page(const char *path) {
  json_t *document = json_pack("{s:s}", "page", path);
  char *text = document != NULL ? json_dumps(document, JSON_INDENT(1)) : NULL;
  json_decref(document);
  if (text == NULL) {
    motet_error error;
    mt_error_set(&error, MOTET_ERROR_MEMORY, "no memory for the report's JSON document");
    return mt_cli_fail(&error, true);
  }
  printf("%s\n", text);
  free(text);
  return mt_cli_print("");
}

/* What would change nothing. */
static void check_use(const mt_command *command, const report_options *chosen, mt_options_given given,
                      const char *path, motet_error *error) {
  static const char *const of_files[] = {"unit", "format", "placement", "alpha", "beta", NULL},
                           *const of_runs[] = {"step", NULL}, *const of_following[] = {"interval", NULL};
  bool run = chosen->follow || mt_run_is(path), other_run = chosen->against != NULL && mt_run_is(chosen->against);
  if (run && (other_run || chosen->against == NULL))
    mt_cli_refuse_given(command, given, of_files, "is for programs and orders; a run has its own", error);
  if (!run && !other_run)
    mt_cli_refuse_given(command, given, of_runs, "is for the output directory of a run, which is not here", error);
  if (!chosen->follow) mt_cli_refuse_given(command, given, of_following, "is for --follow", error);
}

static int run(const mt_command *command, int argc, char **argv) {
  report_options chosen = {.interval = STANDARD_INTERVAL};
  motet_error error;
  motet_error_clear(&error);
  mt_options_given given;
  int words = mt_cli_parse(command, argc, argv, &chosen, &given, &error);
  if (words >= 0 && words != 1)
    mt_error_set(&error, MOTET_ERROR_ARGUMENT, "report takes one program, order or run, not %d", words);
  else if (words == 1 && chosen.output == NULL)
    mt_error_set(&error, MOTET_ERROR_ARGUMENT, "report takes the page to write, as in -o report.html");
  if (error.status == MOTET_OK) check_use(command, &chosen, given, argv[0], &error);
  if (error.status != MOTET_OK) return mt_cli_usage(command, &error, chosen.json);
  if (chosen.interval < LEAST_INTERVAL) chosen.interval = LEAST_INTERVAL;
  mt_report_request request = {.path = argv[0],
                               .against = chosen.against,
                               .unit = chosen.unit,
                               .format = chosen.format,
                               .placement = chosen.placement,
                               .title = chosen.title,
                               .step = chosen.step,
                               .alpha = chosen.alpha,
                               .beta = chosen.beta,
                               .output = chosen.output};
  motet_status status =
      chosen.follow ? mt_report_follow(&request, chosen.interval, &error) : mt_report_page_write(&request, &error);
  if (status != MOTET_OK) return mt_cli_fail(&error, chosen.json);
  return chosen.json ? print_page(chosen.output) : MT_EXIT_DONE;
}

const mt_command mt_command_report = {
    .name = "report",
    .arguments = "FILE|RUN -o report.html [options]",
    .summary = "write a step as a page to look into",
    .details =
        "FILE is a program (JSON) or a PyTorch pipelining order (CSV), simulated on its own times or on those\n"
        "of --unit. RUN is a training run's output directory: its measured times under the simulated ones. The\n"
        "page needs nothing but a browser. With --follow the page is written anew with every timeline of a run\n"
        "that goes on, which need not have begun, until its last step is done, it fails, or Ctrl-C; a small file\n"
        "beside the page, gone afterwards, tells the open page of the steps in between.",
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .run = run,
};
