/** @file
 * Features of frozen encoders on disk: one file a picture or video and encoder. What a file holds follows from its
 * key alone: the bytes of the picture, how it is cut into tiles, and the encoder with its weights; whatever of that
 * changes leads to another file. Files carry a digest of their content, so that a damaged one counts as missing.
 * Ranks and runs may share a directory: files are written beside and renamed.
 */
#ifndef MT_TRAIN_FEATURE_CACHE_H
#define MT_TRAIN_FEATURE_CACHE_H

#include "data/dataset.h"

typedef struct mt_feature_cache mt_feature_cache;

typedef struct mt_feature_cache_options {
  const char *directory; /* made if it is missing */
  const mt_dataset *dataset;
  uint64_t encoder;   /* digest of all that the features depend on beside the picture */
  int64_t tile_bytes; /* of one tile's features */
} mt_feature_cache_options;

motet_status mt_feature_cache_create(const mt_feature_cache_options *options, motet_error *error,
                                     mt_feature_cache **cache);
void mt_feature_cache_destroy(mt_feature_cache *cache);

/** Whether whole features of everything in @p row are there. Reads and checks them. */
motet_status mt_feature_cache_has(mt_feature_cache *cache, const mt_row *row, motet_error *error, bool *has);

/** The features of @p row, tile by tile: row->tiles * tile_bytes. One that is missing or damaged is an error. */
motet_status mt_feature_cache_read(mt_feature_cache *cache, const mt_row *row, motet_error *error, void *features);

/** Keeps the features of @p row, laid out so; what is there already is left. */
motet_status mt_feature_cache_write(mt_feature_cache *cache, const mt_row *row, const void *features,
                                    motet_error *error);

#endif
