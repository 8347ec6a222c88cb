/* Losses, gradient norms and weights after three steps agree with one rank that computes everything in order,
 * whatever the schedule, the owners, the pipeline's and the data's width, and what is frozen. */
#include "trial.h"

static mt_transport *transport;

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
      trial_check(config, &what, text_only_too, transport);
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
      if (transport->ranks % rows[i].ranks == 0 && what.replicas <= 2) trial_check(&config, &what, true, transport);
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
  trial_check_ahead("<vision+projector: transpose(order=ahead), llm: 1f1b>", transport);
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
