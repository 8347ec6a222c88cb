/** @file
 * Messages between ranks behind one table: the interpreter and the collectives know this and no message library.
 * A test may put a transport of its own in front of another one and lose, delay or damage messages.
 *
 * One rank is one process. The functions may be called by one thread of the rank at a time.
 */
#ifndef MT_COMM_TRANSPORT_H
#define MT_COMM_TRANSPORT_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Tags are fixed; messages of one (source, destination, tag) arrive in the order they were posted. */
enum {
  MT_TAG_COLLECTIVE = 1,  /* collectives, plus the group's number */
  MT_TAG_TRANSFER = 4096, /* a program's transfers, plus a small number chosen by the caller */
  MT_TAG_CONTEXT = 20480  /* messages inside of layers, between the members of a context-parallel group */
};
enum {
  MT_TAG_COLLECTIVES = MT_TAG_TRANSFER - MT_TAG_COLLECTIVE,
  MT_TAG_TRANSFERS = MT_TAG_CONTEXT - MT_TAG_TRANSFER
};

typedef struct mt_transport mt_transport;

/** A posted send or receive. It belongs to the transport and is gone after wait. */
typedef struct mt_transfer mt_transfer;

typedef struct mt_transport_table {
  const char *name;
  motet_status (*send)(mt_transport *transport, int32_t peer, int32_t tag, const void *data, size_t bytes,
                       motet_error *error, mt_transfer **transfer);
  motet_status (*recv)(mt_transport *transport, int32_t peer, int32_t tag, void *data, size_t bytes,
                       motet_error *error, mt_transfer **transfer);
  motet_status (*wait)(mt_transport *transport, mt_transfer *transfer, motet_error *error);
  void (*fail)(mt_transport *transport, const motet_error *error);
  void (*destroy)(mt_transport *transport);
} mt_transport_table;

/** What every transport begins with. */
struct mt_transport {
  const mt_transport_table *table;
  int32_t rank, ranks;
  int32_t local_rank, local_ranks; /* among the ranks of this machine */
  int32_t threads;                 /* that this rank computes with, once it is placed; before: 0 */
  int32_t processors;              /* cores that are this rank's alone; 0: not known, or shared with other ranks */
  volatile bool ended;             /* some rank has failed: the job is over, and has been reported */
};

/** Posts the sending of @p bytes at @p data, which must stay as they are until the wait. Does not block. */
static inline motet_status mt_transport_send(mt_transport *transport, int32_t peer, int32_t tag, const void *data,
                                             size_t bytes, motet_error *error, mt_transfer **transfer) {
  return transport->table->send(transport, peer, tag, data, bytes, error, transfer);
}

/** Posts the receiving of exactly @p bytes into @p data. Does not block. */
static inline motet_status mt_transport_recv(mt_transport *transport, int32_t peer, int32_t tag, void *data,
                                             size_t bytes, motet_error *error, mt_transfer **transfer) {
  return transport->table->recv(transport, peer, tag, data, bytes, error, transfer);
}

/**
 * Blocks until @p transfer is complete and releases it; NULL is complete. MOTET_ERROR_FAILED: nothing can arrive
 * any more, the message had another size, or (`ended` is set) another rank has failed.
 */
static inline motet_status mt_transport_wait(mt_transport *transport, mt_transfer *transfer, motet_error *error) {
  return transfer == NULL ? MOTET_OK : transport->table->wait(transport, transfer, error);
}

/** Tells all ranks that this one cannot go on: their waits end, and one message is reported for the whole job,
 * the first that was told. Does nothing once the job has ended. */
static inline void mt_transport_fail(mt_transport *transport, const motet_error *error) {
  transport->table->fail(transport, error);
}

/** Ends the connection; NULL is allowed. After a failure it does not wait for the other ranks. */
static inline void mt_transport_destroy(mt_transport *transport) {
  if (transport != NULL) transport->table->destroy(transport);
}

/** Called once in the whole job, with the failure that ends it. */
typedef void mt_transport_report(void *context, const motet_error *error);

/** Writes what this rank is at; called by the service thread. */
typedef void mt_transport_place(void *context, char *text, size_t size);

typedef struct mt_transport_options {
  int32_t ranks; /* ranks that must be there; another number is refused */
  /* Where every rank has been waiting for longer than this and no message is under way, none can go on: a hang.
     The allowance for a message's size comes on top. 0: 2 seconds. */
  double hang_seconds;
  double stall_seconds; /* a single wait never takes longer than this, whatever the others do. 0: 600 seconds */
  /* A rank whose service thread has not been heard of for so long ends the job: it is stopped, or its host or the
     network is gone. Computations of any length are none of that. 0: never. */
  double heartbeat_seconds;
  mt_transport_report *report;
  mt_transport_place *place; /* or NULL */
  void *context;
} mt_transport_options;

/** One rank that is alone. */
motet_status mt_transport_self_create(const mt_transport_options *options, motet_error *error,
                                      mt_transport **transport);

/**
 * MPI; at most one a process. The calling thread is the one that communicates. A service thread answers for the
 * rank while it computes: it keeps large messages moving, hears of failures, finds hangs and ranks that are gone.
 */
motet_status mt_transport_mpi_create(const mt_transport_options *options, motet_error *error,
                                     mt_transport **transport);

/** Whether the environment says that a launcher (mpirun, mpiexec, srun) started this process as @p rank of @p
 * ranks. Either may be NULL. */
bool mt_transport_launched(int32_t *ranks, int32_t *rank);

/** "openmpi" or "mpich": the library this was built against, and so whose launcher is needed. */
const char *mt_transport_mpi_library(void);

#endif
