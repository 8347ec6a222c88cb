/* Allocation: the heap against the published dynamic program on 10^5 random tables, and both against brute force.
 */
#include "base/random.h"
#include "pack/allocate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdbool.h>

enum { GROUPS_MAX = 8, DEGREES_MAX = 24 };

typedef struct table {
  int32_t degree_count;
  double seconds[GROUPS_MAX][DEGREES_MAX];
} table;

static double look_up(const void *context, int32_t group, int32_t degree_index) {
  return ((const table *)context)->seconds[group][degree_index];
}

/* Any set of degrees; times that rise, fall, repeat or are forbidden. */
static mt_allocate_problem draw(mt_random *random, table *of, int32_t *degrees, int32_t *least) {
  mt_allocate_problem problem = {.groups = (int32_t)mt_random_below(random, GROUPS_MAX + 1),
                                 .ranks = 1 + (int32_t)mt_random_below(random, DEGREES_MAX),
                                 .degrees = degrees,
                                 .least = least,
                                 .seconds = look_up,
                                 .context = of};
  double density = 0.2 + 0.8 * mt_random_unit(random);
  for (int32_t d = 1; d <= DEGREES_MAX; d++)
    if (mt_random_unit(random) < density) degrees[problem.degree_count++] = d;
  if (problem.degree_count == 0) degrees[problem.degree_count++] = 1;
  of->degree_count = problem.degree_count;
  bool falling = mt_random_unit(random) < 0.4, coarse = mt_random_unit(random) < 0.3;
  for (int32_t g = 0; g < problem.groups; g++) {
    least[g] = mt_random_unit(random) < 0.7 ? 0 : (int32_t)mt_random_below(random, (uint64_t)problem.degree_count);
    double work = 1 + 20 * mt_random_unit(random);
    for (int32_t i = 0; i < problem.degree_count; i++) {
      double seconds = falling ? work / degrees[i] + 0.1 * degrees[i] : 10 * mt_random_unit(random);
      if (coarse) seconds = floor(seconds);
      of->seconds[g][i] = mt_random_unit(random) < 0.05 ? INFINITY : seconds;
    }
  }
  return problem;
}

static double brute_force(const mt_allocate_problem *problem, int32_t group, int32_t left) {
  if (group == problem->groups) return 0;
  double best = INFINITY;
  for (int32_t i = problem->least[group]; i < problem->degree_count && problem->degrees[i] <= left; i++) {
    double own = problem->seconds(problem->context, group, i);
    if (own < best) best = fmin(best, fmax(own, brute_force(problem, group + 1, left - problem->degrees[i])));
  }
  return best;
}

/* The chosen degrees are within the ranks and really take what is said. */
static void assert_choice(const mt_allocate_problem *problem, const int32_t *chosen, double value) {
  int32_t used = 0;
  double slowest = 0;
  for (int32_t g = 0; g < problem->groups; g++) {
    assert_in_range(chosen[g], problem->least[g], problem->degree_count - 1);
    used += problem->degrees[chosen[g]];
    slowest = fmax(slowest, problem->seconds(problem->context, g, chosen[g]));
  }
  assert_true(used <= problem->ranks);
  assert_true(slowest == value);
}

static void equal_on_random_tables(void **unused) {
  (void)unused;
  enum { TABLES = 100000, SEED = 1 };
  mt_random random = mt_random_stream(SEED, "allocation tables");
  mt_arena *arena = mt_arena_create();
  int feasible = 0;
  for (int t = 0; t < TABLES; t++) {
    table of;
    int32_t degrees[DEGREES_MAX], least[GROUPS_MAX], heap[GROUPS_MAX], chosen[GROUPS_MAX], also[GROUPS_MAX];
    double times[GROUPS_MAX];
    mt_allocate_problem problem = draw(&random, &of, degrees, least);
    mt_arena_reset(arena);
    double by_heap = mt_allocate_heap(&problem, heap, times, chosen);
    double by_table = mt_allocate_table(&problem, arena, also);
    if (by_heap != by_table) fail_msg("table %d of seed %d: heap %.17g, table %.17g", t, SEED, by_heap, by_table);
    if (t % 50 == 0 && problem.groups <= 5) assert_true(by_heap == brute_force(&problem, 0, problem.ranks));
    if (by_heap == INFINITY) continue;
    feasible++;
    assert_choice(&problem, chosen, by_heap);
    assert_choice(&problem, also, by_heap);
  }
  print_message("%d tables, %d feasible (seed %d)\n", TABLES, feasible, SEED);
  assert_in_range(feasible, TABLES / 4, TABLES - 1);
  mt_arena_destroy(arena);
}

/* Worked by hand: 12 and 3 units of work at T = w / d on 5 ranks. 4 + 1 gives 3; 3 + 2 gives 4. */
static void a_small_case(void **unused) {
  (void)unused;
  table of = {.degree_count = 5};
  int32_t degrees[] = {1, 2, 3, 4, 5}, least[] = {0, 0}, heap[2], chosen[2];
  double times[2];
  for (int i = 0; i < 5; i++) {
    of.seconds[0][i] = 12.0 / degrees[i];
    of.seconds[1][i] = 3.0 / degrees[i];
  }
  mt_allocate_problem problem = {2, 5, 5, degrees, least, look_up, &of};
  assert_true(mt_allocate_heap(&problem, heap, times, chosen) == 3.0);
  assert_int_equal(degrees[chosen[0]], 4);
  assert_int_equal(degrees[chosen[1]], 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(equal_on_random_tables), cmocka_unit_test(a_small_case)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
