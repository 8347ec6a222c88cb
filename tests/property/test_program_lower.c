/* Random derivations with random legal orders: every lowered program runs through on a rendezvous machine without
 * any buffered send, and its waits cost nothing on the order's own timeline. */
#include "../program_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

static const uint64_t seed = 20240607;

typedef struct draw {
  fixture_options options;
  bool split, timed;
  int32_t replicas;
} draw;

static draw draw_case(mt_arena *arena, mt_random *random) {
  draw this = {.options = {.ranks = 1 + (int32_t)mt_random_below(random, 5),
                           .microbatches = 1 + (int32_t)mt_random_below(random, 6),
                           .chunks = 1 + (int32_t)mt_random_below(random, 3),
                           .folded = mt_random_below(random, 2),
                           .encoder = mt_random_below(random, 2),
                           .generator = mt_random_below(random, 2),
                           .train_encoder = mt_random_below(random, 2),
                           .train_trunk = mt_random_below(random, 2),
                           .train_generator = mt_random_below(random, 2)},
               .split = mt_random_below(random, 2),
               .timed = mt_random_below(random, 2),
               .replicas = 1 + (int32_t)mt_random_below(random, 2)};
  if (mt_random_below(random, 2)) {
    uint64_t *present = MT_ARENA_NEW(arena, uint64_t, this.options.microbatches);
    uint64_t trunk = this.options.encoder ? 2 : 1;
    for (int32_t m = 0; m < this.options.microbatches; m++) present[m] = trunk | mt_random_below(random, 8);
    this.options.present = present;
  }
  return this;
}

/* Runs the lists by time, transfers free. Returns the makespan; `stall` gets the time spent in waits of senders. */
static double run_by_time(mt_arena *arena, const motet_program *program, const mt_order *order,
                          const double *seconds, double *stall) {
  int64_t *next = MT_ARENA_NEW(arena, int64_t, program->ranks);
  int64_t *event = MT_ARENA_NEW(arena, int64_t, program->ranks);
  double *now = MT_ARENA_NEW(arena, double, program->ranks);
  double *sent = MT_ARENA_NEW(arena, double, program->buffer_count);
  double *received = MT_ARENA_NEW(arena, double, program->buffer_count);
  for (int64_t b = 0; b < program->buffer_count; b++) sent[b] = received[b] = -1;
  *stall = 0;
  for (int32_t rank = 0; rank < program->ranks; rank++) {
    next[rank] = program->rank_begin[rank];
    event[rank] = order->begin[rank];
  }
  for (bool moved = true; moved;) {
    moved = false;
    for (int32_t rank = 0; rank < program->ranks; rank++)
      for (; next[rank] < program->rank_begin[rank + 1]; next[rank]++, moved = true) {
        const motet_instruction *this = &program->instructions[next[rank]];
        int32_t b = this->buffer;
        if (this->kind == MOTET_SEND) sent[b] = now[rank];
        if (this->kind == MOTET_RECV) received[b] = now[rank];
        if (this->kind <= MOTET_BWD_W) now[rank] += seconds[event[rank]++];
        if (this->kind != MOTET_WAIT) continue;
        if (sent[b] < 0 || received[b] < 0) break;
        double done = sent[b] > received[b] ? sent[b] : received[b];
        if (done <= now[rank]) continue;
        bool computes_left = event[rank] < order->begin[rank + 1];
        if (!(this->flags & MOTET_FLAG_RECV) && computes_left) *stall += done - now[rank];
        now[rank] = done;
      }
  }
  double makespan = 0;
  for (int32_t rank = 0; rank < program->ranks; rank++) {
    assert_int_equal(next[rank], program->rank_begin[rank + 1]);
    if (now[rank] > makespan) makespan = now[rank];
  }
  return makespan;
}

static double order_makespan(const mt_derivation *derivation, const mt_order *order, const double *start,
                             const double *seconds) {
  double makespan = 0;
  for (int64_t e = 0; e < order->begin[derivation->ranks]; e++)
    if (start[e] + seconds[e] > makespan) makespan = start[e] + seconds[e];
  return makespan;
}

static void test_lowered_programs_run(void **state) {
  (void)state;
  mt_random random = mt_random_stream(seed, "lower");
  for (int round = 0; round < 1500; round++) {
    mt_arena *arena = mt_arena_create();
    draw this = draw_case(arena, &random);
    mt_derivation *derivation = fixture_derive(arena, &this.options);
    mt_replica *replicas = MT_ARENA_NEW(arena, mt_replica, this.replicas);
    double *seconds[2];
    for (int32_t k = 0; k < this.replicas; k++) {
      replicas[k].derivation = derivation;
      replicas[k].order = fixture_random_order(arena, derivation, this.split, this.timed, &random, &seconds[k]);
      if (k > 0 && mt_random_below(&random, 2)) {
        replicas[k].order = replicas[0].order;
        seconds[k] = seconds[0];
      }
    }
    motet_error error = {0};
    motet_program *program = NULL;
    if (mt_program_lower(replicas, this.replicas, &error, &program) != MOTET_OK)
      fail_msg("round %d: %s", round, error.text);
    const char *wrong = fixture_run(arena, program, &random);
    if (wrong != NULL) fail_msg("round %d: %s", round, wrong);
    motet_program_destroy(program);
    mt_arena_destroy(arena);
  }
}

/* On the order's own durations, with free transfers, a sender never waits before its last compute, and the step
 * takes as long as the order says. */
static void test_waits_cost_nothing_on_the_own_timeline(void **state) {
  (void)state;
  mt_random random = mt_random_stream(seed, "timeline");
  for (int round = 0; round < 1000; round++) {
    mt_arena *arena = mt_arena_create();
    draw this = draw_case(arena, &random);
    mt_derivation *derivation = fixture_derive(arena, &this.options);
    double *seconds;
    mt_order *order = fixture_random_order(arena, derivation, this.split, true, &random, &seconds);
    mt_replica replica = {.derivation = derivation, .order = order};
    motet_error error = {0};
    motet_program *program = NULL;
    assert_int_equal(mt_program_lower(&replica, 1, &error, &program), MOTET_OK);
    double stall, makespan = run_by_time(arena, program, order, seconds, &stall);
    assert_true(stall == 0);
    assert_true(makespan == order_makespan(derivation, order, order->start, seconds));
    motet_program_destroy(program);
    mt_arena_destroy(arena);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_lowered_programs_run),
      cmocka_unit_test(test_waits_cost_nothing_on_the_own_timeline),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
