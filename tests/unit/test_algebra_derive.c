/* Regions, stages, parts and edges of derivations. */
#include "algebra_model.h"

static void test_transpose_and_1f1b(void **state) {
  (void)state;
  mt_arena *arena = mt_arena_create();
  mt_model *model = model_of(arena, "vision:tttt projector:t llm:tttttttttt");
  model->modules[0].inputs = MOTET_INPUT_PIXELS;
  model->modules[2].inputs = MOTET_INPUT_TOKENS;
  model->last_inputs = MOTET_INPUT_LABELS;
  motet_error error;
  mt_derivation *d = NULL;
  assert_int_equal(try_derive(arena, model, "<transpose, 1f1b>", 4, 8, &error, &d), MOTET_OK);
  assert_string_equal(d->text, "<vision+projector: transpose, llm: 1f1b>");
  assert_int_equal(d->region_count, 2);
  assert_string_equal(d->regions[0].name, "vision+projector");
  assert_true(d->regions[0].replicated);
  assert_int_equal(d->regions[0].slabs, 1);
  assert_int_equal(d->regions[0].module_end, 2);
  assert_int_equal(d->regions[0].layer_end, 5);
  assert_false(d->regions[1].replicated);
  assert_int_equal(d->regions[1].slabs, 4);
  assert_int_equal(d->stage_count, 5);
  /* 10 layers over 4: the extra two go to the inner stages. */
  static const int32_t begins[5] = {0, 5, 7, 10, 13}, ranks[5] = {-1, 0, 1, 2, 3};
  for (int32_t s = 0; s < 5; s++) {
    assert_int_equal(d->stages[s].layer_begin, begins[s]);
    assert_int_equal(d->stages[s].layer_end, s < 4 ? begins[s + 1] : 15);
    assert_int_equal(d->stages[s].rank, ranks[s]);
    assert_int_equal(d->stages[s].region, s > 0);
    assert_int_equal(d->stages[s].slab, s > 0 ? s - 1 : 0);
    assert_int_equal(d->stages[s].modules, s > 0 ? 4 : 3);
    assert_true(d->stages[s].share == 1.0);
  }
  assert_int_equal(d->stages[0].inputs, MOTET_INPUT_PIXELS);
  assert_int_equal(d->stages[1].inputs, MOTET_INPUT_TOKENS);
  assert_int_equal(d->stages[2].inputs, 0);
  assert_int_equal(d->stages[4].inputs, MOTET_INPUT_LABELS);
  assert_int_equal(d->edge_count, 4);
  for (int32_t e = 0; e < 4; e++) {
    assert_int_equal(d->edges[e].from, e);
    assert_int_equal(d->edges[e].to, e + 1);
  }
  mt_arena_destroy(arena);
}

/* Which modules positional and named terms cover: the canonical text tells. */
static void test_binding(void **state) {
  (void)state;
  static const struct {
    const char *model, *schedule, *canonical;
  } rows[] = {
      {"v:t p:t l:tt", "<transpose, 1f1b>", "<v+p: transpose, l: 1f1b>"},
      {"v:t l:tt", "<transpose, 1f1b>", "<v: transpose, l: 1f1b>"},
      {"v:t p:t l:tt", "<1f1b>", "<v+p+l: 1f1b>"},
      {"v:t p:t l:tt", "<transpose, inline, 1f1b>", "<v: transpose, p: inline, l: 1f1b>"},
      {"v:t p:t l:tt", "<transpose, transpose, 1f1b>", "<v+p: transpose, l: 1f1b>"},
      {"v:t p:t l:tt", "<inline, inline, 1f1b>", "<v+p: inline, l: 1f1b>"},
      {"v:t p:t l:tt", "<inline, 1f1b>", "<v+p: inline, l: 1f1b>"},
      {"v:t p:t l:tt", "<transpose, 1f1b, 1f1b>", "<v+p: transpose, l: 1f1b(virtual=2)>"},
      {"v:t p:t l:tt", "<transpose, 1f1b(virtual=2), 1f1b>", "<v+p: transpose, l: 1f1b(virtual=3)>"},
      {"v:t l:tt", "<transpose, 1f1b, 1f1b>", "<v: transpose, l: 1f1b(virtual=2)>"},
      {"v:t p:t l:tt", "<transpose, inline, 1f1b, 1f1b>", "<v: transpose, p: inline, l: 1f1b(virtual=2)>"},
      {"l:tttttt", "<1f1b, 1f1b, 1f1b>", "<l: 1f1b(virtual=3)>"},
      {"v:t l:tt", "<1f1b, 1f1b>", "<v: 1f1b, l: 1f1b>"},
      {"v:t p:t l:tt", "<1f1b, 1f1b>", "<v+p: 1f1b, l: 1f1b>"},
      {"v:t p:t l:tt", "<1f1b, 1f1b, 1f1b>", "<v: 1f1b, p: 1f1b, l: 1f1b>"},
      {"v:t p:t l:tt", "<v: transpose, p+l: 1f1b>", "<v: transpose, p+l: 1f1b>"},
      {"v:t p:t l:tt", "<v: transpose(window=4), p: transpose(window=4), l: gpipe>",
       "<v+p: transpose(window=4), l: gpipe>"},
      {"v:t l:tt g:t", "<v: transpose, l: 1f1b, g: transpose>", "<v: transpose, l: 1f1b, g: transpose>"},
      {"v:t a:t l:t | 0-2 1-2", "<(v: transpose | a: transpose), l: 1f1b>",
       "<(v: transpose | a: transpose), l: 1f1b>"},
      {"v:t a:t l:t | 0-2 1-2", "<transpose, transpose, 1f1b>", "<(v: transpose | a: transpose), l: 1f1b>"},
      {"v:t a:t l:t | 0-2 1-2", "<(transpose | inline), 1f1b>", "<(v: transpose | a: inline), l: 1f1b>"},
      {"v:t vp:t a:t ap:t l:t | 0-1 1-4 2-3 3-4", "<(transpose | transpose(window=2)), 1f1b, 1f1b>",
       "<(v+vp: transpose | a+ap: transpose(window=2)), l: 1f1b(virtual=2)>"},
      {"l:t i:t s:t | 0-1 0-2", "<l: 1f1b, (i: 1f1b | s: transpose)>", "<l: 1f1b, (i: 1f1b | s: transpose)>"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    mt_arena *arena = mt_arena_create();
    const mt_derivation *d = derive_of(arena, rows[i].model, rows[i].schedule, 2, 4);
    if (strcmp(d->text, rows[i].canonical) != 0)
      fail_msg("%s on %s gave %s", rows[i].schedule, rows[i].model, d->text);
    d = derive_of(arena, rows[i].model, rows[i].canonical, 2, 4);
    assert_string_equal(d->text, rows[i].canonical);
    mt_arena_destroy(arena);
  }
}

static void expect_parts(const mt_derivation *d, int32_t stage, const char *text) {
  char parts[256];
  int length = 0;
  for (int32_t p = d->stages[stage].part_begin; p < d->stages[stage].part_end; p++)
    length += snprintf(parts + length, sizeof parts - (size_t)length, "%s[%d,%d) ",
                       d->regions[d->parts[p].region].name, d->parts[p].layer_begin, d->parts[p].layer_end);
  assert_string_equal(parts, text);
}

static void test_inline_rides_on_the_first_slab_to_its_right(void **state) {
  (void)state;
  mt_arena *arena = mt_arena_create();
  const mt_derivation *d = derive_of(arena, "v:ff p:t l:tttt", "<v: inline, p: inline, l: 1f1b>", 2, 4);
  assert_int_equal(d->region_count, 2);
  assert_int_equal(d->stage_count, 2);
  assert_int_equal(d->regions[0].host, 0);
  assert_int_equal(d->regions[0].slabs, 0);
  assert_int_equal(d->regions[1].host, -1);
  expect_parts(d, 0, "v+p[0,3) l[3,5) ");
  expect_parts(d, 1, "l[5,7) ");
  assert_int_equal(d->stages[0].region, 1);
  assert_int_equal(d->stages[0].layer_begin, 0);
  assert_int_equal(d->stages[0].modules, 7);
  assert_int_equal(d->edge_count, 1);
  mt_arena_destroy(arena);
}

static void test_inline_between_and_behind(void **state) {
  (void)state;
  mt_arena *arena = mt_arena_create();
  const mt_derivation *d = derive_of(arena, "v:tt p:t l:tt", "<v: 1f1b, p: inline, l: 1f1b>", 2, 4);
  expect_parts(d, 1, "v[1,2) ");
  expect_parts(d, 2, "p[2,3) l[3,4) ");
  assert_int_equal(d->regions[1].host, 2);
  assert_int_equal(d->edge_count, 3);
  d = derive_of(arena, "l:tt g:t", "<l: 1f1b, g: inline>", 2, 4);
  assert_int_equal(d->regions[1].host, 1);
  expect_parts(d, 1, "l[1,2) g[2,3) ");
  d = derive_of(arena, "l:tt g:t", "<l: 1f1b, g: inline>", 1, 4);
  expect_parts(d, 0, "l[0,2) g[2,3) ");
  /* A transposed sink behind an inline region takes the host's output. */
  d = derive_of(arena, "l:tt a:t g:t", "<l: 1f1b, a: inline, g: transpose>", 2, 4);
  expect_parts(d, 1, "l[1,2) a[2,3) ");
  assert_int_equal(d->edge_count, 2);
  assert_int_equal(d->edges[1].from, 1);
  assert_int_equal(d->edges[1].to, 2);
  assert_int_equal(d->edges[1].forward, MT_PATTERN_SCATTER);
  mt_arena_destroy(arena);
}

/* v feeds the inline region and its host: both edges come to lie on one pair of stages and are one. */
static void test_edges_that_meet_at_a_host_are_one(void **state) {
  (void)state;
  mt_arena *arena = mt_arena_create();
  const mt_derivation *d =
      derive_of(arena, "v:t a:t l:tt | 0-1 0-2 1-2", "<v: transpose, a: inline, l: 1f1b>", 2, 4);
  assert_int_equal(d->edge_count, 2);
  assert_int_equal(d->edges[0].from, 0);
  assert_int_equal(d->edges[0].to, 1);
  assert_int_equal(d->edges[1].from, 1);
  assert_int_equal(d->edges[1].to, 2);
  mt_arena_destroy(arena);
}

static void test_branches_are_sources_of_the_trunk(void **state) {
  (void)state;
  mt_arena *arena = mt_arena_create();
  const mt_derivation *d = derive_of(arena, "v:t a:t l:tttt i:t | 0-2 1-2 2-3",
                                     "<(v: transpose | a: 1f1b), l: 1f1b, i: transpose>", 2, 4);
  /* stages: v; a.0 a.1; l.0 l.1; i */
  static const int32_t edges[][2] = {{0, 3}, {1, 2}, {2, 3}, {3, 4}, {4, 5}};
  static const mt_pattern patterns[] = {MT_PATTERN_GATHER, MT_PATTERN_SEND, MT_PATTERN_SEND, MT_PATTERN_SEND,
                                        MT_PATTERN_SCATTER};
  assert_int_equal(d->stage_count, 6);
  assert_int_equal(d->edge_count, 5);
  for (int32_t e = 0; e < 5; e++) {
    assert_int_equal(d->edges[e].from, edges[e][0]);
    assert_int_equal(d->edges[e].to, edges[e][1]);
    assert_int_equal(d->edges[e].forward, patterns[e]);
  }
  /* Both Sharded regions are chunks of one wavefront. */
  for (int64_t i = d->body_begin[1]; i < d->body_begin[2]; i++)
    assert_true(d->body[i].stage == 2 || d->body[i].stage == 4);
  assert_int_equal(d->body_begin[2], 2 * 2 * 2 * 4);
  mt_arena_destroy(arena);
}

static void check_split(int32_t layers, int32_t ranks, const int32_t *expected) {
  char model[64] = "l:";
  memset(model + 2, 't', (size_t)layers);
  mt_arena *arena = mt_arena_create();
  const mt_derivation *d = derive_of(arena, model, "<1f1b>", ranks, 1);
  for (int32_t s = 0; s < ranks; s++)
    assert_int_equal(d->stages[s].layer_end - d->stages[s].layer_begin, expected[s]);
  mt_arena_destroy(arena);
}

static void test_even_split(void **state) {
  (void)state;
  check_split(8, 4, (const int32_t[]){2, 2, 2, 2});
  check_split(9, 4, (const int32_t[]){2, 3, 2, 2});
  check_split(10, 4, (const int32_t[]){2, 3, 3, 2});
  check_split(11, 4, (const int32_t[]){3, 3, 3, 2});
  check_split(3, 2, (const int32_t[]){2, 1});
  check_split(2, 4, (const int32_t[]){1, 1, 0, 0});
  check_split(5, 1, (const int32_t[]){5});
}

static void test_given_split(void **state) {
  (void)state;
  mt_arena *arena = mt_arena_create();
  motet_error error;
  mt_schedule *schedule = NULL;
  mt_derivation *d = NULL;
  assert_int_equal(mt_schedule_parse(arena, "<v: inline, l: 1f1b(virtual=2)>", &error, &schedule), MOTET_OK);
  const int32_t split[4] = {1, 3, 0, 2};
  mt_derive_request request = {.model = model_of(arena, "v:tt l:tttttt"),
                               .schedule = schedule,
                               .ranks = 2,
                               .microbatches = 2,
                               .split = split,
                               .split_count = 4};
  assert_int_equal(mt_derive(arena, &request, &error, &d), MOTET_OK);
  expect_parts(d, 0, "v[0,2) l[2,3) ");
  expect_parts(d, 1, "l[3,6) ");
  expect_parts(d, 2, "l[6,6) ");
  expect_parts(d, 3, "l[6,8) ");
  assert_int_equal(d->stages[0].modules, 3);
  assert_int_equal(d->stages[2].modules, 2); /* an empty stage has its region's */
  for (int32_t s = 0; s < 4; s++) {
    assert_int_equal(d->stages[s].rank, s % 2);
    assert_true(d->stages[s].share == 0.5);
  }
  mt_arena_destroy(arena);
}

static void test_text_only_microbatches_skip_the_encoder(void **state) {
  (void)state;
  mt_arena *arena = mt_arena_create();
  motet_error error;
  mt_schedule *schedule = NULL;
  mt_derivation *d = NULL;
  assert_int_equal(mt_schedule_parse(arena, "<v: 1f1b, l: 1f1b>", &error, &schedule), MOTET_OK);
  const uint64_t present[4] = {3, 2, 3, 2}, cached[4] = {0, 0, 1, 0};
  mt_derive_request request = {.model = model_of(arena, "v:tt l:tt"),
                               .schedule = schedule,
                               .ranks = 2,
                               .microbatches = 4,
                               .present = present,
                               .cached = cached};
  assert_int_equal(mt_derive(arena, &request, &error, &d), MOTET_OK);
  /* Microbatches 1 and 3 are text, 2 has its vision output cached: vision runs for 0 alone. */
  int events[4][4] = {{0}};
  for (int64_t i = 0; i < d->body_begin[2]; i++) events[d->body[i].stage][d->body[i].microbatch]++;
  for (int32_t m = 0; m < 4; m++)
    for (int32_t s = 0; s < 4; s++) {
      int expected = s >= 2 || m == 0 ? 2 : 0;
      assert_int_equal(events[s][m], expected);
      assert_int_equal(mt_stage_active(d, s, m), expected > 0);
    }
  mt_arena_destroy(arena);
}

static void test_virtual_stages_and_runs_of_terms_are_one(void **state) {
  (void)state;
  mt_arena *arena = mt_arena_create();
  const mt_derivation *a = derive_of(arena, "v:t l:tttttttt", "<transpose, 1f1b(virtual=2)>", 4, 8);
  const mt_derivation *b = derive_of(arena, "v:t l:tttttttt", "<transpose, 1f1b, 1f1b>", 4, 8);
  assert_string_equal(a->text, b->text);
  assert_int_equal(a->region_count, 2);
  assert_int_equal(b->region_count, 2);
  assert_int_equal(a->regions[1].slabs, 8);
  assert_int_equal(a->body_begin[4], b->body_begin[4]);
  assert_memory_equal(a->body, b->body, (size_t)a->body_begin[4] * sizeof *a->body);
  mt_arena_destroy(arena);
}

/* Slabs forth and back: the turn and the loss are on one rank each, and nothing moves there. */
static void test_folded_slabs_turn_without_a_message(void **state) {
  (void)state;
  mt_arena *arena = mt_arena_create();
  mt_derivation *d = derive_of(arena, "l:tttttttt", "<zbv>", 4, 3);
  static const int32_t ranks[] = {0, 1, 2, 3, 3, 2, 1, 0};
  assert_int_equal(d->stage_count, 8);
  assert_int_equal(d->edge_count, 7);
  for (int32_t s = 0; s < 8; s++) assert_int_equal(d->stages[s].rank, ranks[s]);
  for (int32_t e = 0; e < 7; e++) {
    mt_pattern expected = e == 3 ? MT_PATTERN_IDENTITY : MT_PATTERN_SEND;
    assert_int_equal(d->edges[e].forward, expected);
    assert_int_equal(d->edges[e].backward, expected);
  }
  /* Every event of every rank is there once: a forward and both halves of the backward for each chunk and
   * microbatch. */
  for (int32_t r = 0; r < 4; r++) assert_int_equal(d->body_begin[r + 1] - d->body_begin[r], 2 * 3 * 3);
  mt_arena_destroy(arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_folded_slabs_turn_without_a_message),
      cmocka_unit_test(test_transpose_and_1f1b),
      cmocka_unit_test(test_binding),
      cmocka_unit_test(test_inline_rides_on_the_first_slab_to_its_right),
      cmocka_unit_test(test_inline_between_and_behind),
      cmocka_unit_test(test_edges_that_meet_at_a_host_are_one),
      cmocka_unit_test(test_branches_are_sources_of_the_trunk),
      cmocka_unit_test(test_even_split),
      cmocka_unit_test(test_given_split),
      cmocka_unit_test(test_text_only_microbatches_skip_the_encoder),
      cmocka_unit_test(test_virtual_stages_and_runs_of_terms_are_one),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
