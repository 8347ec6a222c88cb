/* Group times, cost files, degree sets, and memory exact at its borders. */
#include "base/text.h"
#include "motet/pack.h"
#include "pack/cost.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool near(double a, double b) { return fabs(a - b) <= 1e-12 * fabs(b); }

/* Round numbers, worked by hand. */
static void times_by_hand(void **unused) {
  (void)unused;
  motet_pack_cost cost = {.attention_seconds_per_area = 1e-6,
                          .linear_seconds_per_token = 1e-3,
                          .fixed_seconds = 0.5,
                          .ring_bytes_per_token = 1000,
                          .latency_seconds_per_hop = 0.01,
                          .bandwidth_count = 2,
                          .bandwidth_degree = {2, 8},
                          .bandwidth_bytes_per_second = {1e6, 1e5}};
  double area = motet_pack_causal_area(1000); /* 500000: 0.5 s */
  assert_true(area == 500000);
  assert_true(near(motet_pack_seconds(&cost, 1000, area, 1), 0.5 + 1.0 + 0.5));
  /* d = 2: ring 1e6 / (2 * 1e6) + 0.01 = 0.51 s, attention 0.25 s. */
  assert_true(near(motet_pack_seconds(&cost, 1000, area, 2), 0.5 + 0.5 + 0.51));
  /* d = 4 is not listed: the bandwidth of 8; ring 1e6 * 3 / (4 * 1e5) + 0.03 = 7.53 s. */
  assert_true(near(motet_pack_seconds(&cost, 1000, area, 4), 0.5 + 0.25 + 7.53));
  /* d = 10: beyond the last; ring 1e6 * 9 / (10 * 1e5) + 0.09 = 9.09 s. */
  assert_true(near(motet_pack_seconds(&cost, 1000, area, 10), 0.5 + 0.1 + 9.09));
  cost.no_overlap = true;
  assert_true(near(motet_pack_seconds(&cost, 1000, area, 2), 0.5 + 0.5 + 0.51 + 0.25));
  assert_true(motet_pack_seconds(&cost, 0, 0, 2) == 0);
}

static void reads_a_cost_file(void **unused) {
  (void)unused;
  motet_pack_cost cost;
  assert_int_equal(motet_pack_cost_read(MOTET_TEST_DATA "/pack/flexsp_7b.json", NULL, &cost), MOTET_OK);
  assert_true(cost.attention_seconds_per_area == 1.0256e-8 && cost.fixed_seconds == 0.62936);
  assert_int_equal(cost.bandwidth_count, 6);
  assert_int_equal(cost.bandwidth_degree[3], 16);
  assert_true(cost.bandwidth_bytes_per_second[3] == 10.33e9);
  assert_false(cost.no_overlap);
}

static void names_the_key(void **unused) {
  (void)unused;
  static const struct {
    const char *text, *key;
  } cases[] = {
      {"{\"linear_s_per_token\": 1}", "attn_s_per_area"},
      {"{\"attn_s_per_area\": 1}", "linear_s_per_token"},
      {"{\"attn_s_per_area\": -1, \"linear_s_per_token\": 1}", "attn_s_per_area"},
      {"{\"attn_s_per_area\": \"1\", \"linear_s_per_token\": 1}", "attn_s_per_area"},
      {"{\"attn_s_per_area\": 1, \"linear_s_per_token\": 1, \"fixed\": 1}", "fixed"},
      {"{\"attn_s_per_area\": 1, \"linear_s_per_token\": 1, \"overlap\": 1}", "overlap"},
      {"{\"attn_s_per_area\": 1, \"linear_s_per_token\": 1, \"ring_bytes_per_token\": 1}", "bandwidth_bytes_per_s"},
      {"{\"attn_s_per_area\": 1, \"linear_s_per_token\": 1, \"bandwidth_bytes_per_s\": [1]}",
       "bandwidth_bytes_per_s"},
      {"{\"attn_s_per_area\": 1, \"linear_s_per_token\": 1, \"bandwidth_bytes_per_s\": {\"2\": 0}}",
       "bandwidth_bytes_per_s"},
      {"{\"attn_s_per_area\": 1, \"linear_s_per_token\": 1, \"bandwidth_bytes_per_s\": {\"x\": 1}}",
       "bandwidth_bytes_per_s"},
      {"{\"attn_s_per_area\": 1, \"linear_s_per_token\": 1, \"bandwidth_bytes_per_s\": {\"2\": 1, \"02\": 2}}",
       "bandwidth_bytes_per_s"},
  };
  char path[] = "/tmp/motet_cost_XXXXXX";
  int file = mkstemp(path);
  assert_true(file >= 0);
  close(file);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    motet_error error;
    motet_pack_cost cost;
    motet_error_clear(&error);
    assert_int_equal(mt_file_write(path, cases[i].text, strlen(cases[i].text), &error), MOTET_OK);
    assert_int_equal(motet_pack_cost_read(path, &error, &cost), MOTET_ERROR_PARSE);
    assert_string_equal(error.key, cases[i].key);
    assert_int_equal(error.line, 1);
  }
  unlink(path);
}

static void degree_sets(void **unused) {
  (void)unused;
  static const struct {
    const char *text;
    int32_t limit, count, degrees[12];
  } good[] = {{"all", 5, 5, {1, 2, 3, 4, 5}},           {"pow2", 20, 5, {1, 2, 4, 8, 16}},
              {"divisors:28", 20, 5, {1, 2, 4, 7, 14}}, {"divisors:28", 64, 6, {1, 2, 4, 7, 14, 28}},
              {"list:1,2,3", 64, 3, {1, 2, 3}},         {"list:2,40,90", 64, 2, {2, 40}},
              {"usp:4,2", 64, 4, {1, 2, 4, 8}}, /* U in {1, 2, 4}, R in {1, 2} */
              {"usp:28,1", 64, 6, {1, 2, 4, 7, 14, 28}}};
  for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
    int32_t *degrees, count;
    assert_int_equal(mt_pack_degrees_parse(good[i].text, good[i].limit, NULL, &degrees, &count), MOTET_OK);
    assert_int_equal(count, good[i].count);
    for (int32_t d = 0; d < count; d++) assert_int_equal(degrees[d], good[i].degrees[d]);
    free(degrees);
  }
  static const char *const bad[] = {
      "",        "some",      "list:",      "list:0",      "list:2,1", "list:1,1", "list:1,,2",       "list:1;2",
      "list:99", "divisors:", "divisors:0", "divisors:4x", "usp:4",    "usp:4,0",  "list:99999999999"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    int32_t *degrees, count;
    motet_error error;
    assert_int_equal(mt_pack_degrees_parse(bad[i], 64, &error, &degrees, &count), MOTET_ERROR_ARGUMENT);
    assert_null(degrees);
  }
}

static const motet_pack_plan *plan_one(motet_packer *packer, int64_t tokens, motet_status expected,
                                       motet_error *error) {
  motet_pack_sequence sequence = {tokens, motet_pack_causal_area(tokens)};
  const motet_pack_plan *plan;
  motet_error_clear(error);
  assert_int_equal(motet_packer_plan(packer, &sequence, 1, error, &plan), expected);
  return plan;
}

/* k * chunk tokens need k ranks, one more needs k + 1; one more than all ranks hold is refused. A ring so slow that
 * the planner never takes more ranks than it must. */
static void memory_borders(void **unused) {
  (void)unused;
  enum { RANKS = 9, CHUNK = 8192 };
  motet_pack_options options = {.ranks = RANKS,
                                .memory_tokens = CHUNK,
                                .cost = {.linear_seconds_per_token = 1e-6, .latency_seconds_per_hop = 10}};
  motet_packer *packer;
  motet_error error;
  assert_int_equal(motet_packer_create(&options, NULL, &packer), MOTET_OK);
  assert_int_equal(motet_packer_longest(packer), RANKS * CHUNK);
  for (int32_t k = 1; k <= RANKS; k++) {
    assert_int_equal(plan_one(packer, (int64_t)k * CHUNK, MOTET_OK, &error)->groups[0].degree, k);
    if (k < RANKS)
      assert_int_equal(plan_one(packer, (int64_t)k * CHUNK + 1, MOTET_OK, &error)->groups[0].degree, k + 1);
  }
  plan_one(packer, RANKS * CHUNK + 1, MOTET_ERROR_ILLEGAL, &error);
  assert_string_equal(error.rule, "memory");
  assert_non_null(strstr(error.text, "73728"));
  plan_one(packer, 0, MOTET_ERROR_ARGUMENT, &error);
  plan_one(packer, -7, MOTET_ERROR_ARGUMENT, &error);
  assert_non_null(strstr(error.text, "-7"));
  const motet_pack_plan *plan;
  assert_int_equal(motet_packer_plan(packer, NULL, 0, NULL, &plan), MOTET_OK);
  assert_true(plan->value == 0 && plan->group_count == 0);
  motet_packer_destroy(packer);
}

static void bad_options(void **unused) {
  (void)unused;
  motet_pack_options good = {.ranks = 8, .memory_tokens = 100, .cost = {.linear_seconds_per_token = 1}};
  int32_t falling[] = {4, 2}, wide[] = {16};
  motet_pack_options bad[9];
  for (int i = 0; i < 9; i++) bad[i] = good;
  bad[0].ranks = 0;
  bad[1].memory_tokens = 0;
  bad[2].cost.linear_seconds_per_token = -1;
  bad[3].degrees = falling, bad[3].degree_count = 2;
  bad[4].degrees = wide, bad[4].degree_count = 1;
  bad[5].planner = MOTET_PACK_STATIC;
  bad[6].batch = MOTET_PACK_FIXED;
  bad[7].cost.fixed_seconds = NAN;
  bad[8].deadline_ms = -1;
  motet_packer *packer;
  for (int i = 0; i < 9; i++) {
    motet_error error;
    motet_error_clear(&error);
    assert_int_equal(motet_packer_create(&bad[i], &error, &packer), MOTET_ERROR_ARGUMENT);
    assert_null(packer);
    assert_true(strlen(error.text) > 0);
  }
  good.scope = MOTET_PACK_GLOBAL;
  good.planner = MOTET_PACK_LPT;
  assert_int_equal(motet_packer_create(&good, NULL, &packer), MOTET_ERROR_UNSUPPORTED);
  motet_packer_destroy(NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(times_by_hand), cmocka_unit_test(reads_a_cost_file), cmocka_unit_test(names_the_key),
      cmocka_unit_test(degree_sets),   cmocka_unit_test(memory_borders),    cmocka_unit_test(bad_options),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
