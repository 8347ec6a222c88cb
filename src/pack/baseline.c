/* Planners to compare with: they build a grouping and do not search. */
#include "pack/allocate.h"
#include "pack/solve.h"

#include <math.h>

typedef struct allocation {
  const mt_pack_state *state;
  const mt_pack_problem *problem;
} allocation;

static double seconds_at(const void *context, int32_t group, int32_t degree_index) {
  const allocation *of = context;
  return mt_pack_group_seconds(of->problem, degree_index, of->state->tokens[group], of->state->area[group]);
}

/* Hands ranks that are left over to one group after the other, each to its next allowed degree. */
static void round_robin(const mt_pack_problem *problem, mt_pack_state *state) {
  bool given = true;
  while (given) {
    given = false;
    for (int32_t g = 0; g < state->groups; g++) {
      int32_t next = state->degree[g] + 1;
      if (next >= problem->table->count) continue;
      int32_t more = problem->table->rows[next].degree - problem->table->rows[next - 1].degree;
      if (state->ranks_used + more > problem->ranks) continue;
      mt_pack_state_set_degree(state, problem, g, next);
      given = true;
    }
  }
}

bool mt_pack_solve_bfd_dp(mt_pack_solver *solver, mt_pack_state *state) {
  const mt_pack_problem *problem = &solver->problem;
  mt_pack_work work = {0};
  mt_pack_best_fit(problem, solver->by_tokens, &solver->scratch, &work, state);
  if (state->ranks_used > problem->ranks) return false;
  if (solver->table_arena == NULL) solver->table_arena = mt_arena_create();
  if (solver->table_arena == NULL) return false;
  mt_arena_reset(solver->table_arena);
  allocation of = {state, problem};
  for (int32_t g = 0; g < state->groups; g++)
    solver->scratch.least[g] = mt_pack_least_degree(problem, state->tokens[g]);
  mt_allocate_problem how = {.groups = state->groups,
                             .ranks = problem->ranks,
                             .degree_count = problem->table->count,
                             .degrees = solver->scratch.degrees,
                             .least = solver->scratch.least,
                             .seconds = seconds_at,
                             .context = &of};
  if (!(mt_allocate_table(&how, solver->table_arena, solver->scratch.chosen) < INFINITY)) return false;
  for (int32_t g = 0; g < state->groups; g++)
    mt_pack_state_set_degree(state, problem, g, solver->scratch.chosen[g]);
  round_robin(problem, state);
  return true;
}

/* The group with memory for the sequence that is fastest with it, of degree >= @p least; -1: none. */
static int32_t least_loaded(const mt_pack_problem *problem, const mt_pack_state *state, int32_t sequence,
                            int32_t least) {
  int32_t chosen = -1;
  double fastest = INFINITY;
  for (int32_t g = 0; g < state->groups; g++) {
    int64_t tokens = state->tokens[g] + problem->tokens[sequence];
    if (state->degree[g] < least || !mt_pack_fits(problem, state->degree[g], tokens)) continue;
    double seconds =
        mt_pack_group_seconds(problem, state->degree[g], tokens, state->area[g] + problem->area[sequence]);
    if (seconds < fastest) {
      fastest = seconds;
      chosen = g;
    }
  }
  return chosen;
}

bool mt_pack_solve_static(mt_pack_solver *solver, int32_t degree, mt_pack_state *state) {
  const mt_pack_problem *problem = &solver->problem;
  int32_t index = mt_pack_degree_index(problem, degree);
  mt_pack_state_clear(state, problem->count);
  if (index < 0) return false;
  int32_t groups = problem->ranks / degree;
  if (groups > state->capacity) groups = state->capacity;
  for (int32_t g = 0; g < groups; g++) mt_pack_state_open(state, problem, index);
  for (int32_t i = 0; i < problem->count; i++) {
    int32_t group = least_loaded(problem, state, problem->order[i], 0);
    if (group < 0) return false;
    mt_pack_state_insert(state, problem, problem->order[i], group);
  }
  mt_pack_state_drop_empty(state, problem);
  return true;
}

static bool is_power_of_two(int32_t degree) { return (degree & (degree - 1)) == 0; }

/* The next allowed power of two from @p index on; table->count: none. */
static int32_t next_power(const mt_pack_problem *problem, int32_t index) {
  while (index < problem->table->count && !is_power_of_two(problem->table->rows[index].degree)) index++;
  return index;
}

/* Widens the slowest group as long as the ranks last; with @p powers to the next power of two. */
static void widen_slowest(const mt_pack_problem *problem, bool powers, mt_pack_state *state) {
  for (;;) {
    int32_t slowest = -1;
    for (int32_t g = 0; g < state->groups; g++)
      if (slowest < 0 || state->seconds[g] > state->seconds[slowest]) slowest = g;
    if (slowest < 0) return;
    int32_t now = state->degree[slowest], next = powers ? next_power(problem, now + 1) : now + 1;
    if (next >= problem->table->count) return;
    const mt_pack_row *rows = problem->table->rows;
    if (state->ranks_used + rows[next].degree - rows[now].degree > problem->ranks ||
        mt_pack_group_seconds(problem, next, state->tokens[slowest], state->area[slowest]) >=
            state->seconds[slowest])
      return;
    mt_pack_state_set_degree(state, problem, slowest, next);
  }
}

bool mt_pack_solve_pow2_greedy(mt_pack_solver *solver, mt_pack_state *state) {
  const mt_pack_problem *problem = &solver->problem;
  mt_pack_state_clear(state, problem->count);
  for (int32_t i = 0; i < problem->count; i++) {
    int32_t sequence = solver->by_tokens[i], index = next_power(problem, problem->least[sequence]);
    if (index >= problem->table->count) return false;
    int32_t group;
    if (state->ranks_used + problem->table->rows[index].degree <= problem->ranks)
      group = mt_pack_state_open(state, problem, index);
    else
      group = least_loaded(problem, state, sequence, index);
    if (group < 0) return false;
    mt_pack_state_insert(state, problem, sequence, group);
  }
  widen_slowest(problem, true, state);
  return true;
}

bool mt_pack_solve_lpt(mt_pack_solver *solver, mt_pack_state *state) {
  const mt_pack_problem *problem = &solver->problem;
  mt_pack_state_clear(state, problem->count);
  int32_t narrow = 0;
  for (int32_t i = 0; i < problem->count; i++) {
    int32_t sequence = problem->order[i];
    if (problem->least[sequence] == 0) {
      narrow++;
      continue;
    }
    mt_pack_state_insert(state, problem, sequence, mt_pack_state_open(state, problem, problem->least[sequence]));
    if (state->ranks_used > problem->ranks) return false;
  }
  for (; narrow > 0 && state->ranks_used + problem->table->rows[0].degree <= problem->ranks; narrow--)
    mt_pack_state_open(state, problem, 0);
  for (int32_t i = 0; i < problem->count; i++) {
    int32_t sequence = problem->order[i];
    if (state->owner[sequence] >= 0) continue;
    int32_t group = least_loaded(problem, state, sequence, 0);
    if (group < 0) return false;
    mt_pack_state_insert(state, problem, sequence, group);
  }
  mt_pack_state_drop_empty(state, problem);
  return mt_pack_state_allocate(state, problem, &solver->scratch);
}
