/* The bound of an open body against all orders there are of tiny pipelines, against the orders of every skeleton
 * that places the same work alike, and against what one rank has to do as the closed formulas state it. */
#include "../order_case.h"

#include "base/random.h"
#include "order/open_bound.h"

enum { TASKS_MOST = 64, NEEDS_MOST = 3, RANKS_MOST = 8, CASES = 180, LOOKS_MOST = 60000 };

/* ---- costs ---- */

static const char *const schedules[] = {"<zb1p>", "<zb2p>", "<fold>", "<zbv>", "<vhalf>", "<vmin>", "<dualpipev>"};
enum { SCHEDULES = sizeof schedules / sizeof *schedules, FOLD = 2 };

/* Whole seconds, 1 to 4; the microbatches are alike or not. The whole backward is its halves. */
static void draw_costs(order_run *run, mt_random *random, bool alike) {
  const mt_derivation *d = run->derivation;
  double *forward = case_table(run->arena, &run->costs, MT_COST_FORWARD, d);
  double *whole = case_table(run->arena, &run->costs, MT_COST_BACKWARD, d);
  double *input = case_table(run->arena, &run->costs, MT_COST_BACKWARD_X, d);
  double *weight = case_table(run->arena, &run->costs, MT_COST_BACKWARD_W, d);
  for (int32_t s = 0; s < d->stage_count; s++)
    for (int32_t m = 0; m < d->microbatches; m++) {
      int64_t i = (int64_t)s * d->microbatches + m;
      bool copy = alike && m > 0;
      forward[i] = copy ? forward[i - 1] : (double)(1 + mt_random_below(random, 4));
      input[i] = copy ? input[i - 1] : (double)(1 + mt_random_below(random, 4));
      weight[i] = copy ? weight[i - 1] : (double)(1 + mt_random_below(random, 4));
      whole[i] = input[i] + weight[i];
    }
}

static double bound_of(const order_run *run) {
  motet_error error;
  double bound = 0.0;
  if (mt_order_open_bound(run->arena, run->derivation, &run->costs, &run->options, &error, &bound) != MOTET_OK)
    fail_msg("%s", error.text);
  return bound;
}

/* ---- all orders ---- */

typedef struct task {
  int32_t rank;
  double length, way; /* way: the longest behind its start */
  int32_t need[NEEDS_MOST], needs;
} task;

typedef struct puzzle {
  task tasks[TASKS_MOST];
  int32_t count, ranks;
  double lag, end[TASKS_MOST], clock[RANKS_MOST], left[RANKS_MOST];
  double best;
  int64_t looks;
} puzzle;

static double later(double a, double b) { return a > b ? a : b; }

static int32_t add_task(puzzle *p, int32_t rank, double length, int32_t a, int32_t b) {
  task *t = &p->tasks[p->count];
  *t = (task){.rank = rank, .length = length};
  if (a >= 0) t->need[t->needs++] = a;
  if (b >= 0) t->need[t->needs++] = b;
  p->end[p->count] = -1;
  p->left[rank] += length;
  return p->count++;
}

static double gap(const puzzle *p, int32_t a, int32_t b) {
  return p->tasks[a].rank == p->tasks[b].rank ? 0.0 : p->lag;
}

/* Longest ways from the tasks' starts; tasks come behind what they need. */
static void set_ways(puzzle *p) {
  for (int32_t i = 0; i < p->count; i++) p->tasks[i].way = p->tasks[i].length;
  for (int32_t i = p->count; i-- > 0;)
    for (int32_t k = 0; k < p->tasks[i].needs; k++) {
      task *before = &p->tasks[p->tasks[i].need[k]];
      before->way = later(before->way, before->length + gap(p, p->tasks[i].need[k], i) + p->tasks[i].way);
    }
}

/* Earliest start behind what has been placed, or -1. */
static double ready(const puzzle *p, int32_t i) {
  const task *t = &p->tasks[i];
  double at = p->clock[t->rank];
  for (int32_t k = 0; k < t->needs; k++) {
    if (p->end[t->need[k]] < 0) return -1;
    at = later(at, p->end[t->need[k]] + gap(p, t->need[k], i));
  }
  return at;
}

/* All active schedules (Giffler and Thompson 1960), of which one is the best: on the rank that could end a task
 * first, any task that can begin before that end comes next. */
static void place_all(puzzle *p, int32_t placed) {
  double first = -1;
  int32_t rank = -1;
  if (p->looks-- <= 0) return;
  for (int32_t r = 0; r < p->ranks; r++)
    if (p->clock[r] + p->left[r] >= p->best) return;
  for (int32_t i = 0; i < p->count; i++) {
    double at = p->end[i] >= 0 ? -1 : ready(p, i);
    if (at < 0) continue;
    if (at + p->tasks[i].way >= p->best) return;
    if (rank < 0 || at + p->tasks[i].length < first) first = at + p->tasks[i].length, rank = p->tasks[i].rank;
  }
  if (placed == p->count) {
    p->best = 0;
    for (int32_t i = 0; i < p->count; i++) p->best = later(p->best, p->end[i]);
    return;
  }
  for (int32_t i = 0; i < p->count; i++) {
    double at = p->end[i] >= 0 || p->tasks[i].rank != rank ? -1 : ready(p, i), clock = p->clock[rank];
    if (at < 0 || at >= first) continue;
    p->end[i] = p->clock[rank] = at + p->tasks[i].length;
    p->left[rank] -= p->tasks[i].length;
    place_all(p, placed + 1);
    p->left[rank] += p->tasks[i].length;
    p->end[i] = -1;
    p->clock[rank] = clock;
  }
}

static double seconds(const order_run *run, mt_cost_kind kind, int32_t stage, int32_t m) {
  return run->costs.seconds[kind].values[(int64_t)stage * run->derivation->microbatches + m];
}

/* A chain: encoders first where `owner` is given, then the slabs, forth and back over the ranks where folded. */
static void pose(const order_run *run, bool folded, bool split, bool trained, const int32_t *owner, puzzle *p) {
  const mt_derivation *d = run->derivation;
  int32_t stages = d->stage_count, ranks = d->ranks, encoders = owner != NULL ? 1 : 0;
  p->count = 0;
  p->ranks = ranks;
  for (int32_t r = 0; r < RANKS_MOST; r++) p->clock[r] = p->left[r] = 0;
  for (int32_t m = 0; m < d->microbatches; m++) {
    int32_t forward[TASKS_MOST], rank[TASKS_MOST], back = -1;
    for (int32_t s = 0; s < stages; s++) {
      int32_t slab = s - encoders;
      rank[s] = slab < 0 ? owner[m] : folded && slab >= ranks ? 2 * ranks - 1 - slab : slab;
      forward[s] = add_task(p, rank[s], seconds(run, MT_COST_FORWARD, s, m), s > 0 ? forward[s - 1] : -1, -1);
    }
    for (int32_t s = stages; s-- > 0;) {
      bool encoder = s < encoders;
      if (encoder && !trained) break;
      mt_cost_kind kind = split && !encoder ? MT_COST_BACKWARD_X : MT_COST_BACKWARD;
      back = add_task(p, rank[s], seconds(run, kind, s, m), forward[s], back);
      if (split && !encoder) add_task(p, rank[s], seconds(run, MT_COST_BACKWARD_W, s, m), back, -1);
    }
  }
  set_ways(p);
}

/* Least makespan of all orders and, with encoders, owners; -1 where looking took too long. */
static double least_of_all(const order_run *run, uint64_t which, bool encoders, bool trained) {
  puzzle p = {
      .lag = run->costs.links.local.latency_seconds, .best = run->result.makespan + 1e-6, .looks = LOOKS_MOST};
  int32_t owner[TASKS_MOST] = {0}, ranks = run->derivation->ranks, M = run->derivation->microbatches;
  for (bool more = true; more;) {
    pose(run, which >= FOLD, which != FOLD, trained, encoders ? owner : NULL, &p);
    place_all(&p, 0);
    if (p.looks <= 0) return -1;
    int32_t m = 0;
    while (encoders && m < M && ++owner[m] == ranks) owner[m++] = 0;
    more = encoders && m < M;
  }
  return p.best;
}

static void test_no_order_of_a_tiny_pipeline_is_below(void **state) {
  (void)state;
  int32_t proven = 0, met = 0;
  for (uint64_t seed = 1; seed <= CASES; seed++) {
    mt_random random = mt_random_stream(seed, "open.bound");
    uint64_t which = mt_random_below(&random, SCHEDULES - 1);
    bool encoders = mt_random_below(&random, 3) == 0, trained = mt_random_below(&random, 2) == 0;
    char text[60];
    snprintf(text, sizeof text, encoders ? "<transpose, %s" : "<%s", schedules[which] + 1);
    order_case c = {.schedule = text,
                    .modules = encoders ? 2 : 1,
                    .trainable = trained,
                    .ranks = 1 + (int32_t)mt_random_below(&random, 3),
                    .microbatches = 1 + (int32_t)mt_random_below(&random, 3),
                    .links = {.local = {.latency_seconds = (double)mt_random_below(&random, 3)}},
                    .search_seconds = -1};
    order_run run;
    motet_error error;
    case_derive(&c, &run);
    draw_costs(&run, &random, mt_random_below(&random, 2) == 0);
    if (mt_order_make(run.arena, run.derivation, &run.costs, &run.options, &error, &run.result) != MOTET_OK)
      fail_msg("%s", error.text);
    double bound = bound_of(&run);
    bool small = 3 * (int64_t)run.derivation->stage_count * c.microbatches <= TASKS_MOST;
    double least = small ? least_of_all(&run, which, encoders, trained) : -1;
    if (bound > run.result.makespan + 1e-9 || (least >= 0 && bound > least + 1e-6))
      fail_msg("seed %llu: %s on %d ranks, %d microbatches: bound %g, makespan %g, best of all %g",
               (unsigned long long)seed, text, c.ranks, c.microbatches, bound, run.result.makespan, least);
    proven += least >= 0;
    met += least >= 0 && bound > least - 1e-3;
    case_end(&run);
  }
  /* Neither the orders nor the bound are such that nothing was compared. */
  assert_true(proven > CASES / 2);
  assert_true(met > proven / 2);
}

/* The skeletons of one map place the same work on the same ranks and differ in what a rank may hold: none of their
 * orders is below the bound of any, and DualPipeV's whole backwards or the folded 1F1B's are split ones, too. */
static void test_no_order_of_another_skeleton_is_below(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= 20; seed++) {
    mt_random draw = mt_random_stream(seed, "open.bound.skeletons");
    bool folded = mt_random_below(&draw, 3) > 0, alike = mt_random_below(&draw, 2) == 0;
    int32_t encoders = (int32_t)mt_random_below(&draw, 2), M = 1 + (int32_t)mt_random_below(&draw, 16);
    int32_t ranks = 1 + (int32_t)mt_random_below(&draw, RANKS_MOST);
    double bound = -1, latency = 0.5 * (double)mt_random_below(&draw, 3);
    for (int32_t k = folded ? SCHEDULES - 1 : FOLD - 1; k >= (folded ? FOLD : 0); k--) {
      char text[60];
      snprintf(text, sizeof text, encoders > 0 ? "<transpose, %s" : "<%s", schedules[k] + 1);
      order_case c = {.schedule = text,
                      .modules = 1 + encoders,
                      .trainable = true,
                      .ranks = ranks,
                      .microbatches = M,
                      .links = {.local = {.latency_seconds = latency}},
                      .search_seconds = -1};
      order_run run;
      motet_error error;
      mt_random random = draw;
      case_derive(&c, &run);
      draw_costs(&run, &random, alike);
      if (mt_order_make(run.arena, run.derivation, &run.costs, &run.options, &error, &run.result) != MOTET_OK)
        fail_msg("%s", error.text);
      double own = bound_of(&run);
      /* DualPipeV's comes first: it is split. A folded 1F1B's own is that of whole backwards. */
      if (bound < 0) bound = own;
      if (k != FOLD ? own > bound + 1e-9 || own < bound - 1e-9 : own < bound - 1e-9)
        fail_msg("seed %llu: %s: bound %g, on the same map %g", (unsigned long long)seed, text, own, bound);
      if (run.result.makespan < later(own, bound) - 1e-9 || run.result.bound > run.result.makespan)
        fail_msg("seed %llu: %s on %d ranks, %d microbatches: bound %g, makespan %g", (unsigned long long)seed,
                 text, ranks, M, own, run.result.makespan);
      case_end(&run);
    }
  }
}

/* What a step finds done is no work of it. */
static void test_encodes_of_the_step_before_do_not_count(void **state) {
  (void)state;
  static const double encode[] = {5, 1, 9};
  for (int32_t P = 1; P <= 4; P++)
    for (int32_t M = 1; M <= 9; M += 4) {
      order_case c = {.schedule = "<transpose(order=ahead), zbv>",
                      .ranks = P,
                      .microbatches = M,
                      .encode = encode,
                      .encode_count = 3,
                      .forward = 1,
                      .backward = 2,
                      .search_seconds = -1};
      order_run run;
      case_order(&c, &run);
      if (bound_of(&run) > run.result.makespan + 1e-9)
        fail_msg("P %d, M %d: bound %g, makespan %g", P, M, bound_of(&run), run.result.makespan);
      case_end(&run);
    }
}

/* Equal slabs: what single ranks force, counted by hand. The last rank of a line waits for P - 1 forwards, does all
 * its own, and its last gradient goes back over P - 1 ranks, the first of which does its weights; or all it does is
 * weights in the end. The turn of a fold lies in the middle of the way. */
static void test_equal_slabs_force_what_the_formulas_say(void **state) {
  (void)state;
  for (int32_t P = 1; P <= RANKS_MOST; P++)
    for (int32_t M = 1; M <= 24; M += 1 + M / 4)
      for (size_t k = 0; k < SCHEDULES; k++) {
        double lag = 0.25 * (double)(M % 3), f = 1, x = 1.25, w = 0.75;
        order_case c = {.schedule = schedules[k],
                        .modules = 1,
                        .ranks = P,
                        .microbatches = M,
                        .links = {.local = {.latency_seconds = lag}}};
        order_run run;
        case_derive(&c, &run);
        double *table[4];
        for (int i = 0; i < 4; i++) table[i] = case_table(run.arena, &run.costs, (mt_cost_kind)i, run.derivation);
        double part = k >= FOLD ? 0.5 : 1.0;
        for (int64_t i = 0; i < (int64_t)run.derivation->stage_count * M; i++) {
          table[MT_COST_FORWARD][i] = f * part;
          table[MT_COST_BACKWARD][i] = (x + w) * part;
          table[MT_COST_BACKWARD_X][i] = x * part;
          table[MT_COST_BACKWARD_W][i] = w * part;
        }
        double bound = bound_of(&run), hops = P - 1, expected;
        if (k == FOLD)
          expected = hops * ((f + x + w) * part + 2 * lag) + M * (f + x + w);
        else
          expected = later(hops * (f * part + lag) + M * (f + x + w),
                           hops * ((f + x) * part + 2 * lag) + M * (f + x) + w * part);
        /* One microbatch alone. */
        double turns = k >= FOLD ? 4 * hops : 2 * hops;
        expected = later(expected, P * (f + x) + (k == FOLD ? P * w : w * part) + turns * lag);
        /* The first rank of a fold: all but its first forwards, behind the way to its second chunk. */
        double rest = k == FOLD ? f * part + x + w : f * part + x;
        if (k >= FOLD)
          expected =
              later(expected, (2 * P - 1) * f * part + 2 * hops * lag + M * rest + (k == FOLD ? 0 : w * part));
        /* Its last rank: all backwards, behind a whole way forth and one chunk's way back. */
        double back = k == FOLD ? x + w : x;
        if (k >= FOLD)
          expected = later(expected, P * f + 2 * hops * lag + hops * (back * part + lag) + M * (x + w) +
                                         (k == FOLD ? hops * (back * part + lag) : 0));
        if (bound < expected - 1e-9)
          fail_msg("%s, P %d, M %d: bound %g is less than %g", schedules[k], P, M, bound, expected);
        case_end(&run);
      }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_no_order_of_a_tiny_pipeline_is_below),
      cmocka_unit_test(test_no_order_of_another_skeleton_is_below),
      cmocka_unit_test(test_encodes_of_the_step_before_do_not_count),
      cmocka_unit_test(test_equal_slabs_force_what_the_formulas_say),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
