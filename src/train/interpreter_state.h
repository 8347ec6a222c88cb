/** @file The interpreter's state, shared by its files; see interpreter.h. */
#ifndef MT_TRAIN_INTERPRETER_STATE_H
#define MT_TRAIN_INTERPRETER_STATE_H

#include "comm/collective.h"
#include "train/interpreter.h"
#include "train/pool.h"

/** A buffer and how many of the rank's instructions still need it. */
typedef struct mt_value {
  float *data;
  int32_t uses;
} mt_value;

/** The forward pass of one (stage, microbatch), until its backward. */
typedef struct mt_kept {
  mt_arena *arena;
  mt_saved *saved;
} mt_kept;

/** One microbatch's inputs; index [next step?][local microbatch]. */
typedef struct mt_input {
  mt_batch batch;
  mt_arena *arena;
  uint32_t loaded; /* MOTET_INPUT_* */
  int32_t uses;    /* instructions that still read it */
} mt_input;

/** What the step's tables know of a stage. */
typedef struct mt_interpreter_stage {
  uint64_t modules;         /* bit set */
  bool sends_gradient;      /* something trainable lies before it: its input's gradient is wanted */
  int32_t first_trainable;  /* layer at which its backward stops; -1: no backward */
  int32_t in_begin, in_end; /* its incoming edges, in in_edges[] */
  int32_t out_edge;         /* its outgoing edge, or -1 */
} mt_interpreter_stage;

struct mt_interpreter {
  mt_interpreter_options options;
  int32_t rank;
  mt_pool *pool;
  mt_collective_scratch scratch;
  float *staging; /* gradients on their way through a reduction */

  /* Of the step that runs. */
  const mt_step *step;
  const motet_program *program;
  int32_t first_microbatch, microbatches; /* the rank's replica's */
  const motet_instruction *instructions;
  int64_t instruction_count;
  mt_arena *tables; /* everything below, reset every step */
  bool *trainable;  /* [layers] */
  mt_interpreter_stage *stages;
  int32_t *in_edges;
  mt_value *outputs;       /* (stages, microbatches) produced here */
  mt_value *next_outputs;  /* the same, of the next step */
  mt_value *received;      /* (edges, microbatches) activations from other ranks */
  mt_value *gradients;     /* (edges, microbatches) gradients of the edge's activation */
  mt_kept *kept;           /* (stages, microbatches) */
  mt_input *inputs;        /* (2, microbatches) */
  mt_transfer **transfers; /* [buffers] posted and not yet waited for */
  int32_t optimizer_count; /* ranks with an OPTIM */
  int32_t *optimizer_ranks;
  double gradient_norm, optimizer_wait;

  /* Features that the last step computed for this one. */
  int32_t carried_count;
  struct mt_carried_value {
    int32_t stage, microbatch; /* local */
    float *data;
  } * carried;

  double *start, *finish;
  size_t time_capacity;
};

/** Index of (row, program microbatch) in a table over the replica's microbatches. */
static inline int64_t mt_interpreter_cell(const mt_interpreter *interpreter, int32_t row, int32_t microbatch) {
  return (int64_t)row * interpreter->microbatches + (microbatch - interpreter->first_microbatch);
}

static inline mt_input *mt_interpreter_input(mt_interpreter *interpreter, bool next, int32_t microbatch) {
  return &interpreter->inputs[mt_interpreter_cell(interpreter, next, microbatch)];
}

/** Whether the stage computes for the microbatch: a module of it has data and is not cached. */
bool mt_interpreter_active(const mt_interpreter *interpreter, int32_t stage, int32_t microbatch);

/** One use of the value less; at the last one its buffer goes back to the pool. */
void mt_interpreter_release(mt_interpreter *interpreter, mt_value *value);

/** Builds the tables of a step; what it cannot do is refused here, before anything runs. */
motet_status mt_interpreter_prepare(mt_interpreter *interpreter, motet_error *error);
/** Takes the features for the next step out of the tables. */
motet_status mt_interpreter_carry(mt_interpreter *interpreter, motet_error *error);

motet_status mt_interpreter_load(mt_interpreter *interpreter, const motet_instruction *instruction,
                                 motet_error *error);
motet_status mt_interpreter_forward(mt_interpreter *interpreter, const motet_instruction *instruction,
                                    motet_error *error);
motet_status mt_interpreter_backward(mt_interpreter *interpreter, const motet_instruction *instruction,
                                     motet_error *error);
motet_status mt_interpreter_send(mt_interpreter *interpreter, const motet_instruction *instruction,
                                 motet_error *error);
motet_status mt_interpreter_recv(mt_interpreter *interpreter, const motet_instruction *instruction,
                                 motet_error *error);
motet_status mt_interpreter_wait(mt_interpreter *interpreter, const motet_instruction *instruction,
                                 motet_error *error);
motet_status mt_interpreter_all_reduce(mt_interpreter *interpreter, const motet_instruction *instruction,
                                       motet_error *error);
motet_status mt_interpreter_optimize(mt_interpreter *interpreter, const motet_instruction *instruction,
                                     motet_error *error);
motet_status mt_interpreter_end(mt_interpreter *interpreter, const motet_instruction *instruction,
                                motet_error *error);

#endif
