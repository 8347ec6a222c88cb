#include "base/text.h"
#include "data/image.h"
#include "tensor/safetensors.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define IMAGES MOTET_TEST_DATA "/image/"

/* A binary PPM without comments, as Pillow writes it. */
static mt_image read_ppm(const char *path) {
  char *data;
  size_t bytes;
  motet_error error;
  if (mt_file_read(path, &error, &data, &bytes) != MOTET_OK) fail_msg("%s", error.text);
  mt_image image;
  int width, height, used;
  assert_int_equal(sscanf(data, "P6 %d %d 255%n", &width, &height, &used), 2);
  size_t size = (size_t)width * (size_t)height * 3;
  assert_int_equal(bytes, (size_t)used + 1 + size);
  image = (mt_image){.width = width, .height = height, .rgb = malloc(size)};
  memcpy(image.rgb, data + used + 1, size);
  free(data);
  return image;
}

/* What differs from Pillow: nothing where a format is exact; a few steps of 255 where a cosine transform and
 * colours are rounded by another library. */
static const struct {
  const char *name;
  int largest;
  double mean;
} PICTURES[] = {{"rgb.png", 0, 0},           {"rgba.png", 0, 0},           {"grey.png", 0, 0},
                {"grey_alpha.png", 0, 0},    {"bits.png", 0, 0},           {"palette.png", 0, 0},
                {"palette_alpha.png", 0, 0}, {"colour_key.png", 0, 0},     {"baseline.jpg", 3, 0.2},
                {"progressive.jpg", 3, 0.2}, {"halved.jpg", 4, 0.2},       {"odd.jpg", 4, 0.2},
                {"wide.jpg", 4, 0.2},        {"grey_jpeg.jpg", 1, 0.1},    {"lossless.webp", 0, 0},
                {"lossy.webp", 4, 0.3},      {"lossy_alpha.webp", 4, 0.3}, {"still.gif", 0, 0},
                {"moving.gif", 0, 0},        {"plain.bmp", 0, 0},          {"palette_bmp.bmp", 0, 0},
                {"spare.bmp", 0, 0},         {"film.webp", 0, 0},          {"lossy_film.webp", 4, 0.3}};
enum { PICTURE_COUNT = sizeof PICTURES / sizeof *PICTURES };

static void test_decodes_like_pillow(void **state) {
  (void)state;
  int wrong = 0;
  for (int i = 0; i < PICTURE_COUNT; i++) {
    char path[512], reference[512];
    snprintf(path, sizeof path, IMAGES "pictures/%s", PICTURES[i].name);
    snprintf(reference, sizeof reference, "%.*s.ppm", (int)(strrchr(path, '.') - path), path);
    mt_image expected = read_ppm(reference), image;
    motet_error error;
    if (mt_image_read(path, &error, &image) != MOTET_OK) fail_msg("%s", error.text);
    int32_t width, height;
    assert_int_equal(mt_image_probe(path, &error, &width, &height), MOTET_OK);
    assert_int_equal(width, expected.width);
    assert_int_equal(height, expected.height);
    assert_int_equal(image.width, expected.width);
    assert_int_equal(image.height, expected.height);
    int largest = 0;
    double sum = 0;
    size_t count = (size_t)width * (size_t)height * 3;
    for (size_t p = 0; p < count; p++) {
      int difference = abs(image.rgb[p] - expected.rgb[p]);
      if (difference > largest) largest = difference;
      sum += difference;
    }
    if (largest > PICTURES[i].largest || sum / (double)count > PICTURES[i].mean) {
      print_error("%s: largest difference %d, mean %.3f\n", PICTURES[i].name, largest, sum / (double)count);
      wrong++;
    }
    mt_image_free(&image);
    mt_image_free(&expected);
  }
  assert_int_equal(wrong, 0);
}

/* Every proper prefix of a picture is refused, by the probe or by decoding, and never crashes. */
static void test_refuses_truncated_pictures(void **state) {
  (void)state;
  for (int i = 0; i < PICTURE_COUNT; i++) {
    char path[512], *data;
    size_t bytes;
    motet_error error;
    snprintf(path, sizeof path, IMAGES "pictures/%s", PICTURES[i].name);
    assert_int_equal(mt_file_read(path, &error, &data, &bytes), MOTET_OK);
    /* Is whole with its first frame. */
    bool moving = strcmp(PICTURES[i].name, "moving.gif") == 0 || strstr(PICTURES[i].name, "film") != NULL;
    for (size_t kept = 0; kept < (moving ? bytes / 4 : bytes - 1); kept += kept < 64 ? 1 : 37) {
      /* The trailers: PNG's IEND chunk, a GIF's and a BMP's last bytes carry no picture. */
      if (bytes - kept <= 16 && strstr(path, ".jpg") == NULL) break;
      mt_image image;
      motet_status status = mt_image_decode(data, kept, path, &error, &image);
      if (status == MOTET_OK) fail_msg("%s cut to %zu of %zu bytes is taken", path, kept, bytes);
      assert_int_equal(status, MOTET_ERROR_PARSE);
      assert_string_equal(error.file, path);
      assert_null(image.rgb);
    }
    free(data);
  }
}

/* A first frame that covers a part alone, and one that reaches over the file's end. */
static void test_refuses_odd_first_frames(void **state) {
  (void)state;
  for (int odd = 0; odd < 2; odd++) {
    char *data;
    size_t bytes;
    motet_error error;
    mt_image image;
    assert_int_equal(mt_file_read(IMAGES "pictures/film.webp", &error, &data, &bytes), MOTET_OK);
    char *frame = memmem(data, bytes, "ANMF", 4);
    assert_non_null(frame);
    frame[odd == 0 ? 8 : 6]++; /* the place from the left; the chunk's length */
    assert_int_equal(mt_image_decode(data, bytes, "odd", &error, &image), MOTET_ERROR_PARSE);
    assert_non_null(strstr(error.text, "moving WebP"));
    assert_string_equal(error.file, "odd");
    free(data);
  }
}

static void test_refuses_what_is_no_picture(void **state) {
  (void)state;
  motet_error error;
  mt_image image;
  int32_t width, height;
  assert_int_equal(mt_image_read("/nonexistent.png", &error, &image), MOTET_ERROR_IO);
  assert_int_equal(mt_image_probe("/nonexistent.png", &error, &width, &height), MOTET_ERROR_IO);
  assert_string_equal(error.file, "/nonexistent.png");
  assert_int_equal(mt_image_probe(IMAGES "tilings.csv", &error, &width, &height), MOTET_ERROR_PARSE);
  assert_non_null(strstr(error.text, "is no PNG"));
  static const unsigned char huge[] = "\x89PNG\r\n\x1a\n\0\0\0\rIHDR\x7f\xff\xff\xff\x7f\xff\xff\xff\x08\x02\0\0\0",
                             none[] = "\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\0\0\0\0\x01\x08\x02\0\0\0";
  assert_int_equal(mt_image_decode(huge, sizeof huge, "huge", &error, &image), MOTET_ERROR_LIMIT);
  assert_int_equal(mt_image_decode(none, sizeof none, "none", &error, &image), MOTET_ERROR_PARSE);
}

/* Pillow's own output, byte for byte. */
static void test_resizes_like_pillow(void **state) {
  (void)state;
  static const int sizes[][2] = {{28, 28}, {122, 129}, {61, 20}, {17, 43}, {7, 5}, {1, 1}, {400, 60}};
  mt_image source = read_ppm(IMAGES "resize_source.ppm");
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    char path[512];
    snprintf(path, sizeof path, IMAGES "resize_%dx%d.ppm", sizes[i][0], sizes[i][1]);
    mt_image expected = read_ppm(path);
    size_t bytes = (size_t)sizes[i][0] * (size_t)sizes[i][1] * 3;
    unsigned char *resized = malloc(bytes);
    motet_error error;
    assert_int_equal(
        mt_image_resize(source.rgb, source.width, source.height, sizes[i][0], sizes[i][1], &error, resized),
        MOTET_OK);
    if (memcmp(resized, expected.rgb, bytes) != 0) fail_msg("%d x %d", sizes[i][0], sizes[i][1]);
    assert_int_equal(mt_image_resize(source.rgb, 0, 1, 1, 1, &error, resized), MOTET_ERROR_ARGUMENT);
    free(resized);
    mt_image_free(&expected);
  }
  mt_image_free(&source);
}

/* Grids that transformers' processor chose. */
static void test_chooses_the_published_tilings(void **state) {
  (void)state;
  FILE *file = fopen(IMAGES "tilings.csv", "r");
  assert_non_null(file);
  char line[128];
  assert_non_null(fgets(line, sizeof line, file));
  int cases = 0;
  while (fgets(line, sizeof line, file) != NULL) {
    int low, high, size, width, height, columns, rows;
    assert_int_equal(sscanf(line, "%d,%d,%d,%d,%d,%d,%d", &low, &high, &size, &width, &height, &columns, &rows), 7);
    for (int thumbnail = 0; thumbnail < 2; thumbnail++) {
      mt_internvl config = {.min_tiles = low, .max_tiles = high, .use_thumbnail = thumbnail == 1};
      config.vision.image_size = size;
      mt_tiling tiling = mt_tiling_choose(&config, width, height);
      if (tiling.columns != columns || tiling.rows != rows)
        fail_msg("%d x %d with %d to %d tiles of %d: %d x %d, not %d x %d", width, height, low, high, size,
                 tiling.columns, tiling.rows, columns, rows);
      assert_int_equal(tiling.tiles, columns * rows + (thumbnail == 1 && columns * rows > 1));
    }
    cases++;
  }
  fclose(file);
  assert_true(cases > 2900);
}

static void test_cuts_and_normalizes_tiles(void **state) {
  (void)state;
  mt_image source = read_ppm(IMAGES "resize_source.ppm");
  mt_internvl config = {.min_tiles = 1, .max_tiles = 12, .use_thumbnail = true};
  config.vision.image_size = 14;
  mt_tiling tiling = mt_tiling_choose(&config, source.width, source.height);
  assert_int_equal(tiling.tiles, 7);
  float pixels[7 * 3 * 14 * 14], expected[7 * 3 * 14 * 14];
  motet_error error;
  assert_int_equal(mt_image_tiles(&config, &source, &tiling, &error, pixels), MOTET_OK);
  mt_safetensors *tensors;
  const mt_safetensor *tensor;
  assert_int_equal(mt_safetensors_open(IMAGES "tiles.safetensors", &error, &tensors), MOTET_OK);
  assert_int_equal(mt_safetensors_require(tensors, "pixels", 4, (int64_t[]){7, 3, 14, 14}, &error, &tensor),
                   MOTET_OK);
  assert_int_equal(mt_safetensor_floats(tensor, 0, tensor->count, &error, expected), MOTET_OK);
  /* The same float32 operations, but a compiler may divide by multiplying. */
  for (int64_t i = 0; i < tensor->count; i++) assert_true(fabsf(pixels[i] - expected[i]) <= 1e-6f);
  mt_safetensors_close(tensors);
  mt_image_free(&source);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_decodes_like_pillow),       cmocka_unit_test(test_refuses_truncated_pictures),
      cmocka_unit_test(test_refuses_odd_first_frames),  cmocka_unit_test(test_refuses_what_is_no_picture),
      cmocka_unit_test(test_resizes_like_pillow),       cmocka_unit_test(test_chooses_the_published_tilings),
      cmocka_unit_test(test_cuts_and_normalizes_tiles),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
