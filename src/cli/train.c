#include "base/text.h"
#include "cli/commands.h"
#include "cli/launch.h"
#include "train/loop.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BAR_WIDTH = 30 };

/** The bar at the end of the terminal's output; gone while a line is printed. */
typedef struct screen {
  bool terminal, shown;
} screen;

static void clear_bar(screen *this) {
  if (this->shown) fprintf(stderr, "\r\033[K");
  this->shown = false;
}

static void print_line(void *context, const char *text) {
  clear_bar(context);
  fflush(stderr);
  printf("%s\n", text);
  fflush(stdout);
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
  mt_train_options options = {.transport = transport,
                              .board = board,
                              .stopped = stopped,
                              .listener = {.context = this, .line = print_line, .progress = print_bar}};
  if (transport->rank == 0) {
    mt_text text = {0};
    mt_job_print(job, &text);
    if (text.data != NULL) fputs(text.data, stdout);
    fflush(stdout);
    mt_text_free(&text);
  }
  motet_status status = mt_train_run(job, &options, error);
  clear_bar(this);
  return status;
}

static int run(const mt_command *command, int argc, char **argv) {
  motet_error error;
  motet_error_clear(&error);
  bool nothing;
  int words = mt_cli_parse(command, argc, argv, &nothing, &error);
  if (words == 0) mt_error_set(&error, MOTET_ERROR_ARGUMENT, "train takes a job file");
  if (words <= 0) return mt_cli_usage(command, &error, false);
  mt_job *job;
  if (mt_job_read(argv[0], words - 1, argv + 1, &error, &job) != MOTET_OK) return mt_cli_fail(&error, false);
  char **arguments = calloc((size_t)words + 2, sizeof *arguments);
  int code = MT_EXIT_FAILURE;
  if (arguments != NULL) {
    static char name[] = "train";
    screen this = {.terminal = isatty(STDERR_FILENO) || getenv("MOTET_TERMINAL") != NULL};
    arguments[0] = name;
    memcpy(arguments + 1, argv, (size_t)words * sizeof *arguments);
    code = mt_launch(job, arguments, train, true, &this);
  }
  free(arguments);
  mt_job_destroy(job);
  return code;
}

const mt_command mt_command_train = {
    .name = "train",
    .arguments = "JOB.yaml [key=value ...]",
    .summary = "train a model as a job file says",
    .details =
        "Starts the job's MPI ranks itself when it was not started under mpirun or srun. Goes on from the newest\n"
        "checkpoint in output_dir. Ctrl-C finishes the step and saves. Any key of the job can be given on the\n"
        "command line, as in train.steps=20. docs/formats/job.md lists the keys.",
    .run = run,
};
