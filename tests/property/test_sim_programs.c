/* Right programs, drawn at random for the verifier's tests: the simulation against the verifier and the recurrence.
 */
#include "program_builder.h"
#include "sim/memory.h"
#include "sim/simulate.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { DRAWS = 2000 };

static void draw_costs(mt_arena *arena, mt_random *random, const motet_program *p, mt_cost_table *costs) {
  size_t cells = (size_t)p->stage_count * (size_t)p->microbatch_count;
  *costs = (mt_cost_table){0};
  for (int kind = 0; kind < MT_COST_KINDS; kind++) {
    costs->seconds[kind] = (mt_cost_values){MT_ARENA_NEW(arena, double, cells), p->microbatch_count, 1};
    for (size_t i = 0; i < cells; i++) costs->seconds[kind].values[i] = mt_random_unit(random);
  }
  costs->links.ranks_per_node = (int32_t)mt_random_below(random, 4);
  costs->links.local = (mt_link){0.01, 1e3};
  costs->links.remote = (mt_link){0.1, 1e2};
}

static void test_drawn_programs(void **state) {
  (void)state;
  int64_t timed = 0, peaks = 0;
  for (uint64_t seed = 0; seed < DRAWS; seed++) {
    mt_random random = mt_random_stream(seed, "simulated programs");
    motet_program *p = program_draw(&random);
    mt_arena *arena = mt_arena_create();
    mt_cost_table costs;
    draw_costs(arena, &random, p, &costs);
    size_t count = (size_t)p->rank_begin[p->ranks];
    mt_simulation *s = NULL;
    motet_error error;
    mt_simulate_options options = {.timeline = true, .attribute = true};
    if (mt_simulate(arena, p, &costs, &options, &error, &s) != MOTET_OK)
      fail_msg("seed %llu: %s", (unsigned long long)seed, error.text);

    double makespan, *finish = MT_ARENA_NEW(arena, double, count), idle = 0, causes = 0;
    assert_int_equal(mt_simulate_max_plus(arena, p, &costs, &error, &makespan, finish), MOTET_OK);
    assert_memory_equal(&makespan, &s->makespan, sizeof makespan);
    if (count > 0) assert_memory_equal(finish, s->finish, count * sizeof *finish);
    for (int32_t rank = 0; rank < p->ranks; rank++) idle += s->ranks[rank].idle;
    for (int cause = 0; cause < MT_IDLE_CAUSES; cause++) causes += s->idle_by_cause[cause];
    if (fabs(causes - idle) > 1e-9 * idle)
      fail_msg("seed %llu: %.17g seconds of causes for %.17g idle", (unsigned long long)seed, causes, idle);

    /* What is held over time peaks where the verifier's walk over the lists does. */
    motet_verification verification = {0};
    assert_int_equal(motet_verify(p, NULL, &error, &verification), MOTET_OK);
    mt_memory_timeline *memory = NULL;
    assert_int_equal(mt_memory_timeline_make(arena, p, s->start, s->finish, &error, &memory), MOTET_OK);
    for (int32_t rank = 0; rank < p->ranks; rank++) {
      int64_t most = 0;
      double before = 0;
      for (int64_t i = memory->begin[rank]; i < memory->begin[rank + 1]; i++) {
        if (memory->steps[i].bytes > most) most = memory->steps[i].bytes;
        assert_true(memory->steps[i].seconds >= before);
        before = memory->steps[i].seconds;
      }
      if (most != verification.memory[rank].peak_bytes || most != memory->peak_bytes[rank])
        fail_msg("seed %llu, rank %d: %lld bytes on the timeline, %lld by the verifier", (unsigned long long)seed,
                 rank, (long long)most, (long long)verification.memory[rank].peak_bytes);
      peaks += most > 0;
    }
    timed += s->makespan > 0;
    motet_verification_free(&verification);
    mt_arena_destroy(arena);
    program_free(p);
  }
  assert_true(timed > DRAWS / 2 && peaks > DRAWS); /* the draws are not empty */
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_drawn_programs)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
