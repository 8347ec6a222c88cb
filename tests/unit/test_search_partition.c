/* Uneven pipelines: the partition found is the best of all, judged by the simulation of the derived programs. */
#include "algebra/derive.h"
#include "base/random.h"
#include "order/plan.h"
#include "search/partition.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { LAYERS_MAX = 10 };

typedef struct chain {
  int32_t layers, frozen; /* the first `frozen` do not train */
  double forward[LAYERS_MAX], backward[LAYERS_MAX];
} chain;

/* The step's seconds by derivation, program, verifier and event simulation. */
static double by_program(const chain *c, const mt_partition_request *r, const int32_t *split) {
  mt_arena *arena = mt_arena_create();
  motet_error error;
  mt_model *model;
  mt_schedule *schedule;
  mt_derivation *d;
  char text[64];
  snprintf(text, sizeof text, "<1f1b(virtual=%d)>", r->chunks);
  assert_int_equal(mt_model_abstract(arena, 1, (const char *[]){"m"}, &c->layers, (bool[]){true}, &error, &model),
                   0);
  for (int32_t l = 0; l < c->layers; l++) model->layers[l].trainable = l >= c->frozen;
  assert_int_equal(mt_schedule_parse(arena, text, &error, &schedule), MOTET_OK);
  mt_derive_request request = {.model = model,
                               .schedule = schedule,
                               .ranks = r->ranks,
                               .microbatches = r->microbatches,
                               .split = split,
                               .split_count = r->ranks * r->chunks};
  if (mt_derive(arena, &request, &error, &d) != MOTET_OK) fail_msg("%s", error.text);
  mt_cost_table costs = {.links.local = {.latency_seconds = r->lag}};
  for (int k = MT_COST_FORWARD; k <= MT_COST_BACKWARD_X; k++)
    costs.seconds[k] = (mt_cost_values){MT_ARENA_NEW(arena, double, d->stage_count), 1, 0};
  for (int32_t s = 0; s < d->stage_count; s++)
    for (int32_t l = d->stages[s].layer_begin; l < d->stages[s].layer_end; l++) {
      costs.seconds[MT_COST_FORWARD].values[s] += c->forward[l];
      costs.seconds[MT_COST_BACKWARD].values[s] += c->backward[l];
      costs.seconds[MT_COST_BACKWARD_X].values[s] += c->backward[l];
    }
  mt_plan_replica replica = {.derivation = d, .costs = &costs};
  mt_plan_options options = {.order = {.search_seconds = -1}};
  mt_plan plan;
  if (mt_plan_make(arena, &replica, 1, &options, &error, &plan) != MOTET_OK) fail_msg("%s", error.text);
  double makespan = plan.simulation->makespan;
  mt_plan_free(&plan);
  mt_arena_destroy(arena);
  return makespan;
}

static double best_of_all(const chain *c, const mt_partition_request *r, int32_t *split, int32_t stage,
                          int32_t left) {
  int32_t stages = r->ranks * r->chunks;
  if (stage == stages - 1) {
    split[stage] = left;
    return left < r->least ? INFINITY : by_program(c, r, split);
  }
  double best = INFINITY;
  for (int32_t count = r->least; count <= left; count++) {
    split[stage] = count;
    best = fmin(best, best_of_all(c, r, split, stage + 1, left - count));
  }
  return best;
}

static void draw(mt_random *random, chain *c) {
  c->layers = 2 + (int32_t)mt_random_below(random, 5);
  c->frozen = mt_random_below(random, 2) == 0 ? 0 : (int32_t)mt_random_below(random, (uint64_t)c->layers);
  for (int32_t l = 0; l < c->layers; l++) {
    c->forward[l] = (double)(1 + mt_random_below(random, 16)) / 8;
    c->backward[l] = l < c->frozen ? 0.0 : (double)(1 + mt_random_below(random, 32)) / 8;
  }
}

static void test_equals_brute_force(void **state) {
  (void)state;
  mt_random random = mt_random_stream(11, "partition");
  for (int turn = 0; turn < 60; turn++) {
    chain c;
    draw(&random, &c);
    mt_partition_request request = {.layers = c.layers,
                                    .ranks = 2 + (int32_t)mt_random_below(&random, 2),
                                    .chunks = 1,
                                    .microbatches = 1 + (int32_t)mt_random_below(&random, 6),
                                    .forward = c.forward,
                                    .backward = c.backward,
                                    .first_trainable = c.frozen,
                                    .lag = mt_random_below(&random, 2) == 0 ? 0.0 : 0.25};
    mt_arena *arena = mt_arena_create();
    motet_error error;
    mt_partition found;
    int32_t split[LAYERS_MAX];
    if (mt_partition_find(arena, &request, &error, &found) != MOTET_OK) fail_msg("%s", error.text);
    double best = best_of_all(&c, &request, split, 0, c.layers);
    assert_true(found.proven);
    if (fabs(found.seconds - best) > 1e-9) fail_msg("turn %d: found %g, best %g", turn, found.seconds, best);
    if (fabs(by_program(&c, &request, found.split) - best) > 1e-9) fail_msg("turn %d: the split is another", turn);
    assert_true(found.bound <= best * (1 + 1e-12));
    mt_arena_destroy(arena);
  }
}

/* What no order of an open body goes below: ranks' work behind the way to their first slab, and the way of one
 * microbatch, on which no weight gradient lies. */
static double open_bound(const chain *c, const mt_partition_request *r, const int32_t *split) {
  double work[8] = {0}, way = 0, before = 0;
  for (int32_t s = 0, l = 0; s < r->ranks * r->chunks; s++) {
    int32_t rank = s < r->ranks ? s : r->folded ? 2 * r->ranks - 1 - s : s - r->ranks;
    if (s < r->ranks) work[rank] += before;
    for (int32_t end = l + split[s]; l < end; l++) {
      work[rank] += r->microbatches * (c->forward[l] + c->backward[l]);
      way += c->forward[l] + c->backward[l] / 2;
      before += c->forward[l];
    }
  }
  for (int32_t rank = 0; rank < r->ranks; rank++) way = fmax(way, work[rank]);
  return way;
}

static double least_open(const chain *c, const mt_partition_request *r, int32_t *split, int32_t stage,
                         int32_t left) {
  split[stage] = left;
  if (stage == r->ranks * r->chunks - 1) return open_bound(c, r, split);
  double best = INFINITY;
  for (int32_t count = 0; count <= left; count++) {
    split[stage] = count;
    best = fmin(best, least_open(c, r, split, stage + 1, left - count));
  }
  return best;
}

/* Where the order is open, the partition's bound is counted right, and near the least of all: a climb, no proof. */
static void test_open(void **state) {
  (void)state;
  mt_random random = mt_random_stream(14, "partition");
  double found_sum = 0, least_sum = 0;
  for (int turn = 0; turn < 60; turn++) {
    chain c;
    draw(&random, &c);
    c.frozen = 0;
    double weight[LAYERS_MAX];
    for (int32_t l = 0; l < c.layers; l++) {
      c.backward[l] = fmax(c.backward[l], 0.25);
      weight[l] = c.backward[l] / 2;
    }
    bool folded = mt_random_below(&random, 2) == 0;
    mt_partition_request request = {.layers = c.layers,
                                    .ranks = 2,
                                    .chunks = folded ? 2 : 1,
                                    .microbatches = 1 + (int32_t)mt_random_below(&random, 6),
                                    .held = 2,
                                    .folded = folded,
                                    .weight = weight,
                                    .forward = c.forward,
                                    .backward = c.backward};
    mt_arena *arena = mt_arena_create();
    motet_error error;
    mt_partition found;
    int32_t split[LAYERS_MAX];
    if (mt_partition_find(arena, &request, &error, &found) != MOTET_OK) fail_msg("%s", error.text);
    double counted = open_bound(&c, &request, found.split), least = least_open(&c, &request, split, 0, c.layers);
    if (fabs(found.seconds - counted) > 1e-9) fail_msg("turn %d: says %g, is %g", turn, found.seconds, counted);
    assert_true(found.bound <= least * (1 + 1e-9));
    found_sum += counted;
    least_sum += least;
    mt_arena_destroy(arena);
  }
  if (found_sum > 1.03 * least_sum) fail_msg("%.1f%% above the least", 100 * (found_sum / least_sum - 1));
}

/* Interleaved: the recurrence is that of the program; the search is a climb, not a proof. */
static void test_interleaved(void **state) {
  (void)state;
  mt_random random = mt_random_stream(12, "partition");
  for (int turn = 0; turn < 10; turn++) {
    chain c;
    draw(&random, &c);
    mt_partition_request request = {.layers = c.layers,
                                    .ranks = 2,
                                    .chunks = 2,
                                    .microbatches = 1 + (int32_t)mt_random_below(&random, 5),
                                    .forward = c.forward,
                                    .backward = c.backward,
                                    .first_trainable = c.frozen};
    mt_arena *arena = mt_arena_create();
    motet_error error;
    mt_partition found;
    if (mt_partition_find(arena, &request, &error, &found) != MOTET_OK) fail_msg("%s", error.text);
    assert_true(fabs(by_program(&c, &request, found.split) - found.seconds) < 1e-9);
    int32_t split[LAYERS_MAX];
    double best = best_of_all(&c, &request, split, 0, c.layers);
    assert_true(found.bound <= best * (1 + 1e-12) && found.seconds >= best * (1 - 1e-12));
    mt_arena_destroy(arena);
  }
}

/* 7 equal layers on 4 ranks, the first holding the activations of four microbatches: it can have one layer alone.
 */
static void test_memory(void **state) {
  (void)state;
  double ones[8];
  int64_t fixed[8], saved[8];
  for (int l = 0; l < 8; l++) ones[l] = 1.0, fixed[l] = 10, saved[l] = 1;
  mt_partition_request request = {.layers = 7,
                                  .ranks = 4,
                                  .chunks = 1,
                                  .microbatches = 8,
                                  .forward = ones,
                                  .backward = ones,
                                  .static_bytes = fixed,
                                  .saved_bytes = saved,
                                  .memory_bytes = 27};
  mt_arena *arena = mt_arena_create();
  motet_error error;
  mt_partition found;
  /* Two layers on rank 0 take 2 * (10 + 4) = 28. */
  assert_int_equal(mt_partition_find(arena, &request, &error, &found), MOTET_OK);
  assert_int_equal(found.split[0], 1);
  int32_t even[4] = {2, 2, 2, 1};
  double seconds;
  assert_int_equal(mt_partition_seconds(arena, &request, even, &error, &seconds), MOTET_OK);
  assert_true(found.seconds >= seconds);
  for (int r = 1; r < 4; r++) assert_int_equal(found.split[r], 2);
  request.memory_bytes = 20;
  assert_int_equal(mt_partition_find(arena, &request, &error, &found), MOTET_ERROR_ILLEGAL);
  assert_non_null(strstr(error.text, "exceeds them by 8")); /* 2 * 14 - 20 */
  mt_arena_destroy(arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_equals_brute_force),
      cmocka_unit_test(test_open),
      cmocka_unit_test(test_interleaved),
      cmocka_unit_test(test_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
