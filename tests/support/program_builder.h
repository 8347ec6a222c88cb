/** @file
 * Programs for tests, put together table by table and instruction by instruction, and drawn at random. Written
 * apart from derivation and lowering, so that tests of the verifier do not lean on them.
 */
#ifndef MT_TESTS_PROGRAM_BUILDER_H
#define MT_TESTS_PROGRAM_BUILDER_H

#include "base/array.h"
#include "base/random.h"
#include "motet/program.h"

enum { BUILDER_RANKS_MAX = 64 };

typedef struct program_builder {
  int32_t ranks, replicas;
  MT_ARRAY(motet_program_module) modules;
  MT_ARRAY(motet_module_edge) module_edges;
  MT_ARRAY(uint8_t) layers;
  MT_ARRAY(motet_program_microbatch) microbatches;
  MT_ARRAY(motet_program_region) regions;
  MT_ARRAY(motet_program_stage) stages;
  MT_ARRAY(motet_program_edge) edges;
  MT_ARRAY(motet_group) groups;
  MT_ARRAY(int32_t) group_ranks;
  MT_ARRAY(motet_tie) ties;
  MT_ARRAY(motet_carried) carried;
  MT_ARRAY(motet_buffer) buffers;
  MT_ARRAY(motet_instruction) lists[BUILDER_RANKS_MAX];
  int64_t static_bytes;              /* of every stage */
  int64_t saved_bytes, output_bytes; /* of every stage and microbatch, ... */
  int64_t bytes_step;                /* ... plus this times (stage + microbatch) */
} program_builder;

/** Starts with the range of a whole microbatch and group 0. */
void builder_start(program_builder *builder, int32_t ranks, int32_t replicas);
void builder_free(program_builder *builder);

/* Each returns the new entry's index. */
int32_t builder_module(program_builder *builder, const char *name, int32_t layers, bool trainable);
void builder_module_edge(program_builder *builder, int32_t from, int32_t to);
int32_t builder_region(program_builder *builder, const char *name, bool replicated);
int32_t builder_group(program_builder *builder, int32_t count, const int32_t *ranks);
int32_t builder_stage(program_builder *builder, int32_t region, int32_t slab, int32_t layer_begin,
                      int32_t layer_end, int32_t group);
int32_t builder_edge(program_builder *builder, int32_t from, int32_t to);
int32_t builder_microbatch(program_builder *builder, int32_t replica, uint64_t present, uint64_t cached);

/* Instructions, appended to the rank's list. */
void builder_compute(program_builder *builder, int32_t rank, motet_instruction_kind kind, int32_t stage,
                     int32_t microbatch);
void builder_compute_next(program_builder *builder, int32_t rank, motet_instruction_kind kind, int32_t stage,
                          int32_t microbatch);
/** Joins the rank's last instruction with the one that comes next. */
void builder_join(program_builder *builder, int32_t rank);
/** SEND, RECV, or WAIT with @p flags; the buffer is made on first use. */
void builder_transfer(program_builder *builder, int32_t rank, motet_instruction_kind kind, uint8_t flags,
                      int32_t edge, int32_t microbatch, bool gradient, int32_t peer);
/** A collective on the weight gradients of @p stage or, with stage -1, on tie @p tie. */
void builder_reduce(program_builder *builder, int32_t rank, int32_t stage, int32_t tie, int32_t group);
/** OPTIM and STEP_END on every rank. */
void builder_end(program_builder *builder);

/** The program; every array has exactly its length, so that a sanitizer sees each step beyond. */
motet_program *builder_program(const program_builder *builder);
motet_program *program_copy(const motet_program *program);
void program_free(motet_program *program);

/** Draws a right program: model, masks, placement, order of events, places of transfers and waits. */
motet_program *program_draw(mt_random *random);

enum { PLAN_TEXT_SIZE = 768 };

/** Draws a plan, a random model under a random schedule, and lowers it. NULL, with the reason in @p error
 * (MOTET_ERROR_ILLEGAL), where the schedule does not fit the model. Destroy with motet_program_destroy(). */
motet_program *plan_draw_program(mt_random *random, char schedule[PLAN_TEXT_SIZE], motet_error *error);

/** The rank whose list holds instruction @p index of the flat array. */
int32_t program_rank_of(const motet_program *program, int64_t index);

/** Instructions of all lists together. */
int64_t program_length(const motet_program *program);

/** Takes instruction @p index of the flat array out; puts one there, at the end of or inside the list of @p rank.
 */
void program_remove(motet_program *program, int64_t index);
void program_insert(motet_program *program, int32_t rank, int64_t index, motet_instruction instruction);

#endif
