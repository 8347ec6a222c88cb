/** @file
 * The walk over one rank's list: what is present, what is held, what is still to come. Every instruction kind has a
 * function that judges its data flow (which ends the walk) and notes violations of later rules (which do not).
 */
#ifndef MT_PROGRAM_VERIFY_WALK_H
#define MT_PROGRAM_VERIFY_WALK_H

#include "program/verify.h"

/** A stage on the walking rank; counts hold while `rank` is the rank + 1. */
typedef struct mt_walk_stage {
  int32_t rank;
  bool scattered, gathered; /* REDUCE_SCATTER; ALL_GATHER of the weights after the optimizer */
  int32_t reduces;          /* reduces of its weight gradients */
  int32_t last_reduce;      /* position of the last one */
} mt_walk_stage;

typedef struct mt_walk_tie {
  int32_t rank; /* as above */
  int32_t reduces, last_reduce;
} mt_walk_tie;

/** Transfers between the walking rank and another. */
typedef struct mt_walk_channel {
  int32_t rank; /* as above */
  int32_t sends, receives;
} mt_walk_channel;

typedef struct mt_walk_held {
  int64_t bytes, units; /* units: activations, in share units */
  int32_t features;
} mt_walk_held;

typedef struct mt_walk {
  mt_verifier *verifier;
  int32_t rank, position;
  int32_t run; /* position of the first of the instructions joined with this one */

  /* Memory (rule 6). */
  mt_walk_held live, freed; /* what an instruction frees, or a run of joined ones, lives to its end */
  bool overflow;
  mt_walk_held peak;
  int64_t peak_instruction;

  /* Channels (rule 3). */
  int64_t open_posts;        /* posts without their WAIT */
  mt_walk_channel *channels; /* [ranks] */

  /* Gradients (rule 7). */
  mt_walk_stage *stages; /* [stages] */
  mt_walk_tie *ties;     /* [ties] */
  int32_t first_reduce;  /* position of the rank's first gradient reduce, or -1 */
  int32_t optimizer;     /* position of its OPTIM, or -1 */
  int32_t step_end;      /* position of its STEP_END, or -1 */
} mt_walk;

/* Data flow violations at the walk's place. */
#define MT_WALK_REFUSE(walk, microbatch, ...)                                                                      \
  do {                                                                                                             \
    mt_verify_refuse((walk)->verifier, MT_RULE_DATA_FLOW, (walk)->rank, (walk)->position, (microbatch),            \
                     __VA_ARGS__);                                                                                 \
    return MOTET_ERROR_REFUSED;                                                                                    \
  } while (0)

/* Takes and gives back memory. A peak is noted by mt_walk_peak() when an instruction has all that it needs; joined
 * ones need theirs together, from the first one's begin. */
static inline void mt_walk_take(mt_walk *walk, int64_t bytes) {
  if (__builtin_add_overflow(walk->live.bytes, bytes, &walk->live.bytes)) walk->overflow = true;
}

static inline void mt_walk_give(mt_walk *walk, int64_t bytes) {
  if (!walk->overflow) walk->freed.bytes += bytes; /* no more than was taken */
}

/** The instruction, or the last of a run, has ended. */
static inline void mt_walk_settle(mt_walk *walk) {
  walk->live.bytes -= walk->freed.bytes;
  walk->live.units -= walk->freed.units;
  walk->live.features -= walk->freed.features;
  walk->freed = (mt_walk_held){0};
}

static inline void mt_walk_peak(mt_walk *walk) {
  if (walk->live.bytes > walk->peak.bytes && !walk->overflow) {
    walk->peak.bytes = walk->live.bytes;
    walk->peak_instruction = walk->run;
  }
  if (walk->live.units > walk->peak.units) walk->peak.units = walk->live.units;
  if (walk->live.features > walk->peak.features) walk->peak.features = walk->live.features;
}

static inline bool mt_walk_replicated(const mt_verifier *verifier, int32_t stage) {
  return mt_verify_replicated(verifier, stage);
}

/** One reader of the output of (stage, column) on this rank is done. */
void mt_walk_release_output(mt_walk *walk, int32_t stage, int32_t column);

/** A weight gradient of @p stage was added to: reduces and optimizer must not have run. */
void mt_walk_accumulate(mt_walk *walk, int32_t stage, int32_t microbatch);

typedef motet_status (*mt_walk_function)(mt_walk *walk, const motet_instruction *instruction);

motet_status mt_walk_forward(mt_walk *walk, const motet_instruction *instruction);
motet_status mt_walk_backward(mt_walk *walk, const motet_instruction *instruction);
motet_status mt_walk_backward_weights(mt_walk *walk, const motet_instruction *instruction);
motet_status mt_walk_recompute(mt_walk *walk, const motet_instruction *instruction);
motet_status mt_walk_offload(mt_walk *walk, const motet_instruction *instruction);
motet_status mt_walk_fetch(mt_walk *walk, const motet_instruction *instruction);
motet_status mt_walk_load(mt_walk *walk, const motet_instruction *instruction);
motet_status mt_walk_send(mt_walk *walk, const motet_instruction *instruction);
motet_status mt_walk_recv(mt_walk *walk, const motet_instruction *instruction);
motet_status mt_walk_wait(mt_walk *walk, const motet_instruction *instruction);
motet_status mt_walk_collective(mt_walk *walk, const motet_instruction *instruction);
/** Notes compute that a group shares: to rule 5 it is a collective. */
motet_status mt_walk_share(mt_walk *walk, const motet_instruction *instruction);
motet_status mt_walk_optimizer(mt_walk *walk, const motet_instruction *instruction);
motet_status mt_walk_step_end(mt_walk *walk, const motet_instruction *instruction);

/** What the features found at the step's begin take. */
void mt_walk_take_carried(mt_walk *walk);

/** At a list's end: every post has its WAIT; every required reduce, OPTIM and STEP_END has been seen. */
void mt_walk_finish_transfers(mt_walk *walk);
void mt_walk_finish_gradients(mt_walk *walk);

#endif
