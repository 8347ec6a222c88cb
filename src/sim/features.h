/** @file
 * Features alive: outputs of replicated stages, from the end of the forward that makes them to the end of the
 * last forward that reads them, wherever they lie.
 */
#ifndef MT_SIM_FEATURES_H
#define MT_SIM_FEATURES_H

#include "base/arena.h"
#include "base/error.h"
#include "motet/program.h"

typedef struct mt_features {
  const motet_program *program;
  int32_t replicated_count;
  int32_t *slot;           /* [stages] 0.. for replicated stages, else -1 */
  int32_t *consumed_begin; /* [stages + 1] */
  int32_t *consumed;       /* slots of the replicated stages that a stage reads from */
  double *birth, *death;   /* [replicated_count x microbatches]; birth < 0: never made in this step */
  double *next_birth;      /* the same, of the next step's microbatches */
} mt_features;

motet_status mt_features_make(mt_arena *arena, const motet_program *program, motet_error *error,
                              mt_features *features);

/** A forward of (stage, microbatch) ended at @p finish. */
static inline void mt_features_ended(mt_features *features, const motet_instruction *instruction, double finish) {
  int32_t stage = instruction->stage, microbatches = features->program->microbatch_count;
  bool next = (instruction->flags & MOTET_FLAG_NEXT) != 0;
  if (features->slot[stage] >= 0) {
    int64_t at = (int64_t)features->slot[stage] * microbatches + instruction->microbatch;
    (next ? features->next_birth : features->birth)[at] = finish;
  }
  if (next) return;
  for (int32_t i = features->consumed_begin[stage]; i < features->consumed_begin[stage + 1]; i++) {
    int64_t at = (int64_t)features->consumed[i] * microbatches + instruction->microbatch;
    if (finish > features->death[at]) features->death[at] = finish;
  }
}

/** A forward of the program ended at @p finish: what is joined with the one behind it ends with that. */
static inline void mt_features_forward(mt_features *features, const motet_instruction *instruction, double finish) {
  if ((instruction->flags & MOTET_FLAG_JOINED) != 0) return;
  mt_features_ended(features, instruction, finish);
  while (instruction > features->program->instructions && (instruction[-1].flags & MOTET_FLAG_JOINED) != 0)
    mt_features_ended(features, --instruction, finish);
}

/** The largest number alive at once in one replica; needs the makespan for those that nothing reads. */
motet_status mt_features_peak(mt_arena *arena, const mt_features *features, double makespan, motet_error *error,
                              int32_t *peak);

#endif
