#include "../sim_builder.h"
#include "report/document.h"
#include "report/plan_text.h"
#include "report/words.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

/* Four ranks of 1F1B at f = 1, b = 2, M = 8: makespan (8 + 3) * 3, and by hand all other numbers. */
static void build(builder *b, mt_report_plan *plan, motet_verification *verification, motet_rank_memory *memory) {
  builder_begin(b, 4, 1, 4, 8);
  builder_cost_all(b, 1.0, 2.0);
  builder_pipeline(b, 0, 4, 1, 0, 8, false, 0);
  builder_send_waits(b);
  builder_collective(b, MOTET_STEP_END, 0, -1, -1);
  motet_program *program = builder_end(b);
  for (int32_t rank = 0; rank < 4; rank++) memory[rank] = (motet_rank_memory){3LL << 30, 2, 4.0 - rank, 0};
  *verification = (motet_verification){.memory = memory};
  *plan = (mt_report_plan){.program = program,
                           .simulation = builder_simulate(b, program),
                           .verification = verification,
                           .schedule = "<llm: 1f1b>",
                           .bound = 33.0};
  assert_non_null(plan->simulation);
}

static double number(json_t *object, const char *key) {
  json_t *value = json_object_get(object, key);
  assert_true(json_is_number(value));
  return json_number_value(value);
}

static void test_the_document_has_the_contract_s_members(void **state) {
  (void)state;
  builder b;
  mt_report_plan plan;
  motet_verification verification;
  motet_rank_memory memory[4];
  build(&b, &plan, &verification, memory);
  json_t *document = mt_report_json_plan(&plan);
  assert_non_null(document);
  static const char *const keys[] = {
      "accepted",      "schedule",     "digest",       "makespan",     "bound",         "verified",
      "instructions",  "bubble_whole", "bubble_stage", "idle_share",   "idle_by_cause", "peak_activations",
      "peak_features", "ranks",        "flops",        "step_seconds", "memory"};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) assert_non_null(json_object_get(document, keys[i]));
  assert_int_equal(json_object_size(document), sizeof keys / sizeof *keys);
  assert_true(json_is_true(json_object_get(document, "accepted")));
  assert_true(json_is_true(json_object_get(document, "verified")));
  assert_string_equal(json_string_value(json_object_get(document, "schedule")), "<llm: 1f1b>");
  assert_int_equal(strlen(json_string_value(json_object_get(document, "digest"))), 16);
  ASSERT_NEAR(number(document, "makespan"), 33);
  ASSERT_NEAR(number(document, "bubble_whole"), 9.0 / 33);
  ASSERT_NEAR(number(document, "idle_share"), 9.0 / 33);
  assert_int_equal(number(document, "instructions"), plan.program->rank_begin[4]);
  json_t *idle = json_object_get(document, "idle_by_cause");
  static const char *const causes[] = {
      "warm_up",       "cool_down",          "stage_imbalance", "microbatch_variance",
      "communication", "data_parallel_wait", "input_stall"};
  double total = 0;
  for (size_t i = 0; i < 7; i++) total += number(idle, causes[i]);
  assert_int_equal(json_object_size(idle), 7);
  ASSERT_NEAR(total, 4 * 9.0);
  json_t *ranks = json_object_get(document, "ranks");
  assert_int_equal(json_array_size(ranks), 4);
  ASSERT_NEAR(number(json_array_get(ranks, 3), "busy"), 24);
  ASSERT_NEAR(number(json_array_get(ranks, 3), "idle"), 9);
  ASSERT_NEAR(number(json_array_get(ranks, 3), "peak_bytes"), 3221225472.0);
  ASSERT_NEAR(json_number_value(json_array_get(json_object_get(document, "peak_activations"), 1)), 3.0);

  /* Read back, every number is the same double. */
  char *text = json_dumps(document, JSON_INDENT(1));
  json_t *again = json_loads(text, 0, NULL);
  assert_true(json_equal(document, again));
  free(text);
  json_decref(again);
  json_decref(document);

  plan.verification = NULL;
  plan.bound = NAN;
  document = mt_report_json_plan(&plan);
  assert_true(json_is_null(json_object_get(document, "bound")));
  assert_true(json_is_false(json_object_get(document, "verified")));
  assert_true(json_is_null(json_object_get(document, "peak_activations")));
  assert_true(json_is_null(json_object_get(json_array_get(json_object_get(document, "ranks"), 0), "peak_bytes")));
  json_decref(document);
  plan.bound = INFINITY; /* JSON has no such number */
  assert_null(mt_report_json_plan(&plan));
  builder_free(&b);
}

static void test_memory_rows_name_the_instruction(void **state) {
  (void)state;
  builder b;
  mt_report_plan plan;
  motet_verification verification;
  motet_rank_memory memory[4];
  build(&b, &plan, &verification, memory);
  int64_t index = 0;
  while (plan.program->instructions[index].kind != MOTET_FWD) index++;
  memory[0].peak_instruction = index;
  memory[1].peak_instruction = -1;
  json_t *rows = mt_report_json_memory(plan.program, &verification);
  assert_int_equal(json_array_size(rows), 4);
  assert_string_equal(json_string_value(json_object_get(json_array_get(rows, 0), "at")),
                      "FWD of llm.0, microbatch 0");
  assert_true(json_is_null(json_object_get(json_array_get(rows, 1), "at")));
  ASSERT_NEAR(number(json_array_get(rows, 2), "peak_bytes"), 3221225472.0);
  json_decref(rows);
  json_t *timeline = mt_report_json_timeline(plan.program, plan.simulation->start, plan.simulation->finish);
  json_t *events = json_array_get(json_object_get(timeline, "ranks"), 2);
  assert_int_equal(json_array_size(events), plan.program->rank_begin[3] - plan.program->rank_begin[2]);
  json_decref(timeline);
  builder_free(&b);
}

static void test_the_summary_says_what_the_numbers_are(void **state) {
  (void)state;
  builder b;
  mt_report_plan plan;
  motet_verification verification;
  motet_rank_memory memory[4];
  build(&b, &plan, &verification, memory);
  mt_text text = {0};
  mt_report_plan_text(&plan, NULL, &text);
  static const char *const parts[] = {"<llm: 1f1b>\n",
                                      "4 ranks, 8 microbatches",
                                      "33 s; no order takes less than 33 s (optimal)",
                                      "27.27% of the makespan",
                                      "warm up",
                                      "3 GiB",
                                      "72.7%",
                                      "critical path"};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    if (strstr(text.data, parts[i]) == NULL) fail_msg("\"%s\" is missing in\n%s", parts[i], text.data);
  mt_text_free(&text);
  plan.bound = 30.0;
  mt_plan_text_options options = {.rank_limit = 2, .unicode = true};
  mt_report_plan_text(&plan, &options, &text);
  assert_non_null(strstr(text.data, "(10.00% above that bound)"));
  assert_non_null(strstr(text.data, "ranks 1 to 2 not listed"));
  mt_text_free(&text);
  builder_free(&b);
}

static void test_numbers_and_sizes_read_well(void **state) {
  (void)state;
  static const struct {
    double value;
    int digits;
    const char *text;
  } numbers[] = {{33, 6, "33"},
                 {0.1, 6, "0.1"},
                 {26.25, 4, "26.25"},
                 {1.0 / 3, 4, "0.333"},
                 {0, 6, "0"},
                 {1234567, 4, "1234567"},
                 {-2.5, 4, "-2.5"},
                 {1e-7, 3, "1e-07"},
                 {99999.5, 9, "99999.5"},
                 {-1e-9, 3, "-1e-09"},
                 {1e-4, 4, "0.0001"},
                 {0.0123456, 4, "0.0123"},
                 {0.05, 4, "0.05"},
                 {-0.00098765, 3, "-0.00099"}};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    mt_text text = {0};
    mt_words_number(&text, numbers[i].value, numbers[i].digits);
    assert_string_equal(text.data, numbers[i].text);
    mt_text_free(&text);
  }
  static const struct {
    int64_t bytes;
    const char *text;
  } sizes[] = {{0, "0 B"}, {1023, "1023 B"}, {1536, "1.5 KiB"}, {3LL << 30, "3 GiB"}, {INT64_MAX, "8 EiB"}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    mt_text text = {0};
    mt_words_bytes(&text, sizes[i].bytes);
    assert_string_equal(text.data, sizes[i].text);
    mt_text_free(&text);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_the_document_has_the_contract_s_members),
      cmocka_unit_test(test_memory_rows_name_the_instruction),
      cmocka_unit_test(test_the_summary_says_what_the_numbers_are),
      cmocka_unit_test(test_numbers_and_sizes_read_well),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
