#include "pack/solve.h"

#include <math.h>

enum { ENUMERATE_RANKS_MAX = 512 };
static const double TIGHT_SHARE = 0.8;

bool mt_pack_solver_create(mt_arena *arena, const mt_pack_table *table, int32_t ranks, int64_t memory_tokens,
                           int32_t capacity, mt_pack_solver *solver) {
  *solver = (mt_pack_solver){.capacity = capacity,
                             .tokens = MT_ARENA_NEW(arena, int64_t, capacity),
                             .area = MT_ARENA_NEW(arena, double, capacity),
                             .work = MT_ARENA_NEW(arena, double, capacity),
                             .keys = MT_ARENA_NEW(arena, double, capacity),
                             .least = MT_ARENA_NEW(arena, int32_t, capacity),
                             .order = MT_ARENA_NEW(arena, int32_t, capacity),
                             .by_tokens = MT_ARENA_NEW(arena, int32_t, capacity),
                             .spare = MT_ARENA_NEW(arena, int32_t, capacity)};
  solver->problem = (mt_pack_problem){.table = table,
                                      .ranks = ranks,
                                      .memory_tokens = memory_tokens,
                                      .tokens = solver->tokens,
                                      .area = solver->area,
                                      .work = solver->work,
                                      .least = solver->least,
                                      .order = solver->order};
  bool made = solver->tokens != NULL && solver->area != NULL && solver->work != NULL && solver->keys != NULL &&
              solver->least != NULL && solver->order != NULL && solver->by_tokens != NULL && solver->spare != NULL;
  for (int i = 0; i < 3; i++) made = made && mt_pack_state_create(arena, capacity, &solver->states[i]);
  return made && mt_pack_scratch_create(arena, capacity, table, &solver->scratch) &&
         mt_pack_bound_scratch_create(arena, table, ranks, &solver->bound_scratch);
}

void mt_pack_solver_destroy(mt_pack_solver *solver) {
  mt_arena_destroy(solver->table_arena);
  solver->table_arena = NULL;
}

void mt_pack_solver_load(mt_pack_solver *solver, const motet_pack_sequence *sequences, const int32_t *members,
                         int32_t count) {
  mt_pack_problem *problem = &solver->problem;
  problem->count = count;
  for (int32_t k = 0; k < count; k++) {
    const motet_pack_sequence *sequence = &sequences[members[k]];
    solver->tokens[k] = sequence->tokens;
    solver->area[k] = sequence->area;
    solver->work[k] =
        problem->table->linear * (double)sequence->tokens + problem->table->attention * sequence->area;
    solver->least[k] = mt_pack_least_degree(problem, sequence->tokens);
    solver->keys[k] = (double)sequence->tokens;
    solver->order[k] = solver->by_tokens[k] = k;
  }
  mt_pack_sort(solver->keys, count, solver->by_tokens, solver->spare);
  mt_pack_sort(solver->work, count, solver->order, solver->spare);
}

/* Best fit decreasing, degrees by the heap: equal to the published dynamic program's value. False if it needs more
 * ranks than there are. */
static bool best_fit(mt_pack_solver *solver, mt_pack_work *work, mt_pack_state *state) {
  mt_pack_best_fit(&solver->problem, solver->by_tokens, &solver->scratch, work, state);
  return mt_pack_state_allocate(state, &solver->problem, &solver->scratch);
}

/* Puts a trial into its place among the two best. */
static void keep(mt_pack_state *best[3], double values[2]) {
  double value = mt_pack_state_value(best[2]);
  mt_pack_state *trial = best[2];
  if (value < values[0]) {
    best[2] = best[1];
    best[1] = best[0];
    best[0] = trial;
    values[1] = values[0];
    values[0] = value;
  } else if (value > values[0] && value < values[1]) {
    best[2] = best[1];
    best[1] = trial;
    values[1] = value;
  }
}

/* Upper end for the search of a target when best fit found nothing: everything on the narrowest groups, one by one.
 */
static double loose_value(const mt_pack_problem *problem) {
  double sum = problem->table->fixed;
  const mt_pack_row *widest = &problem->table->rows[problem->table->count - 1];
  for (int32_t k = 0; k < problem->count; k++) sum += problem->work[k];
  int64_t tokens = 0;
  for (int32_t k = 0; k < problem->count; k++) tokens += problem->tokens[k];
  return sum + widest->fixed + (widest->linear + widest->ring) * (double)tokens + widest->latency;
}

/* Do the sequences fill so much of the memory that packing is the problem? */
static bool is_tight(const mt_pack_problem *problem) {
  int64_t tokens = 0;
  for (int32_t k = 0; k < problem->count; k++) tokens += problem->tokens[k];
  return (double)tokens > TIGHT_SHARE * (double)problem->memory_tokens * problem->ranks;
}

/* One width: targets from the least that may do upwards, until a grouping comes out close to its target. */
static void construct_width(mt_pack_solver *solver, int32_t index, double target, mt_pack_work *work,
                            mt_pack_state *best[3], double values[2]) {
  static const double stretch[] = {1.0, 1.02, 1.06, 1.2, 2.0};
  enum { STRETCHES = sizeof stretch / sizeof *stretch };
  for (size_t i = 0; i < STRETCHES; i++) {
    if (work->done > work->limit / 2 && values[0] < INFINITY) return;
    if (!mt_pack_construct(&solver->problem, target * stretch[i], index, &solver->scratch, work, best[2])) continue;
    double value = mt_pack_state_value(best[2]);
    keep(best, values);
    if (i + 1 < STRETCHES && value <= target * stretch[i + 1]) return;
  }
}

static void construct_all(mt_pack_solver *solver, mt_pack_work *work, mt_pack_state *best[3], double values[2]) {
  const mt_pack_problem *problem = &solver->problem;
  double low = mt_pack_bound_plain(problem), high = values[0] < INFINITY ? values[0] : loose_value(problem);
  double target = mt_pack_target(problem, low, high, work, best[2]);
  bool tight = is_tight(problem);
  int32_t last = -1;
  for (int32_t width = 1; width <= problem->ranks; width *= 2) {
    int32_t index = problem->table->index_at_most[width];
    if (index < 0) index = 0;
    if (index == last) continue;
    last = index;
    construct_width(solver, index, target, work, best, values);
    if (tight && (work->done < work->limit / 2 || values[0] == INFINITY) &&
        mt_pack_construct_tight(problem, solver->by_tokens, index, &solver->scratch, work, best[2]))
      keep(best, values);
  }
}

bool mt_pack_solve_search(mt_pack_solver *solver, mt_pack_work *work, mt_pack_solution *solution) {
  const mt_pack_problem *problem = &solver->problem;
  mt_pack_state *best[3] = {&solver->states[0], &solver->states[1], &solver->states[2]};
  double values[2] = {INFINITY, INFINITY};
  if (best_fit(solver, work, best[2])) keep(best, values);
  construct_all(solver, work, best, values);
  if (values[0] == INFINITY) return false;
  double bound = mt_pack_bound(problem, solver->by_tokens, values[0], &solver->bound_scratch, work);
  mt_pack_work first = {work->done, work->done + (work->limit - work->done) * 2 / 3};
  bool settled = mt_pack_improve(problem, bound, &solver->scratch, &first, best[0]);
  work->done = first.done;
  values[0] = mt_pack_state_value(best[0]);
  if (values[1] < INFINITY && values[0] > bound) {
    bool also = mt_pack_improve(problem, bound, &solver->scratch, work, best[1]);
    values[1] = mt_pack_state_value(best[1]);
    settled = settled && also;
    if (values[1] < values[0]) {
      best[0] = best[1];
      values[0] = values[1];
    }
  }
  motet_pack_stop stop = values[0] <= bound ? MOTET_PACK_STOP_BOUND
                         : settled          ? MOTET_PACK_STOP_LOCAL_OPTIMUM
                                            : MOTET_PACK_STOP_WORK;
  *solution = (mt_pack_solution){best[0], values[0], bound < values[0] ? bound : values[0], stop};
  return true;
}

static bool solve_best(mt_pack_solver *solver, mt_pack_work *work, mt_pack_solution *solution) {
  const mt_pack_problem *problem = &solver->problem;
  if (problem->count > MT_PACK_ENUMERATE_MAX || problem->ranks > ENUMERATE_RANKS_MAX)
    return mt_pack_solve_search(solver, work, solution);
  mt_pack_state *state = &solver->states[0];
  if (!mt_pack_enumerate(problem, &solver->scratch, &solver->states[1], work, state)) return false;
  double value = mt_pack_state_value(state);
  *solution = (mt_pack_solution){state, value, value, MOTET_PACK_STOP_EXHAUSTED};
  return true;
}

double mt_pack_solver_bound_barriers(mt_pack_solver *solver) {
  int32_t count = solver->problem.count, *by_density = solver->scratch.heap;
  for (int32_t k = 0; k < count; k++) {
    by_density[k] = k;
    solver->keys[k] = solver->work[k] / (double)solver->tokens[k];
  }
  mt_pack_sort(solver->keys, count, by_density, solver->spare);
  return mt_pack_bound_barriers(&solver->problem, by_density, &solver->bound_scratch);
}

bool mt_pack_solve(mt_pack_solver *solver, motet_pack_planner planner, int32_t static_degree, mt_pack_work *work,
                   mt_pack_solution *solution) {
  mt_pack_state *state = &solver->states[0];
  bool found = false;
  switch (planner) {
  case MOTET_PACK_BEST: return solve_best(solver, work, solution);
  case MOTET_PACK_BFD_DP: found = mt_pack_solve_bfd_dp(solver, state); break;
  case MOTET_PACK_STATIC: found = mt_pack_solve_static(solver, static_degree, state); break;
  case MOTET_PACK_POW2_GREEDY: found = mt_pack_solve_pow2_greedy(solver, state); break;
  case MOTET_PACK_LPT: found = mt_pack_solve_lpt(solver, state); break;
  }
  if (!found) return false;
  double value = mt_pack_state_value(state);
  double bound = mt_pack_bound(&solver->problem, solver->by_tokens, value, &solver->bound_scratch, work);
  *solution = (mt_pack_solution){state, value, bound < value ? bound : value, MOTET_PACK_STOP_BASELINE};
  return true;
}
