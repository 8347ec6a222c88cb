/* Groupings for batches that nearly fill the memory: dealt by tokens, beyond capacity where it must be, then
 * repaired by moves, swaps and merges until every group is within its memory. */
#include "pack/search.h"

typedef struct repair {
  const mt_pack_problem *problem;
  mt_pack_state *state;
  mt_pack_work *work;
} repair;

/* Tokens that the group may still take; negative: beyond its memory. */
static int64_t room(const repair *at, int32_t group) {
  return at->problem->memory_tokens * at->problem->table->rows[at->state->degree[group]].degree -
         at->state->tokens[group];
}

static int64_t excess(int64_t left) { return left < 0 ? -left : 0; }

typedef struct step {
  int64_t gain; /* tokens of excess that it takes away */
  int32_t give, take, to;
} step;

static bool best_exchange(repair *at, int32_t group, step *best) {
  const int64_t *tokens = at->problem->tokens;
  const mt_pack_state *state = at->state;
  int64_t here = room(at, group);
  *best = (step){.gain = 0};
  for (int32_t other = 0; other < state->groups && best->gain < -here; other++) {
    int64_t there = room(at, other);
    if (other == group || there <= here) continue;
    for (int32_t k = state->first[group]; k >= 0; k = state->next[k])
      for (int32_t j = -1;; j = j < 0 ? state->first[other] : state->next[j]) {
        int64_t moved = tokens[k] - (j >= 0 ? tokens[j] : 0);
        int64_t gain = excess(here) + excess(there) - excess(here + moved) - excess(there - moved);
        at->work->done++;
        if (moved > 0 && gain > best->gain) *best = (step){gain, k, j, other};
        if ((j < 0 ? state->first[other] : state->next[j]) < 0) break;
      }
  }
  return best->gain > 0;
}

static void apply(repair *at, const step *best) {
  int32_t from = at->state->owner[best->give];
  mt_pack_state_remove(at->state, at->problem, best->give);
  mt_pack_state_insert(at->state, at->problem, best->give, best->to);
  if (best->take < 0) return;
  mt_pack_state_remove(at->state, at->problem, best->take);
  mt_pack_state_insert(at->state, at->problem, best->take, from);
}

/* Joins the group with the one of most room whose degrees add up to an allowed one. */
static bool merge(repair *at, int32_t group) {
  mt_pack_state *state = at->state;
  const mt_pack_row *rows = at->problem->table->rows;
  int32_t chosen = -1, chosen_index = -1;
  for (int32_t other = 0; other < state->groups; other++) {
    int32_t index =
        mt_pack_degree_index(at->problem, rows[state->degree[group]].degree + rows[state->degree[other]].degree);
    if (other == group || index < 0 || (chosen >= 0 && room(at, other) <= room(at, chosen))) continue;
    chosen = other;
    chosen_index = index;
  }
  if (chosen < 0) return false;
  while (state->first[chosen] >= 0) {
    int32_t sequence = state->first[chosen];
    mt_pack_state_remove(state, at->problem, sequence);
    mt_pack_state_insert(state, at->problem, sequence, group);
  }
  mt_pack_state_drop(state, at->problem, chosen);
  mt_pack_state_set_degree(state, at->problem, group == state->groups ? chosen : group, chosen_index);
  return true;
}

/* Sequences that are too long for the width in groups of their own, columns of the width on the other ranks. */
static bool open_groups(const mt_pack_problem *problem, int32_t width_index, mt_pack_state *state) {
  mt_pack_state_clear(state, problem->count);
  int32_t waiting = 0;
  for (int32_t k = 0; k < problem->count; k++) {
    if (problem->least[k] <= width_index) {
      waiting++;
      continue;
    }
    mt_pack_state_insert(state, problem, k, mt_pack_state_open(state, problem, problem->least[k]));
    if (state->ranks_used > problem->ranks) return false;
  }
  while (waiting > 0 && state->ranks_used < problem->ranks) {
    int32_t index = problem->table->index_at_most[problem->ranks - state->ranks_used];
    if (index < 0) break;
    mt_pack_state_open(state, problem, index < width_index ? index : width_index);
    waiting--;
  }
  return state->groups > 0;
}

static void sift_down(const repair *at, int32_t *heap, int32_t count, int32_t place) {
  int32_t item = heap[place];
  for (;;) {
    int32_t child = 2 * place + 1;
    if (child >= count) break;
    if (child + 1 < count && room(at, heap[child + 1]) > room(at, heap[child])) child++;
    if (room(at, heap[child]) <= room(at, item)) break;
    heap[place] = heap[child];
    place = child;
  }
  heap[place] = item;
}

/* Longest first into the group of most room, whether it fits or not. */
static void deal(repair *at, const int32_t *by_tokens, int32_t *heap) {
  int32_t groups = at->state->groups;
  for (int32_t g = 0; g < groups; g++) heap[g] = g;
  for (int32_t place = groups / 2 - 1; place >= 0; place--) sift_down(at, heap, groups, place);
  for (int32_t i = 0; i < at->problem->count; i++) {
    if (at->state->owner[by_tokens[i]] >= 0) continue;
    mt_pack_state_insert(at->state, at->problem, by_tokens[i], heap[0]);
    sift_down(at, heap, groups, 0);
    at->work->done += 4;
  }
}

bool mt_pack_construct_tight(const mt_pack_problem *problem, const int32_t *by_tokens, int32_t width_index,
                             mt_pack_scratch *scratch, mt_pack_work *work, mt_pack_state *state) {
  repair at = {problem, state, work};
  if (!open_groups(problem, width_index, state)) return false;
  deal(&at, by_tokens, scratch->heap);
  for (;;) {
    int32_t fullest = 0;
    for (int32_t g = 1; g < state->groups; g++)
      if (room(&at, g) < room(&at, fullest)) fullest = g;
    if (room(&at, fullest) >= 0) break;
    work->done += state->groups / 4;
    step best;
    if (work->done < work->limit && best_exchange(&at, fullest, &best))
      apply(&at, &best);
    else if (!merge(&at, fullest))
      return false;
  }
  mt_pack_state_drop_empty(state, problem);
  return mt_pack_state_allocate(state, problem, scratch);
}
