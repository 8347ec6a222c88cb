/** @file
 * The event engine: runs every rank's list, ranks ahead of one another as far as their data lets them, and
 * settles transfers and collectives. What it leaves behind, the trace, is what the analyses of this folder read.
 */
#ifndef MT_SIM_ENGINE_H
#define MT_SIM_ENGINE_H

#include "base/array.h"
#include "sim/costs.h"
#include "sim/features.h"

enum {
  MT_TRANSFER_SENT = 1,
  MT_TRANSFER_RECEIVED = 2,
  MT_TRANSFER_DONE = 4,
  MT_TRANSFER_SEND_WAITED = 8,
  MT_TRANSFER_RECEIVE_WAITED = 16,
  MT_TRANSFER_SENDER_STANDS = 32,
  MT_TRANSFER_RECEIVER_STANDS = 64
};

/** One transfer of a buffer; a fresh one has no flags. */
typedef struct mt_transfer {
  int64_t send, receive;                /* posting instructions, valid with SENT and RECEIVED */
  double send_seconds, receive_seconds; /* when they were posted */
  double start, finish;                 /* with DONE; start > both posts where the link was taken */
  int32_t source, destination;
  int32_t next; /* the buffer's next transfer, or 0 */
  uint32_t flags;
} mt_transfer;

/** One run of a collective, or of compute that a group shares. */
typedef struct mt_meeting {
  int64_t last;    /* the instruction of the last member to arrive (the first found among equals) */
  double together; /* when it arrived */
  double finish;
  int32_t group;
  int32_t last_rank;
} mt_meeting;

typedef struct mt_rank_trace {
  double end;                   /* of its list */
  double busy;                  /* compute */
  double body;                  /* compute of sharded regions */
  double body_first, body_last; /* span of that; only with body_count */
  int64_t body_count;
} mt_rank_trace;

typedef struct mt_trace {
  double makespan;
  int64_t events;
  mt_rank_trace *ranks; /* [ranks] */
  double *start;        /* [instructions], or NULL when not kept */
  double *finish;
  int32_t *link; /* [instructions] transfer of SEND, RECV, WAIT; meeting of collectives and shared compute; else -1;
                    may be NULL */
  mt_transfer *transfers; /* [buffer_count] the first of each buffer; further ones are in `more` */
  int64_t buffer_count;
  MT_ARRAY(mt_transfer) more;
  MT_ARRAY(mt_meeting) meetings;
  bool measured; /* times of a run: when a transfer was done is not known, only when each end was there */
} mt_trace;

static inline mt_transfer *mt_trace_transfer(const mt_trace *trace, int64_t index) {
  return index < trace->buffer_count ? &trace->transfers[index] : &trace->more.data[index - trace->buffer_count];
}

/**
 * Runs @p costs->program. Flat arrays come from @p arena; release the rest with mt_trace_release(), also after
 * an error. @p keep: start, finish and link of every instruction. @p features collects births and deaths.
 */
motet_status mt_engine_run(mt_arena *arena, const mt_sim_costs *costs, bool keep, mt_features *features,
                           motet_error *error, mt_trace *trace);

void mt_trace_release(mt_trace *trace);

#endif
