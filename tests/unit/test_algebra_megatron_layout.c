/* Megatron-LM's layouts: expansions worked out by hand from the rules of its documentation (stages parted by '|',
 * repetition of a layer, a border or a group, commas without meaning), and what is refused. */
#include "algebra_model.h"

#include "algebra/megatron_layout.h"

typedef struct layout_case {
  const char *text;
  const char *split; /* layers of each stage, one digit each */
  int32_t layers[MT_MEGATRON_KINDS];
} layout_case;

static void test_expansion(void **state) {
  (void)state;
  static const layout_case cases[] = {
      {"EL", "2", {1, 0, 0, 1}},
      {"E||t|L", "1011", {1, 1, 0, 1}},
      {"Ettt|(tt|)*3,m|L", "422211", {1, 9, 1, 1}},
      {"Et*3|(tt|)*3,m|L", "422211", {1, 9, 1, 1}},
      {"E,t*2,|*3t,L", "3002", {1, 3, 0, 1}},  /* a border repeats too */
      {"E(t|tt|t)*2L", "22222", {1, 8, 0, 1}}, /* a group's ends join its neighbours */
      {"E(t*2|)*3L", "3221", {1, 6, 0, 1}},    /* repetition inside a group */
      {"E(|t)*2|L", "1111", {1, 2, 0, 1}},     /* a group may begin with a border */
      {"Et*0(t|)*0tL", "3", {1, 1, 0, 1}},     /* nothing, twice */
      {"Et*1,0L", "<", {1, 10, 0, 1}},         /* commas count for nothing, in numbers too: 12 is '<' */
      {"E|t|m*2L", "113", {1, 1, 2, 1}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    mt_arena *arena = mt_arena_create();
    motet_error error;
    mt_megatron_layout *layout = NULL;
    if (mt_megatron_layout_parse(arena, cases[i].text, &error, &layout) != MOTET_OK)
      fail_msg("%s: %s", cases[i].text, error.text);
    assert_int_equal(layout->stage_count, strlen(cases[i].split));
    for (int32_t s = 0; s < layout->stage_count; s++)
      if (layout->split[s] != cases[i].split[s] - '0')
        fail_msg("%s: stage %d has %d", cases[i].text, s, layout->split[s]);
    assert_memory_equal(layout->layers, cases[i].layers, sizeof layout->layers);
    mt_arena_destroy(arena);
  }
}

/* The example of Megatron-LM's documentation: 61 decoder layers and one MTP layer over 16 ranks, two chunks each.
 */
static void test_documented_example(void **state) {
  (void)state;
  mt_arena *arena = mt_arena_create();
  motet_error error;
  mt_megatron_layout *layout = NULL;
  assert_int_equal(mt_megatron_layout_parse(arena, "Et*3|(tt|)*29,m|L", &error, &layout), MOTET_OK);
  int32_t chunks = 0;
  assert_int_equal(mt_megatron_layout_judge(layout, 16, &error, &chunks), MOTET_OK);
  assert_int_equal(chunks, 2);
  assert_int_equal(layout->layers[MT_MEGATRON_DECODER], 61);
  assert_int_equal(layout->layers[MT_MEGATRON_MTP], 1);
  for (int32_t s = 0; s < 32; s++) assert_int_equal(layout->split[s], s == 0 ? 4 : s < 30 ? 2 : 1);
  assert_int_equal(layout->mtp_first, 30); /* rank 14, second chunk */
  mt_arena_destroy(arena);
}

static void test_errors_name_the_column(void **state) {
  (void)state;
  static const struct {
    const char *text, *named, *said;
  } cases[] = {
      {"", "column 1", "the last layer is not L"},
      {"Et|x|L", "column 4", "expected E, t, m, L, '|' or '('"},
      {"Et |L", "column 3", "expected E"},
      {"E(t|L", "column 6", "in the group"},
      {"E(t(t)*2)*2L", "column 4", "groups do not nest"},
      {"E()*2L", "column 3", "in the group"},
      {"E(t|)L", "column 6", "'*' and a number"},
      {"Et*|L", "column 4", "a number behind '*'"},
      {"Et*2*3|L", "column 5", "one '*'"},
      {"E(t)*2*3|L", "column 7", "one '*'"},
      {"E*L", "column 3", "a number"},
      {"*2EL", "column 1", "expected E"},
      {"tEL", "column 1", "the first layer is not E"},
      {"EEL", "column 2", "a second E"},
      {"EtEL", "column 3", "a second E"},
      {"E(t|L)*2", "column 3", "a layer behind L"},
      {"ELL", "column 3", "a second L"},
      {"ELt", "column 3", "a layer behind L"},
      {"Emt|L", "column 3", "a decoder layer t behind m"},
      {"Et|", "column 4", "the last layer is not L"},
      {"Et*99999999999999999999L", "column", "repetitions"},
      {"E(t*60000)*60000L", "column", "layers and borders"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    mt_arena *arena = mt_arena_create();
    motet_error error;
    mt_megatron_layout *layout = NULL;
    if (mt_megatron_layout_parse(arena, cases[i].text, &error, &layout) == MOTET_OK) fail_msg("%s", cases[i].text);
    if (strstr(error.text, cases[i].named) == NULL || strstr(error.text, cases[i].said) == NULL)
      fail_msg("%s: %s", cases[i].text, error.text);
    mt_arena_destroy(arena);
  }
}

/* What Megatron-LM checks when it knows the number of ranks. */
static void test_ranks(void **state) {
  (void)state;
  static const struct {
    const char *text;
    int32_t ranks, chunks; /* 0 chunks: refused */
  } cases[] = {
      {"Et|t|t|L", 4, 1},  {"Et|t|t|L", 2, 2}, {"Et|t|t|L", 3, 0}, {"Et|t|tm|L", 2, 2}, /* m in a last chunk */
      {"Et|tm|m|L", 2, 0}, {"Et|tm||L", 2, 0}, {"Et|tm||L", 4, 1},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    mt_arena *arena = mt_arena_create();
    motet_error error;
    mt_megatron_layout *layout = NULL;
    int32_t chunks = 0;
    assert_int_equal(mt_megatron_layout_parse(arena, cases[i].text, &error, &layout), MOTET_OK);
    motet_status status = mt_megatron_layout_judge(layout, cases[i].ranks, &error, &chunks);
    assert_int_equal(status, cases[i].chunks > 0 ? MOTET_OK : MOTET_ERROR_ILLEGAL);
    if (status == MOTET_OK) assert_int_equal(chunks, cases[i].chunks);
    if (status != MOTET_OK) assert_string_equal(error.rule, "layout");
    mt_arena_destroy(arena);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_expansion),
      cmocka_unit_test(test_documented_example),
      cmocka_unit_test(test_errors_name_the_column),
      cmocka_unit_test(test_ranks),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
