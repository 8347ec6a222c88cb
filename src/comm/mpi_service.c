/* The service thread: what has to go on while the rank computes. It moves large messages along, hears of other
 * ranks' failures, and finds hangs: every rank that waits long tells rank 0, and when all of them do, nobody can
 * ever go on. And it finds ranks that cannot even say so, because they are stopped or their host is gone: every
 * rank tells the next one in a ring that it is there. */
#include "base/clock.h"
#include "comm/mpi_state.h"

#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum { TAG_HEARTBEAT = 1, TAG_FAIL, TAG_ENDED, TAG_HANG, TAG_PLACE, TAG_GOODBYE };
/* Every look takes the core away from the computation: each 100 us, it cost a quarter of the speed. */
enum { MOVING_MICROSECONDS = 5000, IDLE_MICROSECONDS = 20000, EXIT_CODE = 3 };
static const double GRACE_SECONDS = 2.0; /* for a rank that computes, to come back from it */
static const double ARBITER_SECONDS = 2.0;
static const double PLACE_SECONDS = 0.5; /* between two words to the next rank */
/* Where this thread itself did not run for longer than this, the job was halted, or its machine slept: that is no
 * silence of the other rank. */
static const double LOOK_SECONDS = 0.1;
static const double LOST_SECONDS = 1.0; /* for rank 0, to end the job for a rank that was lost */

static double heartbeat_period(const mt_mpi_transport *transport) { return transport->options.hang_seconds / 8; }

static void end_job(mt_mpi_transport *transport) {
  transport->base.ended = true;
  transport->ended_at = mt_clock_seconds();
  /* Nothing may be written into buffers whose owners unwind from now on. */
  for (mt_transfer *transfer = transport->outstanding; transfer != NULL; transfer = transfer->next)
    for (int i = 0; transfer->receive && i < transfer->chunks; i++)
      if (transfer->requests[i] != MPI_REQUEST_NULL) MPI_Cancel(&transfer->requests[i]);
}

/** Small control messages are sent and forgotten: their buffers are static or live as long as the transport. */
static void tell(mt_mpi_transport *transport, int32_t rank, int tag) {
  MPI_Request request;
  if (MPI_Isend(NULL, 0, MPI_BYTE, rank, tag, transport->control, &request) == MPI_SUCCESS)
    MPI_Request_free(&request);
}

/** Rank 0: the first failure is reported, and everyone hears that the job is over. */
static void arbitrate(mt_mpi_transport *transport, const motet_error *error) {
  if (transport->base.ended) return;
  end_job(transport);
  if (transport->options.report != NULL) transport->options.report(transport->options.context, error);
  for (int32_t rank = 1; rank < transport->base.ranks; rank++) tell(transport, rank, TAG_ENDED);
}

static mt_heartbeat own_heartbeat(const mt_mpi_transport *transport, double now) {
  mt_heartbeat own = {.rank = transport->base.rank, .progress = transport->progress};
  if (transport->waiting_since > 0) {
    own.waiting_seconds = now - transport->waiting_since;
    double allowance = transport->options.hang_seconds + (double)transport->waiting_bytes / 1e7;
    own.waiting_long = own.waiting_seconds > allowance;
  }
  return own;
}

static void send_heartbeat(mt_mpi_transport *transport, double now) {
  int done = 1;
  if (transport->heartbeat_request != MPI_REQUEST_NULL)
    MPI_Test(&transport->heartbeat_request, &done, MPI_STATUS_IGNORE);
  mt_heartbeat own = own_heartbeat(transport, now);
  if (!done || !own.waiting_long) return;
  transport->sent = own;
  MPI_Isend(&transport->sent, (int)sizeof transport->sent, MPI_BYTE, 0, TAG_HEARTBEAT, transport->control,
            &transport->heartbeat_request);
}

/**
 * Rank 0: if every rank's latest word is that it has waited long, and that word is recent, none of them has sent
 * anything for the time in question, so none can be woken. The one that waits longest is told; it knows best
 * what is missing.
 */
static void judge_hang(mt_mpi_transport *transport, double now) {
  int32_t ranks = transport->base.ranks, longest = 0;
  transport->heartbeats[0] = own_heartbeat(transport, now);
  transport->heard_at[0] = now;
  for (int32_t rank = 0; rank < ranks; rank++) {
    const mt_heartbeat *last = &transport->heartbeats[rank];
    if (!last->waiting_long || now - transport->heard_at[rank] > 3 * heartbeat_period(transport)) return;
    double waiting = last->waiting_seconds + (now - transport->heard_at[rank]);
    double most = transport->heartbeats[longest].waiting_seconds + (now - transport->heard_at[longest]);
    if (waiting > most) longest = rank;
  }
  if (longest == 0)
    transport->hang = true;
  else
    tell(transport, longest, TAG_HANG);
  memset(transport->heartbeats, 0, (size_t)ranks * sizeof *transport->heartbeats);
}

static int32_t ranks_on(const mt_mpi_transport *transport, int32_t by) {
  return (transport->base.rank + transport->base.ranks + by) % transport->base.ranks;
}

static void tell_place(mt_mpi_transport *transport) {
  int done = 1;
  if (transport->place_request != MPI_REQUEST_NULL) MPI_Test(&transport->place_request, &done, MPI_STATUS_IGNORE);
  if (!done) return;
  if (transport->options.place != NULL)
    transport->options.place(transport->options.context, transport->place, sizeof transport->place);
  MPI_Isend(transport->place, (int)sizeof transport->place, MPI_BYTE, ranks_on(transport, 1), TAG_PLACE,
            transport->control, &transport->place_request);
}

/** This rank ends the job in place of rank 0, which is lost or does not answer. */
static void arbitrate_instead(mt_mpi_transport *transport, const motet_error *error) {
  end_job(transport);
  if (transport->options.report != NULL) transport->options.report(transport->options.context, error);
  for (int32_t rank = 0; rank < transport->base.ranks; rank++)
    if (rank != transport->base.rank) tell(transport, rank, TAG_ENDED);
}

static void tell_lost(mt_mpi_transport *transport, double now) {
  mt_neighbour *neighbour = &transport->neighbour;
  const int32_t lost = ranks_on(transport, -1);
  const bool placed = neighbour->place[0] != 0;
  mt_error_set(
      &neighbour->lost, MOTET_ERROR_FAILED,
      "nothing has been heard of it for %g seconds (it is stopped, or its host or the network is gone; with "
      "train.heartbeat_seconds=0 the others wait on)%s%s",
      transport->options.heartbeat_seconds, placed ? ": " : "", neighbour->place);
  mt_error_rule(&neighbour->lost, NULL, (int)lost, -1, -1);
  neighbour->told_at = now;
  MPI_Request request;
  if (transport->base.rank == 0)
    arbitrate(transport, &neighbour->lost);
  else if (lost == 0)
    arbitrate_instead(transport, &neighbour->lost);
  else if (MPI_Isend(&neighbour->lost, (int)sizeof neighbour->lost, MPI_BYTE, 0, TAG_FAIL, transport->control,
                     &request) == MPI_SUCCESS)
    MPI_Request_free(&request);
}

static void watch_neighbour(mt_mpi_transport *transport, double now) {
  mt_neighbour *neighbour = &transport->neighbour;
  double looked = now - neighbour->looked_at;
  neighbour->looked_at = now;
  if (!neighbour->watched || transport->base.ended) return;
  neighbour->silence += looked < LOOK_SECONDS ? looked : LOOK_SECONDS;
  if (neighbour->told_at > 0 && now - neighbour->told_at > LOST_SECONDS)
    arbitrate_instead(transport, &neighbour->lost);
  else if (neighbour->told_at <= 0 && neighbour->silence > transport->options.heartbeat_seconds)
    tell_lost(transport, now);
}

static void receive_control(mt_mpi_transport *transport, double now) {
  for (;;) {
    int there = 0;
    MPI_Status status;
    if (MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, transport->control, &there, &status) != MPI_SUCCESS || !there)
      return;
    motet_error failure;
    mt_heartbeat heartbeat;
    mt_neighbour *neighbour = &transport->neighbour;
    void *data = NULL;
    size_t bytes = 0;
    if (status.MPI_TAG == TAG_FAIL) data = &failure, bytes = sizeof failure;
    if (status.MPI_TAG == TAG_HEARTBEAT) data = &heartbeat, bytes = sizeof heartbeat;
    if (status.MPI_TAG == TAG_PLACE) data = neighbour->place, bytes = sizeof neighbour->place;
    if (MPI_Recv(data, (int)bytes, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, transport->control,
                 MPI_STATUS_IGNORE) != MPI_SUCCESS)
      return;
    switch (status.MPI_TAG) {
    case TAG_FAIL: arbitrate(transport, &failure); break;
    case TAG_ENDED:
      if (!transport->base.ended) end_job(transport);
      break;
    case TAG_HANG: transport->hang = transport->waiting_since > 0; break;
    case TAG_PLACE: neighbour->watched = true, neighbour->silence = 0; break;
    case TAG_GOODBYE: neighbour->watched = false; break;
    default: transport->heartbeats[status.MPI_SOURCE] = heartbeat; transport->heard_at[status.MPI_SOURCE] = now;
    }
  }
}

static void sleep_until_wanted(mt_mpi_transport *transport) {
  /* A rank that waits moves its own messages; one that computes needs us only for messages under way. */
  bool moving = transport->outstanding != NULL && transport->waiting_since == 0;
  long microseconds = moving ? MOVING_MICROSECONDS : IDLE_MICROSECONDS;
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_nsec += microseconds * 1000;
  if (until.tv_nsec >= 1000000000) until.tv_nsec -= 1000000000, until.tv_sec++;
  pthread_cond_timedwait(&transport->wake, &transport->lock, &until);
}

static void *serve(void *context) {
  mt_mpi_transport *transport = context;
  double next_heartbeat = 0, next_place = 0;
  const bool watches = transport->options.heartbeat_seconds > 0 && transport->base.ranks > 1;
  const double quarter = transport->options.heartbeat_seconds / 4;
  prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
  pthread_mutex_lock(&transport->lock);
  while (!transport->stop) {
    double now = mt_clock_seconds();
    receive_control(transport, now);
    if (now >= next_heartbeat && !transport->base.ended) {
      next_heartbeat = now + heartbeat_period(transport);
      if (transport->base.rank == 0)
        judge_hang(transport, now);
      else
        send_heartbeat(transport, now);
    }
    if (watches && now >= next_place && !transport->base.ended) {
      next_place = now + (quarter < PLACE_SECONDS ? quarter : PLACE_SECONDS);
      tell_place(transport);
    }
    if (watches) watch_neighbour(transport, now);
    /* A rank that is deep in a computation cannot unwind: the message library ends it. */
    if (transport->base.ended && now - transport->ended_at > GRACE_SECONDS)
      MPI_Abort(transport->control, EXIT_CODE);
    sleep_until_wanted(transport);
  }
  if (watches && !transport->base.ended) {
    tell(transport, ranks_on(transport, 1), TAG_GOODBYE);
    if (transport->place_request != MPI_REQUEST_NULL) MPI_Request_free(&transport->place_request);
  }
  pthread_mutex_unlock(&transport->lock);
  return NULL;
}

motet_status mt_mpi_service_start(mt_mpi_transport *transport, motet_error *error) {
  size_t ranks = (size_t)transport->base.ranks;
  transport->heartbeats = calloc(ranks, sizeof *transport->heartbeats);
  transport->heard_at = calloc(ranks, sizeof *transport->heard_at);
  if (transport->heartbeats == NULL || transport->heard_at == NULL)
    return mt_error_memory(error, ranks * (sizeof(mt_heartbeat) + sizeof(double)), "the transport's heartbeats");
  if (pthread_create(&transport->service, NULL, serve, transport) != 0)
    return mt_error_set(error, MOTET_ERROR_FAILED, "the transport's service thread could not be started");
  return MOTET_OK;
}

void mt_mpi_service_stop(mt_mpi_transport *transport) {
  pthread_mutex_lock(&transport->lock);
  transport->stop = true;
  pthread_cond_signal(&transport->wake);
  pthread_mutex_unlock(&transport->lock);
  pthread_join(transport->service, NULL);
}

void mt_mpi_service_fail(mt_mpi_transport *transport, const motet_error *error) {
  /* The record stays alive until the job has ended everywhere: MPI may still be sending it. */
  static const struct timespec pause = {.tv_nsec = 1000000};
  pthread_mutex_lock(&transport->lock);
  if (transport->base.rank == 0) {
    arbitrate(transport, error);
  } else if (!transport->base.ended) {
    MPI_Request request;
    MPI_Isend(error, (int)sizeof *error, MPI_BYTE, 0, TAG_FAIL, transport->control, &request);
    double since = mt_clock_seconds();
    while (!transport->base.ended && mt_clock_seconds() - since < ARBITER_SECONDS) {
      int done;
      if (request != MPI_REQUEST_NULL) MPI_Test(&request, &done, MPI_STATUS_IGNORE);
      pthread_mutex_unlock(&transport->lock);
      nanosleep(&pause, NULL);
      pthread_mutex_lock(&transport->lock);
    }
    if (!transport->base.ended) {
      /* Rank 0 does not answer: it is gone, or cannot be reached. */
      end_job(transport);
      if (transport->options.report != NULL) transport->options.report(transport->options.context, error);
    }
  }
  pthread_mutex_unlock(&transport->lock);
}
