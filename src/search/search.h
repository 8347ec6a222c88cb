/** @file
 * The search: candidates in the order of their bounds, each judged by the simulation of its proven program, until
 * no bound is below the best. All cores; the same answer whatever their number. See docs/search.md.
 */
#ifndef MT_SEARCH_SEARCH_H
#define MT_SEARCH_SEARCH_H

#include "search/candidate.h"

typedef struct mt_search_progress {
  int64_t evaluated, candidates;
  double best_seconds; /* infinite: none fits yet */
  double bound;        /* no candidate that is left is faster */
} mt_search_progress;

typedef struct mt_search_options {
  int32_t threads;             /* 0: one a core */
  double time_limit;           /* seconds; 0: none */
  int32_t seeds;               /* drawings of the data that the best plan is tried on, beside its own */
  bool (*stop)(void *context); /* asked behind each batch; or NULL */
  void (*progress)(void *context, const mt_search_progress *progress); /* or NULL */
  void *context;
} mt_search_options;

enum { MT_SEARCH_SEEDS_MAX = 16 };

typedef struct mt_search_result {
  bool found;
  const char *end;                         /* "complete", "time limit" or "interrupted" */
  int64_t candidates, evaluated, excluded; /* excluded: by the memory of weights and states alone */
  mt_search_candidate best, runner_up;
  mt_search_plan plan;
  double judged_seconds;    /* of the best when candidates were compared: before its order was improved */
  double runner_up_seconds; /* infinite: there is none */
  double bound;             /* no candidate is faster */
  double seconds;           /* that the search took; not part of the answer */
  int32_t seed_count;
  double seed_seconds[MT_SEARCH_SEEDS_MAX], seed_bytes[MT_SEARCH_SEEDS_MAX];
  double least_bytes;           /* where nothing fits: the least memory that some candidate needs */
  mt_search_candidate lightest; /* that candidate, if it was evaluated */
  bool lightest_known;
} mt_search_result;

/** Searches. A problem for which nothing fits is no error: `found` is false. Everything lives in @p arena but the
 * plan's program: mt_plan_free(&result->plan.plan). */
motet_status mt_search_run_problem(mt_arena *arena, const mt_search_problem *problem,
                                   const mt_search_options *options, mt_search_space *space, motet_error *error,
                                   mt_search_result *result);

#endif
