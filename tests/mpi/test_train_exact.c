/* Exact sums: losses, norms and weights have the same bits as those of one rank that computes everything in order,
 * whatever the schedule, the owners, the pipeline's and the data's width, and what is frozen; and ranks whose
 * weights come apart are found. */
#define TRIAL_ALL_MICROBATCHES 12 /* for one, two and three replicas */
#include "trial.h"

static mt_transport *transport;

static const char *const schedules[] = {
    "<vision+projector: inline, llm: 1f1b>",
    "<vision+projector: transpose(order=prefix), llm: 1f1b>",
    "<vision+projector: transpose, llm: 1f1b>",
    "<vision+projector: transpose(owner=round-robin, window=4), llm: gpipe>",
    "<vision+projector: inline, llm: 1f1b(virtual=2)>",
    "<vision+projector: transpose, llm: 1f1b(virtual=2)>",
    "<vision+projector: inline, llm: zb1p>",
    "<vision+projector: transpose, llm: zb2p>",
    "<vision+projector: transpose, llm: zbv>",
    "<vision+projector: inline, llm: vmin>",
    "<vision+projector: inline, llm: fold>",
    "<vision+projector: transpose, llm: dualpipev>",
    "<vision+projector: inline, llm: gpipe(batch=2)>",
    "<vision+projector: transpose(batch=4), llm: 1f1b>",
    "<vision+projector: transpose(batch=3), llm: zb1p(batch=2)>",
};
enum { SCHEDULES = sizeof schedules / sizeof *schedules };

static void compare(const trial_result *result, const trial_result *reference, const trial *what) {
  for (int step = 0; step < TRIAL_STEPS; step++) {
    /* Ranks without OPTIM know no norm. */
    bool same = memcmp(result->losses[step], reference->losses[step], sizeof result->losses[step]) == 0 &&
                (result->norms[step] == 0 || memcmp(&result->norms[step], &reference->norms[step], 8) == 0) &&
                result->digests[step] == reference->digests[step];
    if (!same)
      fail_msg("%s, P %d, D %d, step %d: losses, norm (%.17g, %.17g) or weights (%llx, %llx) have other bits",
               what->schedule, what->pipeline, what->replicas, step, result->norms[step], reference->norms[step],
               (unsigned long long)result->digests[step], (unsigned long long)reference->digests[step]);
    assert_true(result->losses[step][0] > 0);
  }
  if (result->peak_bytes > result->forecast_bytes)
    fail_msg("%s, P %d, D %d: %lld bytes at once, forecast %lld", what->schedule, what->pipeline, what->replicas,
             (long long)result->peak_bytes, (long long)result->forecast_bytes);
  /* The digest is not the only witness. */
  for (int32_t i = 0; i < mt_network_parameter_count(result->network); i++) {
    const mt_parameter *own = mt_network_parameter(result->network, i);
    const mt_parameter *other = trial_find(reference->network, own->name);
    assert_memory_equal(own->value, other->value, (size_t)own->count * sizeof(float));
  }
}

/** Runs the schedules from number @p first on, each @p step-th. */
static void run_some(const mt_internvl *config, const bool trainable[3], int first, int step) {
  motet_error error;
  static trial_data data;
  trial_data_fill(&data, config, true);
  trial alone = {.schedule = schedules[0], .pipeline = 1, .replicas = 1, .exact = true};
  memcpy(alone.trainable, trainable, sizeof alone.trainable);
  mt_transport *self;
  trial_result reference;
  assert_int_equal(mt_transport_self_create(&(mt_transport_options){.ranks = 1}, &error, &self), MOTET_OK);
  if (trial_run(&alone, &data, self, &error, &reference) != MOTET_OK) fail_msg("alone: %s", error.text);
  for (int32_t replicas = 1; replicas <= 3; replicas++) {
    if (transport->ranks % replicas != 0) continue;
    for (int s = first; s < SCHEDULES; s += step) {
      trial what = alone;
      what.schedule = schedules[s];
      what.pipeline = transport->ranks / replicas;
      what.replicas = replicas;
      if (transport->ranks > 4 && first == 0 && s % 3 != 2) continue;
      trial_result result;
      if (trial_run(&what, &data, transport, &error, &result) != MOTET_OK)
        fail_msg("%s, P %d, D %d: %s", what.schedule, what.pipeline, what.replicas, error.text);
      compare(&result, &reference, &what);
      mt_network_destroy(result.network);
    }
  }
  mt_network_destroy(reference.network);
  mt_transport_destroy(self);
  trial_data_free(&data);
}

static void test_everything_trains(void **state) {
  (void)state;
  mt_internvl config = trial_config();
  run_some(&config, (bool[3]){true, true, true}, 0, 1);
}

static void test_frozen_encoder(void **state) {
  (void)state;
  mt_internvl config = trial_config();
  run_some(&config, (bool[3]){false, false, true}, 1, 3);
}

static void test_projector_alone_trains(void **state) {
  (void)state;
  mt_internvl config = trial_config();
  run_some(&config, (bool[3]){false, true, false}, 2, 3);
}

static void test_tied_embeddings(void **state) {
  (void)state;
  mt_internvl config = trial_config();
  config.decoder.tied_embeddings = true;
  run_some(&config, (bool[3]){true, true, true}, 2, 3);
}

/* Dropping activations and computing them again changes no bit and needs less memory at once. */
static void test_recompute(void **state) {
  (void)state;
  motet_error error;
  static trial_data data;
  mt_internvl config = trial_config();
  trial_data_fill(&data, &config, true);
  static const char *const chosen[] = {"<vision+projector: transpose, llm: 1f1b>",
                                       "<vision+projector: inline, llm: 1f1b(virtual=2)>",
                                       "<vision+projector: transpose, llm: zb1p>"};
  for (int s = 0; s < 3; s++) {
    if (transport->ranks > 4) break;
    trial what = {.schedule = chosen[s],
                  .pipeline = transport->ranks,
                  .replicas = 1,
                  .trainable = {s != 1, true, true},
                  .exact = true};
    trial_result kept, dropped;
    if (trial_run(&what, &data, transport, &error, &kept) != MOTET_OK) fail_msg("%s: %s", chosen[s], error.text);
    what.recompute[0] = what.recompute[1] = what.recompute[2] = true;
    if (trial_run(&what, &data, transport, &error, &dropped) != MOTET_OK) fail_msg("%s: %s", chosen[s], error.text);
    compare(&dropped, &kept, &what);
    /* Where several microbatches are in flight their saved values are the peak: rank 0's stage under 1F1B. */
    if (transport->rank == 0 && transport->ranks > 1 && s < 2)
      assert_true((double)dropped.peak_bytes < 0.8 * (double)kept.peak_bytes);
    mt_network_destroy(kept.network), mt_network_destroy(dropped.network);
  }
  trial_data_free(&data);
}

int main(void) {
  transport = trial_connect(5, NULL);
  if (transport == NULL) return 2;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_everything_trains),
      cmocka_unit_test(test_frozen_encoder),
      cmocka_unit_test(test_projector_alone_trains),
      cmocka_unit_test(test_tied_embeddings),
      cmocka_unit_test(test_recompute),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  return trial_finish(transport, failed);
}
