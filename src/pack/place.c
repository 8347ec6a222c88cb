#include "pack/place.h"

#include <stdlib.h>
#include <string.h>

enum { LOOKED_AT_MAX = 64, WORD_BITS = 64 };

static bool power_of_two(int32_t value) { return (value & (value - 1)) == 0; }

bool mt_pack_sets_create(int32_t ranks, int32_t ranks_per_node, int64_t budget, mt_pack_sets *sets) {
  if (ranks_per_node <= 0 || ranks_per_node > ranks) ranks_per_node = ranks;
  *sets = (mt_pack_sets){.ranks = ranks,
                         .ranks_per_node = ranks_per_node,
                         .nodes = (ranks + ranks_per_node - 1) / ranks_per_node,
                         .words = (ranks + WORD_BITS - 1) / WORD_BITS,
                         .budget = budget};
  sets->head = malloc(((size_t)ranks + 1) * sizeof *sets->head);
  sets->busy = calloc((size_t)sets->words, sizeof *sets->busy);
  sets->trial = calloc((size_t)sets->words, sizeof *sets->trial);
  sets->free_in_node = calloc((size_t)sets->nodes, sizeof *sets->free_in_node);
  if (sets->head == NULL || sets->busy == NULL || sets->trial == NULL || sets->free_in_node == NULL) {
    mt_pack_sets_destroy(sets);
    return false;
  }
  for (int32_t d = 0; d <= ranks; d++) sets->head[d] = -1;
  sets->base_least = 1;
  while (sets->base_least <= ranks) {
    sets->base_least *= 2;
    sets->base_count = 0;
    for (int64_t d = sets->base_least; d <= ranks; d *= 2) sets->base_count += ranks / d;
    if (sets->base_count <= budget) break;
  }
  return true;
}

void mt_pack_sets_destroy(mt_pack_sets *sets) {
  free(sets->head);
  free(sets->busy);
  free(sets->trial);
  free(sets->free_in_node);
  free(sets->degree.data);
  free(sets->next.data);
  free(sets->spans.data);
  free(sets->used_in.data);
  free(sets->bits.data);
  memset(sets, 0, sizeof *sets);
}

bool mt_pack_sets_base(const mt_pack_sets *sets, int32_t degree) {
  return degree == 1 || (degree >= sets->base_least && power_of_two(degree));
}

static bool has(const uint64_t *bits, int32_t rank) { return (bits[rank / WORD_BITS] >> (rank % WORD_BITS)) & 1; }
static void put(uint64_t *bits, int32_t rank) { bits[rank / WORD_BITS] |= (uint64_t)1 << (rank % WORD_BITS); }

static int32_t node_begin(const mt_pack_sets *sets, int32_t node) { return node * sets->ranks_per_node; }
static int32_t node_end(const mt_pack_sets *sets, int32_t node) {
  int32_t end = (node + 1) * sets->ranks_per_node;
  return end < sets->ranks ? end : sets->ranks;
}

static void begin(mt_pack_sets *sets) {
  memset(sets->busy, 0, (size_t)sets->words * sizeof *sets->busy);
  for (int32_t node = 0; node < sets->nodes; node++)
    sets->free_in_node[node] = node_end(sets, node) - node_begin(sets, node);
  sets->wide_placed = sets->next_single = 0;
}

/* Takes the ranks of `bits` and lists them. */
static void take(mt_pack_sets *sets, const uint64_t *bits, int32_t *ranks) {
  int32_t count = 0;
  for (int32_t word = 0; word < sets->words; word++) {
    sets->busy[word] |= bits[word];
    for (uint64_t rest = bits[word]; rest != 0; rest &= rest - 1) {
      int32_t rank = word * WORD_BITS + __builtin_ctzll(rest);
      ranks[count++] = rank;
      sets->free_in_node[rank / sets->ranks_per_node]--;
    }
  }
}

static bool disjoint(const uint64_t *a, const uint64_t *b, int32_t words) {
  for (int32_t word = 0; word < words; word++)
    if ((a[word] & b[word]) != 0) return false;
  return true;
}

/* The known free set of this degree that touches fewest nodes; -1: none. */
static int32_t find_known(const mt_pack_sets *sets, int32_t degree) {
  int32_t chosen = -1, looked_at = 0;
  for (int32_t set = sets->head[degree]; set >= 0 && looked_at < LOOKED_AT_MAX;
       set = sets->next.data[set], looked_at++)
    if (disjoint(sets->bits.data + (size_t)set * (size_t)sets->words, sets->busy, sets->words) &&
        (chosen < 0 || sets->spans.data[set] <= sets->spans.data[chosen]))
      chosen = set;
  return chosen;
}

static bool touches_trial(const mt_pack_sets *sets, int32_t node) {
  for (int32_t rank = node_begin(sets, node); rank < node_end(sets, node); rank++)
    if (has(sets->trial, rank)) return true;
  return false;
}

/* The node with the fewest free ranks that still has `needed`, none of them in the trial; -1: none. */
static int32_t tightest_node(const mt_pack_sets *sets, int32_t needed) {
  int32_t chosen = -1;
  for (int32_t node = 0; node < sets->nodes; node++)
    if (sets->free_in_node[node] >= needed &&
        (chosen < 0 || sets->free_in_node[node] < sets->free_in_node[chosen]) && !touches_trial(sets, node))
      chosen = node;
  return chosen;
}

/* First of `count` free ranks in a row in the node, at a multiple of `step` from its begin; -1: none. */
static int32_t find_run(const mt_pack_sets *sets, int32_t node, int32_t count, int32_t step) {
  int32_t end = node_end(sets, node);
  for (int32_t at = node_begin(sets, node); at + count <= end; at += step) {
    int32_t length = 0;
    while (length < count && !has(sets->busy, at + length)) length++;
    if (length == count) return at;
  }
  return -1;
}

/* Adds `count` free ranks of the node to the trial: aligned and in a row where there are such. */
static void add_from_node(mt_pack_sets *sets, int32_t node, int32_t count) {
  int32_t run = find_run(sets, node, count, count);
  if (run < 0) run = find_run(sets, node, count, 1);
  for (int32_t i = 0; run >= 0 && i < count; i++) put(sets->trial, run + i);
  if (run >= 0) return;
  for (int32_t rank = node_begin(sets, node); count > 0; rank++)
    if (!has(sets->busy, rank)) {
      put(sets->trial, rank);
      count--;
    }
}

/* The node with most free ranks, none of them in the trial. */
static int32_t emptiest_node(const mt_pack_sets *sets, bool from_end) {
  int32_t chosen = -1;
  for (int32_t i = 0; i < sets->nodes; i++) {
    int32_t node = from_end ? sets->nodes - 1 - i : i;
    if (sets->free_in_node[node] > 0 && (chosen < 0 || sets->free_in_node[node] > sets->free_in_node[chosen]) &&
        !touches_trial(sets, node))
      chosen = node;
  }
  return chosen;
}

/* A set over as few nodes as can be; the ranks suffice. Leaves it in the trial. Wide groups come from both ends in
 * turn, so that the same sets come back whatever the other one's degree is. */
static void compose(mt_pack_sets *sets, int32_t degree) {
  bool from_end = sets->wide_placed % 2 != 0;
  memset(sets->trial, 0, (size_t)sets->words * sizeof *sets->trial);
  if (degree > sets->ranks_per_node) sets->wide_placed++;
  while (degree > 0) {
    int32_t node = degree <= sets->ranks_per_node ? tightest_node(sets, degree) : -1;
    if (node < 0) node = emptiest_node(sets, from_end);
    int32_t count = sets->free_in_node[node] < degree ? sets->free_in_node[node] : degree;
    add_from_node(sets, node, count);
    degree -= count;
  }
}

/* Single ranks come last and need no set: whatever is free, ascending. */
static void take_single(mt_pack_sets *sets, int32_t *rank) {
  while (has(sets->busy, sets->next_single)) sets->next_single++;
  *rank = sets->next_single;
  put(sets->busy, *rank);
}

static bool in_base(const mt_pack_sets *sets, const uint64_t *bits, int32_t degree) {
  if (degree < sets->base_least || !power_of_two(degree)) return false;
  int32_t lowest = 0;
  while (!has(bits, lowest)) lowest++;
  if (lowest % degree != 0 || lowest + degree > sets->ranks) return false;
  for (int32_t i = 0; i < degree; i++)
    if (!has(bits, lowest + i)) return false;
  return true;
}

static int32_t spans_of(const mt_pack_sets *sets, const uint64_t *bits) {
  int32_t spans = 0;
  for (int32_t node = 0; node < sets->nodes; node++)
    for (int32_t rank = node_begin(sets, node); rank < node_end(sets, node); rank++)
      if (has(bits, rank)) {
        spans++;
        break;
      }
  return spans;
}

/* Makes the trial a known set: its number, or -1 when memory is out. */
static int32_t make(mt_pack_sets *sets, int32_t degree) {
  int32_t set = (int32_t)sets->degree.count;
  if (!MT_ARRAY_PUSH(&sets->degree, degree) || !MT_ARRAY_PUSH(&sets->next, sets->head[degree]) ||
      !MT_ARRAY_PUSH(&sets->spans, spans_of(sets, sets->trial)) || !MT_ARRAY_PUSH(&sets->used_in, -1))
    return -1;
  for (int32_t word = 0; word < sets->words; word++)
    if (!MT_ARRAY_PUSH(&sets->bits, sets->trial[word])) return -1;
  sets->head[degree] = set;
  sets->made++;
  if (!in_base(sets, sets->trial, degree)) sets->custom_made++;
  return set;
}

static void count_use(mt_pack_sets *sets, int32_t set, int64_t plan, int32_t *distinct) {
  if (sets->used_in.data[set] == plan) return;
  sets->used_in.data[set] = plan;
  (*distinct)++;
}

static int32_t find_exact(const mt_pack_sets *sets, const uint64_t *bits, int32_t degree) {
  for (int32_t set = sets->head[degree]; set >= 0; set = sets->next.data[set])
    if (memcmp(sets->bits.data + (size_t)set * (size_t)sets->words, bits, (size_t)sets->words * sizeof *bits) == 0)
      return set;
  return -1;
}

/* The known or new set that is in the trial; -1: beyond the budget; -2: no memory. */
static int32_t settle(mt_pack_sets *sets, int32_t degree) {
  int32_t set = find_exact(sets, sets->trial, degree);
  if (set >= 0) {
    sets->hits++;
    return set;
  }
  bool base = in_base(sets, sets->trial, degree);
  if (sets->budget > 0 && !base && sets->custom_made >= sets->budget - sets->base_count) return -1;
  set = make(sets, degree);
  return set >= 0 ? set : -2;
}

/* Blocks of powers of two, descending, one behind the other: all aligned. */
static mt_pack_placing place_blocks(mt_pack_sets *sets, int32_t groups, const int32_t *order,
                                    const int32_t *degrees, const int64_t *first, int64_t plan, int32_t *ranks,
                                    int32_t *distinct) {
  int32_t next = 0;
  begin(sets);
  for (int32_t i = 0; i < groups; i++) {
    int32_t degree = degrees[order[i]];
    memset(sets->trial, 0, (size_t)sets->words * sizeof *sets->trial);
    for (int32_t r = 0; r < degree; r++) put(sets->trial, next + r);
    next += degree;
    if (degree > 1) {
      int32_t set = settle(sets, degree);
      if (set < 0) return set == -1 ? MT_PACK_BEYOND_BUDGET : MT_PACK_PLACE_NO_MEMORY;
      count_use(sets, set, plan, distinct);
    }
    take(sets, sets->trial, ranks + first[order[i]]);
  }
  return MT_PACK_PLACED;
}

mt_pack_placing mt_pack_place(mt_pack_sets *sets, int32_t groups, const int32_t *order, const int32_t *degrees,
                              const int64_t *first, int64_t plan, int32_t *ranks, int32_t *distinct) {
  bool blocks = sets->budget > 0;
  for (int32_t i = 0; i < groups && blocks; i++) blocks = mt_pack_sets_base(sets, degrees[order[i]]);
  if (blocks) return place_blocks(sets, groups, order, degrees, first, plan, ranks, distinct);
  begin(sets);
  for (int32_t i = 0; i < groups; i++) {
    int32_t degree = degrees[order[i]];
    if (degree == 1) {
      take_single(sets, &ranks[first[order[i]]]);
      continue;
    }
    int32_t set = find_known(sets, degree);
    int32_t fewest = (degree + sets->ranks_per_node - 1) / sets->ranks_per_node;
    if (set >= 0 && (sets->spans.data[set] == fewest || sets->budget > 0)) {
      sets->hits++;
      if (degree > sets->ranks_per_node) sets->wide_placed++;
      count_use(sets, set, plan, distinct);
      take(sets, sets->bits.data + (size_t)set * (size_t)sets->words, ranks + first[order[i]]);
      continue;
    }
    compose(sets, degree);
    set = settle(sets, degree);
    if (set < 0) return set == -1 ? MT_PACK_BEYOND_BUDGET : MT_PACK_PLACE_NO_MEMORY;
    count_use(sets, set, plan, distinct);
    take(sets, sets->trial, ranks + first[order[i]]);
  }
  return MT_PACK_PLACED;
}

bool mt_pack_sets_use(mt_pack_sets *sets, const int32_t *ranks, int32_t degree, int64_t plan, int32_t *distinct) {
  if (degree < 2) return true;
  memset(sets->trial, 0, (size_t)sets->words * sizeof *sets->trial);
  for (int32_t i = 0; i < degree; i++) put(sets->trial, ranks[i]);
  int32_t set = find_exact(sets, sets->trial, degree);
  if (set >= 0)
    sets->hits++;
  else
    set = make(sets, degree);
  if (set < 0) return false;
  count_use(sets, set, plan, distinct);
  return true;
}
