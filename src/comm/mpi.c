#include "base/clock.h"
#include "base/text.h"
#include "comm/mpi_state.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

/* Counts are ints in MPI 3; a GiB is a round number well below. */
enum { CHUNK_BYTES = 1 << 30, SERVED_BYTES = 4096 };

const char *mt_transport_mpi_library(void) {
#ifdef OPEN_MPI
  return "openmpi";
#else
  return "mpich";
#endif
}

static bool number_from_environment(const char *name, int32_t least, int32_t *number) {
  const char *text = getenv(name);
  if (text == NULL || *text == 0) return false;
  char *end;
  long value = strtol(text, &end, 10);
  if (*end != 0 || value < least || value > INT32_MAX) return false;
  *number = (int32_t)value;
  return true;
}

bool mt_transport_launched(int32_t *ranks, int32_t *rank) {
  static const char *const names[][2] = {{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
                                         {"PMI_SIZE", "PMI_RANK"},
                                         {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID"}};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    int32_t found[2];
    if (!number_from_environment(names[i][0], 1, &found[0]) || !number_from_environment(names[i][1], 0, &found[1]))
      continue;
    if (ranks != NULL) *ranks = found[0];
    if (rank != NULL) *rank = found[1];
    return true;
  }
  return false;
}

static motet_status mpi_error(motet_error *error, int code, const char *what) {
  char text[MPI_MAX_ERROR_STRING] = "unknown error";
  int length = 0;
  MPI_Error_string(code, text, &length);
  return mt_error_set(error, MOTET_ERROR_FAILED, "%s failed in the message library: %s", what, text);
}

static size_t chunk_bytes(const mt_transfer *transfer, int chunk) {
  size_t begin = (size_t)chunk * CHUNK_BYTES;
  return transfer->bytes - begin < CHUNK_BYTES ? transfer->bytes - begin : CHUNK_BYTES;
}

static motet_status post(mt_transport *base, bool receive, int32_t peer, int32_t tag, char *data, size_t bytes,
                         motet_error *error, mt_transfer **out) {
  mt_mpi_transport *transport = (mt_mpi_transport *)base;
  if (peer < 0 || peer >= base->ranks || peer == base->rank)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT, "rank %d cannot exchange messages with rank %d of %d",
                        (int)base->rank, (int)peer, (int)base->ranks);
  size_t chunks = bytes == 0 ? 1 : (bytes + CHUNK_BYTES - 1) / CHUNK_BYTES;
  mt_transfer *transfer = malloc(sizeof *transfer + chunks * sizeof(MPI_Request));
  if (transfer == NULL) return mt_error_memory(error, sizeof *transfer, "a transfer");
  *transfer = (mt_transfer){.peer = peer, .receive = receive, .bytes = bytes, .chunks = (int)chunks};
  int code = MPI_SUCCESS;
  pthread_mutex_lock(&transport->lock);
  for (int i = 0; i < transfer->chunks && code == MPI_SUCCESS; i++) {
    char *begin = data + (size_t)i * CHUNK_BYTES;
    int count = (int)chunk_bytes(transfer, i);
    code = receive ? MPI_Irecv(begin, count, MPI_BYTE, peer, tag, transport->transfers, &transfer->requests[i])
                   : MPI_Isend(begin, count, MPI_BYTE, peer, tag, transport->transfers, &transfer->requests[i]);
  }
  if (code == MPI_SUCCESS) {
    transfer->next = transport->outstanding;
    if (transfer->next != NULL) transfer->next->previous = transfer;
    transport->outstanding = transfer;
    transport->progress++;
    if (bytes > SERVED_BYTES) pthread_cond_signal(&transport->wake);
  }
  pthread_mutex_unlock(&transport->lock);
  if (code != MPI_SUCCESS) {
    free(transfer);
    return mpi_error(error, code, receive ? "posting a receive" : "posting a send");
  }
  *out = transfer;
  return MOTET_OK;
}

static motet_status mpi_send(mt_transport *base, int32_t peer, int32_t tag, const void *data, size_t bytes,
                             motet_error *error, mt_transfer **transfer) {
  return post(base, false, peer, tag, (char *)(uintptr_t)data, bytes, error, transfer);
}

static motet_status mpi_recv(mt_transport *base, int32_t peer, int32_t tag, void *data, size_t bytes,
                             motet_error *error, mt_transfer **transfer) {
  return post(base, true, peer, tag, data, bytes, error, transfer);
}

static void unlink_transfer(mt_mpi_transport *transport, mt_transfer *transfer) {
  if (transfer->next != NULL) transfer->next->previous = transfer->previous;
  if (transfer->previous != NULL)
    transfer->previous->next = transfer->next;
  else
    transport->outstanding = transfer->next;
}

static motet_status job_ended(const mt_transfer *transfer, motet_error *error) {
  return mt_error_set(error, MOTET_ERROR_FAILED, "the job ended while waiting for rank %d", (int)transfer->peer);
}

/** Tests the chunks that are still open, called with the lock held. */
static motet_status test(mt_transfer *transfer, motet_error *error, bool *done) {
  *done = true;
  for (int i = 0; i < transfer->chunks; i++) {
    if (transfer->requests[i] == MPI_REQUEST_NULL) continue;
    int complete = 0, cancelled = 0, count = 0;
    MPI_Status status;
    int code = MPI_Test(&transfer->requests[i], &complete, &status);
    if (code != MPI_SUCCESS) {
      int class = code;
      MPI_Error_class(code, &class);
      if (class == MPI_ERR_TRUNCATE)
        return mt_error_set(error, MOTET_ERROR_FAILED, "rank %d sent more than the %zu bytes that were expected",
                            (int)transfer->peer, transfer->bytes);
      return mpi_error(error, code, "a transfer");
    }
    if (!complete) {
      *done = false;
      return MOTET_OK;
    }
    if (!transfer->receive) continue;
    /* The end of the job cancels what is still to be received; the length of such a message means nothing. */
    MPI_Test_cancelled(&status, &cancelled);
    if (cancelled) return job_ended(transfer, error);
    MPI_Get_count(&status, MPI_BYTE, &count);
    if ((size_t)count != chunk_bytes(transfer, i))
      return mt_error_set(error, MOTET_ERROR_FAILED, "rank %d sent %d bytes where %zu were expected",
                          (int)transfer->peer, count, chunk_bytes(transfer, i));
  }
  return MOTET_OK;
}

/** Why a wait that is not done must end, or MOTET_OK. Called with the lock held. */
static motet_status give_up(mt_mpi_transport *transport, const mt_transfer *transfer, double seconds,
                            motet_error *error) {
  const char *what = transfer->receive ? "nothing has arrived from" : "nothing was taken by";
  if (transport->base.ended) return job_ended(transfer, error);
  if (transport->hang)
    return mt_error_set(error, MOTET_ERROR_FAILED,
                        "%s rank %d for %.1f s (a message of %zu bytes), and every other rank waits too: the "
                        "message was lost or never sent",
                        what, (int)transfer->peer, seconds, transfer->bytes);
  if (seconds > transport->options.stall_seconds)
    return mt_error_set(error, MOTET_ERROR_FAILED, "%s rank %d for %.1f s (a message of %zu bytes)", what,
                        (int)transfer->peer, seconds, transfer->bytes);
  return MOTET_OK;
}

/* Spinning serves latency where the rank has its core for itself; where ranks share cores, whoever waits must let
 * the others compute: first by yielding, then by sleeping. */
static void rest(const mt_mpi_transport *transport, int64_t polls) {
  int64_t spins = transport->crowded ? 0 : 2000, yields = spins + (transport->crowded ? 100 : 2000);
  if (polls < spins) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
  } else if (polls < yields) {
    sched_yield();
  } else {
    nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
  }
}

static motet_status mpi_wait(mt_transport *base, mt_transfer *transfer, motet_error *error) {
  mt_mpi_transport *transport = (mt_mpi_transport *)base;
  double since = mt_clock_seconds();
  bool done = false;
  pthread_mutex_lock(&transport->lock);
  transport->waiting_since = since;
  transport->waiting_bytes = transfer->bytes;
  motet_status status = test(transfer, error, &done);
  for (int64_t polls = 0; status == MOTET_OK && !done; polls++) {
    pthread_mutex_unlock(&transport->lock);
    rest(transport, polls);
    pthread_mutex_lock(&transport->lock);
    status = test(transfer, error, &done);
    if (status == MOTET_OK && !done) status = give_up(transport, transfer, mt_clock_seconds() - since, error);
  }
  transport->waiting_since = 0;
  if (status == MOTET_OK) {
    transport->progress++;
    unlink_transfer(transport, transfer);
  }
  pthread_mutex_unlock(&transport->lock);
  if (status == MOTET_OK) free(transfer);
  return status;
}

static void mpi_fail(mt_transport *base, const motet_error *error) {
  mt_mpi_service_fail((mt_mpi_transport *)base, error);
}

static void mpi_destroy(mt_transport *base) {
  mt_mpi_transport *transport = (mt_mpi_transport *)base;
  mt_mpi_service_stop(transport);
  /* After a failure some rank may never come to the end of the connection: leave without it. */
  if (base->ended) return;
  while (transport->outstanding != NULL) {
    mt_transfer *transfer = transport->outstanding;
    unlink_transfer(transport, transfer);
    free(transfer);
  }
  MPI_Comm_free(&transport->control);
  MPI_Comm_free(&transport->transfers);
  MPI_Finalize();
  pthread_cond_destroy(&transport->wake);
  pthread_mutex_destroy(&transport->lock);
  free(transport->heartbeats);
  free(transport->heard_at);
  free(transport);
}

static const mt_transport_table mpi_table = {
    .name = "mpi",
    .send = mpi_send,
    .recv = mpi_recv,
    .wait = mpi_wait,
    .fail = mpi_fail,
    .destroy = mpi_destroy,
};

static motet_status initialize(motet_error *error) {
  int initialized = 0, provided = 0;
  MPI_Initialized(&initialized);
  if (initialized) return mt_error_set(error, MOTET_ERROR_ARGUMENT, "this process has an MPI transport already");
  int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided);
  if (code != MPI_SUCCESS) return mpi_error(error, code, "the start of the message library");
  if (provided < MPI_THREAD_SERIALIZED)
    return mt_error_set(error, MOTET_ERROR_UNSUPPORTED,
                        "the MPI library does not let several threads call it in turn (MPI_THREAD_SERIALIZED)");
  return MOTET_OK;
}

static motet_status connect(mt_mpi_transport *transport, motet_error *error) {
  MPI_Comm local;
  int rank = 0, ranks = 0, local_rank = 0, local_ranks = 0;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  int code = MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (code == MPI_SUCCESS) code = MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (code != MPI_SUCCESS) return mpi_error(error, code, "the question for the number of ranks");
  if (ranks != transport->options.ranks)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT,
                        "the job asks for %s, but %d came together; start %d, with the mpirun of the MPI library "
                        "that this program was built with (%s)",
                        mt_counted(transport->options.ranks, "rank").text, ranks, (int)transport->options.ranks,
                        mt_transport_mpi_library());
  code = MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &local);
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof cores, &cores) != 0) CPU_ZERO(&cores);
  if (code == MPI_SUCCESS) {
    MPI_Comm_rank(local, &local_rank);
    MPI_Comm_size(local, &local_ranks);
    /* A launcher may have given each rank cores of its own: what counts is all of theirs together. */
    code = MPI_Allreduce(MPI_IN_PLACE, &cores, (int)sizeof cores, MPI_BYTE, MPI_BOR, local);
    MPI_Comm_free(&local);
  }
  if (code == MPI_SUCCESS) code = MPI_Comm_dup(MPI_COMM_WORLD, &transport->transfers);
  if (code == MPI_SUCCESS) code = MPI_Comm_dup(MPI_COMM_WORLD, &transport->control);
  if (code != MPI_SUCCESS) return mpi_error(error, code, "the making of communicators");
  MPI_Comm_set_errhandler(transport->transfers, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(transport->control, MPI_ERRORS_RETURN);
  transport->crowded = local_ranks > CPU_COUNT(&cores);
  transport->base.rank = rank;
  transport->base.ranks = ranks;
  transport->base.local_rank = local_rank;
  transport->base.local_ranks = local_ranks;
  return MOTET_OK;
}

motet_status mt_transport_mpi_create(const mt_transport_options *options, motet_error *error, mt_transport **out) {
  motet_status status = initialize(error);
  if (status != MOTET_OK) return status;
  mt_mpi_transport *transport = calloc(1, sizeof *transport);
  if (transport == NULL) {
    MPI_Finalize();
    return mt_error_memory(error, sizeof *transport, "the transport");
  }
  transport->base.table = &mpi_table;
  transport->options = *options;
  transport->heartbeat_request = transport->place_request = MPI_REQUEST_NULL;
  if (transport->options.hang_seconds <= 0) transport->options.hang_seconds = 2;
  if (transport->options.stall_seconds <= 0) transport->options.stall_seconds = 600;
  pthread_mutex_init(&transport->lock, NULL);
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(&transport->wake, &attributes);
  pthread_condattr_destroy(&attributes);
  status = connect(transport, error);
  if (status == MOTET_OK) status = mt_mpi_service_start(transport, error);
  if (status != MOTET_OK) {
    MPI_Finalize();
    pthread_cond_destroy(&transport->wake);
    pthread_mutex_destroy(&transport->lock);
    free(transport->heartbeats);
    free(transport->heard_at);
    free(transport);
    return status;
  }
  /* Sleeps of a waiting rank should take what they say. */
  prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
  *out = &transport->base;
  return MOTET_OK;
}
