#include "base/text.h"
#include "cli/commands.h"
#include "cli/launch.h"
#include "report/run_document.h"
#include "train/loop.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BAR_WIDTH = 30 };

/** The bar at the end of the terminal's output; gone while a line is printed. */
typedef struct screen {
  bool terminal, shown;
  bool opened; /* the job has been told */
  FILE *lines; /* where lines go */
} screen;

typedef struct train_options {
  bool json;
} train_options;

static const mt_option options[] = {
    {"json", MT_OPTION_FLAG, offsetof(train_options, json), NULL,
     "print one JSON document at the end, errors too; lines go to standard error"},
};

static void clear_bar(screen *this) {
  if (this->shown) fprintf(stderr, "\r\033[K");
  this->shown = false;
}

static void print_line(void *context, const char *text) {
  clear_bar(context);
  fflush(stderr);
  screen *this = context;
  fprintf(this->lines, "%s\n", text);
  fflush(this->lines);
}

/* The job as it takes effect, once; behind errors in it, which nobody should have to look for above. */
static void print_job(void *context, const mt_job *job) {
  screen *this = context;
  mt_text text = {0};
  if (this->opened) return;
  this->opened = true;
  mt_job_print(job, &text);
  while (text.length > 0 && text.data[text.length - 1] == '\n') text.data[--text.length] = '\0';
  if (text.data != NULL) print_line(context, text.data);
  mt_text_free(&text);
}

static void print_bar(void *context, int64_t step, int64_t steps, double remaining_seconds) {
  screen *this = context;
  if (!this->terminal || steps <= 0) return;
  int full = (int)(BAR_WIDTH * step / steps);
  long long left = (long long)(remaining_seconds + 0.5);
  clear_bar(this);
  if (step < steps) {
    fprintf(stderr, "[%.*s%*s] %lld%%  %lld:%02lld:%02lld left", full, "##############################",
            BAR_WIDTH - full, "", (long long)(100 * step / steps), left / 3600, left / 60 % 60, left % 60);
    this->shown = true;
  }
  fflush(stderr);
}

static motet_status train(const mt_job *job, mt_transport *transport, mt_board *board, const volatile int *stopped,
                          void *context, motet_error *error) {
  screen *this = context;
  mt_train_options how = {
      .transport = transport,
      .board = board,
      .stopped = stopped,
      .listener = {.context = this, .opened = print_job, .line = print_line, .progress = print_bar}};
  motet_status status = mt_train_run(job, &how, error);
  clear_bar(this);
  if (status != MOTET_OK || this->lines == stdout || transport->rank != 0) return status;
  mt_text text = {0};
  status = mt_run_document(job->output_dir, error, &text);
  if (status == MOTET_OK && mt_cli_print(text.data) != MT_EXIT_DONE)
    status = mt_error_set(error, MOTET_ERROR_FAILED, "the run's document cannot be printed");
  mt_text_free(&text);
  return status;
}

static int run(const mt_command *command, int argc, char **argv) {
  motet_error error;
  motet_error_clear(&error);
  train_options chosen = {0};
  mt_options_given given;
  int words = mt_cli_parse(command, argc, argv, &chosen, &given, &error);
  if (words == 0) mt_error_set(&error, MOTET_ERROR_ARGUMENT, "train takes a job file");
  if (words <= 0) return mt_cli_usage(command, &error, chosen.json);
  mt_job *job;
  if (mt_job_read(argv[0], words - 1, argv + 1, &error, &job) != MOTET_OK) return mt_cli_fail(&error, chosen.json);
  char **arguments = calloc((size_t)words + 3, sizeof *arguments);
  int code = MT_EXIT_FAILURE;
  if (arguments != NULL) {
    static char name[] = "train", json[] = "--json";
    screen this = {.terminal = isatty(STDERR_FILENO) || getenv("MOTET_TERMINAL") != NULL,
                   .lines = chosen.json ? stderr : stdout};
    mt_launch_options how = {.body = train, .context = &this, .saves = true, .json = chosen.json};
    arguments[0] = name;
    memcpy(arguments + 1, argv, (size_t)words * sizeof *arguments);
    if (chosen.json) arguments[words + 1] = json;
    code = mt_launch(job, arguments, &how);
  }
  free(arguments);
  mt_job_destroy(job);
  return code;
}

const mt_command mt_command_train = {
    .name = "train",
    .arguments = "JOB.yaml [key=value ...] [--json]",
    .summary = "train a model as a job file says",
    .details =
        "Starts the job's MPI ranks itself when it was not started under mpirun or srun. Goes on from the newest\n"
        "checkpoint in output_dir. Ctrl-C finishes the step and saves. Any key of the job can be given on the\n"
        "command line, as in train.steps=20. 'motet help job' lists the keys.",
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .run = run,
};
