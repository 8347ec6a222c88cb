/* Separate placement against brute force, and against what the formulas say where they can be solved by hand. */
#include "base/random.h"
#include "search/placement.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { MODULES = 3 };

/* Tries everything: every width, degree, number of stages, and every number of devices of the others. */
static double brute_force(const mt_placement_request *r) {
  const mt_placement_module *a = &r->modules[0], *trunk = &r->modules[1], *b = &r->modules[2];
  double best = INFINITY;
  for (int32_t data = 1; data <= r->batch / r->microbatch; data++)
    for (int t = 0; t < 4; t++)
      for (int32_t stages = 1; stages <= trunk->layers; stages++)
        for (int ta = 0; ta < 4; ta++)
          for (int tb = 0; tb < 4; tb++)
            for (int32_t xa = 1; xa <= r->devices; xa++)
              for (int32_t xb = 1; xb <= r->devices; xb++) {
                int32_t tensor = 1 << t;
                if (r->batch % (data * r->microbatch) != 0 || xa % (1 << ta) != 0 || xb % (1 << tb) != 0) continue;
                if (data * tensor * stages + xa + xb > r->devices) continue;
                if (trunk->seconds[t] <= 0 || a->seconds[ta] <= 0 || b->seconds[tb] <= 0) continue;
                int32_t repeats = r->batch / (data * r->microbatch) - 1, samples = data * r->microbatch;
                double held = fmin(stages, repeats + 1) * r->microbatch * trunk->sample_bytes;
                double bytes = (trunk->static_bytes + held) / tensor / stages;
                double bytes_a =
                    (a->static_bytes + ceil((double)samples * (1 << ta) / xa) * a->sample_bytes) / (1 << ta);
                double bytes_b =
                    (b->static_bytes + ceil((double)samples * (1 << tb) / xb) * b->sample_bytes) / (1 << tb);
                if (r->memory_bytes > 0 && fmax(bytes, fmax(bytes_a, bytes_b)) > r->memory_bytes) continue;
                double ta_seconds = (double)samples * (1 << ta) * a->seconds[ta] / xa;
                double tb_seconds = (double)samples * (1 << tb) * b->seconds[tb] / xb;
                double whole = r->microbatch * trunk->seconds[t];
                double steady = repeats * fmax(whole / stages, fmax(ta_seconds, tb_seconds));
                best = fmin(best, whole + ta_seconds + tb_seconds + steady);
              }
  return best;
}

static void test_equals_brute_force(void **state) {
  (void)state;
  mt_random random = mt_random_stream(5, "placement");
  int solved = 0;
  for (int turn = 0; turn < 60; turn++) {
    mt_placement_module modules[MODULES];
    for (int k = 0; k < MODULES; k++) {
      modules[k] = (mt_placement_module){.name = "m",
                                         .layers = 1 + (int32_t)mt_random_below(&random, 4),
                                         .static_bytes = 1 + mt_random_unit(&random) * 30,
                                         .sample_bytes = mt_random_unit(&random)};
      double one = 0.5 + mt_random_unit(&random) * 4;
      for (int t = 0; t < 4; t++) modules[k].seconds[t] = one * (1 + 0.3 * t) / (1 << t);
      if (mt_random_below(&random, 3) == 0) modules[k].seconds[3] = 0;
    }
    mt_placement_request request = {.modules = modules,
                                    .module_count = MODULES,
                                    .trunk = 1,
                                    .devices = 3 + (int32_t)mt_random_below(&random, 12),
                                    .batch = 8,
                                    .microbatch = 1 << mt_random_below(&random, 2),
                                    .memory_bytes = mt_random_below(&random, 2) == 0 ? 0 : 12};
    mt_arena *arena = mt_arena_create();
    motet_error error;
    mt_placement placement;
    motet_status status = mt_placement_find(arena, &request, &error, &placement);
    double best = brute_force(&request);
    if (isinf(best)) {
      assert_int_equal(status, MOTET_ERROR_ILLEGAL);
    } else {
      assert_int_equal(status, MOTET_OK);
      solved++;
      if (fabs(placement.seconds - best) > 1e-9 * best)
        fail_msg("turn %d: %g, best %g", turn, placement.seconds, best);
      assert_true(placement.bound <= best * (1 + 1e-12));
      int32_t used = 0;
      for (int k = 0; k < MODULES; k++) used += placement.modules[k].devices;
      assert_true(used <= request.devices);
    }
    mt_arena_destroy(arena);
  }
  assert_true(solved > 30);
}

/* Many microbatches: devices go by the work, TP * C. 6 : 2 : 1 over 36 devices are 24, 8 and 4. */
static void test_steady_state_is_proportional(void **state) {
  (void)state;
  const mt_placement_module modules[] = {{.name = "vision", .seconds = {2, 0, 0, 0}},
                                         {.name = "llm", .seconds = {6, 0, 0, 0}, .layers = 24},
                                         {.name = "generator", .seconds = {1, 0, 0, 0}}};
  mt_placement_request request = {
      .modules = modules, .module_count = 3, .trunk = 1, .devices = 36, .batch = 12000, .microbatch = 1};
  mt_arena *arena = mt_arena_create();
  motet_error error;
  mt_placement placement;
  assert_int_equal(mt_placement_find(arena, &request, &error, &placement), MOTET_OK);
  assert_int_equal(placement.modules[0].devices, 8);
  assert_int_equal(placement.modules[1].devices, 24);
  assert_int_equal(placement.modules[2].devices, 4);
  mt_arena_destroy(arena);
}

static void test_refusals(void **state) {
  (void)state;
  mt_placement_module modules[] = {{.name = "vision", .seconds = {1, 1, 1, 1}, .static_bytes = 100},
                                   {.name = "llm", .seconds = {1, 1, 1, 1}, .layers = 4}};
  mt_placement_request request = {.modules = modules,
                                  .module_count = 2,
                                  .trunk = 1,
                                  .devices = 4,
                                  .batch = 4,
                                  .microbatch = 1,
                                  .memory_bytes = 40};
  mt_arena *arena = mt_arena_create();
  motet_error error;
  mt_placement placement;
  /* Three devices are left for vision: TP 2 is the most, 50 bytes a device. */
  assert_int_equal(mt_placement_find(arena, &request, &error, &placement), MOTET_ERROR_ILLEGAL);
  assert_non_null(strstr(error.text, "takes 50"));
  request.devices = 1;
  assert_int_equal(mt_placement_find(arena, &request, &error, &placement), MOTET_ERROR_ILLEGAL);
  request.batch = 0;
  assert_int_equal(mt_placement_find(arena, &request, &error, &placement), MOTET_ERROR_ARGUMENT);
  mt_arena_destroy(arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_equals_brute_force),
      cmocka_unit_test(test_steady_state_is_proportional),
      cmocka_unit_test(test_refusals),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
