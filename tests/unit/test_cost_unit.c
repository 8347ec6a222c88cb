#include "cost/unit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static mt_arena *arena;

static int set_up(void **state) {
  (void)state;
  arena = mt_arena_create();
  return arena == NULL;
}

static int tear_down(void **state) {
  (void)state;
  mt_arena_destroy(arena);
  return 0;
}

static void test_named_units(void **state) {
  (void)state;
  mt_unit *units;
  int32_t count;
  motet_error error;
  assert_int_equal(mt_unit_parse(arena, " vision: f=1 ; llm : f = 1.5, x=1,w=2;", &error, &units, &count),
                   MOTET_OK);
  assert_int_equal(count, 2);
  assert_string_equal(units[0].name, "vision");
  assert_false(units[0].has_backward);
  assert_string_equal(units[1].name, "llm");
  assert_true(units[1].has_backward);
  assert_true(units[1].forward == 1.5 && units[1].backward == 3 && units[1].input == 1 && units[1].weight == 2);
}

static void test_one_unit_without_a_name(void **state) {
  (void)state;
  mt_unit *units;
  int32_t count;
  assert_int_equal(mt_unit_parse(arena, "f=1, b=3", NULL, &units, &count), MOTET_OK);
  assert_int_equal(count, 1);
  assert_string_equal(units[0].name, "");
  assert_true(units[0].input == 1.5 && units[0].weight == 1.5);
}

static void test_bad_units_say_where(void **state) {
  (void)state;
  static const struct {
    const char *text, *words;
  } cases[] = {
      {"", "column 1"},
      {"llm:", "column 5"},
      {"llm: g=1", "f, b, x or w"},
      {"llm: f=-1", "not negative"},
      {"llm: f=nan", "finite"},
      {"llm: f=1e999", "finite"},
      {"llm: f=1, f=2", "once"},
      {"llm: f=1 b=2", "','"},
      {"llm: f=1, x=1", "both"},
      {"llm: f=1, b=5, x=1, w=2", "x + w"},
      {"f=1; llm: f=1", "name"},
      {"llm: f=1; llm: f=2", "twice"},
      {": f=1", "name of a module"},
      {"llm: f", "'='"},
      {"llm: f=", "number"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    mt_unit *units;
    int32_t count;
    motet_error error;
    assert_true(mt_unit_parse(arena, cases[i].text, &error, &units, &count) < 0);
    if (strstr(error.text, cases[i].words) == NULL) fail_msg("'%s': %s", cases[i].text, error.text);
  }
}

static void test_numbers(void **state) {
  (void)state;
  double *numbers;
  int32_t count;
  motet_error error;
  assert_int_equal(mt_unit_numbers(arena, "0.4, 0,2", "--encode", &error, &numbers, &count), MOTET_OK);
  assert_int_equal(count, 3);
  assert_true(numbers[0] == 0.4 && numbers[1] == 0 && numbers[2] == 2);
  assert_true(mt_unit_numbers(arena, "1,,2", "--encode", &error, &numbers, &count) < 0);
  assert_non_null(strstr(error.text, "--encode: column 3"));
  assert_true(mt_unit_numbers(arena, "", "--encode", &error, &numbers, &count) < 0);
  assert_true(mt_unit_numbers(arena, "1 2", "--encode", &error, &numbers, &count) < 0);
}

/* A stage of 2/3 of unit 0 (trained) and all of unit 1 (frozen, passed through by the backward). */
static void test_table_adds_shares(void **state) {
  (void)state;
  mt_unit units[] = {{.name = "a", .forward = 3, .backward = 9, .input = 3, .weight = 6, .has_forward = true},
                     {.name = "b", .forward = 10, .backward = 8, .input = 4, .weight = 4, .has_forward = true}};
  mt_unit_share shares[] = {{.stage = 1, .unit = 0, .forward = 2.0 / 3, .trainable = 2.0 / 3},
                            {.stage = 1, .unit = 1, .forward = 1, .frozen = 1}};
  mt_unit_request request = {
      .units = units, .shares = shares, .unit_count = 2, .share_count = 2, .stage_count = 2, .microbatches = 3};
  mt_cost_table table = {0};
  assert_int_equal(mt_unit_table(arena, &request, NULL, &table), MOTET_OK);
  for (int32_t m = 0; m < 3; m++) {
    assert_true(mt_cost_seconds(&table, MT_COST_FORWARD, 0, m) == 0);
    assert_true(mt_cost_seconds(&table, MT_COST_FORWARD, 1, m) == 12);
    assert_true(mt_cost_seconds(&table, MT_COST_BACKWARD, 1, m) == 10); /* 2/3 of 9, and the frozen 4 */
    assert_true(mt_cost_seconds(&table, MT_COST_BACKWARD_X, 1, m) == 6);
    assert_true(mt_cost_seconds(&table, MT_COST_BACKWARD_W, 1, m) == 4);
  }
  /* Unit 1 varies: its backward follows in proportion; microbatch 1 has nothing for it. */
  double encode[] = {20, 7};
  uint64_t active[] = {3, 1, 3};
  request.encode = encode;
  request.encode_count = 2;
  request.varied = 2;
  request.active = active;
  assert_int_equal(mt_unit_table(arena, &request, NULL, &table), MOTET_OK);
  static const double forward[] = {22, 2, 22}, backward[] = {14, 6, 14};
  for (int32_t m = 0; m < 3; m++) {
    assert_true(mt_cost_seconds(&table, MT_COST_FORWARD, 1, m) == forward[m]);
    assert_true(mt_cost_seconds(&table, MT_COST_BACKWARD, 1, m) == backward[m]);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_named_units),         cmocka_unit_test(test_one_unit_without_a_name),
      cmocka_unit_test(test_bad_units_say_where), cmocka_unit_test(test_numbers),
      cmocka_unit_test(test_table_adds_shares),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
