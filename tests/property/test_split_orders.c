/* Split orders on random pipelines: they are proven by the verifier, hold no more than their skeleton says, end no
 * earlier than their bound, and are the same every time. Every failure prints the seed of its case. */
#include "motet/plan.h"

#include "base/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { CASES = 140, RANKS_MOST = 9, MICROBATCHES_MOST = 20 };

typedef struct kind {
  const char *name;
  int32_t chunks;
} kind;

static const kind kinds[] = {{"zb1p", 1},  {"zb2p", 1}, {"zbv", 2},      {"vmin", 2},
                             {"vhalf", 2}, {"fold", 2}, {"dualpipev", 2}};

/* What the papers' names say, in shares of a rank. */
static double most_held(const char *name, int32_t ranks) {
  if (strcmp(name, "zb2p") == 0) return 2.0 * ranks;
  if (strcmp(name, "vmin") == 0) return ceil((ranks + 2) / 3.0);
  if (strcmp(name, "vhalf") == 0) return floor(ranks / 2.0) + 1;
  if (strcmp(name, "fold") == 0) return ceil(2.0 * ranks / 3.0);
  if (strcmp(name, "dualpipev") == 0) return ranks + 0.5;
  return ranks;
}

static double draw_time(mt_random *random, bool rough) {
  return rough ? 0.01 + 3.0 * mt_random_unit(random) : 0.5 * (double)(1 + mt_random_below(random, 6));
}

static void check_case(uint64_t seed) {
  mt_random random = mt_random_stream(seed, "split.orders");
  const kind *drawn = &kinds[mt_random_below(&random, sizeof kinds / sizeof *kinds)];
  int32_t ranks = 1 + (int32_t)mt_random_below(&random, RANKS_MOST);
  int32_t microbatches = 1 + (int32_t)mt_random_below(&random, MICROBATCHES_MOST);
  bool rough = mt_random_below(&random, 2) == 0;
  double f = draw_time(&random, rough), x = draw_time(&random, rough), w = draw_time(&random, rough);
  char schedule[80], unit[200], text[800];
  static const char *const shapes[] = {"<m: %s>", "<v: transpose, m: %s>", "<v: inline, m: %s>",
                                       "<v: transpose(order=prefix), m: %s>"};
  static const char *const trained[] = {NULL, "m", "v", "v,m"};
  uint64_t shape = mt_random_below(&random, 4), which = mt_random_below(&random, 4);
  snprintf(schedule, sizeof schedule, shapes[shape], drawn->name);
  int length = snprintf(unit, sizeof unit, "m: f=%.17g, x=%.17g, w=%.17g", f, x, w);
  if (shape > 0)
    snprintf(unit + length, sizeof unit - (size_t)length, "; v: f=%.17g, b=%.17g", draw_time(&random, rough),
             draw_time(&random, rough));
  /* Modules come in the schedule's order. */
  char ordered[400];
  if (shape > 0)
    snprintf(ordered, sizeof ordered, "%s; %.*s", strchr(unit, 'v'), length, unit);
  else
    snprintf(ordered, sizeof ordered, "%s", unit);
  double encode[3] = {draw_time(&random, rough), 0.0, draw_time(&random, rough)};
  bool varied = shape > 0 && mt_random_below(&random, 3) == 0; /* every third microbatch is text alone */
  motet_plan_options options = {.schedule = schedule,
                                .ranks = ranks,
                                .microbatches = microbatches,
                                .unit = ordered,
                                .trainable = shape > 0 ? trained[which] : NULL,
                                .encode = varied ? encode : NULL,
                                .encode_count = varied ? 3 : 0,
                                .alpha_seconds = mt_random_below(&random, 3) == 0 ? 0.25 : 0.0};
  snprintf(text, sizeof text, "seed %llu: %s, %d ranks, %d microbatches, %s", (unsigned long long)seed, schedule,
           ranks, microbatches, ordered);
  motet_error error;
  motet_plan *plan = NULL, *again = NULL;
  /* Planning includes the proof: a plan that the verifier refuses is an error. */
  if (motet_plan_create(&options, &error, &plan) != MOTET_OK) fail_msg("%s: %s", text, error.text);
  if (motet_plan_create(&options, &error, &again) != MOTET_OK) fail_msg("%s: %s", text, error.text);
  const motet_plan_result *result = motet_plan_get(plan);
  for (int32_t r = 0; r < ranks; r++)
    if (result->memory[r].peak_activations > most_held(drawn->name, ranks) + 1e-9)
      fail_msg("%s: rank %d holds %g", text, r, result->memory[r].peak_activations);
  if (result->bound > result->makespan * (1 + 1e-12)) fail_msg("%s: bound %g", text, result->bound);
  /* A frozen pipeline without a head start runs m f on its last rank, (p - 1) f / chunks behind the first. */
  double least = microbatches * f + (ranks - 1) * f / drawn->chunks;
  if (result->makespan < least * (1 - 1e-9)) fail_msg("%s: %g is less than %g", text, result->makespan, least);
  if (motet_program_digest(motet_plan_get(again)->program) != motet_program_digest(result->program))
    fail_msg("%s: another order", text);
  motet_plan_destroy(plan);
  motet_plan_destroy(again);
}

static void test_random_pipelines(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= CASES; seed++) check_case(seed);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_pipelines)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
