/** @file
 * The program: what every plan lowers to, and the one thing that the verifier, the simulator, the executor
 * and the exporters consume.
 *
 * A program states a training step twice over. The *statement* says what must be computed: modules, layers
 * with their trainable flags, microbatches with the modules that their data need. The *lists* say who does
 * what in which order: one instruction list per rank, over tables of stages, edges, buffers and groups. The
 * verifier holds the second against the first.
 *
 * Ranks are numbered `replica * pipeline_ranks + pipeline_rank`. Microbatches are numbered over all replicas:
 * `replica * M + m`.
 */
#ifndef MOTET_PROGRAM_H
#define MOTET_PROGRAM_H

#include "motet/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Instruction kinds. Their names in files are the words after MOTET_, e.g. "FWD". */
typedef enum motet_instruction_kind {
  MOTET_FWD,       /**< forward of (stage, microbatch) */
  MOTET_BWD,       /**< backward with weight gradients, and with the input gradients that its gate asks for */
  MOTET_BWD_X,     /**< input gradients alone: first half of a split backward, or all of a frozen stage's */
  MOTET_BWD_W,     /**< weight gradients alone: second half of a split backward */
  MOTET_RECOMPUTE, /**< forward again, to restore saved activations that were dropped */
  MOTET_SEND,      /**< posts the sending of a buffer to `peer`; does not block */
  MOTET_RECV,      /**< posts the receiving of a buffer from `peer`; does not block */
  MOTET_WAIT,      /**< blocks until the posted transfer of (buffer, peer, direction in flags) is complete */
  MOTET_REDUCE,    /**< collectives: `peer` is the group, `buffer` what is reduced or gathered */
  MOTET_REDUCE_SCATTER,
  MOTET_ALL_GATHER,
  MOTET_ALL_REDUCE,
  MOTET_OFFLOAD,  /**< saved activations of (stage, microbatch) to host memory */
  MOTET_FETCH,    /**< and back */
  MOTET_LOAD,     /**< reads the microbatch's inputs for a stage with inputs (pixels, tokens, labels) */
  MOTET_OPTIM,    /**< optimizer step on everything trainable that the rank holds */
  MOTET_STEP_END, /**< barrier over the group in `peer` */
  MOTET_INSTRUCTION_KINDS
} motet_instruction_kind;

/** Instruction flags. */
enum {
  MOTET_FLAG_RECV = 1,  /**< WAIT: for the receive; without it, for the send */
  MOTET_FLAG_NEXT = 2,  /**< FWD, LOAD: of the next step's microbatch of this number (order `ahead`) */
  MOTET_FLAG_JOINED = 4 /**< FWD, BWD, BWD_X, BWD_W, RECOMPUTE of a whole microbatch: one computation together with
                             the instruction behind it, which is of the same kind, stage and step */
};

/** One instruction, 24 bytes. Fields that a kind does not use hold -1 (flags and range: 0). */
typedef struct motet_instruction {
  uint8_t kind; /**< motet_instruction_kind */
  uint8_t flags;
  uint16_t reserved;  /**< zero */
  int32_t stage;      /**< compute, LOAD, OFFLOAD, FETCH; transfers: the activation's producer; collectives: whose
                           weights, or -1 */
  int32_t microbatch; /**< compute, LOAD, transfers */
  int32_t range;      /**< token range computed, index in the range table; 0 is the whole microbatch */
  int32_t buffer;     /**< transfers and collectives: index in the buffer table */
  int32_t peer;       /**< transfers: the other rank; collectives and STEP_END: a group; compute, LOAD, OFFLOAD and
                           FETCH of a token range: the group whose members share it, as a collective does */
} motet_instruction;

/** A module of the statement: a chain of layers. Modules stand in forward order. */
typedef struct motet_program_module {
  const char *name;
  int32_t layer_begin, layer_end;
} motet_program_module;

/** Data flows from the last layer of module `from` to the first of module `to`; `from < to`. */
typedef struct motet_module_edge {
  int32_t from, to;
} motet_module_edge;

/** What the stage reads from the data set (motet_program_stage.inputs is a bit set of these). */
enum { MOTET_INPUT_PIXELS = 1, MOTET_INPUT_TOKENS = 2, MOTET_INPUT_LABELS = 4 };

/** A region of the schedule, for display and idle attribution. */
typedef struct motet_program_region {
  const char *name;     /**< "vision+projector" */
  const char *skeleton; /**< "transpose(order=fill)" */
  bool replicated;      /**< one microbatch, one owner (transpose); else one slab, one rank */
} motet_program_region;

/** A stage: a contiguous run of layers that is computed by one instruction. */
typedef struct motet_program_stage {
  int32_t region;
  int32_t slab;                   /**< slab number inside the region; replicated regions have slab 0 alone */
  int32_t layer_begin, layer_end; /**< layers of the model; may be empty (begin == end): the stage passes its
                                       input on */
  int32_t group;                  /**< the ranks that hold its weights */
  uint32_t inputs;                /**< MOTET_INPUT_* bits */
  double share;                   /**< its part of a rank's share of the region (1/v with v chunks a rank) */
} motet_program_stage;

/** Activations flow along edges from a stage to a later one; gradients flow back along them. */
typedef struct motet_program_edge {
  int32_t from, to;
} motet_program_edge;

/** A microbatch of the statement. */
typedef struct motet_program_microbatch {
  int32_t replica;  /**< the data-parallel replica (pipeline) that trains on it */
  int32_t tokens;   /**< length of its packed row in the trunk; 0 where unknown */
  uint64_t present; /**< bit j: module j has data in this microbatch */
  uint64_t cached;  /**< bit j: module j's output is read from a cache and not computed */
} motet_program_microbatch;

/**
 * A token range of a microbatch's packed row: one group of ranks computes it together, each on its share. Entry 0
 * is the whole row, {0, -1, -1, 0, 0}. Either no microbatch is cut into ranges or all are; the ranges then stand in
 * the order of the microbatches and of their tokens, and their shares one after another.
 */
typedef struct motet_range {
  int32_t begin, end;  /**< tokens [begin, end) */
  int32_t microbatch;  /**< whose tokens */
  int32_t first_share; /**< the group's member i, counted from 0, holds shares[first_share + i] */
  int32_t degree;      /**< members of the group */
} motet_range;

/** What one member holds of a range. Which tokens these are is the runtime's matter. */
typedef struct motet_share {
  int32_t tokens;
  int32_t features; /**< of them, those whose embedding is an encoder's output; without any, none is sent there */
} motet_share;

/** A set of ranks, ascending: `group_ranks[first .. first + count)`. */
typedef struct motet_group {
  int64_t first;
  int32_t count;
} motet_group;

typedef enum motet_buffer_kind {
  MOTET_BUFFER_ACTIVATION,      /**< output of edge.from for the microbatch, on its way to edge.to */
  MOTET_BUFFER_GRADIENT,        /**< gradient of that activation, on its way from edge.to to edge.from */
  MOTET_BUFFER_WEIGHT_GRADIENT, /**< weight gradients of `stage`, reduced over a group */
  MOTET_BUFFER_TIED_GRADIENT,   /**< gradients of the weight that `tie` shares between two stages */
  MOTET_BUFFER_PARAMETER        /**< weights of `stage`, gathered over a group */
} motet_buffer_kind;

/** A named piece of data. A transfer's two ends name the same buffer. */
typedef struct motet_buffer {
  int32_t kind;       /**< motet_buffer_kind */
  int32_t stage;      /**< producer stage (edge.from), or the stage whose weights it is; -1 for a tie */
  int32_t edge;       /**< index in the edge table, of a tie in the tie table, or -1 */
  int32_t microbatch; /**< or -1 */
  int32_t range;      /**< index in the range table */
  int32_t member;     /**< of a range: whose share, a place in the group; else 0 */
  int64_t bytes;
} motet_buffer;

/** A weight that two stages share (tied embeddings): both must add up their gradients. */
typedef struct motet_tie {
  int32_t first_stage, second_stage;
  int64_t bytes;
} motet_tie;

/** Encoder output that this step finds done: its forward ran in the previous step's tail. */
typedef struct motet_carried {
  int32_t stage, microbatch, rank;
} motet_carried;

/**
 * A table of values per (stage, microbatch): entry `[stage * stage_stride + microbatch * microbatch_stride]`.
 * A zero microbatch stride says that every microbatch is alike. NULL values say that all are zero. Where
 * microbatches are cut into ranges, shares take the place of microbatches; a replicated stage's value for a
 * microbatch is the sum over its shares, each of which has the part that it reads.
 */
typedef struct motet_size_table {
  int64_t *values;
  int64_t stage_stride, microbatch_stride;
} motet_size_table;

/**
 * A whole program. The struct is open for reading: all loops over it run on flat arrays. It is made by
 * deriving, by reading a file or by importing, lives in one arena and is released by motet_program_destroy().
 */
typedef struct motet_program {
  int32_t ranks, replicas;

  /* The statement. */
  int32_t module_count, module_edge_count, layer_count, microbatch_count;
  motet_program_module *modules;
  motet_module_edge *module_edges;
  uint8_t *layer_trainable; /**< [layer_count] 0 or 1 */
  motet_program_microbatch *microbatches;

  /* The placement. */
  int32_t region_count, stage_count, edge_count, range_count, share_count, group_count, tie_count, carried_count;
  motet_program_region *regions;
  motet_program_stage *stages;
  motet_program_edge *edges;
  motet_range *ranges;
  motet_share *shares;
  motet_group *groups; /**< group 0 is all ranks */
  int64_t group_rank_count;
  int32_t *group_ranks; /**< [group_rank_count] */
  motet_tie *ties;
  motet_carried *carried;
  int64_t buffer_count;
  motet_buffer *buffers;

  /* Sizes, in bytes; all zero for plans on abstract times. */
  int64_t *static_bytes;         /**< [stage_count] weights, gradients and optimizer state of a holder */
  motet_size_table saved_bytes;  /**< kept from FWD to the end of BWD or BWD_W */
  motet_size_table output_bytes; /**< an activation that leaves the stage, and its gradient */
  int64_t memory_cap;            /**< bytes a rank may use; 0: no cap */

  /* The lists: rank r's instructions are instructions[rank_begin[r] .. rank_begin[r + 1]). */
  int64_t *rank_begin; /**< [ranks + 1] */
  motet_instruction *instructions;

  const char *schedule; /**< the schedule's text where there is one, else "" */
  struct mt_arena *arena;
} motet_program;

void motet_program_destroy(motet_program *program);

/** "FWD", "BWD_X", ...; NULL for a number that is no kind. */
const char *motet_instruction_name(int kind);

/** XXH3 over the canonical form: every table and list, texts included. Equal on every rank and compiler. */
uint64_t motet_program_digest(const motet_program *program);

/** Reads a program JSON file (docs/formats/program.md). Checks every index and count: a program that was
 * read is safe to walk, though not yet proven right. */
motet_status motet_program_read(const char *path, motet_error *error, motet_program **program);
motet_status motet_program_write(const motet_program *program, const char *path, motet_error *error);

/** How the stages of a foreign order lie on its ranks. */
typedef enum motet_placement { MOTET_PLACEMENT_AUTO, MOTET_PLACEMENT_LOOP, MOTET_PLACEMENT_V } motet_placement;

/**
 * Reads a PyTorch pipelining CSV (one row a rank; actions `0F0`, `0I0`, `0W0`, `0B0`, `1SEND_F0`, `1RECV_B0`;
 * empty cells are idle steps). A compute-only order gets its receives right before the consumer and its sends
 * right after the producer, each posted and waited for.
 */
motet_status motet_program_read_pytorch_csv(const char *path, motet_placement placement, motet_error *error,
                                            motet_program **program);
/** Writes the compute order (@p communication false) or the whole order as PyTorch pipelining CSV.
 * MOTET_ERROR_UNSUPPORTED for what that form cannot say (replicas, several ranks holding a stage). */
motet_status motet_program_write_pytorch_csv(const motet_program *program, bool communication, const char *path,
                                             motet_error *error);

/** What motet_verify() is told. */
typedef struct motet_verify_options {
  int32_t capacity;    /**< buffered sends per channel; 0: none (always checked too) */
  bool check_blocking; /**< also judge transfers as blocking in list order (one NCCL stream) */
} motet_verify_options;

typedef struct motet_rank_memory {
  int64_t peak_bytes;
  int64_t peak_instruction; /**< where the peak stands, index in the rank's list; -1 on an empty list */
  double peak_activations;  /**< most microbatch-stages held at once, sharded stages, by share */
  int32_t peak_features;    /**< most outputs of replicated stages held at once on this rank */
} motet_rank_memory;

/** What the verifier found out about an accepted program. Free with motet_verification_free(). */
typedef struct motet_verification {
  motet_rank_memory *memory; /**< [ranks] */
  bool blocking_hangs;       /**< with check_blocking: the blocking reading hangs though the posted one does not */
  int64_t *cycle;            /**< with blocking_hangs or a refusal by "progress": pairs (rank, instruction) */
  int32_t cycle_count;       /**< number of pairs */
} motet_verification;

void motet_verification_free(motet_verification *verification);

/**
 * Proves a program, whoever made it, by the seven rules of docs/formats/program.md: completeness, data flow,
 * channels, progress, collectives, memory, gradients.
 * @return MOTET_OK, or MOTET_ERROR_REFUSED with rule, rank, instruction and microbatch in @p error. @p
 * verification (optional) is filled in both cases as far as known.
 */
motet_status motet_verify(const motet_program *program, const motet_verify_options *options, motet_error *error,
                          motet_verification *verification);

#ifdef __cplusplus
}
#endif

#endif
