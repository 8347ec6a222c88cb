/** @file One microbatch: from its sequences to a grouping with degrees, by any of the planners. */
#ifndef MT_PACK_SOLVE_H
#define MT_PACK_SOLVE_H

#include "pack/bound.h"
#include "pack/search.h"

/** Everything that solving needs, made once for a number of sequences. */
typedef struct mt_pack_solver {
  mt_pack_problem problem; /* its arrays are those below */
  int32_t capacity;
  int64_t *tokens;
  double *area, *work, *keys;
  int32_t *least, *order, *by_tokens, *spare;
  mt_pack_state states[3];
  mt_pack_scratch scratch;
  mt_pack_bound_scratch bound_scratch;
  mt_arena *table_arena; /* of the published dynamic program; NULL until used */
} mt_pack_solver;

typedef struct mt_pack_solution {
  const mt_pack_state *state; /* one of the solver's */
  double value, bound;
  motet_pack_stop stop;
} mt_pack_solution;

bool mt_pack_solver_create(mt_arena *arena, const mt_pack_table *table, int32_t ranks, int64_t memory_tokens,
                           int32_t capacity, mt_pack_solver *solver);
void mt_pack_solver_destroy(mt_pack_solver *solver);

/** Takes the sequences @p members of @p sequences; all fit some allowed degree. */
void mt_pack_solver_load(mt_pack_solver *solver, const motet_pack_sequence *sequences, const int32_t *members,
                         int32_t count);

/**
 * Groups the loaded sequences. @p work counts all effort; beyond its limit the best so far is kept.
 * @return false if the planner finds no grouping within memory and ranks
 */
bool mt_pack_solve(mt_pack_solver *solver, motet_pack_planner planner, int32_t static_degree, mt_pack_work *work,
                   mt_pack_solution *solution);

/** MOTET_PACK_BEST without the full enumeration of few sequences. */
bool mt_pack_solve_search(mt_pack_solver *solver, mt_pack_work *work, mt_pack_solution *solution);

/** mt_pack_bound_barriers() of the loaded sequences. */
double mt_pack_solver_bound_barriers(mt_pack_solver *solver);

/** The planners that do not search (baseline.c); false as above. */
bool mt_pack_solve_bfd_dp(mt_pack_solver *solver, mt_pack_state *state);
bool mt_pack_solve_static(mt_pack_solver *solver, int32_t degree, mt_pack_state *state);
bool mt_pack_solve_pow2_greedy(mt_pack_solver *solver, mt_pack_state *state);
bool mt_pack_solve_lpt(mt_pack_solver *solver, mt_pack_state *state);

#endif
