/** @file Lowering: from derivations and per-rank event orders to a program. */
#ifndef MT_PROGRAM_LOWER_H
#define MT_PROGRAM_LOWER_H

#include "algebra/derive.h"
#include "motet/program.h"
#include "program/spread.h"

/** The whole order of one pipeline: rank r's events are events[begin[r] .. begin[r + 1]). The rank of a
 * replicated stage's event is the microbatch's owner. With a spread every pipeline rank is a plane of `width`
 * ranks: rank = pipeline rank * width + context rank. */
typedef struct mt_order {
  int64_t *begin; /* [ranks + 1] */
  mt_event *events;
  bool barrier;  /* `prefix`: a consumer of replicated outputs waits for all of them before its first event */
  double *start; /* [events] seconds on the plan's own timeline, or NULL */
  int32_t carried_count;
  motet_carried *carried; /* features found done at the step's begin (rank: pipeline rank) */
} mt_order;

/** Sizes of one pipeline's stages in bytes, tables over (stage, local microbatch), or with a spread over (stage,
 * share), see program/columns.h; zero-filled fields mean 0. */
typedef struct mt_sizes {
  const int64_t *static_bytes; /* [stages] or NULL */
  motet_size_table saved_bytes, output_bytes;
  const int64_t *weight_bytes; /* [stages] bytes of weight gradients to reduce, or NULL */
  int64_t tied_bytes;          /* bytes of the shared weight where the model's embeddings are tied */
  int64_t memory_cap;
  const int32_t *tokens; /* [M] or NULL */
} mt_sizes;

/** One replica's part. Replicas may share pointers (all alike) or differ in data, spread and order; they must agree
 * in regions, stages, edges and the width of the spread. */
typedef struct mt_replica {
  const mt_derivation *derivation;
  const mt_order *order;
  mt_sizes sizes;
  const mt_spread *spread; /* or NULL: one rank a pipeline rank, whole microbatches */
} mt_replica;

/**
 * Inserts loads, transfers, waits, collectives, OPTIM and STEP_END and builds the tables. Receives are posted
 * in the sender's order, at least one compute instruction before their use where that order allows it; reduces
 * stand behind the last compute and the last send of a rank.
 */
motet_status mt_program_lower(const mt_replica *replicas, int32_t replica_count, motet_error *error,
                              motet_program **program);

#endif
