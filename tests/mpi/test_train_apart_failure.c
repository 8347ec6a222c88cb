/* A weight that changes by itself on one rank: the step's end finds that the ranks' weights differ, and names it.
 */
#include "trial.h"
#include "verdict.h"

static mt_transport *transport;

static void test_spoiled_rank_is_named(void **state) {
  (void)state;
  if (transport->ranks < 2 || transport->ranks > 4) skip();
  motet_error error;
  mt_internvl config;
  static trial_data data;
  assert_int_equal(mt_internvl_read(MOTET_TEST_DATA "/train/config.json", &error, &config), MOTET_OK);
  trial_data_fill(&data, &config, false);
  /* Every rank holds the transposed encoder, whose first weight it is. */
  trial what = {.schedule = "<vision+projector: transpose, llm: 1f1b>",
                .pipeline = transport->ranks,
                .replicas = 1,
                .trainable = {true, true, true},
                .spoiled_rank = transport->ranks - 1};
  trial_result result;
  motet_status status = trial_run(&what, &data, transport, &error, &result);
  if (transport->rank == what.spoiled_rank) {
    char said[64];
    snprintf(said, sizeof said, "rank %d's weights of layer 0 ", (int)what.spoiled_rank);
    assert_int_equal(status, MOTET_ERROR_FAILED);
    assert_non_null(strstr(error.text, "step 2, STEP_END"));
    assert_non_null(strstr(error.text, said));
    assert_non_null(strstr(error.text, "those of rank 0"));
    assert_int_equal(error.rank, what.spoiled_rank);
    mt_transport_fail(transport, &error);
  } else {
    assert_int_equal(status, MOTET_ERROR_FAILED); /* of the step after, which cannot be */
    assert_true(transport->ended);
  }
  assert_true(result.digests[0] != 0);
  mt_network_destroy(result.network);
  trial_data_free(&data);
}

static void keep_quiet(void *context, const motet_error *error) { (void)context, (void)error; }

int main(void) {
  transport = trial_connect(5, keep_quiet);
  if (transport == NULL) return 2;
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_spoiled_rank_is_named)};
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  failed = verdict_share(transport->rank, transport->ranks, failed);
  mt_transport_destroy(transport);
  return failed;
}
