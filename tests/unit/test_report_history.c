#include "report/history.h"
#include "report/page_history.h"
#include "report/progress.h"

#include "base/text.h"

#include <jansson.h>
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

/* A list of the document's history, as "1 2 null". */
static void expect_list(const json_t *history, const char *key, const char *wanted) {
  mt_text text = {0};
  const json_t *list = json_object_get(history, key), *value;
  size_t i;
  assert_true(json_is_array(list));
  json_array_foreach(list, i, value) {
    if (i > 0) mt_text_append(&text, " ");
    if (json_is_null(value))
      mt_text_append(&text, "null");
    else
      mt_text_append(&text, "%g", json_number_value(value));
  }
  assert_string_equal(text.data != NULL ? text.data : "", wanted);
  mt_text_free(&text);
}

/* What a followed page reads: a call with a JSON document, of what lies behind a step and an evaluation. */
static void test_news(void **state) {
  (void)state;
  mt_history history = {0};
  put("job.yaml", "w", "train:\n  steps: 5\n");
  put("metrics.jsonl", "w",
      "{\"step\": 1, \"loss\": 4}\n{\"step\": 2, \"loss\": 3.5, \"tokens\": 300, \"step_seconds\": 4}\n"
      "{\"step\": 3, \"loss\": null, \"makespan_seconds\": 2, \"simulated_seconds\": 1.5}\n");
  put("evaluation.jsonl", "w", "{\"step\": 1, \"eval_loss\": 9}\n{\"step\": 3, \"eval_loss\": 8}\n");
  assert_int_equal(mt_history_update(&history, folder, NULL, NULL), MOTET_OK);
  mt_page_news news = {.page = 7,
                       .beat = 8,
                       .failure = "a \"quoted\" \x01 word",
                       .history = &history,
                       .after = {.step = 1, .evaluation = 1}};
  mt_text text = {0};
  mt_page_news_write(&news, &text);
  static const char head[] = "motetLive(", tail[] = ");\n";
  assert_memory_equal(text.data, head, sizeof head - 1);
  assert_string_equal(text.data + text.length - (sizeof tail - 1), tail);
  json_t *document = json_loadb(text.data + sizeof head - 1, text.length - sizeof head - sizeof tail + 2,
                                JSON_REJECT_DUPLICATES, NULL);
  assert_non_null(document);
  const json_t *told = json_object_get(document, "history");
  assert_int_equal(json_integer_value(json_object_get(document, "page")), 7);
  assert_int_equal(json_integer_value(json_object_get(document, "beat")), 8);
  assert_true(json_is_false(json_object_get(document, "finished")));
  assert_string_equal(json_string_value(json_object_get(document, "message")), news.failure);
  assert_int_equal(json_integer_value(json_object_get(told, "planned_steps")), 5);
  expect_list(told, "step", "2 3");
  expect_list(told, "loss", "3.5 null");
  expect_list(told, "tokens_per_second", "75 null");
  expect_list(told, "makespan_seconds", "null 2");
  expect_list(told, "simulated_seconds", "null 1.5");
  expect_list(told, "eval_step", "3");
  expect_list(told, "eval_loss", "8");
  json_decref(document);
  mt_text_free(&text);
  /* Steps that are taken away are noticed even where as many have come again. */
  int64_t before = history.rewinds;
  put("metrics.jsonl", "w", "{\"step\": 1, \"loss\": 4}\n{\"step\": 2, \"loss\": 1}\n{\"step\": 3, \"loss\": 1}\n");
  assert_int_equal(mt_history_update(&history, folder, NULL, NULL), MOTET_OK);
  assert_true(history.rewinds > before);
  mt_history_free(&history);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_growing_file),
      cmocka_unit_test(test_foreign_text_does_not_steer),
      cmocka_unit_test(test_pictures_keep_their_size),
      cmocka_unit_test(test_news),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
