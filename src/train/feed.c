#include "train/feed.h"

#include <stdlib.h>
#include <string.h>

enum { PREFETCH_ROWS = 4 };

struct mt_feed {
  const mt_dataset *dataset;
  mt_prefetch *prefetch;
  int64_t key;
  const mt_row *rows[2];   /* this step's and the next one's */
  mt_feature_cache *cache; /* or NULL */
  mt_batch_source source;
};

int32_t mt_feed_capacity(int32_t threads) { return PREFETCH_ROWS + threads; }

/** Pictures of program microbatch @p microbatch in the step that @p key names. */
static int64_t picture_key(int64_t key, int32_t microbatch) { return key * INT32_MAX + microbatch; }

static motet_status find_row(const mt_feed *feed, bool next, int32_t microbatch, motet_error *error,
                             const mt_row **row) {
  if (feed->rows[next] == NULL)
    return mt_error_set(error, MOTET_ERROR_FAILED, "there is no next step to take microbatch %d from",
                        (int)microbatch);
  *row = &feed->rows[next][microbatch];
  return MOTET_OK;
}

static motet_status shape(void *context, bool next, int32_t microbatch, motet_error *error, mt_batch *batch) {
  const mt_row *row = NULL;
  motet_status status = find_row(context, next, microbatch, error, &row);
  if (status != MOTET_OK) return status;
  *batch = (mt_batch){.tokens = row->tokens,
                      .segments = row->samples,
                      .segment_begin = row->segment_begin,
                      .tiles = row->tiles,
                      .feature_rows = row->feature_rows,
                      .loss_weight = row->loss_weight};
  return MOTET_OK;
}

static motet_status load_pixels(mt_feed *feed, int64_t key, int32_t microbatch, mt_arena *arena, motet_error *error,
                                mt_batch *batch) {
  float *pixels;
  motet_status status = mt_prefetch_take(feed->prefetch, picture_key(key, microbatch), error, &pixels);
  if (status != MOTET_OK) return status;
  if (!mt_arena_adopt(arena, pixels)) {
    free(pixels);
    return mt_error_memory(error, 0, "pixels");
  }
  batch->pixels = pixels;
  return MOTET_OK;
}

static motet_status load(void *context, bool next, int32_t microbatch, uint32_t inputs, mt_arena *arena,
                         motet_error *error, mt_batch *batch) {
  mt_feed *feed = context;
  const mt_row *row = NULL;
  motet_status status = find_row(feed, next, microbatch, error, &row);
  if (status == MOTET_OK && (inputs & (MOTET_INPUT_TOKENS | MOTET_INPUT_LABELS)) != 0 && batch->token_ids == NULL) {
    const float *pixels = batch->pixels;
    status = mt_dataset_load(feed->dataset, row, true, false, arena, error, batch);
    batch->pixels = pixels;
  }
  if (status == MOTET_OK && (inputs & MOTET_INPUT_PIXELS) != 0 && row->tiles > 0)
    status = load_pixels(feed, feed->key + next, microbatch, arena, error, batch);
  return status;
}

static void origin(void *context, int32_t microbatch, char *text, size_t size) {
  const mt_feed *feed = context;
  mt_dataset_origin(feed->dataset, &feed->rows[0][microbatch], text, size);
}

motet_status mt_feed_create(const mt_dataset *dataset, int32_t threads, bool beside, motet_error *error,
                            mt_feed **out) {
  mt_feed *feed = calloc(1, sizeof *feed);
  if (feed == NULL) return mt_error_memory(error, sizeof *feed, "the feed");
  feed->dataset = dataset;
  feed->source = (mt_batch_source){.context = feed, .shape = shape, .load = load, .origin = origin};
  motet_status status =
      mt_prefetch_create(dataset, mt_feed_capacity(threads), threads, beside, error, &feed->prefetch);
  if (status != MOTET_OK) {
    free(feed);
    return status;
  }
  *out = feed;
  return MOTET_OK;
}

void mt_feed_destroy(mt_feed *feed) {
  if (feed == NULL) return;
  mt_prefetch_destroy(feed->prefetch);
  free(feed);
}

static motet_status list_pictures(void *context, int32_t microbatch, mt_arena *arena, motet_error *error,
                                  const int32_t **tiles, int32_t *count) {
  mt_feed *feed = context;
  const mt_row *row = NULL;
  motet_status status = find_row(feed, false, microbatch, error, &row);
  if (status != MOTET_OK) return status;
  int32_t *list = MT_ARENA_NEW(arena, int32_t, row->tiles), listed = 0; /* each has a tile at least */
  if (list == NULL) return mt_error_memory(error, (unsigned)row->tiles, "a row's pictures");
  for (int32_t s = 0; s < row->samples; s++) {
    const mt_sample *sample = mt_dataset_sample(feed->dataset, row->sample[s]);
    for (int32_t i = 0; i < sample->images + sample->videos; i++)
      list[listed++] = mt_dataset_medium_at(feed->dataset, row->sample[s], i).form->tiling.tiles;
  }
  *tiles = list;
  *count = listed;
  return MOTET_OK;
}

static motet_status read_features(void *context, int32_t microbatch, motet_error *error, void *features) {
  mt_feed *feed = context;
  const mt_row *row = NULL;
  motet_status status = find_row(feed, false, microbatch, error, &row);
  return status == MOTET_OK ? mt_feature_cache_read(feed->cache, row, error, features) : status;
}

static motet_status keep_features(void *context, int32_t microbatch, motet_error *error, const void *features) {
  mt_feed *feed = context;
  const mt_row *row = NULL;
  motet_status status = find_row(feed, false, microbatch, error, &row);
  return status == MOTET_OK ? mt_feature_cache_write(feed->cache, row, features, error) : status;
}

void mt_feed_cache(mt_feed *feed, mt_feature_cache *cache) {
  feed->cache = cache;
  feed->source.pictures = list_pictures;
  feed->source.read_features = read_features;
  feed->source.keep_features = keep_features;
}

void mt_feed_set(mt_feed *feed, int64_t key, const mt_row *rows, const mt_row *next_rows) {
  feed->key = key;
  feed->rows[0] = rows;
  feed->rows[1] = next_rows;
}

motet_status mt_feed_prefetch(mt_feed *feed, const motet_program *program, int32_t rank, int64_t key,
                              const mt_row *rows, const mt_row *next_rows, motet_error *error) {
  motet_status status = MOTET_OK;
  for (int64_t i = program->rank_begin[rank]; i < program->rank_begin[rank + 1] && status == MOTET_OK; i++) {
    const motet_instruction *instruction = &program->instructions[i];
    if (instruction->kind != MOTET_LOAD) continue;
    if ((program->stages[instruction->stage].inputs & MOTET_INPUT_PIXELS) == 0) continue;
    bool next = (instruction->flags & MOTET_FLAG_NEXT) != 0;
    const mt_row *source = next ? next_rows : rows;
    if (source == NULL || source[instruction->microbatch].tiles == 0) continue;
    if (feed->cache != NULL && program->microbatches[instruction->microbatch].cached != 0) continue;
    status = mt_prefetch_post(feed->prefetch, picture_key(key + next, instruction->microbatch),
                              &source[instruction->microbatch], error);
  }
  return status;
}

mt_prefetch_work mt_feed_decoded(const mt_feed *feed) { return mt_prefetch_decoded(feed->prefetch); }

const mt_batch_source *mt_feed_source(mt_feed *feed) { return &feed->source; }
