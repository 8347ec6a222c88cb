/** @file
 * Prefetch: threads that decode the pictures of rows before they are needed, each a row at a time. Optional:
 * mt_dataset_load() with pixels does the same on the caller's thread.
 */
#ifndef MT_DATA_PREFETCH_H
#define MT_DATA_PREFETCH_H

#include "data/dataset.h"

typedef struct mt_prefetch mt_prefetch;

/** @p capacity: rows that may lie decoded and not yet taken, or be in the making, by @p threads threads, which run
 * in time that nothing else wants (@p beside) or like other threads. The data set must outlive the prefetch. */
motet_status mt_prefetch_create(const mt_dataset *dataset, int32_t capacity, int32_t threads, bool beside,
                                motet_error *error, mt_prefetch **prefetch);

/** Stops the threads after the rows they are at, and frees what was not taken. NULL is allowed. */
void mt_prefetch_destroy(mt_prefetch *prefetch);

/** What has been decoded so far; seconds of all threads. */
typedef struct mt_prefetch_work {
  int64_t tiles;
  double seconds;
} mt_prefetch_work;

mt_prefetch_work mt_prefetch_decoded(mt_prefetch *prefetch);

/** Asks for the pixels of @p row (copied), named by @p key, which must not be waiting already. Never blocks. */
motet_status mt_prefetch_post(mt_prefetch *prefetch, int64_t key, const mt_row *row, motet_error *error);

/** Hands over the pixels of @p key: (tiles, 3, image_size, image_size), freed by the caller with free(). What no
 * thread has begun the caller decodes itself; what one is at is waited for. An error met while decoding is returned
 * here. Rows may be taken in any order: capacity bounds what lies ready, never what is taken. */
motet_status mt_prefetch_take(mt_prefetch *prefetch, int64_t key, motet_error *error, float **pixels);

#endif
