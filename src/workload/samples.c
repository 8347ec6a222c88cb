#include "workload/samples.h"

#include "base/array.h"
#include "base/text.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS_MAX = 1 << 26, SIDE_MAX = 65536, FRAMES_MAX = 65536, PICTURES_MAX = 4096 };

typedef struct lines {
  const char *file;
  int line;
  motet_error *error;
  MT_ARRAY(mt_workload_sample) samples;
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

static motet_status read_images(lines *l, const json_t *images, mt_workload_sample *sample) {
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

static motet_status read_video(lines *l, const json_t *video, mt_workload_sample *sample) {
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
  mt_workload_sample sample = {.picture_begin = (int32_t)l->pictures.count};
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

static motet_status keep(mt_arena *arena, const lines *l, mt_workload_samples *data) {
  data->count = (int32_t)l->samples.count;
  data->samples = MT_ARENA_NEW(arena, mt_workload_sample, l->samples.count);
  data->pictures = MT_ARENA_NEW(arena, mt_picture, l->pictures.count);
  if (data->samples == NULL || data->pictures == NULL)
    return mt_error_memory(l->error, l->samples.count * sizeof(mt_workload_sample), "samples");
  if (l->samples.count > 0) memcpy(data->samples, l->samples.data, l->samples.count * sizeof *data->samples);
  if (l->pictures.count > 0) memcpy(data->pictures, l->pictures.data, l->pictures.count * sizeof *data->pictures);
  return MOTET_OK;
}

motet_status mt_workload_samples_parse(mt_arena *arena, const char *text, size_t bytes, const char *file,
                                       motet_error *error, mt_workload_samples *data) {
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

motet_status mt_workload_samples_read(mt_arena *arena, const char *path, motet_error *error,
                                      mt_workload_samples *data) {
  char *text;
  size_t bytes;
  motet_status status = mt_file_read(path, error, &text, &bytes);
  if (status != MOTET_OK) return status;
  status = mt_workload_samples_parse(arena, text, bytes, path, error, data);
  free(text);
  return status;
}

motet_status mt_workload_samples_room(mt_arena *arena, const mt_workload_samples *data, int32_t most,
                                      motet_error *error, mt_workload_room *room) {
  int64_t pictures = 1;
  for (int32_t i = 0; i < data->count; i++)
    if (data->samples[i].picture_count > pictures) pictures = data->samples[i].picture_count;
  room->segments = MT_ARENA_NEW(arena, int64_t, pictures * most);
  room->pictures = MT_ARENA_NEW(arena, mt_picture, pictures * most);
  if (room->segments == NULL || room->pictures == NULL)
    return mt_error_memory(error, (unsigned long long)(pictures * most) * sizeof(mt_picture), "microbatches");
  return MOTET_OK;
}

motet_status mt_workload_samples_measure(const mt_architecture *architecture, const mt_workload_samples *data,
                                         const int32_t *which, int32_t count, const mt_workload_room *room,
                                         motet_error *error, double *extents) {
  mt_shape shape = {.segments = room->segments, .pictures = room->pictures};
  for (int32_t i = 0; i < count; i++) {
    const mt_workload_sample *sample = &data->samples[which[i]];
    bool text = architecture->decodes_text;
    /* A generator's captions are one a picture. */
    for (int32_t s = 0; s < (text ? 1 : sample->picture_count); s++)
      room->segments[shape.segment_count++] = sample->tokens;
    for (int32_t k = 0; k < sample->picture_count; k++)
      room->pictures[shape.picture_count++] = data->pictures[sample->picture_begin + k];
  }
  memset(extents, 0, MT_EXTENTS * sizeof *extents);
  return mt_architecture_measure(architecture, &shape, error, extents);
}
