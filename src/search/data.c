/* Samples of a step: from a trace, a distribution, or all alike. */
#include "base/array.h"
#include "base/random.h"
#include "base/text.h"
#include "motet/program.h"
#include "search/problem.h"
#include "workload/trace.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS_MAX = 1 << 26, SIDE_MAX = 65536, FRAMES_MAX = 65536, PICTURES_MAX = 4096 };

typedef struct lines {
  const char *file;
  int line;
  motet_error *error;
  MT_ARRAY(mt_search_sample) samples;
  MT_ARRAY(mt_picture) pictures;
} lines;

static motet_status fail(lines *l, const char *key, motet_status status) {
  mt_error_place(l->error, l->file, l->line);
  mt_error_key(l->error, key);
  return status;
}

static bool whole(const json_t *value, int64_t least, int64_t most) {
  return json_is_integer(value) && json_integer_value(value) >= least && json_integer_value(value) <= most;
}

static motet_status push_picture(lines *l, mt_picture picture) {
  if (MT_ARRAY_PUSH(&l->pictures, picture)) return MOTET_OK;
  return mt_error_memory(l->error, sizeof picture, "pictures");
}

static motet_status read_images(lines *l, const json_t *images, mt_search_sample *sample) {
  size_t count = json_array_size(images);
  if (!json_is_array(images) || count > PICTURES_MAX)
    return fail(
        l, "images",
        mt_error_set(l->error, MOTET_ERROR_PARSE, "images is a list of [height, width], at most %d", PICTURES_MAX));
  for (size_t i = 0; i < count; i++) {
    const json_t *image = json_array_get(images, i);
    if (json_array_size(image) != 2 || !whole(json_array_get(image, 0), 1, SIDE_MAX) ||
        !whole(json_array_get(image, 1), 1, SIDE_MAX))
      return fail(l, "images",
                  mt_error_set(l->error, MOTET_ERROR_PARSE, "image %zu is not [height, width] in pixels up to %d",
                               i + 1, SIDE_MAX));
    mt_picture picture = {1, (int32_t)json_integer_value(json_array_get(image, 0)),
                          (int32_t)json_integer_value(json_array_get(image, 1))};
    motet_status status = push_picture(l, picture);
    if (status != MOTET_OK) return status;
    sample->picture_count++;
  }
  return MOTET_OK;
}

static motet_status read_video(lines *l, const json_t *video, mt_search_sample *sample) {
  if (json_array_size(video) != 3 || !whole(json_array_get(video, 0), 1, FRAMES_MAX) ||
      !whole(json_array_get(video, 1), 1, SIDE_MAX) || !whole(json_array_get(video, 2), 1, SIDE_MAX))
    return fail(l, "video", mt_error_set(l->error, MOTET_ERROR_PARSE, "video is [frames, height, width]"));
  mt_picture picture = {(int32_t)json_integer_value(json_array_get(video, 0)),
                        (int32_t)json_integer_value(json_array_get(video, 1)),
                        (int32_t)json_integer_value(json_array_get(video, 2))};
  sample->picture_count++;
  return push_picture(l, picture);
}

static motet_status read_line(lines *l, const char *text, size_t bytes) {
  json_error_t problem;
  json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &problem);
  mt_search_sample sample = {.picture_begin = (int32_t)l->pictures.count};
  motet_status status = MOTET_OK;
  const json_t *tokens = json_object_get(root, "tokens"), *images = json_object_get(root, "images");
  const json_t *video = json_object_get(root, "video");
  if (!json_is_object(root))
    status = fail(l, NULL,
                  mt_error_set(l->error, MOTET_ERROR_PARSE, "no JSON object: %s",
                               root == NULL ? problem.text : "another value"));
  else if (!whole(tokens, 1, TOKENS_MAX))
    status =
        fail(l, "tokens",
             mt_error_set(l->error, MOTET_ERROR_PARSE, "tokens must be a whole number from 1 to %d", TOKENS_MAX));
  if (status == MOTET_OK) sample.tokens = json_integer_value(tokens);
  if (status == MOTET_OK && images != NULL) status = read_images(l, images, &sample);
  if (status == MOTET_OK && video != NULL) status = read_video(l, video, &sample);
  if (status == MOTET_OK && !MT_ARRAY_PUSH(&l->samples, sample))
    status = mt_error_memory(l->error, sizeof sample, "samples");
  json_decref(root);
  return status;
}

static motet_status keep(mt_arena *arena, const lines *l, mt_search_data *data) {
  data->count = (int32_t)l->samples.count;
  data->samples = MT_ARENA_NEW(arena, mt_search_sample, l->samples.count);
  data->pictures = MT_ARENA_NEW(arena, mt_picture, l->pictures.count);
  if (data->samples == NULL || data->pictures == NULL)
    return mt_error_memory(l->error, l->samples.count * sizeof(mt_search_sample), "samples");
  if (l->samples.count > 0) memcpy(data->samples, l->samples.data, l->samples.count * sizeof *data->samples);
  if (l->pictures.count > 0) memcpy(data->pictures, l->pictures.data, l->pictures.count * sizeof *data->pictures);
  return MOTET_OK;
}

motet_status mt_search_trace_parse(mt_arena *arena, const char *text, size_t bytes, const char *file,
                                   motet_error *error, mt_search_data *data) {
  lines l = {.file = file, .error = error};
  motet_status status = MOTET_OK;
  for (size_t at = 0; at < bytes && status == MOTET_OK;) {
    const char *end = memchr(text + at, '\n', bytes - at);
    size_t length = end != NULL ? (size_t)(end - text) - at : bytes - at;
    l.line++;
    bool blank = true;
    for (size_t i = 0; i < length; i++)
      blank &= text[at + i] == ' ' || text[at + i] == '\t' || text[at + i] == '\r';
    if (!blank) status = read_line(&l, text + at, length);
    at += length + 1;
  }
  if (status == MOTET_OK && l.samples.count == 0)
    status = mt_error_set(error, MOTET_ERROR_PARSE, "the trace has no sample; a line is {\"tokens\": 1024}");
  if (status != MOTET_OK && l.samples.count == 0) mt_error_place(error, file, 0);
  if (status == MOTET_OK) status = keep(arena, &l, data);
  free(l.samples.data);
  free(l.pictures.data);
  return status;
}

/* ---- a step ---- */

/* Tokens of a sample's row that its pictures become. */
static motet_status picture_tokens(const mt_search_problem *problem, motet_error *error, int64_t *tokens) {
  double extents[MT_EXTENTS] = {0};
  int64_t row = TOKENS_MAX;
  mt_picture pictures[64];
  int32_t count = problem->picture_count < 64 ? problem->picture_count : 64;
  for (int32_t i = 0; i < count; i++) pictures[i] = problem->picture;
  mt_shape shape = {.segments = &row, .segment_count = 1, .pictures = pictures, .picture_count = count};
  *tokens = 0;
  if (count == 0 || !problem->architecture->decodes_text) return MOTET_OK;
  motet_status status = mt_architecture_measure(problem->architecture, &shape, error, extents);
  *tokens = (int64_t)(extents[MT_ROWS_FEATURES] * problem->picture_count / count);
  return status;
}

/* A distribution's lengths are those of text; what pictures add comes on top. */
static motet_status draw_distribution(const mt_search_problem *problem, int64_t seed, motet_error *error,
                                      mt_search_data *data) {
  mt_distribution distribution = {.name = problem->distribution,
                                  .count = problem->global_batch,
                                  .seed = (uint64_t)seed,
                                  .ranks = problem->cluster.devices,
                                  .memory_tokens = TOKENS_MAX / 64};
  mt_trace trace;
  int64_t added = 0;
  motet_status status = picture_tokens(problem, error, &added);
  if (status == MOTET_OK) status = mt_distribution_draw(&distribution, error, &trace);
  if (status != MOTET_OK) return status;
  for (int32_t i = 0; i < data->count; i++) data->samples[i].tokens = trace.items[i % trace.count].tokens + added;
  mt_trace_destroy(&trace);
  return MOTET_OK;
}

motet_status mt_search_data_draw(const mt_search_problem *problem, int64_t seed, mt_arena *arena,
                                 motet_error *error, mt_search_data *data) {
  data->count = problem->global_batch;
  data->samples = MT_ARENA_NEW(arena, mt_search_sample, data->count);
  data->pictures = problem->pool.pictures;
  if (problem->trace == NULL) {
    data->pictures = MT_ARENA_NEW(arena, mt_picture, problem->picture_count);
    for (int32_t i = 0; data->pictures != NULL && i < problem->picture_count; i++)
      data->pictures[i] = problem->picture;
  }
  if (data->samples == NULL || data->pictures == NULL)
    return mt_error_memory(error, (unsigned long long)data->count * sizeof *data->samples, "samples");
  mt_random random = mt_random_stream((uint64_t)seed, "search.data");
  for (int32_t i = 0; i < data->count; i++) {
    uint64_t pool = problem->trace != NULL ? (uint64_t)problem->pool.count : 1;
    /* The file's own seed takes a trace from its beginning. */
    int32_t from = seed == problem->seed ? (int32_t)((uint64_t)i % pool) : (int32_t)mt_random_below(&random, pool);
    data->samples[i] = problem->trace != NULL
                           ? problem->pool.samples[from]
                           : (mt_search_sample){.tokens = problem->tokens, .picture_count = problem->picture_count};
  }
  return problem->distribution != NULL ? draw_distribution(problem, seed, error, data) : MOTET_OK;
}

int32_t mt_search_trunk(const mt_architecture *architecture) {
  const mt_model *model = architecture->model;
  for (int32_t j = 0; j < model->module_count && architecture->decodes_text; j++)
    if ((model->modules[j].inputs & MOTET_INPUT_TOKENS) != 0) return j;
  return model->module_count - 1;
}
