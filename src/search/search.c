#include "search/search.h"

#include "base/clock.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Candidates judged between two looks at the best: a constant, so that the answer does not depend on the threads.
 */
enum { BATCH = 16, THREADS_MAX = 256 };
static const mt_search_effort quick = {.order_seconds = MT_ORDER_QUICK};

/* What one evaluation leaves. */
typedef struct verdict {
  motet_status status;
  motet_error error;
  double seconds, bytes;
} verdict;

typedef struct batch {
  const mt_search_space *space;
  const mt_search_candidate *candidates[BATCH];
  int32_t count, next;
  double limit; /* seconds: slower ones are neither the best nor the runner-up */
  verdict verdicts[BATCH];
  pthread_mutex_t lock;
} batch;

static void judge(const batch *b, int32_t index, mt_arena *arena, verdict *v) {
  mt_search_plan plan;
  const mt_search_effort effort = {.order_seconds = MT_ORDER_QUICK, .limit = b->limit};
  mt_arena_reset(arena);
  motet_error_clear(&v->error);
  v->status = mt_search_evaluate(arena, b->space, b->candidates[index], &effort, &v->error, &plan);
  v->seconds = v->status == MOTET_OK ? plan.seconds : INFINITY;
  v->bytes = v->status == MOTET_OK ? mt_search_plan_bytes(b->space->problem, &plan) : INFINITY;
}

static void *work(void *context) {
  batch *b = context;
  mt_arena *arena = mt_arena_create();
  for (;;) {
    pthread_mutex_lock(&b->lock);
    int32_t index = b->next < b->count ? b->next++ : -1;
    pthread_mutex_unlock(&b->lock);
    if (index < 0) break;
    if (arena != NULL)
      judge(b, index, arena, &b->verdicts[index]);
    else
      b->verdicts[index].status = mt_error_memory(&b->verdicts[index].error, 0, "a candidate");
  }
  mt_arena_destroy(arena);
  return NULL;
}

/* This thread works too, so that a system without more of them still answers. */
static void judge_all(batch *b, int32_t threads) {
  pthread_t others[THREADS_MAX];
  int32_t started = 0;
  b->next = 0;
  while (started + 1 < threads && started + 1 < b->count && pthread_create(&others[started], NULL, work, b) == 0)
    started++;
  work(b);
  for (int32_t i = 0; i < started; i++) pthread_join(others[i], NULL);
}

typedef struct run {
  const mt_search_problem *problem;
  const mt_search_options *options;
  const mt_search_space *space;
  mt_search_result *result;
  motet_error *error;
  double begin, best_seconds;
} run;

static void take(run *r, const mt_search_candidate *candidate, const verdict *v) {
  mt_search_result *result = r->result;
  result->evaluated++;
  if (v->status != MOTET_OK) return;
  if (v->bytes > r->problem->memory_bytes) {
    if (v->bytes < result->least_bytes) {
      result->least_bytes = v->bytes;
      result->lightest = *candidate;
      result->lightest_known = true;
    }
    return;
  }
  if (v->seconds < r->best_seconds) {
    if (result->found) {
      result->runner_up = result->best;
      result->runner_up_seconds = r->best_seconds;
    }
    result->best = *candidate;
    result->found = true;
    r->best_seconds = v->seconds;
  } else if (v->seconds < result->runner_up_seconds) {
    result->runner_up = *candidate;
    result->runner_up_seconds = v->seconds;
  }
}

/* Errors that are no answer about a candidate. */
static bool is_fatal(motet_status status) {
  return status != MOTET_OK && status != MOTET_ERROR_ILLEGAL && status != MOTET_ERROR_LIMIT;
}

/* The next candidates that their bounds do not exclude. Returns where to go on. */
static int32_t fill_batch(const run *r, batch *b, int32_t at) {
  b->count = 0;
  b->limit = isinf(r->result->runner_up_seconds) ? 0.0 : r->result->runner_up_seconds;
  for (; at < r->space->count && b->count < BATCH; at++)
    if (r->space->candidates[at].bound < r->best_seconds) b->candidates[b->count++] = &r->space->candidates[at];
  return at;
}

/* No candidate from @p at on, and none judged so far, is faster. */
static double rest_bound(const run *r, int32_t at) {
  double least = r->best_seconds;
  for (; at < r->space->count; at++) least = fmin(least, r->space->candidates[at].bound);
  return least;
}

static motet_status judge_candidates(run *r, int32_t threads) {
  mt_search_result *result = r->result;
  const mt_search_space *space = r->space;
  batch *b = calloc(1, sizeof *b);
  if (b == NULL) return mt_error_memory(r->error, sizeof *b, "a search");
  pthread_mutex_init(&b->lock, NULL);
  b->space = space;
  double limit = r->options->time_limit > 0 ? r->options->time_limit : r->problem->time_limit;
  motet_status status = MOTET_OK;
  result->end = "complete";
  int32_t at = 0;
  while (at < space->count && status == MOTET_OK) {
    if (r->options->stop != NULL && r->options->stop(r->options->context)) result->end = "interrupted";
    if (limit > 0 && mt_clock_seconds() - r->begin > limit) result->end = "time limit";
    if (strcmp(result->end, "complete") != 0 && at > 0) break; /* listing alone may take so long */
    at = fill_batch(r, b, at);
    judge_all(b, threads);
    for (int32_t i = 0; i < b->count && status == MOTET_OK; i++) {
      if (is_fatal(b->verdicts[i].status)) {
        status = b->verdicts[i].status;
        if (r->error != NULL) *r->error = b->verdicts[i].error;
      }
      take(r, b->candidates[i], &b->verdicts[i]);
    }
    mt_search_progress progress = {result->evaluated, space->count, r->best_seconds, rest_bound(r, at)};
    if (r->options->progress != NULL) r->options->progress(r->options->context, &progress);
  }
  result->bound = rest_bound(r, at);
  result->judged_seconds = r->best_seconds;
  pthread_mutex_destroy(&b->lock);
  free(b);
  return status;
}

/* The best candidate on other drawings of the data. */
static motet_status try_seeds(run *r) {
  mt_search_result *result = r->result;
  int32_t seeds = r->options->seeds < MT_SEARCH_SEEDS_MAX ? r->options->seeds : MT_SEARCH_SEEDS_MAX;
  if (r->problem->trace == NULL && r->problem->distribution == NULL) return MOTET_OK;
  motet_status status = MOTET_OK;
  mt_search_problem only = *r->problem;
  only.microbatch = (mt_search_range){1, {result->best.microbatch}};
  /* Nothing is listed: the data alone change. */
  only.tensor = (mt_search_range){1, {0}};
  for (int32_t i = 0; i < seeds && status == MOTET_OK; i++) {
    mt_arena *arena = mt_arena_create();
    if (arena == NULL) return mt_error_memory(r->error, 0, "another drawing");
    mt_workload_samples data;
    mt_search_space space;
    mt_search_plan plan;
    status = mt_search_data_draw(r->problem, r->problem->seed + 1 + i, arena, r->error, &data);
    if (status == MOTET_OK) status = mt_search_space_make(arena, &only, &data, r->error, &space);
    mt_search_candidate best = result->best;
    if (status == MOTET_OK) status = mt_search_space_adopt(arena, &space, &best, r->error);
    if (status == MOTET_OK) status = mt_search_evaluate(arena, &space, &best, &quick, r->error, &plan);
    if (status == MOTET_OK) {
      result->seed_seconds[result->seed_count] = plan.seconds;
      result->seed_bytes[result->seed_count++] = plan.memory_bytes;
    }
    mt_arena_destroy(arena);
  }
  return status;
}

/* The plan that is handed out, with more time for its order; @p reordered: and for that of its microbatches. */
static motet_status plan_again(run *r, mt_arena *arena, double seconds, bool reordered, bool *better) {
  mt_search_result *result = r->result;
  const mt_search_effort effort = {.order_seconds = seconds, .reordered = reordered, .keep = true};
  mt_search_plan plan;
  motet_status status = mt_search_evaluate(arena, r->space, &result->best, &effort, r->error, &plan);
  *better = status == MOTET_OK && mt_search_plan_bytes(r->problem, &plan) <= r->problem->memory_bytes &&
            (result->plan.derivation == NULL || plan.seconds < result->plan.seconds);
  if (*better) mt_plan_free(&result->plan.plan);
  if (*better)
    result->plan = plan;
  else if (status == MOTET_OK)
    mt_plan_free(&plan.plan);
  return status;
}

/* The order's search has more time for the one plan that is handed out, with microbatches as they are and as a
 * climb orders them; the quick plan stays where that does not help, or memory does not hold it. */
static motet_status plan_best(run *r, mt_arena *arena) {
  mt_search_result *result = r->result;
  bool better;
  motet_status status = plan_again(r, arena, 0.0, false, &better);
  if (status == MOTET_OK) status = plan_again(r, arena, 0.0, true, &better);
  if (status == MOTET_OK && (result->plan.derivation == NULL || result->plan.seconds > r->best_seconds))
    status = plan_again(r, arena, MT_ORDER_QUICK, false, &better);
  if (status == MOTET_OK && result->plan.seconds < result->bound) result->bound = result->plan.seconds;
  return status;
}

/* What the candidate would need that weights and states alone exclude; another one may need less. */
static motet_status weigh_lightest(run *r, mt_arena *arena) {
  mt_search_plan plan;
  const mt_search_candidate *lightest = &r->space->lightest;
  if (isinf(r->space->least_bytes)) return MOTET_OK;
  motet_status status = mt_search_evaluate(arena, r->space, lightest, &quick, r->error, &plan);
  if (status == MOTET_ERROR_ILLEGAL) return MOTET_OK;
  if (status != MOTET_OK || mt_search_plan_bytes(r->problem, &plan) >= r->result->least_bytes) return status;
  r->result->least_bytes = plan.memory_bytes;
  r->result->lightest = *lightest;
  r->result->lightest_known = true;
  return MOTET_OK;
}

motet_status mt_search_run_problem(mt_arena *arena, const mt_search_problem *problem,
                                   const mt_search_options *options, mt_search_space *space, motet_error *error,
                                   mt_search_result *result) {
  *result = (mt_search_result){.runner_up_seconds = INFINITY, .end = "complete"};
  run r = {.problem = problem,
           .options = options,
           .space = space,
           .result = result,
           .error = error,
           .begin = mt_clock_seconds(),
           .best_seconds = INFINITY};
  motet_status status = mt_search_space_make(arena, problem, &problem->data, error, space);
  if (status != MOTET_OK) return status;
  result->least_bytes = INFINITY;
  result->candidates = space->count;
  result->excluded = space->excluded;
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  int32_t threads = options->threads > 0 ? options->threads : cores > 0 ? (int32_t)cores : 1;
  status = judge_candidates(&r, threads < THREADS_MAX ? threads : THREADS_MAX);
  if (status == MOTET_OK && result->found) status = plan_best(&r, arena);
  if (status == MOTET_OK && !result->found) status = weigh_lightest(&r, arena);
  if (status == MOTET_OK && result->found) status = try_seeds(&r);
  result->seconds = mt_clock_seconds() - r.begin;
  return status;
}
