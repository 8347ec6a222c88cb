/* Operations of a step: through their file, in words and as JSON, against sums by hand. */
#include "../sim_builder.h"
#include "base/text.h"
#include "report/flops_file.h"
#include "report/flops_table.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { RANKS = 2, MICROBATCHES = 3 };

static double first[MT_FLOPS_PARTS][MICROBATCHES] = {{1e12, 2e12, 3e12}, {0, 0, 0}, {0, 0, 0}};
static double second[MT_FLOPS_PARTS][MICROBATCHES] = {{2e12, 2e12, 2e12}, {2e12, 2e12, 2e12}, {1e12, 0.5e12, 0.1}};
static mt_flops_piece pieces[] = {{.stage = 0, .module = 0, .parts = {first[0], first[1], first[2]}},
                                  {.stage = 1, .module = 0, .parts = {second[0], second[1], second[2]}}};
static const mt_flops whole = {.peak = 1e13, .piece_count = 2, .microbatch_count = MICROBATCHES, .pieces = pieces};

/* 1F1B over two ranks; forwards take 1 s, backwards 2 s. */
static motet_program *make(builder *b, mt_simulation **simulation) {
  builder_begin(b, RANKS, 1, RANKS, MICROBATCHES);
  builder_cost_all(b, 1.0, 2.0);
  builder_pipeline(b, 0, RANKS, 1, 0, MICROBATCHES, false, 1000);
  builder_send_waits(b);
  motet_program *program = builder_end(b);
  *simulation = builder_simulate(b, program);
  assert_non_null(*simulation);
  return program;
}

static void test_file_reads_back(void **state) {
  (void)state;
  builder b;
  mt_simulation *simulation;
  const motet_program *program = make(&b, &simulation);
  char path[] = "/tmp/motet-flops-XXXXXX";
  close(mkstemp(path));
  motet_error error;
  const mt_flops *read;
  assert_int_equal(mt_flops_write(&whole, path, &error), MOTET_OK);
  if (mt_flops_read(b.arena, path, program, &error, &read) != MOTET_OK) fail_msg("%s", error.text);
  assert_int_equal(read->piece_count, 2);
  assert_true(read->peak == whole.peak);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(read->pieces[i].stage, i);
    assert_int_equal(read->pieces[i].module, 0);
    for (int part = 0; part < MT_FLOPS_PARTS; part++)
      assert_memory_equal(read->pieces[i].parts[part], pieces[i].parts[part], MICROBATCHES * sizeof(double));
  }
  static const struct {
    const char *text, *key;
  } wrong[] = {
      {"[", ""},
      {"{\"pieces\": 3}", "pieces"},
      {"{\"pieces\": []}", "peak_per_second"},
      {"{\"peak_per_second\": -1, \"pieces\": []}", "peak_per_second"},
      {"{\"peak_per_second\": 0, \"pieces\": [{\"stage\": 2}]}", "pieces[0].stage"},
      {"{\"peak_per_second\": 0, \"pieces\": [{\"stage\": 1, \"module\": -1}]}", "pieces[0].module"},
      {"{\"peak_per_second\": 0, \"pieces\": [{\"stage\": 1, \"module\": 0, \"forward\": [1, 2]}]}",
       "pieces[0].forward"},
      {"{\"peak_per_second\": 0, \"pieces\": [{\"stage\": 1, \"module\": 0, \"forward\": [1, 2, \"3\"]}]}",
       "pieces[0].forward"},
  };
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    motet_error_clear(&error);
    assert_int_equal(mt_file_write(path, wrong[i].text, strlen(wrong[i].text), &error), MOTET_OK);
    assert_int_equal(mt_flops_read(b.arena, path, program, &error, &read), MOTET_ERROR_PARSE);
    assert_string_equal(error.key, wrong[i].key);
    assert_string_equal(error.file, path);
  }
  unlink(path);
  builder_free(&b);
}

static double real(const json_t *object, const char *key) {
  return json_number_value(json_object_get(object, key));
}

static void test_tables(void **state) {
  (void)state;
  builder b;
  mt_simulation *simulation;
  const motet_program *program = make(&b, &simulation);
  json_t *document = mt_flops_table_json(program, simulation, &whole);
  const double total = 6e12 + 12e12 + 1.5e12 + 0.1, busy = 2 * 3 * 3, makespan = 12; /* (3 + 2 - 1) * 3 s */
  ASSERT_CLOSE(simulation->makespan, makespan, 1e-9);
  ASSERT_CLOSE(real(document, "total"), total, 1);
  ASSERT_CLOSE(real(document, "mfu"), total / (1e13 * RANKS * makespan), 1e-9);
  ASSERT_CLOSE(real(document, "busy_mfu"), total / (1e13 * busy), 1e-9);
  const json_t *module = json_array_get(json_object_get(document, "modules"), 0);
  ASSERT_CLOSE(real(module, "forward"), 12e12, 1);
  ASSERT_CLOSE(real(module, "input_gradient"), 6e12, 1);
  ASSERT_CLOSE(real(module, "weight_gradient"), 1.5e12, 1);
  const json_t *region = json_array_get(json_object_get(document, "regions"), 0);
  ASSERT_CLOSE(real(region, "flops"), total, 1);
  ASSERT_CLOSE(real(region, "seconds"), busy, 1e-9);
  json_decref(document);
  mt_text text = {0};
  mt_flops_table_text(program, simulation, &whole, &text);
  static const char *const says[] = {
      "19.5 TFLOP of model work: MFU 8.1%, of what 2 ranks at 10 TFLOP/s could do, 10.8% while", "12 TFLOP",
      "6 TFLOP", "1.5 TFLOP", "1.083 TFLOP/s"};
  for (size_t i = 0; i < sizeof says / sizeof *says; i++)
    if (strstr(text.data, says[i]) == NULL) fail_msg("no '%s' in: %s", says[i], text.data);
  mt_text_free(&text);
  mt_flops unknown = whole;
  unknown.peak = 0;
  document = mt_flops_table_json(program, simulation, &unknown);
  assert_true(json_is_null(json_object_get(document, "mfu")) &&
              json_is_null(json_object_get(document, "peak_per_second")));
  json_decref(document);
  assert_true(json_is_null(mt_flops_table_json(program, simulation, NULL)));
  builder_free(&b);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_file_reads_back), cmocka_unit_test(test_tables)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
