/* Local search: whatever takes the slowest group below its time, with every group it touches below it too. */
#include "pack/search.h"

#include <math.h>

enum { CANDIDATES_MAX = 128 };
static const double LEAST_GAIN = 1e-7; /* relative; keeps rounding from feeding endless steps */

typedef struct search {
  const mt_pack_problem *problem;
  const mt_pack_row *rows;
  mt_pack_state *state;
  mt_pack_work *work;
  int32_t slowest, fastest;
  int32_t cursor; /* where the walk over the other groups goes on */
  double ceiling; /* times must stay below this */
} search;

static void find_extremes(search *at) {
  const mt_pack_state *state = at->state;
  at->slowest = state->slowest[1];
  at->fastest = state->fastest[1];
  at->work->done++;
  at->ceiling = state->groups > 0 ? state->seconds[at->slowest] * (1 - LEAST_GAIN) : 0;
}

static int32_t candidates(const search *at) {
  return 1 + (at->state->groups < CANDIDATES_MAX ? at->state->groups : CANDIDATES_MAX);
}

/* The fastest group first, then the others from where the last walk ended. */
static int32_t candidate(search *at, int32_t turn) {
  if (turn == 0) return at->fastest;
  at->cursor = at->cursor + 1 < at->state->groups ? at->cursor + 1 : 0;
  return at->cursor;
}

static double seconds_at(const search *at, int32_t index, int64_t tokens, double area) {
  at->work->done++;
  return mt_pack_group_seconds(at->problem, index, tokens, area);
}

static bool try_degree(search *at) {
  mt_pack_state *state = at->state;
  int32_t group = at->slowest, now = state->degree[group], next = now + 1;
  for (; next < at->problem->table->count; next++)
    if (seconds_at(at, next, state->tokens[group], state->area[group]) < at->ceiling) break;
  if (next == at->problem->table->count) return false;
  int32_t missing = at->rows[next].degree - at->rows[now].degree - (at->problem->ranks - state->ranks_used);
  if (missing <= 0) {
    mt_pack_state_set_degree(state, at->problem, group, next);
    return true;
  }
  int32_t donor = -1, donor_index = -1;
  double least = at->ceiling;
  for (int32_t turn = 0; turn < candidates(at); turn++) {
    int32_t other = candidate(at, turn), left = at->rows[state->degree[other]].degree - missing;
    int32_t index = other != group && left > 0 ? at->problem->table->index_at_most[left] : -1;
    if (index < 0 || !mt_pack_fits(at->problem, index, state->tokens[other])) continue;
    double seconds = seconds_at(at, index, state->tokens[other], state->area[other]);
    if (seconds < least) {
      least = seconds;
      donor = other;
      donor_index = index;
    }
  }
  if (donor < 0) return false;
  mt_pack_state_set_degree(state, at->problem, donor, donor_index);
  mt_pack_state_set_degree(state, at->problem, group, next);
  return true;
}

static void move(search *at, int32_t sequence, int32_t to) {
  int32_t from = at->state->owner[sequence];
  mt_pack_state_remove(at->state, at->problem, sequence);
  mt_pack_state_insert(at->state, at->problem, sequence, to);
  if (at->state->size[from] == 0) mt_pack_state_drop(at->state, at->problem, from);
}

static bool try_move(search *at) {
  const mt_pack_problem *problem = at->problem;
  mt_pack_state *state = at->state;
  int32_t group = at->slowest;
  for (int32_t turn = 0; turn < candidates(at); turn++) {
    int32_t other = candidate(at, turn), chosen = -1;
    if (other == group || state->seconds[other] >= at->ceiling) continue;
    double least = at->ceiling;
    for (int32_t k = state->first[group]; k >= 0; k = state->next[k]) {
      int64_t tokens = state->tokens[other] + problem->tokens[k];
      if (!mt_pack_fits(problem, state->degree[other], tokens)) continue;
      double there = seconds_at(at, state->degree[other], tokens, state->area[other] + problem->area[k]);
      if (there >= least) continue;
      double here = seconds_at(at, state->degree[group], state->tokens[group] - problem->tokens[k],
                               state->area[group] - problem->area[k]);
      double slower = here > there ? here : there;
      if (slower < least) {
        least = slower;
        chosen = k;
      }
    }
    if (chosen < 0) continue;
    move(at, chosen, other);
    return true;
  }
  return false;
}

static bool try_swap(search *at) {
  const mt_pack_problem *problem = at->problem;
  mt_pack_state *state = at->state;
  int32_t group = at->slowest;
  int64_t here_room = problem->memory_tokens * at->rows[state->degree[group]].degree - state->tokens[group];
  for (int32_t turn = 0; turn < candidates(at); turn++) {
    int32_t other = candidate(at, turn), give = -1, take = -1;
    if (other == group || state->seconds[other] >= at->ceiling || at->work->done >= at->work->limit) continue;
    int64_t there_room = problem->memory_tokens * at->rows[state->degree[other]].degree - state->tokens[other];
    double least = at->ceiling;
    for (int32_t k = state->first[group]; k >= 0; k = state->next[k])
      for (int32_t j = state->first[other]; j >= 0; j = state->next[j]) {
        int64_t tokens = problem->tokens[k] - problem->tokens[j];
        double area = problem->area[k] - problem->area[j];
        at->work->done++;
        if ((tokens <= 0 && area <= 0) || tokens > there_room || -tokens > here_room) continue;
        double there = mt_pack_group_seconds(problem, state->degree[other], state->tokens[other] + tokens,
                                             state->area[other] + area);
        if (there >= least) continue;
        double here = mt_pack_group_seconds(problem, state->degree[group], state->tokens[group] - tokens,
                                            state->area[group] - area);
        double slower = here > there ? here : there;
        if (slower < least) {
          least = slower;
          give = k;
          take = j;
        }
      }
    if (give < 0) continue;
    mt_pack_state_remove(state, problem, give);
    mt_pack_state_remove(state, problem, take);
    mt_pack_state_insert(state, problem, give, other);
    mt_pack_state_insert(state, problem, take, group);
    return true;
  }
  return false;
}

static bool try_merge(search *at) {
  mt_pack_state *state = at->state;
  int32_t group = at->slowest, chosen = -1, chosen_index = -1;
  double least = at->ceiling;
  for (int32_t turn = 0; turn < candidates(at); turn++) {
    int32_t other = candidate(at, turn);
    if (other == group) continue;
    int32_t together = at->rows[state->degree[group]].degree + at->rows[state->degree[other]].degree;
    int32_t index = at->problem->table->index_at_most[together];
    int64_t tokens = state->tokens[group] + state->tokens[other];
    if (!mt_pack_fits(at->problem, index, tokens)) continue;
    double seconds = seconds_at(at, index, tokens, state->area[group] + state->area[other]);
    if (seconds < least) {
      least = seconds;
      chosen = other;
      chosen_index = index;
    }
  }
  if (chosen < 0) return false;
  while (state->first[chosen] >= 0) {
    int32_t sequence = state->first[chosen];
    mt_pack_state_remove(state, at->problem, sequence);
    mt_pack_state_insert(state, at->problem, sequence, group);
  }
  mt_pack_state_drop(state, at->problem, chosen);
  int32_t renamed = group == state->groups ? chosen : group; /* the last group took the dropped one's number */
  mt_pack_state_set_degree(state, at->problem, renamed, chosen_index);
  return true;
}

/* Sums of a half while sequences are dealt out. */
typedef struct half {
  int32_t index;
  int64_t tokens;
  double area;
} half;

/* Deals each sequence to the half that ends up faster: true for the second. */
static bool deal(search *at, half halves[2], int32_t sequence) {
  int64_t tokens = at->problem->tokens[sequence];
  double area = at->problem->area[sequence];
  double first = seconds_at(at, halves[0].index, halves[0].tokens + tokens, halves[0].area + area);
  double second = seconds_at(at, halves[1].index, halves[1].tokens + tokens, halves[1].area + area);
  bool to_second = second < first;
  halves[to_second].tokens += tokens;
  halves[to_second].area += area;
  return to_second;
}

static bool halves_good(const search *at, const half halves[2]) {
  for (int i = 0; i < 2; i++)
    if (halves[i].tokens == 0 || !mt_pack_fits(at->problem, halves[i].index, halves[i].tokens) ||
        seconds_at(at, halves[i].index, halves[i].tokens, halves[i].area) >= at->ceiling)
      return false;
  return true;
}

static bool try_split(search *at) {
  mt_pack_state *state = at->state;
  int32_t group = at->slowest, degree = at->rows[state->degree[group]].degree;
  if (degree < 2 || state->size[group] < 2 || state->groups == state->capacity) return false;
  const int32_t *index_at_most = at->problem->table->index_at_most;
  half start[2] = {{.index = index_at_most[degree - degree / 2]}, {.index = index_at_most[degree / 2]}};
  if (start[0].index < 0 || start[1].index < 0) return false;
  half trial[2] = {start[0], start[1]};
  for (int32_t k = state->first[group]; k >= 0; k = state->next[k]) deal(at, trial, k);
  if (!halves_good(at, trial)) return false;
  mt_pack_state_set_degree(state, at->problem, group, start[0].index);
  int32_t other = mt_pack_state_open(state, at->problem, start[1].index);
  for (int32_t k = state->first[group], next; k >= 0; k = next) {
    next = state->next[k];
    if (!deal(at, start, k)) continue;
    mt_pack_state_remove(state, at->problem, k);
    mt_pack_state_insert(state, at->problem, k, other);
  }
  return true;
}

/* One step, or exact degrees for the grouping as it is; false if neither helps. */
static bool take_step(search *at, mt_pack_scratch *scratch) {
  mt_pack_state *state = at->state;
  if (try_degree(at) || try_move(at) || try_swap(at) || try_merge(at) || try_split(at)) return true;
  if (at->work->done >= at->work->limit) return true;
  mt_pack_state_allocate(state, at->problem, scratch);
  at->work->done += 4 * (int64_t)state->groups + at->problem->ranks;
  return state->seconds[state->slowest[1]] < at->ceiling;
}

bool mt_pack_improve(const mt_pack_problem *problem, double bound, mt_pack_scratch *scratch, mt_pack_work *work,
                     mt_pack_state *state) {
  search at = {.problem = problem, .rows = problem->table->rows, .state = state, .work = work};
  bool settled = state->groups == 0;
  mt_pack_state_watch(state);
  while (!settled && work->done < work->limit) {
    find_extremes(&at);
    settled = state->seconds[at.slowest] <= bound || !take_step(&at, scratch);
  }
  mt_pack_state_unwatch(state);
  return settled;
}
