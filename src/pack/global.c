#include "pack/global.h"

#include <math.h>
#include <string.h>

static const double LEAST_GAIN = 1e-7;

/* One arrangement being made. */
typedef struct arrangement {
  mt_pack_solver *solver;
  const mt_pack_problem *problem;
  mt_pack_timeline *timeline;
  mt_pack_state *state;
  mt_pack_slot *slots;
  int32_t *column_of;
  mt_pack_work *work;
  int32_t width; /* ranks of a column */
  int32_t columns;
} arrangement;

bool mt_pack_timeline_create(mt_arena *arena, int32_t capacity, int32_t ranks, mt_pack_timeline *timeline) {
  *timeline = (mt_pack_timeline){.slots = MT_ARENA_NEW(arena, mt_pack_slot, capacity),
                                 .column_of = MT_ARENA_NEW(arena, int32_t, capacity),
                                 .finish = MT_ARENA_NEW(arena, double, ranks),
                                 .column_first = MT_ARENA_NEW(arena, int32_t, ranks),
                                 .column_row = MT_ARENA_NEW(arena, int32_t, ranks),
                                 .column_tokens = MT_ARENA_NEW(arena, int64_t, ranks),
                                 .column_area = MT_ARENA_NEW(arena, double, ranks),
                                 .column_base = MT_ARENA_NEW(arena, double, ranks),
                                 .estimate = MT_ARENA_NEW(arena, double, ranks),
                                 .heap = MT_ARENA_NEW(arena, int32_t, ranks),
                                 .gang_row = MT_ARENA_NEW(arena, int32_t, capacity),
                                 .gangs = MT_ARENA_NEW(arena, int32_t, capacity),
                                 .column_wanted = MT_ARENA_NEW(arena, int32_t, capacity),
                                 .keys = MT_ARENA_NEW(arena, double, capacity)};
  return timeline->slots != NULL && timeline->column_of != NULL && timeline->finish != NULL &&
         timeline->column_first != NULL && timeline->column_row != NULL && timeline->column_tokens != NULL &&
         timeline->column_area != NULL && timeline->column_base != NULL && timeline->estimate != NULL &&
         timeline->heap != NULL && timeline->gang_row != NULL && timeline->gangs != NULL &&
         timeline->column_wanted != NULL && timeline->keys != NULL;
}

/* Columns of the given row's width; the ranks left over make one narrower column. */
static bool cut_columns(arrangement *at, int32_t row) {
  const mt_pack_table *table = at->problem->table;
  mt_pack_timeline *timeline = at->timeline;
  at->width = table->rows[row].degree;
  at->columns = 0;
  int32_t left = at->problem->ranks, next = 0;
  while (left > 0) {
    int32_t index = left >= at->width ? row : table->index_at_most[left];
    if (index < 0) break;
    int32_t column = at->columns++, degree = table->rows[index].degree;
    timeline->column_first[column] = next;
    timeline->column_row[column] = index;
    timeline->column_tokens[column] = 0;
    timeline->column_area[column] = timeline->column_base[column] = 0;
    next += degree;
    left -= degree;
  }
  return at->columns > 0;
}

/* The degree of least rank-seconds that ends within the target; -1: none. */
static int32_t cheapest_row(const arrangement *at, int32_t sequence, double target) {
  const mt_pack_problem *problem = at->problem;
  int32_t chosen = -1;
  double least = INFINITY;
  for (int32_t row = problem->least[sequence]; row < problem->table->count; row++) {
    double seconds =
        mt_pack_row_seconds(&problem->table->rows[row], problem->tokens[sequence], problem->area[sequence]);
    int32_t columns = (problem->table->rows[row].degree + at->width - 1) / at->width;
    double spent = seconds * columns * at->width;
    at->work->done++;
    if (seconds <= target && spent < least) {
      least = spent;
      chosen = row;
    }
  }
  return chosen;
}

static double alone(const mt_pack_problem *problem, int32_t row, int32_t sequence) {
  return mt_pack_row_seconds(&problem->table->rows[row], problem->tokens[sequence], problem->area[sequence]);
}

/* Puts a gang where it can start first: several columns side by side. */
static void place_gang(arrangement *at, int32_t sequence, int32_t row) {
  mt_pack_timeline *timeline = at->timeline;
  int32_t degree = at->problem->table->rows[row].degree, chosen = 0, chosen_end = 0;
  double earliest = INFINITY;
  for (int32_t column = 0; column < at->columns; column++) {
    double start = 0;
    int32_t end = column, limit = timeline->column_first[column] + degree;
    if (limit > at->problem->ranks) break;
    for (; end < at->columns && timeline->column_first[end] < limit; end++)
      if (timeline->column_base[end] > start) start = timeline->column_base[end];
    at->work->done += (end - column) / 8;
    if (start < earliest) {
      earliest = start;
      chosen = column;
      chosen_end = end;
    }
  }
  int32_t group = mt_pack_state_open(at->state, at->problem, row);
  mt_pack_state_insert(at->state, at->problem, sequence, group);
  at->slots[group] = (mt_pack_slot){timeline->column_first[chosen], earliest};
  at->column_of[group] = -1;
  for (int32_t column = chosen; column < chosen_end; column++)
    timeline->column_base[column] = earliest + at->state->seconds[group];
}

/* Sequences that a column cannot take or not within the target: widest first, then longest. */
static bool place_gangs(arrangement *at, int32_t row, double target) {
  const mt_pack_problem *problem = at->problem;
  mt_pack_timeline *timeline = at->timeline;
  int32_t count = 0;
  for (int32_t i = 0; i < problem->count; i++) {
    int32_t sequence = problem->order[i];
    if (problem->least[sequence] <= row && alone(problem, row, sequence) <= target) continue;
    int32_t chosen = cheapest_row(at, sequence, target);
    if (chosen < 0) return false;
    timeline->gang_row[sequence] = chosen;
    timeline->keys[sequence] = problem->table->rows[chosen].degree;
    timeline->gangs[count++] = sequence;
  }
  mt_pack_sort(timeline->keys, count, timeline->gangs, at->solver->scratch.heap);
  for (int32_t i = 0; i < count; i++) place_gang(at, timeline->gangs[i], timeline->gang_row[timeline->gangs[i]]);
  return true;
}

/* End of a column that holds the sums in as few groups as memory lets. */
static double estimate(const arrangement *at, int32_t column, int64_t tokens, double area) {
  if (tokens == 0) return at->timeline->column_base[column];
  const mt_pack_row *row = &at->problem->table->rows[at->timeline->column_row[column]];
  int64_t memory = at->problem->memory_tokens * row->degree, groups = (tokens + memory - 1) / memory;
  double attention = row->attention * area, ring = row->ring * (double)tokens + row->latency * (double)groups;
  at->work->done++;
  return at->timeline->column_base[column] + row->fixed * (double)groups + row->linear * (double)tokens +
         (attention > ring ? attention : ring);
}

static bool earlier(const double *ends, int32_t a, int32_t b) {
  return ends[a] < ends[b] || (ends[a] <= ends[b] && a < b);
}

static void sift_down(const double *ends, int32_t *heap, int32_t count, int32_t at) {
  int32_t item = heap[at];
  for (;;) {
    int32_t child = 2 * at + 1;
    if (child >= count) break;
    if (child + 1 < count && earlier(ends, heap[child + 1], heap[child])) child++;
    if (!earlier(ends, heap[child], item)) break;
    heap[at] = heap[child];
    at = child;
  }
  heap[at] = item;
}

/* Deals the rest to the columns, longest first to the one that ends first and can hold it. */
static bool deal_rest(arrangement *at) {
  const mt_pack_problem *problem = at->problem;
  mt_pack_timeline *timeline = at->timeline;
  int32_t open = at->columns;
  for (int32_t column = 0; column < at->columns; column++) {
    timeline->heap[column] = column;
    timeline->estimate[column] = timeline->column_base[column];
  }
  for (int32_t i = open / 2 - 1; i >= 0; i--) sift_down(timeline->estimate, timeline->heap, open, i);
  for (int32_t i = 0; i < problem->count; i++) {
    int32_t sequence = problem->order[i];
    if (at->state->owner[sequence] >= 0) continue;
    int32_t column = timeline->heap[0];
    while (timeline->column_row[column] < problem->least[sequence]) { /* the narrow one is of no use any more */
      timeline->heap[0] = timeline->heap[--open];
      if (open == 0) return false;
      sift_down(timeline->estimate, timeline->heap, open, 0);
      column = timeline->heap[0];
    }
    timeline->column_wanted[sequence] = column;
    timeline->column_tokens[column] += problem->tokens[sequence];
    timeline->column_area[column] += problem->area[sequence];
    timeline->estimate[column] =
        estimate(at, column, timeline->column_tokens[column], timeline->column_area[column]);
    sift_down(timeline->estimate, timeline->heap, open, 0);
  }
  return true;
}

/* Cuts each column's sequences into groups within memory: by tokens, descending, each into the fullest with room.
 * The groups of a column are chained through `next_group` (the scratch's least). */
static void cut_groups(arrangement *at) {
  const mt_pack_problem *problem = at->problem;
  mt_pack_state *state = at->state;
  int32_t *last = at->timeline->heap, *older = at->solver->scratch.least;
  for (int32_t column = 0; column < at->columns; column++) last[column] = -1;
  for (int32_t i = 0; i < problem->count; i++) {
    int32_t sequence = at->solver->by_tokens[i];
    if (state->owner[sequence] >= 0) continue;
    int32_t column = at->timeline->column_wanted[sequence], row = at->timeline->column_row[column], chosen = -1;
    for (int32_t group = last[column]; group >= 0; group = older[group]) {
      at->work->done++;
      if (mt_pack_fits(problem, row, state->tokens[group] + problem->tokens[sequence]) &&
          (chosen < 0 || state->tokens[group] > state->tokens[chosen]))
        chosen = group;
    }
    if (chosen < 0) {
      chosen = mt_pack_state_open(state, problem, row);
      at->column_of[chosen] = column;
      older[chosen] = last[column];
      last[column] = chosen;
    }
    mt_pack_state_insert(state, problem, sequence, chosen);
  }
}

static void add_up(arrangement *at) {
  for (int32_t column = 0; column < at->columns; column++)
    at->timeline->finish[column] = at->timeline->column_base[column];
  for (int32_t group = 0; group < at->state->groups; group++)
    if (at->column_of[group] >= 0) at->timeline->finish[at->column_of[group]] += at->state->seconds[group];
}

/* The best exchange between a group of the slowest column and one of another: sequence `give`, for `take` or none.
 */
typedef struct exchange {
  double value;
  int32_t give, take, to;
} exchange;

/* Weighs moving sequence k of `group` to `other`, against j (-1: nothing) coming back. */
static void weigh_one(arrangement *at, int32_t slowest, int32_t k, int32_t other, int32_t j, exchange *best) {
  const mt_pack_problem *problem = at->problem;
  const mt_pack_state *state = at->state;
  int32_t group = state->owner[k];
  int64_t tokens = problem->tokens[k] - (j >= 0 ? problem->tokens[j] : 0);
  double area = problem->area[k] - (j >= 0 ? problem->area[j] : 0);
  at->work->done++;
  if (tokens <= 0 || !mt_pack_fits(problem, state->degree[other], state->tokens[other] + tokens)) return;
  double there = at->timeline->finish[at->column_of[other]] - state->seconds[other] +
                 mt_pack_group_seconds(problem, state->degree[other], state->tokens[other] + tokens,
                                       state->area[other] + area);
  double here = at->timeline->finish[slowest] - state->seconds[group] +
                mt_pack_group_seconds(problem, state->degree[group], state->tokens[group] - tokens,
                                      state->area[group] - area);
  double slower = here > there ? here : there;
  if (slower < best->value) *best = (exchange){slower, k, j, other};
}

static void weigh(arrangement *at, int32_t slowest, int32_t group, int32_t other, exchange *best) {
  const mt_pack_state *state = at->state;
  for (int32_t k = state->first[group]; k >= 0; k = state->next[k]) {
    weigh_one(at, slowest, k, other, -1, best);
    for (int32_t j = state->first[other]; j >= 0; j = state->next[j]) weigh_one(at, slowest, k, other, j, best);
  }
}

static void drop_group(arrangement *at, int32_t group) {
  at->column_of[group] = at->column_of[at->state->groups - 1];
  at->slots[group] = at->slots[at->state->groups - 1];
  mt_pack_state_drop(at->state, at->problem, group);
}

static void apply(arrangement *at, const exchange *best) {
  mt_pack_state *state = at->state;
  int32_t group = state->owner[best->give];
  mt_pack_state_remove(state, at->problem, best->give);
  mt_pack_state_insert(state, at->problem, best->give, best->to);
  if (best->take >= 0) {
    mt_pack_state_remove(state, at->problem, best->take);
    mt_pack_state_insert(state, at->problem, best->take, group);
  }
  if (state->size[group] == 0) drop_group(at, group);
}

/* Moves and swaps between the slowest column and the fastest ones. */
static bool improve(arrangement *at) {
  const double *finish = at->timeline->finish;
  while (at->work->done < at->work->limit) {
    add_up(at);
    at->work->done += at->state->groups / 2;
    int32_t slowest = 0, fastest = 0;
    for (int32_t column = 1; column < at->columns; column++) {
      if (finish[column] > finish[slowest]) slowest = column;
      if (finish[column] < finish[fastest]) fastest = column;
    }
    exchange best = {.value = finish[slowest] * (1 - LEAST_GAIN), .give = -1};
    for (int turn = 0; turn < 2 && best.give < 0; turn++) /* the fastest column, then all the others */
      for (int32_t group = 0; group < at->state->groups; group++) {
        if (at->column_of[group] != slowest) continue;
        for (int32_t other = 0; other < at->state->groups && at->work->done < at->work->limit; other++) {
          int32_t column = at->column_of[other];
          if (column >= 0 && column != slowest && (turn == 0) == (column == fastest))
            weigh(at, slowest, group, other, &best);
        }
      }
    if (best.give < 0) return at->work->done < at->work->limit;
    apply(at, &best);
  }
  return false;
}

static double value_of(arrangement *at) {
  add_up(at);
  double value = 0;
  for (int32_t column = 0; column < at->columns; column++)
    if (at->timeline->finish[column] > value) value = at->timeline->finish[column];
  return value;
}

static bool arrange(arrangement *at, int32_t row, double target) {
  mt_pack_state_clear(at->state, at->problem->count);
  if (!cut_columns(at, row) || !place_gangs(at, row, target) || !deal_rest(at)) return false;
  cut_groups(at);
  return true;
}

/* Groups of a column run one behind the other, in order of their numbers. */
static void set_starts(arrangement *at) {
  double *end = at->timeline->estimate;
  mt_pack_state_refresh(at->state, at->problem);
  memcpy(end, at->timeline->column_base, (size_t)at->columns * sizeof *end);
  for (int32_t group = 0; group < at->state->groups; group++) {
    int32_t column = at->column_of[group];
    if (column < 0) continue;
    at->slots[group] = (mt_pack_slot){at->timeline->column_first[column], end[column]};
    end[column] += at->state->seconds[group];
  }
}

bool mt_pack_solve_global(mt_pack_solver *solver, mt_pack_timeline *timeline, mt_pack_work *work,
                          mt_pack_solution *solution) {
  static const double stretch[] = {1.0, 1.05, 1.15, 1.4, 2.0, 4.0, INFINITY};
  enum { STRETCHES = sizeof stretch / sizeof *stretch };
  const mt_pack_problem *problem = &solver->problem;
  double least = mt_pack_bound_global(problem, INFINITY, &solver->bound_scratch), best = INFINITY, best_target = 0;
  int32_t best_row = -1, last = -1;
  arrangement at = {solver, problem, timeline, &solver->states[0], timeline->slots, timeline->column_of,
                    work,   0,       0};
  for (int32_t width = 1; width <= problem->ranks; width *= 2) {
    int32_t row = problem->table->index_at_most[width];
    if (row < 0) row = 0;
    if (row == last) continue;
    last = row;
    for (int i = 0; i < STRETCHES; i++) {
      if (best < INFINITY && work->done > work->limit / 2) break;
      work->done += 2 * (int64_t)problem->count;
      if (!arrange(&at, row, least * stretch[i])) continue;
      double value = value_of(&at);
      if (value >= best) continue;
      best = value;
      best_row = row;
      best_target = least * stretch[i];
    }
  }
  if (best_row < 0) return false;
  arrange(&at, best_row, best_target);
  bool settled = improve(&at);
  set_starts(&at);
  double value = value_of(&at);
  double bound = mt_pack_bound_global(problem, value, &solver->bound_scratch);
  *solution = (mt_pack_solution){at.state, value, bound < value ? bound : value,
                                 bound >= value ? MOTET_PACK_STOP_BOUND
                                 : settled      ? MOTET_PACK_STOP_LOCAL_OPTIMUM
                                                : MOTET_PACK_STOP_WORK};
  return true;
}
