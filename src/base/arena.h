/** @file
 * Arenas: many allocations, one release. A plan, a simulation and a
 * microbatch each own one; nothing taken from an arena is freed singly.
 */
#ifndef MT_BASE_ARENA_H
#define MT_BASE_ARENA_H

#include <stdbool.h>
#include <stddef.h>

typedef struct mt_arena mt_arena;

/** Creates an empty arena; NULL when memory is out. */
mt_arena *mt_arena_create(void);

/** Releases the arena and all that was taken from it; NULL is allowed. */
void mt_arena_destroy(mt_arena *arena);

/** Forgets everything taken from the arena but keeps its memory for the next use. */
void mt_arena_reset(mt_arena *arena);

/** Zeroed memory, aligned to 64 bytes, for @p count elements of @p size bytes; NULL when out of memory or
 * when the product overflows. A count of zero gives a valid pointer to nothing. */
void *mt_arena_array(mt_arena *arena, size_t count, size_t size);

/** Has the arena free @p memory, which came from malloc(), with all else; false when memory is out, and it stays
 * the caller's. */
bool mt_arena_adopt(mt_arena *arena, void *memory);

/** A copy of @p text in the arena; NULL when out of memory. */
char *mt_arena_text(mt_arena *arena, const char *text);

/** A formatted text in the arena; NULL when out of memory. */
char *mt_arena_format(mt_arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));

/** Bytes that the arena holds from the system. */
size_t mt_arena_bytes(const mt_arena *arena);

/** Bytes taken from the arena since it was created or reset. */
size_t mt_arena_used(const mt_arena *arena);

#define MT_ARENA_NEW(arena, type, count) ((type *)mt_arena_array((arena), (size_t)(count), sizeof(type)))

#endif
