/* Traces and named distributions. */
#include "workload/trace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static void reads_a_trace(void **unused) {
  (void)unused;
  motet_error error;
  mt_trace trace;
  assert_int_equal(mt_trace_read(MOTET_TEST_DATA "/pack/trace.jsonl", &error, &trace), MOTET_OK);
  assert_int_equal(trace.count, 4);
  assert_string_equal(trace.items[0].id, "long");
  assert_int_equal(trace.items[0].tokens, 131072);
  assert_true(trace.items[0].area == 131072.0 * 131072.0 / 2);
  assert_true(trace.items[1].area == 134217728.0);
  assert_string_equal(trace.items[2].id, "4"); /* its line */
  assert_int_equal(trace.items[2].line, 4);
  assert_string_equal(trace.items[3].id, "17");
  mt_trace_destroy(&trace);
}

static void names_the_line(void **unused) {
  (void)unused;
  static const struct {
    const char *text;
    int line;
    const char *key;
  } cases[] = {
      {"{\"tokens\": 1}\n{\"tokens\": 0}\n", 2, "tokens"},
      {"{\"tokens\": -5}", 1, "tokens"},
      {"{\"tokens\": 1.5}", 1, "tokens"},
      {"{\"tokens\": 2000000000000}", 1, "tokens"},
      {"{\"tokens\": 99999999999999999999}", 1, ""},
      {"\n\n{\"tokens\": \"7\"}", 3, "tokens"},
      {"{\"id\": \"a\"}", 1, "tokens"},
      {"{\"tokens\": 4, \"area\": 17}", 1, "area"},
      {"{\"tokens\": 4, \"area\": -1}", 1, "area"},
      {"{\"tokens\": 4, \"aera\": 1}", 1, "aera"},
      {"{\"tokens\": 4, \"id\": \"\"}", 1, "id"},
      {"{\"tokens\": 4, \"id\": [1]}", 1, "id"},
      {"{\"id\": \"a\", \"tokens\": 4}\n{\"id\": \"a\", \"tokens\": 5}", 2, "id"},
      {"{\"tokens\": 4, \"tokens\": 5}", 1, ""},
      {"[1]", 1, ""},
      {"{\"tokens\": 4}\nnonsense", 2, ""},
      {"{\"tokens\": 4} {\"tokens\": 4}", 1, ""},
      {"", 1, ""},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    motet_error error;
    mt_trace trace;
    motet_error_clear(&error);
    assert_int_equal(mt_trace_parse(cases[i].text, strlen(cases[i].text), "t.jsonl", &error, &trace),
                     MOTET_ERROR_PARSE);
    assert_int_equal(error.line, cases[i].line);
    assert_string_equal(error.key, cases[i].key);
    assert_string_equal(error.file, "t.jsonl");
    assert_true(strlen(error.text) > 0);
  }
}

static mt_trace draw(const char *name, int32_t count, uint64_t seed) {
  mt_distribution distribution = {name, count, seed, 64, 8192};
  motet_error error;
  mt_trace trace;
  if (mt_distribution_draw(&distribution, &error, &trace) != MOTET_OK) fail_msg("%s", error.text);
  assert_int_equal(trace.count, count);
  return trace;
}

/* Batches of 128: one long and 127 of (64 * 8192 - long) / 127 tokens in about half of them, else uniform. */
static void bursts(void **unused) {
  (void)unused;
  static const struct {
    const char *name;
    int64_t burst, other;
  } cases[] = {{"burst-128k", 131072, 3096}, {"burst-192k", 196608, 2580}, {"burst-224k", 229376, 2322}};
  enum { BATCHES = 400, BATCH = 128 };
  for (int c = 0; c < 3; c++) {
    mt_trace trace = draw(cases[c].name, BATCHES * BATCH, 3);
    int with_burst = 0;
    double sum = 0;
    for (int b = 0; b < BATCHES; b++) {
      const mt_trace_item *items = trace.items + b * BATCH;
      bool burst = items[0].tokens == cases[c].burst;
      with_burst += burst;
      for (int i = burst; i < BATCH; i++) {
        if (burst)
          assert_int_equal(items[i].tokens, cases[c].other);
        else
          assert_in_range(items[i].tokens, 512, 4096);
        if (!burst) sum += (double)items[i].tokens;
      }
    }
    assert_in_range(with_burst, BATCHES / 2 - 40, BATCHES / 2 + 40); /* four standard deviations */
    assert_true(fabs(sum / ((BATCHES - with_burst) * BATCH) - 2304) < 30);
    mt_trace_destroy(&trace);
  }
}

static int ascending(const void *a, const void *b) {
  int64_t x = ((const mt_trace_item *)a)->tokens, y = ((const mt_trace_item *)b)->tokens;
  return (x > y) - (x < y);
}

static int64_t quantile(mt_trace *trace, double share) {
  qsort(trace->items, (size_t)trace->count, sizeof *trace->items, ascending);
  return trace->items[(int32_t)(share * (trace->count - 1))].tokens;
}

static void wikipedia_quantiles(void **unused) {
  (void)unused;
  static const struct {
    double share, tokens;
  } published[] = {{0.05, 67}, {0.25, 146}, {0.5, 347}, {0.75, 862}, {0.9, 2112}, {0.95, 3721}, {0.99, 10921}};
  mt_trace trace = draw("wikipedia", 100000, 11);
  for (size_t i = 0; i < sizeof published / sizeof *published; i++)
    assert_true(fabs(log((double)quantile(&trace, published[i].share) / published[i].tokens)) < 0.06);
  assert_true(quantile(&trace, 1) <= 64 * 8192); /* the clamp */
  mt_trace_destroy(&trace);
}

/* 256 tokens a second, whole seconds: shares of the published ranges. */
static void video_durations(void **unused) {
  (void)unused;
  enum { COUNT = 50000 };
  mt_trace trace = draw("internvid", COUNT, 5);
  static const struct {
    double seconds, share;
  } below[] = {{2, 0.25}, {5, 0.567}, {10, 0.741}, {20, 0.873}, {30, 0.922}, {60, 0.974}, {300, 1}};
  for (size_t i = 0; i < sizeof below / sizeof *below; i++) {
    int count = 0;
    for (int k = 0; k < COUNT; k++) count += trace.items[k].tokens <= (int64_t)(256 * below[i].seconds);
    assert_true(fabs((double)count / COUNT - below[i].share) < 0.01);
  }
  mt_trace_destroy(&trace);
  trace = draw("msrvtt", COUNT, 5);
  double sum = 0;
  for (int k = 0; k < COUNT; k++) {
    assert_in_range(trace.items[k].tokens, 10 * 256, 30 * 256);
    sum += (double)trace.items[k].tokens / 256;
  }
  assert_true(fabs(sum / COUNT - 15.3) < 0.2); /* mean 14.8, rounded up to whole seconds */
  mt_trace_destroy(&trace);
  trace = draw("openvid", COUNT, 5);
  assert_in_range(quantile(&trace, 0.5), 5 * 256, 6 * 256);
  assert_in_range(quantile(&trace, 0), 2 * 256, 2 * 256);
  assert_true(quantile(&trace, 1) <= 120 * 256);
  mt_trace_destroy(&trace);
}

/* The n-th sequence does not depend on how many are drawn; the seed matters; unknown names are refused. */
static void streams(void **unused) {
  (void)unused;
  mt_trace few = draw("openvid", 10, 1), many = draw("openvid", 1000, 1), other = draw("openvid", 10, 2);
  int equal = 0;
  for (int i = 0; i < 10; i++) {
    assert_int_equal(few.items[i].tokens, many.items[i].tokens);
    equal += few.items[i].tokens == other.items[i].tokens;
  }
  assert_true(equal < 10);
  mt_trace_destroy(&few);
  mt_trace_destroy(&many);
  mt_trace_destroy(&other);
  motet_error error;
  mt_trace trace;
  mt_distribution unknown = {"burst", 10, 1, 64, 8192};
  assert_int_equal(mt_distribution_draw(&unknown, &error, &trace), MOTET_ERROR_ARGUMENT);
  assert_non_null(strstr(error.text, "burst-128k"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(reads_a_trace),       cmocka_unit_test(names_the_line),  cmocka_unit_test(bursts),
      cmocka_unit_test(wikipedia_quantiles), cmocka_unit_test(video_durations), cmocka_unit_test(streams),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
