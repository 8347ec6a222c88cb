#include "report/history.h"
#include "report/progress.h"

#include "base/text.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/motet-history-XXXXXX";

static void put(const char *name, const char *mode, const char *content) {
  char path[256];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *file = fopen(path, mode);
  assert_non_null(file);
  assert_true(fputs(content, file) >= 0);
  fclose(file);
}

static int set_up(void **state) {
  (void)state;
  return mkdtemp(folder) == NULL ? -1 : 0;
}

static int tear_down(void **state) {
  (void)state;
  char command[128];
  snprintf(command, sizeof command, "rm -rf '%s'", folder);
  return system(command);
}

static void expect_steps(const mt_history *history, int count, const int *steps) {
  assert_int_equal(history->steps.count, count);
  for (int i = 0; i < count; i++) assert_int_equal(history->steps.data[i].step, steps[i]);
}

static void test_growing_file(void **state) {
  (void)state;
  mt_history history = {0};
  bool changed = true;
  assert_int_equal(mt_history_update(&history, folder, &changed, NULL), MOTET_OK);
  assert_false(changed);
  put("job.yaml", "w", "model: x\ntrain:\n  steps: 5\n");
  put("metrics.jsonl", "w",
      "{\"step\": 1, \"loss\": 4, \"tokens\": 100, \"step_seconds\": 2, \"mfu\": null}\n"
      "{\"step\": 2, \"loss\": 3, \"tokens\": 300, \"step_seconds\": 4}\n{\"step\": 3, \"lo");
  assert_int_equal(mt_history_update(&history, folder, &changed, NULL), MOTET_OK);
  assert_true(changed);
  expect_steps(&history, 2, (int[]){1, 2});
  assert_true(isnan(history.steps.data[0].values[MT_HISTORY_MFU]));
  assert_true(mt_history_throughput(&history.steps.data[1]) == 75);
  assert_true(mt_history_remaining_seconds(&history) == 9); /* three steps of (2 + 4) / 2 seconds */
  put("metrics.jsonl", "a", "ss\": 2}\nrubbish\n");         /* the rest of the line comes */
  assert_int_equal(mt_history_update(&history, folder, &changed, NULL), MOTET_OK);
  expect_steps(&history, 3, (int[]){1, 2, 3});
  assert_true(history.steps.data[2].values[MT_HISTORY_LOSS] == 2);
  assert_int_equal(history.spoilt_lines, 1);
  assert_int_equal(mt_history_update(&history, folder, &changed, NULL), MOTET_OK);
  assert_false(changed);
  /* Resumed from step 1: appended, and in a file of its own. */
  put("metrics.jsonl", "a", "{\"step\": 2, \"loss\": 9}\n");
  assert_int_equal(mt_history_update(&history, folder, &changed, NULL), MOTET_OK);
  expect_steps(&history, 2, (int[]){1, 2});
  put("metrics.jsonl", "w", "{\"step\": 1, \"loss\": 7}\n");
  assert_int_equal(mt_history_update(&history, folder, &changed, NULL), MOTET_OK);
  expect_steps(&history, 1, (int[]){1});
  assert_true(history.steps.data[0].values[MT_HISTORY_LOSS] == 7);
  /* Another file that is longer than the place that was read to. */
  put("metrics.jsonl", "w", "{\"step\": 4, \"loss\": 1.5}\n{\"step\": 5, \"loss\": 1.25}\n");
  put("evaluation.jsonl", "w", "{\"step\": 4, \"eval_loss\": 6}\n");
  assert_int_equal(mt_history_update(&history, folder, &changed, NULL), MOTET_OK);
  expect_steps(&history, 2, (int[]){4, 5});
  assert_int_equal(history.evaluations.count, 1);
  assert_true(history.evaluations.data[0].loss == 6);
  assert_true(mt_history_is_finished(&history));
  mt_history_free(&history);
}

static void test_foreign_text_does_not_steer(void **state) {
  (void)state;
  mt_history history = {0};
  mt_text text = {0};
  mt_progress progress = {.name = "run",
                          .history = &history,
                          .failure = "a\x1b[2Jb\xc2\x9b"
                                     "c",
                          .quiet_seconds = NAN,
                          .width = 40,
                          .unicode = true};
  mt_progress_draw(&progress, &text);
  assert_non_null(strstr(text.data, "a [2Jb c"));
  assert_null(strchr(text.data, 0x1b));
  mt_text_free(&text);
}

static void test_pictures_keep_their_size(void **state) {
  (void)state;
  mt_history history = {0};
  for (int i = 1; i <= 300; i++) {
    mt_history_step step = {.step = i};
    for (int k = 0; k < MT_HISTORY_VALUES; k++)
      step.values[k] = i % 7 == 0 ? NAN : i % 50 == 1 ? 1e300 : -1e300 / i;
    assert_true(MT_ARRAY_PUSH(&history.steps, step));
  }
  for (int width = 40; width <= 200; width += 32)
    for (int height = 8; height <= 60; height += 13) {
      mt_text text = {0};
      mt_progress progress = {
          .name = "run", .history = &history, .quiet_seconds = NAN, .width = width, .height = height};
      mt_progress_draw(&progress, &text);
      assert_false(text.failed);
      for (const char *line = text.data; *line != '\0'; line += strcspn(line, "\n") + 1)
        assert_true((int)strcspn(line, "\n") <= width);
      mt_text_free(&text);
    }
  mt_history_free(&history);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_growing_file),
      cmocka_unit_test(test_foreign_text_does_not_steer),
      cmocka_unit_test(test_pictures_keep_their_size),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
