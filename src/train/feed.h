/** @file
 * The feed: hands the interpreter the microbatches of one step and of the next, and has a thread decode the
 * pictures that this rank will ask for.
 */
#ifndef MT_TRAIN_FEED_H
#define MT_TRAIN_FEED_H

#include "data/dataset.h"
#include "data/prefetch.h"
#include "motet/program.h"
#include "train/feature_cache.h"
#include "train/interpreter.h"

typedef struct mt_feed mt_feed;

/** Rows that @p threads decode ahead. */
int32_t mt_feed_capacity(int32_t threads);

/** @p threads decode pictures; @p beside: in time that nothing else wants, where the rank has its processors for
 * itself. */
motet_status mt_feed_create(const mt_dataset *dataset, int32_t threads, bool beside, motet_error *error,
                            mt_feed **feed);
void mt_feed_destroy(mt_feed *feed);

/** Takes features that a program says are cached from @p cache, and keeps others there. It stays the caller's. */
void mt_feed_cache(mt_feed *feed, mt_feature_cache *cache);

/**
 * Sets the step that runs. @p key names it among all that are ever set (pictures are decoded under it), @p rows and
 * @p next_rows are its and the next step's rows and stay the caller's; @p next_rows may be NULL.
 */
void mt_feed_set(mt_feed *feed, int64_t key, const mt_row *rows, const mt_row *next_rows);

/** Has the pictures decoded that @p rank's list of @p program loads, in its order. May run ahead of mt_feed_set().
 */
motet_status mt_feed_prefetch(mt_feed *feed, const motet_program *program, int32_t rank, int64_t key,
                              const mt_row *rows, const mt_row *next_rows, motet_error *error);

/** What this rank has decoded so far. */
mt_prefetch_work mt_feed_decoded(const mt_feed *feed);

/** The feed as the interpreter takes it; lives as long as the feed. */
const mt_batch_source *mt_feed_source(mt_feed *feed);

#endif
