/* Planning ahead: one worker thread with one packer (and so one pool of rank sets), and a ring of batches. A
 * finished plan is copied into its slot, so that the worker never touches what the caller reads. */
#include "base/array.h"
#include "base/error.h"
#include "motet/pack.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef enum slot_state { SLOT_FREE, SLOT_WAITING, SLOT_DONE, SLOT_HELD } slot_state;

typedef struct slot {
  slot_state state;
  motet_pack_sequence *sequences; /* own copy */
  int32_t count, capacity;
  motet_pack_plan plan;
  unsigned char *storage; /* the plan's arrays, one behind the other */
  size_t storage_bytes;
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
  int32_t held;         /* the slot whose plan the caller has: the one before next_take; -1: none */
  motet_packer *packer; /* the worker's */
  slot *ring;
};

/* Copies `count` elements to the storage's end and returns where they lie. */
static const void *append(slot *into, size_t *used, const void *data, int64_t count, size_t size) {
  enum { ALIGNMENT = 16 };
  size_t bytes = (size_t)count * size;
  unsigned char *at = into->storage + *used;
  if (bytes > 0) memcpy(at, data, bytes);
  *used += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  return at;
}

static motet_status keep_plan(slot *into, const motet_pack_plan *plan, motet_error *error) {
  int64_t ranks = 0, sequences = 0, slices = 0;
  for (int64_t g = 0; g < plan->group_count; g++) {
    const motet_pack_group *group = &plan->groups[g];
    ranks += group->degree;
    sequences += group->sequence_count;
    slices += (int64_t)group->degree * group->sequence_count;
  }
  size_t needed = (size_t)plan->microbatch_count * sizeof *plan->microbatches +
                  (size_t)plan->group_count * (sizeof *plan->groups + sizeof *plan->cumulative) +
                  (size_t)ranks * sizeof *plan->ranks +
                  (size_t)sequences * (sizeof *plan->sequences + sizeof *plan->cumulative) +
                  (size_t)plan->deferred_count * sizeof *plan->deferred +
                  (size_t)plan->part_count * sizeof *plan->parts + (size_t)slices * sizeof *plan->slices + 8 * 16;
  if (!mt_array_reserve((void **)&into->storage, &into->storage_bytes, needed, 1))
    return mt_error_memory(error, needed, "a plan");
  size_t used = 0;
  into->plan = *plan;
  into->plan.microbatches =
      append(into, &used, plan->microbatches, plan->microbatch_count, sizeof *plan->microbatches);
  into->plan.groups = append(into, &used, plan->groups, plan->group_count, sizeof *plan->groups);
  into->plan.ranks = append(into, &used, plan->ranks, ranks, sizeof *plan->ranks);
  into->plan.sequences = append(into, &used, plan->sequences, sequences, sizeof *plan->sequences);
  into->plan.deferred = append(into, &used, plan->deferred, plan->deferred_count, sizeof *plan->deferred);
  into->plan.parts = append(into, &used, plan->parts, plan->part_count, sizeof *plan->parts);
  into->plan.slices = append(into, &used, plan->slices, slices, sizeof *plan->slices);
  into->plan.cumulative =
      append(into, &used, plan->cumulative, sequences + plan->group_count, sizeof *plan->cumulative);
  return MOTET_OK;
}

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
    motet_status status = motet_packer_plan(service->packer, next->sequences, next->count, &error, &plan);
    if (status == MOTET_OK) status = keep_plan(next, plan, &error);
    pthread_mutex_lock(&service->lock);
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
  if (status == MOTET_OK) status = motet_packer_create(options, error, &service->packer);
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
    free(service->ring[i].storage);
    free(service->ring[i].sequences);
  }
  motet_packer_destroy(service->packer);
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

/* Hands out the done slot; the plan held before is over. A refused batch is over too, the held plan stays and moves
 * up behind it, so that the free slots stay in a row. */
static motet_status hand_out(motet_pack_service *service, slot *from, motet_error *error,
                             const motet_pack_plan **plan) {
  int32_t index = service->next_take;
  service->next_take = (service->next_take + 1) % service->slots;
  service->filled--;
  if (from->status != MOTET_OK) {
    if (error != NULL) *error = from->error;
    motet_status status = from->status;
    from->state = SLOT_FREE;
    if (service->held >= 0) {
      slot moved = service->ring[service->held];
      service->ring[service->held] = *from;
      *from = moved;
      service->held = index;
    }
    return status;
  }
  if (service->held >= 0) service->ring[service->held].state = SLOT_FREE;
  service->held = index;
  from->state = SLOT_HELD;
  *plan = &from->plan;
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
    *plan = &service->ring[service->held].plan;
  }
  pthread_mutex_unlock(&service->lock);
  return status;
}
