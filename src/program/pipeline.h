/** @file
 * Lowering of one pipeline, in numbers of its own: ranks from 0 to P - 1, microbatches from 0 to M - 1, buffers
 * from 0. lower.c copies the result once per data-parallel replica and moves the numbers.
 */
#ifndef MT_PROGRAM_PIPELINE_H
#define MT_PROGRAM_PIPELINE_H

#include "program/lower.h"

typedef struct mt_lower_options {
  int32_t receive_ahead; /* compute events between the posting of a receive and its use, where the order allows */
  bool lenient;          /* lower also what cannot run, for the verifier to name: missing events, cycles */
} mt_lower_options;

/** The compute, loads and transfers of every rank; collectives and the step's end are not in it. Ranges are
 * numbered from 1 as in the spread, and what a group shares does not name the group yet. */
typedef struct mt_pipeline {
  int64_t *begin; /* [ranks + 1] */
  motet_instruction *instructions;
  int32_t buffer_count;
  motet_buffer *buffers;
} mt_pipeline;

/** Lowers one replica; everything is allocated from @p arena. MOTET_ERROR_ILLEGAL names rank and microbatch where
 * the order cannot run. */
motet_status mt_pipeline_lower(mt_arena *arena, const mt_replica *replica, const mt_lower_options *options,
                               motet_error *error, mt_pipeline *pipeline);

/** mt_program_lower() with options. */
motet_status mt_program_lower_with(const mt_replica *replicas, int32_t replica_count,
                                   const mt_lower_options *options, motet_error *error, motet_program **program);

/** Entry of a size table; a table without values is all zero. */
static inline int64_t mt_size_at(const motet_size_table *table, int32_t stage, int32_t column) {
  if (table->values == NULL) return 0;
  return table->values[stage * table->stage_stride + column * table->microbatch_stride];
}

/** Ranks of one pipeline: pipeline ranks times the spread's width. */
static inline int32_t mt_replica_width(const mt_replica *replica) {
  return replica->spread != NULL ? replica->spread->width : 1;
}
static inline int32_t mt_replica_ranks(const mt_replica *replica) {
  return replica->derivation->ranks * mt_replica_width(replica);
}
/** Columns of its tables: shares of a spread, or microbatches. */
static inline int32_t mt_replica_columns(const mt_replica *replica) {
  return replica->spread != NULL ? replica->spread->share_count : replica->derivation->microbatches;
}

/* ---- Between pipeline.c, transfer.c and emit.c ---- */

/** One transfer between two ranks. Events are numbers in mt_order.events; a slot is the gap before an event, or
 * behind a rank's last: slot(event of rank r) = event + r, and rank r's last slot is begin[r + 1] + r. Joined
 * events have the slot of the first of them. */
typedef struct mt_transfer {
  int32_t edge, microbatch;
  int32_t column; /* the share that makes or reads it, or the microbatch */
  int32_t sender, receiver;
  int32_t producer;   /* event, the last of those joined with it; -1: carried, there when the step begins */
  int32_t consumer;   /* event */
  int32_t wait_event; /* the event before which the receiver waits: the first of those joined with the consumer, or
                         earlier at a barrier */
  int32_t post_slot;  /* where the receive is posted */
  int32_t wait_slot;  /* where the sender waits */
  bool gradient;
} mt_transfer;

enum { MT_EVENT_NONE = -1, MT_EVENT_CARRIED = -2 };

/** What the steps of lowering one pipeline share. */
typedef struct mt_lowering {
  mt_arena *arena;
  const mt_derivation *derivation;
  const mt_order *order;
  const mt_sizes *sizes;
  const mt_spread *spread; /* or NULL */
  mt_lower_options options;
  int32_t ranks, width, columns;
  int32_t event_count;
  /* (stages, columns), a replicated stage's in its microbatch's first: the rank that computes it, its FWD, and its
     BWD or BWD_X. */
  int32_t *owner, *forward, *backward;
  int32_t *event_rank; /* [events] */
  int32_t *run_begin;  /* [events] the first of the events joined with it */
  /* Edges by stage: out_edges[out_begin[s] .. out_begin[s + 1]) leave s; likewise in. */
  int32_t *out_begin, *out_edges, *in_begin, *in_edges;
  /* In the order in which they are sent: by sender, producer, edge. */
  int32_t transfer_count;
  mt_transfer *transfers;
  /* By waiting event: arrivals[arrival_begin[e] .. arrival_begin[e + 1]) are the transfers that e waits for. */
  int32_t *arrival_begin, *arrivals;
  int32_t *departure_begin; /* [events + 1]: transfers that an event produces lie together */
  int32_t *topological;     /* [events] an order in which the events can run; valid where runs is true */
  bool runs;                /* the order has no cycle */
} mt_lowering;

/** Finds the transfers of the order and checks that it can run. transfer.c */
motet_status mt_lowering_transfers(mt_lowering *lowering, motet_error *error);

/** Chooses where receives are posted and where senders wait. place.c */
motet_status mt_lowering_place(mt_lowering *lowering, motet_error *error);

/** The column in which an event of @p stage stands on @p rank; -1 where the rank has no share of the microbatch. */
static inline int32_t mt_event_column(const mt_lowering *lowering, int32_t rank, int32_t stage,
                                      int32_t microbatch) {
  if (lowering->spread == NULL) return microbatch;
  if (lowering->derivation->stages[stage].rank < 0) return lowering->spread->begin[microbatch];
  return lowering->spread->place[microbatch * lowering->width + rank % lowering->width];
}

/** The last of the events joined with @p event. */
static inline int32_t mt_event_run_last(const mt_lowering *lowering, int32_t event) {
  while (lowering->order->events[event].joined) event++;
  return event;
}

static inline int32_t mt_event_slot(const mt_lowering *lowering, int32_t event) {
  return lowering->run_begin[event] + lowering->event_rank[event];
}

#endif
