/* Failures: every rank hears of them within seconds, and one of them is reported, once. */
#include "base/clock.h"
#include "comm/collective.h"
#include "verdict.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static mt_transport *transport;
static int reports;
static motet_error reported;

static void keep(void *context, const motet_error *error) {
  (void)context;
  reports++;
  reported = *error;
}

/* The message from rank 0 to rank 1 is never sent; all others wait for what rank 1 would send then. */
static void test_withheld_message_ends_all_ranks(void **state) {
  (void)state;
  if (transport->ranks < 2) skip();
  motet_error error;
  mt_transfer *transfer = NULL;
  char data = 0;
  int32_t from = transport->rank == 1 ? 0 : 1;
  double begin = mt_clock_seconds();
  if (transport->rank != 1) usleep(300000); /* rank 1 is the first to wait */
  assert_int_equal(mt_transport_recv(transport, from, MT_TAG_TRANSFER, &data, 1, &error, &transfer), MOTET_OK);
  assert_int_equal(mt_transport_wait(transport, transfer, &error), MOTET_ERROR_FAILED);
  if (transport->rank == 1) {
    assert_false(transport->ended);
    assert_non_null(strstr(error.text, "nothing has arrived from rank 0"));
    error.rank = 1;
  }
  mt_transport_fail(transport, &error);
  assert_true(transport->ended);
  assert_true(mt_clock_seconds() - begin < 5);
  if (transport->rank == 0) {
    assert_int_equal(reports, 1);
    assert_int_equal(reported.rank, 1);
    assert_non_null(strstr(reported.text, "rank 0"));
  } else {
    assert_int_equal(reports, 0);
  }
}

int main(void) {
  motet_error error;
  mt_transport_options options = {.ranks = 1, .hang_seconds = 1, .report = keep};
  if (!mt_transport_launched(&options.ranks, NULL)) options.ranks = 1;
  if (mt_transport_mpi_create(&options, &error, &transport) != MOTET_OK) {
    fprintf(stderr, "%s\n", error.text);
    return 2;
  }
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_withheld_message_ends_all_ranks)};
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  failed = verdict_share(transport->rank, transport->ranks, failed);
  mt_transport_destroy(transport);
  return failed;
}
