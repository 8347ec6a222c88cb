/* A message that is lost on its way: all ranks end within seconds, and the one report says who waited for what. */
#include "base/clock.h"
#include "trial.h"
#include "verdict.h"

static mt_transport *transport;
static int reports;
static motet_error reported;

static void keep(void *context, const motet_error *error) {
  (void)context;
  reports++;
  reported = *error;
}

/* A transport in front of another one that loses one of the program's messages. */
typedef struct losing_transport {
  mt_transport base;
  mt_transport *inner;
  int sent, lose;
} losing_transport;

static motet_status losing_send(mt_transport *base, int32_t peer, int32_t tag, const void *data, size_t bytes,
                                motet_error *error, mt_transfer **transfer) {
  losing_transport *this = (losing_transport *)base;
  if (tag >= MT_TAG_TRANSFER && base->rank == 0 && this->sent++ == this->lose) {
    *transfer = NULL; /* complete, as far as the sender can tell */
    return MOTET_OK;
  }
  return mt_transport_send(this->inner, peer, tag, data, bytes, error, transfer);
}

static motet_status losing_recv(mt_transport *base, int32_t peer, int32_t tag, void *data, size_t bytes,
                                motet_error *error, mt_transfer **transfer) {
  return mt_transport_recv(((losing_transport *)base)->inner, peer, tag, data, bytes, error, transfer);
}

static motet_status losing_wait(mt_transport *base, mt_transfer *transfer, motet_error *error) {
  return mt_transport_wait(((losing_transport *)base)->inner, transfer, error);
}

static const mt_transport_table losing_table = {
    .name = "losing", .send = losing_send, .recv = losing_recv, .wait = losing_wait};

static void test_lost_message_is_named(void **state) {
  (void)state;
  if (transport->ranks < 2 || transport->ranks > 4) skip();
  motet_error error;
  mt_internvl config;
  static trial_data data;
  assert_int_equal(mt_internvl_read(MOTET_TEST_DATA "/train/config.json", &error, &config), MOTET_OK);
  trial_data_fill(&data, &config, false);
  losing_transport losing = {.base = *transport, .inner = transport, .lose = 5};
  losing.base.table = &losing_table;
  trial what = {.schedule = "<vision+projector: inline, llm: 1f1b>",
                .pipeline = transport->ranks,
                .replicas = 1,
                .trainable = {true, true, true}};
  trial_result result;
  double begin = mt_clock_seconds();
  motet_status status = trial_run(&what, &data, &losing.base, &error, &result);
  assert_int_equal(status, MOTET_ERROR_FAILED);
  mt_transport_fail(transport, &error);
  assert_true(mt_clock_seconds() - begin < 5);
  assert_true(transport->ended);
  assert_int_equal(reports, transport->rank == 0);
  if (transport->rank == 0) {
    /* Rank 0's sixth send is microbatch 5's activation to rank 1; everyone else's waiting follows from that. */
    assert_true(reported.rank >= 0 && reported.instruction >= 0 && reported.microbatch >= 0);
    assert_non_null(strstr(reported.text, "step 1, WAIT of llm"));
    assert_non_null(strstr(reported.text, "lost or never sent"));
  }
  mt_network_destroy(result.network);
  trial_data_free(&data);
}

int main(void) {
  transport = trial_connect(1, keep);
  if (transport == NULL) return 2;
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_lost_message_is_named)};
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  failed = verdict_share(transport->rank, transport->ranks, failed);
  mt_transport_destroy(transport);
  return failed;
}
