/* Regions that take several microbatches at a time: losses, gradient norms, weights and the forecast of memory
 * against one rank that takes them one by one, under every kind of order; and the time of what is computed at once
 * is divided over its members. */
#include "trial.h"

static mt_transport *transport;

static const char *const schedules[] = {
    "<vision+projector: transpose(batch=4), llm: 1f1b>",
    "<vision+projector: transpose(order=prefix, batch=3), llm: gpipe>",
    "<vision+projector: transpose, llm: 1f1b(batch=2)>",
    "<vision+projector: transpose(batch=4), llm: zb1p(batch=2)>",
    "<vision+projector: inline, llm: 1f1b(virtual=2, batch=2)>",
    "<vision+projector: 1f1b(batch=2), llm: 1f1b(batch=2)>",
    "<vision: transpose(batch=4), projector+llm: 1f1b(batch=2)>",
};
enum { SCHEDULES = sizeof schedules / sizeof *schedules };

/** Of every run this rank's members follow one another in time without a gap, each for its part of the rows. */
static void inspect_times(const motet_program *program, int32_t rank, const trial_data *data,
                          const mt_step_result *step) {
  const motet_instruction *list = program->instructions + program->rank_begin[rank];
  const int64_t count = program->rank_begin[rank + 1] - program->rank_begin[rank];
  const mt_internvl *config = data->config;
  const int32_t grid = config->vision.image_size / config->vision.patch_size, embedding = config->vision.layers + 2;
  for (int64_t i = 0, end; i < count; i = end) {
    for (end = i; (list[end].flags & MOTET_FLAG_JOINED) != 0;) end++;
    end++;
    const motet_program_stage *stage = &program->stages[list[i].stage < 0 ? 0 : list[i].stage];
    const int next = (list[i].flags & MOTET_FLAG_NEXT) != 0;
    double rows[TRIAL_MICROBATCHES], all = 0;
    for (int64_t k = i; k < end && end > i + 1; k++) {
      const mt_batch *batch = &data->microbatches[data->step + next][list[k].microbatch].shape;
      rows[k - i] = stage->layer_begin < embedding ? batch->tiles * (grid * grid + 1) : 0;
      rows[k - i] += stage->layer_end > embedding ? batch->tokens : 0;
      all += rows[k - i];
    }
    for (int64_t k = i; k < end && end > i + 1; k++) {
      const double whole = step->finish[end - 1] - step->start[i], own = step->finish[k] - step->start[k];
      assert_true(k + 1 == end || step->finish[k] == step->start[k + 1]);
      assert_true(fabs(own - whole * rows[k - i] / all) < 1e-8); /* the clock's doubles have 1e-9 */
    }
  }
}

static void check_all(const bool trainable[3]) {
  mt_internvl config = trial_config();
  for (int32_t replicas = 1; replicas <= 2; replicas++) {
    if (transport->ranks % replicas != 0) continue;
    for (int s = 0; s < SCHEDULES; s++) {
      trial what = {.schedule = schedules[s],
                    .pipeline = transport->ranks / replicas,
                    .replicas = replicas,
                    .inspect = inspect_times};
      memcpy(what.trainable, trainable, sizeof what.trainable);
      if (what.pipeline <= 4) trial_check(&config, &what, true, transport);
    }
  }
}

static void test_everything_trains(void **state) {
  (void)state;
  check_all((bool[3]){true, true, true});
}

static void test_frozen_encoder(void **state) {
  (void)state;
  check_all((bool[3]){false, false, true});
}

/* Of a run of the next step's microbatches those without pictures, as it turns out, are left out. */
static void test_ahead(void **state) {
  (void)state;
  trial_check_ahead("<vision+projector: transpose(order=ahead, batch=3), llm: 1f1b>", transport);
}

/* On ranks of their own, and with everything computed again. */
static void test_dedicated_and_recomputed(void **state) {
  (void)state;
  mt_internvl config = trial_config();
  for (int again = 0; again < 2; again++) {
    trial what = {.schedule = transport->ranks > 1
                                  ? "<vision+projector: dedicate(ranks=1, batch=4), llm: 1f1b(batch=2)>"
                                  : "<vision+projector: transpose(batch=4), llm: 1f1b(batch=2)>",
                  .pipeline = transport->ranks,
                  .replicas = 1,
                  .trainable = {true, true, true},
                  .recompute = {again != 0, again != 0, again != 0}};
    if (what.pipeline <= 4) trial_check(&config, &what, true, transport);
  }
}

/* A share of a microbatch is computed by itself. */
static void test_shares_are_refused(void **state) {
  (void)state;
  motet_error error;
  static trial_data data;
  mt_internvl config = trial_config();
  trial what = {.schedule = "<vision+projector: transpose, llm: 1f1b(batch=2)>",
                .pipeline = 1,
                .replicas = 1,
                .context = transport->ranks,
                .trainable = {true, true, true}};
  trial_result result;
  if (transport->ranks < 2) return;
  trial_data_fill(&data, &config, true);
  assert_int_equal(trial_run(&what, &data, transport, &error, &result), MOTET_ERROR_UNSUPPORTED);
  if (strstr(error.text, "batch=1") == NULL) fail_msg("%s", error.text);
  mt_network_destroy(result.network);
  trial_data_free(&data);
}

int main(void) {
  transport = trial_connect(5, NULL);
  if (transport == NULL) return 2;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_everything_trains),
      cmocka_unit_test(test_frozen_encoder),
      cmocka_unit_test(test_ahead),
      cmocka_unit_test(test_dedicated_and_recomputed),
      cmocka_unit_test(test_shares_are_refused),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  return trial_finish(transport, failed);
}
