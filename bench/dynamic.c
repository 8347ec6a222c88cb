/* Dynamic pipelines: a plan made for every step from its own microbatches, against one plan for all steps, made for
 * microbatches of the mean. Pictures are cut into 1 to 12 tiles and a thumbnail (InternVL's rule); a microbatch
 * holds a few, so its encoder time varies. Both plans run on the true times of drawn steps. Planning time
 * stands beside the step that it has to hide behind. */
#include "base/array.h"
#include "base/clock.h"
#include "base/random.h"
#include "order/unit_plan.h"
#include "sim/simulate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MICROBATCHES_MOST = 32, STEPS = 20 };

static void stop_on(motet_status status, const motet_error *error) {
  if (status == MOTET_OK) return;
  fprintf(stderr, "bench: %s\n", error->text);
  exit(3);
}

/* Tiles of a picture: small ones are most frequent, two in five have many. */
static int draw_tiles(mt_random *random) {
  int cells =
      mt_random_below(random, 5) < 3 ? 1 + (int)mt_random_below(random, 4) : 5 + (int)mt_random_below(random, 8);
  return cells > 1 ? cells + 1 : 1;
}

/* Makespan of a program under another plan's times, which are of the same stages and microbatches. */
static double run(mt_arena *arena, const motet_plan *order, const motet_plan *times) {
  mt_simulation *simulation;
  motet_error error;
  mt_simulate_options options = {0};
  mt_arena_reset(arena);
  stop_on(mt_simulate(arena, motet_plan_get(order)->program, &mt_unit_plan_inner(times)->costs, &options, &error,
                      &simulation),
          &error);
  return simulation->makespan;
}

static void compare(const char *schedule, int32_t ranks, int32_t microbatches, int pictures, bool trained) {
  const double tile =
      4.0 / 7.0 / pictures; /* a microbatch's encoder takes four times the trunk's share of a rank */
  double mean = 0, encode[MICROBATCHES_MOST], ratios[STEPS], seconds[STEPS], static_sum = 0, dynamic_sum = 0;
  char unit[120];
  snprintf(unit, sizeof unit, trained ? "vision: f=1, b=2; llm: f=1, b=2" : "vision: f=1; llm: f=1, b=2");
  motet_plan_options options = {.schedule = schedule,
                                .ranks = ranks,
                                .microbatches = microbatches,
                                .unit = unit,
                                .encode = encode,
                                .encode_count = microbatches};
  mt_arena *arena = mt_arena_create();
  mt_random random = mt_random_stream(1, "bench dynamic");
  for (int i = 0; i < 10000; i++) mean += draw_tiles(&random) * tile / 10000;
  for (int32_t m = 0; m < microbatches; m++) encode[m] = mean * pictures;
  motet_error error;
  motet_plan *fixed, *made;
  stop_on(motet_plan_create(&options, &error, &fixed), &error);
  for (int s = 0; s < STEPS; s++) {
    for (int32_t m = 0; m < microbatches; m++) {
      encode[m] = 0;
      for (int i = 0; i < pictures; i++) encode[m] += draw_tiles(&random) * tile;
    }
    double begin = mt_clock_process_seconds();
    stop_on(motet_plan_create(&options, &error, &made), &error);
    seconds[s] = mt_clock_process_seconds() - begin;
    double by_plan = run(arena, made, made), by_fixed = run(arena, fixed, made);
    static_sum += by_fixed;
    dynamic_sum += by_plan;
    ratios[s] = by_fixed / by_plan;
    motet_plan_destroy(made);
  }
  motet_plan_destroy(fixed);
  mt_arena_destroy(arena);
  qsort(ratios, STEPS, sizeof *ratios, mt_compare_doubles);
  qsort(seconds, STEPS, sizeof *seconds, mt_compare_doubles);
  printf("%-38s %2d %3d  %d  %-7s  %8.2f %8.2f   %+5.1f %%  %+5.1f to %+5.1f %%   %7.2f ms\n", schedule, ranks,
         microbatches, pictures, trained ? "trained" : "frozen", static_sum / STEPS, dynamic_sum / STEPS,
         100 * (static_sum / dynamic_sum - 1), 100 * (ratios[STEPS / 20] - 1),
         100 * (ratios[STEPS - 1 - STEPS / 20] - 1), 1e3 * seconds[STEPS / 2]);
}

int main(void) {
  printf("%d steps of drawn pictures each; trunk f=1, b=2 a microbatch and rank; a microbatch's encoder four times "
         "a rank's\n"
         "share of the trunk's forward on average\n\n",
         STEPS);
  printf(
      "%-38s  P   M  pictures      mean step: one plan, a plan a step, gain, its 5th to 95th centile; planning\n",
      "");
  static const int32_t sizes[][2] = {{4, 16}, {4, 32}, {8, 32}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    for (int pictures = 1; pictures <= 4; pictures *= 4)
      for (int trained = 0; trained < 2; trained++)
        compare("<vision: transpose, llm: 1f1b>", sizes[i][0], sizes[i][1], pictures, trained != 0);
  return 0;
}
