/** @file The interpreter's state, shared by its files; see interpreter.h. */
#ifndef MT_TRAIN_INTERPRETER_STATE_H
#define MT_TRAIN_INTERPRETER_STATE_H

#include "comm/collective.h"
#include "program/columns.h"
#include "train/interpreter.h"
#include "train/pool.h"
#include "train/share.h"

/** A buffer and how many of the rank's instructions still need it. */
typedef struct mt_value {
  void *data;
  int32_t uses;
} mt_value;

/** The forward pass of one (stage, microbatch), until its backward. */
typedef struct mt_kept {
  mt_arena *arena;
  mt_saved *saved;
  int32_t members;       /* microbatches that it is of; kept with the first of them */
  int32_t layer_begin;   /* the first layer that ran: behind cached features later than the stage's */
  bool recompute;        /* dropped behind the forward; RECOMPUTE brings it back */
  bool split;            /* its backward is BWD_X, then BWD_W */
  mt_deferred *deferred; /* in between: the weight gradients put off, in `memory` */
  float *memory;
  /* Of a share, where image modules stand in front of the decoder in one stage. */
  mt_saved *image_saved;
  mt_batch images;     /* the tiles in which the share has features */
  int32_t *image_rows; /* [features] rows of these among the tiles' */
} mt_kept;

/** One microbatch's inputs; index [next step?][local microbatch]. */
typedef struct mt_input {
  mt_batch batch;
  int32_t range;  /* that this rank shares, or 0 */
  mt_share share; /* with a range */
  mt_arena *arena;
  uint32_t loaded; /* MOTET_INPUT_* */
  int32_t uses;    /* instructions that still read it */
} mt_input;

/** One instruction of those that are computed at once. */
typedef struct mt_member {
  const motet_instruction *instruction;
  mt_input *input;
  const mt_batch *batch; /* its own */
  mt_value *read, *made; /* forward activations, backward gradients; NULL: none */
  const void *from; /* its rows of what is put together, and where its rows go of what is taken apart; or NULL */
  void *to;
  float *features; /* workspace: what it begins with, from the cache or for it; or NULL */
} mt_member;

/** What is computed at once: an instruction, or joined ones. */
typedef struct mt_run {
  const motet_instruction *first;
  int32_t count;
  mt_member *members;
  const mt_batch *batch; /* all members' behind one another; of one member its own */
  float *pixels;         /* its, put together; or NULL */
} mt_run;

/** Activations that enter @p layer, or their gradients: of all members of a run behind one another. */
typedef struct mt_joined {
  int32_t layer;
  void *data;
  float *workspace; /* given back by the maker; NULL where the data are one member's own */
} mt_joined;

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
  mt_arena *run_arena; /* of the run that is computed */
  mt_arena *tables;    /* everything below, reset every step */
  bool *trainable;     /* [layers] */
  mt_interpreter_stage *stages;
  int32_t *in_edges;
  mt_value *outputs;       /* (stages, microbatches) produced here */
  mt_value *next_outputs;  /* the same, of the next step */
  mt_value *received;      /* (edges, microbatches) activations from other ranks */
  mt_value *gradients;     /* (edges, microbatches) gradients of the edge's activation */
  mt_kept *kept;           /* (stages, microbatches) */
  mt_input *inputs;        /* (2, microbatches) */
  mt_transfer **transfers; /* [buffers] posted and not yet waited for */

  /* Of microbatches cut into ranges. */
  mt_context_exchange exchange;
  mt_context_counts counts;
  mt_value *wholes;  /* (edges, microbatches) an owner's: gradients of an encoder's output, put together */
  void **staged;     /* [buffers] pieces on their way between an owner and a share */
  mt_share **pieces; /* [program shares] which features each reads, looked up when needed */

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

/** Whether an encoder's output goes along the edge in pieces, one to each share that reads of it. */
bool mt_interpreter_is_seam(const mt_interpreter *interpreter, int32_t edge);
/** Works out this rank's shares; inputs have their shapes. */
motet_status mt_interpreter_share_prepare(mt_interpreter *interpreter, motet_error *error);
/** Picks the share's part of what has been loaded. */
motet_status mt_interpreter_share_load(mt_interpreter *interpreter, const motet_instruction *instruction,
                                       motet_error *error);
/** What a share reads of an encoder's output, in a buffer from the pool. */
motet_status mt_interpreter_gather(mt_interpreter *interpreter, int32_t range, int32_t member, const void *whole,
                                   motet_error *error, void **piece);
/** Puts a share's gradient where it belongs in the gradient of the encoder's output. */
motet_status mt_interpreter_scatter(mt_interpreter *interpreter, int32_t edge, int32_t range, int32_t member,
                                    const void *piece, motet_error *error);
/* Rows of decoder width: to[i] = from[rows[i]], and to[rows[i]] = from[i]. */
void mt_interpreter_gather_rows(const mt_interpreter *interpreter, const void *from, const int32_t *rows,
                                int32_t count, void *to);
void mt_interpreter_scatter_rows(const mt_interpreter *interpreter, const void *from, const int32_t *rows,
                                 int32_t count, void *to);
/** The first layer that runs on the share itself: behind the image modules. */
int32_t mt_interpreter_share_begin(const mt_interpreter *interpreter, const motet_instruction *instruction);
/** Whether a shared stage begins with image modules and its share has features: those run first, on their tiles. */
bool mt_interpreter_has_images(mt_interpreter *interpreter, const motet_instruction *instruction);
motet_status mt_interpreter_forward_images(mt_interpreter *interpreter, const motet_instruction *instruction,
                                           bool keep, mt_kept *kept, void **piece, motet_error *error);
motet_status mt_interpreter_backward_images(mt_interpreter *interpreter, const motet_instruction *instruction,
                                            const mt_kept *kept, const void *piece, motet_error *error);

/** What the instruction computes on: the microbatch, or this rank's share of it. */
static inline const mt_batch *mt_interpreter_batch(mt_interpreter *interpreter,
                                                   const motet_instruction *instruction) {
  bool next = (instruction->flags & MOTET_FLAG_NEXT) != 0;
  const mt_input *input = mt_interpreter_input(interpreter, next, instruction->microbatch);
  return instruction->range > 0 ? &input->share.batch : &input->batch;
}

/** Whether the microbatch's features come from the cache. */
bool mt_interpreter_cached(const mt_interpreter *interpreter, int32_t microbatch);

/**
 * Sees to the layers of the stage whose features are cached: reads or computes and keeps them and moves @p layer
 * behind them and the member's `from` to what they make, which is its `to` where nothing is left to run.
 */
motet_status mt_interpreter_begin_stage(mt_interpreter *interpreter, mt_member *member, motet_error *error,
                                        int32_t *layer);

/** One use of the value less; at the last one its buffer goes back to the pool. */
void mt_interpreter_release(mt_interpreter *interpreter, mt_value *value);
/** One instruction less that reads the microbatch's inputs. */
void mt_interpreter_release_input(mt_interpreter *interpreter, mt_input *input);

/** Bytes of what enters @p layer; 0 of the first one, which reads the batch. */
motet_status mt_interpreter_boundary_bytes(const mt_interpreter *interpreter, int32_t layer, const mt_batch *batch,
                                           motet_error *error, int64_t *bytes);

/** How many instructions from @p first on are computed at once. */
int32_t mt_interpreter_run_length(const mt_interpreter *interpreter, const motet_instruction *first);
/** Lists the members; valid until the next run is made. Its batch is the first one's as yet. */
motet_status mt_interpreter_run_make(mt_interpreter *interpreter, const motet_instruction *first,
                                     motet_error *error, mt_run *run);
/** Puts the members' batches together, with what the stage reads of them; @p pixels: those too. */
motet_status mt_interpreter_run_join(mt_interpreter *interpreter, mt_run *run, bool pixels, motet_error *error);
/** Releases what the members have read of their inputs. */
void mt_interpreter_run_end(mt_interpreter *interpreter, mt_run *run);
/** Divides the time of instructions [index, index + length) over them by their rows. */
void mt_interpreter_run_times(mt_interpreter *interpreter, int64_t index, int32_t length, double start,
                              double finish);

/** Workspace for what enters @p layer of all members; of one member none is needed. */
motet_status mt_interpreter_joined_make(mt_interpreter *interpreter, const mt_run *run, int32_t layer,
                                        motet_error *error, mt_joined *joined);
/** Puts the members' `from` together: of one member the data become its own. */
motet_status mt_interpreter_joined_put(mt_interpreter *interpreter, const mt_run *run, mt_joined *joined,
                                       motet_error *error);
/** Takes it apart into the members' `to`. */
motet_status mt_interpreter_joined_take(mt_interpreter *interpreter, const mt_run *run, mt_joined *joined,
                                        motet_error *error);

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
