/* Collectives over real messages: every rank checks its own result against a formula. */
#include "comm/collective.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static mt_transport *transport;
static int32_t everyone[64];

static mt_rank_group all_ranks(void) {
  return (mt_rank_group){.number = 0, .count = transport->ranks, .ranks = everyone};
}

static float part(int32_t rank, size_t i) { return 1.0f / (float)(1 + ((size_t)rank * 7919 + i * 104729) % 1000); }

/* Sums in rank order, bit for bit: float sums in another order differ in the last places. */
static void test_all_reduce_sums_in_rank_order(void **state) {
  (void)state;
  static const size_t counts[] = {1, 2, 7, 1000, 1 << 20, (5 << 20) + 3};
  mt_rank_group group = all_ranks();
  mt_collective_scratch scratch = {0};
  for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
    float *values = malloc(counts[c] * sizeof *values);
    for (size_t i = 0; i < counts[c]; i++) values[i] = part(transport->rank, i);
    motet_error error;
    assert_int_equal(mt_all_reduce_floats(transport, &group, values, counts[c], &scratch, &error), MOTET_OK);
    for (size_t i = 0; i < counts[c]; i++) {
      float sum = part(0, i);
      for (int32_t rank = 1; rank < transport->ranks; rank++) sum += part(rank, i);
      if (memcmp(&sum, &values[i], sizeof sum) != 0) fail_msg("element %zu of %zu", i, counts[c]);
    }
    free(values);
  }
  mt_collective_scratch_free(&scratch);
}

/* Odd and even ranks apart, then all: groups meet on the same pairs of ranks and must not mix. */
static void test_groups_do_not_mix(void **state) {
  (void)state;
  int32_t ranks[64], count = 0;
  for (int32_t rank = transport->rank % 2; rank < transport->ranks; rank += 2) ranks[count++] = rank;
  mt_rank_group half = {.number = 1 + transport->rank % 2, .count = count, .ranks = ranks};
  mt_rank_group group = all_ranks();
  mt_collective_scratch scratch = {0};
  double sum = 0, halves = 0;
  for (int32_t i = 0; i < count; i++) halves += ranks[i] + 1;
  for (int32_t rank = 0; rank < transport->ranks; rank++) sum += rank + 1;
  for (int round = 0; round < 50; round++) {
    double value = transport->rank + 1, other = value;
    assert_int_equal(mt_all_reduce_doubles(transport, &half, &other, 1, &scratch, NULL), MOTET_OK);
    assert_int_equal(mt_all_reduce_doubles(transport, &group, &value, 1, &scratch, NULL), MOTET_OK);
    assert_true(other == halves && value == sum);
  }
  mt_collective_scratch_free(&scratch);
}

static void test_broadcast_and_gather(void **state) {
  (void)state;
  mt_rank_group group = all_ranks();
  for (int32_t root = 0; root < transport->ranks; root++) {
    int32_t data[3] = {0};
    if (transport->rank == root) data[0] = root + 1, data[2] = -root;
    assert_int_equal(mt_broadcast(transport, &group, root, data, sizeof data, NULL), MOTET_OK);
    assert_true(data[0] == root + 1 && data[2] == -root);
  }
  int64_t own = 100 + transport->rank, all[64] = {0};
  assert_int_equal(mt_gather(transport, &group, &own, sizeof own, all, NULL), MOTET_OK);
  for (int32_t rank = 0; transport->rank == 0 && rank < transport->ranks; rank++)
    assert_int_equal(all[rank], 100 + rank);
}

/* Rank 0 counts arrivals by messages that were sent before the barrier: all are there after it. */
static void test_barrier_waits_for_all(void **state) {
  (void)state;
  mt_rank_group group = all_ranks();
  for (int round = 0; round < 20; round++) {
    char token = 1;
    mt_transfer *transfer = NULL;
    int32_t next = (transport->rank + 1) % transport->ranks;
    int32_t last = (transport->rank + transport->ranks - 1) % transport->ranks;
    char got = 0;
    mt_transfer *receive = NULL;
    if (transport->ranks > 1) {
      assert_int_equal(mt_transport_recv(transport, last, MT_TAG_TRANSFER, &got, 1, NULL, &receive), MOTET_OK);
      assert_int_equal(mt_transport_send(transport, next, MT_TAG_TRANSFER, &token, 1, NULL, &transfer), MOTET_OK);
    }
    assert_int_equal(mt_barrier(transport, &group, NULL), MOTET_OK);
    assert_int_equal(mt_transport_wait(transport, receive, NULL), MOTET_OK);
    assert_int_equal(mt_transport_wait(transport, transfer, NULL), MOTET_OK);
    assert_true(got == 1 || transport->ranks == 1);
  }
}

static void test_outsider_and_foreign_rank_are_refused(void **state) {
  (void)state;
  motet_error error;
  int32_t nobody[1] = {transport->ranks};
  mt_rank_group group = {.number = 3, .count = 1, .ranks = nobody};
  assert_int_equal(mt_barrier(transport, &group, &error), MOTET_ERROR_ARGUMENT);
  mt_transfer *transfer = NULL;
  assert_int_equal(mt_transport_send(transport, transport->ranks, MT_TAG_TRANSFER, "", 0, &error, &transfer),
                   MOTET_ERROR_ARGUMENT);
}

int main(void) {
  motet_error error;
  mt_transport_options options = {.ranks = 1};
  if (!mt_transport_launched(&options.ranks, NULL)) options.ranks = 1;
  if (mt_transport_mpi_create(&options, &error, &transport) != MOTET_OK) {
    fprintf(stderr, "%s\n", error.text);
    return 2;
  }
  for (int32_t rank = 0; rank < 64; rank++) everyone[rank] = rank;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_all_reduce_sums_in_rank_order),
      cmocka_unit_test(test_groups_do_not_mix),
      cmocka_unit_test(test_broadcast_and_gather),
      cmocka_unit_test(test_barrier_waits_for_all),
      cmocka_unit_test(test_outsider_and_foreign_rank_are_refused),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  mt_transport_destroy(transport);
  return failed;
}
