/* The three gates: backward kinds by per-layer flags. */
#include "algebra_model.h"

typedef struct expected_stage {
  mt_gate gate;
  int32_t first_trainable;
} expected_stage;

static int64_t count_events(const mt_derivation *d, int32_t stage, int kind) {
  int64_t count = 0;
  for (int64_t i = 0; i < d->body_begin[d->ranks]; i++)
    count += d->body[i].stage == stage && d->body[i].kind == kind;
  return count;
}

/* Checks gates, and that the body has the events that they ask for: with M microbatches. */
static void check(const char *model, const char *schedule, int32_t ranks, const expected_stage *expected,
                  int32_t stages) {
  enum { M = 5 };
  mt_arena *arena = mt_arena_create();
  const mt_derivation *d = derive_of(arena, model, schedule, ranks, M);
  assert_int_equal(d->stage_count, stages);
  for (int32_t s = 0; s < stages; s++) {
    if (d->stages[s].gate != expected[s].gate || d->stages[s].first_trainable != expected[s].first_trainable)
      fail_msg("%s on %s: stage %d has gate %d from layer %d", schedule, model, s, d->stages[s].gate,
               d->stages[s].first_trainable);
    bool body = d->stages[s].rank >= 0;
    bool whole = expected[s].gate == MT_GATE_WEIGHTS || expected[s].gate == MT_GATE_FULL;
    assert_int_equal(count_events(d, s, MOTET_FWD), body ? M : 0);
    assert_int_equal(count_events(d, s, MOTET_BWD), body && whole ? M : 0);
    assert_int_equal(count_events(d, s, MOTET_BWD_X), body && expected[s].gate == MT_GATE_INPUT ? M : 0);
    assert_int_equal(count_events(d, s, MOTET_BWD_W), 0);
  }
  for (int32_t e = 0; e < d->edge_count; e++)
    assert_int_equal(d->edges[e].gradient, expected[d->edges[e].from].gate != MT_GATE_NONE);
  mt_arena_destroy(arena);
}
#define CHECK(model, schedule, ranks, ...)                                                                         \
  check(model, schedule, ranks, (const expected_stage[]){__VA_ARGS__},                                             \
        (int32_t)(sizeof((const expected_stage[]){__VA_ARGS__}) / sizeof(expected_stage)))

#define NONE                                                                                                       \
  { MT_GATE_NONE, -1 }

static void test_projector_alone(void **state) {
  (void)state;
  /* The encoder has no backward at all, the frozen language model passes input gradients on and nothing else. */
  CHECK("vision:ffff projector:t llm:ff", "<vision: 1f1b, projector: transpose, llm: 1f1b>", 2, NONE, NONE,
        {MT_GATE_WEIGHTS, 4}, {MT_GATE_INPUT, 5}, {MT_GATE_INPUT, 6});
  /* The same as one chain of slabs: slab 0 ends with the projector, or slab 1 begins with it. */
  CHECK("vision:ffff projector:t llm:fffff", "<1f1b>", 2, {MT_GATE_WEIGHTS, 4}, {MT_GATE_INPUT, 5});
  CHECK("vision:fffff projector:t llm:ffff", "<1f1b>", 2, NONE, {MT_GATE_WEIGHTS, 5});
}

static void test_frozen_vision_and_trainable_projector_in_one_region(void **state) {
  (void)state;
  CHECK("vision:ffff projector:t llm:ff", "<transpose, 1f1b>", 2, {MT_GATE_WEIGHTS, 4}, {MT_GATE_INPUT, 5},
        {MT_GATE_INPUT, 6});
}

static void test_inline_encoder(void **state) {
  (void)state;
  CHECK("vision:ff projector:t llm:ff", "<inline, 1f1b>", 2, {MT_GATE_WEIGHTS, 2}, {MT_GATE_INPUT, 4});
  CHECK("vision:ff llm:tt", "<inline, 1f1b>", 2, {MT_GATE_WEIGHTS, 2}, {MT_GATE_FULL, 3});
}

static void test_end_to_end(void **state) {
  (void)state;
  CHECK("vision:tt llm:tt", "<transpose, 1f1b>", 2, {MT_GATE_WEIGHTS, 0}, {MT_GATE_FULL, 2}, {MT_GATE_FULL, 3});
  CHECK("vision:tf llm:ft", "<transpose, 1f1b>", 2, {MT_GATE_WEIGHTS, 0}, {MT_GATE_INPUT, 2}, {MT_GATE_FULL, 3});
}

static void test_frozen_encoder(void **state) {
  (void)state;
  CHECK("vision:ff llm:tt", "<transpose, 1f1b>", 2, NONE, {MT_GATE_WEIGHTS, 2}, {MT_GATE_FULL, 3});
  CHECK("vision:ff llm:ft", "<transpose, 1f1b>", 2, NONE, NONE, {MT_GATE_WEIGHTS, 3});
}

static void test_everything_frozen(void **state) {
  (void)state;
  CHECK("vision:ff llm:ff", "<transpose, 1f1b>", 2, NONE, NONE, NONE);
}

static void test_branches_do_not_mix(void **state) {
  (void)state;
  /* Only audio trains: vision stays without backward though the trunk passes gradients on. */
  CHECK("vision:ff audio:ft llm:ff | 0-2 1-2", "<(vision: transpose | audio: transpose), llm: 1f1b>", 2, NONE,
        {MT_GATE_WEIGHTS, 3}, {MT_GATE_INPUT, 4}, {MT_GATE_INPUT, 5});
  /* A trainable generator behind a frozen trunk sends nothing to it; its frozen sibling has no backward. */
  CHECK("llm:ff image:t speech:f | 0-1 0-2", "<llm: 1f1b, (image: transpose | speech: transpose)>", 2, NONE, NONE,
        {MT_GATE_WEIGHTS, 2}, NONE);
}

static void test_empty_stages_pass_gradients_on(void **state) {
  (void)state;
  CHECK("llm:tf", "<1f1b>", 4, {MT_GATE_WEIGHTS, 0}, {MT_GATE_INPUT, 1}, {MT_GATE_INPUT, 2}, {MT_GATE_INPUT, 2});
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_projector_alone),
      cmocka_unit_test(test_frozen_vision_and_trainable_projector_in_one_region),
      cmocka_unit_test(test_inline_encoder),
      cmocka_unit_test(test_end_to_end),
      cmocka_unit_test(test_frozen_encoder),
      cmocka_unit_test(test_everything_frozen),
      cmocka_unit_test(test_branches_do_not_mix),
      cmocka_unit_test(test_empty_stages_pass_gradients_on),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
