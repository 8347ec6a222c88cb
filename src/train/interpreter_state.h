/** @file The interpreter's state, shared by its files; see interpreter.h. */
#ifndef MT_TRAIN_INTERPRETER_STATE_H
#define MT_TRAIN_INTERPRETER_STATE_H

#include "comm/collective.h"
#include "train/interpreter.h"
#include "train/pool.h"

/** A buffer and how many of the rank's instructions still need it. */
typedef struct mt_value {
  void *data;
  int32_t uses;
} mt_value;

/** The forward pass of one (stage, microbatch), until its backward. */
typedef struct mt_kept {
  mt_arena *arena;
  mt_saved *saved;
  bool recompute;        /* dropped behind the forward; RECOMPUTE brings it back */
  bool split;            /* its backward is BWD_X, then BWD_W */
  mt_deferred *deferred; /* in between: the weight gradients put off, in `memory` */
  float *memory;
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
  char *staging; /* gradients on their way through a reduction */

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

  /* Of the weights as the last step left them. */
  struct mt_weight_digest {
    bool known; /* frozen layers keep theirs */
    uint64_t value;
  } * digests; /* [layers + 1] by layer, then the tied matrix alone */
  uint64_t weights_digest;

  /* Features that the last step computed for this one. */
  int32_t carried_count;
  struct mt_carried_value {
    int32_t stage, microbatch; /* local */
    void *data;
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

/** Whether the parameter is the weight that the program's tie shares: the tie's own reduction adds it up. */
bool mt_interpreter_is_tied(const mt_interpreter *interpreter, const mt_parameter *parameter);

/** The first rank that holds the layer answers for it in sums over all layers. */
bool mt_interpreter_answers_for(const mt_interpreter *interpreter, int32_t layer);

/** Doubles in which the digests of all weights go round in a sum over all ranks. */
size_t mt_interpreter_digest_count(const mt_interpreter *interpreter);
/** Writes this rank's part of the sum. */
motet_status mt_interpreter_digest_tell(mt_interpreter *interpreter, motet_error *error, double *sums);
/** Reads the sum: this rank's weights must be those of the ranks that answer for them. */
motet_status mt_interpreter_digest_check(mt_interpreter *interpreter, const double *sums, motet_error *error);

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
motet_status mt_interpreter_recompute(mt_interpreter *interpreter, const motet_instruction *instruction,
                                      motet_error *error);
motet_status mt_interpreter_backward(mt_interpreter *interpreter, const motet_instruction *instruction,
                                     motet_error *error);
motet_status mt_interpreter_backward_weights(mt_interpreter *interpreter, const motet_instruction *instruction,
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
