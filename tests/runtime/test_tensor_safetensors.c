#include "tensor/safetensors.h"

#include "base/text.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static const char *const SMALL = "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}";

/* A file in memory: header length, header, `data_bytes` zeros. The caller frees it. */
static unsigned char *image_of(const char *header, size_t data_bytes, size_t *bytes) {
  size_t length = strlen(header);
  *bytes = 8 + length + data_bytes;
  unsigned char *image = calloc(1, *bytes);
  for (int i = 0; i < 8; i++) image[i] = (unsigned char)((uint64_t)length >> (8 * i));
  memcpy(image + 8, header, length);
  return image;
}

static motet_status parse(const char *header, size_t data_bytes, motet_error *error, mt_safetensors **tensors) {
  size_t bytes;
  unsigned char *image = image_of(header, data_bytes, &bytes);
  motet_error_clear(error);
  motet_status status = mt_safetensors_parse(image, bytes, "image", error, tensors);
  /* The header alone is looked at below, never the data. */
  free(image);
  return status;
}

/* From the file that the reference library wrote with tools/make_safetensors_fixtures.py. */
static void test_reads_the_reference_library(void **state) {
  (void)state;
  mt_safetensors *tensors;
  motet_error error;
  assert_int_equal(mt_safetensors_open(MOTET_TEST_DATA "/safetensors/kinds.safetensors", &error, &tensors),
                   MOTET_OK);
  assert_int_equal(mt_safetensors_count(tensors), 9);
  for (int64_t i = 1; i < 9; i++)
    assert_true(strcmp(mt_safetensors_at(tensors, i - 1)->name, mt_safetensors_at(tensors, i)->name) < 0);
  assert_null(mt_safetensors_find(tensors, "ramp"));

  const mt_safetensor *ramp = mt_safetensors_find(tensors, "ramp.f32");
  float values[8];
  assert_int_equal(ramp->dims, 2);
  assert_int_equal(ramp->shape[0], 2);
  assert_int_equal(ramp->shape[1], 3);
  assert_int_equal(mt_safetensor_floats(ramp, 0, 6, &error, values), MOTET_OK);
  for (int i = 0; i < 6; i++) assert_true(values[i] == 0.5f * (float)i - 1);
  assert_int_equal(mt_safetensor_floats(ramp, 4, 2, &error, values), MOTET_OK);
  assert_true(values[0] == 1 && values[1] == 1.5f);
  assert_int_equal(mt_safetensor_floats(ramp, 5, 2, &error, values), MOTET_ERROR_ARGUMENT);

  static const float exact[8] = {0, -0.0f, 1, -2.5f, 65504, 0x1p-14f, 0x1p-24f, INFINITY};
  assert_int_equal(mt_safetensor_floats(mt_safetensors_find(tensors, "halves.f16"), 0, 8, &error, values),
                   MOTET_OK);
  assert_memory_equal(values, exact, sizeof exact);
  static const float rounded[8] = {0, -0.0f, 1, -2.5f, 65536, 0x1p-14f, 0x1p-24f, INFINITY};
  assert_int_equal(mt_safetensor_floats(mt_safetensors_find(tensors, "halves.bf16"), 0, 8, &error, values),
                   MOTET_OK);
  assert_memory_equal(values, rounded, sizeof rounded);
  assert_int_equal(mt_safetensor_floats(mt_safetensors_find(tensors, "ramp.f64"), 0, 4, &error, values), MOTET_OK);
  for (int i = 0; i < 4; i++) assert_true(values[i] == (float)(i / 3.0));

  int64_t numbers[2];
  const mt_safetensor *integers = mt_safetensors_find(tensors, "numbers.i64");
  assert_int_equal(integers->dtype, MT_DTYPE_I64);
  memcpy(numbers, integers->data, sizeof numbers);
  assert_true(numbers[0] == -1 && numbers[1] == INT64_C(1) << 40);
  assert_int_equal(mt_safetensor_floats(integers, 0, 2, &error, values), MOTET_ERROR_UNSUPPORTED);
  assert_string_equal(error.key, "numbers.i64");
  assert_int_equal(mt_safetensors_find(tensors, "scalar")->dims, 0);
  assert_int_equal(mt_safetensors_find(tensors, "scalar")->count, 1);
  assert_int_equal(mt_safetensors_find(tensors, "empty")->count, 0);

  const mt_safetensor *tensor;
  assert_int_equal(mt_safetensors_require(tensors, "ramp.f32", 2, (int64_t[]){2, 3}, &error, &tensor), MOTET_OK);
  assert_int_equal(mt_safetensors_require(tensors, "ramp.f32", 2, (int64_t[]){3, 2}, &error, &tensor),
                   MOTET_ERROR_PARSE);
  assert_non_null(strstr(error.text, "(2, 3)"));
  assert_non_null(strstr(error.text, "(3, 2)"));
  assert_string_equal(error.key, "ramp.f32");
  assert_int_equal(mt_safetensors_require(tensors, "absent", 0, NULL, &error, &tensor), MOTET_ERROR_PARSE);
  assert_string_equal(error.key, "absent");
  mt_safetensors_close(tensors);
}

static void test_reads_shards(void **state) {
  (void)state;
  static const char *const paths[] = {MOTET_TEST_DATA "/safetensors/sharded",
                                      MOTET_TEST_DATA "/safetensors/sharded/model.safetensors.index.json"};
  for (int p = 0; p < 2; p++) {
    mt_safetensors *tensors;
    motet_error error;
    assert_int_equal(mt_safetensors_open(paths[p], &error, &tensors), MOTET_OK);
    assert_int_equal(mt_safetensors_count(tensors), 5);
    for (int i = 0; i < 5; i++) {
      char name[32];
      snprintf(name, sizeof name, "layers.%d.weight", i);
      float values[4];
      assert_int_equal(mt_safetensor_floats(mt_safetensors_find(tensors, name), 0, 4, &error, values), MOTET_OK);
      for (int j = 0; j < 4; j++) assert_true(values[j] == (float)i);
    }
    mt_safetensors_close(tensors);
  }
}

static void test_refuses_damaged_headers(void **state) {
  (void)state;
  static const struct {
    const char *header;
    size_t data_bytes;
    const char *key, *text;
  } cases[] = {
      {"{", 0, "", "not JSON"},
      {"[]", 0, "", "does not start with {"},
      {" {}", 0, "", "does not start with {"},
      {"{}", 1, "", "describes 0"},
      {"{\"a\":3}", 0, "a", "not an object"},
      {"{\"__metadata__\":3}", 0, "__metadata__", "not an object"},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 7, "a", "do not lie"},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 9, "", "describes 8"},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]}}", 8, "a", "3 elements of 4 bytes"},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}", 8, "a", "not a count"},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2.0],\"data_offsets\":[0,8]}}", 8, "a", "not a count"},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":2,\"data_offsets\":[0,8]}}", 8, "a", "\"shape\""},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", 4, "a", "dimensions"},
      {"{\"a\":{\"dtype\":\"F31\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "a", "F31"},
      {"{\"a\":{\"dtype\":7,\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "a", "\"dtype\""},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0]}}", 8, "a", "pair"},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}", 8, "a", "do not lie"},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[-8,0]}}", 8, "a", "do not lie"},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", 0, "a", "overflows"},
      {"{\"a\":{\"dtype\":\"F64\",\"shape\":[2305843009213693952],\"data_offsets\":[0,0]}}", 0, "a",
       "its shape asks"},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
       "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}",
       3, "b", "overlaps tensor a"},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
       "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[3,5]}}",
       5, "b", "hole of 1"},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
       "\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[2,4]}}",
       4, "", "duplicate"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    mt_safetensors *tensors = (mt_safetensors *)&cases;
    motet_error error;
    motet_status status = parse(cases[i].header, cases[i].data_bytes, &error, &tensors);
    if (status == MOTET_OK || strstr(error.text, cases[i].text) == NULL || strcmp(error.key, cases[i].key) != 0)
      fail_msg("%s: status %d, key '%s', text '%s'", cases[i].header, status, error.key, error.text);
    assert_string_equal(error.file, "image");
    assert_null(tensors);
  }
}

static void test_refuses_truncated_files(void **state) {
  (void)state;
  size_t bytes;
  unsigned char *image = image_of(SMALL, 8, &bytes);
  motet_error error;
  mt_safetensors *tensors;
  for (size_t kept = 0; kept <= bytes; kept++) {
    /* In a block of its own, so that reading behind the end is seen by the address sanitizer. */
    unsigned char *part = malloc(kept + 1);
    memcpy(part, image, kept);
    motet_status status = mt_safetensors_parse(part, kept, "part", &error, &tensors);
    assert_int_equal(status, kept == bytes ? MOTET_OK : MOTET_ERROR_PARSE);
    mt_safetensors_close(tensors);
    free(part);
  }
  memset(image, 0xff, 8);
  assert_int_equal(mt_safetensors_parse(image, bytes, "image", &error, &tensors), MOTET_ERROR_PARSE);
  assert_non_null(strstr(error.text, "claims a header"));
  free(image);
}

static void write_text(const char *directory, const char *name, const char *text) {
  char path[256];
  snprintf(path, sizeof path, "%s/%s", directory, name);
  assert_int_equal(mt_file_write(path, text, strlen(text), NULL), MOTET_OK);
}

static void test_refuses_wrong_indexes(void **state) {
  (void)state;
  char directory[] = "/tmp/motet-index-XXXXXX";
  assert_non_null(mkdtemp(directory));
  motet_error error;
  mt_safetensors *tensors;
  assert_int_equal(mt_safetensors_open(directory, &error, &tensors), MOTET_ERROR_IO);
  assert_non_null(strstr(error.text, "neither"));
  static const char *const cases[][2] = {
      {"{", "not JSON"},
      {"{}", "weight_map"},
      {"{\"weight_map\":{\"a\":1}}", "not a file name"},
      {"{\"weight_map\":{\"a\":\"../s.safetensors\"}}", "beside the index"},
      {"{\"weight_map\":{\"a\":\"gone.safetensors\"}}", "cannot open"},
      {"{\"weight_map\":{\"b\":\"s.safetensors\"}}", "has no tensor b"},
  };
  char shard[256];
  snprintf(shard, sizeof shard, "%s/s.safetensors", directory);
  size_t bytes;
  unsigned char *image = image_of(SMALL, 8, &bytes);
  assert_int_equal(mt_file_write(shard, image, bytes, NULL), MOTET_OK);
  free(image);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    write_text(directory, "model.safetensors.index.json", cases[i][0]);
    assert_int_not_equal(mt_safetensors_open(directory, &error, &tensors), MOTET_OK);
    if (strstr(error.text, cases[i][1]) == NULL) fail_msg("%s: %s", cases[i][0], error.text);
    assert_null(tensors);
  }
  char index[256];
  snprintf(index, sizeof index, "%s/model.safetensors.index.json", directory);
  unlink(index);
  unlink(shard);
  rmdir(directory);
}

static void test_writes_what_it_reads(void **state) {
  (void)state;
  char directory[] = "/tmp/motet-write-XXXXXX";
  assert_non_null(mkdtemp(directory));
  char path[256], temporary[300];
  snprintf(path, sizeof path, "%s/model.safetensors", directory);
  snprintf(temporary, sizeof temporary, "%s.part", path);
  const mt_safetensors_entry entries[] = {
      {"w", MT_DTYPE_F32, 2, (int64_t[]){100, 100}},
      {"none", MT_DTYPE_F32, 1, (int64_t[]){0}},
      {"b", MT_DTYPE_BF16, 1, (int64_t[]){10000}},
      {"h", MT_DTYPE_F16, 1, (int64_t[]){10000}},
      {"n", MT_DTYPE_I32, 0, NULL},
  };
  float *values = malloc(10000 * sizeof *values);
  for (int i = 0; i < 10000; i++) values[i] = (float)(i - 5000) / 16;
  motet_error error;
  mt_safetensors_writer *writer;
  assert_int_equal(mt_safetensors_writer_create(path, entries, 5, &error, &writer), MOTET_OK);
  assert_int_equal(mt_safetensors_writer_floats(writer, values, 10001, &error), MOTET_ERROR_ARGUMENT);
  assert_int_equal(mt_safetensors_writer_floats(writer, values, 3, &error), MOTET_OK);
  assert_int_equal(mt_safetensors_writer_floats(writer, values + 3, 9997, &error), MOTET_OK);
  assert_int_equal(mt_safetensors_writer_floats(writer, values, 10000, &error), MOTET_OK);
  assert_int_equal(mt_safetensors_writer_floats(writer, values, 10000, &error), MOTET_OK);
  assert_int_equal(mt_safetensors_writer_finish(writer, &error), MOTET_ERROR_ARGUMENT);
  assert_int_not_equal(access(path, F_OK), 0);
  assert_int_equal(mt_safetensors_writer_bytes(writer, (int32_t[]){42, 43}, 8, &error), MOTET_ERROR_ARGUMENT);
  assert_int_equal(mt_safetensors_writer_bytes(writer, (int32_t[]){42}, 4, &error), MOTET_OK);
  assert_int_equal(mt_safetensors_writer_finish(writer, &error), MOTET_OK);
  mt_safetensors_writer_destroy(writer);
  assert_int_not_equal(access(temporary, F_OK), 0);

  mt_safetensors *tensors;
  assert_int_equal(mt_safetensors_open(directory, &error, &tensors), MOTET_OK);
  assert_int_equal(mt_safetensors_count(tensors), 5);
  static const struct {
    const char *name;
    float tolerance; /* half a unit in the last place, relative */
  } kinds[] = {{"w", 0}, {"b", 0x1p-8f}, {"h", 0x1p-11f}};
  float *read = malloc(10000 * sizeof *read);
  for (int k = 0; k < 3; k++) {
    const mt_safetensor *tensor = mt_safetensors_find(tensors, kinds[k].name);
    assert_int_equal(mt_safetensor_floats(tensor, 0, 10000, &error, read), MOTET_OK);
    for (int i = 0; i < 10000; i++)
      assert_true(fabsf(read[i] - values[i]) <= kinds[k].tolerance * fabsf(values[i]));
  }
  int32_t number;
  memcpy(&number, mt_safetensors_find(tensors, "n")->data, sizeof number);
  assert_int_equal(number, 42);
  mt_safetensors_close(tensors);

  /* A writer that is given up leaves the last good file. */
  assert_int_equal(mt_safetensors_writer_create(path, entries, 1, &error, &writer), MOTET_OK);
  assert_int_equal(mt_safetensors_writer_floats(writer, values, 10, &error), MOTET_OK);
  mt_safetensors_writer_destroy(writer);
  assert_int_not_equal(access(temporary, F_OK), 0);
  assert_int_equal(mt_safetensors_open(path, &error, &tensors), MOTET_OK);
  mt_safetensors_close(tensors);
  unlink(path);
  rmdir(directory);
  free(read);
  free(values);
}

static void test_writer_refuses(void **state) {
  (void)state;
  char path[] = "/tmp/motet-refuse-XXXXXX";
  close(mkstemp(path));
  motet_error error;
  mt_safetensors_writer *writer;
  const mt_safetensors_entry twice[] = {{"a", MT_DTYPE_U8, 0, NULL}, {"a", MT_DTYPE_U8, 0, NULL}};
  assert_int_equal(mt_safetensors_writer_create(path, twice, 2, &error, &writer), MOTET_ERROR_ARGUMENT);
  assert_string_equal(error.key, "a");
  const mt_safetensors_entry huge = {"a", MT_DTYPE_F64, 2, (int64_t[]){INT64_C(1) << 32, INT64_C(1) << 32}};
  assert_int_equal(mt_safetensors_writer_create(path, &huge, 1, &error, &writer), MOTET_ERROR_LIMIT);
  assert_int_equal(mt_safetensors_writer_create("/nonexistent/x", twice, 1, &error, &writer), MOTET_ERROR_IO);
  assert_null(writer);
  unlink(path);
}

static void test_writes_an_index(void **state) {
  (void)state;
  char directory[] = "/tmp/motet-shards-XXXXXX";
  assert_non_null(mkdtemp(directory));
  char path[256];
  mt_safetensors_location locations[3];
  static const char *const names[3] = {"z", "m", "a"}, *const files[3] = {"1.safetensors", "2.safetensors",
                                                                          "1.safetensors"};
  motet_error error;
  const mt_safetensors_entry first[] = {{"z", MT_DTYPE_F32, 0, NULL}, {"a", MT_DTYPE_F32, 0, NULL}},
                             second[] = {{"m", MT_DTYPE_F32, 0, NULL}};
  for (int shard = 0; shard < 2; shard++) {
    snprintf(path, sizeof path, "%s/%d.safetensors", directory, shard + 1);
    mt_safetensors_writer *writer;
    assert_int_equal(mt_safetensors_writer_create(path, shard == 0 ? first : second, 2 - shard, &error, &writer),
                     MOTET_OK);
    for (int i = 0; i < 2 - shard; i++)
      assert_int_equal(mt_safetensors_writer_floats(writer, (float[]){(float)(10 * shard + i)}, 1, &error),
                       MOTET_OK);
    assert_int_equal(mt_safetensors_writer_finish(writer, &error), MOTET_OK);
    mt_safetensors_writer_destroy(writer);
  }
  for (int i = 0; i < 3; i++) locations[i] = (mt_safetensors_location){names[i], files[i]};
  snprintf(path, sizeof path, "%s/model.safetensors.index.json", directory);
  assert_int_equal(mt_safetensors_index_write(path, locations, 3, 12, &error), MOTET_OK);
  mt_safetensors *tensors;
  assert_int_equal(mt_safetensors_open(directory, &error, &tensors), MOTET_OK);
  assert_int_equal(mt_safetensors_count(tensors), 3);
  float value;
  assert_int_equal(mt_safetensor_floats(mt_safetensors_find(tensors, "a"), 0, 1, &error, &value), MOTET_OK);
  assert_true(value == 1);
  assert_int_equal(mt_safetensor_floats(mt_safetensors_find(tensors, "m"), 0, 1, &error, &value), MOTET_OK);
  assert_true(value == 10);
  mt_safetensors_close(tensors);
  unlink(path);
  for (int shard = 0; shard < 2; shard++) {
    snprintf(path, sizeof path, "%s/%d.safetensors", directory, shard + 1);
    unlink(path);
  }
  rmdir(directory);
}

/* Every half there is: to float32 and back gives the same bits; values between two halves go to the nearer, ties
 * to the even one. The neighbours come from the format's definition. */
static void test_halves_round_to_nearest_even(void **state) {
  (void)state;
  for (uint32_t bits = 0; bits < 0x7c00; bits++) {
    uint16_t half = (uint16_t)bits, next = (uint16_t)(bits + 1), back;
    float value, above;
    assert_true(mt_dtype_to_floats(MT_DTYPE_F16, &half, 1, &value));
    uint32_t exponent = bits >> 10, fraction = bits & 1023;
    assert_true(value == (exponent == 0 ? ldexpf((float)fraction, -24)
                                        : ldexpf((float)(1024 + fraction), (int)exponent - 25)));
    mt_dtype_from_floats(MT_DTYPE_F16, &value, 1, &back);
    assert_int_equal(back, half);
    mt_dtype_to_floats(MT_DTYPE_F16, &next, 1, &above);
    if (isinf(above)) above = 65536;
    float middle = value + (above - value) / 2, low = nextafterf(middle, 0), high = nextafterf(middle, INFINITY);
    mt_dtype_from_floats(MT_DTYPE_F16, &middle, 1, &back);
    assert_int_equal(back, bits & 1 ? next : half);
    mt_dtype_from_floats(MT_DTYPE_F16, &low, 1, &back);
    assert_int_equal(back, half);
    float negative = -high;
    mt_dtype_from_floats(MT_DTYPE_F16, &negative, 1, &back);
    assert_int_equal(back, 0x8000u | next);
  }
  static const struct {
    float value;
    uint16_t half, brain;
  } cases[] = {{NAN, 0x7e00, 0x7fc0},   {INFINITY, 0x7c00, 0x7f80},       {1e30f, 0x7c00, 0x714a},
               {0x1p-30f, 0, 0x3080},   {1.00390625f, 0x3c04, 0x3f80},    {1.01171875f, 0x3c0c, 0x3f82},
               {-0.0f, 0x8000, 0x8000}, {0x1.fffffep127f, 0x7c00, 0x7f80}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    uint16_t half, brain;
    mt_dtype_from_floats(MT_DTYPE_F16, &cases[i].value, 1, &half);
    mt_dtype_from_floats(MT_DTYPE_BF16, &cases[i].value, 1, &brain);
    assert_int_equal(half & (isnan(cases[i].value) ? 0x7e00 : 0xffff), cases[i].half);
    assert_int_equal(brain & (isnan(cases[i].value) ? 0x7fc0 : 0xffff), cases[i].brain);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_reads_the_reference_library),
      cmocka_unit_test(test_reads_shards),
      cmocka_unit_test(test_refuses_damaged_headers),
      cmocka_unit_test(test_refuses_truncated_files),
      cmocka_unit_test(test_refuses_wrong_indexes),
      cmocka_unit_test(test_writes_what_it_reads),
      cmocka_unit_test(test_writer_refuses),
      cmocka_unit_test(test_writes_an_index),
      cmocka_unit_test(test_halves_round_to_nearest_even),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
