#include "pack/state.h"

#include "pack/allocate.h"

#include <math.h>
#include <string.h>

bool mt_pack_state_create(mt_arena *arena, int32_t capacity, mt_pack_state *state) {
  *state = (mt_pack_state){.capacity = capacity,
                           .degree = MT_ARENA_NEW(arena, int32_t, capacity),
                           .tokens = MT_ARENA_NEW(arena, int64_t, capacity),
                           .area = MT_ARENA_NEW(arena, double, capacity),
                           .seconds = MT_ARENA_NEW(arena, double, capacity),
                           .first = MT_ARENA_NEW(arena, int32_t, capacity),
                           .size = MT_ARENA_NEW(arena, int32_t, capacity),
                           .next = MT_ARENA_NEW(arena, int32_t, capacity),
                           .previous = MT_ARENA_NEW(arena, int32_t, capacity),
                           .owner = MT_ARENA_NEW(arena, int32_t, capacity),
                           .slowest = MT_ARENA_NEW(arena, int32_t, 4 * (size_t)capacity),
                           .fastest = MT_ARENA_NEW(arena, int32_t, 4 * (size_t)capacity)};
  return state->slowest != NULL && state->fastest != NULL && state->degree != NULL && state->tokens != NULL &&
         state->area != NULL && state->seconds != NULL && state->first != NULL && state->size != NULL &&
         state->next != NULL && state->previous != NULL && state->owner != NULL;
}

bool mt_pack_scratch_create(mt_arena *arena, int32_t capacity, const mt_pack_table *table,
                            mt_pack_scratch *scratch) {
  *scratch = (mt_pack_scratch){.heap = MT_ARENA_NEW(arena, int32_t, capacity),
                               .least = MT_ARENA_NEW(arena, int32_t, capacity),
                               .chosen = MT_ARENA_NEW(arena, int32_t, capacity),
                               .times = MT_ARENA_NEW(arena, double, capacity),
                               .degrees = MT_ARENA_NEW(arena, int32_t, table->count)};
  if (scratch->heap == NULL || scratch->least == NULL || scratch->chosen == NULL || scratch->times == NULL ||
      scratch->degrees == NULL)
    return false;
  for (int32_t i = 0; i < table->count; i++) scratch->degrees[i] = table->rows[i].degree;
  return true;
}

void mt_pack_state_clear(mt_pack_state *state, int32_t count) {
  state->groups = state->ranks_used = 0;
  for (int32_t k = 0; k < count; k++) state->owner[k] = -1;
}

void mt_pack_state_copy(mt_pack_state *to, const mt_pack_state *from, int32_t count) {
  size_t groups = (size_t)from->groups, sequences = (size_t)count;
  to->groups = from->groups;
  to->ranks_used = from->ranks_used;
  memcpy(to->degree, from->degree, groups * sizeof *to->degree);
  memcpy(to->tokens, from->tokens, groups * sizeof *to->tokens);
  memcpy(to->area, from->area, groups * sizeof *to->area);
  memcpy(to->seconds, from->seconds, groups * sizeof *to->seconds);
  memcpy(to->first, from->first, groups * sizeof *to->first);
  memcpy(to->size, from->size, groups * sizeof *to->size);
  memcpy(to->next, from->next, sequences * sizeof *to->next);
  memcpy(to->previous, from->previous, sequences * sizeof *to->previous);
  memcpy(to->owner, from->owner, sequences * sizeof *to->owner);
}

/* The better of two groups: slower (or faster), ties to the lower number. */
static int32_t winner(const mt_pack_state *state, int32_t a, int32_t b, bool slower) {
  if (a < 0 || b < 0) return a < 0 ? b : a;
  double x = state->seconds[a], y = state->seconds[b];
  if (x > y || x < y) return (x > y) == slower ? a : b;
  return a < b ? a : b;
}

static void replay(mt_pack_state *state, int32_t group) {
  if (state->leaves == 0) return;
  int32_t node = state->leaves + group;
  state->slowest[node] = state->fastest[node] = group < state->groups ? group : -1;
  for (node /= 2; node > 0; node /= 2) {
    state->slowest[node] = winner(state, state->slowest[2 * node], state->slowest[2 * node + 1], true);
    state->fastest[node] = winner(state, state->fastest[2 * node], state->fastest[2 * node + 1], false);
  }
}

void mt_pack_state_watch(mt_pack_state *state) {
  /* Splits may open groups: leave room for as many again, as far as there is capacity. */
  int32_t needed = state->groups < state->capacity / 2 ? 2 * state->groups : state->capacity;
  for (state->leaves = 1; state->leaves < needed; state->leaves *= 2) {
  }
  for (int32_t node = 0; node < state->leaves; node++)
    state->slowest[state->leaves + node] = state->fastest[state->leaves + node] = node < state->groups ? node : -1;
  for (int32_t node = state->leaves - 1; node > 0; node--) {
    state->slowest[node] = winner(state, state->slowest[2 * node], state->slowest[2 * node + 1], true);
    state->fastest[node] = winner(state, state->fastest[2 * node], state->fastest[2 * node + 1], false);
  }
}

void mt_pack_state_unwatch(mt_pack_state *state) { state->leaves = 0; }

int32_t mt_pack_state_open(mt_pack_state *state, const mt_pack_problem *problem, int32_t degree_index) {
  int32_t group = state->groups++;
  state->degree[group] = degree_index;
  state->tokens[group] = 0;
  state->area[group] = state->seconds[group] = 0;
  state->first[group] = -1;
  state->size[group] = 0;
  state->ranks_used += problem->table->rows[degree_index].degree;
  if (group >= state->leaves && state->leaves > 0)
    mt_pack_state_watch(state);
  else
    replay(state, group);
  return group;
}

static void retime(mt_pack_state *state, const mt_pack_problem *problem, int32_t group) {
  state->seconds[group] =
      mt_pack_group_seconds(problem, state->degree[group], state->tokens[group], state->area[group]);
  replay(state, group);
}

void mt_pack_state_insert(mt_pack_state *state, const mt_pack_problem *problem, int32_t sequence, int32_t group) {
  int32_t head = state->first[group];
  state->next[sequence] = head;
  state->previous[sequence] = -1;
  if (head >= 0) state->previous[head] = sequence;
  state->first[group] = sequence;
  state->owner[sequence] = group;
  state->size[group]++;
  state->tokens[group] += problem->tokens[sequence];
  state->area[group] += problem->area[sequence];
  retime(state, problem, group);
}

void mt_pack_state_remove(mt_pack_state *state, const mt_pack_problem *problem, int32_t sequence) {
  int32_t group = state->owner[sequence], next = state->next[sequence], previous = state->previous[sequence];
  if (next >= 0) state->previous[next] = previous;
  if (previous >= 0)
    state->next[previous] = next;
  else
    state->first[group] = next;
  state->owner[sequence] = -1;
  state->size[group]--;
  state->tokens[group] -= problem->tokens[sequence];
  state->area[group] -= problem->area[sequence];
  if (state->size[group] == 0) state->area[group] = 0;
  retime(state, problem, group);
}

void mt_pack_state_set_degree(mt_pack_state *state, const mt_pack_problem *problem, int32_t group,
                              int32_t degree_index) {
  const mt_pack_row *rows = problem->table->rows;
  state->ranks_used += rows[degree_index].degree - rows[state->degree[group]].degree;
  state->degree[group] = degree_index;
  retime(state, problem, group);
}

void mt_pack_state_drop(mt_pack_state *state, const mt_pack_problem *problem, int32_t group) {
  int32_t last = --state->groups;
  state->ranks_used -= problem->table->rows[state->degree[group]].degree;
  replay(state, last);
  if (group == last) return;
  state->degree[group] = state->degree[last];
  state->tokens[group] = state->tokens[last];
  state->area[group] = state->area[last];
  state->seconds[group] = state->seconds[last];
  state->first[group] = state->first[last];
  state->size[group] = state->size[last];
  for (int32_t k = state->first[group]; k >= 0; k = state->next[k]) state->owner[k] = group;
  replay(state, group);
}

void mt_pack_state_drop_empty(mt_pack_state *state, const mt_pack_problem *problem) {
  for (int32_t group = state->groups - 1; group >= 0; group--)
    if (state->size[group] == 0) mt_pack_state_drop(state, problem, group);
}

void mt_pack_state_refresh(mt_pack_state *state, const mt_pack_problem *problem) {
  for (int32_t group = 0; group < state->groups; group++) state->area[group] = 0;
  for (int32_t k = 0; k < problem->count; k++)
    if (state->owner[k] >= 0) state->area[state->owner[k]] += problem->area[k];
  for (int32_t group = 0; group < state->groups; group++) retime(state, problem, group);
}

double mt_pack_state_value(const mt_pack_state *state) {
  double value = 0;
  for (int32_t group = 0; group < state->groups; group++)
    if (state->seconds[group] > value) value = state->seconds[group];
  return value;
}

int32_t mt_pack_least_degree(const mt_pack_problem *problem, int64_t tokens) {
  const mt_pack_table *table = problem->table;
  int64_t needed = tokens / problem->memory_tokens + (tokens % problem->memory_tokens != 0);
  if (needed > problem->ranks) return table->count;
  int32_t index = needed > 0 ? table->index_at_most[needed] : 0;
  return index < 0 || table->rows[index].degree < needed ? index + 1 : index;
}

typedef struct allocation {
  const mt_pack_state *state;
  const mt_pack_problem *problem;
} allocation;

static double seconds_at(const void *context, int32_t group, int32_t degree_index) {
  const allocation *of = context;
  return mt_pack_group_seconds(of->problem, degree_index, of->state->tokens[group], of->state->area[group]);
}

bool mt_pack_state_allocate(mt_pack_state *state, const mt_pack_problem *problem, mt_pack_scratch *scratch) {
  allocation of = {state, problem};
  for (int32_t g = 0; g < state->groups; g++) scratch->least[g] = mt_pack_least_degree(problem, state->tokens[g]);
  mt_allocate_problem how = {.groups = state->groups,
                             .ranks = problem->ranks,
                             .degree_count = problem->table->count,
                             .degrees = scratch->degrees,
                             .least = scratch->least,
                             .seconds = seconds_at,
                             .context = &of};
  if (mt_allocate_heap(&how, scratch->heap, scratch->times, scratch->chosen) == INFINITY) return false;
  for (int32_t g = 0; g < state->groups; g++) mt_pack_state_set_degree(state, problem, g, scratch->chosen[g]);
  return true;
}
