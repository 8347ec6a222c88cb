/** @file
 * Members of a context-parallel group as threads of one process. Messages are copied when the receiver waits, not
 * when they are posted: a sender that touches what it has sent too early is found out.
 */
#ifndef MT_TESTS_MEMBER_THREADS_H
#define MT_TESTS_MEMBER_THREADS_H

#include "nn/context.h"

#include "base/error.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MEMBERS_MAX = 32 };

typedef struct member_message {
  struct member_message *next; /* in the order of posting */
  bool send, taken;
  int32_t from, to, tag;
  void *data;
  size_t bytes;
} member_message;

typedef struct member_world {
  pthread_mutex_t lock;
  pthread_cond_t moved;
  member_message *first;
  bool broken; /* a member failed: the others' waits end */
} member_world;

typedef struct member {
  member_world *world;
  int32_t rank;
  mt_context_exchange exchange;
  mt_context_counts counts;
  motet_error error;
  motet_status status;
  motet_status (*work)(struct member *member);
  void *job; /* what the members share */
} member;

static inline motet_status member_post(void *state, bool send, int32_t peer, int32_t tag, void *data, size_t bytes,
                                       motet_error *error, void **transfer) {
  member *self = state;
  member_message *message = calloc(1, sizeof *message);
  if (message == NULL) return mt_error_memory(error, sizeof *message, "a message");
  *message = (member_message){.send = send,
                              .from = send ? self->rank : peer,
                              .to = send ? peer : self->rank,
                              .tag = tag,
                              .data = data,
                              .bytes = bytes};
  pthread_mutex_lock(&self->world->lock);
  member_message **end = &self->world->first;
  while (*end != NULL) end = &(*end)->next;
  *end = message;
  pthread_cond_broadcast(&self->world->moved);
  pthread_mutex_unlock(&self->world->lock);
  *transfer = message;
  return MOTET_OK;
}

static inline motet_status member_send(void *state, int32_t peer, int32_t tag, const void *data, size_t bytes,
                                       motet_error *error, void **transfer) {
  return member_post(state, true, peer, tag, (void *)(uintptr_t)data, bytes, error, transfer);
}

static inline motet_status member_recv(void *state, int32_t peer, int32_t tag, void *data, size_t bytes,
                                       motet_error *error, void **transfer) {
  return member_post(state, false, peer, tag, data, bytes, error, transfer);
}

/** The first message that answers the receive, if the receive is itself the first of its kind. */
static inline member_message *member_match(member_world *world, const member_message *receive) {
  for (member_message *m = world->first; m != NULL; m = m->next)
    if (m->send && !m->taken && m->from == receive->from && m->to == receive->to && m->tag == receive->tag)
      return m;
  return NULL;
}

static inline void member_remove(member_world *world, member_message *message) {
  member_message **at = &world->first;
  while (*at != message) at = &(*at)->next;
  *at = message->next;
  free(message);
}

static inline motet_status member_wait(void *state, void *transfer, motet_error *error) {
  member *self = state;
  member_message *message = transfer, *match = NULL;
  motet_status status = MOTET_OK;
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += 20;
  pthread_mutex_lock(&self->world->lock);
  while (status == MOTET_OK) {
    if (message->send ? message->taken : (match = member_match(self->world, message)) != NULL) break;
    if (self->world->broken || pthread_cond_timedwait(&self->world->moved, &self->world->lock, &until) != 0)
      status = mt_error_set(error, MOTET_ERROR_FAILED, "member %d waits for member %d in vain", self->rank,
                            message->send ? message->to : message->from);
  }
  if (status == MOTET_OK && !message->send) {
    if (match->bytes != message->bytes)
      status = mt_error_set(error, MOTET_ERROR_FAILED, "member %d sent %zu bytes, member %d expected %zu",
                            message->from, match->bytes, message->to, message->bytes);
    else
      memcpy(message->data, match->data, message->bytes);
    match->taken = true;
    pthread_cond_broadcast(&self->world->moved);
  }
  if (status == MOTET_OK) member_remove(self->world, message);
  pthread_mutex_unlock(&self->world->lock);
  return status;
}

static inline void *member_main(void *context) {
  member *self = context;
  self->status = self->work(self);
  if (self->status != MOTET_OK) {
    pthread_mutex_lock(&self->world->lock);
    self->world->broken = true;
    pthread_cond_broadcast(&self->world->moved);
    pthread_mutex_unlock(&self->world->lock);
  }
  return NULL;
}

/** Runs @p work on @p count members; the first failure, or MOTET_OK. Their messages must all have been received. */
static inline motet_status members_run(int32_t count, motet_status (*work)(member *), void *job, member *members,
                                       motet_error *error) {
  member_world world = {.lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER};
  pthread_t threads[MEMBERS_MAX];
  motet_status status = MOTET_OK;
  for (int32_t i = 0; i < count; i++) {
    members[i] = (member){.world = &world, .rank = i, .work = work, .job = job};
    members[i].exchange =
        (mt_context_exchange){.state = &members[i], .send = member_send, .recv = member_recv, .wait = member_wait};
    if (pthread_create(&threads[i], NULL, member_main, &members[i]) != 0) abort();
  }
  for (int32_t i = 0; i < count; i++) pthread_join(threads[i], NULL);
  for (int32_t i = 0; i < count; i++)
    if (members[i].status != MOTET_OK && status == MOTET_OK) {
      status = members[i].status;
      *error = members[i].error;
    }
  if (status == MOTET_OK && world.first != NULL)
    status =
        mt_error_set(error, MOTET_ERROR_FAILED, "a message of member %d was never received", world.first->from);
  while (world.first != NULL) member_remove(&world, world.first);
  return status;
}

#endif
