#include "base/arena.h"
#include "base/array.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/foreign_key.h"
#include "base/random.h"
#include "base/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void test_error_carries_place_and_context(void **state) {
  (void)state;
  motet_error error;
  assert_int_equal(mt_error_set(&error, MOTET_ERROR_PARSE, "bad %s", "number"), MOTET_ERROR_PARSE);
  assert_int_equal(error.rank, -1);
  mt_error_place(&error, "job.yaml", 7);
  mt_error_context(&error, error.status, "reading the job");
  assert_string_equal(error.text, "reading the job: bad number");
  assert_string_equal(error.file, "job.yaml");
  assert_int_equal(error.line, 7);
  assert_int_equal(mt_error_set(NULL, MOTET_ERROR_IO, "nobody listens"), MOTET_ERROR_IO);
}

static void test_error_keeps_the_end_of_a_long_path(void **state) {
  (void)state;
  char path[2000];
  memset(path, 'a', sizeof path);
  memcpy(path + sizeof path - 11, "/file.json", 11);
  motet_error error;
  mt_error_set(&error, MOTET_ERROR_IO, "x");
  mt_error_place(&error, path, 0);
  assert_int_equal(strlen(error.file), sizeof error.file - 1);
  assert_string_equal(error.file + strlen(error.file) - 10, "/file.json");
  assert_memory_equal(error.file, "...", 3);
}

static void test_arena_refuses_overflow_and_aligns(void **state) {
  (void)state;
  mt_arena *arena = mt_arena_create();
  assert_null(mt_arena_array(arena, SIZE_MAX / 2, 3));
  for (size_t bytes = 0; bytes < 5000; bytes += 37) {
    unsigned char *memory = mt_arena_array(arena, bytes, 1);
    assert_int_equal((uintptr_t)memory % 64, 0);
    for (size_t i = 0; i < bytes; i++) assert_int_equal(memory[i], 0);
    memset(memory, 0xff, bytes);
  }
  assert_true(mt_arena_adopt(arena, malloc(100))); /* freed, as the address sanitizer sees */
  mt_arena_reset(arena);
  assert_true(mt_arena_adopt(arena, malloc(100)));
  size_t held = mt_arena_bytes(arena);
  unsigned char *again = mt_arena_array(arena, 100, 1);
  assert_int_equal(again[99], 0);
  assert_int_equal(mt_arena_bytes(arena), held);
  assert_string_equal(mt_arena_format(arena, "%d-%s", 3, "x"), "3-x");
  mt_arena_destroy(arena);
}

static void test_array_grows(void **state) {
  (void)state;
  MT_ARRAY(int) numbers = {0};
  for (int i = 0; i < 1000; i++) assert_true(MT_ARRAY_PUSH(&numbers, i * i));
  for (int i = 0; i < 1000; i++) assert_int_equal(numbers.data[i], i * i);
  free(numbers.data);
}

static void test_random_streams_are_apart_and_unbiased(void **state) {
  (void)state;
  mt_random a = mt_random_stream(1, "weights"), b = mt_random_stream(1, "weights");
  mt_random other = mt_random_stream(1, "data");
  int same = 0;
  for (int i = 0; i < 100; i++) {
    uint64_t value = mt_random_bits(&a);
    assert_int_equal(value, mt_random_bits(&b));
    same += value == mt_random_bits(&other);
  }
  assert_int_equal(same, 0);
  int counts[6] = {0};
  for (int i = 0; i < 60000; i++) counts[mt_random_below(&a, 6)]++;
  for (int i = 0; i < 6; i++) assert_in_range(counts[i], 9500, 10500);
  double sum = 0, squares = 0;
  for (int i = 0; i < 100000; i++) {
    double x = mt_random_normal(&a);
    sum += x;
    squares += x * x;
  }
  assert_true(sum / 1e5 > -0.02 && sum / 1e5 < 0.02);
  assert_true(squares / 1e5 > 0.97 && squares / 1e5 < 1.03);
}

static void test_digest_is_a_known_function(void **state) {
  (void)state;
  /* XXH3-64 of the empty input, from the algorithm's specification. */
  assert_true(mt_digest_of("", 0) == 0x2d06800538d394c2u);
  mt_digest *digest = mt_digest_create();
  mt_digest_number(digest, -0.0);
  uint64_t negative = mt_digest_value(digest);
  mt_digest_destroy(digest);
  digest = mt_digest_create();
  mt_digest_number(digest, 0.0);
  assert_true(mt_digest_value(digest) == negative);
  char text[MT_DIGEST_TEXT_SIZE];
  mt_digest_print(255, text);
  assert_string_equal(text, "00000000000000ff");
  mt_digest_destroy(digest);
}

static void test_file_write_replaces_whole(void **state) {
  (void)state;
  char path[] = "/tmp/motet-test-XXXXXX";
  close(mkstemp(path));
  motet_error error;
  assert_int_equal(mt_file_write(path, "first", 5, &error), MOTET_OK);
  assert_int_equal(mt_file_write(path, "second", 6, &error), MOTET_OK);
  char *data;
  size_t bytes;
  assert_int_equal(mt_file_read(path, &error, &data, &bytes), MOTET_OK);
  assert_int_equal(bytes, 6);
  assert_string_equal(data, "second");
  free(data);
  unlink(path);
  assert_int_equal(mt_file_read(path, &error, &data, &bytes), MOTET_ERROR_IO);
  assert_string_equal(error.file, path);
  assert_int_equal(mt_file_read("/tmp", &error, &data, &bytes), MOTET_ERROR_IO);
  assert_int_equal(mt_file_write("/dev/null/x", "x", 1, &error), MOTET_ERROR_IO);
}

static void test_counted_nouns(void **state) {
  (void)state;
  assert_string_equal(mt_counted(1, "rank").text, "1 rank");
  assert_string_equal(mt_counted(0, "rank").text, "0 ranks");
  assert_string_equal(mt_counted(INT64_C(12345678901), "step").text, "12345678901 steps");
  assert_string_equal(mt_counted(2, "microbatch").text, "2 microbatches");
  assert_string_equal(mt_counted(2, "pass").text, "2 passes");
  assert_string_equal(mt_counted(3, "length").text, "3 lengths");
}

static void test_median(void **state) {
  (void)state;
  assert_float_equal(mt_median((double[]){3, 1, 2}, 3), 2, 0);
  assert_float_equal(mt_median((double[]){8, 1, 4, 2}, 4), 3, 0);
  assert_float_equal(mt_median((double[]){7}, 1), 7, 0);
  assert_float_equal(mt_median(NULL, 0), 0, 0);
}

static bool training_key(const char *key) {
  static const char *const keys[] = {"train.learning_rate", "train.global_batch", "memory.recompute",
                                     "parallel.tensor"};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    if (strcmp(key, keys[i]) == 0) return true;
  return false;
}

static bool cluster_key(const char *key) {
  return strcmp(key, "workload.samples") == 0 || strcmp(key, "parallel.recompute") == 0;
}

static void test_foreign_keys_by_what_a_job_has(void **state) {
  (void)state;
  assert_string_equal(mt_foreign_key("lr", training_key), "train.learning_rate");
  assert_string_equal(mt_foreign_key("train.lr", training_key), "train.learning_rate");
  assert_string_equal(mt_foreign_key("--Tensor-Model-Parallel-Size", training_key), "parallel.tensor");
  /* HuggingFace's per_device_train_batch_size and Megatron-LM's recompute_granularity: of each kind of job its own.
   */
  assert_string_equal(mt_foreign_key("per_device_train_batch_size", training_key), "train.global_batch");
  assert_string_equal(mt_foreign_key("per_device_train_batch_size", cluster_key), "workload.samples");
  assert_string_equal(mt_foreign_key("recompute_granularity", training_key), "memory.recompute");
  assert_string_equal(mt_foreign_key("recompute_granularity", cluster_key), "parallel.recompute");
  assert_null(mt_foreign_key("lr", cluster_key));
  assert_null(mt_foreign_key("anything", training_key));
  assert_null(mt_foreign_key("", training_key));
  char endless[300];
  memset(endless, 'l', sizeof endless - 1);
  endless[sizeof endless - 1] = 0;
  assert_null(mt_foreign_key(endless, training_key));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_counted_nouns),
      cmocka_unit_test(test_error_carries_place_and_context),
      cmocka_unit_test(test_error_keeps_the_end_of_a_long_path),
      cmocka_unit_test(test_arena_refuses_overflow_and_aligns),
      cmocka_unit_test(test_array_grows),
      cmocka_unit_test(test_median),
      cmocka_unit_test(test_foreign_keys_by_what_a_job_has),
      cmocka_unit_test(test_random_streams_are_apart_and_unbiased),
      cmocka_unit_test(test_digest_is_a_known_function),
      cmocka_unit_test(test_file_write_replaces_whole),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
