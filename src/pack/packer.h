/** @file The packer: what a plan is assembled in. */
#ifndef MT_PACK_PACKER_H
#define MT_PACK_PACKER_H

#include "base/array.h"
#include "pack/global.h"
#include "pack/place.h"
#include "pack/solve.h"

struct motet_packer {
  motet_pack_options options; /* degrees: own copy */
  int32_t *degrees;
  mt_arena *fixed_arena, *batch_arena;
  mt_pack_table table;
  int32_t *base_degrees, base_degree_count; /* allowed degrees of the base family, with a group budget */
  mt_pack_table base_table;
  int64_t longest;
  double deadline_ms; /* of the current plan */

  int32_t capacity; /* sequences that the batch arena's arrays hold */
  mt_pack_solver solver, base_solver;
  mt_pack_timeline timeline;
  int32_t *members, *spare;                     /* [capacity] */
  int32_t *microbatch_of;                       /* [capacity] of each sequence, where the planner cuts the batch */
  double *floors;                               /* [capacity] least seconds of each sequence at any degree */
  double *cut_work;                             /* [capacity] of each microbatch */
  int64_t *cut_tokens;                          /* [capacity] */
  bool *is_deferred;                            /* [capacity] */
  double *keys;                                 /* [capacity] */
  int32_t *group_order, *group_degree, *sorted; /* [capacity] */
  int64_t *group_first;                         /* [capacity] */
  motet_pack_group *group_copy;                 /* [capacity] */

  mt_pack_sets sets;
  int64_t plans;
  double seconds_total, seconds_lost;

  MT_ARRAY(motet_pack_microbatch) microbatches;
  MT_ARRAY(motet_pack_group) groups;
  MT_ARRAY(int32_t) ranks;
  MT_ARRAY(int32_t) sequences;
  MT_ARRAY(int32_t) deferred;
  MT_ARRAY(motet_pack_part) parts;
  MT_ARRAY(motet_pack_slice) slices;
  MT_ARRAY(int64_t) cumulative;
  MT_ARRAY(unsigned char) canonical; /* what the digest is taken of */
  motet_pack_plan plan;
};

/** Counted work for this share of the deadline. */
mt_pack_work mt_pack_work_for(const motet_packer *packer, double share);

/** Plans @p members as one microbatch with this share of the effort; `*fits` is false, and nothing is added, if the
 * planner cannot. */
motet_status mt_pack_plan_microbatch(motet_packer *packer, const motet_pack_sequence *sequences,
                                     const int32_t *members, int32_t count, double share, motet_error *error,
                                     bool *fits);

/** Cuts the batch into as few microbatches as memory asks for, or some more where that is faster, and plans them.
 */
motet_status mt_pack_plan_auto(motet_packer *packer, const motet_pack_sequence *sequences, int32_t count,
                               motet_error *error);

void mt_pack_forget_microbatches(motet_packer *packer);
double mt_pack_sum_of_values(const motet_packer *packer);

/** Fills parts, slices, cumulative lengths and loss weights from the groups. */
motet_status mt_pack_slice_all(motet_packer *packer, const motet_pack_sequence *sequences, motet_error *error);

/** Adds the solution's groups as a microbatch, placed on ranks. */
motet_status mt_pack_emit(motet_packer *packer, const mt_pack_solver *solver, const mt_pack_solution *solution,
                          const int32_t *members, mt_pack_placing *placing, motet_error *error);
motet_status mt_pack_emit_global(motet_packer *packer, const mt_pack_solution *solution, const int32_t *members,
                                 motet_error *error);

uint64_t mt_pack_digest(motet_packer *packer, bool *made);

#endif
