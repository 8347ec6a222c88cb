/* Microbatches with and without a picture: every pattern over the microbatches of a step, one behind the other in
 * three steps, so that ranks go without and come back. Nobody hangs, and the losses are those of one rank alone. */
#define TRIAL_ALL_MICROBATCHES 4
#include "trial.h"

enum { PATTERNS = 1 << TRIAL_MICROBATCHES };

static mt_transport *transport;
static mt_internvl config;
static double alone[2][PATTERNS][TRIAL_STEPS]
                   [TRIAL_MICROBATCHES]; /* rank 0: losses, by whether the encoder trains */

/** The pattern, its complement, and it again turned by one; the last is of the step behind the end. */
static void fill(trial_data *data, int pattern) {
  const int all = PATTERNS - 1, turned = (pattern << 1 & all) | pattern >> (TRIAL_MICROBATCHES - 1);
  const int patterns[TRIAL_STEPS + 1] = {pattern, all ^ pattern, turned, pattern};
  int counts[TRIAL_STEPS + 1][TRIAL_MICROBATCHES];
  for (int step = 0; step <= TRIAL_STEPS; step++)
    for (int m = 0; m < TRIAL_MICROBATCHES; m++) counts[step][m] = (patterns[step] >> m & 1) * (1 + m % 2);
  trial_data_fill_tiles(data, &config, counts);
}

static void run_alone(mt_transport *self, bool trains, int pattern) {
  motet_error error;
  static trial_data data;
  trial_result result;
  const trial what = {.schedule = "<vision+projector: inline, llm: 1f1b>",
                      .pipeline = 1,
                      .replicas = 1,
                      .trainable = {trains, trains, true}};
  fill(&data, pattern);
  if (trial_run(&what, &data, self, &error, &result) != MOTET_OK) fail_msg("alone: %s", error.text);
  memcpy(alone[trains][pattern], result.losses, sizeof alone[trains][pattern]);
  mt_network_destroy(result.network);
  trial_data_free(&data);
}

static void run_pattern(const trial *what, int pattern) {
  motet_error error;
  static trial_data data;
  trial_result result;
  fill(&data, pattern);
  if (trial_run(what, &data, transport, &error, &result) != MOTET_OK)
    fail_msg("%s, P %d, D %d, pattern %x: %s", what->schedule, what->pipeline, what->replicas, (unsigned)pattern,
             error.text);
  for (int step = 0; step < TRIAL_STEPS && transport->rank == 0; step++)
    for (int m = 0; m < TRIAL_MICROBATCHES; m++) {
      double expected = alone[what->trainable[0]][pattern][step][m];
      if (!(fabs(result.losses[step][m] - expected) < 1e-5) || !(expected > 0))
        fail_msg("%s, P %d, D %d, pattern %x: loss of step %d, microbatch %d: %.9g and %.9g", what->schedule,
                 what->pipeline, what->replicas, (unsigned)pattern, step, m, result.losses[step][m], expected);
    }
  mt_network_destroy(result.network);
  trial_data_free(&data);
}

static void test_every_pattern(void **state) {
  (void)state;
  static const struct {
    const char *schedule;
    bool trains_vision;
  } rows[] = {
      {"<vision+projector: inline, llm: 1f1b>", true},
      {"<vision+projector: transpose, llm: 1f1b>", true},
      {"<vision+projector: transpose(owner=round-robin), llm: 1f1b>", true},
      {"<vision+projector: 1f1b, llm: 1f1b>", true},
      {"<vision+projector+llm: 1f1b(virtual=5)>", true}, /* more slabs than layers: empty ones pass on what comes */
      {"<vision+projector: transpose(order=ahead), llm: 1f1b>", false},
  };
  motet_error error;
  mt_transport *self;
  if (transport->ranks > 4) skip();
  config = trial_config();
  assert_int_equal(mt_transport_self_create(&(mt_transport_options){.ranks = 1}, &error, &self), MOTET_OK);
  for (int pattern = 0; pattern < PATTERNS && transport->rank == 0; pattern++) {
    run_alone(self, false, pattern);
    run_alone(self, true, pattern);
  }
  for (int32_t replicas = 1; replicas <= 2 && transport->ranks % replicas == 0; replicas++)
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
      for (int pattern = 0; pattern < PATTERNS; pattern++) {
        bool trains = rows[i].trains_vision;
        if (replicas > 1 && i != 1) break; /* pipelines of a step know nothing of each other's pictures */
        trial what = {.schedule = rows[i].schedule,
                      .pipeline = transport->ranks / replicas,
                      .replicas = replicas,
                      .trainable = {trains, trains, true}};
        run_pattern(&what, pattern);
      }
  mt_transport_destroy(self);
}

int main(void) {
  transport = trial_connect(5, NULL);
  if (transport == NULL) return 2;
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_pattern)};
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  return trial_finish(transport, failed);
}
