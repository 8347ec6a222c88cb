/** @file
 * Zero-slack chains: from the end of an instruction back through what made it end when it did. Every element ends
 * at the very time at which its successor begins.
 */
#ifndef MT_SIM_CHAIN_H
#define MT_SIM_CHAIN_H

#include "sim/engine.h"

/** Stands before instruction `place` of `rank`: the next element is what ended last before it. */
typedef struct mt_chain {
  const motet_program *program;
  const mt_trace *trace;
  int64_t place;
  int32_t rank;
} mt_chain;

typedef struct mt_chain_element {
  int64_t instruction; /* compute and others: itself; a transfer's WAIT; a collective's last member */
  int64_t post;        /* a transfer's later post; else -1 */
  int32_t rank;        /* where that instruction stands */
  double from, to;     /* a transfer runs from its later post, queueing for its link included */
} mt_chain_element;

/** One element back; false at the beginning of a list. Instructions that took no time and compute nothing are
 * passed over. */
bool mt_chain_back(mt_chain *chain, mt_chain_element *element);

#endif
