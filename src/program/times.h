/** @file What a plan's numbers are made of beside its program: times, the proven bound, operations. A program's
 * file can keep them under `times`, so that it answers as the plan did; the digest does not cover them. */
#ifndef MT_PROGRAM_TIMES_H
#define MT_PROGRAM_TIMES_H

#include "cost/flops.h"
#include "cost/table.h"

#include <stdbool.h>

typedef struct mt_program_times {
  bool known;            /* false: the file has none, and the rest is empty */
  mt_cost_table costs;   /* over the program's columns (program/columns.h) */
  double bound;          /* no order of the same work is faster; NAN: not known */
  const mt_flops *flops; /* of the step; NULL: not known */
} mt_program_times;

#endif
