#include "tensor/team.h"

#include "tensor/memory.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* Looks at the ticket before a thread sleeps: tens of microseconds, the gap between two kernels. */
enum { LOOKS = 2000, LOOKS_AT_END = 200 };

/*
 * The ticket holds the number of the run and how many of its indices are still to be taken. Taking one compares
 * both: a thread that comes late to a run that has ended finds another number or nothing left, and touches nothing.
 * The run's fields are read after an index was taken; they cannot change before it is done.
 */
enum { LEFT_BITS = 40 };
static const uint64_t LEFT_MASK = (UINT64_C(1) << LEFT_BITS) - 1;

typedef struct member {
  struct mt_team *team;
  int32_t number;
  pthread_t thread;
} member;

struct mt_team {
  int32_t threads, started;
  member *members; /* [threads - 1] */
  mt_team_work work;
  void *context;
  int64_t count;
  _Alignas(64) atomic_uint_fast64_t ticket;
  _Alignas(64) atomic_int_fast64_t done;
  atomic_int sleepers;
  atomic_bool stop;
  pthread_mutex_t lock;
  pthread_cond_t wake;
  bool has_lock, has_wake;
  unsigned char *shared, *own;
  size_t shared_bytes, own_bytes; /* own: of each thread */
  mt_onednn *onednn;
};

static void pause_a_moment(void) {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

/* Takes and does indices until none are left. */
static void take_part(mt_team *team, int32_t thread) {
  uint_fast64_t ticket = atomic_load_explicit(&team->ticket, memory_order_acquire);
  while ((ticket & LEFT_MASK) > 0) {
    if (!atomic_compare_exchange_weak_explicit(&team->ticket, &ticket, ticket - 1, memory_order_acq_rel,
                                               memory_order_acquire))
      continue;
    team->work(team->context, team->count - (int64_t)(ticket & LEFT_MASK), thread);
    atomic_fetch_add_explicit(&team->done, 1, memory_order_release);
    ticket = atomic_load_explicit(&team->ticket, memory_order_acquire);
  }
}

static bool has_work(mt_team *team) {
  return (atomic_load(&team->ticket) & LEFT_MASK) > 0 || atomic_load(&team->stop);
}

static void sleep_until_work(mt_team *team) {
  for (int look = 0; look < LOOKS; look++) {
    if (has_work(team)) return;
    pause_a_moment();
  }
  pthread_mutex_lock(&team->lock);
  atomic_fetch_add(&team->sleepers, 1);
  while (!has_work(team)) pthread_cond_wait(&team->wake, &team->lock);
  atomic_fetch_sub(&team->sleepers, 1);
  pthread_mutex_unlock(&team->lock);
}

static void *live(void *argument) {
  const member *self = argument;
  while (!atomic_load(&self->team->stop)) {
    take_part(self->team, self->number);
    sleep_until_work(self->team);
  }
  return NULL;
}

static void wake_sleepers(mt_team *team) {
  if (atomic_load(&team->sleepers) == 0) return;
  pthread_mutex_lock(&team->lock);
  pthread_cond_broadcast(&team->wake);
  pthread_mutex_unlock(&team->lock);
}

void mt_team_run(mt_team *team, int64_t count, mt_team_work work, void *context) {
  if (team->threads == 1 || count < 2) {
    for (int64_t index = 0; index < count; index++) work(context, index, 0);
    return;
  }
  team->work = work;
  team->context = context;
  team->count = count;
  atomic_store_explicit(&team->done, 0, memory_order_relaxed);
  const uint64_t run = (atomic_load_explicit(&team->ticket, memory_order_relaxed) >> LEFT_BITS) + 1;
  atomic_store(&team->ticket, run << LEFT_BITS | (uint64_t)count);
  wake_sleepers(team);
  take_part(team, 0);
  for (int look = 0; atomic_load_explicit(&team->done, memory_order_acquire) < count; look++)
    if (look < LOOKS_AT_END)
      pause_a_moment();
    else
      sched_yield(); /* whoever has the last index may be waiting for this processor */
}

int32_t mt_team_threads(const mt_team *team) { return team->threads; }
mt_onednn *mt_team_onednn(const mt_team *team) { return team->onednn; }

/* Threads begin with the mask of whoever makes them: never does a signal come to one. */
static motet_status start_members(mt_team *team, motet_error *error) {
  sigset_t before;
  mt_onednn_hold_signals(&before);
  for (; team->started + 1 < team->threads; team->started++) {
    member *self = &team->members[team->started];
    *self = (member){.team = team, .number = team->started + 1};
    if (pthread_create(&self->thread, NULL, live, self) != 0) break;
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (team->started + 1 == team->threads) return MOTET_OK;
  return mt_error_set(error, MOTET_ERROR_FAILED, "the system does not start thread %d of %d",
                      (int)team->started + 2, (int)team->threads);
}

motet_status mt_team_create(int32_t threads, motet_error *error, mt_team **result) {
  *result = NULL;
  if (threads < 1) return mt_error_set(error, MOTET_ERROR_ARGUMENT, "a team of %d threads", (int)threads);
  mt_team *team = aligned_alloc(64, (sizeof *team + 63) / 64 * 64);
  if (team == NULL) return mt_error_memory(error, sizeof *team, "a team of threads");
  *team = (mt_team){.threads = threads};
  motet_status status = MOTET_OK;
  team->has_lock = pthread_mutex_init(&team->lock, NULL) == 0;
  team->has_wake = pthread_cond_init(&team->wake, NULL) == 0;
  if (threads > 1) team->members = calloc((size_t)threads - 1, sizeof *team->members);
  if (!team->has_lock || !team->has_wake || (threads > 1 && team->members == NULL)) {
    status = mt_error_memory(error, (size_t)threads * sizeof *team->members, "a team of threads");
    goto fail;
  }
  status = mt_onednn_create(error, &team->onednn);
  if (status != MOTET_OK) goto fail;
  status = start_members(team, error);
  if (status != MOTET_OK) goto fail;
  *result = team;
  return MOTET_OK;
fail:
  mt_team_destroy(team);
  return status;
}

void mt_team_destroy(mt_team *team) {
  if (team == NULL) return;
  if (team->started > 0) {
    pthread_mutex_lock(&team->lock);
    atomic_store(&team->stop, true);
    pthread_cond_broadcast(&team->wake);
    pthread_mutex_unlock(&team->lock);
  }
  for (int32_t i = 0; i < team->started; i++) pthread_join(team->members[i].thread, NULL);
  if (team->has_wake) pthread_cond_destroy(&team->wake);
  if (team->has_lock) pthread_mutex_destroy(&team->lock);
  mt_memory_unmap(team->shared, team->shared_bytes);
  mt_memory_unmap(team->own, team->own_bytes * (size_t)team->threads);
  mt_onednn_destroy(team->onednn);
  free(team->members);
  free(team);
}

static motet_status grow(unsigned char **memory, size_t old_bytes, size_t bytes, motet_error *error) {
  void *fresh;
  mt_memory_unmap(*memory, old_bytes);
  *memory = NULL;
  motet_status status = mt_memory_map(bytes, true, "kernels' scratch", error, &fresh);
  if (status == MOTET_OK) *memory = fresh;
  return status;
}

motet_status mt_team_reserve(mt_team *team, size_t shared_bytes, size_t thread_bytes, motet_error *error) {
  motet_status status = MOTET_OK;
  if (shared_bytes > team->shared_bytes) {
    const size_t wanted = shared_bytes + shared_bytes / 8; /* the next batch is often a little longer */
    status = grow(&team->shared, team->shared_bytes, wanted, error);
    team->shared_bytes = status == MOTET_OK ? wanted : 0;
  }
  if (status == MOTET_OK && thread_bytes > team->own_bytes) {
    const size_t wanted = (thread_bytes + thread_bytes / 8 + 4095) / 4096 * 4096;
    status = grow(&team->own, team->own_bytes * (size_t)team->threads, wanted * (size_t)team->threads, error);
    team->own_bytes = status == MOTET_OK ? wanted : 0;
  }
  return status;
}

void *mt_team_shared(const mt_team *team) { return team->shared; }
void *mt_team_own(const mt_team *team, int32_t thread) { return team->own + team->own_bytes * (size_t)thread; }
