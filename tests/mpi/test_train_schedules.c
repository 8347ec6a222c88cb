/* Losses, gradient norms and weights after three steps agree with one rank that computes everything in order,
 * whatever the schedule, the owners, the pipeline's and the data's width, and what is frozen. */
#include "trial.h"

static mt_transport *transport;

static void compare(const trial_result *result, const trial_result *reference, const trial *what) {
  for (int step = 0; step < TRIAL_STEPS; step++) {
    for (int m = 0; m < TRIAL_MICROBATCHES; m++) {
      double difference = fabs(result->losses[step][m] - reference->losses[step][m]);
      if (!(difference < 1e-5) || !(result->losses[step][m] > 0))
        fail_msg("%s, P %d, D %d: loss of step %d, microbatch %d: %.9g and %.9g", what->schedule, what->pipeline,
                 what->replicas, step, m, result->losses[step][m], reference->losses[step][m]);
    }
    /* Ranks without OPTIM know no norm. */
    if (result->norms[step] != 0 && fabs(result->norms[step] / reference->norms[step] - 1) > 1e-4)
      fail_msg("%s, P %d, D %d: norm of step %d: %.9g and %.9g", what->schedule, what->pipeline, what->replicas,
               step, result->norms[step], reference->norms[step]);
  }
  for (int32_t i = 0; i < mt_network_parameter_count(result->network); i++) {
    const mt_parameter *own = mt_network_parameter(result->network, i);
    const mt_parameter *other = trial_find(reference->network, own->name);
    assert_non_null(other);
    for (int64_t e = 0; e < own->count; e++)
      if (!(fabsf(own->value[e] - other->value[e]) < 1e-5F))
        fail_msg("%s, P %d, D %d: %s[%lld]: %.9g and %.9g", what->schedule, what->pipeline, what->replicas,
                 own->name, (long long)e, (double)own->value[e], (double)other->value[e]);
  }
}

static void run(const mt_internvl *config, const trial *what, bool text_only_too) {
  motet_error error;
  static trial_data data;
  trial_data_fill(&data, config, text_only_too);
  trial alone = *what;
  alone.schedule = "<vision+projector: inline, llm: 1f1b>";
  alone.pipeline = alone.replicas = 1;
  mt_transport *self;
  trial_result reference, result;
  assert_int_equal(mt_transport_self_create(&(mt_transport_options){.ranks = 1}, &error, &self), MOTET_OK);
  if (trial_run(&alone, &data, self, &error, &reference) != MOTET_OK) fail_msg("alone: %s", error.text);
  if (trial_run(what, &data, transport, &error, &result) != MOTET_OK)
    fail_msg("%s, P %d, D %d: %s", what->schedule, what->pipeline, what->replicas, error.text);
  compare(&result, &reference, what);
  /* After one step the first moments are 1 - beta1 = 0.1 of the clipped gradients, whose norm is at most 0.5. */
  double clipped = fmin(reference.norms[0], 0.5);
  if (fabs(reference.first_moments - 0.1 * clipped) > 1e-6)
    fail_msg("clipping to 0.5 left a norm of %.9g of %.9g", reference.first_moments * 10, reference.norms[0]);
  /* The forecast counts what the program says is held; it is exact but for the allocations' rounding. */
  if (result.peak_bytes > result.forecast_bytes || (double)result.peak_bytes < 0.95 * (double)result.forecast_bytes)
    fail_msg("%s, P %d, D %d: rank %d used %lld bytes at once, forecast %lld", what->schedule, what->pipeline,
             what->replicas, transport->rank, (long long)result.peak_bytes, (long long)result.forecast_bytes);
  mt_network_destroy(result.network);
  mt_network_destroy(reference.network);
  mt_transport_destroy(self);
  trial_data_free(&data);
}

static const char *const schedules[] = {
    "<vision+projector: inline, llm: 1f1b>",
    "<vision+projector: transpose(order=prefix), llm: 1f1b>",
    "<vision+projector: transpose, llm: 1f1b>",
    "<vision+projector: transpose(owner=round-robin, window=4), llm: 1f1b>",
    "<vision+projector: transpose, llm: gpipe>",
    "<vision+projector: inline, llm: 1f1b(virtual=2)>",
    "<vision+projector: transpose, llm: 1f1b(virtual=2)>",
    "<vision+projector: 1f1b, llm: 1f1b>",
};
enum { SCHEDULES = sizeof schedules / sizeof *schedules };

/** Every width whose product is the number of ranks. */
static void run_all(const mt_internvl *config, const bool trainable[3], bool text_only_too) {
  for (int32_t replicas = 1; replicas <= 2; replicas++) {
    if (transport->ranks % replicas != 0) continue;
    for (int s = 0; s < SCHEDULES; s++) {
      trial what = {.schedule = schedules[s], .pipeline = transport->ranks / replicas, .replicas = replicas};
      memcpy(what.trainable, trainable, sizeof what.trainable);
      if (what.pipeline > 4) continue;
      run(config, &what, text_only_too);
    }
  }
}

static void test_everything_trains(void **state) {
  (void)state;
  mt_internvl config = trial_config();
  run_all(&config, (bool[3]){true, true, true}, true);
}

static void test_frozen_encoder(void **state) {
  (void)state;
  mt_internvl config = trial_config();
  run_all(&config, (bool[3]){false, false, true}, true);
}

static void test_projector_alone_trains(void **state) {
  (void)state;
  mt_internvl config = trial_config();
  run_all(&config, (bool[3]){false, true, false}, true);
}

/* Encoders on ranks of their own, as many pipelines of them as of the trunk, or more. */
static void test_dedicated(void **state) {
  (void)state;
  static const struct {
    const char *schedule;
    int32_t ranks;
  } rows[] = {
      {"<vision: dedicate(ranks=1), projector: inline, llm: 1f1b>", 2},
      {"<vision: dedicate(ranks=2, data=2), projector+llm: 1f1b>", 3},
      {"<vision+projector: dedicate(ranks=1), llm: dedicate(ranks=2, data=2)>", 3},
      {"<vision+projector: dedicate(ranks=2, inner=gpipe), llm: 1f1b(virtual=2)>", 4},
      {"<vision: dedicate(ranks=1), projector: transpose, llm: 1f1b>", 4},
  };
  mt_internvl config = trial_config();
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    for (int all = 0; all < 2; all++) {
      trial what = {.schedule = rows[i].schedule,
                    .pipeline = rows[i].ranks,
                    .replicas = transport->ranks / rows[i].ranks,
                    .trainable = {all != 0, true, true}};
      if (transport->ranks % rows[i].ranks == 0 && what.replicas <= 2) run(&config, &what, true);
    }
}

static void test_tied_embeddings(void **state) {
  (void)state;
  mt_internvl config = trial_config();
  config.decoder.tied_embeddings = true;
  run_all(&config, (bool[3]){true, true, true}, true);
}

/* Features of the next step's first microbatches are computed in this step's tail. */
static void test_ahead(void **state) {
  (void)state;
  mt_internvl config = trial_config();
  for (int32_t replicas = 1; replicas <= 2 && transport->ranks % replicas == 0; replicas++)
    for (int text_only_too = 0; text_only_too < 2; text_only_too++) {
      trial what = {.schedule = "<vision+projector: transpose(order=ahead), llm: 1f1b>",
                    .pipeline = transport->ranks / replicas,
                    .replicas = replicas,
                    .trainable = {false, false, true}};
      if (what.pipeline <= 4) run(&config, &what, text_only_too != 0);
    }
}

int main(void) {
  transport = trial_connect(5, NULL);
  if (transport == NULL) return 2;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_everything_trains),      cmocka_unit_test(test_frozen_encoder),
      cmocka_unit_test(test_projector_alone_trains), cmocka_unit_test(test_dedicated),
      cmocka_unit_test(test_tied_embeddings),        cmocka_unit_test(test_ahead),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  return trial_finish(transport, failed);
}
