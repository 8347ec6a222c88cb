/* Regions on ranks of their own: where stages lie, who computes which microbatch, and makespans known in advance.
 */
#include "algebra_model.h"

#include "motet/plan.h"

static void test_ranks_of_regions(void **state) {
  (void)state;
  mt_arena *arena = mt_arena_create();
  mt_derivation *d = derive_of(arena, "vision:tt audio:t llm:tttttttt gen:tt | 0-2 1-2 2-3",
                               "<vision: dedicate(ranks=6, data=3), audio: dedicate(ranks=1), llm: 1f1b, "
                               "gen: dedicate(ranks=2, data=2)>",
                               13, 8);
  /* vision 0..5, audio 6, llm 7..10, gen 11..12. */
  static const int32_t first[] = {0, 6, 7, 11}, pipeline[] = {2, 1, 4, 1}, data[] = {3, 1, 1, 2};
  assert_int_equal(d->region_count, 4);
  for (int32_t r = 0; r < 4; r++) {
    assert_int_equal(d->regions[r].first_rank, first[r]);
    assert_int_equal(d->regions[r].pipeline, pipeline[r]);
    assert_int_equal(d->regions[r].data, data[r]);
    assert_int_equal(d->regions[r].slabs, pipeline[r]);
  }
  assert_int_equal(d->shared_first, 7);
  assert_int_equal(d->shared_ranks, 4);
  /* Slab 1 of vision for microbatch 5 is on the third of its pipelines. */
  assert_int_equal(mt_stage_rank(d, 1, 5), 5);
  assert_true(mt_stage_held(d, 1, 5));
  assert_true(mt_stage_held(d, 1, 1));
  assert_false(mt_stage_held(d, 1, 4));
  assert_false(mt_stage_held(d, 1, 7));
  /* Every rank computes the microbatches that are its own, forward and backward, and no others. */
  for (int32_t rank = 0; rank < 13; rank++)
    for (int64_t i = d->body_begin[rank]; i < d->body_begin[rank + 1]; i++)
      assert_int_equal(mt_stage_rank(d, d->body[i].stage, d->body[i].microbatch), rank);
  assert_int_equal(d->body_begin[13], 2 * 8 * (2 + 1 + 4 + 1));
  assert_string_equal(d->text, "<(vision: dedicate(ranks=6, data=3) | audio: dedicate(ranks=1)), llm: 1f1b, gen: "
                               "dedicate(ranks=2, data=2)>");
  mt_arena_destroy(arena);
}

static double makespan(const char *schedule, int32_t ranks, int32_t microbatches, const char *unit) {
  motet_error error;
  motet_plan *plan = NULL;
  motet_plan_options options = {.schedule = schedule, .unit = unit, .ranks = ranks, .microbatches = microbatches};
  if (motet_plan_create(&options, &error, &plan) != MOTET_OK) fail_msg("%s: %s", schedule, error.text);
  double seconds = motet_plan_get(plan)->makespan;
  motet_plan_destroy(plan);
  return seconds;
}

/* With one width on both sides a dedicated region is the first part of one long pipeline: (M + P - 1)(f + b). */
static void test_one_width_is_one_pipeline(void **state) {
  (void)state;
  const char *unit = "vision: f=1, b=2; llm: f=1, b=2";
  assert_true(makespan("<vision: dedicate(ranks=2), llm: 1f1b>", 6, 8, unit) == 39.0);
  assert_true(makespan("<vision: dedicate(ranks=2), llm: dedicate(ranks=4)>", 6, 3, unit) == 24.0);
  assert_true(makespan("<vision: dedicate(ranks=4, data=2), llm: dedicate(ranks=8, data=2)>", 12, 16, unit) ==
              39.0);
  assert_true(makespan("<vision: 1f1b, llm: dedicate(ranks=3)>", 5, 20, unit) == 72.0);
}

/* The slower side sets the pace where it is one rank wide; else its number of pipelines divides it. A trunk rank of
 * DP 2 has half of the microbatches. */
static void test_widths_of_any_ratio(void **state) {
  (void)state;
  const char *unit = "vision: f=1.5, b=3; llm: f=1, b=2";
  /* 12 microbatches in each of two pipelines of 4 ranks: (12 + 3) * 3, before and behind them an encode's 4.5. */
  assert_true(makespan("<vision: dedicate(ranks=3, data=3), llm: dedicate(ranks=8, data=2)>", 11, 24, unit) ==
              49.5);
  /* One encoder rank is the bottleneck: 24 * 4.5 on it, and the last of them waits for the trunk's 4 * 3. */
  double slow = makespan("<vision: dedicate(ranks=1), llm: dedicate(ranks=8, data=2)>", 9, 24, unit);
  assert_true(slow >= 24 * 4.5 && slow <= 24 * 4.5 + 12.0);
  /* Microbatches that the widths do not divide. */
  for (int32_t microbatches = 1; microbatches < 12; microbatches++) {
    double seconds =
        makespan("<vision: dedicate(ranks=3, data=3), llm: dedicate(ranks=4, data=2)>", 7, microbatches, unit);
    double trunk = (microbatches + 1) / 2 * 3.0, encoder = (microbatches + 2) / 3 * 4.5;
    assert_true(seconds >= trunk + 3.0 + 4.5 && seconds >= encoder);
  }
}

/* A frozen encoder on enough ranks hides behind the trunk but for its first microbatch. */
static void test_frozen_encoder_hides(void **state) {
  (void)state;
  assert_true(makespan("<vision: dedicate(ranks=2, data=2), llm: 1f1b>", 6, 16, "vision: f=4; llm: f=1, b=2") ==
              4.0 + (16 + 3) * 3.0);
}

static void test_refusals(void **state) {
  (void)state;
  static const struct {
    const char *schedule;
    const char *rule, *words;
  } rows[] = {
      {"<dedicate(ranks=4), 1f1b>", "dedicate", "accepted: 5 ranks"},
      {"<dedicate(ranks=1), dedicate(ranks=2)>", "dedicate", "leaves 1 of 4 without work; accepted: 3 ranks"},
      {"<dedicate(ranks=2, inner=zb1p), 1f1b>", "mixed", "accepted: 1f1b or gpipe"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    mt_arena *arena = mt_arena_create();
    motet_error error;
    mt_derivation *d = NULL;
    assert_int_equal(try_derive(arena, model_of(arena, "v:tttt l:tttt"), rows[i].schedule, 4, 8, &error, &d),
                     MOTET_ERROR_ILLEGAL);
    assert_string_equal(error.rule, rows[i].rule);
    if (strstr(error.text, rows[i].words) == NULL) fail_msg("%s: %s", rows[i].schedule, error.text);
    mt_arena_destroy(arena);
  }
  mt_arena *arena = mt_arena_create();
  motet_error error;
  mt_derivation *d = NULL;
  motet_status status = try_derive(arena, model_of(arena, "a:tttt b:tt c:tttt"),
                                   "<a: 1f1b, b: dedicate(ranks=1), c: 1f1b>", 4, 8, &error, &d);
  assert_int_equal(status, MOTET_ERROR_ILLEGAL);
  assert_non_null(strstr(error.text, "stands between a and c"));
  mt_arena_destroy(arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_ranks_of_regions),
      cmocka_unit_test(test_one_width_is_one_pipeline),
      cmocka_unit_test(test_widths_of_any_ratio),
      cmocka_unit_test(test_frozen_encoder_hides),
      cmocka_unit_test(test_refusals),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
