/* The schedule's text: what it parses to, its canonical form, and what errors say. */
#include "algebra_model.h"

#include "algebra/schedule.h"

static void test_fields(void **state) {
  (void)state;
  mt_arena *arena = mt_arena_create();
  motet_error error;
  mt_schedule *schedule = NULL;
  assert_int_equal(mt_schedule_parse(arena,
                                     "<(vision+vproj : transpose(window=8, order=prefix) |audio: transpose()),\n"
                                     " llm: 1f1b(virtual=3)>",
                                     &error, &schedule),
                   MOTET_OK);
  assert_int_equal(schedule->term_count, 3);
  const mt_term *terms = schedule->terms;
  assert_int_equal(terms[0].module_count, 2);
  assert_string_equal(terms[0].modules[0], "vision");
  assert_string_equal(terms[0].modules[1], "vproj");
  assert_int_equal(terms[0].branch, 1);
  assert_int_equal(terms[0].column, 3);
  assert_int_equal(terms[0].skeleton.kind, MT_SKELETON_TRANSPOSE);
  assert_int_equal(terms[0].skeleton.order, MT_ORDER_PREFIX);
  assert_int_equal(terms[0].skeleton.window, 8);
  assert_int_equal(terms[0].skeleton.owner, MT_OWNER_ROUND_ROBIN); /* the default of prefix */
  assert_int_equal(terms[1].branch, 1);
  assert_int_equal(terms[1].skeleton.order, MT_ORDER_FILL);
  assert_int_equal(terms[1].skeleton.owner, MT_OWNER_BALANCED);
  assert_int_equal(terms[1].skeleton.window, 0);
  assert_int_equal(terms[2].branch, 0);
  assert_int_equal(terms[2].skeleton.kind, MT_SKELETON_1F1B);
  assert_int_equal(terms[2].skeleton.virtual_stages, 3);
  mt_arena_destroy(arena);
}

static void test_canonical_form(void **state) {
  (void)state;
  static const struct {
    const char *text, *canonical;
  } rows[] = {
      {"<transpose,1f1b>", "<transpose, 1f1b>"},
      {" < 1f1b ( virtual = 1 ) > ", "<1f1b>"},
      {"<1f1b(virtual=02)>", "<1f1b(virtual=2)>"},
      {"<transpose(order=fill, owner=balanced)>", "<transpose>"},
      {"<transpose(owner=round-robin)>", "<transpose(owner=round-robin)>"},
      {"<transpose(owner=round-robin,order=prefix)>", "<transpose(order=prefix)>"},
      {"<transpose(owner=balanced,order=prefix)>", "<transpose(order=prefix, owner=balanced)>"},
      {"<transpose(order=ahead,window=2147483647)>", "<transpose(order=ahead, window=2147483647)>"},
      {"<zb1p>", "<zb1p>"},
      {"<transpose(batch=1), 1f1b(batch=01)>", "<transpose, 1f1b>"},
      {"<transpose(batch=4,window=8), zbv(batch=2)>", "<transpose(window=8, batch=4), zbv(batch=2)>"},
      {"<dedicate(batch=2,ranks=1),1f1b>", "<dedicate(ranks=1, batch=2), 1f1b>"},
      {"<a: transpose, b:zb2p>", "<a: transpose, b: zb2p>"},
      {"<inline,zbv>", "<inline, zbv>"},
      {"< vmin >", "<vmin>"},
      {"<a: inline, b+c:gpipe>", "<a: inline, b+c: gpipe>"},
      {"<(a: transpose|b: transpose|c: inline),(d: 1f1b|e: 1f1b)>",
       "<(a: transpose | b: transpose | c: inline), (d: 1f1b | e: 1f1b)>"},
      {"<(transpose|transpose),1f1b>", "<(transpose | transpose), 1f1b>"},
      {"<1f1b: 1f1b, gpipe : inline>", "<1f1b: 1f1b, gpipe: inline>"}, /* modules may be called so */
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    mt_arena *arena = mt_arena_create();
    motet_error error;
    mt_schedule *schedule = NULL;
    if (mt_schedule_parse(arena, rows[i].text, &error, &schedule) != MOTET_OK)
      fail_msg("%s: %s", rows[i].text, error.text);
    assert_string_equal(mt_schedule_print(arena, schedule), rows[i].canonical);
    assert_int_equal(mt_schedule_parse(arena, rows[i].canonical, &error, &schedule), MOTET_OK);
    assert_string_equal(mt_schedule_print(arena, schedule), rows[i].canonical);
    mt_arena_destroy(arena);
  }
}

static void test_errors_name_column_and_what_is_accepted(void **state) {
  (void)state;
  static const struct {
    const char *text;
    motet_status status;
    const char *words[3];
  } rows[] = {
      {"", MOTET_ERROR_PARSE, {"column 1:", "'<'", "the end"}},
      {"transpose", MOTET_ERROR_PARSE, {"column 1:", "'<'", "'transpose'"}},
      {"<>", MOTET_ERROR_PARSE, {"column 2:", "skeleton", "'>'"}},
      {"<1f1b", MOTET_ERROR_PARSE, {"column 6:", "'>'", "the end"}},
      {"<1f1b,>", MOTET_ERROR_PARSE, {"column 7:", "skeleton", "'>'"}},
      {"<1f1b> x", MOTET_ERROR_PARSE, {"column 8:", "the end", "'x'"}},
      {"<2f2b>", MOTET_ERROR_PARSE, {"column 2:", "'2f2b' is no skeleton", "1f1b, gpipe, transpose, inline"}},
      {"<a: b, 1f1b>", MOTET_ERROR_PARSE, {"column 5:", "'b' is no skeleton", "transpose"}},
      {"<a+: 1f1b>", MOTET_ERROR_PARSE, {"column 4:", "module name after '+'", "':'"}},
      {"<a+b 1f1b>", MOTET_ERROR_PARSE, {"column 6:", "'+' or ':'", "'1f1b'"}},
      {"<a: >", MOTET_ERROR_PARSE, {"column 5:", "a skeleton after ':'", "'>'"}},
      {"<1f1b(order=fill)>", MOTET_ERROR_PARSE, {"column 7:", "'order' is no option of 1f1b", "virtual=n"}},
      {"<gpipe(virtual=2)>", MOTET_ERROR_PARSE, {"column 8:", "no option of gpipe", "accepted: batch=n"}},
      {"<transpose(order=full)>",
       MOTET_ERROR_PARSE,
       {"column 18:", "'full' is no value of order", "fill, prefix, ahead"}},
      {"<transpose(window=0)>", MOTET_ERROR_PARSE, {"column 19:", "'0'", "from 1 to 2147483647"}},
      {"<transpose(window=2147483648)>", MOTET_ERROR_PARSE, {"column 19:", "no value of window", "1 to"}},
      {"<transpose(window=-1)>", MOTET_ERROR_PARSE, {"column 19:", "'-1'", "1 to"}},
      {"<transpose(window=)>", MOTET_ERROR_PARSE, {"column 19:", "no value of window", "1 to"}},
      {"<1f1b(virtual=65537)>", MOTET_ERROR_PARSE, {"column 15:", "no value of virtual", "1 to 65536"}},
      {"<transpose(order)>", MOTET_ERROR_PARSE, {"column 17:", "'='", "')'"}},
      {"<transpose(window=2, window=2)>", MOTET_ERROR_PARSE, {"column 22:", "given twice", "window=n"}},
      {"<transpose(order=fill>", MOTET_ERROR_PARSE, {"column 22:", "','", "'>'"}},
      {"<(transpose), 1f1b>", MOTET_ERROR_PARSE, {"column 12:", "'|'", "')'"}},
      {"<(a: transpose | (b: 1f1b | c: 1f1b)), d: 1f1b>", MOTET_ERROR_PARSE, {"column 18:", "do not nest", "'('"}},
      {"<(a: transpose, b: transpose), c: 1f1b>", MOTET_ERROR_PARSE, {"column 15:", "'|'", "','"}},
      {"<a: 1f1b | b: 1f1b>", MOTET_ERROR_PARSE, {"column 10:", "','", "'|'"}},
      {"<\x01\xff>", MOTET_ERROR_PARSE, {"column 2:", "\\x01", "skeleton"}},
      {"<zbv(virtual=2)>", MOTET_ERROR_PARSE, {"column 6:", "no option of zbv", "accepted: batch=n"}},
      {"<fold(virtual=2)>", MOTET_ERROR_PARSE, {"column 7:", "no option of fold", "accepted: batch=n"}},
      {"<transpose(batch=0), 1f1b>", MOTET_ERROR_PARSE, {"column 18:", "'0' is no value of batch", "1 to 65536"}},
      {"<inline(batch=2), 1f1b>", MOTET_ERROR_PARSE, {"column 9:", "no option of inline", "no option"}},
      {"<dedicate, 1f1b>", MOTET_ERROR_PARSE, {"column 2:", "how many ranks", "dedicate(ranks=2)"}},
      {"<dedicate(ranks=3, data=2), 1f1b>", MOTET_ERROR_PARSE, {"column 2:", "data=2", "divisor of 3"}},
      {"<dedicate(ranks=2, inner=inline), 1f1b>", MOTET_ERROR_PARSE, {"column 26:", "'inline'", "1f1b, gpipe"}},
      {"<dedicate(ranks=2, inner=zbv, virtual=1), 1f1b>", MOTET_ERROR_PARSE, {"virtual", "inner=1f1b", "2 chunks"}},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    mt_arena *arena = mt_arena_create();
    motet_error error;
    mt_schedule *schedule = NULL;
    motet_status status = mt_schedule_parse(arena, rows[i].text, &error, &schedule);
    if (status != rows[i].status) fail_msg("%s: status %d: %s", rows[i].text, status, error.text);
    assert_int_equal(error.status, status);
    assert_string_equal(error.key, "schedule");
    for (int w = 0; w < 3; w++)
      if (strstr(error.text, rows[i].words[w]) == NULL)
        fail_msg("%s: '%s' lacks '%s'", rows[i].text, error.text, rows[i].words[w]);
    mt_arena_destroy(arena);
  }
}

static void test_long_and_nested_text(void **state) {
  (void)state;
  mt_arena *arena = mt_arena_create();
  motet_error error;
  mt_schedule *schedule = NULL;
  enum { BYTES = 100000 };
  char *text = malloc(BYTES + 1);
  assert_non_null(text);
  memset(text, '<', BYTES);
  text[BYTES] = '\0';
  assert_int_equal(mt_schedule_parse(arena, text, &error, &schedule), MOTET_ERROR_LIMIT);
  memset(text + 1, '(', BYTES);
  text[60000] = '\0';
  assert_int_equal(mt_schedule_parse(arena, text, &error, &schedule), MOTET_ERROR_PARSE);
  /* 10000 terms parse and print. */
  char *at = text;
  at += sprintf(at, "<1f1b");
  for (int i = 1; i < 10000; i++) at += sprintf(at, ",1f1b");
  sprintf(at, ">");
  assert_int_equal(mt_schedule_parse(arena, text, &error, &schedule), MOTET_OK);
  assert_int_equal(schedule->term_count, 10000);
  free(text);
  mt_arena_destroy(arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_fields),
      cmocka_unit_test(test_canonical_form),
      cmocka_unit_test(test_errors_name_column_and_what_is_accepted),
      cmocka_unit_test(test_long_and_nested_text),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
