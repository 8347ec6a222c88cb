#include "../sim_builder.h"
#include "sim/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

static void give_sizes(builder *b, int64_t saved, int64_t output) {
  int64_t *values = MT_ARENA_NEW(b->arena, int64_t, 2);
  values[0] = saved;
  values[1] = output;
  b->program.saved_bytes = (motet_size_table){&values[0], 0, 0};
  b->program.output_bytes = (motet_size_table){&values[1], 0, 0};
}

static const mt_memory_timeline *make(builder *b, motet_program *p, mt_simulation *s) {
  mt_memory_timeline *timeline = NULL;
  motet_error error;
  if (mt_memory_timeline_make(b->arena, p, s->start, s->finish, &error, &timeline) != MOTET_OK)
    fail_msg("%s", error.text);
  return timeline;
}

static int64_t held_at(const mt_memory_timeline *timeline, int32_t rank, double seconds) {
  int64_t bytes = -1;
  for (int64_t i = timeline->begin[rank]; i < timeline->begin[rank + 1]; i++)
    if (timeline->steps[i].seconds <= seconds) bytes = timeline->steps[i].bytes;
  return bytes;
}

/* Two ranks, two microbatches, saved 100, output 10, weights 1000. Rank 0: F0 0-1, F1 1-2, B0 4-6, B1 7-9. Its
 * receives of two gradients (20) are posted at 0. Sends are waited for at the list's end, so that outputs stay. */
static void test_1f1b_by_hand(void **state) {
  (void)state;
  builder b;
  builder_begin(&b, 2, 1, 2, 2);
  builder_cost_all(&b, 1.0, 2.0);
  give_sizes(&b, 100, 10);
  for (int32_t stage = 0; stage < 2; stage++) {
    int32_t rank[] = {stage};
    b.program.stages[stage].group = builder_group(&b, rank, 1);
    b.program.static_bytes[stage] = 1000;
  }
  builder_pipeline(&b, 0, 2, 1, 0, 2, false, 10);
  builder_send_waits(&b);
  motet_program *p = builder_end(&b);
  mt_simulation *s = builder_simulate(&b, p);
  const mt_memory_timeline *timeline = make(&b, p, s);
  assert_int_equal(held_at(timeline, 0, 0.5), 1000 + 20 + 110);
  assert_int_equal(held_at(timeline, 0, 1.5), 1000 + 20 + 220);
  assert_int_equal(held_at(timeline, 0, 5.0), 1000 + 20 + 220);
  assert_int_equal(held_at(timeline, 0, 6.5), 1000 + 10 + 10 + 110); /* one gradient and one activation read */
  assert_int_equal(held_at(timeline, 0, 9.0), 1000);
  assert_int_equal(timeline->peak_bytes[0], 1240);
  /* Rank 1: receives of both activations at 0; F0 1-2, B0 2-4, F1 4-5, B1 5-7; the last stage's output is read by
   * nobody; a gradient is held from its backward to the send's WAIT at the end. */
  assert_int_equal(held_at(timeline, 1, 0.5), 1020);
  assert_int_equal(held_at(timeline, 1, 1.5), 1120);
  assert_int_equal(held_at(timeline, 1, 2.5), 1000 + 10 + 100 + 10);
  assert_int_equal(held_at(timeline, 1, 4.5), 1000 + 10 + 10 + 100);
  assert_int_equal(held_at(timeline, 1, 7.0), 1000);
  assert_int_equal(timeline->peak_bytes[1], 1120);
  builder_free(&b);
}

/* One rank: F0 F1 OFFLOAD0 FETCH0 B0 on stage 0; what is on the host is not held. */
static void test_offload_and_recompute(void **state) {
  (void)state;
  builder b;
  builder_begin(&b, 1, 1, 1, 2);
  builder_cost_all(&b, 1.0, 1.0);
  builder_cost(&b, MT_COST_OFFLOAD, 0, 1.0);
  builder_cost(&b, MT_COST_RECOMPUTE, 0, 1.0);
  builder_cost(&b, MT_COST_BACKWARD_X, 0, 1.0);
  give_sizes(&b, 100, 10);
  static const struct {
    int kind, microbatch;
  } list[] = {{MOTET_FWD, 0}, {MOTET_OFFLOAD, 0}, {MOTET_FWD, 1},   {MOTET_RECOMPUTE, 1},
              {MOTET_BWD, 1}, {MOTET_FETCH, 0},   {MOTET_BWD_X, 0}, {MOTET_BWD_W, 0}};
  for (size_t i = 0; i < sizeof list / sizeof *list; i++)
    builder_compute(&b, 0, list[i].kind, 0, list[i].microbatch);
  motet_program *p = builder_end(&b);
  mt_simulation *s = builder_simulate(&b, p);
  const mt_memory_timeline *timeline = make(&b, p, s);
  /* F0 0-1, OFFLOAD 1-2, F1 2-3 (dropped at its end), RECOMPUTE 3-4, B1 4-5, FETCH 5-6, X 6-7, W 7-7. */
  static const int64_t held[] = {100, 100, 100, 100, 100, 100, 100};
  for (int i = 0; i < 7; i++) assert_int_equal(held_at(timeline, 0, i + 0.5), held[i]);
  assert_int_equal(timeline->peak_bytes[0], 100); /* never both */
  assert_int_equal(held_at(timeline, 0, 9.0), 0);
  builder_free(&b);
}

/* Local consumers, carried features, and features of the next step: stage 0 is replicated, both on one rank. */
static void test_features_on_their_consumer_s_rank(void **state) {
  (void)state;
  builder b;
  builder_begin(&b, 1, 1, 2, 3);
  b.program.stages[0].region = 1;
  builder_cost(&b, MT_COST_FORWARD, 0, 1.0);
  builder_cost(&b, MT_COST_FORWARD, 1, 2.0);
  give_sizes(&b, 0, 10);
  builder_edge(&b, 0, 1);
  motet_carried carried[] = {{0, 0, 0}};
  b.program.carried = carried;
  b.program.carried_count = 1;
  builder_compute(&b, 0, MOTET_FWD, 0, 1);                      /* 0-1 */
  builder_compute(&b, 0, MOTET_FWD, 1, 0);                      /* 1-3, frees the carried one */
  builder_compute(&b, 0, MOTET_FWD, 1, 1);                      /* 3-5 */
  builder_add(&b, 0, MOTET_FWD, MOTET_FLAG_NEXT, 0, 0, -1, -1); /* 5-6, stays */
  motet_program *p = builder_end(&b);
  mt_simulation *s = builder_simulate(&b, p);
  const mt_memory_timeline *timeline = make(&b, p, s);
  static const int64_t held[] = {20, 20, 20, 10, 10, 10};
  for (int i = 0; i < 6; i++) assert_int_equal(held_at(timeline, 0, i + 0.5), held[i]);
  assert_int_equal(held_at(timeline, 0, 100.0), 10);
  assert_int_equal(timeline->peak_bytes[0], 20);
  builder_free(&b);
}

/* One rank, F0 F1 B0 B1, saved 100; stage 1 reads stage 0's output of 10 and is computed at once. */
static void test_joined_instructions_hold_together(void **state) {
  (void)state;
  for (int joined = 0; joined < 2; joined++) {
    builder b;
    builder_begin(&b, 1, 1, 2, 2);
    builder_cost_all(&b, 1.0, 1.0);
    give_sizes(&b, 100, 10);
    builder_edge(&b, 0, 1);
    for (int32_t m = 0; m < 2; m++) builder_compute(&b, 0, MOTET_FWD, 0, m);
    for (int32_t m = 0; m < 2; m++)
      builder_add(&b, 0, MOTET_FWD, joined && m == 0 ? MOTET_FLAG_JOINED : 0, 1, m, -1, -1);
    for (int32_t m = 0; m < 2; m++)
      builder_add(&b, 0, MOTET_BWD, joined && m == 0 ? MOTET_FLAG_JOINED : 0, 1, m, -1, -1);
    for (int32_t m = 0; m < 2; m++) builder_compute(&b, 0, MOTET_BWD, 0, m);
    motet_program *p = builder_end(&b);
    mt_simulation *s = builder_simulate(&b, p);
    const mt_memory_timeline *timeline = make(&b, p, s);
    int64_t first = p->rank_begin[0];
    double forward = s->start[first + 2], backward = s->start[first + 4];
    /* The outputs of stage 0, its 200, and of stage 1 100 or at once 200. Back: all 400 saved, and a gradient made,
     * or both; what the first frees before the second begins stays to the end of both. */
    assert_int_equal(held_at(timeline, 0, forward), joined ? 420 : 320);
    assert_int_equal(held_at(timeline, 0, s->finish[first + 3]), joined ? 420 : 410);
    assert_int_equal(held_at(timeline, 0, backward), joined ? 420 : 410);
    assert_int_equal(held_at(timeline, 0, s->start[first + 6]), 220);
    assert_int_equal(timeline->peak_bytes[0], joined ? 420 : 410);
    builder_free(&b);
  }
}

static void test_sizes_beyond_64_bits_are_refused(void **state) {
  (void)state;
  builder b;
  builder_begin(&b, 1, 1, 1, 3);
  give_sizes(&b, INT64_MAX / 2, 0);
  for (int32_t m = 0; m < 3; m++) builder_compute(&b, 0, MOTET_FWD, 0, m);
  for (int32_t m = 0; m < 3; m++) builder_compute(&b, 0, MOTET_BWD, 0, m);
  motet_program *p = builder_end(&b);
  mt_simulation *s = builder_simulate(&b, p);
  mt_memory_timeline *timeline = NULL;
  motet_error error;
  assert_int_equal(mt_memory_timeline_make(b.arena, p, s->start, s->finish, &error, &timeline), MOTET_ERROR_LIMIT);
  assert_null(timeline);
  builder_free(&b);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_1f1b_by_hand),
      cmocka_unit_test(test_offload_and_recompute),
      cmocka_unit_test(test_features_on_their_consumer_s_rank),
      cmocka_unit_test(test_joined_instructions_hold_together),
      cmocka_unit_test(test_sizes_beyond_64_bits_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
