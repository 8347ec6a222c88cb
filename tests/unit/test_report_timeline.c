#include "../sim_builder.h"
#include "report/timeline.h"
#include "report/words.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

static motet_program *build_1f1b(builder *b, int32_t ranks, int32_t microbatches) {
  builder_begin(b, ranks, 1, ranks, microbatches);
  builder_cost_all(b, 1.0, 2.0);
  builder_pipeline(b, 0, ranks, 1, 0, microbatches, false, 0);
  builder_send_waits(b);
  builder_collective(b, MOTET_STEP_END, 0, -1, -1);
  return builder_end(b);
}

/* Takes the n-th line out of a text, without its end. */
static void line_of(const mt_text *text, int n, char *line, size_t size) {
  const char *at = text->data;
  for (; n > 0; n--) {
    at = strchr(at, '\n');
    assert_non_null(at);
    at++;
  }
  size_t length = strcspn(at, "\n");
  assert_true(length < size);
  memcpy(line, at, length);
  line[length] = '\0';
}

/* Two ranks, two microbatches, four columns a second: rank 0 F0 0-1 F1 1-2 B0 4-6 B1 7-9, rank 1 F0 1-2 B0 2-4
 * F1 4-5 B1 5-7; 49 columns are 7 of names, 36 of bar and 6 of shares. */
static void test_a_small_picture(void **state) {
  (void)state;
  builder b;
  motet_program *p = build_1f1b(&b, 2, 2);
  mt_simulation *s = builder_simulate(&b, p);
  mt_text text = {0};
  mt_timeline_options options = {.width = 49, .digits = true};
  assert_int_equal(mt_report_timeline(p, s->start, s->finish, s->idle_cause, &options, NULL, &text), MOTET_OK);
  static const char *const expected[] = {
      "s      0                   5                 busy", "       +-------------------+---------------",
      "rank 0 F0--F1--........B0======,,,,B1====== 66.7%", "rank 1 ....F0--B0======F1--B1======,,,,,,,, 66.7%",
      "F llm forward   B llm backward   . warm-up"};
  for (int i = 0; i < 5; i++) {
    char line[256];
    line_of(&text, i, line, sizeof line);
    assert_string_equal(line, expected[i]);
  }
  mt_text_free(&text);

  /* The same with line drawing. */
  options.unicode = true;
  assert_int_equal(mt_report_timeline(p, s->start, s->finish, s->idle_cause, &options, NULL, &text), MOTET_OK);
  char line[256];
  line_of(&text, 3, line, sizeof line);
  assert_string_equal(line, "rank 1 ····F0──B0━━━━━━F1──B1━━━━━━,,,,,,,, 66.7%");
  mt_text_free(&text);
  builder_free(&b);
}

/* Gaps of a measured timeline, which no instruction covers, are idle time too. */
static void test_a_measured_gap_is_idle(void **state) {
  (void)state;
  builder b;
  builder_begin(&b, 1, 1, 1, 2);
  builder_compute(&b, 0, MOTET_FWD, 0, 0);
  builder_compute(&b, 0, MOTET_FWD, 0, 1);
  motet_program *p = builder_end(&b);
  const double start[] = {0.0, 3.0}, finish[] = {1.0, 4.0};
  const uint8_t cause[] = {MT_IDLE_CAUSES, MT_IDLE_STAGE_IMBALANCE};
  mt_text text = {0};
  mt_timeline_options options = {.width = 53}; /* 40 columns of bar */
  assert_int_equal(mt_report_timeline(p, start, finish, cause, &options, NULL, &text), MOTET_OK);
  assert_non_null(strstr(text.data, "rank 0 F---------!!!!!!!!!!!!!!!!!!!!F--------- 50.0%\n"));
  mt_text_free(&text);
  assert_int_equal(mt_report_timeline(p, start, finish, NULL, &options, NULL, &text), MOTET_OK);
  assert_non_null(strstr(text.data, "rank 0 F---------                    F--------- 50.0%\n"));
  mt_text_free(&text);
  builder_free(&b);
}

static void strip_escapes(const char *from, char *to) {
  while (*from != '\0') {
    if (*from == '\x1b')
      from += strcspn(from, "m") + 1;
    else
      *to++ = *from++;
  }
  *to = '\0';
}

/* Whatever the program, the width and the manner: no line is wider than asked for, bars have one length, plain
 * output is plain ASCII, and colours end where their line ends. */
static void test_pictures_keep_their_width(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= 200; seed++) {
    mt_random random = mt_random_stream(seed, "timeline");
    builder b;
    motet_program *p = builder_random(&b, &random);
    mt_simulation *s = builder_simulate(&b, p);
    assert_non_null(s);
    mt_timeline_options options = {.width = 40 + (int)mt_random_below(&random, 160),
                                   .color = seed % 2 == 0,
                                   .unicode = seed % 3 == 0,
                                   .digits = seed % 5 != 0,
                                   .rank_limit = (int)mt_random_below(&random, 6)};
    mt_text text = {0};
    assert_int_equal(mt_report_timeline(p, s->start, s->finish, s->idle_cause, &options, NULL, &text), MOTET_OK);
    if (!options.color && !options.unicode)
      for (size_t i = 0; i < text.length; i++)
        assert_true(text.data[i] == '\n' || (text.data[i] >= 32 && text.data[i] < 127));
    for (char *line = text.data; *line != '\0';) {
      char *end = strchr(line, '\n'), plain[4096];
      *end = '\0';
      assert_true(strlen(line) < sizeof plain);
      strip_escapes(line, plain);
      if (mt_words_columns(plain) > options.width)
        fail_msg("seed %llu: %d columns of %d: %s", (unsigned long long)seed, mt_words_columns(plain),
                 options.width, plain);
      if (strncmp(plain, "rank ", 5) == 0) assert_int_equal(mt_words_columns(plain), options.width);
      const char *last = NULL;
      for (const char *at = line; (at = strchr(at, '\x1b')) != NULL; at++) last = at;
      if (last != NULL) assert_memory_equal(last, "\x1b[0m", 4);
      line = end + 1;
    }
    mt_text_free(&text);
    builder_free(&b);
  }
}

static void test_many_ranks_fold(void **state) {
  (void)state;
  builder b;
  motet_program *p = build_1f1b(&b, 12, 12);
  mt_simulation *s = builder_simulate(&b, p);
  mt_text text = {0};
  mt_timeline_options options = {.rank_limit = 5};
  assert_int_equal(mt_report_timeline(p, s->start, s->finish, s->idle_cause, &options, NULL, &text), MOTET_OK);
  assert_non_null(strstr(text.data, "ranks 3 to 9 not drawn"));
  for (int rank = 0; rank < 12; rank++) {
    char name[16];
    snprintf(name, sizeof name, "\nrank %d ", rank);
    assert_int_equal(strstr(text.data, name) != NULL, rank < 3 || rank > 9);
  }
  mt_text_free(&text);
  builder_free(&b);
}

static void test_no_time_is_said(void **state) {
  (void)state;
  builder b;
  builder_begin(&b, 1, 1, 1, 1);
  motet_program *p = builder_end(&b);
  mt_text text = {0};
  assert_int_equal(mt_report_timeline(p, NULL, NULL, NULL, NULL, NULL, &text), MOTET_OK);
  assert_string_equal(text.data, "Nothing takes any time.\n");
  mt_text_free(&text);
  builder_free(&b);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_small_picture),           cmocka_unit_test(test_a_measured_gap_is_idle),
      cmocka_unit_test(test_pictures_keep_their_width), cmocka_unit_test(test_many_ranks_fold),
      cmocka_unit_test(test_no_time_is_said),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
