#include "cli/launch.h"

#include "base/clock.h"
#include "cli/cli.h"
#include "comm/place.h"
#include "report/run_failure.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define BOARD_VARIABLE "MOTET_BOARD"

enum { ARGUMENTS_MOST = 64, PATH_SIZE = 4096, LINE_FILE = 1000 };

static const double STOPPED_SECONDS = 2;  /* longer than this no rank may be stopped while others are not */
static const double ORPHANED_SECONDS = 2; /* longer than this no rank may outlive the launcher */

/* What signal handlers may touch. */
static volatile int signals_seen;
static volatile bool asks_first; /* a first signal is a request to finish and save */
static volatile pid_t launcher_process;
static mt_board *volatile own_board;
static volatile int32_t own_rank;

static void on_stop_signal(int number) {
  signals_seen++;
  if (own_board != NULL && number == SIGTERM) mt_board_at(own_board, own_rank)->state = MT_BOARD_STOPPED;
  /* The launcher hands SIGUSR1 on to the ranks; who asks twice wants the end at once. */
  if (launcher_process > 0) kill(launcher_process, asks_first && signals_seen == 1 ? SIGUSR1 : SIGTERM);
}

/* MPICH's transport aborts where it cannot read from a rank that was killed: that one is to be named. */
static void on_abort(int number) {
  (void)number;
  if (own_board != NULL) mt_board_note_abort(own_board, own_rank);
}

/* A launcher that ends the other ranks after a failure may still send SIGTERM: the handler must not write to a
 * board that is no longer there. */
static void leave_board(mt_board *board) {
  own_board = NULL;
  mt_board_close(board);
}

static void handle_signals(void) {
  struct sigaction action = {.sa_handler = on_stop_signal};
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);
  sigaction(SIGUSR1, &action, NULL);
}

static void handle_abort(void) {
  struct sigaction action = {.sa_handler = on_abort};
  sigemptyset(&action.sa_mask);
  sigaction(SIGABRT, &action, NULL);
}

/** Who reports a failure: the board tells the starter that it is told, the output directory keeps it for reports.
 */
typedef struct reporter {
  mt_board *board; /* NULL: none */
  const char *output_dir;
  int32_t rank;
  bool json;
} reporter;

/** What this rank is at. */
static void tell_place(void *context, char *text, size_t size) {
  const reporter *this = context;
  if (this->board != NULL) mt_board_describe(this->board, this->rank, text, size);
}

static void report(void *context, const motet_error *error) {
  const reporter *this = context;
  int code = mt_cli_fail(error, this->json);
  fflush(NULL);
  mt_run_failure_write(this->output_dir, error);
  if (this->board != NULL) mt_board_note_report(this->board, code);
}

/* A page's first touch costs more than the work on it: memory that was freed stays with the process. The
 * threshold's largest value; without it, what is set below would fix it at 128 KiB. */
static void keep_memory(void) {
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, -1);
  mallopt(M_TOP_PAD, 64 << 20);
}

/** Rank 0 says where all are. */
static motet_status tell_places(mt_transport *transport, const mt_place *place, FILE *to, motet_error *error) {
  mt_text text = {0};
  motet_status status = mt_place_describe(transport, place, error, &text);
  if (status == MOTET_OK && transport->rank == 0 && text.data != NULL) {
    fputs(text.data, to);
    fflush(to);
  }
  mt_text_free(&text);
  return status;
}

/** The name of a rank's line beside the board: a FIFO that the rank holds open until its end. A dying process
 * closes its files before it is gone; the launcher, whose own lines close then too, ends the other ranks at once,
 * and of several processes that die together any may be gone first. */
static void name_line(const char *board, int32_t rank, char line[PATH_SIZE]) {
  snprintf(line, PATH_SIZE, "%s.%d", board, (int)rank);
}

static int run_rank(const mt_job *job, bool launched, const mt_launch_options *how) {
  motet_error error;
  motet_error_clear(&error);
  mt_board *board = NULL;
  mt_transport *transport = NULL;
  int32_t ranks = (int32_t)(job->parallel.pipeline * job->parallel.data * job->parallel.context), rank = 0;
  const char *path = getenv(BOARD_VARIABLE);
  keep_memory();
  if (launched) mt_transport_launched(NULL, &rank);
  if (launched && rank < ranks && mt_board_open(path, ranks, &error, &board) == MOTET_OK) {
    mt_board_at(board, rank)->process = (int32_t)getpid();
    mt_board_at(board, rank)->state = MT_BOARD_STARTED;
    own_rank = rank;
    own_board = board;
    handle_abort();
    char line[PATH_SIZE];
    if (path != NULL) name_line(path, rank, line);
    int file = path != NULL ? open(line, O_WRONLY | O_NONBLOCK | O_CLOEXEC) : -1;
    /* It stays open until the process ends, as the file of the highest number: the kernel lets go of that first. */
    if (file >= 0 && fcntl(file, F_DUPFD_CLOEXEC, LINE_FILE) >= 0) close(file);
  }
  if (how->saves) handle_signals();
  signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is an error like a full disk, not the end */
  reporter teller = {board, job->output_dir, rank, how->json};
  if (rank == 0) mt_run_failure_forget(job->output_dir);
  mt_transport_options options = {.ranks = ranks,
                                  .hang_seconds = job->train.hang_seconds,
                                  .stall_seconds = job->train.stall_seconds,
                                  /* Who started the ranks with a board watches them all by itself. */
                                  .heartbeat_seconds = path == NULL ? job->train.heartbeat_seconds : 0,
                                  .report = report,
                                  .place = tell_place,
                                  .context = &teller};
  motet_status status = launched ? mt_transport_mpi_create(&options, &error, &transport)
                                 : mt_transport_self_create(&options, &error, &transport);
  if (status != MOTET_OK) {
    if (rank == 0) report(&teller, &error);
    leave_board(board);
    return MT_EXIT_USAGE;
  }
  mt_place place;
  mt_place_rank(transport, job->train.bind == MT_JOB_BIND_CORES, &place);
  status = tell_places(transport, &place, how->json ? stderr : stdout, &error);
  if (status == MOTET_OK) status = how->body(job, transport, board, &signals_seen, how->context, &error);
  if (board != NULL) mt_board_at(board, rank)->state = MT_BOARD_FINISHED;
  int code = MT_EXIT_DONE;
  if (status == MOTET_ERROR_INTERRUPTED) {
    code = MT_EXIT_INTERRUPTED;
    if (transport->rank == 0) mt_cli_fail(&error, how->json);
    if (board != NULL) mt_board_note_report(board, code); /* not every launcher hands exit codes on */
  } else if (status != MOTET_OK) {
    code = mt_cli_exit_code(error.status);
    mt_transport_fail(transport, &error);
  }
  mt_transport_destroy(transport);
  leave_board(board);
  return code;
}

static void set_default(const char *name, const char *value) { setenv(name, value, 0); }

/** The launcher's command line: its own words, then the program and its arguments. */
static void compose(char **words, char *ranks, char *program, char *const *arguments) {
  bool openmpi = strcmp(mt_transport_mpi_library(), "openmpi") == 0;
  static char quiet[] = "-q", bind[] = "--bind-to", none[] = "none", count[] = "-n";
  static char openmpi_name[] = "mpirun.openmpi", mpich_name[] = "mpiexec.mpich";
  int n = 0;
  words[n++] = openmpi ? openmpi_name : mpich_name;
  if (openmpi) words[n++] = quiet, words[n++] = bind, words[n++] = none;
  words[n++] = count, words[n++] = ranks, words[n++] = program;
  for (int i = 0; arguments[i] != NULL && n < ARGUMENTS_MOST - 1; i++) words[n++] = arguments[i];
  words[n] = NULL;
}

static void set_environment(int32_t ranks) {
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  char threads[24];
  snprintf(threads, sizeof threads, "%ld", cores > ranks ? cores / ranks : 1);
  set_default("OMP_NUM_THREADS", threads);
  set_default("OMPI_MCA_rmaps_base_oversubscribe", "1");
  set_default("OMPI_MCA_btl_vader_eager_limit", "32768"); /* 4 KiB messages: 0.5 instead of 4 us */
  if (ranks > cores) set_default("OMPI_MCA_mpi_yield_when_idle", "1");
  set_default("UCX_LOG_LEVEL", "fatal"); /* MPICH's transport speaks when a job ends early, at length */
  set_default("UCX_HANDLE_ERRORS", "none");
  if (geteuid() == 0) {
    set_default("OMPI_ALLOW_RUN_AS_ROOT", "1");
    set_default("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
  }
  if (isatty(STDERR_FILENO)) set_default("MOTET_TERMINAL", "1");
}

static void become_launcher(int32_t ranks, char *const *arguments) {
  char count[16], program[PATH_SIZE], *words[ARGUMENTS_MOST];
  snprintf(count, sizeof count, "%d", (int)ranks);
  ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
  if (length < 0) _exit(127);
  program[length] = 0;
  compose(words, count, program, arguments);
  set_environment(ranks);
  setpgid(0, 0); /* the terminal's Ctrl-C is for whoever started the launcher; it hands it on */
  prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0);
  FILE *nothing = freopen("/dev/null", "r", stdin);
  (void)nothing;
  execvp(words[0], words);
  static char mpirun[] = "mpirun";
  words[0] = mpirun;
  execvp(words[0], words);
  fprintf(stderr, "motet: neither mpirun nor its library's own launcher can be started: %s\n", strerror(errno));
  _exit(127);
}

/** Watches the launcher and the ranks, as far as they run on this machine. */
typedef struct watch {
  int epoll;  /* ends, in the order in which they came to pass */
  int *lines; /* [ranks + 1] a line to each rank, and the launcher's process; NOT_OPENED, ENDED */
  int32_t ranks;
  int32_t victim;       /* the first rank to end without having come to its end; -1: none seen */
  double stopped_since; /* some ranks are stopped and some are not; 0: not so */
  bool was_stopped;     /* the victim was, and has been ended for it */
} watch;

enum { NOT_OPENED = -1, ENDED = -2 };

static void follow(watch *this, int32_t index, int file) {
  struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)index};
  this->lines[index] = NOT_OPENED;
  if (file >= 0 && epoll_ctl(this->epoll, EPOLL_CTL_ADD, file, &event) == 0)
    this->lines[index] = file;
  else if (file >= 0)
    close(file);
}

static void open_lines(watch *this, const char *board) {
  for (int32_t rank = 0; rank < this->ranks; rank++) {
    char line[PATH_SIZE];
    name_line(board, rank, line);
    follow(this, rank, mkfifo(line, 0600) == 0 ? open(line, O_RDONLY | O_NONBLOCK | O_CLOEXEC) : -1);
  }
}

static void close_lines(watch *this, const char *board) {
  for (int32_t i = 0; i <= this->ranks; i++)
    if (this->lines[i] >= 0) close(this->lines[i]);
  for (int32_t rank = 0; rank < this->ranks; rank++) {
    char line[PATH_SIZE];
    name_line(board, rank, line);
    unlink(line);
  }
}

static bool has_begun(mt_board *board, int32_t rank) { return mt_board_at(board, rank)->process != 0; }

static void note_end(watch *this, int32_t index, mt_board *board) {
  if (index < this->ranks && this->victim < 0 && mt_board_at(board, index)->state < MT_BOARD_FINISHED)
    this->victim = index;
  close(this->lines[index]); /* and with it out of the epoll */
  this->lines[index] = ENDED;
}

/** Whether SIGSTOP or a terminal holds the process; a debugger that does has another letter. */
static bool is_stopped(pid_t process) {
  char path[64], text[512];
  snprintf(path, sizeof path, "/proc/%ld/stat", (long)process);
  FILE *file = fopen(path, "re");
  if (file == NULL) return false;
  size_t length = fread(text, 1, sizeof text - 1, file);
  fclose(file);
  text[length] = 0;
  const char *name_end = strrchr(text, ')'); /* a name may have brackets of its own */
  return name_end != NULL && strncmp(name_end, ") T", 3) == 0;
}

/** A process below @p parent that is stopped, at most so many generations down; 0: none. */
static pid_t find_stopped(pid_t parent, int generations) {
  char path[64];
  long child;
  pid_t stopped = 0;
  snprintf(path, sizeof path, "/proc/%ld/task/%ld/children", (long)parent, (long)parent);
  FILE *file = generations > 0 ? fopen(path, "re") : NULL;
  if (file == NULL) return 0;
  while (stopped == 0 && fscanf(file, "%ld", &child) == 1)
    stopped = is_stopped((pid_t)child) ? (pid_t)child : find_stopped((pid_t)child, generations - 1);
  fclose(file);
  return stopped;
}

/** Others wait in vain for a rank that is stopped, and it cannot say so: it is ended. Where all are stopped,
 * someone halts the job. A rank that was stopped before it had written its process number is one of the launcher's
 * children or, under MPICH, of their children. */
static void end_stopped(watch *this, pid_t launcher, mt_board *board) {
  int32_t stopped = -1, running = 0;
  bool absent = false;
  for (int32_t rank = 0; rank < this->ranks; rank++) absent |= !has_begun(board, rank);
  for (int32_t rank = this->ranks - 1; rank >= 0; rank--) {
    if (this->lines[rank] < 0 || !has_begun(board, rank)) continue;
    if (is_stopped(mt_board_at(board, rank)->process))
      stopped = rank;
    else
      running++;
  }
  pid_t process = stopped >= 0 ? mt_board_at(board, stopped)->process : 0;
  if (stopped < 0 && absent && !is_stopped(launcher)) {
    process = find_stopped(launcher, 2);
    running++;
  }
  double now = mt_clock_seconds();
  if (process == 0 || running == 0)
    this->stopped_since = 0;
  else if (this->stopped_since <= 0)
    this->stopped_since = now;
  else if (now - this->stopped_since > STOPPED_SECONDS && this->victim < 0) {
    this->victim = stopped;
    this->was_stopped = stopped >= 0;
    kill(process, SIGKILL);
  }
}

/** Ranks whose launcher was killed find out by themselves, most of them: who has not after a while is ended. */
static void end_orphans(watch *this, mt_board *board) {
  struct epoll_event event;
  double begin = mt_clock_seconds();
  for (bool alive = true; alive && mt_clock_seconds() - begin < ORPHANED_SECONDS;) {
    alive = false;
    for (int32_t rank = 0; rank < this->ranks; rank++) alive |= this->lines[rank] >= 0 && has_begun(board, rank);
    if (alive && epoll_wait(this->epoll, &event, 1, 50) == 1) note_end(this, (int32_t)event.data.u32, board);
  }
  /* A line that is open still is held by the process of that number. */
  for (int32_t rank = 0; rank < this->ranks; rank++)
    if (this->lines[rank] >= 0 && has_begun(board, rank)) kill(mt_board_at(board, rank)->process, SIGKILL);
}

/**
 * Waits for the launcher's end. When one rank dies the launcher ends the others, perhaps before this process gets
 * to run: the kernel keeps the order of the ends, and one at a time is taken from it.
 */
static int wait_for_launcher(watch *this, pid_t child, mt_board *board) {
  int status = 0;
  follow(this, this->ranks, (int)syscall(SYS_pidfd_open, child, 0));
  struct epoll_event event;
  while (waitpid(child, &status, WNOHANG) <= 0) {
    end_stopped(this, child, board);
    if (epoll_wait(this->epoll, &event, 1, 100) == 1) note_end(this, (int32_t)event.data.u32, board);
  }
  while (epoll_wait(this->epoll, &event, 1, 0) == 1) note_end(this, (int32_t)event.data.u32, board);
  end_orphans(this, board);
  return status;
}

/** Ranks that have not begun, as in "1, 3". */
static int32_t list_absent(const watch *seen, mt_board *board, mt_text *text) {
  int32_t count = 0;
  for (int32_t rank = 0; rank < seen->ranks; rank++)
    if (!has_begun(board, rank)) mt_text_append(text, count++ == 0 ? "%d" : ", %d", (int)rank);
  return text->failed ? 0 : count;
}

/** The launcher's end without a word from a rank: ranks that have not begun may be those that were killed. */
static void tell_absent(const watch *seen, mt_board *board, int code, motet_error *error) {
  mt_text absent = {0};
  int32_t count = list_absent(seen, board, &absent);
  if (count == 0)
    mt_error_set(error, MOTET_ERROR_FAILED, "the ranks could not be started (launcher's exit code %d)", code);
  else if (count == 1)
    mt_error_set(error, MOTET_ERROR_FAILED,
                 "rank %s could not be started, or was killed or stopped before it began (launcher's exit code %d)",
                 absent.data, code);
  else
    mt_error_set(
        error, MOTET_ERROR_FAILED,
        "ranks %s have not begun: one could not be started, or was killed or stopped (launcher's exit code %d)",
        absent.data, code);
  mt_text_free(&absent);
}

/** A rank was the first to end of those that had begun; one that had not may have been killed before. */
static void tell_victim(const watch *seen, int32_t victim, int status, mt_board *board, motet_error *error) {
  char place[256];
  mt_text absent = {0};
  mt_board_describe(board, victim, place, sizeof place);
  if (WIFSIGNALED(status)) /* and of ranks that end with it any may be first: the place is no more than a hint */
    mt_error_set(error, MOTET_ERROR_FAILED,
                 "the ranks' launcher was ended by signal %d (%s), and the job with it: %s", WTERMSIG(status),
                 strsignal(WTERMSIG(status)), place);
  else if (seen->was_stopped)
    mt_error_set(error, MOTET_ERROR_FAILED,
                 "a rank was stopped (SIGSTOP) for more than %g seconds, and the job with it: %s", STOPPED_SECONDS,
                 place);
  else if (list_absent(seen, board, &absent) > 0)
    mt_error_set(error, MOTET_ERROR_FAILED,
                 "a rank was killed, and the job with it: one that had not begun, of rank %s, or %s", absent.data,
                 place);
  else
    mt_error_set(error, MOTET_ERROR_FAILED, "a rank was killed, and the job with it: %s", place);
  mt_text_free(&absent);
}

/** What to say and return when the launcher has ended. */
static int judge(int status, const watch *seen, mt_board *board, const char *output_dir, bool json) {
  int32_t missed = mt_board_missed(board), victim = missed >= 0 ? missed : seen->victim;
  int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (mt_board_reported(board) >= 0) return mt_board_reported(board);
  if (code == 0) return code;
  if (signals_seen > 0) return MT_EXIT_INTERRUPTED;
  motet_error error;
  motet_error_clear(&error);
  if (victim < 0) victim = mt_board_victim(board);
  if (victim >= 0) {
    tell_victim(seen, victim, status, board, &error);
    mt_run_failure_write(output_dir, &error);
  } else {
    tell_absent(seen, board, code, &error);
  }
  return mt_cli_fail(&error, json);
}

static int start_ranks(int32_t ranks, const char *output_dir, char *const *arguments,
                       const mt_launch_options *how) {
  motet_error error;
  mt_board *board;
  char path[] = "/dev/shm/motet-XXXXXX";
  int file = mkstemp(path);
  if (file < 0) {
    mt_error_set(&error, MOTET_ERROR_IO, "the ranks' board cannot be made: %s", strerror(errno));
    return mt_cli_fail(&error, how->json);
  }
  close(file);
  int code = MT_EXIT_FAILURE;
  if (mt_board_open(path, ranks, &error, &board) != MOTET_OK) {
    code = mt_cli_fail(&error, how->json);
  } else {
    setenv(BOARD_VARIABLE, path, 1);
    fflush(NULL);
    watch this = {.epoll = epoll_create1(EPOLL_CLOEXEC),
                  .lines = calloc((size_t)ranks + 1, sizeof *this.lines),
                  .ranks = ranks,
                  .victim = -1};
    pid_t child = -1;
    if (this.lines != NULL && this.epoll >= 0) {
      this.lines[ranks] = NOT_OPENED;
      open_lines(&this, path);
      child = fork();
    }
    if (child == 0) become_launcher(ranks, arguments);
    if (child > 0) {
      launcher_process = child;
      asks_first = how->saves;
      handle_signals();
      int status = wait_for_launcher(&this, child, board);
      launcher_process = 0;
      code = judge(status, &this, board, output_dir, how->json);
    } else {
      mt_error_set(&error, MOTET_ERROR_FAILED, "no process could be started: %s", strerror(errno));
      code = mt_cli_fail(&error, how->json);
    }
    if (this.lines != NULL && this.epoll >= 0) close_lines(&this, path);
    if (this.epoll >= 0) close(this.epoll);
    free(this.lines);
    mt_board_close(board);
  }
  unlink(path);
  return code;
}

int mt_launch(const mt_job *job, char *const *arguments, const mt_launch_options *options) {
  int32_t ranks = (int32_t)(job->parallel.pipeline * job->parallel.data * job->parallel.context);
  bool launched = mt_transport_launched(NULL, NULL);
  if (launched || ranks == 1) return run_rank(job, launched, options);
  return start_ranks(ranks, job->output_dir, arguments, options);
}
