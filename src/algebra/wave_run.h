/** @file
 * Runs a pattern of a wave: from when each rank would like its events to the order in which it runs them.
 *
 * A rank's forwards and input gradients are `streams` sequences that ascend in the microbatch: for two chunks F0,
 * F1, B1, B0, the way that a microbatch takes. A pattern gives each (rank, stream) an offset and all of them a
 * period; the rank prefers the order of offset + period * microbatch. Weight gradients go where the rank would
 * wait, and where the limit asks for them.
 */
#ifndef MT_ALGEBRA_WAVE_RUN_H
#define MT_ALGEBRA_WAVE_RUN_H

#include "algebra/wave.h"

enum { MT_WAVE_STREAMS_MAX = 2 * MT_WAVE_CHUNKS_MAX };

typedef struct mt_wave_pattern {
  int64_t period;
  int64_t *offset; /* (ranks, streams) */
} mt_wave_pattern;

/** How a rank passes the time until its next event can begin. */
typedef struct mt_wave_rule {
  double gap;        /* a weight gradient starts in a wait that is at least this part of its length */
  bool overtakes;    /* a later event that is ready, and delays nothing that is known, runs first */
  bool weight_first; /* and before that, a weight gradient */
} mt_wave_rule;

/** Where a run's events go. */
typedef struct mt_wave_record {
  mt_wave_step *steps; /* (ranks, mt_wave_steps()) */
  int64_t *counts;     /* [ranks], from zero */
} mt_wave_record;

typedef struct mt_wave_runner {
  const mt_wave *wave;
  int32_t streams;
  int32_t *rank_of, *slab_of; /* [slabs]; (ranks, chunks) */
  int64_t work;               /* visited events are taken off */
  double span;                /* of the last run: the longest time from a rank's first to its last event */
  /* The state of a run. */
  double *forward_end, *backward_end; /* (slabs, microbatches); below 0: not known yet */
  double *free;                       /* [ranks] end of the last event */
  double *begin;                      /* [ranks] of the first event; below 0: none yet */
  double *wake;                       /* [ranks] when the rank looks again what to run */
  bool *late;                         /* [ranks] its next event cannot begin then */
  int32_t *winner;                    /* [2 * ranks] tournament of the ranks by who looks first */
  int32_t *next;                      /* (ranks, streams) next microbatch */
  int32_t *held;                      /* [ranks] */
  mt_wave_step *pending; /* (ranks, chunks * microbatches) weight gradients in the order of their inputs' */
  int64_t *pending_begin, *pending_end; /* [ranks] */
  int32_t *stack;                       /* [ranks] to be looked at */
  bool *stacked;                        /* [ranks] */
} mt_wave_runner;

/** False when memory is out. */
bool mt_wave_runner_make(mt_arena *arena, const mt_wave *wave, mt_wave_runner *runner);

/** The makespan, or infinity where the pattern breaks the limit or hangs; @p to may be NULL. */
double mt_wave_run(mt_wave_runner *runner, const mt_wave_pattern *pattern, const mt_wave_rule *rule,
                   const mt_wave_record *to);

static inline bool mt_wave_is_forward(const mt_wave_runner *r, int32_t stream) { return stream < r->wave->chunks; }

static inline int32_t mt_wave_slab(const mt_wave_runner *r, int32_t rank, int32_t stream) {
  int32_t chunk = stream < r->wave->chunks ? stream : r->streams - 1 - stream;
  return r->slab_of[rank * r->wave->chunks + chunk];
}

static inline bool mt_wave_has_backward(const mt_wave *wave, int32_t slab) {
  return wave->gate[slab] != MT_GATE_NONE;
}

static inline bool mt_wave_has_weight(const mt_wave *wave, int32_t slab) {
  return (wave->gate[slab] & MT_GATE_WEIGHTS) != 0;
}

/** Whether the rank has events of the stream. */
static inline bool mt_wave_has_stream(const mt_wave_runner *r, int32_t rank, int32_t stream) {
  return mt_wave_is_forward(r, stream) || mt_wave_has_backward(r->wave, mt_wave_slab(r, rank, stream));
}

#endif
