/* Small pipelines against a constraint solver: where the order floor says that a makespan is the best, Z3 must find
 * no order that is one unit better; its bounds must not be above what Z3 can reach. */
#include "../order_case.h"

#include "base/random.h"

#include <z3.h>

typedef struct problem {
  Z3_context context;
  Z3_solver solver;
  Z3_sort integer;
  int32_t made;
} problem;

static Z3_ast number(problem *p, int64_t value) { return Z3_mk_int64(p->context, value, p->integer); }

static Z3_ast variable(problem *p) {
  return Z3_mk_const(p->context, Z3_mk_int_symbol(p->context, p->made++), p->integer);
}

static Z3_ast plus(problem *p, Z3_ast a, int64_t b) {
  Z3_ast sum[] = {a, number(p, b)};
  return Z3_mk_add(p->context, 2, sum);
}

/* a + length <= b */
static Z3_ast precedes(problem *p, Z3_ast a, int64_t length, Z3_ast b) {
  return Z3_mk_le(p->context, plus(p, a, length), b);
}

static Z3_ast either(problem *p, Z3_ast a, Z3_ast b) {
  Z3_ast both[] = {a, b};
  return Z3_mk_or(p->context, 2, both);
}

typedef struct task {
  Z3_ast start, rank;
  int64_t length;
  bool body;
} task;

enum { TASKS_MOST = 128 };

/* Whether an order of the derivation's work with at most @p makespan units exists. */
static Z3_lbool exists(const order_run *run, int64_t makespan) {
  const mt_derivation *d = run->derivation;
  Z3_config config = Z3_mk_config();
  problem p = {.context = Z3_mk_context(config)};
  Z3_del_config(config);
  p.integer = Z3_mk_int_sort(p.context);
  p.solver = Z3_mk_solver(p.context);
  Z3_solver_inc_ref(p.context, p.solver);
  Z3_params params = Z3_mk_params(p.context);
  Z3_params_inc_ref(p.context, params);
  Z3_params_set_uint(p.context, params, Z3_mk_string_symbol(p.context, "timeout"), 4000);
  Z3_solver_set_params(p.context, p.solver, params);
  task tasks[TASKS_MOST];
  int32_t count = 0, M = d->microbatches, forward[TASKS_MOST], backward[TASKS_MOST];
  Z3_ast zero = number(&p, 0), end = number(&p, makespan);
  for (int32_t s = 0; s < d->stage_count; s++)
    for (int32_t m = 0; m < M; m++) {
      bool body = d->stages[s].rank >= 0;
      Z3_ast rank = body ? number(&p, d->stages[s].rank) : variable(&p);
      forward[s * M + m] = count;
      tasks[count++] =
          (task){variable(&p), rank, (int64_t)mt_cost_seconds(&run->costs, MT_COST_FORWARD, s, m), body};
      backward[s * M + m] = -1;
      if (d->stages[s].gate == MT_GATE_NONE) continue;
      backward[s * M + m] = count;
      tasks[count++] =
          (task){variable(&p), rank, (int64_t)mt_cost_seconds(&run->costs, MT_COST_BACKWARD, s, m), body};
    }
  for (int32_t i = 0; i < count; i++) {
    Z3_solver_assert(p.context, p.solver, Z3_mk_le(p.context, zero, tasks[i].start));
    Z3_solver_assert(p.context, p.solver, precedes(&p, tasks[i].start, tasks[i].length, end));
    if (tasks[i].body) continue;
    Z3_solver_assert(p.context, p.solver, Z3_mk_le(p.context, zero, tasks[i].rank));
    Z3_solver_assert(p.context, p.solver, Z3_mk_lt(p.context, tasks[i].rank, number(&p, d->ranks)));
    for (int32_t j = 0; j < count; j++) { /* nothing else at that time on that rank */
      if (j == i || (!tasks[j].body && j < i)) continue;
      Z3_ast apart = either(&p, precedes(&p, tasks[i].start, tasks[i].length, tasks[j].start),
                            precedes(&p, tasks[j].start, tasks[j].length, tasks[i].start));
      if (tasks[i].rank != tasks[j].rank)
        apart = either(&p, Z3_mk_not(p.context, Z3_mk_eq(p.context, tasks[i].rank, tasks[j].rank)), apart);
      Z3_solver_assert(p.context, p.solver, apart);
    }
  }
  for (int32_t r = 0; r < d->ranks; r++) /* the bodies' sequences */
    for (int64_t i = d->body_begin[r]; i + 1 < d->body_begin[r + 1]; i++) {
      mt_event a = d->body[i], b = d->body[i + 1];
      const task *x = &tasks[(a.kind == MOTET_FWD ? forward : backward)[a.stage * M + a.microbatch]];
      const task *y = &tasks[(b.kind == MOTET_FWD ? forward : backward)[b.stage * M + b.microbatch]];
      Z3_solver_assert(p.context, p.solver, precedes(&p, x->start, x->length, y->start));
    }
  for (int32_t e = 0; e < d->edge_count; e++)
    for (int32_t m = 0; m < M; m++) {
      int32_t from = d->edges[e].from * M + m, to = d->edges[e].to * M + m;
      const task *x = &tasks[forward[from]], *y = &tasks[forward[to]];
      Z3_solver_assert(p.context, p.solver, precedes(&p, x->start, x->length, y->start));
      if (!d->edges[e].gradient) continue;
      x = &tasks[backward[to]], y = &tasks[backward[from]];
      Z3_solver_assert(p.context, p.solver, precedes(&p, x->start, x->length, y->start));
    }
  Z3_lbool answer = Z3_solver_check(p.context, p.solver);
  Z3_params_dec_ref(p.context, params);
  Z3_solver_dec_ref(p.context, p.solver);
  Z3_del_context(p.context);
  return answer;
}

static void compare(uint64_t seed, bool trainable, int32_t *decided) {
  mt_random random = mt_random_stream(seed, "order.solver");
  double encode[6], factors[3];
  order_case c = {.schedule = "<transpose, 1f1b>",
                  .ranks = 2 + (int32_t)mt_random_below(&random, 2),
                  .microbatches = 3 + (int32_t)mt_random_below(&random, trainable ? 2 : 4),
                  .trainable = trainable,
                  .encode = encode,
                  .forward = (double)(1 + mt_random_below(&random, 2)),
                  .backward = (double)(1 + mt_random_below(&random, 3)),
                  .stage_factors = factors,
                  .search_seconds = 0.02};
  c.encode_count = mt_random_below(&random, 2) == 0 ? 1 : c.microbatches;
  for (int32_t i = 0; i < 6; i++) encode[i] = (double)(1 + mt_random_below(&random, 4));
  for (int32_t i = 0; i < 3; i++) factors[i] = (double)(1 + mt_random_below(&random, 2));
  order_run run;
  case_order(&c, &run);
  int64_t found = (int64_t)(run.result.makespan + 0.5), bound = (int64_t)(run.result.bound + 0.5);
  Z3_lbool better = exists(&run, found - 1);
  if (better == Z3_L_TRUE)
    fail_msg("seed %llu, P %d, M %d, %s: %lld found (bound %lld), but there is a better order",
             (unsigned long long)seed, c.ranks, c.microbatches, trainable ? "trained" : "frozen", (long long)found,
             (long long)bound);
  /* The solver's own statement of the problem must allow what was found, or its refusals prove nothing. */
  if (better == Z3_L_FALSE && seed % 5 == 0) assert_int_not_equal(exists(&run, found), Z3_L_FALSE);
  *decided += better == Z3_L_FALSE;
  case_end(&run);
}

static void test_no_frozen_order_is_better(void **state) {
  (void)state;
  int32_t decided = 0;
  for (uint64_t seed = 1; seed <= 25; seed++) compare(seed, false, &decided);
  assert_true(decided >= 20);
}

static void test_no_trained_order_is_better(void **state) {
  (void)state;
  int32_t decided = 0;
  for (uint64_t seed = 1; seed <= 15; seed++) compare(seed, true, &decided);
  assert_true(decided >= 10);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_no_frozen_order_is_better),
      cmocka_unit_test(test_no_trained_order_is_better),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
