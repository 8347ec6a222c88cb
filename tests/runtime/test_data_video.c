/* Frames of videos against transformers' video processor over PyAV: tests/data/video, made by
 * tools/make_video_fixtures.py; and what damaged files are told. */
#include "base/text.h"
#include "data/video.h"
#include "tensor/safetensors.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#define VIDEOS MOTET_TEST_DATA "/video/"

enum { SIDE = 14, PARTS = 4, TILE_FLOATS = 3 * SIDE * SIDE };

static motet_error failure;
static const mt_internvl CONFIG = {.vision = {.image_size = SIDE}};

static void must(motet_status status) {
  if (status != MOTET_OK) fail_msg("%s [%s]", failure.text, failure.file);
}

static void test_frames_are_counted_and_chosen(void **state) {
  (void)state;
  json_t *root = json_load_file(VIDEOS "frames.json", 0, NULL), *value;
  const char *name;
  assert_int_equal(json_object_size(json_object_get(root, "counts")), 5);
  json_object_foreach(json_object_get(root, "counts"), name, value) {
    char path[512];
    mt_video video;
    snprintf(path, sizeof path, VIDEOS "%s", name);
    must(mt_video_probe(path, &failure, &video));
    assert_int_equal(video.frames, json_integer_value(value));
  }
  const json_t *samples = json_object_get(root, "samples");
  assert_true(json_array_size(samples) > 60);
  for (size_t i = 0; i < json_array_size(samples); i++) {
    const json_t *sample = json_array_get(samples, i), *frames = json_array_get(sample, 2);
    const int32_t total = (int32_t)json_integer_value(json_array_get(sample, 0)),
                  parts = (int32_t)json_integer_value(json_array_get(sample, 1));
    assert_int_equal(json_array_size(frames), parts);
    for (int32_t p = 0; p < parts; p++)
      assert_int_equal(mt_video_frame_of(total, p, parts), json_integer_value(json_array_get(frames, (size_t)p)));
  }
  json_decref(root);
}

static motet_status keep_tile(void *context, int32_t part, const mt_image *image, motet_error *error) {
  const mt_tiling one = {1, 1, 1};
  return mt_image_tiles(&CONFIG, image, &one, error, (float *)context + part * TILE_FLOATS);
}

/* Torchvision's weights for 8-bit pictures have fewer bits than Pillow's: 2 of 255 either way. Halved colour planes
 * are enlarged by other filters: a little more, on average far less. */
static void check_pixels(mt_safetensors *file, const char *name, double most, double mean) {
  static const double deviation[3] = {0.229, 0.224, 0.225};
  char path[512];
  mt_video video;
  float pixels[PARTS * TILE_FLOATS], wanted[PARTS * TILE_FLOATS];
  snprintf(path, sizeof path, VIDEOS "%s", name);
  must(mt_video_probe(path, &failure, &video));
  must(mt_video_read(path, video.frames, PARTS, keep_tile, pixels, &failure));
  const mt_safetensor *tensor = mt_safetensors_find(file, name);
  assert_non_null(tensor);
  assert_int_equal(tensor->count, PARTS * TILE_FLOATS);
  must(mt_safetensor_floats(tensor, 0, tensor->count, &failure, wanted));
  double worst = 0, sum = 0;
  for (int i = 0; i < PARTS * TILE_FLOATS; i++) {
    const double off = fabs((double)pixels[i] - (double)wanted[i]) * deviation[i / (SIDE * SIDE) % 3] * 255;
    worst = off > worst ? off : worst;
    sum += off;
  }
  if (worst > most || sum / (PARTS * TILE_FLOATS) > mean)
    fail_msg("%s: off by up to %g of 255, %g on average", name, worst, sum / (PARTS * TILE_FLOATS));
}

static void test_pixels_are_those_of_the_processor(void **state) {
  (void)state;
  mt_safetensors *file;
  must(mt_safetensors_open(VIDEOS "pixels.safetensors", &failure, &file));
  check_pixels(file, "colours.mkv", 1.5, 0.1);
  check_pixels(file, "moving.gif", 1.5, 0.1);
  check_pixels(file, "waves.mp4", 5.5, 1.4);
  check_pixels(file, "waves.webm", 5.5, 1.4);
  check_pixels(file, "waves.avi", 5.5, 1.4);
  mt_safetensors_close(file);
}

static motet_status count_frames(void *context, int32_t part, const mt_image *image, motet_error *error) {
  (void)image, (void)error;
  assert_int_equal(part, *(int32_t *)context);
  ++*(int32_t *)context;
  return MOTET_OK;
}

static void test_every_frame_once(void **state) {
  (void)state;
  int32_t seen = 0;
  must(mt_video_read(VIDEOS "waves.mp4", 37, 37, count_frames, &seen, &failure));
  assert_int_equal(seen, 37);
  assert_int_equal(mt_video_read(VIDEOS "waves.mp4", 37, 38, count_frames, &seen, &failure), MOTET_ERROR_ARGUMENT);
}

typedef struct film {
  int32_t frames;
  mt_image images[64];
} film;

static motet_status keep_frame(void *context, int32_t part, const mt_image *image, motet_error *error) {
  film *kept = context;
  const size_t bytes = (size_t)image->width * (size_t)image->height * 3;
  (void)error;
  assert_true(part == kept->frames && part < 64);
  kept->images[part] = (mt_image){.width = image->width, .height = image->height, .rgb = malloc(bytes)};
  memcpy(kept->images[part].rgb, image->rgb, bytes);
  kept->frames++;
  return MOTET_OK;
}

/* The same coded pictures, with an index in front and without any. */
static void test_fragments(void **state) {
  (void)state;
  mt_video video;
  film whole = {0}, parts = {0};
  must(mt_video_probe(VIDEOS "fragments.mp4", &failure, &video));
  assert_int_equal(video.frames, 37);
  must(mt_video_read(VIDEOS "waves.mp4", 37, 37, keep_frame, &whole, &failure));
  must(mt_video_read(VIDEOS "fragments.mp4", 37, 37, keep_frame, &parts, &failure));
  assert_int_equal(parts.frames, 37);
  for (int32_t i = 0; i < 37; i++) {
    const mt_image *one = &whole.images[i], *other = &parts.images[i];
    assert_int_equal(one->width, other->width);
    assert_memory_equal(one->rgb, other->rgb, (size_t)one->width * (size_t)one->height * 3);
    mt_image_free(&whole.images[i]);
    mt_image_free(&parts.images[i]);
  }
}

static void expect_words(motet_status status, motet_status wanted, const char *words) {
  if (status != wanted || strstr(failure.text, words) == NULL)
    fail_msg("status %d, '%s'; expected %d, '%s'", status, failure.text, wanted, words);
}

static void test_what_is_no_video(void **state) {
  (void)state;
  mt_video video;
  expect_words(mt_video_probe(VIDEOS "absent.mp4", &failure, &video), MOTET_ERROR_IO, "absent.mp4");
  expect_words(mt_video_probe(MOTET_TEST_DATA, &failure, &video), MOTET_ERROR_IO, "is no file");
  expect_words(mt_video_probe(VIDEOS "sound.mp4", &failure, &video), MOTET_ERROR_PARSE, "no video stream");
  expect_words(mt_video_probe(VIDEOS "frames.json", &failure, &video), MOTET_ERROR_PARSE, "no MP4");
  expect_words(mt_video_probe_memory("", 0, "x.mp4", &failure, &video), MOTET_ERROR_PARSE, "x.mp4 is empty");
  assert_string_equal(failure.file, "x.mp4");
}

/* What cannot be decoded is refused before training: here a codec of another name. */
static void test_other_codecs(void **state) {
  (void)state;
  char *data, *tag;
  size_t bytes;
  mt_video video;
  must(mt_file_read(VIDEOS "waves.avi", &failure, &data, &bytes));
  int tags = 0;
  for (; (tag = memmem(data, bytes, "FMP4", 4)) != NULL; tags++) memcpy(tag, "cvid", 4);
  assert_int_equal(tags, 2);
  expect_words(mt_video_probe_memory(data, bytes, "x.avi", &failure, &video), MOTET_ERROR_UNSUPPORTED,
               "of kind cinepak are not read");
  free(data);
}

/* The sample tables of waves.mp4 say that there is nothing. */
static void test_no_frames(void **state) {
  (void)state;
  static const struct {
    const char *box;
    size_t offset;
  } tables[] = {{"stts", 8}, {"stsz", 12}, {"stsc", 8}, {"stco", 8}, {"ctts", 8}, {"stss", 8}};
  char *data;
  size_t bytes;
  mt_video video;
  must(mt_file_read(VIDEOS "waves.mp4", &failure, &data, &bytes));
  for (size_t t = 0; t < sizeof tables / sizeof *tables; t++) {
    char *place = memmem(data, bytes, tables[t].box, 4);
    assert_non_null(place);
    memset(place + tables[t].offset, 0, 4);
  }
  expect_words(mt_video_probe_memory(data, bytes, "x.mp4", &failure, &video), MOTET_ERROR_PARSE, "has no frames");
  free(data);
}

/* Cut anywhere, a video is refused: by its header, or where its frames end. */
static void test_cut_videos(void **state) {
  (void)state;
  static const char *const names[] = {"waves.mp4", "colours.mkv", "waves.webm", "waves.avi"};
  for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
    char path[512], *data;
    size_t bytes;
    mt_video whole, video;
    snprintf(path, sizeof path, VIDEOS "%s", names[n]);
    must(mt_video_probe(path, &failure, &whole));
    must(mt_file_read(path, &failure, &data, &bytes));
    for (size_t tenth = 0; tenth < 9; tenth++) {
      const size_t length = bytes * tenth / 10;
      int32_t seen = 0;
      motet_status status = mt_video_probe_memory(data, length, names[n], &failure, &video);
      if (status == MOTET_OK)
        status =
            mt_video_read_memory(data, length, names[n], whole.frames, whole.frames, count_frames, &seen, &failure);
      assert_int_equal(status, MOTET_ERROR_PARSE);
      assert_string_equal(failure.file, names[n]);
      assert_true(seen < whole.frames);
    }
    free(data);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_frames_are_counted_and_chosen),
      cmocka_unit_test(test_pixels_are_those_of_the_processor),
      cmocka_unit_test(test_every_frame_once),
      cmocka_unit_test(test_fragments),
      cmocka_unit_test(test_what_is_no_video),
      cmocka_unit_test(test_other_codecs),
      cmocka_unit_test(test_no_frames),
      cmocka_unit_test(test_cut_videos),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
