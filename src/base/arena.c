#include "base/arena.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64, FIRST_BLOCK_BYTES = 16 << 10 };

typedef struct block {
  struct block *next; /* older block */
  size_t capacity;    /* payload bytes */
  size_t used;
} block;

enum { HEADER_BYTES = (sizeof(block) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT };

/* Memory of malloc() that the arena has taken over; lies in the arena itself. */
typedef struct adopted {
  struct adopted *next;
  void *memory;
} adopted;

struct mt_arena {
  block *newest;
  adopted *adopted;
  size_t held; /* payload bytes over all blocks */
};

static unsigned char *payload(block *chunk) { return (unsigned char *)chunk + HEADER_BYTES; }

mt_arena *mt_arena_create(void) { return calloc(1, sizeof(mt_arena)); }

static void free_from(block *chunk) {
  while (chunk != NULL) {
    block *next = chunk->next;
    free(chunk);
    chunk = next;
  }
}

static void free_adopted(mt_arena *arena) {
  for (const adopted *item = arena->adopted; item != NULL; item = item->next) free(item->memory);
  arena->adopted = NULL;
}

void mt_arena_destroy(mt_arena *arena) {
  if (arena == NULL) return;
  free_adopted(arena);
  free_from(arena->newest);
  free(arena);
}

void mt_arena_reset(mt_arena *arena) {
  free_adopted(arena);
  if (arena->newest == NULL) return;
  /* The newest block is the largest: blocks double. */
  free_from(arena->newest->next);
  arena->newest->next = NULL;
  arena->newest->used = 0;
  arena->held = arena->newest->capacity;
}

static block *grow(mt_arena *arena, size_t bytes) {
  size_t capacity = arena->newest != NULL ? arena->newest->capacity : FIRST_BLOCK_BYTES / 2;
  if (capacity <= SIZE_MAX / 4) capacity *= 2;
  if (capacity < bytes) capacity = bytes;
  if (capacity > SIZE_MAX - HEADER_BYTES - ALIGNMENT) return NULL;
  capacity = (capacity + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  block *chunk = aligned_alloc(ALIGNMENT, HEADER_BYTES + capacity);
  if (chunk == NULL) return NULL;
  *chunk = (block){.next = arena->newest, .capacity = capacity, .used = 0};
  arena->newest = chunk;
  arena->held += capacity;
  return chunk;
}

void *mt_arena_array(mt_arena *arena, size_t count, size_t size) {
  size_t bytes;
  if (__builtin_mul_overflow(count, size, &bytes) || bytes > SIZE_MAX - ALIGNMENT) return NULL;
  size_t rounded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  if (rounded == 0) rounded = ALIGNMENT;
  block *chunk = arena->newest;
  if (chunk == NULL || chunk->capacity - chunk->used < rounded) {
    chunk = grow(arena, rounded);
    if (chunk == NULL) return NULL;
  }
  void *memory = payload(chunk) + chunk->used;
  chunk->used += rounded;
  return memset(memory, 0, rounded);
}

bool mt_arena_adopt(mt_arena *arena, void *memory) {
  adopted *item = MT_ARENA_NEW(arena, adopted, 1);
  if (item == NULL) return false;
  *item = (adopted){.next = arena->adopted, .memory = memory};
  arena->adopted = item;
  return true;
}

char *mt_arena_text(mt_arena *arena, const char *text) {
  size_t length = strlen(text);
  char *copy = mt_arena_array(arena, length + 1, 1);
  if (copy != NULL) memcpy(copy, text, length + 1);
  return copy;
}

char *mt_arena_format(mt_arena *arena, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  va_list again;
  va_copy(again, arguments);
  int length = vsnprintf(NULL, 0, format, arguments);
  va_end(arguments);
  char *text = length < 0 ? NULL : mt_arena_array(arena, (size_t)length + 1, 1);
  if (text != NULL) vsnprintf(text, (size_t)length + 1, format, again);
  va_end(again);
  return text;
}

size_t mt_arena_bytes(const mt_arena *arena) { return arena->held; }

size_t mt_arena_used(const mt_arena *arena) {
  size_t used = 0;
  for (const block *chunk = arena->newest; chunk != NULL; chunk = chunk->next) used += chunk->used;
  return used;
}
