#include "report/run.h"

#include "base/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static mt_arena *arena;
static char folder[] = "/tmp/motet-run-XXXXXX";

static const char *in_folder(const char *name) { return mt_arena_format(arena, "%s/%s", folder, name); }

static void put(const char *name, const char *content) {
  assert_int_equal(mt_file_write(in_folder(name), content, strlen(content), NULL), MOTET_OK);
}

/* Two instructions on one rank, from a published-form order. */
static void put_program(const char *name) {
  motet_program *program;
  put("order.csv", "0F0,0B0\n");
  assert_int_equal(motet_program_read_pytorch_csv(in_folder("order.csv"), MOTET_PLACEMENT_AUTO, NULL, &program),
                   MOTET_OK);
  assert_int_equal(motet_program_write(program, in_folder(name), NULL), MOTET_OK);
  motet_program_destroy(program);
}

static int set_up(void **state) {
  (void)state;
  arena = mt_arena_create();
  if (arena == NULL || mkdtemp(folder) == NULL) return -1;
  return mkdir(in_folder("timeline"), 0777);
}

static int tear_down(void **state) {
  (void)state;
  char command[128];
  snprintf(command, sizeof command, "rm -rf '%s'", folder);
  mt_arena_destroy(arena);
  return system(command);
}

static void test_newest_and_named_step(void **state) {
  (void)state;
  assert_true(mt_run_is(folder));
  assert_false(mt_run_is("/tmp"));
  assert_false(mt_run_is(in_folder("order.csv")));
  motet_error error;
  mt_run_timeline run;
  assert_int_equal(mt_run_timeline_read(arena, folder, 0, &error, &run), MOTET_ERROR_IO);
  assert_non_null(strstr(error.text, "no timeline"));
  static const char *const steps[] = {"9", "10"};
  for (int i = 0; i < 2; i++) {
    put_program(mt_arena_format(arena, "timeline/step-%s.program.json", steps[i]));
    put(mt_arena_format(arena, "timeline/step-%s.times.json", steps[i]),
        i == 0 ? "{\"start\": [0, 1, 2, 3], \"finish\": [1, 2, 3, 3.5]}"
               : "{\"start\": [0, 1, 2, 3], \"finish\": [1, 2, 3, 7]}");
  }
  assert_int_equal(mt_run_timeline_read(arena, folder, 0, &error, &run), MOTET_OK);
  assert_int_equal(run.step, 10);
  int64_t count = run.program->rank_begin[1];
  assert_int_equal(count, 4); /* F, B, optimizer, step end */
  assert_true(run.finish[count - 1] == 7);
  motet_program_destroy(run.program);
  assert_int_equal(mt_run_timeline_read(arena, folder, 9, &error, &run), MOTET_OK);
  assert_true(run.finish[count - 1] == 3.5);
  motet_program_destroy(run.program);
  assert_int_equal(mt_run_timeline_read(arena, folder, 7, &error, &run), MOTET_ERROR_IO);
  assert_non_null(strstr(error.text, "9"));
  assert_non_null(strstr(error.text, "10"));
}

static void test_damaged_times_name_file_and_key(void **state) {
  (void)state;
  static const struct {
    const char *times, *words;
  } cases[] = {
      {"{", "times.json"},
      {"{}", "'start'"},
      {"{\"start\": [0], \"finish\": [1]}", "4 times"},
      {"{\"start\": [0, 1, 2, 3], \"finish\": [1, 2, 3, \"x\"]}", "entry 3 of 'finish'"},
      {"{\"start\": [0, 1, 2, 3], \"finish\": [1, 0.5, 3, 4]}", "instruction 1 ends before"},
      {"{\"start\": [0, 1, 2, 3], \"start\": [0, 1, 2, 3], \"finish\": [1, 2, 3, 4]}", "duplicate"},
  };
  put_program("timeline/step-3.program.json");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    put("timeline/step-3.times.json", cases[i].times);
    motet_error error;
    mt_run_timeline run;
    assert_int_equal(mt_run_timeline_read(arena, folder, 3, &error, &run), MOTET_ERROR_PARSE);
    if (strstr(error.text, cases[i].words) == NULL) fail_msg("case %zu: %s", i, error.text);
    assert_non_null(strstr(error.file, "step-3.times.json"));
    assert_null(run.program);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_newest_and_named_step),
      cmocka_unit_test(test_damaged_times_name_file_and_key),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
