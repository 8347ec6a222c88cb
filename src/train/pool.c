#include "train/pool.h"

#include "base/array.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64 };

/** In front of every buffer; 64 bytes, so that what follows stays aligned. */
typedef struct header {
  int64_t capacity; /* bytes behind the header */
  int64_t bytes;    /* in use */
  char padding[ALIGNMENT - 16];
} header;

typedef struct counted_arena {
  mt_arena *arena;
  int64_t counted; /* bytes that are in `used` for it */
} counted_arena;

struct mt_pool {
  MT_ARRAY(header *) buffers; /* all there are */
  MT_ARRAY(header *) free_buffers;
  MT_ARRAY(mt_arena *) free_arenas;
  MT_ARRAY(counted_arena) taken_arenas;
  int64_t used, peak;
};

mt_pool *mt_pool_create(void) { return calloc(1, sizeof(mt_pool)); }

void mt_pool_destroy(mt_pool *pool) {
  if (pool == NULL) return;
  for (size_t i = 0; i < pool->buffers.count; i++) free(pool->buffers.data[i]);
  for (size_t i = 0; i < pool->free_arenas.count; i++) mt_arena_destroy(pool->free_arenas.data[i]);
  for (size_t i = 0; i < pool->taken_arenas.count; i++) mt_arena_destroy(pool->taken_arenas.data[i].arena);
  free(pool->buffers.data);
  free(pool->free_buffers.data);
  free(pool->free_arenas.data);
  free(pool->taken_arenas.data);
  free(pool);
}

static void use(mt_pool *pool, int64_t bytes) {
  pool->used += bytes;
  if (pool->used > pool->peak) pool->peak = pool->used;
}

float *mt_pool_take_workspace(mt_pool *pool, int64_t bytes) {
  /* The smallest that fits; the first of equals. */
  size_t best = pool->free_buffers.count;
  for (size_t i = 0; i < pool->free_buffers.count; i++) {
    int64_t capacity = pool->free_buffers.data[i]->capacity;
    if (capacity >= bytes &&
        (best == pool->free_buffers.count || capacity < pool->free_buffers.data[best]->capacity))
      best = i;
  }
  header *buffer;
  if (best < pool->free_buffers.count) {
    buffer = pool->free_buffers.data[best];
    pool->free_buffers.data[best] = pool->free_buffers.data[--pool->free_buffers.count];
  } else {
    int64_t capacity = (bytes / ALIGNMENT + 1) * ALIGNMENT;
    buffer = aligned_alloc(ALIGNMENT, sizeof(header) + (size_t)capacity);
    if (buffer == NULL) return NULL;
    /* Room for it on the free list too, so that giving it back cannot fail. */
    if (!MT_ARRAY_PUSH(&pool->buffers, buffer) ||
        !mt_array_reserve((void **)&pool->free_buffers.data, &pool->free_buffers.capacity, pool->buffers.count,
                          sizeof(header *))) {
      if (pool->buffers.count > 0 && pool->buffers.data[pool->buffers.count - 1] == buffer) pool->buffers.count--;
      free(buffer);
      return NULL;
    }
    memset(buffer, 0, sizeof(header) + (size_t)capacity);
    buffer->capacity = capacity;
  }
  buffer->bytes = 0;
  return (float *)(void *)(buffer + 1);
}

float *mt_pool_take(mt_pool *pool, int64_t bytes) {
  float *memory = mt_pool_take_workspace(pool, bytes);
  if (memory == NULL) return NULL;
  ((header *)(void *)memory - 1)->bytes = bytes;
  use(pool, bytes);
  return memory;
}

void mt_pool_give(mt_pool *pool, float *memory) {
  if (memory == NULL) return;
  header *buffer = (header *)(void *)memory - 1;
  pool->used -= buffer->bytes;
  pool->free_buffers.data[pool->free_buffers.count++] = buffer;
}

mt_arena *mt_pool_arena_take(mt_pool *pool, int64_t bytes) {
  size_t wanted = (size_t)bytes, best = pool->free_arenas.count;
  for (size_t i = 0; i < pool->free_arenas.count; i++) {
    size_t capacity = mt_arena_bytes(pool->free_arenas.data[i]);
    if (capacity >= wanted &&
        (best == pool->free_arenas.count || capacity < mt_arena_bytes(pool->free_arenas.data[best])))
      best = i;
  }
  mt_arena *arena;
  if (best < pool->free_arenas.count) {
    arena = pool->free_arenas.data[best];
    pool->free_arenas.data[best] = pool->free_arenas.data[--pool->free_arenas.count];
  } else {
    arena = mt_arena_create();
    if (arena == NULL || mt_arena_array(arena, 1, wanted) == NULL) {
      mt_arena_destroy(arena);
      return NULL;
    }
    mt_arena_reset(arena); /* keeps the block */
  }
  if (!MT_ARRAY_PUSH(&pool->taken_arenas, (counted_arena){.arena = arena})) {
    mt_arena_destroy(arena);
    return NULL;
  }
  return arena;
}

static size_t find_taken(const mt_pool *pool, const mt_arena *arena) {
  size_t i = 0;
  while (i < pool->taken_arenas.count && pool->taken_arenas.data[i].arena != arena) i++;
  return i;
}

void mt_pool_arena_count(mt_pool *pool, const mt_arena *arena) {
  size_t i = find_taken(pool, arena);
  if (i == pool->taken_arenas.count) return;
  counted_arena *taken = &pool->taken_arenas.data[i];
  int64_t bytes = (int64_t)mt_arena_used(arena);
  use(pool, bytes - taken->counted);
  taken->counted = bytes;
}

void mt_pool_arena_give(mt_pool *pool, mt_arena *arena) {
  size_t i = find_taken(pool, arena);
  if (arena == NULL || i == pool->taken_arenas.count) return;
  pool->used -= pool->taken_arenas.data[i].counted;
  pool->taken_arenas.data[i] = pool->taken_arenas.data[--pool->taken_arenas.count];
  mt_arena_reset(arena);
  if (!MT_ARRAY_PUSH(&pool->free_arenas, arena)) mt_arena_destroy(arena);
}

int64_t mt_pool_bytes(const mt_pool *pool) { return pool->used; }
int64_t mt_pool_peak(const mt_pool *pool) { return pool->peak; }
void mt_pool_peak_reset(mt_pool *pool) { pool->peak = pool->used; }
