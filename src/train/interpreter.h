/** @file
 * The interpreter: walks one rank's instruction list and does what it says. It knows instructions, buffers and
 * groups; what a region is called and which schedule made the list is not its business.
 */
#ifndef MT_TRAIN_INTERPRETER_H
#define MT_TRAIN_INTERPRETER_H

#include "comm/transport.h"
#include "motet/program.h"
#include "nn/context.h"
#include "nn/network.h"
#include "train/board.h"

/** Where microbatches come from. */
typedef struct mt_batch_source {
  void *context;
  /** The shapes of program microbatch @p microbatch, of the next step's with @p next; without data, but of a
   * microbatch that is cut into ranges with its feature rows. The arrays stay valid until the end of the step that
   * the microbatch belongs to. */
  motet_status (*shape)(void *context, bool next, int32_t microbatch, motet_error *error, mt_batch *batch);
  /** Adds what @p inputs (MOTET_INPUT_*) asks for to @p batch; memory from @p arena. */
  motet_status (*load)(void *context, bool next, int32_t microbatch, uint32_t inputs, mt_arena *arena,
                       motet_error *error, mt_batch *batch);
  /** Where this step's @p microbatch comes from, for messages; or NULL. */
  void (*origin)(void *context, int32_t microbatch, char *text, size_t size);
  /** Of a source with a cache of features, see mt_step.cached_layers; else NULL. How many tiles each picture of
   * this step's @p microbatch has, from @p arena; its features out of the cache; and into it. */
  motet_status (*pictures)(void *context, int32_t microbatch, mt_arena *arena, motet_error *error,
                           const int32_t **tiles, int32_t *count);
  motet_status (*read_features)(void *context, int32_t microbatch, motet_error *error, void *features);
  motet_status (*keep_features)(void *context, int32_t microbatch, motet_error *error, const void *features);
} mt_batch_source;

typedef struct mt_interpreter_options {
  const mt_internvl *config;
  mt_network *network;
  mt_transport *transport;
  mt_board_place *place; /* this rank's, or NULL */
  int32_t ulysses;       /* context parallelism: most ranks of a group that exchange heads; 0 or 1: none */
} mt_interpreter_options;

/** One step. */
typedef struct mt_step {
  const motet_program *program;
  const mt_batch_source *source;
  int64_t number;     /* optimizer step, from 1 */
  mt_adamw optimizer; /* with the step's learning rate */
  double clip_norm;   /* 0: none */
  /* What STEP_END adds up over its group: on return the sums. The first microbatch_count entries are the losses of
     the program's microbatches and are written here; the others are the caller's. */
  double *sums;
  int32_t sum_count;
  /* Layers [0, cached_layers) are frozen, and what leaves them is cached: read for the microbatches that the
     program says are cached, and kept for the others. 0: nothing is. */
  int32_t cached_layers;
  bool aside; /* no step of the sequence (an evaluation): outputs kept for the next step stay kept */
} mt_step;

typedef struct mt_step_result {
  double gradient_norm;     /* of all gradients, before clipping; 0 on ranks without OPTIM */
  double optimizer_wait;    /* seconds of OPTIM in which the rank waited for the others\' part of the norm */
  uint64_t weights_digest;  /* of all weights behind the step, the same on every rank and under every layout */
  mt_context_counts counts; /* of this rank's attention: what it sent to other members, how long it waited */
  int64_t peak_bytes;       /* most bytes of activations, gradients of activations and saved values at once */
  const double *start;      /* [rank's instructions] mt_clock_seconds(); valid until the next run */
  const double *finish;
} mt_step_result;

typedef struct mt_interpreter mt_interpreter;

motet_status mt_interpreter_create(const mt_interpreter_options *options, motet_error *error,
                                   mt_interpreter **interpreter);
void mt_interpreter_destroy(mt_interpreter *interpreter);

/**
 * Runs the transport's rank's list of a verified program. Errors carry rank, instruction and microbatch, and their
 * text says what the instruction was. After an error the interpreter can only be destroyed.
 */
motet_status mt_interpreter_run(mt_interpreter *interpreter, const mt_step *step, motet_error *error,
                                mt_step_result *result);

#endif
