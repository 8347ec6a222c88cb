#include "pack/bound.h"

#include <math.h>

enum { BISECTIONS = 12, QUANTA = 6, EXACT_KNAPSACK_RANKS = 128 };
static const double SAFETY = 1e-11; /* relative; more than the rounding of any sum here */

bool mt_pack_bound_scratch_create(mt_arena *arena, const mt_pack_table *table, int32_t ranks,
                                  mt_pack_bound_scratch *scratch) {
  *scratch = (mt_pack_bound_scratch){.ratio = MT_ARENA_NEW(arena, double, table->count + 1),
                                     .linear = MT_ARENA_NEW(arena, double, table->count + 1),
                                     .ring = MT_ARENA_NEW(arena, double, table->count + 1),
                                     .quanta = MT_ARENA_NEW(arena, int64_t, table->count),
                                     .best = MT_ARENA_NEW(arena, int64_t, ranks + 1)};
  return scratch->ratio != NULL && scratch->linear != NULL && scratch->ring != NULL && scratch->quanta != NULL &&
         scratch->best != NULL;
}

double mt_pack_floor(const mt_pack_problem *problem, int32_t sequence) {
  double least = INFINITY;
  for (int32_t i = problem->least[sequence]; i < problem->table->count; i++) {
    double seconds =
        mt_pack_row_seconds(&problem->table->rows[i], problem->tokens[sequence], problem->area[sequence]);
    if (seconds < least) least = seconds;
  }
  return least;
}

static double total_work(const mt_pack_problem *problem) {
  double work = 0;
  for (int32_t k = 0; k < problem->count; k++) work += problem->work[k];
  return work;
}

/* The largest floor. The sequence of most work is first in the order; one that is no longer and has no more area
 * than it has no larger floor. */
static double largest_floor(const mt_pack_problem *problem) {
  int32_t giant = problem->order[0];
  double largest = mt_pack_floor(problem, giant);
  for (int32_t k = 0; k < problem->count; k++) {
    if (problem->tokens[k] <= problem->tokens[giant] && problem->area[k] <= problem->area[giant]) continue;
    double seconds = mt_pack_floor(problem, k);
    if (seconds > largest) largest = seconds;
  }
  return largest;
}

double mt_pack_bound_plain(const mt_pack_problem *problem) {
  if (problem->count == 0) return 0;
  double plain = problem->table->fixed + total_work(problem) / problem->ranks, largest = largest_floor(problem);
  return (plain > largest ? plain : largest) * (1 - SAFETY);
}

/* First degree index at which the sequence alone reaches the target; table->count: none. */
static int32_t first_index(const mt_pack_problem *problem, int32_t sequence, double target) {
  int32_t i = problem->least[sequence];
  while (i < problem->table->count &&
         mt_pack_row_seconds(&problem->table->rows[i], problem->tokens[sequence], problem->area[sequence]) > target)
    i++;
  return i;
}

/*
 * Rank-seconds that sequences need beyond their work because a target keeps them out of narrow groups, less the
 * fixed parts: the threshold bound's left side. Sequences that reach the target at index 0 add nothing. INFINITY if
 * one reaches it nowhere.
 */
static double threshold_extra(const mt_pack_problem *problem, double target, mt_pack_bound_scratch *scratch) {
  const mt_pack_table *table = problem->table;
  double *ratio = scratch->ratio;
  for (int32_t i = 0; i <= table->count; i++) ratio[i] = 0;
  for (int32_t k = 0; k < problem->count; k++) {
    int32_t first = first_index(problem, k, target);
    if (first == table->count) return INFINITY;
    double own = problem->area[k] / (double)problem->tokens[k];
    if (own > ratio[first]) ratio[first] = own;
  }
  for (int32_t i = 1; i < table->count; i++)
    if (ratio[i - 1] > ratio[i])
      ratio[i] = ratio[i - 1]; /* most area per token that a group of this degree may hold */
  scratch->linear[table->count] = scratch->ring[table->count] = INFINITY;
  for (int32_t i = table->count - 1; i >= 0; i--) {
    double degree = table->rows[i].degree, linear = degree * table->rows[i].linear - table->linear;
    double ring = degree * table->rows[i].ring;
    if (ring < table->attention * ratio[i]) ring = 0; /* its attention may hide the ring: count attention instead */
    scratch->linear[i] = linear < scratch->linear[i + 1] ? linear : scratch->linear[i + 1];
    scratch->ring[i] = ring < scratch->ring[i + 1] ? ring : scratch->ring[i + 1];
  }
  double extra = 0;
  for (int32_t k = 0; k < problem->count; k++) {
    int32_t first = first_index(problem, k, target);
    if (first == 0) continue;
    double linear = scratch->linear[first], tokens = (double)problem->tokens[k];
    double ring = scratch->ring[first] * tokens - table->attention * problem->area[k];
    extra += (linear > 0 ? linear * tokens : 0) + (scratch->ring[first] > 0 && ring > 0 ? ring : 0);
  }
  return extra;
}

/* A quantum of tokens and area: a sequence counts as often as it contains one. */
typedef struct quantum {
  int64_t tokens;
  double area;
  int64_t total; /* over all sequences but the giant */
  int64_t whole; /* over all sequences */
} quantum;

static int64_t count_in(const quantum *unit, int64_t tokens, double area) {
  int64_t count = tokens / unit->tokens;
  if (unit->area > 0 && (double)count * unit->area > area) count = (int64_t)(area / unit->area);
  return count;
}

/* Most quanta that a group of the row holds within the target and its memory, beside what is in it already; -1 if
 * that alone is too much. Rounds up: never too few. */
static int64_t room_for(const mt_pack_problem *problem, const mt_pack_row *row, const quantum *unit, double target,
                        int64_t tokens, double area) {
  int64_t memory = problem->memory_tokens * row->degree - tokens;
  if (memory < 0) return -1;
  double slack = target * (1 + SAFETY) - row->fixed - row->linear * (double)tokens;
  double after_attention = slack - row->attention * area,
         after_ring = slack - row->ring * (double)tokens - row->latency;
  if (after_attention < 0 || after_ring < 0) return -1;
  int64_t by_memory = memory / unit->tokens;
  double length = (double)unit->tokens, most = (double)by_memory;
  double attention = row->linear * length + row->attention * unit->area, ring = (row->linear + row->ring) * length;
  if (attention > 0 && after_attention / attention < most) most = after_attention / attention;
  if (ring > 0 && after_ring / ring < most) most = after_ring / ring;
  return (int64_t)floor(most * (1 + SAFETY) + SAFETY);
}

/* Most quanta on 0 .. ranks ranks: exactly by dynamic program on few ranks, else as a fluid (never too few). */
static void fill_best(const mt_pack_problem *problem, mt_pack_bound_scratch *scratch, mt_pack_work *work) {
  const mt_pack_table *table = problem->table;
  int64_t *best = scratch->best;
  if (problem->ranks > EXACT_KNAPSACK_RANKS) {
    double densest = 0;
    for (int32_t i = 0; i < table->count; i++) {
      double density = (double)scratch->quanta[i] / table->rows[i].degree;
      if (density > densest) densest = density;
    }
    for (int32_t j = 0; j <= problem->ranks; j++) best[j] = (int64_t)floor(densest * j * (1 + SAFETY) + SAFETY);
    work->done += problem->ranks / 4;
    return;
  }
  best[0] = 0;
  for (int32_t j = 1; j <= problem->ranks; j++) {
    int64_t most = best[j - 1];
    for (int32_t i = 0; i < table->count && table->rows[i].degree <= j; i++) {
      int64_t quanta = best[j - table->rows[i].degree] + scratch->quanta[i];
      if (scratch->quanta[i] > 0 && quanta > most) most = quanta;
    }
    best[j] = most;
  }
  work->done += (int64_t)problem->ranks * table->count / 8;
}

/* True if no plan reaches the target because its groups cannot hold the quanta. */
static bool quantum_refutes(const mt_pack_problem *problem, const quantum *unit, double target,
                            mt_pack_bound_scratch *scratch, mt_pack_work *work) {
  const mt_pack_table *table = problem->table;
  for (int32_t i = 0; i < table->count; i++) {
    int64_t room = room_for(problem, &table->rows[i], unit, target, 0, 0);
    scratch->quanta[i] = room > 0 ? room : 0;
  }
  fill_best(problem, scratch, work);
  if (unit->whole > scratch->best[problem->ranks]) return true;
  int32_t giant = problem->order[0]; /* it lies in one group, whose degree leaves so many ranks to the others */
  for (int32_t i = problem->least[giant]; i < table->count; i++) {
    int64_t beside = room_for(problem, &table->rows[i], unit, target, problem->tokens[giant], problem->area[giant]);
    if (beside >= 0 && beside + scratch->best[problem->ranks - table->rows[i].degree] >= unit->total) return false;
  }
  return true;
}

static quantum quantum_of(const mt_pack_problem *problem, int64_t tokens) {
  quantum unit = {.tokens = tokens, .area = INFINITY};
  for (int32_t k = 0; k < problem->count; k++)
    if (problem->tokens[k] >= tokens && problem->area[k] < unit.area) unit.area = problem->area[k];
  for (int32_t k = 0; k < problem->count; k++)
    unit.whole += problem->tokens[k] >= tokens ? count_in(&unit, problem->tokens[k], problem->area[k]) : 0;
  int32_t giant = problem->order[0];
  unit.total = unit.whole;
  if (problem->tokens[giant] >= tokens) unit.total -= count_in(&unit, problem->tokens[giant], problem->area[giant]);
  return unit;
}

static bool threshold_refutes(const mt_pack_problem *problem, double target, double work,
                              mt_pack_bound_scratch *scratch) {
  double extra = threshold_extra(problem, target, scratch);
  return (work + extra) * (1 - SAFETY) > problem->ranks * (target - problem->table->fixed);
}

double mt_pack_bound(const mt_pack_problem *problem, const int32_t *by_tokens, double value,
                     mt_pack_bound_scratch *scratch, mt_pack_work *work) {
  double low = mt_pack_bound_plain(problem), high = value, sum = total_work(problem);
  if (problem->count == 0) return 0;
  for (int step = 0; step < BISECTIONS && high - low > 1e-4 * high; step++) {
    double middle = 0.5 * (low + high);
    work->done += 2 * (int64_t)problem->count + 4 * (int64_t)problem->table->count;
    if (threshold_refutes(problem, middle, sum, scratch))
      low = middle;
    else
      high = middle;
  }
  static const int percent[QUANTA] = {2, 10, 25, 50, 75, 100};
  int64_t last = 0;
  for (int q = 0; q < QUANTA; q++) {
    int64_t tokens = problem->tokens[by_tokens[(int64_t)(problem->count - 1) * percent[q] / 100]];
    if (tokens == last) continue;
    last = tokens;
    quantum unit = quantum_of(problem, tokens);
    work->done += problem->count;
    high = value;
    /* A quantum that does not refute a little more than what is known is not worth the steps. */
    double probe = low * (1 + 1e-3);
    if (probe >= high || !quantum_refutes(problem, &unit, probe, scratch, work)) continue;
    low = probe;
    for (int step = 0; step < BISECTIONS && high - low > 1e-3 * high; step++) {
      double middle = 0.5 * (low + high);
      if (quantum_refutes(problem, &unit, middle, scratch, work))
        low = middle;
      else
        high = middle;
    }
  }
  return low < value ? low * (1 - SAFETY) : value;
}

/* Most work that fits beside the sequence into the memory of one microbatch: densest first, the last one in part.
 */
static double most_work_beside(const mt_pack_problem *problem, const int32_t *by_density, int32_t sequence) {
  int64_t left = problem->memory_tokens * problem->ranks - problem->tokens[sequence];
  double work = 0;
  for (int32_t i = 0; i < problem->count && left > 0; i++) {
    int32_t k = by_density[i];
    if (k == sequence) continue;
    if (problem->tokens[k] > left) return work + problem->work[k] * (double)left / (double)problem->tokens[k];
    work += problem->work[k];
    left -= problem->tokens[k];
  }
  return work;
}

double mt_pack_bound_barriers(const mt_pack_problem *problem, const int32_t *by_density,
                              mt_pack_bound_scratch *scratch) {
  if (problem->count == 0) return 0;
  int64_t tokens = 0, whole = problem->memory_tokens * problem->ranks;
  for (int32_t k = 0; k < problem->count; k++) tokens += problem->tokens[k];
  int64_t needed = tokens / whole + (tokens % whole != 0);
  double microbatches = (double)needed, fixed = problem->table->fixed;
  double work = total_work(problem);
  double plain = microbatches * fixed + (work + threshold_extra(problem, INFINITY, scratch)) / problem->ranks;
  int32_t giant = problem->order[0];
  double elsewhere = work - problem->work[giant] - most_work_beside(problem, by_density, giant) - SAFETY * work;
  double with_giant = mt_pack_floor(problem, giant) + (microbatches - 1) * fixed;
  if (elsewhere > 0) with_giant += elsewhere / problem->ranks;
  double largest = largest_floor(problem) + (microbatches - 1) * fixed;
  double best = plain > largest ? plain : largest;
  return (best > with_giant ? best : with_giant) * (1 - SAFETY);
}

double mt_pack_bound_global(const mt_pack_problem *problem, double value, mt_pack_bound_scratch *scratch) {
  if (problem->count == 0) return 0;
  int64_t tokens = 0;
  for (int32_t k = 0; k < problem->count; k++) tokens += problem->tokens[k];
  int64_t ranks = tokens / problem->memory_tokens + (tokens % problem->memory_tokens != 0); /* of all groups */
  double base = total_work(problem) + problem->table->fixed * (double)ranks;
  double low = base / problem->ranks, largest = largest_floor(problem), high = value;
  if (largest > low) low = largest;
  if (value == INFINITY) return low * (1 - SAFETY);
  for (int step = 0; step < BISECTIONS && high - low > 1e-4 * high; step++) {
    double middle = 0.5 * (low + high);
    if ((base + threshold_extra(problem, middle, scratch)) * (1 - SAFETY) > problem->ranks * middle)
      low = middle;
    else
      high = middle;
  }
  low *= 1 - SAFETY;
  return low < value ? low : value;
}
