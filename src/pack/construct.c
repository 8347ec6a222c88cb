#include "pack/search.h"

#include <math.h>

enum { RECENT_GROUPS = 24, BISECTIONS = 9 };

static double alone(const mt_pack_problem *problem, int32_t sequence, int32_t degree_index) {
  return mt_pack_row_seconds(&problem->table->rows[degree_index], problem->tokens[sequence],
                             problem->area[sequence]);
}

/* First degree index at which the sequence alone reaches the target; -1: none. */
static int32_t degree_for(const mt_pack_problem *problem, int32_t sequence, double target, mt_pack_work *work) {
  for (int32_t index = problem->least[sequence]; index < problem->table->count; index++) {
    work->done++;
    if (alone(problem, sequence, index) <= target) return index;
  }
  return -1;
}

static bool is_wide(const mt_pack_problem *problem, int32_t sequence, int32_t width_index, double target) {
  return problem->least[sequence] > width_index || alone(problem, sequence, width_index) > target;
}

/* Where a wide sequence costs fewest ranks: a group with room, a group that grows, or (ties) a group of its own. */
static bool place_wide(const mt_pack_problem *problem, int32_t sequence, double target, mt_pack_work *work,
                       mt_pack_state *state) {
  const mt_pack_row *rows = problem->table->rows;
  int32_t own = degree_for(problem, sequence, target, work);
  if (own < 0) return false;
  int32_t cost = rows[own].degree, chosen = -1, chosen_index = own;
  double fullest = -1;
  int32_t oldest = state->groups > RECENT_GROUPS ? state->groups - RECENT_GROUPS : 0;
  for (int32_t group = state->groups - 1; group >= oldest; group--) {
    int64_t tokens = state->tokens[group] + problem->tokens[sequence];
    double area = state->area[group] + problem->area[sequence];
    int32_t now = state->degree[group];
    for (int32_t index = now; index < problem->table->count; index++) {
      int32_t more = rows[index].degree - rows[now].degree;
      if (more > cost || (more == cost && cost > 0)) break;
      work->done++;
      if (!mt_pack_fits(problem, index, tokens)) continue;
      double seconds = mt_pack_row_seconds(&rows[index], tokens, area);
      if (seconds > target) continue;
      if (more < cost || seconds > fullest) {
        cost = more;
        fullest = seconds;
        chosen = group;
        chosen_index = index;
      }
      break;
    }
  }
  if (state->ranks_used + cost > problem->ranks) return false;
  if (chosen < 0)
    chosen = mt_pack_state_open(state, problem, own);
  else if (chosen_index != state->degree[chosen])
    mt_pack_state_set_degree(state, problem, chosen, chosen_index);
  mt_pack_state_insert(state, problem, sequence, chosen);
  return true;
}

static bool place_all_wide(const mt_pack_problem *problem, double target, int32_t width_index, mt_pack_work *work,
                           mt_pack_state *state) {
  mt_pack_state_clear(state, problem->count);
  for (int32_t i = 0; i < problem->count; i++) {
    int32_t sequence = problem->order[i];
    if (is_wide(problem, sequence, width_index, target) && !place_wide(problem, sequence, target, work, state))
      return false;
  }
  work->done += problem->count;
  return true;
}

/* New groups of the given width for the sequences without a group; what is left over makes a narrower one. */
static void open_columns(const mt_pack_problem *problem, int32_t width_index, mt_pack_state *state) {
  int32_t waiting = 0;
  for (int32_t k = 0; k < problem->count; k++) waiting += state->owner[k] < 0;
  int32_t left = problem->ranks - state->ranks_used;
  for (int32_t opened = 0; opened < waiting && left > 0; opened++) {
    int32_t at_most = problem->table->index_at_most[left];
    if (at_most < 0) return;
    int32_t index = at_most < width_index ? at_most : width_index;
    mt_pack_state_open(state, problem, index);
    left -= problem->table->rows[index].degree;
  }
}

static bool earlier(const mt_pack_state *state, int32_t a, int32_t b) {
  return state->seconds[a] < state->seconds[b] || (state->seconds[a] <= state->seconds[b] && a < b);
}

static void sift_down(const mt_pack_state *state, int32_t *heap, int32_t count, int32_t at) {
  int32_t item = heap[at];
  for (;;) {
    int32_t child = 2 * at + 1;
    if (child >= count) break;
    if (child + 1 < count && earlier(state, heap[child + 1], heap[child])) child++;
    if (!earlier(state, heap[child], item)) break;
    heap[at] = heap[child];
    at = child;
  }
  heap[at] = item;
}

static int32_t fill_heap(const mt_pack_state *state, int32_t *heap) {
  for (int32_t g = 0; g < state->groups; g++) heap[g] = g;
  for (int32_t at = state->groups / 2 - 1; at >= 0; at--) sift_down(state, heap, state->groups, at);
  return state->groups;
}

/* Longest first on the least loaded group. A group that would pass the target is closed; when all are, the target
 * is given up and only memory closes groups. */
static bool place_rest(const mt_pack_problem *problem, double target, mt_pack_scratch *scratch, mt_pack_work *work,
                       mt_pack_state *state) {
  int32_t *heap = scratch->heap, open = fill_heap(state, heap);
  for (int32_t i = 0; i < problem->count; i++) {
    int32_t sequence = problem->order[i];
    if (state->owner[sequence] >= 0) continue;
    for (;;) {
      if (open == 0) {
        if (target == INFINITY) return false;
        target = INFINITY;
        open = fill_heap(state, heap);
        if (open == 0) return false;
      }
      int32_t group = heap[0];
      int64_t tokens = state->tokens[group] + problem->tokens[sequence];
      work->done += 4;
      if (mt_pack_fits(problem, state->degree[group], tokens) &&
          mt_pack_group_seconds(problem, state->degree[group], tokens,
                                state->area[group] + problem->area[sequence]) <= target) {
        mt_pack_state_insert(state, problem, sequence, group);
        sift_down(state, heap, open, 0);
        break;
      }
      heap[0] = heap[--open];
      if (open > 0) sift_down(state, heap, open, 0);
    }
  }
  return true;
}

bool mt_pack_construct(const mt_pack_problem *problem, double target, int32_t width_index, mt_pack_scratch *scratch,
                       mt_pack_work *work, mt_pack_state *state) {
  if (!place_all_wide(problem, target, width_index, work, state)) return false;
  open_columns(problem, width_index, state);
  if (!place_rest(problem, target, scratch, work, state)) return false;
  mt_pack_state_drop_empty(state, problem);
  work->done += 4 * (int64_t)state->groups + problem->ranks;
  return mt_pack_state_allocate(state, problem, scratch);
}

/* Do the narrow sequences fit beside the wide ones, as a fluid? */
static bool fluid_fits(const mt_pack_problem *problem, double target, mt_pack_work *work, mt_pack_state *state) {
  if (!place_all_wide(problem, target, 0, work, state)) return false;
  double demand = 0, room = 0;
  int64_t tokens = 0, memory = problem->memory_tokens * problem->ranks;
  for (int32_t k = 0; k < problem->count; k++) {
    if (state->owner[k] >= 0) continue;
    demand += problem->work[k];
    tokens += problem->tokens[k];
  }
  for (int32_t g = 0; g < state->groups; g++) {
    room += (target - state->seconds[g]) * problem->table->rows[state->degree[g]].degree;
    memory -= state->tokens[g];
  }
  room += (problem->ranks - state->ranks_used) * (target - problem->table->fixed);
  return demand <= room && tokens <= memory;
}

double mt_pack_target(const mt_pack_problem *problem, double low, double high, mt_pack_work *work,
                      mt_pack_state *state) {
  for (int step = 0; step < BISECTIONS && high - low > 1e-4 * high; step++) {
    double middle = 0.5 * (low + high);
    if (fluid_fits(problem, middle, work, state))
      high = middle;
    else
      low = middle;
  }
  return high;
}

/* Groups by the tokens that they may still take: eight classes a power of two, doubly linked. */
enum { CLASSES = 64 * 8 };
typedef struct shelf {
  int32_t head[CLASSES];
  int32_t *next, *previous; /* [groups] */
  const mt_pack_problem *problem;
  mt_pack_state *state;
} shelf;

static int32_t class_of(int64_t left) {
  if (left < 8) return (int32_t)left;
  int32_t exponent = 63 - __builtin_clzll((unsigned long long)left);
  return exponent * 8 + (int32_t)((left >> (exponent - 3)) & 7);
}

static int64_t left_in(const shelf *on, int32_t group) {
  return on->problem->memory_tokens * on->problem->table->rows[on->state->degree[group]].degree -
         on->state->tokens[group];
}

static void put_back(shelf *on, int32_t group) {
  int32_t *head = &on->head[class_of(left_in(on, group))];
  on->next[group] = *head;
  on->previous[group] = -1;
  if (*head >= 0) on->previous[*head] = group;
  *head = group;
}

static void take_out(shelf *on, int32_t group) {
  if (on->next[group] >= 0) on->previous[on->next[group]] = on->previous[group];
  if (on->previous[group] >= 0)
    on->next[on->previous[group]] = on->next[group];
  else
    on->head[class_of(left_in(on, group))] = on->next[group];
}

/* The group of least room that takes the tokens; ties to the lower; -1: none. Only the first class may hold groups
 * with too little room. */
static int32_t tightest(const shelf *on, int64_t tokens, mt_pack_work *work) {
  for (int32_t class = class_of(tokens); class < CLASSES; class ++) {
    int32_t chosen = -1;
    int64_t least = INT64_MAX;
    for (int32_t group = on->head[class]; group >= 0; group = on->next[group]) {
      int64_t left = left_in(on, group);
      work->done++;
      if (left < tokens || left > least || (left == least && group > chosen)) continue;
      least = left;
      chosen = group;
    }
    if (chosen >= 0) return chosen;
  }
  return -1;
}

void mt_pack_best_fit(const mt_pack_problem *problem, const int32_t *by_tokens, mt_pack_scratch *scratch,
                      mt_pack_work *work, mt_pack_state *state) {
  shelf on = {.next = scratch->heap, .previous = scratch->least, .problem = problem, .state = state};
  for (int32_t i = 0; i < CLASSES; i++) on.head[i] = -1;
  mt_pack_state_clear(state, problem->count);
  for (int32_t i = 0; i < problem->count; i++) {
    int32_t sequence = by_tokens[i], group = tightest(&on, problem->tokens[sequence], work);
    if (group >= 0)
      take_out(&on, group);
    else
      group = mt_pack_state_open(state, problem, problem->least[sequence]);
    mt_pack_state_insert(state, problem, sequence, group);
    put_back(&on, group);
  }
  work->done += CLASSES / 4 + 2 * (int64_t)problem->count;
}
