#include "base/random.h"
#include "data/dataset.h"
#include "data/dataset_form.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NO_TARGET = -100 };

/* ---- planning ---- */

/* The order of one pass over the samples (Fisher and Yates, from a stream of its own). */
static void shuffle(uint64_t seed, int64_t epoch, int32_t *order, int32_t count) {
  char name[48];
  snprintf(name, sizeof name, "data.order.%" PRId64, epoch);
  mt_random random = mt_random_stream(seed, name);
  for (int32_t i = 0; i < count; i++) order[i] = i;
  for (int32_t i = count - 1; i > 0; i--) {
    int32_t other = (int32_t)mt_random_below(&random, (uint64_t)i + 1), kept = order[i];
    order[i] = order[other];
    order[other] = kept;
  }
}

/* Cuts `chosen` [count] by count into rows and sums up their metadata. */
static motet_status cut_rows(const mt_dataset *dataset, const int32_t *chosen, int32_t count, int32_t rows,
                             mt_arena *arena, motet_error *error, const mt_row **plan) {
  mt_row *made = MT_ARENA_NEW(arena, mt_row, rows);
  if (made == NULL) return mt_error_memory(error, (size_t)rows * sizeof *made, "rows");
  int64_t all_targets = 0;
  for (int32_t r = 0; r < rows; r++) {
    int32_t begin = (int32_t)((int64_t)count * r / rows), end = (int32_t)((int64_t)count * (r + 1) / rows);
    int32_t *segments = MT_ARENA_NEW(arena, int32_t, end - begin + 1);
    if (segments == NULL) return mt_error_memory(error, 0, "rows");
    int64_t tokens = 0, tiles = 0, targets = 0;
    for (int32_t i = begin; i < end; i++) {
      const mt_sample *sample = mt_dataset_sample(dataset, chosen[i]);
      tokens += sample->tokens;
      tiles += sample->tiles;
      targets += sample->targets;
      if (tokens > INT32_MAX || tiles > INT32_MAX)
        return mt_error_set(error, MOTET_ERROR_LIMIT, "a packed row of more than %d tokens: use more microbatches",
                            INT32_MAX);
      segments[i - begin + 1] = (int32_t)tokens;
    }
    made[r] = (mt_row){.samples = end - begin,
                       .sample = chosen + begin,
                       .tokens = (int32_t)tokens,
                       .tiles = (int32_t)tiles,
                       .targets = (int32_t)targets,
                       .segment_begin = segments};
    all_targets += targets;
  }
  for (int32_t r = 0; r < rows; r++) made[r].loss_weight = 1.0 / (double)all_targets;
  *plan = made;
  return MOTET_OK;
}

motet_status mt_dataset_plan(const mt_dataset *dataset, uint64_t seed, int64_t step, int32_t global_batch,
                             int32_t rows, mt_arena *arena, motet_error *error, const mt_row **plan) {
  int64_t position;
  if (rows < 1 || global_batch < rows || step < 0 ||
      __builtin_mul_overflow(step, (int64_t)global_batch, &position) || position > INT64_MAX - global_batch)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT,
                        "a global batch of %" PRId32 " samples cannot fill %" PRId32
                        " microbatches at step %" PRId64 ": each needs one",
                        global_batch, rows, step);
  int32_t count = mt_dataset_count(dataset);
  int32_t *chosen = MT_ARENA_NEW(arena, int32_t, global_batch), *order = malloc((size_t)count * sizeof *order);
  if (chosen == NULL || order == NULL) {
    free(order);
    return mt_error_memory(error, (size_t)count * sizeof *order, "the order of samples");
  }
  int64_t epoch = -1;
  for (int32_t i = 0; i < global_batch; i++, position++) {
    if (position / count != epoch) {
      epoch = position / count;
      shuffle(seed, epoch, order, count);
    }
    chosen[i] = order[position % count];
  }
  free(order);
  return cut_rows(dataset, chosen, global_batch, rows, arena, error, plan);
}

motet_status mt_dataset_plan_range(const mt_dataset *dataset, int32_t first, int32_t count, int32_t rows,
                                   mt_arena *arena, motet_error *error, const mt_row **plan) {
  if (first < 0 || rows < 1 || count < rows || first > mt_dataset_count(dataset) ||
      count > mt_dataset_count(dataset) - first)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT,
                        "samples %" PRId32 " to %" PRId32 " of %" PRId32 " in %" PRId32 " rows", first,
                        first + count, mt_dataset_count(dataset), rows);
  int32_t *chosen = MT_ARENA_NEW(arena, int32_t, count);
  if (chosen == NULL) return mt_error_memory(error, (size_t)count * sizeof *chosen, "rows");
  for (int32_t i = 0; i < count; i++) chosen[i] = first + i;
  return cut_rows(dataset, chosen, count, rows, arena, error, plan);
}

/* ---- loading ---- */

/* What tokens and marks of a row become in the batch. */
typedef struct row_arrays {
  int32_t *ids, *labels, *feature_rows;
} row_arrays;

static motet_status fill_row(const mt_dataset *dataset, const mt_row *row, const mt_tokens *tokens,
                             const mt_marks *targets, const row_arrays *arrays, motet_error *error) {
  int64_t features = 0, wanted = (int64_t)row->tiles * dataset->chat.tokens_per_tile;
  int32_t image = dataset->chat.image_context;
  for (int32_t s = 0; s < row->samples; s++)
    for (int32_t t = row->segment_begin[s]; t < row->segment_begin[s + 1]; t++) {
      bool last = t + 1 == row->segment_begin[s + 1];
      arrays->ids[t] = tokens->data[t];
      arrays->labels[t] = !last && targets->data[t + 1] ? tokens->data[t + 1] : NO_TARGET;
      if (tokens->data[t] != image || image < 0) continue;
      if (features < wanted) arrays->feature_rows[features] = t;
      features++;
    }
  /* The chat template has checked every sample. */
  return features == wanted
             ? MOTET_OK
             : mt_error_set(error, MOTET_ERROR_FAILED, "%" PRId64 " image tokens in a row of %" PRId64 " features",
                            features, wanted);
}

static motet_status load_tokens(const mt_dataset *dataset, const mt_row *row, mt_arena *arena, motet_error *error,
                                mt_batch *batch) {
  size_t features = (size_t)row->tiles * (size_t)dataset->chat.tokens_per_tile;
  row_arrays arrays = {.ids = MT_ARENA_NEW(arena, int32_t, row->tokens),
                       .labels = MT_ARENA_NEW(arena, int32_t, row->tokens),
                       .feature_rows = MT_ARENA_NEW(arena, int32_t, features)};
  if (arrays.ids == NULL || arrays.labels == NULL || arrays.feature_rows == NULL)
    return mt_error_memory(error, (size_t)row->tokens * sizeof(int32_t), "a row's tokens");
  mt_tokens tokens = {0};
  mt_marks targets = {0};
  motet_status status = MOTET_OK;
  for (int32_t i = 0; i < row->samples && status == MOTET_OK; i++)
    status = mt_dataset_encode(dataset, row->sample[i], error, &tokens, &targets);
  if (status == MOTET_OK) status = fill_row(dataset, row, &tokens, &targets, &arrays, error);
  free(tokens.data);
  free(targets.data);
  if (status != MOTET_OK) return status;
  batch->token_ids = arrays.ids;
  batch->labels = arrays.labels;
  batch->feature_rows = arrays.feature_rows;
  return MOTET_OK;
}

int64_t mt_dataset_medium_count(const mt_dataset *dataset) { return (int64_t)dataset->media.count; }

mt_dataset_medium_view mt_dataset_medium_at(const mt_dataset *dataset, int32_t sample, int32_t index) {
  int64_t number = dataset->lines.data[sample].first_medium + index;
  const mt_dataset_medium *medium = &dataset->media.data[number];
  return (mt_dataset_medium_view){.number = number, .path = medium->path, .form = &medium->form};
}

int64_t mt_dataset_tile_floats(const mt_dataset *dataset) {
  int64_t side = dataset->config->vision.image_size;
  return 3 * side * side;
}

motet_status mt_dataset_pixels(const mt_dataset *dataset, const mt_row *row, motet_error *error, float *pixels) {
  for (int32_t s = 0; s < row->samples; s++) {
    const mt_sample *sample = mt_dataset_sample(dataset, row->sample[s]);
    const mt_dataset_medium *media = dataset->media.data + dataset->lines.data[row->sample[s]].first_medium;
    for (int32_t i = 0; i < sample->images + sample->videos; i++) {
      motet_status status = mt_medium_load(dataset->config, media[i].path, &media[i].form, error, pixels);
      if (status != MOTET_OK)
        return mt_error_context(error, status, "%s, line %" PRId32, dataset->path, sample->line);
      pixels += media[i].form.tiling.tiles * mt_dataset_tile_floats(dataset);
    }
  }
  return MOTET_OK;
}

motet_status mt_dataset_load(const mt_dataset *dataset, const mt_row *row, bool tokens, bool pixels,
                             mt_arena *arena, motet_error *error, mt_batch *batch) {
  *batch = (mt_batch){.tokens = row->tokens,
                      .segments = row->samples,
                      .segment_begin = row->segment_begin,
                      .tiles = row->tiles,
                      .loss_weight = row->loss_weight};
  if (tokens) {
    motet_status status = load_tokens(dataset, row, arena, error, batch);
    if (status != MOTET_OK) return status;
  }
  if (!pixels || row->tiles == 0) return MOTET_OK;
  size_t bytes;
  if (__builtin_mul_overflow((size_t)mt_dataset_tile_floats(dataset) * sizeof(float), (size_t)row->tiles, &bytes))
    return mt_error_set(error, MOTET_ERROR_LIMIT, "%" PRId32 " tiles in one row", row->tiles);
  float *values = mt_arena_array(arena, bytes, 1);
  if (values == NULL) return mt_error_memory(error, bytes, "a row's pixels");
  batch->pixels = values;
  return mt_dataset_pixels(dataset, row, error, values);
}

void mt_dataset_origin(const mt_dataset *dataset, const mt_row *row, char *text, size_t size) {
  enum { NAMED_MOST = 16 };
  mt_text lines = {0};
  for (int32_t s = 0; s < row->samples && s < NAMED_MOST; s++)
    mt_text_append(&lines, s == 0 ? "%" PRId32 : ", %" PRId32, dataset->samples.data[row->sample[s]].line);
  if (row->samples > NAMED_MOST) mt_text_append(&lines, " and %" PRId32 " more", row->samples - NAMED_MOST);
  snprintf(text, size, "%s %s of %s", row->samples == 1 ? "line" : "lines", lines.failed ? "?" : lines.data,
           dataset->path);
  mt_text_free(&lines);
}
