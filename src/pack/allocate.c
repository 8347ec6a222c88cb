#include "pack/allocate.h"

#include <math.h>

/* Ties go to the lower group. */
static int before(const double *times, int32_t a, int32_t b) {
  return times[a] > times[b] || (times[a] >= times[b] && a < b);
}

static void sift_down(int32_t *heap, int32_t count, int32_t at, const double *times) {
  int32_t item = heap[at];
  for (;;) {
    int32_t child = 2 * at + 1;
    if (child >= count) break;
    if (child + 1 < count && before(times, heap[child + 1], heap[child])) child++;
    if (!before(times, heap[child], item)) break;
    heap[at] = heap[child];
    at = child;
  }
  heap[at] = item;
}

double mt_allocate_heap(const mt_allocate_problem *problem, int32_t *heap, double *times, int32_t *chosen) {
  int64_t used = 0;
  for (int32_t g = 0; g < problem->groups; g++) {
    chosen[g] = problem->least[g];
    if (chosen[g] >= problem->degree_count) return INFINITY;
    used += problem->degrees[chosen[g]];
    times[g] = problem->seconds(problem->context, g, chosen[g]);
    heap[g] = g;
  }
  if (used > problem->ranks) return INFINITY;
  if (problem->groups == 0) return 0;
  for (int32_t at = problem->groups / 2 - 1; at >= 0; at--) sift_down(heap, problem->groups, at, times);
  for (;;) {
    int32_t slowest = heap[0], now = chosen[slowest], next = now + 1;
    double seconds = INFINITY;
    for (; next < problem->degree_count; next++) {
      if (used + problem->degrees[next] - problem->degrees[now] > problem->ranks) return times[slowest];
      seconds = problem->seconds(problem->context, slowest, next);
      if (seconds < times[slowest]) break;
    }
    if (next == problem->degree_count) return times[slowest];
    used += problem->degrees[next] - problem->degrees[now];
    chosen[slowest] = next;
    times[slowest] = seconds;
    sift_down(heap, problem->groups, 0, times);
  }
}

double mt_allocate_table(const mt_allocate_problem *problem, mt_arena *arena, int32_t *chosen) {
  int64_t width = (int64_t)problem->ranks + 1, rows = (int64_t)problem->groups + 1;
  double *best = MT_ARENA_NEW(arena, double, rows *width);
  int32_t *choice = MT_ARENA_NEW(arena, int32_t, rows * width);
  double *row_times = MT_ARENA_NEW(arena, double, problem->degree_count);
  if (best == NULL || choice == NULL || row_times == NULL) return NAN;
  for (int32_t i = 0; i < problem->groups; i++) {
    const double *above = best + i * width;
    double *row = best + (i + 1) * width;
    int32_t *row_choice = choice + (i + 1) * width, least = problem->least[i];
    for (int32_t d = least; d < problem->degree_count; d++) row_times[d] = problem->seconds(problem->context, i, d);
    for (int64_t j = 0; j < width; j++) {
      row[j] = INFINITY;
      row_choice[j] = -1;
      for (int32_t d = least; d < problem->degree_count && problem->degrees[d] <= j; d++) {
        double left = above[j - problem->degrees[d]], seconds = left > row_times[d] ? left : row_times[d];
        if (seconds < row[j]) {
          row[j] = seconds;
          row_choice[j] = d;
        }
      }
    }
  }
  double value = best[rows * width - 1];
  if (chosen == NULL || value == INFINITY) return value;
  int64_t j = problem->ranks;
  for (int32_t i = problem->groups; i > 0; i--) {
    chosen[i - 1] = choice[i * width + j];
    j -= problem->degrees[chosen[i - 1]];
  }
  return value;
}
