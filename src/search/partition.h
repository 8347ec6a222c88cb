/** @file
 * Uneven pipelines: a chain of layers of unlike times, cut into contiguous stages so that the simulated step is
 * shortest; where the order of the body is itself searched for, so that its bound is. See docs/search.md.
 */
#ifndef MT_SEARCH_PARTITION_H
#define MT_SEARCH_PARTITION_H

#include "base/arena.h"
#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

/** A chain under 1F1B. Layers before `first_trainable` have no backward: stages of such layers alone run forward
 * only, and pass no gradient. */
typedef struct mt_partition_request {
  int32_t layers, ranks, chunks, microbatches; /* ranks * chunks stages; chunks > 1: interleaved */
  int32_t held; /* 0: 1F1B's order; else the order is open, and a rank holds as many microbatches' activations */
  bool folded;  /* open: the second chunks lie in the opposite order of ranks */
  const double *weight; /* [layers] open: of the backward's seconds, those that nobody waits for; NULL: none */
  const double *forward, *backward; /* [layers] seconds of a microbatch */
  int32_t first_trainable;          /* layer; >= layers: nothing trains */
  double lag;                       /* of a transfer between neighbours */
  const int64_t *static_bytes;      /* [layers] or NULL */
  const int64_t *saved_bytes;       /* [layers] of a microbatch under way, or NULL */
  int64_t memory_bytes;             /* a rank's; 0: no cap */
  int32_t least;                    /* layers of a stage, 0 or 1 */
  int64_t evaluations;              /* effort: simulations; 0: the usual */
} mt_partition_request;

typedef struct mt_partition {
  int32_t *split; /* [ranks * chunks] layers of each stage */
  double seconds; /* simulated; of an open order: its bound */
  double bound;   /* no contiguous partition is faster */
  bool proven;    /* none was left unseen that could be faster */
} mt_partition;

/** MOTET_ERROR_ILLEGAL where no partition keeps the memory, with the bytes by which the best one exceeds it. */
motet_status mt_partition_find(mt_arena *arena, const mt_partition_request *request, motet_error *error,
                               mt_partition *partition);

/** Seconds of one given partition, as the program that derives from it simulates. */
motet_status mt_partition_seconds(mt_arena *arena, const mt_partition_request *request, const int32_t *split,
                                  motet_error *error, double *seconds);

#endif
