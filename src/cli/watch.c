#include "base/text.h"
#include "cli/commands.h"
#include "cli/terminal.h"
#include "cli/timed_program.h"
#include "cli/waiter.h"
#include "report/progress.h"
#include "report/run.h"
#include "report/run_document.h"
#include "report/run_failure.h"
#include "report/timeline.h"
#include "sim/measured.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#define STANDARD_INTERVAL 1.0
#define LEAST_INTERVAL 0.05

enum { TIMELINE_RANKS = 8, PIPED_TIMELINE_RANKS = 16 };

typedef struct watch_options {
  bool once, json;
  double interval;
  int64_t width;
} watch_options;

static const mt_option options[] = {
    {"once", MT_OPTION_FLAG, offsetof(watch_options, once), NULL, "print the run as it stands, and end"},
    {"interval", MT_OPTION_POSITIVE, offsetof(watch_options, interval), "SECONDS", "between two looks (1)"},
    {"width", MT_OPTION_COLUMNS, offsetof(watch_options, width), "COLUMNS", "columns to fill (the terminal's)"},
    {"json", MT_OPTION_FLAG, offsetof(watch_options, json), NULL,
     "print one JSON document of the run or plan as it stands, and end"},
};

/* What is known of the run or plan, from look to look. */
typedef struct watched {
  const char *path;
  bool is_plan;            /* a file, not a run's directory */
  struct timespec changed; /* the plan, when it was drawn last */
  mt_history history;
  mt_arena *arena; /* of one look */
  const char *failure;
  mt_text timeline; /* drawn */
  int64_t timeline_step;
  int timeline_width;
} watched;

/* The newest timeline as a picture; a step whose files do not read leaves the last one standing. */
static void look_at_timeline(watched *run, const mt_timeline_options *picture) {
  int64_t newest = mt_run_newest(run->path);
  if (newest == 0) {
    mt_text_free(&run->timeline);
    run->timeline_step = 0;
    return;
  }
  if (newest == run->timeline_step && picture->width == run->timeline_width) return;
  motet_error error;
  mt_run_timeline measured;
  mt_simulation *simulation;
  mt_cost_table costs;
  mt_text drawn = {0};
  if (mt_run_timeline_read(run->arena, run->path, newest, &error, &measured) != MOTET_OK) return;
  motet_status status = mt_simulation_measured(run->arena, measured.program, measured.start, measured.finish,
                                               &error, &simulation, &costs);
  if (status == MOTET_OK)
    status = mt_report_timeline(measured.program, measured.start, measured.finish, simulation->idle_cause, picture,
                                &error, &drawn);
  motet_program_destroy(measured.program);
  if (status != MOTET_OK || drawn.data == NULL) {
    mt_text_free(&drawn);
    return;
  }
  mt_text_free(&run->timeline);
  run->timeline = drawn;
  run->timeline_step = newest;
  run->timeline_width = picture->width;
}

/* Seconds since the run has written its last line. */
static double quiet_seconds(const watched *run) {
  const char *path = mt_arena_format(run->arena, "%s/metrics.jsonl", run->path);
  struct stat information;
  struct timespec now;
  if (path == NULL || stat(path, &information) != 0 || clock_gettime(CLOCK_REALTIME, &now) != 0) return NAN;
  return (double)(now.tv_sec - information.st_mtim.tv_sec);
}

/* A plan as it is; drawn anew where it has been written anew. One that does not read then leaves the last picture.
 */
static motet_status look_at_plan(watched *plan, int width, bool again, motet_error *error, mt_text *text) {
  struct stat information = {0};
  bool there = stat(plan->path, &information) == 0;
  bool same = there && again && information.st_mtim.tv_sec == plan->changed.tv_sec &&
              information.st_mtim.tv_nsec == plan->changed.tv_nsec && width == plan->timeline_width;
  if (!same) {
    mt_times_options how = {.standard = MT_STANDARD_UNIT};
    mt_timed_program timed;
    mt_text drawn = {0};
    mt_terminal terminal = mt_terminal_find();
    mt_timeline_options picture = {
        .width = width, .color = terminal.color, .unicode = terminal.unicode, .digits = true};
    motet_status status = mt_timed_program_read(plan->arena, plan->path, &how, error, &timed);
    mt_text_append(&drawn, "%s  %s%s\n\n", plan->path, timed.standard ? "no times of its own: " : "",
                   timed.standard ? MT_STANDARD_UNIT : "");
    if (status == MOTET_OK)
      status = mt_report_timeline(timed.program, timed.simulation->start, timed.simulation->finish,
                                  timed.simulation->idle_cause, &picture, error, &drawn);
    mt_timed_program_free(&timed);
    if (status != MOTET_OK) mt_text_free(&drawn);
    if (status != MOTET_OK && !again) return status;
    if (status == MOTET_OK) {
      mt_text_free(&plan->timeline);
      plan->timeline = drawn;
      plan->timeline_width = width;
    }
    plan->changed = information.st_mtim;
  }
  mt_text_append(text, "%s", plan->timeline.data != NULL ? plan->timeline.data : "");
  return text->failed ? mt_error_memory(error, text->length, "a picture") : MOTET_OK;
}

static motet_status look(watched *run, const watch_options *chosen, int height, motet_error *error, mt_text *text) {
  mt_arena_reset(run->arena);
  mt_terminal terminal = mt_terminal_find();
  int width = chosen->width > 0 ? (int)chosen->width : terminal.width;
  if (run->is_plan) return look_at_plan(run, width, run->timeline.data != NULL, error, text);
  motet_status status = mt_history_update(&run->history, run->path, NULL, error);
  if (status == MOTET_OK) status = mt_run_failure_read(run->arena, run->path, error, &run->failure);
  if (status != MOTET_OK) return status;
  mt_timeline_options picture = {.width = width,
                                 .color = terminal.color,
                                 .unicode = terminal.unicode,
                                 .digits = true,
                                 .rank_limit = height > 0 ? TIMELINE_RANKS : PIPED_TIMELINE_RANKS};
  look_at_timeline(run, &picture);
  mt_progress progress = {.name = run->path,
                          .history = &run->history,
                          .failure = run->failure,
                          .timeline = run->timeline.data,
                          .timeline_step = run->timeline_step,
                          .quiet_seconds = quiet_seconds(run),
                          .width = width,
                          .height = height,
                          .unicode = terminal.unicode};
  mt_progress_draw(&progress, text);
  return text->failed ? mt_error_memory(error, text->length, "a picture") : MOTET_OK;
}

/* The terminal's other screen, without a cursor, keys without echo; and everything as it was. */
static void enter(struct termios *before, bool keys) {
  if (keys) {
    struct termios quiet = *before;
    quiet.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    tcsetattr(STDIN_FILENO, TCSADRAIN, &quiet);
  }
  fputs("\x1b[?1049h\x1b[?25l\x1b[2J", stdout);
  fflush(stdout);
}

static void leave(const struct termios *before, bool keys) {
  fputs("\x1b[?25h\x1b[?1049l", stdout);
  fflush(stdout);
  if (keys) tcsetattr(STDIN_FILENO, TCSADRAIN, before);
}

/* One picture over the last: every line is written over and its rest cleared, so that nothing is blank meanwhile.
 */
static bool show(const char *text, int height) {
  mt_text screen = {0};
  mt_text_append(&screen, "\x1b[?2026h\x1b[H");
  for (int line = 0; line < height - 1 && *text != '\0'; line++) {
    size_t length = strcspn(text, "\n");
    mt_text_bytes(&screen, text, length);
    mt_text_append(&screen, "\x1b[0m\x1b[K\r\n");
    text += length + (text[length] == '\n');
  }
  mt_text_append(&screen, "\x1b[Jq: end\x1b[K\x1b[?2026l");
  bool good =
      !screen.failed && fwrite(screen.data, 1, screen.length, stdout) == screen.length && fflush(stdout) == 0;
  mt_text_free(&screen);
  return good;
}

static motet_status watch_live(watched *run, const watch_options *chosen, motet_error *error) {
  struct termios before;
  bool keys = isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &before) == 0;
  mt_waiter waiter;
  motet_status status = mt_waiter_open(keys, error, &waiter);
  if (status != MOTET_OK) return status;
  enter(&before, keys);
  bool ends = false;
  while (status == MOTET_OK && !ends) {
    mt_text text = {0};
    int height = mt_terminal_height();
    status = look(run, chosen, height - 1, error, &text);
    if (status == MOTET_OK && !show(text.data, height)) ends = true; /* the terminal is gone */
    mt_text_free(&text);
    if (status != MOTET_OK || ends) break;
    char key = 0;
    switch (mt_waiter_wait(&waiter, chosen->interval, &key)) {
    case MT_WAKE_KEY: ends = key == 'q' || key == 'Q'; break;
    case MT_WAKE_END: ends = true; break;
    case MT_WAKE_STOP:
      leave(&before, keys);
      raise(SIGSTOP);
      enter(&before, keys);
      break;
    default: break;
    }
  }
  leave(&before, keys);
  mt_waiter_close(&waiter);
  return status;
}

static motet_status describe(watched *run, motet_error *error, mt_text *text) {
  if (!run->is_plan) return mt_run_document(run->path, error, text);
  mt_times_options how = {.standard = MT_STANDARD_UNIT};
  mt_timed_program timed;
  motet_status status = mt_timed_program_read(run->arena, run->path, &how, error, &timed);
  if (status == MOTET_OK) status = mt_timed_program_document(&timed, 0, error, text);
  mt_timed_program_free(&timed);
  return status;
}

static motet_status watch_once(watched *run, const watch_options *chosen, motet_error *error) {
  mt_text text = {0};
  motet_status status = chosen->json ? describe(run, error, &text) : look(run, chosen, 0, error, &text);
  if (status == MOTET_OK && mt_cli_print(text.data) != MT_EXIT_DONE)
    status = mt_error_set(error, MOTET_ERROR_FAILED, "the run's picture cannot be printed");
  mt_text_free(&text);
  return status;
}

static int run(const mt_command *command, int argc, char **argv) {
  watch_options chosen = {.interval = STANDARD_INTERVAL};
  motet_error error;
  motet_error_clear(&error);
  mt_options_given given;
  int words = mt_cli_parse(command, argc, argv, &chosen, &given, &error);
  if (words >= 0 && words != 1)
    mt_error_set(&error, MOTET_ERROR_ARGUMENT, "watch takes the output directory of one run, or one plan, not %d",
                 words);
  static const char *const of_pictures[] = {"width", NULL}, *const of_looks[] = {"interval", NULL};
  if (words == 1 && chosen.json)
    mt_cli_refuse_given(command, given, of_pictures, "is for the picture, and --json draws none", &error);
  if (words == 1 && (chosen.once || chosen.json))
    mt_cli_refuse_given(command, given, of_looks, "is for several looks; --once and --json take one", &error);
  if (error.status != MOTET_OK) return mt_cli_usage(command, &error, chosen.json);
  if (chosen.interval < LEAST_INTERVAL) chosen.interval = LEAST_INTERVAL;
  struct stat information;
  watched of = {.path = argv[0],
                .is_plan = stat(argv[0], &information) == 0 && !S_ISDIR(information.st_mode),
                .arena = mt_arena_create()};
  bool once = chosen.once || chosen.json || !isatty(STDOUT_FILENO);
  motet_status status = of.arena != NULL ? MOTET_OK : mt_error_memory(&error, sizeof(void *), "a run");
  if (status == MOTET_OK && !of.is_plan) status = mt_run_check(of.path, !once, &error);
  if (status == MOTET_OK) status = once ? watch_once(&of, &chosen, &error) : watch_live(&of, &chosen, &error);
  mt_history_free(&of.history);
  mt_text_free(&of.timeline);
  mt_arena_destroy(of.arena);
  return status == MOTET_OK ? MT_EXIT_DONE : mt_cli_fail(&error, chosen.json);
}

const mt_command mt_command_watch = {
    .name = "watch",
    .arguments = "RUN|PLAN [options]",
    .summary = "follow a training run or a plan in the terminal",
    .details =
        "RUN is the output directory of a training run, which need not have started in a terminal. Loss,\n"
        "throughput, evaluations, step time, measured against simulated, and the newest timeline are drawn\n"
        "anew as steps come. PLAN is a program (JSON) or a PyTorch pipelining order (CSV), drawn anew when it\n"
        "is written anew. q or Ctrl-C ends. Where standard output is no terminal it is printed once, as it\n"
        "stands.",
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .run = run,
};
