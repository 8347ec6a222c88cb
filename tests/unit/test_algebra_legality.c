/* Refusals: status, rule, region, and the words that say what is wrong and what would be accepted. */
#include "algebra_model.h"

typedef struct refusal {
  const char *model, *schedule, *rule, *key;
  const char *words[4];
} refusal;

static const refusal refusals[] = {
    {"v:t p:t l:t", "<vision: transpose, p: transpose, l: 1f1b>", "cut", "vision", {"no module 'vision'", "v+p+l"}},
    {"v:t p:t l:t", "<v: transpose, v+p: transpose, l: 1f1b>", "cut", "v", {"named twice", "column 16"}},
    {"v:t p:t l:t", "<v: transpose, l: 1f1b>", "cut", "p", {"p is missing", "every module"}},
    {"v:t p:t l:t", "<l: 1f1b, v+p: transpose>", "cut", "l", {"l is out of order", "v+p+l"}},
    {"v:t p:t l:t", "<p+v: transpose, l: 1f1b>", "cut", "p", {"p is out of order", "v comes before"}},
    {"v:t p:t l:t", "<v+l: transpose, p: 1f1b>", "cut", "l", {"not contiguous", "p stands between"}},
    {"v:t p:t l:t g:t", "<transpose, 1f1b, transpose>", "cut", "", {"3 skeletons", "4 modules", "v+p+l | g"}},
    {"v:t l:t", "<v: transpose, 1f1b>", "cut", "", {"1 of 2 terms", "all of them or none"}},
    {"v:t a:t l:t | 0-2 1-2", "<1f1b>", "cut", "v+a+l", {"no chain", "side by side"}},
    {"v:t p:t l:t", "<(v: transpose | p: transpose), l: 1f1b>", "cut", "p", {"side by side", "v feeds p", "comma"}},
    {"v:t p:t l:t",
     "<v: transpose(window=8), p: transpose, l: 1f1b>",
     "neighbours",
     "p",
     {"transpose(window=8)", "differ in their options", "equal options", "1f1b or inline"}},
    {"v:t p:t l:t",
     "<v: transpose(order=prefix), p: transpose(order=fill), l: 1f1b>",
     "neighbours",
     "p",
     {"transpose(order=prefix)", "Replicated", "equal options"}},
    {"v:t a:t p:t l:t | 0-2 1-2 2-3",
     "<(v: transpose | a: transpose), p: transpose, l: 1f1b>",
     "neighbours",
     "p",
     {"cannot become one region", "several branches", "inline for p"}},
    {"v:t l:t", "<v: zb1p, l: zb1p>", "mixed", "l", {"both zb1p", "several regions is not defined", "one region"}},
    {"v:t l:t", "<v: 1f1b, l: zbv>", "mixed", "l", {"v (1f1b)", "l (zbv)", "joint order is not defined"}},
    {"v:t l:t", "<gpipe, 1f1b>", "mixed", "l", {"v (gpipe)", "l (1f1b)", "joint order is not defined", "same"}},
    {"v:t p:t l:t", "<v: gpipe, p: transpose, l: 1f1b>", "mixed", "l", {"v (gpipe)", "accepted"}},
    {"v:t l:t", "<v: transpose, l: inline>", "inline", "l", {"no one Sharded region", "1f1b, gpipe"}},
    {"l:t", "<inline>", "inline", "l", {"Sharded region", "accepted"}},
    {"v:t p:t l:t", "<v: inline, p: transpose, l: 1f1b>", "inline", "v", {"Sharded", "transpose for v"}},
    {"v:t a:t l:t | 0-2 1-2",
     "<(v: inline | a: transpose), l: 1f1b>",
     "inline",
     "v",
     {"another region's layers lie between", "accepted"}},
    {"l:t i:t s:t | 0-1 0-2", "<l: 1f1b, (i: inline | s: transpose)>", "inline", "i", {"feeds others beside it"}},
    {"v:ft l:t", "<transpose(order=ahead), 1f1b>", "ahead", "v", {"v.1 is trainable", "next step", "order=fill"}},
    {"v:f p:t l:t", "<transpose(order=ahead), 1f1b>", "ahead", "v+p", {"p.0 is trainable", "frozen"}},
    {"v:t l:f g:f", "<v: 1f1b, l: 1f1b, g: transpose(order=ahead)>", "ahead", "g", {"v.0 is trainable"}},
    {"l:f g:f", "<l: 1f1b, g: transpose(order=ahead)>", "ahead", "g", {"other regions feed it", "first region"}},
    {"v:t l:t",
     "<transpose(order=prefix, window=7), 1f1b>",
     "window",
     "v",
     {"window=7", "all 8", "window=8 or more", "order=fill"}},
    {"v:t l:t",
     "<transpose(window=3, batch=4), 1f1b>",
     "window",
     "v",
     {"4 features at a time", "window=4 or more"}},
    {"v:t l:t", "<1f1b(batch=2), 1f1b>", "mixed", "l", {"1f1b(batch=2)", "one and the same batch"}},
    {"v:t p:t l:t",
     "<transpose(batch=2), transpose, 1f1b>",
     "neighbours",
     "p",
     {"transpose(batch=2)", "equal options"}},
};

static void test_refusals(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
    const refusal *row = &refusals[i];
    mt_arena *arena = mt_arena_create();
    motet_error error;
    mt_derivation *d = NULL;
    motet_status status = try_derive(arena, model_of(arena, row->model), row->schedule, 2, 8, &error, &d);
    if (status != MOTET_ERROR_ILLEGAL) fail_msg("%s on %s: status %d", row->schedule, row->model, status);
    if (strcmp(error.rule, row->rule) != 0 || strcmp(error.key, row->key) != 0)
      fail_msg("%s: rule '%s', key '%s': %s", row->schedule, error.rule, error.key, error.text);
    if (strstr(error.text, "accepted: ") == NULL) fail_msg("%s", error.text);
    for (int w = 0; w < 4 && row->words[w] != NULL; w++)
      if (strstr(error.text, row->words[w]) == NULL)
        fail_msg("%s: '%s' lacks '%s'", row->schedule, error.text, row->words[w]);
    mt_arena_destroy(arena);
  }
}

static void expect_split(const char *schedule_text, const int32_t *split, int32_t count, const char *key,
                         const char *words) {
  mt_arena *arena = mt_arena_create();
  motet_error error;
  mt_schedule *schedule = NULL;
  mt_derivation *d = NULL;
  assert_int_equal(mt_schedule_parse(arena, schedule_text, &error, &schedule), MOTET_OK);
  mt_derive_request request = {.model = model_of(arena, "v:tt l:ttttttttttttttttttt"),
                               .schedule = schedule,
                               .ranks = 2,
                               .microbatches = 2,
                               .split = split,
                               .split_count = count};
  assert_int_equal(mt_derive(arena, &request, &error, &d), MOTET_ERROR_ILLEGAL);
  assert_string_equal(error.rule, "split");
  assert_string_equal(error.key, key);
  if (strstr(error.text, words) == NULL) fail_msg("'%s' lacks '%s'", error.text, words);
  mt_arena_destroy(arena);
}

static void test_splits(void **state) {
  (void)state;
  expect_split("<transpose, 1f1b>", (const int32_t[]){9, 9}, 2, "l", "have 18 layers together, the region has 19");
  expect_split("<transpose, 1f1b>", (const int32_t[]){2147483647, 2147483647}, 2, "l", "have 4294967294 layers");
  expect_split("<transpose, 1f1b>", (const int32_t[]){20, -1}, 2, "l", "stage 1 of region l has -1 layers");
  expect_split("<transpose, 1f1b>", (const int32_t[]){2, 9, 10}, 3, "", "3 numbers for 2 stages");
  expect_split("<inline, 1f1b>", (const int32_t[]){0, 19}, 2, "l", "no layer of its own, but region v rides on it");
}

static void test_odd_numbers_are_legal(void **state) {
  (void)state;
  static const struct {
    const char *model, *schedule;
    int32_t ranks, microbatches;
  } rows[] = {
      {"v:t l:tttt", "<transpose, 1f1b>", 4, 2},
      {"v:t l:tttt", "<transpose, 1f1b>", 4, 7},
      {"v:t l:tttt", "<transpose, 1f1b>", 1, 3},
      {"v:t l:t", "<transpose, 1f1b>", 4, 8},
      {"v:t l:t", "<transpose>", 4, 8},
      {"v:t l:tttt", "<transpose(order=prefix, window=8), 1f1b>", 4, 8},
      {"v:f l:tttt", "<transpose(order=ahead, window=2), 1f1b>", 4, 8},
      {"v:t l:tttt", "<gpipe, gpipe>", 4, 3},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    mt_arena *arena = mt_arena_create();
    derive_of(arena, rows[i].model, rows[i].schedule, rows[i].ranks, rows[i].microbatches);
    mt_arena_destroy(arena);
  }
}

static void test_wrong_arguments(void **state) {
  (void)state;
  mt_arena *arena = mt_arena_create();
  motet_error error;
  mt_derivation *d = NULL;
  mt_model *model = model_of(arena, "l:t");
  assert_int_equal(try_derive(arena, model, "<1f1b>", 0, 1, &error, &d), MOTET_ERROR_ARGUMENT);
  assert_int_equal(try_derive(arena, model, "<1f1b>", 1, 0, &error, &d), MOTET_ERROR_ARGUMENT);
  assert_int_equal(try_derive(arena, model, "<1f1b(virtual=65536)>", 1 << 20, 1, &error, &d), MOTET_ERROR_LIMIT);
  assert_int_equal(try_derive(arena, model, "<1f1b>", 1 << 20, 1 << 20, &error, &d), MOTET_ERROR_LIMIT);
  mt_arena_destroy(arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_refusals),
      cmocka_unit_test(test_splits),
      cmocka_unit_test(test_odd_numbers_are_legal),
      cmocka_unit_test(test_wrong_arguments),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
