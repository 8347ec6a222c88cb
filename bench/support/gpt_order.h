/** @file
 * What the order of measured plans allows: whether any model of a wide class can put them in that order, and how
 * near the best found one comes.
 *
 * The class: a step takes (M + P - 1) stages of layers / P, a layer's pass over a microbatch of b samples takes
 * b * cost(tensor, b), whatever cost is as long as a larger microbatch makes no sample dearer, nor a pass cheaper;
 * and what is left over is proportional to the gradients of a device. Costs are free for every pair of tensor
 * degree and microbatch.
 */
#ifndef BENCH_GPT_ORDER_H
#define BENCH_GPT_ORDER_H

#include "gpt_rows.h"

/** The highest rank correlation with the measured order that a climb from many beginnings finds in the class, every
 * cost chosen for these very rows. */
double gpt_order_reachable(const gpt_rows *rows, const char *model);

/** Four rows of @p model that contradict each other. */
typedef struct gpt_contradiction {
  const gpt_row *slower, *faster;  /* one plan with microbatches a and b: cost(a) is above `least` times cost(b) */
  const gpt_row *shorter, *longer; /* another with the same: cost(a) is below `most` times cost(b) */
  double least, most;
} gpt_contradiction;

/** Pairs of plans with the same tensor degree that were measured with the same two microbatches in opposite orders
 * which no cost of a sample and no time of a plan's own reconciles, monotone or not. Returns how many, at most @p
 * room. */
int gpt_order_contradictions(const gpt_rows *rows, const char *model, gpt_contradiction *found, int room);

#endif
