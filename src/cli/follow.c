#include "cli/follow.h"

#include "base/clock.h"
#include "base/text.h"
#include "cli/waiter.h"
#include "report/page_history.h"
#include "report/run.h"
#include "report/run_failure.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define HEARTBEAT_SECONDS 5.0 /* news are written so often at least */
#define LAST_SECONDS 0.5

enum {
  OVERLAP = 100,   /* steps that the news repeat: a page that looks seldom misses none */
  MOST_NEWS = 1000 /* steps in the news before the page is written again */
};

/* A run that is followed, and what its page holds. */
typedef struct followed {
  mt_report_request request;
  double interval;
  const char *news_path;
  mt_history history;
  mt_arena *arena; /* of one look */
  const char *failure;
  time_t begun;
  mt_page_live live;
  int64_t timeline_step, rewinds; /* of the page as it stands */
  mt_page_history_after after;
  double next_page, next_news; /* times */
  int64_t beat;
} followed;

static int64_t last_step(const mt_history *history) {
  return history->steps.count > 0 ? history->steps.data[history->steps.count - 1].step : 0;
}

static int64_t last_evaluation(const mt_history *history) {
  return history->evaluations.count > 0 ? history->evaluations.data[history->evaluations.count - 1].step : 0;
}

/* The run's last step is done, evaluated and saved. */
static bool is_over(const followed *of) {
  struct stat information;
  const char *last =
      mt_arena_format(of->arena, "%s/checkpoints/step-%" PRId64, of->request.path, of->history.planned_steps);
  return mt_history_is_finished(&of->history) && last != NULL && stat(last, &information) == 0;
}

/* It has failed since it is followed: what an earlier start has left does not count. */
static bool has_failed(const followed *of) {
  struct stat information;
  const char *path = mt_arena_format(of->arena, "%s/failure.json", of->request.path);
  return of->failure != NULL && path != NULL && stat(path, &information) == 0 && information.st_mtime >= of->begun;
}

static motet_status write_page(followed *of, bool last, motet_error *error) {
  double before = mt_clock_seconds();
  of->request.running = true;
  of->request.history = &of->history;
  of->live.page++;
  of->request.live = last ? NULL : &of->live;
  motet_status status = mt_report_page_write(&of->request, error);
  if (status != MOTET_OK) of->live.page--; /* the one before still stands */
  double after = mt_clock_seconds();
  of->timeline_step = mt_run_newest(of->request.path);
  of->rewinds = of->history.rewinds;
  of->after = (mt_page_history_after){last_step(&of->history), last_evaluation(&of->history)};
  of->next_page = after + 5 * (after - before); /* a large page takes no more than a sixth of the time */
  of->next_news = 0;
  return status;
}

static motet_status write_news(followed *of, motet_error *error) {
  int64_t step = last_step(&of->history) - OVERLAP, evaluation = last_evaluation(&of->history) - OVERLAP;
  mt_page_news news = {.page = of->live.page,
                       .beat = ++of->beat,
                       .finished = mt_history_is_finished(&of->history),
                       .failure = of->failure,
                       .history = &of->history,
                       .after = of->after};
  if (step < news.after.step) news.after.step = step > 0 ? step : 0;
  if (evaluation < news.after.evaluation) news.after.evaluation = evaluation > 0 ? evaluation : 0;
  mt_text text = {0};
  mt_page_news_write(&news, &text);
  motet_status status = text.failed ? mt_error_memory(error, text.length, "news of a run")
                                    : mt_file_write(of->news_path, text.data, text.length, error);
  if (status == MOTET_ERROR_IO) status = error->status = MOTET_ERROR_FAILED;
  mt_text_free(&text);
  of->next_news = mt_clock_seconds() + HEARTBEAT_SECONDS;
  return status;
}

/* One look at the run. A timeline that does not read, perhaps for being written just now, leaves the page as it is.
 */
static motet_status look(followed *of, motet_error *error, bool *over) {
  bool changed;
  const char *failure = of->failure;
  mt_arena_reset(of->arena);
  motet_status status = mt_history_update(&of->history, of->request.path, &changed, error);
  if (status == MOTET_OK) status = mt_run_failure_read(of->arena, of->request.path, error, &of->failure);
  if (status != MOTET_OK) return status;
  changed = changed || (failure == NULL) != (of->failure == NULL);
  *over = is_over(of) || has_failed(of);
  int64_t newest = of->request.step > 0 ? of->timeline_step : mt_run_newest(of->request.path);
  bool stale = newest != of->timeline_step || of->rewinds != of->history.rewinds ||
               last_step(&of->history) > of->after.step + MOST_NEWS;
  if (!*over && stale && mt_clock_seconds() >= of->next_page) {
    motet_error fault;
    motet_error_clear(&fault);
    status = write_page(of, false, &fault);
    if (status == MOTET_ERROR_FAILED || status == MOTET_ERROR_MEMORY)
      *error = fault;
    else
      status = MOTET_OK;
  }
  if (status == MOTET_OK && !*over && (changed || mt_clock_seconds() >= of->next_news))
    status = write_news(of, error);
  return status;
}

static motet_status follow(followed *of, mt_waiter *waiter, motet_error *error) {
  motet_status status = write_page(of, false, error);
  bool over = false;
  while (status == MOTET_OK) {
    status = look(of, error, &over);
    if (status != MOTET_OK || over) break;
    mt_wake wake = mt_waiter_wait(waiter, of->interval, NULL);
    if (wake == MT_WAKE_END) break;
    if (wake == MT_WAKE_STOP) raise(SIGSTOP);
  }
  if (status == MOTET_OK) status = write_page(of, true, error);
  if (status == MOTET_OK) status = write_news(of, error);
  /* Pages that are open find the last one before the news go; another Ctrl-C does without. */
  if (status == MOTET_OK) (void)mt_waiter_wait(waiter, 2 * of->interval + LAST_SECONDS, NULL);
  if (of->news_path != NULL) unlink(of->news_path);
  return status;
}

static motet_status begin(followed *of, mt_arena *arena, motet_error *error) {
  const char *name = mt_report_name(arena, of->request.output);
  of->news_path = mt_arena_format(arena, "%s.live.js", of->request.output);
  of->live.file = name != NULL ? mt_arena_format(arena, "%s.live.js", name) : NULL;
  if (of->live.file == NULL || of->news_path == NULL)
    return mt_error_memory(error, strlen(of->request.output), "a file name");
  return mt_history_update(&of->history, of->request.path, NULL, error);
}

motet_status mt_report_follow(const mt_report_request *request, double interval, motet_error *error) {
  followed of = {.request = *request,
                 .interval = interval,
                 .live = {.seconds = interval},
                 .begun = time(NULL),
                 .arena = mt_arena_create()};
  mt_arena *arena = mt_arena_create();
  mt_waiter waiter;
  motet_status status = mt_run_check(request->path, true, error);
  if (status == MOTET_OK)
    status = arena != NULL && of.arena != NULL ? begin(&of, arena, error)
                                               : mt_error_memory(error, sizeof(void *), "a report");
  if (status == MOTET_OK) status = mt_waiter_open(false, error, &waiter);
  if (status == MOTET_OK) {
    status = follow(&of, &waiter, error);
    mt_waiter_close(&waiter);
  }
  mt_history_free(&of.history);
  mt_arena_destroy(of.arena);
  mt_arena_destroy(arena);
  return status;
}
