/** @file
 * What the passes of the verifier share. The verifier reads a program and nothing else: no derivation, no
 * schedule, no lowering. Each pass judges one rule of docs/formats/program.md over the whole program; the
 * walk over the lists (verify_flow.c) judges data flow and notes on the way what later rules need.
 */
#ifndef MT_PROGRAM_VERIFY_H
#define MT_PROGRAM_VERIFY_H

#include "base/arena.h"
#include "base/array.h"
#include "base/error.h"
#include "motet/program.h"
#include "program/columns.h"

#include <stdbool.h>
#include <stdint.h>

/** The seven rules, in the order in which they are reported. */
typedef enum mt_rule {
  MT_RULE_COMPLETENESS,
  MT_RULE_DATA_FLOW,
  MT_RULE_CHANNELS,
  MT_RULE_PROGRESS,
  MT_RULE_COLLECTIVES,
  MT_RULE_MEMORY,
  MT_RULE_GRADIENTS,
  MT_RULES
} mt_rule;

/** Which backward a stage's gates ask for: bit 0 weight gradients, bit 1 input gradients. */
enum { MT_ASKS_NOTHING = 0, MT_ASKS_WEIGHTS = 1, MT_ASKS_INPUTS = 2 };

/** What is known of a (stage, column), see columns.h: the HAS bits of its lists' content, the rest while walking.
 */
enum {
  MT_HAS_FORWARD = 1 << 0, /* `rank` is set: a FWD here, or carried from the step before */
  MT_HAS_BACKWARD = 1 << 1,
  MT_HAS_BACKWARD_X = 1 << 2,
  MT_HAS_BACKWARD_W = 1 << 3,
  MT_HAS_RECOMPUTE = 1 << 4,
  MT_HAS_NEXT = 1 << 5, /* a FWD for the next step */
  MT_CARRIED = 1 << 6,
  MT_LOADED = 1 << 7,
  MT_NEXT_LOADED = 1 << 8,
  MT_FORWARD_DONE = 1 << 9,
  MT_GRADIENT_DONE = 1 << 10, /* BWD or BWD_X has run: input gradients exist */
  MT_WEIGHTS_DONE = 1 << 11,  /* BWD or BWD_W has run */
  MT_SAVED = 1 << 12,         /* saved activations are on the device */
  MT_ON_HOST = 1 << 13,       /* ... or on the host */
  MT_DROPPED = 1 << 14        /* ... or wait to be computed again */
};

typedef struct mt_verify_cell {
  int32_t rank;           /* with MT_HAS_FORWARD: where it runs */
  int32_t group;          /* with MT_HAS_FORWARD, of a token range: the ranks that share it; else -1 */
  int32_t next_rank;      /* with MT_HAS_NEXT: where the next step's runs */
  int32_t uses;           /* readers of its output that are still to come on that rank */
  int32_t before, behind; /* microbatches joined directly before and behind its FWD, plus one; 0: none */
  uint32_t flags;         /* MT_HAS_*, ... */
} mt_verify_cell;

/** What has happened to an (edge, piece): four bits for the activation, four for the gradient. */
enum {
  MT_SENT = 1,
  MT_SEND_WAITED = 2,
  MT_POSTED = 4, /* the receive */
  MT_ARRIVED = 8,
  MT_GRADIENT_SHIFT = 4
};

/** The two ends of a buffer's transfer. Positions count from 1 in the rank's list; 0: not there. */
typedef struct mt_verify_transfer {
  int32_t send_position, recv_position;
  int32_t send_number, recv_number; /* place in the order of its (source, destination), from 0 */
  int32_t source, destination;      /* ranks that make and read it, plus one; 0 while not looked up */
} mt_verify_transfer;

/** A collective, or compute that a group shares. */
typedef struct mt_verify_collective {
  int32_t rank, position, group, buffer;
  int32_t kind, stage, range; /* stage and range of shared compute; else 0 */
} mt_verify_collective;

/** A list of items for each key: items[begin[key] .. begin[key + 1]). */
typedef struct mt_verify_lists {
  int64_t *begin;
  int32_t *items;
} mt_verify_lists;

typedef struct mt_verifier {
  const motet_program *program;
  motet_verify_options options;
  motet_verification *verification; /* or NULL */
  motet_error *error;               /* or NULL */
  mt_arena *arena;
  int32_t pipeline_ranks; /* ranks of one replica */

  /* verify_ranges.c */
  int32_t columns;
  int32_t *first_column;      /* [microbatches + 1] */
  int32_t *column_microbatch; /* [columns] */

  /* From the statement and the placement (verify_statement.c). */
  uint64_t *live;          /* [microbatches] modules that are present and not cached */
  int32_t *layer_stage;    /* [layers] the stage that holds the layer */
  uint64_t *stage_modules; /* [stages] modules with layers in it; an empty stage has its region's */
  mt_verify_lists passes;  /* by empty stage: what passes through it, as index in passed */
  uint64_t *passed;        /* modules at the two ends of a flow: it must pass where all of them are live */
  uint8_t *trainable;      /* [stages] some layer of it is */
  uint8_t *upstream;       /* [stages] some layer of it or of a stage before it is */
  uint8_t *asks;           /* [stages] MT_ASKS_* */
  int64_t *share_units;    /* [stages] share in units of 1 / MT_SHARE_UNIT; 0 in replicated regions */
  mt_verify_lists in_edges, out_edges; /* by stage */
  mt_verify_lists held;                /* stages by rank */
  mt_verify_lists carried;             /* entries by rank */
  mt_verify_lists ties;                /* trainable ties by stage */
  mt_verify_lists tie_ranks;           /* ranks that hold either stage, by tie, ascending */

  /* From the lists. */
  mt_verify_cell *cells;                      /* [stages][columns] */
  uint8_t *edge_flags;                        /* [edges][columns] */
  mt_verify_transfer *transfers;              /* [buffers] */
  MT_ARRAY(mt_verify_collective) collectives; /* by rank, then position */
  motet_rank_memory *memory;                  /* [ranks] */

  motet_error violations[MT_RULES]; /* the first of each rule */
  bool violated[MT_RULES];
} mt_verifier;

/** Divisible by 1 .. 16, so that sums of shares of up to 16 chunks a rank are exact. */
#define MT_SHARE_UNIT (INT64_C(720720) * 1024)

/* The passes. A violation is noted by mt_verify_refuse(), and MOTET_ERROR_REFUSED returned where the pass cannot
 * go on; other errors are written to verifier->error. */
motet_status mt_verify_tables(mt_verifier *verifier);
motet_status mt_verify_ranges(mt_verifier *verifier);
motet_status mt_verify_statement(mt_verifier *verifier);
motet_status mt_verify_edges(mt_verifier *verifier);
motet_status mt_verify_completeness(mt_verifier *verifier);
motet_status mt_verify_joined(mt_verifier *verifier);
motet_status mt_verify_flow(mt_verifier *verifier);
motet_status mt_verify_channels(mt_verifier *verifier);
motet_status mt_verify_collectives(mt_verifier *verifier);
motet_status mt_verify_progress(mt_verifier *verifier);
motet_status mt_verify_blocking(mt_verifier *verifier);

/** Notes a violation of @p rule unless one is noted already. Returns MOTET_ERROR_REFUSED. */
motet_status mt_verify_refuse(mt_verifier *verifier, mt_rule rule, int32_t rank, int64_t position,
                              int32_t microbatch, const char *format, ...) MT_PRINTF(6, 7);

/** The same for a table entry, with its name ("stages[3]") as the error's key. */
motet_status mt_verify_refuse_entry(mt_verifier *verifier, mt_rule rule, const char *table, int64_t index,
                                    const char *format, ...) MT_PRINTF(5, 6);

enum { MT_VERIFY_TEXT_SIZE = 128 };

/** "stage 3 (llm, slab 1)". */
const char *mt_verify_stage_text(const mt_verifier *verifier, int32_t stage, char text[MT_VERIFY_TEXT_SIZE]);

/** The same as an argument, made only where the message is. */
#define MT_VERIFY_STAGE(verifier, stage) mt_verify_stage_text((verifier), (stage), (char[MT_VERIFY_TEXT_SIZE]){""})

/** "SEND of the gradient of stage 3, microbatch 4, to rank 2": an instruction that has passed the table check. */
const char *mt_verify_instruction_text(const mt_verifier *verifier, const motet_instruction *instruction,
                                       char text[MT_VERIFY_TEXT_SIZE]);

/** Zeroed memory from the verifier's arena; NULL, with the error written, when there is none. */
void *mt_verify_array(mt_verifier *verifier, size_t count, size_t size);

/* Lists are made in two rounds: start, count every key, room, add every item. */
motet_status mt_verify_lists_start(mt_verifier *verifier, mt_verify_lists *lists, int32_t keys);
motet_status mt_verify_lists_room(mt_verifier *verifier, mt_verify_lists *lists, int32_t keys);
static inline void mt_verify_lists_count(mt_verify_lists *lists, int32_t key) { lists->begin[key + 2]++; }
static inline void mt_verify_lists_add(mt_verify_lists *lists, int32_t key, int32_t item) {
  lists->items[lists->begin[key + 1]++] = item;
}

/** Whether the ranks of @p group hold @p rank. Its ranks ascend. */
bool mt_verify_member(const motet_program *program, int32_t group, int32_t rank);

static inline mt_verify_cell *mt_verify_cell_at(const mt_verifier *verifier, int32_t stage, int32_t column) {
  return &verifier->cells[(int64_t)stage * verifier->columns + column];
}

static inline uint8_t *mt_verify_edge_at(const mt_verifier *verifier, int32_t edge, int32_t piece) {
  return &verifier->edge_flags[(int64_t)edge * verifier->columns + piece];
}

static inline bool mt_verify_replicated(const mt_verifier *verifier, int32_t stage) {
  return verifier->program->regions[verifier->program->stages[stage].region].replicated;
}

static inline bool mt_verify_empty(const mt_verifier *verifier, int32_t stage) {
  return verifier->program->stages[stage].layer_begin == verifier->program->stages[stage].layer_end;
}

/** Whether the stage may have work for the microbatch. */
static inline bool mt_verify_allowed(const mt_verifier *verifier, int32_t stage, int32_t microbatch) {
  return (verifier->stage_modules[stage] & verifier->live[microbatch]) != 0;
}

/** Whether it has work. An empty stage, which passes data on, has where the lists say so: that it does where it
 * must is checked by rule 1, and what it costs where it need not is nothing. */
static inline bool mt_verify_active(const mt_verifier *verifier, int32_t stage, int32_t column) {
  if (mt_verify_empty(verifier, stage))
    return (mt_verify_cell_at(verifier, stage, column)->flags & MT_HAS_FORWARD) != 0;
  return mt_verify_allowed(verifier, stage, verifier->column_microbatch[column]);
}

static inline int64_t mt_verify_bytes(const motet_size_table *table, int32_t stage, int32_t column) {
  return table->values == NULL ? 0 : table->values[stage * table->stage_stride + column * table->microbatch_stride];
}

/* Along an edge flow pieces, one a column of the side that is cut: what the column's share makes or reads. */

/** The column in which a piece's producer or consumer stands. */
static inline int32_t mt_verify_home(const mt_verifier *verifier, int32_t stage, int32_t piece) {
  if (!mt_verify_replicated(verifier, stage)) return piece;
  return verifier->first_column[verifier->column_microbatch[piece]];
}

typedef struct mt_verify_pieces {
  int32_t begin, end;
} mt_verify_pieces;

/** The pieces that @p stage, an end of the edge, has in @p column: one, or all shares' where it is the whole. */
static inline mt_verify_pieces mt_verify_pieces_of(const mt_verifier *verifier, int32_t edge, int32_t stage,
                                                   int32_t column) {
  const motet_program_edge *ends = &verifier->program->edges[edge];
  if (!mt_verify_replicated(verifier, stage) ||
      mt_verify_replicated(verifier, ends->from == stage ? ends->to : ends->from))
    return (mt_verify_pieces){column, column + 1};
  int32_t microbatch = verifier->column_microbatch[column];
  return (mt_verify_pieces){verifier->first_column[microbatch], verifier->first_column[microbatch + 1]};
}

/** Whether the piece must flow: both ends have work, and the share reads something of it. */
static inline bool mt_verify_flows(const mt_verifier *verifier, int32_t edge, int32_t piece) {
  const motet_program *p = verifier->program;
  const motet_program_edge *ends = &p->edges[edge];
  if (p->share_count > 0 && p->shares[piece].features == 0 && mt_verify_replicated(verifier, ends->from) &&
      !mt_verify_replicated(verifier, ends->to))
    return false;
  return mt_verify_active(verifier, ends->from, mt_verify_home(verifier, ends->from, piece)) &&
         mt_verify_active(verifier, ends->to, mt_verify_home(verifier, ends->to, piece));
}

/** A size of what stands in @p column: a replicated stage's is the sum over the microbatch's columns. */
static inline int64_t mt_verify_whole_bytes(const mt_verifier *verifier, const motet_size_table *table,
                                            int32_t stage, int32_t column) {
  if (table->values == NULL || verifier->program->share_count == 0 || !mt_verify_replicated(verifier, stage))
    return mt_verify_bytes(table, stage, column);
  int64_t bytes = 0;
  int32_t end = verifier->first_column[verifier->column_microbatch[column] + 1];
  for (; column < end; column++) bytes += mt_verify_bytes(table, stage, column);
  return bytes;
}

#endif
