#include "base/error.h"
#include "cli/cluster_plan.h"
#include "cli/commands.h"
#include "cli/job_plan.h"
#include "cli/present.h"
#include "cli/program_file.h"
#include "cli/timed_program.h"
#include "cli/trace_files.h"
#include "order/cluster_job.h"

#include <string.h>

typedef struct simulate_options {
  const char *unit, *format, *placement, *trace, *trace_format;
  double alpha, beta;
  bool json, summary, hta;
} simulate_options;

static const mt_option options[] = {
    {"unit", MT_OPTION_TEXT, offsetof(simulate_options, unit), "TEXT",
     "times of a rank's whole share, as in 'f=1, x=1, w=1', or per module, as in 'vision: f=1; llm: f=1, b=2' "
     "(the file's own)"},
    {"format", MT_OPTION_TEXT, offsetof(simulate_options, format), "auto|program|pytorch-csv", "form of FILE"},
    {"placement", MT_OPTION_TEXT, offsetof(simulate_options, placement), "loop|v",
     "how stages must lie on the ranks; an order that lies otherwise is an error"},
    {"alpha", MT_OPTION_NUMBER, offsetof(simulate_options, alpha), "SECONDS", "latency of a transfer (0)"},
    {"beta", MT_OPTION_POSITIVE, offsetof(simulate_options, beta), "BYTES",
     "bytes per second of a link (unlimited)"},
    {"trace", MT_OPTION_TEXT, offsetof(simulate_options, trace), "FILE", "write the timeline for other tools"},
    {"trace-format", MT_OPTION_TEXT, offsetof(simulate_options, trace_format), "chrome|hta|chakra",
     "form of --trace: one file for Perfetto (chrome), a folder for Holistic Trace Analysis, FILE.RANK.et files"},
    {"hta", MT_OPTION_FLAG, offsetof(simulate_options, hta), NULL, "short for --trace-format hta"},
    {"summary", MT_OPTION_FLAG, offsetof(simulate_options, summary), NULL, "leave out the timeline"},
    {"json", MT_OPTION_FLAG, offsetof(simulate_options, json), NULL, "print one JSON document"},
};

static int run_file(const char *path, const simulate_options *chosen) {
  motet_error error;
  motet_error_clear(&error);
  mt_times_options how = {.unit = chosen->unit,
                          .format = chosen->format,
                          .placement = chosen->placement,
                          .alpha = chosen->alpha,
                          .beta = chosen->beta};
  mt_timed_program timed = {0};
  mt_arena *arena = mt_arena_create();
  motet_status status = arena != NULL ? mt_timed_program_read(arena, path, &how, &error, &timed)
                                      : mt_error_memory(&error, sizeof(void *), "a simulation");
  int code;
  if (status == MOTET_OK) {
    mt_presentation presentation = {.report = mt_timed_program_report(&timed),
                                    .trace_path = chosen->trace,
                                    .trace_format = chosen->trace_format,
                                    .json = chosen->json,
                                    .summary = chosen->summary};
    code = mt_present(&presentation);
  } else {
    code = mt_cli_fail(&error, chosen->json);
  }
  mt_timed_program_free(&timed);
  mt_arena_destroy(arena);
  return code;
}

static int run(const mt_command *command, int argc, char **argv) {
  simulate_options chosen = {0};
  motet_error error;
  motet_error_clear(&error);
  mt_options_given given;
  int words = mt_cli_parse(command, argc, argv, &chosen, &given, &error);
  if (words >= 0 && words < 1)
    mt_error_set(&error, MOTET_ERROR_ARGUMENT, "simulate takes a program, a PyTorch order or a job file");
  else if (words > 0 && !mt_program_file_is_job(argv[0]) && words > 1)
    mt_error_set(&error, MOTET_ERROR_ARGUMENT, "simulate takes one FILE, not %d", words);
  else if (words > 0)
    mt_trace_format_choose(chosen.trace, chosen.hta, &chosen.trace_format, &error);
  static const char *const of_files[] = {"unit", "format", "placement", "alpha", "beta", NULL};
  if (words > 0 && mt_program_file_is_job(argv[0]))
    mt_cli_refuse_given(command, given, of_files, "is for programs and orders; a job says all of it", &error);
  if (error.status != MOTET_OK) return mt_cli_usage(command, &error, chosen.json);
  if (!mt_program_file_is_job(argv[0])) return run_file(argv[0], &chosen);
  mt_job_plan_options how = {.trace_path = chosen.trace,
                             .trace_format = chosen.trace_format,
                             .json = chosen.json,
                             .summary = chosen.summary};
  if (mt_cluster_job_is(argv[0], words - 1, argv + 1))
    return mt_cluster_plan_present(argv[0], words - 1, argv + 1, &how);
  return mt_job_plan(argv[0], words - 1, argv + 1, &how);
}

const mt_command mt_command_simulate = {
    .name = "simulate",
    .arguments = "FILE [--unit TEXT] [options] | JOB.yaml [key=value ...] [options]",
    .summary = "simulate a program, a foreign order or a job",
    .details =
        "FILE is a program (JSON) or a PyTorch pipelining order (CSV, one row a rank); it is proven first.\n"
        "A file of 'motet plan -o' has its plan's times and gives its numbers; others take --unit: f, b, x and\n"
        "w are the times of everything that a rank holds, or per module of the program.",
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .run = run,
};
