/** @file The MPI transport's state, shared by its two files: transfers (mpi.c) and the service (mpi_service.c). */
#ifndef MT_COMM_MPI_STATE_H
#define MT_COMM_MPI_STATE_H

#include "comm/transport.h"

#include <mpi.h>
#include <pthread.h>

struct mt_transfer {
  struct mt_transfer *next, *previous; /* outstanding transfers */
  int32_t peer;
  bool receive;
  size_t bytes;
  int chunks;
  MPI_Request requests[]; /* [chunks] */
};

/** What a rank tells rank 0 of itself while it waits. */
typedef struct mt_heartbeat {
  int32_t rank;
  bool waiting_long; /* beyond what the message's size explains */
  uint64_t progress; /* grows with every post and every completed wait */
  double waiting_seconds;
} mt_heartbeat;

enum { MT_PLACE_TEXT_SIZE = 192 };

/** What a rank hears of the one before it in a ring of all ranks, so that none hears of more than one. */
typedef struct mt_neighbour {
  bool watched;                   /* it has been heard of and has not said goodbye */
  double silence, looked_at;      /* seconds since the last word in which this rank has looked */
  char place[MT_PLACE_TEXT_SIZE]; /* what it was at */
  motet_error lost;               /* as told to rank 0, at `told_at`; 0: it is not lost */
  double told_at;
} mt_neighbour;

/** All fields behind the first group are protected by `lock`, and so is every call of MPI. */
typedef struct mt_mpi_transport {
  mt_transport base;
  mt_transport_options options;
  MPI_Comm transfers, control;
  bool crowded; /* more ranks than cores on this machine: a waiting rank gives its core away at once */
  pthread_t service;

  pthread_mutex_t lock;
  pthread_cond_t wake; /* the service is wanted before its sleep ends */
  bool stop;
  mt_transfer *outstanding;
  uint64_t progress;
  double waiting_since; /* 0: the rank does not wait */
  size_t waiting_bytes;
  bool hang; /* rank 0 has judged that this rank waits in vain */

  double ended_at;
  mt_heartbeat *heartbeats; /* rank 0: [ranks] the latest of each */
  double *heard_at;         /* rank 0: [ranks] */
  mt_heartbeat sent;
  MPI_Request heartbeat_request;

  mt_neighbour neighbour;
  char place[MT_PLACE_TEXT_SIZE]; /* of this rank, on its way to the one behind it */
  MPI_Request place_request;
} mt_mpi_transport;

/** Starts and stops the service thread. */
motet_status mt_mpi_service_start(mt_mpi_transport *transport, motet_error *error);
void mt_mpi_service_stop(mt_mpi_transport *transport);

/** Tells of a failure; see mt_transport_fail(). */
void mt_mpi_service_fail(mt_mpi_transport *transport, const motet_error *error);

#endif
