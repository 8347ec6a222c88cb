/* A computation that sends nothing for longer than a rank may be silent is no failure: the service thread speaks
 * for the rank. */
#include "base/clock.h"
#include "comm/collective.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

static mt_transport *transport;
static const double heartbeat_seconds = 1;

static void test_long_computation(void **state) {
  (void)state;
  if (transport->ranks != 3) skip();
  motet_error error;
  int32_t ranks[] = {0, 1, 2};
  mt_rank_group everyone = {.count = 3, .ranks = ranks};
  const double end = mt_clock_seconds() + 1.7 * heartbeat_seconds;
  while (transport->rank > 0 && mt_clock_seconds() < end) continue;
  assert_int_equal(mt_barrier(transport, &everyone, &error), MOTET_OK);
  assert_false(transport->ended);
}

int main(void) {
  motet_error error;
  mt_transport_options options = {.ranks = 1, .hang_seconds = 10, .heartbeat_seconds = heartbeat_seconds};
  if (!mt_transport_launched(&options.ranks, NULL)) options.ranks = 1;
  if (mt_transport_mpi_create(&options, &error, &transport) != MOTET_OK) {
    fprintf(stderr, "%s\n", error.text);
    return 2;
  }
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_long_computation)};
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  if (failed != 0) mt_transport_fail(transport, &error);
  mt_transport_destroy(transport);
  return failed;
}
