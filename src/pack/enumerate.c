#include "pack/search.h"

#include <math.h>

typedef struct enumeration {
  const mt_pack_problem *problem;
  mt_pack_scratch *scratch;
  mt_pack_state *trial, *best;
  mt_pack_work *work;
  double value; /* of best */
} enumeration;

/* Restricted growth: sequence number @p sequence joins one of the groups before it or opens the next. */
static void extend(enumeration *of, int32_t sequence) {
  mt_pack_state *trial = of->trial;
  if (sequence == of->problem->count) {
    of->work->done += of->problem->ranks;
    if (!mt_pack_state_allocate(trial, of->problem, of->scratch)) return;
    double value = mt_pack_state_value(trial);
    if (value >= of->value) return;
    of->value = value;
    mt_pack_state_copy(of->best, trial, of->problem->count);
    return;
  }
  int32_t groups = trial->groups;
  for (int32_t g = 0; g < groups; g++) {
    mt_pack_state_insert(trial, of->problem, sequence, g);
    extend(of, sequence + 1);
    mt_pack_state_remove(trial, of->problem, sequence);
  }
  int32_t own = mt_pack_state_open(trial, of->problem, 0);
  mt_pack_state_insert(trial, of->problem, sequence, own);
  extend(of, sequence + 1);
  mt_pack_state_remove(trial, of->problem, sequence);
  mt_pack_state_drop(trial, of->problem, own);
}

bool mt_pack_enumerate(const mt_pack_problem *problem, mt_pack_scratch *scratch, mt_pack_state *trial,
                       mt_pack_work *work, mt_pack_state *state) {
  enumeration of = {problem, scratch, trial, state, work, INFINITY};
  mt_pack_state_clear(trial, problem->count);
  extend(&of, 0);
  return of.value < INFINITY;
}
