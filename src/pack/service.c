/* Planning ahead: one worker thread, a ring of batches, and two packers' worth of plans. A plan is handed out from
 * a packer of its own slot, so that the worker never touches what the caller reads. */
#include "base/error.h"
#include "motet/pack.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef enum slot_state { SLOT_FREE, SLOT_WAITING, SLOT_DONE, SLOT_HELD } slot_state;

typedef struct slot {
  slot_state state;
  motet_packer *packer;
  motet_pack_sequence *sequences; /* own copy */
  int32_t count, capacity;
  const motet_pack_plan *plan;
  motet_status status;
  motet_error error;
} slot;

/* The slots are a ring: [next_take, next_take + filled) are in flight. One slot more than the look-ahead, for the
 * plan that the caller holds. */
struct motet_pack_service {
  pthread_t thread;
  bool started, stopping;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  int32_t look_ahead, slots, next_take, next_plan, filled;
  int32_t held; /* the slot whose plan the caller has; -1: none */
  slot *ring;
};

static void *work(void *argument) {
  motet_pack_service *service = argument;
  pthread_mutex_lock(&service->lock);
  for (;;) {
    slot *next = &service->ring[service->next_plan];
    while (!service->stopping && next->state != SLOT_WAITING) pthread_cond_wait(&service->changed, &service->lock);
    if (service->stopping) break;
    pthread_mutex_unlock(&service->lock);
    const motet_pack_plan *plan;
    motet_error error;
    motet_error_clear(&error);
    motet_status status = motet_packer_plan(next->packer, next->sequences, next->count, &error, &plan);
    pthread_mutex_lock(&service->lock);
    next->plan = plan;
    next->status = status;
    next->error = error;
    next->state = SLOT_DONE;
    service->next_plan = (service->next_plan + 1) % service->slots;
    pthread_cond_broadcast(&service->changed);
  }
  pthread_mutex_unlock(&service->lock);
  return NULL;
}

motet_status motet_pack_service_create(const motet_pack_options *options, int32_t look_ahead, motet_error *error,
                                       motet_pack_service **result) {
  enum { LOOK_AHEAD_MAX = 1024 };
  *result = NULL;
  if (look_ahead < 1 || look_ahead > LOOK_AHEAD_MAX)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT, "a look-ahead of %d batches; it must be 1 to %d", look_ahead,
                        LOOK_AHEAD_MAX);
  motet_pack_service *service = calloc(1, sizeof *service);
  if (service == NULL) return mt_error_memory(error, sizeof *service, "a planning service");
  service->look_ahead = look_ahead;
  service->slots = look_ahead + 1;
  service->held = -1;
  pthread_mutex_init(&service->lock, NULL);
  pthread_cond_init(&service->changed, NULL);
  motet_status status = MOTET_OK;
  service->ring = calloc((size_t)service->slots, sizeof *service->ring);
  if (service->ring == NULL) status = mt_error_memory(error, 0, "a planning service");
  for (int32_t i = 0; i < service->slots && status == MOTET_OK; i++)
    status = motet_packer_create(options, error, &service->ring[i].packer);
  if (status == MOTET_OK && pthread_create(&service->thread, NULL, work, service) != 0)
    status = mt_error_set(error, MOTET_ERROR_FAILED, "no thread can be started for planning");
  service->started = status == MOTET_OK;
  if (status == MOTET_OK)
    *result = service;
  else
    motet_pack_service_destroy(service);
  return status;
}

void motet_pack_service_destroy(motet_pack_service *service) {
  if (service == NULL) return;
  if (service->started) {
    pthread_mutex_lock(&service->lock);
    service->stopping = true;
    pthread_cond_broadcast(&service->changed);
    pthread_mutex_unlock(&service->lock);
    pthread_join(service->thread, NULL);
  }
  for (int32_t i = 0; service->ring != NULL && i < service->slots; i++) {
    motet_packer_destroy(service->ring[i].packer);
    free(service->ring[i].sequences);
  }
  free(service->ring);
  pthread_cond_destroy(&service->changed);
  pthread_mutex_destroy(&service->lock);
  free(service);
}

motet_status motet_pack_service_submit(motet_pack_service *service, const motet_pack_sequence *sequences,
                                       int32_t count, motet_error *error) {
  if (count < 0) return mt_error_set(error, MOTET_ERROR_ARGUMENT, "%d sequences", count);
  motet_status status = MOTET_OK;
  pthread_mutex_lock(&service->lock);
  slot *into = &service->ring[(service->next_take + service->filled) % service->slots];
  if (service->filled == service->look_ahead || into->state != SLOT_FREE) {
    status = mt_error_set(error, MOTET_ERROR_LIMIT, "%d batches are in flight; take one first", service->filled);
  } else if (count > into->capacity) {
    motet_pack_sequence *larger = realloc(into->sequences, (size_t)count * sizeof *larger);
    if (larger == NULL)
      status = mt_error_memory(error, (size_t)count * sizeof *larger, "a batch");
    else {
      into->sequences = larger;
      into->capacity = count;
    }
  }
  if (status == MOTET_OK) {
    if (count > 0) memcpy(into->sequences, sequences, (size_t)count * sizeof *sequences);
    into->count = count;
    into->state = SLOT_WAITING;
    service->filled++;
    pthread_cond_broadcast(&service->changed);
  }
  pthread_mutex_unlock(&service->lock);
  return status;
}

/* Hands out the done slot; its predecessor's plan is over. A refused batch is gone too, the held plan stays. */
static motet_status hand_out(motet_pack_service *service, slot *from, motet_error *error,
                             const motet_pack_plan **plan) {
  int32_t index = service->next_take;
  service->next_take = (service->next_take + 1) % service->slots;
  service->filled--;
  if (from->status != MOTET_OK) {
    if (error != NULL) *error = from->error;
    from->state = SLOT_FREE;
    return from->status;
  }
  if (service->held >= 0) service->ring[service->held].state = SLOT_FREE;
  service->held = index;
  from->state = SLOT_HELD;
  *plan = from->plan;
  return MOTET_OK;
}

motet_status motet_pack_service_take(motet_pack_service *service, bool wait, motet_error *error, bool *fresh,
                                     const motet_pack_plan **plan) {
  *fresh = false;
  *plan = NULL;
  motet_status status = MOTET_OK;
  pthread_mutex_lock(&service->lock);
  slot *next = &service->ring[service->next_take];
  while (wait && service->filled > 0 && next->state == SLOT_WAITING)
    pthread_cond_wait(&service->changed, &service->lock);
  if (service->filled > 0 && next->state == SLOT_DONE) {
    status = hand_out(service, next, error, plan);
    *fresh = status == MOTET_OK;
  } else if (service->held >= 0) {
    *plan = service->ring[service->held].plan;
  }
  pthread_mutex_unlock(&service->lock);
  return status;
}
