/** @file
 * The whole batch on the ranks' timelines, without barriers. Ranks are cut into columns of one width; a sequence
 * that needs more takes several columns side by side as a gang, the others run in groups one behind the other on a
 * column.
 */
#ifndef MT_PACK_GLOBAL_H
#define MT_PACK_GLOBAL_H

#include "pack/solve.h"

/** Where and when a group of the state runs. */
typedef struct mt_pack_slot {
  int32_t first_rank;
  double start;
} mt_pack_slot;

typedef struct mt_pack_timeline {
  mt_pack_slot *slots;               /* [capacity] of each group */
  int32_t *column_of;                /* [capacity] column of a group; -1: a gang */
  double *finish;                    /* [ranks] of each column */
  int32_t *column_first;             /* [ranks] its first rank */
  int32_t *column_row;               /* [ranks] degree index of its groups */
  int64_t *column_tokens;            /* [ranks] */
  double *column_area, *column_base; /* [ranks]; base: end of the gangs on it */
  double *estimate;                  /* [ranks] */
  int32_t *heap;                     /* [ranks] */
  int32_t *gang_row, *gangs;         /* [capacity] */
  int32_t *column_wanted;            /* [capacity] column chosen for a sequence */
  double *keys;                      /* [capacity] */
} mt_pack_timeline;

bool mt_pack_timeline_create(mt_arena *arena, int32_t capacity, int32_t ranks, mt_pack_timeline *timeline);

/** Plans the solver's loaded sequences. The groups are in `solution->state`, their slots in timeline->slots.
 * False if some sequence fits nowhere beside the others, which the packer rules out before. */
bool mt_pack_solve_global(mt_pack_solver *solver, mt_pack_timeline *timeline, mt_pack_work *work,
                          mt_pack_solution *solution);

#endif
