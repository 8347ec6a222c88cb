/* Single cases of mt_order_make() whose answers are known from formulas or by hand. */
#include "../order_case.h"

#include <math.h>

static double run_case(const order_case *c, double *bound) {
  order_run run;
  replay check;
  case_order(c, &run);
  double makespan = replay_order(&run, &check);
  assert_seconds_near(makespan, run.result.makespan);
  if (bound != NULL) *bound = run.result.bound;
  case_end(&run);
  return makespan;
}

static order_case unit_case(const char *schedule, int32_t ranks, int32_t microbatches, const double *encode) {
  return (order_case){.schedule = schedule,
                      .ranks = ranks,
                      .microbatches = microbatches,
                      .encode = encode,
                      .encode_count = 1,
                      .forward = 1,
                      .backward = 2};
}

/* (M + P - 1)(f + b) without an encoder; + (M - P + 1) e with it in stage 0; + ceil(M / P) e as `prefix`. */
static void test_overhead_laws_of_inline_and_prefix(void **state) {
  (void)state;
  for (int32_t ranks = 1; ranks <= 6; ranks++)
    for (int32_t microbatches = ranks; microbatches <= 20; microbatches++)
      for (double e = 0.25; e <= 2; e += 0.25) {
        double without = 3.0 * (microbatches + ranks - 1);
        order_case inlined = unit_case("<inline, 1f1b>", ranks, microbatches, &e);
        assert_seconds_near(run_case(&inlined, NULL), without + (microbatches - ranks + 1) * e);
        order_case prefix = unit_case("<transpose(order=prefix), 1f1b>", ranks, microbatches, &e);
        assert_seconds_near(run_case(&prefix, NULL), without + ceil((double)microbatches / ranks) * e);
      }
}

/* As many microbatches as ranks and e <= b: nothing is to be gained over the encoder in stage 0. */
static void test_nothing_is_gained_where_microbatches_are_as_many_as_ranks(void **state) {
  (void)state;
  for (int32_t ranks = 1; ranks <= 8; ranks++)
    for (double e = 0.5; e <= 2; e += 0.5) {
      order_case inlined = unit_case("<inline, 1f1b>", ranks, ranks, &e);
      order_case fill = unit_case("<transpose, 1f1b>", ranks, ranks, &e);
      double bound;
      assert_seconds_near(run_case(&fill, &bound), run_case(&inlined, NULL));
      assert_seconds_near(bound, 3.0 * (2 * ranks - 1) + e);
    }
}

/* Rows beyond the published tables: uniform frozen encoders whose optima a constraint solver has proven. */
static void test_further_frozen_rows_reach_their_proven_optima(void **state) {
  (void)state;
  static const struct {
    int32_t ranks, microbatches;
    double encode, optimum;
  } rows[] = {{5, 14, 4, 62},  {5, 17, 3, 69},  {6, 17, 5, 76}, {7, 25, 4, 101},
              {8, 30, 4, 118}, {8, 32, 4, 125}, {5, 14, 6, 68}, {7, 30, 3, 114}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    order_case c = unit_case("<transpose, 1f1b>", rows[i].ranks, rows[i].microbatches, &rows[i].encode);
    double bound;
    assert_seconds_near(run_case(&c, &bound), rows[i].optimum);
    assert_true(bound >= rows[i].optimum - 1 - 1e-9 && bound <= rows[i].optimum + 1e-9);
  }
}

static void test_a_large_pipeline_is_filled_to_its_bound(void **state) {
  (void)state;
  for (int32_t trainable = 0; trainable < 2; trainable++)
    for (double e = 1; e <= 2; e++) {
      order_case c = unit_case("<transpose, 1f1b>", 64, 1024, &e);
      c.trainable = trainable == 1;
      order_run run;
      case_order(&c, &run);
      /* The first encode, the whole pipeline, and when trained the last encoder's backward. */
      assert_seconds_near(run.result.makespan, 1087 * 3.0 + e + (trainable == 1 ? 2 * e : 0));
      assert_seconds_near(run.result.bound, run.result.makespan);
      case_end(&run);
    }
}

static void test_text_only_microbatches_have_no_encoder_work(void **state) {
  (void)state;
  double e = 1;
  uint64_t present[8];
  for (int32_t m = 0; m < 8; m++) present[m] = m % 2 == 0 ? 2 : 3; /* microbatch 0 needs no feature */
  order_case c = unit_case("<transpose, 1f1b>", 4, 8, &e);
  c.present = present;
  double bound;
  assert_seconds_near(run_case(&c, &bound), 33); /* (8 + 3) * 3: four encodes fit into idle time */
  for (int32_t m = 0; m < 8; m++) present[m] = 2;
  assert_seconds_near(run_case(&c, &bound), 33);
  order_case prefix = unit_case("<transpose(order=prefix), 1f1b>", 4, 8, &e);
  prefix.present = present;
  assert_seconds_near(run_case(&prefix, &bound), 33);
}

static void test_several_encoders_share_the_idle_time(void **state) {
  (void)state;
  double e = 1;
  order_case c = unit_case("<(m0: transpose | m1: transpose), m2: 1f1b>", 4, 8, &e);
  c.modules = 3;
  double bound;
  /* Microbatch 0 needs both features: two ranks make them at once. 16 encodes fit into 3 * 3 / 2 * 4 + 4. */
  assert_seconds_near(run_case(&c, &bound), 34);
  assert_seconds_near(bound, 34);
  c.schedule = "<(m0: transpose(order=prefix) | m1: transpose(order=prefix)), m2: 1f1b>";
  assert_seconds_near(run_case(&c, NULL), 33 + 4); /* 16 encodes on 4 ranks, round robin */
  c.schedule = "<(m0: transpose | m1: inline), m2: 1f1b>";
  assert_true(run_case(&c, NULL) >= 34);
}

/* A head behind the trunk: its forward follows the last stage's, its gradient comes before the last stage's
 * backward. */
static void test_a_sink_follows_the_trunk_and_feeds_its_backward(void **state) {
  (void)state;
  double e = 1;
  for (int32_t frozen = 0; frozen < 2; frozen++) {
    order_case c = unit_case("<transpose, 1f1b, transpose>", 4, 8, &e);
    c.modules = 3;
    c.sinks = 1;
    c.frozen_sinks = frozen == 1;
    double bound, makespan = run_case(&c, &bound);
    order_case in_stage = c;
    in_stage.schedule = "<inline, 1f1b, inline>";
    assert_true(makespan <= run_case(&in_stage, NULL) + 1e-9);
    /* First encode, first and last microbatch through everything: e + 4 f + sink (e + 2e or e) + 4 b. */
    assert_true(makespan >= 1 + 4 + (frozen == 1 ? 2 : 3) + 8);
    assert_true(bound <= makespan);
  }
}

static void test_transfers_take_the_links_time(void **state) {
  (void)state;
  double e = 1;
  order_case c = unit_case("<transpose, 1f1b>", 2, 1, &e);
  c.links = (mt_links){.ranks_per_node = 1, .remote = {.latency_seconds = 0.5, .bytes_per_second = 8}};
  c.bytes = 2; /* 0.75 between the ranks */
  double bound;
  /* Encode on rank 0, forward, over, forward and backward, back, backward. */
  assert_seconds_near(run_case(&c, &bound), 1 + 1 + 0.75 + 1 + 2 + 0.75 + 2);
  assert_seconds_near(bound, 8.5);
  c.links.ranks_per_node = 2; /* both on one node, whose links cost nothing */
  assert_seconds_near(run_case(&c, &bound), 7);
  order_case far = unit_case("<transpose(owner=round-robin), 1f1b>", 2, 2, &e);
  far.links = (mt_links){.local = {.latency_seconds = 10}};
  /* Microbatch 1 is encoded on rank 1 and takes 10 to rank 0; as do its activation and the two gradients. */
  assert_true(run_case(&far, NULL) >= 1 + 10 + 1 + 10 + 3 + 10 + 2);
}

static void test_ahead_hides_the_first_encodes_in_the_tail(void **state) {
  (void)state;
  double e = 1, bound;
  order_case c = unit_case("<transpose(order=ahead), 1f1b>", 4, 16, &e);
  assert_seconds_near(run_case(&c, &bound), 57); /* no overhead: (16 + 3) * 3 */
  assert_seconds_near(bound, 57);
  c = unit_case("<transpose(order=ahead), 1f1b>", 4, 4, &e);
  assert_seconds_near(run_case(&c, NULL), 21);
  c = unit_case("<transpose(order=ahead), 1f1b>", 1, 5, &e); /* one rank has no tail */
  assert_seconds_near(run_case(&c, NULL), 20);
}

static void test_ahead_takes_what_the_previous_step_left(void **state) {
  (void)state;
  double e = 1;
  order_case c = unit_case("<transpose(order=ahead), 1f1b>", 4, 16, &e);
  order_run run;
  motet_error error;
  case_derive(&c, &run);
  motet_carried left[] = {{.stage = 0, .microbatch = 0, .rank = 3}, {.stage = 0, .microbatch = 1, .rank = 2}};
  run.options.carried = left;
  run.options.carried_count = 2;
  replay check;
  assert_int_equal(mt_order_make(run.arena, run.derivation, &run.costs, &run.options, &error, &run.result),
                   MOTET_OK);
  assert_seconds_near(replay_order(&run, &check), 57);
  const mt_order *order = &run.result.order;
  assert_int_equal(order->carried_count, 2);
  assert_memory_equal(order->carried, left, sizeof left);
  int32_t now = 0, next = 0;
  for (int64_t i = 0; i < order->begin[4]; i++) {
    if (order->events[i].stage != 0) continue;
    if (order->events[i].next)
      next++;
    else
      now++;
    assert_false(!order->events[i].next && order->events[i].microbatch < 2);
  }
  assert_int_equal(now, 14);
  assert_true(next >= 6);        /* the ranks' tails are 0, 2, 4 and 6 long */
  run.options.carried_count = 0; /* the very first step */
  assert_int_equal(mt_order_make(run.arena, run.derivation, &run.costs, &run.options, &error, &run.result),
                   MOTET_OK);
  assert_seconds_near(replay_order(&run, &check), 58);
  left[0].rank = 4;
  run.options.carried_count = 2;
  assert_int_equal(mt_order_make(run.arena, run.derivation, &run.costs, &run.options, &error, &run.result),
                   MOTET_ERROR_ARGUMENT);
  case_end(&run);
}

static void test_ahead_is_refused_for_a_trained_encoder(void **state) {
  (void)state;
  double e = 1;
  order_case c = unit_case("<transpose(order=fill), 1f1b>", 2, 4, &e);
  c.trainable = true;
  order_run run;
  case_derive(&c, &run);
  run.derivation->regions[0].skeleton.order = MT_ORDER_AHEAD;
  motet_error error;
  assert_int_equal(mt_order_make(run.arena, run.derivation, &run.costs, &run.options, &error, &run.result),
                   MOTET_ERROR_ILLEGAL);
  assert_non_null(strstr(error.text, "order=fill"));
  case_end(&run);
}

static void test_bad_times_are_refused(void **state) {
  (void)state;
  const double bad[] = {-1, NAN, INFINITY};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    order_case c = unit_case("<transpose, 1f1b>", 2, 4, &bad[i]);
    order_run run;
    motet_error error;
    case_derive(&c, &run);
    assert_int_equal(mt_order_make(run.arena, run.derivation, &run.costs, &run.options, &error, &run.result),
                     MOTET_ERROR_ARGUMENT);
    assert_non_null(strstr(error.text, "microbatch 0"));
    case_end(&run);
  }
}

static void test_a_derivation_without_free_work_gets_its_body(void **state) {
  (void)state;
  order_case c = unit_case("<1f1b>", 3, 5, NULL);
  c.modules = 1;
  c.encode_count = 0;
  order_run run;
  case_order(&c, &run);
  const mt_derivation *d = run.derivation;
  assert_seconds_near(run.result.makespan, (5 + 2) * 3);
  assert_seconds_near(run.result.bound, (5 + 2) * 3);
  assert_memory_equal(run.result.order.begin, d->body_begin, 4 * sizeof(int64_t));
  assert_memory_equal(run.result.order.events, d->body, (size_t)d->body_begin[3] * sizeof(mt_event));
  case_end(&run);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_overhead_laws_of_inline_and_prefix),
      cmocka_unit_test(test_nothing_is_gained_where_microbatches_are_as_many_as_ranks),
      cmocka_unit_test(test_further_frozen_rows_reach_their_proven_optima),
      cmocka_unit_test(test_a_large_pipeline_is_filled_to_its_bound),
      cmocka_unit_test(test_text_only_microbatches_have_no_encoder_work),
      cmocka_unit_test(test_several_encoders_share_the_idle_time),
      cmocka_unit_test(test_a_sink_follows_the_trunk_and_feeds_its_backward),
      cmocka_unit_test(test_transfers_take_the_links_time),
      cmocka_unit_test(test_ahead_hides_the_first_encodes_in_the_tail),
      cmocka_unit_test(test_ahead_takes_what_the_previous_step_left),
      cmocka_unit_test(test_ahead_is_refused_for_a_trained_encoder),
      cmocka_unit_test(test_bad_times_are_refused),
      cmocka_unit_test(test_a_derivation_without_free_work_gets_its_body),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
