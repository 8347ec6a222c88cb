/* Planning ahead on a thread: order, fallback, refusals, and plans equal to those made directly. */
#include "base/random.h"
#include "motet/pack.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { SEQUENCES = 40, BATCHES = 25, LOOK_AHEAD = 3 };

static motet_pack_options small_cluster(void) {
  return (motet_pack_options){.ranks = 16,
                              .memory_tokens = 8192,
                              .ranks_per_node = 8,
                              .cost = {.attention_seconds_per_area = 1e-8,
                                       .linear_seconds_per_token = 2e-4,
                                       .fixed_seconds = 0.5,
                                       .ring_bytes_per_token = 1e5,
                                       .bandwidth_count = 2,
                                       .bandwidth_degree = {8, 16},
                                       .bandwidth_bytes_per_second = {1e11, 1e10}}};
}

static void draw(uint64_t seed, motet_pack_sequence *sequences) {
  mt_random random = mt_random_stream(seed, "service");
  for (int k = 0; k < SEQUENCES; k++) {
    int64_t tokens = 100 + (int64_t)mt_random_below(&random, 5000);
    sequences[k] = (motet_pack_sequence){tokens, motet_pack_causal_area(tokens)};
  }
}

static uint64_t digest_of(motet_packer *packer, uint64_t seed) {
  motet_pack_sequence sequences[SEQUENCES];
  const motet_pack_plan *plan;
  draw(seed, sequences);
  assert_int_equal(motet_packer_plan(packer, sequences, SEQUENCES, NULL, &plan), MOTET_OK);
  return plan->digest;
}

static void plans_in_order(void **unused) {
  (void)unused;
  motet_pack_options options = small_cluster();
  motet_pack_service *service;
  motet_packer *direct;
  assert_int_equal(motet_packer_create(&options, NULL, &direct), MOTET_OK);
  assert_int_equal(motet_pack_service_create(&options, LOOK_AHEAD, NULL, &service), MOTET_OK);
  motet_pack_sequence sequences[SEQUENCES];
  int submitted = 0;
  for (int taken = 0; taken < BATCHES; taken++) {
    for (; submitted < BATCHES && submitted < taken + LOOK_AHEAD; submitted++) {
      draw((uint64_t)submitted, sequences);
      assert_int_equal(motet_pack_service_submit(service, sequences, SEQUENCES, NULL), MOTET_OK);
    }
    bool fresh;
    const motet_pack_plan *plan;
    assert_int_equal(motet_pack_service_take(service, true, NULL, &fresh, &plan), MOTET_OK);
    assert_true(fresh);
    assert_int_equal(plan->digest, digest_of(direct, (uint64_t)taken));
    int64_t tokens = 0;
    for (int64_t p = 0; p < plan->part_count; p++) tokens += plan->parts[p].loss_numerator;
    assert_int_equal(tokens, plan->loss_denominator);
  }
  motet_pack_service_destroy(service);
  motet_packer_destroy(direct);
}

static void a_miss_is_no_error(void **unused) {
  (void)unused;
  motet_pack_options options = small_cluster();
  motet_pack_service *service;
  assert_int_equal(motet_pack_service_create(&options, 1, NULL, &service), MOTET_OK);
  bool fresh = true;
  const motet_pack_plan *plan;
  assert_int_equal(motet_pack_service_take(service, false, NULL, &fresh, &plan), MOTET_OK);
  assert_false(fresh);
  assert_null(plan);
  motet_pack_sequence sequences[SEQUENCES];
  draw(1, sequences);
  assert_int_equal(motet_pack_service_submit(service, sequences, SEQUENCES, NULL), MOTET_OK);
  motet_error error;
  assert_int_equal(motet_pack_service_submit(service, sequences, SEQUENCES, &error), MOTET_ERROR_LIMIT);
  assert_int_equal(motet_pack_service_take(service, true, NULL, &fresh, &plan), MOTET_OK);
  assert_true(fresh);
  uint64_t digest = plan->digest;
  const motet_pack_plan *last; /* nothing submitted: the last good plan, again and again */
  for (int i = 0; i < 3; i++) {
    assert_int_equal(motet_pack_service_take(service, true, NULL, &fresh, &last), MOTET_OK);
    assert_false(fresh);
    assert_ptr_equal(last, plan);
    assert_int_equal(last->digest, digest);
  }
  motet_pack_service_destroy(service);
}

static void refused_batches_go_by(void **unused) {
  (void)unused;
  motet_pack_options options = small_cluster();
  motet_pack_service *service;
  assert_int_equal(motet_pack_service_create(&options, 1, NULL, &service), MOTET_OK);
  motet_pack_sequence good[SEQUENCES], bad = {16 * 8192 + 1, 1};
  draw(2, good);
  bool fresh;
  const motet_pack_plan *plan;
  for (int round = 0; round < 4; round++) {
    assert_int_equal(motet_pack_service_submit(service, good, SEQUENCES, NULL), MOTET_OK);
    assert_int_equal(motet_pack_service_take(service, true, NULL, &fresh, &plan), MOTET_OK);
    assert_true(fresh);
    uint64_t digest = plan->digest;
    for (int again = 0; again < 3; again++) {
      motet_error error;
      assert_int_equal(motet_pack_service_submit(service, &bad, 1, NULL), MOTET_OK);
      assert_int_equal(motet_pack_service_take(service, true, &error, &fresh, &plan), MOTET_ERROR_ILLEGAL);
      assert_string_equal(error.rule, "memory");
      assert_int_equal(motet_pack_service_take(service, false, NULL, &fresh, &plan), MOTET_OK);
      assert_false(fresh);
      assert_int_equal(plan->digest, digest);
    }
  }
  motet_pack_service_destroy(service);
}

static void ends_with_work_in_flight(void **unused) {
  (void)unused;
  motet_pack_options options = small_cluster();
  motet_pack_sequence sequences[SEQUENCES];
  draw(3, sequences);
  for (int i = 0; i < 20; i++) {
    motet_pack_service *service;
    assert_int_equal(motet_pack_service_create(&options, LOOK_AHEAD, NULL, &service), MOTET_OK);
    for (int b = 0; b < LOOK_AHEAD; b++)
      assert_int_equal(motet_pack_service_submit(service, sequences, SEQUENCES, NULL), MOTET_OK);
    motet_pack_service_destroy(service);
  }
  motet_pack_service *service;
  motet_error error;
  assert_int_equal(motet_pack_service_create(&options, 0, &error, &service), MOTET_ERROR_ARGUMENT);
  motet_pack_service_destroy(NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(plans_in_order),
      cmocka_unit_test(a_miss_is_no_error),
      cmocka_unit_test(refused_batches_go_by),
      cmocka_unit_test(ends_with_work_in_flight),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
