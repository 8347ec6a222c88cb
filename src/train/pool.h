/** @file
 * Memory that a step takes and gives back many times: activation and gradient buffers, and the arenas of saved
 * activations. Freed pieces are kept, so that after the first step nothing is asked from the system, whose first
 * touch of a page costs more than the arithmetic on it.
 */
#ifndef MT_TRAIN_POOL_H
#define MT_TRAIN_POOL_H

#include "base/arena.h"
#include "base/error.h"

#include <stdint.h>

typedef struct mt_pool mt_pool;

mt_pool *mt_pool_create(void);
void mt_pool_destroy(mt_pool *pool);

/** A buffer of @p bytes, aligned to 64, not cleared; NULL when memory is out. */
float *mt_pool_take(mt_pool *pool, int64_t bytes);
/** The same for what lives within one computation: workspace, which does not count as in use. */
float *mt_pool_take_workspace(mt_pool *pool, int64_t bytes);
/** Gives back what these gave; NULL is allowed. */
void mt_pool_give(mt_pool *pool, float *buffer);

/** An empty arena that holds @p bytes in one block; NULL when memory is out. */
mt_arena *mt_pool_arena_take(mt_pool *pool, int64_t bytes);
/** Counts what has been taken from the arena since mt_pool_arena_take() as in use. */
void mt_pool_arena_count(mt_pool *pool, const mt_arena *arena);
void mt_pool_arena_give(mt_pool *pool, mt_arena *arena);

/** Bytes in use now, and the most there were since the last mt_pool_peak_reset(). */
int64_t mt_pool_bytes(const mt_pool *pool);
int64_t mt_pool_peak(const mt_pool *pool);
void mt_pool_peak_reset(mt_pool *pool);

#endif
