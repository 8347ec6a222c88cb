/* Job files: what is accepted, and that what is not accepted is refused with line, key and a way out. */
#include "train/job.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MINIMAL "model: dir\noutput_dir: out\ndata:\n  train: a.jsonl\ntrain:\n  steps: 3\n"

static motet_status parse(const char *yaml, int count, char **overrides, motet_error *error, mt_job **job) {
  motet_error_clear(error);
  return mt_job_parse(yaml, strlen(yaml), "job.yaml", count, overrides, error, job);
}

static void test_minimal_job_takes_defaults(void **state) {
  (void)state;
  motet_error error;
  mt_job *job;
  assert_int_equal(parse(MINIMAL, 0, NULL, &error, &job), MOTET_OK);
  assert_string_equal(job->model, "dir");
  assert_string_equal(job->data.train, "a.jsonl");
  assert_int_equal(job->train.steps, 3);
  assert_int_equal(job->parallel.pipeline, 1);
  assert_int_equal(job->trainable.count, 3);
  assert_string_equal(job->trainable.values[1], "projector");
  assert_int_equal(job->train.betas.count, 2);
  assert_true(job->train.betas.values[1] == 0.999 && job->train.learning_rate.standard == 1e-4);
  assert_string_equal(job->train.resume, "auto");
  assert_null(job->profile);
  mt_job_destroy(job);
}

static void test_values_of_every_type(void **state) {
  (void)state;
  motet_error error;
  mt_job *job;
  const char *yaml = MINIMAL "  learning_rate: 3.5e-5\n  betas: [0.8, 0.95]\n  decay: cosine\n  microbatches: 4\n"
                             "schedule: '<vision+projector: transpose(order=fill), llm: 1f1b>'\n"
                             "trainable: [projector]\nparallel: {pipeline: 2, data: 3, split: [3, 1]}\n";
  assert_int_equal(parse(yaml, 0, NULL, &error, &job), MOTET_OK);
  assert_true(job->train.learning_rate.standard == 3.5e-5 && job->train.betas.values[0] == 0.8);
  assert_int_equal(job->train.decay, MT_JOB_DECAY_COSINE);
  assert_string_equal(job->schedule, "<vision+projector: transpose(order=fill), llm: 1f1b>");
  assert_int_equal(job->trainable.count, 1);
  assert_int_equal(job->parallel.split.count, 2);
  assert_int_equal(job->parallel.split.values[0], 3);
  assert_int_equal(job->train.global_batch, 12); /* one sample a microbatch: 4 x 3 */
  mt_job_destroy(job);
}

static void test_overrides_go_over_the_file(void **state) {
  (void)state;
  motet_error error;
  mt_job *job;
  char *words[] = {(char *)"train.steps=20", (char *)"schedule=<vision+projector: inline, llm: 1f1b>",
                   (char *)"parallel.split=[2,3]"};
  assert_int_equal(parse(MINIMAL, 3, words, &error, &job), MOTET_OK);
  assert_int_equal(job->train.steps, 20);
  assert_string_equal(job->schedule, "<vision+projector: inline, llm: 1f1b>");
  assert_int_equal(job->parallel.split.values[1], 3);
  mt_job_destroy(job);
  char *bad[] = {(char *)"train.stepz=20"};
  assert_int_equal(parse(MINIMAL, 1, bad, &error, &job), MOTET_ERROR_PARSE);
  assert_string_equal(error.file, "command line");
  assert_non_null(strstr(error.text, "train.steps"));
  char *no_value[] = {(char *)"train.steps"};
  assert_int_equal(parse(MINIMAL, 1, no_value, &error, &job), MOTET_ERROR_ARGUMENT);
}

static void test_override_takes_a_text_away(void **state) {
  (void)state;
  motet_error error;
  mt_job *job;
  char *words[] = {(char *)"profile=", (char *)"model=", (char *)"config=c.json", (char *)"init=random",
                   (char *)"data.tokenizer=t.json"};
  assert_int_equal(parse(MINIMAL "profile: p.json\n", 5, words, &error, &job), MOTET_OK);
  assert_null(job->profile);
  assert_null(job->model);
  assert_string_equal(job->config, "c.json");
  mt_job_destroy(job);
  char *number[] = {(char *)"train.seed="};
  assert_int_equal(parse(MINIMAL, 1, number, &error, &job), MOTET_ERROR_PARSE);
  char *required[] = {(char *)"output_dir="};
  assert_int_equal(parse(MINIMAL, 1, required, &error, &job), MOTET_ERROR_PARSE);
  assert_non_null(strstr(error.text, "missing"));
}

static void test_null_in_the_file_is_a_key_left_out(void **state) {
  (void)state;
  motet_error error;
  mt_job *job;
  const char *yaml = MINIMAL "  seed: Null\n  global_batch: ~\n  microbatches: 5\n"
                             "profile: null\nparallel: {split: null}\nschedule: 'null'\n";
  assert_int_equal(parse(yaml, 0, NULL, &error, &job), MOTET_OK);
  assert_null(job->profile);
  assert_int_equal(job->parallel.split.count, 0);
  assert_int_equal(job->train.seed, 0);
  assert_int_equal(job->train.global_batch, 5);
  assert_string_equal(job->schedule, "null"); /* a quoted text is itself */
  mt_job_destroy(job);
  assert_int_equal(parse("model: dir\noutput_dir: null\n", 0, NULL, &error, &job), MOTET_ERROR_PARSE);
  assert_non_null(strstr(error.text, "'output_dir' is missing"));
  assert_int_equal(parse(MINIMAL "profile:\n", 0, NULL, &error, &job), MOTET_ERROR_PARSE);
  assert_non_null(strstr(error.text, "left without a value"));
  assert_int_equal(error.line, 7);
}

static void test_override_null_unsets(void **state) {
  (void)state;
  motet_error error;
  mt_job *job;
  const char *yaml = MINIMAL "  global_batch: 64\n  seed: 9\nprofile: p.json\nparallel: {split: [1, 2]}\n"
                             "schedule: \"<vision+projector: inline, llm: 1f1b>\"\n";
  char *words[] = {(char *)"profile=null", (char *)"parallel.split=~", (char *)"train.global_batch=null",
                   (char *)"train.seed=null", (char *)"schedule=null"};
  assert_int_equal(parse(yaml, 5, words, &error, &job), MOTET_OK);
  assert_null(job->profile);
  assert_int_equal(job->parallel.split.count, 0);
  assert_int_equal(job->train.global_batch, job->train.microbatches * job->parallel.data);
  assert_int_equal(job->train.seed, 0);
  assert_string_equal(job->schedule, "<vision+projector: transpose, llm: 1f1b>");
  mt_job_destroy(job);
  char *required[] = {(char *)"output_dir=null"};
  assert_int_equal(parse(MINIMAL, 1, required, &error, &job), MOTET_ERROR_PARSE);
  assert_non_null(strstr(error.text, "missing"));
}

static void test_print_reads_back(void **state) {
  (void)state;
  motet_error error;
  mt_job *job, *again;
  const char *yaml = MINIMAL "  learning_rate: 0.1\nparallel: {pipeline: 2, split: [3, 1]}\n"
                             "schedule: \"<a \\\"b\\\\\\n: c>\"\n";
  assert_int_equal(parse(yaml, 0, NULL, &error, &job), MOTET_OK);
  mt_text first = {0}, second = {0};
  mt_job_print(job, &first);
  assert_int_equal(parse(first.data, 0, NULL, &error, &again), MOTET_OK);
  mt_job_print(again, &second);
  assert_string_equal(first.data, second.data);
  assert_string_equal(again->schedule, "<a \"b\\\n: c>");
  assert_true(again->train.learning_rate.standard == 0.1);
  assert_int_equal(again->parallel.split.count, 2);
  mt_text_free(&first), mt_text_free(&second);
  mt_job_destroy(job), mt_job_destroy(again);
}

static void test_phases_and_rates(void **state) {
  (void)state;
  motet_error error;
  mt_job *job, *again, view;
  const char *yaml =
      "model: dir\noutput_dir: out\ndata: {train: a.jsonl}\n"
      "train: {steps: 30, warmup_steps: 4, learning_rate: {vision: 1e-6, default: 2e-5}}\n"
      "phases:\n  - {until: 10, trainable: [projector], learning_rate: 1e-3, warmup_steps: 2}\n"
      "  - until: 20\n    trainable: [projector, llm]\n    schedule: '<vision+projector: inline, llm: 1f1b>'\n"
      "  - {trainable: all, decay: cosine}\n";
  assert_int_equal(parse(yaml, 0, NULL, &error, &job), MOTET_OK);
  mt_text first = {0}, second = {0};
  mt_job_print(job, &first);
  if (parse(first.data, 0, NULL, &error, &again) != MOTET_OK) fail_msg("%s in %s", error.text, first.data);
  mt_job_print(again, &second);
  assert_string_equal(first.data, second.data);
  static const struct {
    int64_t step, begin, end, warmup;
    int number, trains;
    double vision, projector;
    bool other_schedule;
    int64_t decay;
  } want[] = {
      {0, 0, 10, 2, 0, 2, 1e-3, 1e-3, false, MT_JOB_DECAY_NONE},
      {9, 0, 10, 2, 0, 2, 1e-3, 1e-3, false, MT_JOB_DECAY_NONE},
      {10, 10, 20, 4, 1, 6, 1e-6, 2e-5, true, MT_JOB_DECAY_NONE},
      {20, 20, 30, 4, 2, 7, 1e-6, 2e-5, false, MT_JOB_DECAY_COSINE},
      {30, 20, 30, 4, 2, 7, 1e-6, 2e-5, false, MT_JOB_DECAY_COSINE},
  };
  for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
    int64_t begin, end;
    assert_int_equal(mt_job_phase_at(again, want[i].step, &view, &begin, &end), want[i].number);
    assert_int_equal(begin, want[i].begin);
    assert_int_equal(end, want[i].end);
    assert_int_equal(view.train.warmup_steps, want[i].warmup);
    assert_int_equal(view.train.decay, want[i].decay);
    assert_int_equal(mt_job_trains(&view, 0) + 2 * mt_job_trains(&view, 1) + 4 * mt_job_trains(&view, 2),
                     want[i].trains);
    assert_true(mt_job_rate(&view, 0) == want[i].vision && mt_job_rate(&view, 1) == want[i].projector);
    assert_int_equal(strcmp(view.schedule, job->schedule) != 0, want[i].other_schedule);
  }
  mt_text_free(&first), mt_text_free(&second);
  mt_job_destroy(job), mt_job_destroy(again);
  /* One phase, to the end, without any of its own. */
  char *words[] = {(char *)"train.learning_rate={vision: 3e-6, llm: 1e-5, projector: 0.5}",
                   (char *)"trainable=all"};
  assert_int_equal(parse(MINIMAL, 2, words, &error, &job), MOTET_OK);
  int64_t begin, end;
  assert_int_equal(mt_job_phase_at(job, 2, &view, &begin, &end), 0);
  assert_true(begin == 0 && end == 3 && job->trainable.count == 3 && mt_job_rate(&view, 1) == 0.5);
  mt_job_destroy(job);
}

typedef struct refusal {
  const char *yaml, *key, *hint;
  int line;
} refusal;

static void test_refusals_name_line_key_and_remedy(void **state) {
  (void)state;
  static const refusal cases[] = {
      {MINIMAL "  learing_rate: 1\n", "train.learing_rate", "train.learning_rate", 7},
      {MINIMAL "microbatches: 4\n", "microbatches", "train.microbatches", 7},
      {MINIMAL "completely_else: 4\n", "completely_else", "'motet help job'", 7},
      {MINIMAL "  lr: 1e-4\n", "train.lr", "'train.learning_rate' is for that: largest", 7},
      {MINIMAL "gradient_accumulation_steps: 4\n", "gradient_accumulation_steps", "train.microbatches", 7},
      {MINIMAL "trainable: llm\n", "trainable", "[llm]", 7},
      {MINIMAL "  microbatches: many\n", "train.microbatches", "whole number from 1", 7},
      {MINIMAL "  microbatches: 0\n", "train.microbatches", "from 1", 7},
      {MINIMAL "  microbatches: 2.5\n", "train.microbatches", "whole number", 7},
      {MINIMAL "  microbatches: '2'\n", "train.microbatches", "whole number", 7},
      {MINIMAL "  learning_rate: nan\n", "train.learning_rate", "number", 7},
      {MINIMAL "  learning_rate:\n", "train.learning_rate", "without a value", 7},
      {MINIMAL "  betas: 0.9\n", "train.betas", "list of numbers", 7},
      {MINIMAL "  betas: [0.9, 1.5]\n", "train.betas", "entry 2", 7},
      {MINIMAL "  betas: [0.9]\n", "train.betas", "two numbers", 0},
      {MINIMAL "  dtype: float64\n", "train.dtype", "float32", 7},
      {MINIMAL "  decay: {}\n", "train.decay", "none|linear|cosine", 7},
      {MINIMAL "schedule: {a: b}\n", "schedule", "quotes", 7},
      {MINIMAL "schedule: <vision: transpose, llm: 1f1b>\n", "", "needs quotes", 7},
      {MINIMAL "cluster: h100\n", "cluster", "which 'motet plan' and 'motet simulate' take", 7},
      {MINIMAL "workload: {tokens: 4}\n", "workload", "cluster: h100", 7},
      {MINIMAL "clusters: 4\n", "clusters", "'motet help job'", 7},
      {MINIMAL "parallel: 2\n", "parallel", "mapping", 7},
      {MINIMAL "parallel: {tensor: 2}\n", "parallel.tensor", "supported", 7},
      {MINIMAL "output_dir: again\n", "output_dir", "twice", 7},
      {MINIMAL "---\na: b\n", "", "second", 8},
      {MINIMAL "[1]: b\n", "", "word", 7},
      {"- a\n- b\n", "", "mapping", 1},
      {"", "", "mapping", 1},
      {"a: [\n", "", "YAML", 2},
      {"model: d\noutput_dir: o\ndata: {train: t}\n", "train.steps", "missing", 0},
      {"output_dir: o\ndata: {train: t}\ntrain: {steps: 1}\n", "model", "config", 0},
      {MINIMAL "config: c\n", "model", "exclude", 0},
      {"config: c\noutput_dir: o\ndata: {train: t}\ntrain: {steps: 1}\n", "init", "random", 0},
      {"config: c\ninit: random\noutput_dir: o\ndata: {train: t}\ntrain: {steps: 1}\n", "data.tokenizer",
       "tokenizer.json", 0},
      {MINIMAL "  microbatches: 8\n  global_batch: 4\n", "train.global_batch", "at least", 0},
      {MINIMAL "phases: 3\n", "phases", "list", 7},
      {MINIMAL "phases: [3]\n", "phases", "mapping", 7},
      {MINIMAL "phases: [{until: 2}, {until: 2}]\n", "phases", "not behind", 7},
      {MINIMAL "phases: [{trainable: all}, {until: 3}]\n", "phases", "needs 'until'", 7},
      {MINIMAL "phases: [{until: 0}]\n", "phases", "whole number from 1", 7},
      {MINIMAL "phases: [{until: 2, until: 3}]\n", "phases", "once", 7},
      {MINIMAL "phases: [{until: 2}]\n", "phases", "the run at 3", 0},
      {MINIMAL "phases: [{steps: 2}]\n", "phases", "a phase takes until", 7},
      {MINIMAL "phases: [{decay: up}]\n", "train.decay", "phase 1", 7},
      {MINIMAL "  learning_rate: {vison: 1}\n", "train.learning_rate", "'vison'", 7},
      {MINIMAL "  learning_rate: {llm: 1, llm: 2}\n", "train.learning_rate", "twice", 7},
      {MINIMAL "  learning_rate: {llm: -1}\n", "train.learning_rate", "from 0", 7},
      {MINIMAL "  learning_rate: [1]\n", "train.learning_rate", "a list", 7},
      {MINIMAL "  learning_rate: {llm: 1}\n", "train.learning_rate", "vision", 0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    motet_error error;
    mt_job *job;
    if (parse(cases[i].yaml, 0, NULL, &error, &job) != MOTET_ERROR_PARSE) fail_msg("case %zu is accepted", i);
    if (strcmp(error.key, cases[i].key) != 0 || error.line != cases[i].line ||
        strstr(error.text, cases[i].hint) == NULL || strcmp(error.file, "job.yaml") != 0)
      fail_msg("case %zu: key '%s' line %d: %s", i, error.key, error.line, error.text);
  }
}

/* Every prefix of a job, and every single damaged byte, is read or refused, never worse. */
static void test_damaged_jobs_do_no_harm(void **state) {
  (void)state;
  const char *yaml = MINIMAL "  betas: [0.8, 0.95]\nparallel: &p {pipeline: 2, split: [3, 1]}\n";
  char text[512];
  for (size_t length = 0; length <= strlen(yaml); length++) {
    for (int byte = 0; byte < 256; byte += 5) {
      memcpy(text, yaml, strlen(yaml) + 1);
      text[length] = (char)byte;
      motet_error error;
      mt_job *job = NULL;
      if (mt_job_parse(text, byte == 0 ? length : strlen(yaml), "job.yaml", 0, NULL, &error, &job) == MOTET_OK)
        mt_job_destroy(job);
      else
        assert_true(error.text[0] != 0);
    }
  }
}

static void test_missing_file(void **state) {
  (void)state;
  motet_error error;
  mt_job *job;
  assert_int_equal(mt_job_read("/nowhere/job.yaml", 0, NULL, &error, &job), MOTET_ERROR_IO);
  assert_string_equal(error.file, "/nowhere/job.yaml");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_minimal_job_takes_defaults),
      cmocka_unit_test(test_values_of_every_type),
      cmocka_unit_test(test_overrides_go_over_the_file),
      cmocka_unit_test(test_override_takes_a_text_away),
      cmocka_unit_test(test_null_in_the_file_is_a_key_left_out),
      cmocka_unit_test(test_override_null_unsets),
      cmocka_unit_test(test_phases_and_rates),
      cmocka_unit_test(test_print_reads_back),
      cmocka_unit_test(test_refusals_name_line_key_and_remedy),
      cmocka_unit_test(test_damaged_jobs_do_no_harm),
      cmocka_unit_test(test_missing_file),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
