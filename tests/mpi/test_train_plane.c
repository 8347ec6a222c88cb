/* Context parallelism: losses, gradient norms and weights after three steps agree with one rank that computes
 * everything, whatever the plane's width, the groups, the pipeline and the schedule of the encoder; and attention
 * sends exactly as much as the volume formulas say. */
#include "comm/collective.h"
#define TRIAL_ALL_MICROBATCHES 4
#include "trial.h"

static mt_transport *transport;

/* Over all ranks, where the unevenness of zig-zag pieces cancels out, the elements are those of the formulas. */
static void compare_volume(const trial_result *result, const trial *what) {
  motet_error error;
  int32_t ranks[16];
  for (int32_t i = 0; i < transport->ranks; i++) ranks[i] = i;
  mt_rank_group everyone = {.count = transport->ranks, .ranks = ranks};
  mt_collective_scratch scratch = {0};
  const mt_context_counts *counts = &result->counts;
  double sums[3] = {(double)(counts->ring_forward + counts->ulysses_forward), result->expected_forward,
                    (double)(counts->ring_backward + counts->ulysses_backward)};
  assert_int_equal(mt_all_reduce_doubles(transport, &everyone, sums, 3, &scratch, &error), MOTET_OK);
  mt_collective_scratch_free(&scratch);
  if (fabs(sums[0] - sums[1]) > 1e-6 * sums[1])
    fail_msg("%s: %.1f elements sent forward, %.1f by the formulas", trial_name(what), sums[0], sums[1]);
  if (what->context > 1 && !what->flexible) assert_true(sums[0] > 0 && sums[2] > sums[0] / 2);
}

static void run(trial_data *data, const trial *what, const trial_result *reference) {
  motet_error error;
  trial_result result;
  if (trial_run(what, data, transport, &error, &result) != MOTET_OK)
    fail_msg("%s: rank %d: %s", trial_name(what), transport->rank, error.text);
  trial_compare(&result, reference, what);
  compare_volume(&result, what);
  if (result.peak_bytes > result.forecast_bytes + 65536)
    fail_msg("%s: rank %d used %lld bytes at once, forecast %lld", trial_name(what), transport->rank,
             (long long)result.peak_bytes, (long long)result.forecast_bytes);
  mt_network_destroy(result.network);
}

static const char *const schedules[] = {
    "<vision+projector: inline, llm: 1f1b>",
    "<vision+projector: transpose(order=prefix), llm: 1f1b>",
    "<vision+projector: transpose, llm: 1f1b>",
    "<vision+projector: transpose(batch=2), llm: 1f1b>",
};
enum { SCHEDULES = sizeof schedules / sizeof *schedules };

/** Every way to lay out the ranks with a plane, under every schedule; static and flexible groups in turn. */
static void run_all(const bool trainable[3], bool tied) {
  motet_error error;
  static trial_data data;
  mt_internvl config = trial_config();
  config.decoder.tied_embeddings = tied;
  trial_data_fill(&data, &config, true);
  trial alone = {.schedule = schedules[0], .pipeline = 1, .replicas = 1};
  memcpy(alone.trainable, trainable, sizeof alone.trainable);
  mt_transport *self;
  trial_result reference;
  assert_int_equal(mt_transport_self_create(&(mt_transport_options){.ranks = 1}, &error, &self), MOTET_OK);
  if (trial_run(&alone, &data, self, &error, &reference) != MOTET_OK) fail_msg("alone: %s", error.text);
  for (int layout = 0; layout < 4; layout++)
    for (int s = 0; s < SCHEDULES; s++) {
      int32_t pipeline = 1 + layout % 2, replicas = 1 + layout / 2;
      trial what = {.schedule = schedules[s],
                    .pipeline = pipeline,
                    .replicas = replicas,
                    .context = transport->ranks / pipeline / replicas,
                    .ulysses = 1 + s % 2,
                    .flexible = (s + layout + tied) % 2 != 0};
      memcpy(what.trainable, trainable, sizeof what.trainable);
      if (transport->ranks % (pipeline * replicas) != 0 || what.context < 2) continue;
      /* Of many ranks, which take long, one schedule a layout. */
      if (transport->ranks < 4 || s == (layout + tied) % SCHEDULES) run(&data, &what, &reference);
    }
  mt_network_destroy(reference.network);
  mt_transport_destroy(self);
  trial_data_free(&data);
}

static void test_everything_trains(void **state) {
  (void)state;
  run_all((bool[3]){true, true, true}, false);
}

static void test_frozen_encoder(void **state) {
  (void)state;
  run_all((bool[3]){false, false, true}, true);
}

static void test_projector_alone_trains(void **state) {
  (void)state;
  if (transport->ranks < 4) run_all((bool[3]){false, true, false}, false);
}

int main(void) {
  transport = trial_connect(5, NULL);
  if (transport == NULL) return 2;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_everything_trains),
      cmocka_unit_test(test_frozen_encoder),
      cmocka_unit_test(test_projector_alone_trains),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  return trial_finish(transport, failed);
}
