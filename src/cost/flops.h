/** @file
 * Floating-point operations of a step: products of matrices and attention, two operations a multiply-add, from the
 * actual shapes of its microbatches. What a model asks for (model FLOPs): what is computed twice to save memory
 * counts once, and of a frozen layer no weight gradients count.
 */
#ifndef MT_COST_FLOPS_H
#define MT_COST_FLOPS_H

#include <stdint.h>

typedef enum mt_flops_part {
  MT_FLOPS_FORWARD,
  MT_FLOPS_INPUT,  /* gradients of inputs and of everything inside of a layer */
  MT_FLOPS_WEIGHT, /* gradients of weights */
  MT_FLOPS_PARTS
} mt_flops_part;

/** What a stage has of one module. */
typedef struct mt_flops_piece {
  int32_t stage, module;
  double *parts[MT_FLOPS_PARTS]; /* [microbatches] */
} mt_flops_piece;

typedef struct mt_flops {
  double peak; /* of one rank, per second; 0: not known */
  int32_t piece_count, microbatch_count;
  mt_flops_piece *pieces; /* by stage, then module */
} mt_flops;

/** Sums by part; of all modules where @p module is -1, of all stages where @p stage is. */
void mt_flops_sum(const mt_flops *flops, int32_t stage, int32_t module, double parts[MT_FLOPS_PARTS]);

/** All parts of the whole step. */
double mt_flops_total(const mt_flops *flops);

/** Model FLOPs utilization: of what @p ranks ranks could do in @p seconds; NAN where their peak is not known. */
double mt_flops_utilization(const mt_flops *flops, double total, int32_t ranks, double seconds);

#endif
