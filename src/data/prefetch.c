#include "data/prefetch.h"

#include "base/clock.h"
#include "base/thread.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef enum request_state { WAITING, DECODING, READY } request_state;

/* A row that was asked for. The list is in order of asking. */
typedef struct request {
  int64_t key;
  request_state state;
  int32_t *samples;
  int32_t count, tiles;
  float *pixels;
  motet_status status;
  motet_error error;
  struct request *next;
} request;

struct mt_prefetch {
  const mt_dataset *dataset;
  int32_t capacity, threads;
  pthread_t *thread;    /* [threads] that were started */
  pthread_mutex_t lock; /* guards all below */
  pthread_cond_t changed;
  request *first, **last;
  int32_t ready, decoding;
  mt_prefetch_work decoded;
  bool beside, stopping;
};

static void request_free(request *done) {
  if (done == NULL) return;
  free(done->samples);
  free(done->pixels);
  free(done);
}

static request *find(mt_prefetch *prefetch, int64_t key) {
  for (request *item = prefetch->first; item != NULL; item = item->next)
    if (item->key == key) return item;
  return NULL;
}

/* What to decode next: the first in line while there is room. */
static request *choose(mt_prefetch *prefetch) {
  if (prefetch->ready + prefetch->decoding >= prefetch->capacity) return NULL;
  for (request *item = prefetch->first; item != NULL; item = item->next)
    if (item->state == WAITING) return item;
  return NULL;
}

static void read_pixels(const mt_dataset *dataset, request *item) {
  size_t bytes, tile_floats = (size_t)mt_dataset_tile_floats(dataset);
  if (__builtin_mul_overflow((size_t)item->tiles, tile_floats * sizeof(float), &bytes) ||
      (item->pixels = malloc(bytes > 0 ? bytes : 1)) == NULL) {
    item->status = mt_error_memory(&item->error, bytes, "a row's pixels");
    return;
  }
  const mt_row row = {.samples = item->count, .sample = item->samples, .tiles = item->tiles};
  item->status = mt_dataset_pixels(dataset, &row, &item->error, item->pixels);
}

/* Called and returns with the lock held. While an item is being decoded nobody else touches or frees it: take()
 * waits for READY. */
static void decode(mt_prefetch *prefetch, request *item) {
  item->state = DECODING;
  prefetch->decoding++;
  pthread_mutex_unlock(&prefetch->lock);
  const double begin = mt_clock_seconds();
  read_pixels(prefetch->dataset, item);
  const double seconds = mt_clock_seconds() - begin;
  pthread_mutex_lock(&prefetch->lock);
  prefetch->decoded.tiles += item->tiles;
  prefetch->decoded.seconds += seconds;
  item->state = READY;
  prefetch->decoding--;
  prefetch->ready++;
  pthread_cond_broadcast(&prefetch->changed);
}

mt_prefetch_work mt_prefetch_decoded(mt_prefetch *prefetch) {
  pthread_mutex_lock(&prefetch->lock);
  const mt_prefetch_work decoded = prefetch->decoded;
  pthread_mutex_unlock(&prefetch->lock);
  return decoded;
}

static void *work(void *argument) {
  mt_prefetch *prefetch = argument;
  pthread_mutex_lock(&prefetch->lock);
  while (!prefetch->stopping) {
    request *item = choose(prefetch);
    if (item != NULL)
      decode(prefetch, item);
    else
      pthread_cond_wait(&prefetch->changed, &prefetch->lock);
  }
  pthread_mutex_unlock(&prefetch->lock);
  return NULL;
}

/* Threads that run in idle time get a share of their own while somebody waits for them. */
static void hurry(mt_prefetch *prefetch, bool waited_for) {
  for (int32_t t = 0; t < prefetch->threads && prefetch->beside; t++)
    mt_thread_set_idle(prefetch->thread[t], !waited_for);
}

motet_status mt_prefetch_create(const mt_dataset *dataset, int32_t capacity, int32_t threads, bool beside,
                                motet_error *error, mt_prefetch **prefetch) {
  *prefetch = NULL;
  if (capacity < 1 || threads < 1)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT,
                        "a prefetch of %" PRId32 " rows by %" PRId32 " threads; at least 1 of each is needed",
                        capacity, threads);
  mt_prefetch *made = calloc(1, sizeof *made);
  if (made != NULL) made->thread = calloc((size_t)threads, sizeof *made->thread);
  if (made == NULL || made->thread == NULL) {
    free(made);
    return mt_error_memory(error, sizeof *made, "a prefetch");
  }
  made->dataset = dataset;
  made->capacity = capacity;
  made->last = &made->first;
  pthread_mutex_init(&made->lock, NULL);
  pthread_cond_init(&made->changed, NULL);
  for (; made->threads < threads; made->threads++) {
    int reason = pthread_create(&made->thread[made->threads], NULL, work, made);
    if (reason == 0) continue;
    mt_prefetch_destroy(made);
    return mt_error_set(error, MOTET_ERROR_FAILED, "cannot start a prefetch thread: %s", strerror(reason));
  }
  made->beside = beside;
  hurry(made, false);
  *prefetch = made;
  return MOTET_OK;
}

void mt_prefetch_destroy(mt_prefetch *prefetch) {
  if (prefetch == NULL) return;
  pthread_mutex_lock(&prefetch->lock);
  prefetch->stopping = true;
  pthread_cond_broadcast(&prefetch->changed);
  pthread_mutex_unlock(&prefetch->lock);
  for (int32_t t = 0; t < prefetch->threads; t++) pthread_join(prefetch->thread[t], NULL);
  while (prefetch->first != NULL) {
    request *next = prefetch->first->next;
    request_free(prefetch->first);
    prefetch->first = next;
  }
  pthread_cond_destroy(&prefetch->changed);
  pthread_mutex_destroy(&prefetch->lock);
  free(prefetch->thread);
  free(prefetch);
}

motet_status mt_prefetch_post(mt_prefetch *prefetch, int64_t key, const mt_row *row, motet_error *error) {
  request *item = calloc(1, sizeof *item);
  if (item != NULL) item->samples = malloc(((size_t)row->samples + 1) * sizeof *item->samples);
  if (item == NULL || item->samples == NULL) {
    request_free(item);
    return mt_error_memory(error, sizeof *item, "a prefetch");
  }
  item->key = key;
  item->count = row->samples;
  item->tiles = row->tiles;
  if (row->samples > 0) memcpy(item->samples, row->sample, (size_t)row->samples * sizeof *item->samples);
  pthread_mutex_lock(&prefetch->lock);
  bool known = find(prefetch, key) != NULL;
  if (!known) {
    *prefetch->last = item;
    prefetch->last = &item->next;
    pthread_cond_broadcast(&prefetch->changed);
  }
  pthread_mutex_unlock(&prefetch->lock);
  if (!known) return MOTET_OK;
  request_free(item);
  return mt_error_set(error, MOTET_ERROR_ARGUMENT, "row %" PRId64 " is being prefetched already", key);
}

/* Takes the request out of the list. */
static void detach(mt_prefetch *prefetch, request *item) {
  request **link = &prefetch->first;
  while (*link != item) link = &(*link)->next;
  *link = item->next;
  if (prefetch->last == &item->next) prefetch->last = link;
}

motet_status mt_prefetch_take(mt_prefetch *prefetch, int64_t key, motet_error *error, float **pixels) {
  *pixels = NULL;
  pthread_mutex_lock(&prefetch->lock);
  request *item = find(prefetch, key);
  if (item == NULL) {
    pthread_mutex_unlock(&prefetch->lock);
    return mt_error_set(error, MOTET_ERROR_ARGUMENT, "row %" PRId64 " was not asked for", key);
  }
  if (item->state == WAITING) {
    decode(prefetch, item);
  } else if (item->state == DECODING) {
    hurry(prefetch, true);
    while (item->state != READY) pthread_cond_wait(&prefetch->changed, &prefetch->lock);
    hurry(prefetch, false);
  }
  prefetch->ready--;
  detach(prefetch, item);
  pthread_cond_broadcast(&prefetch->changed);
  pthread_mutex_unlock(&prefetch->lock);
  motet_status status = item->status;
  if (status == MOTET_OK) {
    *pixels = item->pixels;
    item->pixels = NULL;
  } else if (error != NULL) {
    *error = item->error;
  }
  request_free(item);
  return status;
}
