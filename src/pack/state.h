/** @file
 * A grouping of one microbatch while it is being made: groups with degrees and sums, sequences in linked lists. All
 * changes are O(1); everything lives in arrays that the owner gives once.
 */
#ifndef MT_PACK_STATE_H
#define MT_PACK_STATE_H

#include "pack/cost.h"

/** The sequences of one microbatch and the limits. Arrays are the owner's. */
typedef struct mt_pack_problem {
  const mt_pack_table *table;
  int32_t ranks;
  int64_t memory_tokens;
  int32_t count;
  const int64_t *tokens; /* [count] */
  const double *area;    /* [count] */
  const double *work;    /* [count] linear * tokens + attention * area: rank-seconds without ring and fixed part */
  const int32_t *least;  /* [count] index of the least degree whose memory takes the sequence */
  const int32_t *order;  /* [count] by work, descending; ties by index */
} mt_pack_problem;

typedef struct mt_pack_state {
  int32_t capacity; /* sequences, and groups */
  int32_t groups;
  int32_t ranks_used;
  int32_t *degree;                  /* [groups] index in the table */
  int64_t *tokens;                  /* [groups] */
  double *area;                     /* [groups] */
  double *seconds;                  /* [groups] */
  int32_t *first;                   /* [groups] list of its sequences; -1: empty */
  int32_t *size;                    /* [groups] */
  int32_t *next, *previous, *owner; /* [sequences]; owner -1: in no group */
  /* Tournaments over the groups' seconds, kept while leaves > 0: node n has children 2n and 2n + 1, the leaves
   * start at `leaves`; -1 stands for no group. */
  int32_t leaves;
  int32_t *slowest, *fastest; /* [4 * capacity] */
} mt_pack_state;

/** Scratch of an allocation: see mt_pack_state_allocate(). */
typedef struct mt_pack_scratch {
  int32_t *heap, *least, *chosen; /* [capacity] */
  double *times;                  /* [capacity] */
  int32_t *degrees;               /* [table rows] */
} mt_pack_scratch;

bool mt_pack_state_create(mt_arena *arena, int32_t capacity, mt_pack_state *state);
bool mt_pack_scratch_create(mt_arena *arena, int32_t capacity, const mt_pack_table *table,
                            mt_pack_scratch *scratch);

/** No groups; none of @p count sequences is in one. */
void mt_pack_state_clear(mt_pack_state *state, int32_t count);
void mt_pack_state_copy(mt_pack_state *to, const mt_pack_state *from, int32_t count);

/** From here on slowest[1] and fastest[1] are the groups of most and least seconds (ties: the lower), until
 * mt_pack_state_unwatch(). */
void mt_pack_state_watch(mt_pack_state *state);
void mt_pack_state_unwatch(mt_pack_state *state);

/** Opens an empty group and takes its ranks. */
int32_t mt_pack_state_open(mt_pack_state *state, const mt_pack_problem *problem, int32_t degree_index);
void mt_pack_state_insert(mt_pack_state *state, const mt_pack_problem *problem, int32_t sequence, int32_t group);
void mt_pack_state_remove(mt_pack_state *state, const mt_pack_problem *problem, int32_t sequence);
void mt_pack_state_set_degree(mt_pack_state *state, const mt_pack_problem *problem, int32_t group,
                              int32_t degree_index);
/** Removes the empty group @p group; the last group takes its number. */
void mt_pack_state_drop(mt_pack_state *state, const mt_pack_problem *problem, int32_t group);
void mt_pack_state_drop_empty(mt_pack_state *state, const mt_pack_problem *problem);

/** Sums and times anew, sequences ascending: free of the rounding that many steps leave. */
void mt_pack_state_refresh(mt_pack_state *state, const mt_pack_problem *problem);

double mt_pack_state_value(const mt_pack_state *state);

/** Least degree index whose memory takes @p tokens; table->count if none. */
int32_t mt_pack_least_degree(const mt_pack_problem *problem, int64_t tokens);

/** Degrees of all groups anew, exactly (mt_allocate_heap()). False, unchanged, if memory asks for too many ranks.
 */
bool mt_pack_state_allocate(mt_pack_state *state, const mt_pack_problem *problem, mt_pack_scratch *scratch);

/** Index of exactly this degree, or -1. */
static inline int32_t mt_pack_degree_index(const mt_pack_problem *problem, int32_t degree) {
  if (degree < 1 || degree > problem->ranks) return -1;
  int32_t index = problem->table->index_at_most[degree];
  return index >= 0 && problem->table->rows[index].degree == degree ? index : -1;
}

static inline double mt_pack_group_seconds(const mt_pack_problem *problem, int32_t degree_index, int64_t tokens,
                                           double area) {
  return tokens == 0 ? 0.0 : mt_pack_row_seconds(&problem->table->rows[degree_index], tokens, area);
}

static inline bool mt_pack_fits(const mt_pack_problem *problem, int32_t degree_index, int64_t tokens) {
  return tokens <= problem->memory_tokens * problem->table->rows[degree_index].degree;
}

#endif
