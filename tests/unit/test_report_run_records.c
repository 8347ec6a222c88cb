#include "base/arena.h"
#include "base/text.h"
#include "report/run_failure.h"
#include "report/run_metrics.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct run {
  char path[64];
  mt_arena *arena;
} run;

static void put(const run *r, const char *name, const char *content) {
  char path[160];
  snprintf(path, sizeof path, "%s/%s", r->path, name);
  assert_int_equal(mt_file_write(path, content, strlen(content), NULL), MOTET_OK);
}

static int make_run(void **state) {
  static run r;
  snprintf(r.path, sizeof r.path, "/tmp/motet-run-XXXXXX");
  assert_non_null(mkdtemp(r.path));
  r.arena = mt_arena_create();
  put(&r, "metrics.jsonl",
      "{\"step\": 8, \"loss\": 2.5}\n{broken\n{\"step\": 10, \"loss\": 1.25, \"mfu\": null, \"digest\": \"a\"}\n");
  *state = &r;
  return 0;
}

static int drop_run(void **state) {
  run *r = *state;
  char command[160];
  mt_arena_destroy(r->arena);
  snprintf(command, sizeof command, "rm -r '%s'", r->path);
  return system(command);
}

static void test_metrics_of_a_step(void **state) {
  run *r = *state;
  mt_run_metrics metrics;
  assert_int_equal(mt_run_metrics_read(r->arena, r->path, 10, NULL, &metrics), MOTET_OK);
  static const char *const expected[][2] = {
      {"step", "10"}, {"loss", "1.25"}, {"mfu", "not known"}, {"digest", "a"}};
  assert_int_equal(metrics.value_count, 4);
  for (int i = 0; i < 4; i++) {
    assert_string_equal(metrics.values[i].name, expected[i][0]);
    assert_string_equal(metrics.values[i].value, expected[i][1]);
  }
  assert_int_equal(mt_run_metrics_read(r->arena, r->path, 8, NULL, &metrics), MOTET_OK);
  assert_string_equal(metrics.values[1].value, "2.5");
  put(r, "metrics.jsonl",
      "{\"step\": 8, \"memory_bytes\": 1610612736, \"step_seconds\": 0.25, \"idle_share\": 0.125, \"tokens\": "
      "3}\n");
  static const char *const words[] = {"8", "1.5 GiB", "250 ms", "12.5%", "3"};
  assert_int_equal(mt_run_metrics_read(r->arena, r->path, 8, NULL, &metrics), MOTET_OK);
  for (int i = 0; i < 5; i++) assert_string_equal(metrics.values[i].value, words[i]);
  assert_int_equal(mt_run_metrics_read(r->arena, r->path, 9, NULL, &metrics), MOTET_OK);
  assert_int_equal(metrics.value_count, 0);
  assert_int_equal(mt_run_metrics_read(r->arena, "/nowhere", 9, NULL, &metrics), MOTET_OK);
  assert_int_equal(metrics.value_count, 0);
}

static void test_failures_are_kept(void **state) {
  run *r = *state;
  motet_error error, failure;
  const char *text;
  motet_error_clear(&failure);
  snprintf(failure.text, sizeof failure.text, "the \"kernel\" failed\nbadly");
  failure.rank = 3;
  failure.instruction = 0;
  mt_run_failure_write(r->path, &failure);
  assert_int_equal(mt_run_failure_read(r->arena, r->path, &error, &text), MOTET_OK);
  assert_string_equal(text, "This run failed: rank 3: instruction 0: the \"kernel\" failed\nbadly");
  mt_run_failure_forget(r->path);
  assert_int_equal(mt_run_failure_read(r->arena, r->path, &error, &text), MOTET_OK);
  assert_null(text);
  put(r, "failure.json", "{\"rank\": 3}");
  assert_int_equal(mt_run_failure_read(r->arena, r->path, &error, &text), MOTET_ERROR_PARSE);
  mt_run_failure_write("/nowhere", &failure); /* lets it go */
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_metrics_of_a_step, make_run, drop_run),
      cmocka_unit_test_setup_teardown(test_failures_are_kept, make_run, drop_run),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
