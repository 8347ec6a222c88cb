#include "../sim_builder.h"
#include "sim/costs.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

enum { SEEDS = 2000 };

/* Every finish and the makespan of the event simulation equal the (max,+) recurrence's to the last bit. */
static void test_events_equal_the_recurrence(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= SEEDS; seed++) {
    mt_random random = mt_random_stream(seed, "simulation");
    builder b;
    motet_program *p = builder_random(&b, &random);
    mt_simulation *s = builder_simulate(&b, p);
    double makespan = -1;
    double *finish = MT_ARENA_NEW(b.arena, double, p->rank_begin[p->ranks]);
    motet_error error;
    motet_status status = mt_simulate_max_plus(b.arena, p, &b.costs, &error, &makespan, finish);
    if (s == NULL || status != MOTET_OK || memcmp(&makespan, &s->makespan, sizeof makespan) != 0 ||
        memcmp(finish, s->finish, (size_t)p->rank_begin[p->ranks] * sizeof *finish) != 0)
      fail_msg("seed %llu: the event simulation and the recurrence differ", (unsigned long long)seed);
    /* Keeping nothing changes nothing. */
    mt_simulation *bare = NULL;
    assert_int_equal(mt_simulate(b.arena, p, &b.costs, NULL, NULL, &bare), MOTET_OK);
    assert_memory_equal(&bare->makespan, &s->makespan, sizeof makespan);
    assert_int_equal(bare->events, p->rank_begin[p->ranks]);
    assert_int_equal(bare->peak_features, s->peak_features);
    builder_free(&b);
  }
}

/* Rank-seconds by cause add up to the ranks' idle time, and every idle instruction has exactly one mark. */
static void test_idle_causes_add_up(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= SEEDS; seed++) {
    mt_random random = mt_random_stream(seed, "idle");
    builder b;
    motet_program *p = builder_random(&b, &random);
    b.costs.links.shared_nic = seed % 2 == 0;
    mt_simulation *s = builder_simulate(&b, p);
    assert_non_null(s);
    double idle = 0, causes = 0;
    for (int32_t r = 0; r < p->ranks; r++) {
      idle += s->ranks[r].idle;
      double busy = 0;
      for (int64_t i = p->rank_begin[r]; i < p->rank_begin[r + 1]; i++) {
        int kind = p->instructions[i].kind;
        bool compute = kind <= MOTET_RECOMPUTE || kind == MOTET_OPTIM;
        if (compute) busy += s->finish[i] - s->start[i];
        assert_int_equal(s->idle_cause[i] < MT_IDLE_CAUSES, !compute && s->finish[i] > s->start[i]);
        if (i > p->rank_begin[r]) assert_true(s->start[i] >= s->finish[i - 1] && s->start[i] <= s->finish[i - 1]);
      }
      ASSERT_CLOSE(busy, s->ranks[r].busy, 1e-9 * (1 + busy));
      ASSERT_CLOSE(s->ranks[r].busy + s->ranks[r].idle, s->makespan, 1e-9 * (1 + s->makespan));
    }
    for (int cause = 0; cause < MT_IDLE_CAUSES; cause++) {
      assert_true(s->idle_by_cause[cause] >= 0);
      causes += s->idle_by_cause[cause];
    }
    if (fabs(causes - idle) > 1e-9 * (idle + 1e-3 * s->makespan))
      fail_msg("seed %llu: %.17g seconds of causes for %.17g of idle time", (unsigned long long)seed, causes, idle);
    ASSERT_CLOSE(s->idle_share * s->makespan * p->ranks, idle, 1e-9 * (1 + idle));
    builder_free(&b);
  }
}

/* What an element of the critical path takes where links are not shared: nothing of it is waiting. */
static double own_seconds(const builder *b, int64_t at, int64_t post) {
  const motet_instruction *instruction = &b->program.instructions[at];
  int32_t rank = 0;
  while (b->program.rank_begin[rank + 1] <= at) rank++;
  int64_t bytes = instruction->buffer >= 0 ? b->buffers.data[instruction->buffer].bytes : 0;
  if (post >= 0) return mt_sim_transfer_seconds(&b->costs.links, rank, instruction->peer, bytes);
  return mt_sim_collective_seconds(&b->costs.links, &b->program, instruction->peer, instruction->kind, bytes);
}

/* The critical path runs without a gap from 0 to the makespan: each element begins when the one before it ends. */
static void test_the_critical_path_has_no_gap(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= SEEDS; seed++) {
    mt_random random = mt_random_stream(seed, "critical");
    builder b;
    motet_program *p = builder_random(&b, &random);
    b.costs.links.shared_nic = seed % 2 == 0;
    mt_simulation *s = builder_simulate(&b, p);
    assert_non_null(s);
    double now = 0, added = 0;
    for (int64_t i = 0; i < s->critical_count; i++) {
      int64_t at = s->critical[i];
      int kind = p->instructions[at].kind;
      double begin = s->start[at];
      if (kind == MOTET_WAIT) { /* behind its post: the transfer's time is from there */
        assert_true(i > 0);
        begin = s->start[s->critical[i - 1]];
        assert_int_equal(p->instructions[s->critical[i - 1]].buffer, p->instructions[at].buffer);
      }
      if (fabs(begin - now) > 0) fail_msg("seed %llu: a gap in the critical path", (unsigned long long)seed);
      bool waits = kind == MOTET_WAIT || mt_sim_is_collective(kind);
      if (waits && !b.costs.links.shared_nic)
        ASSERT_CLOSE(s->finish[at] - begin, own_seconds(&b, at, kind == MOTET_WAIT ? s->critical[i - 1] : -1),
                     1e-9 * (1 + s->makespan));
      added += s->finish[at] - begin;
      now = s->finish[at];
    }
    assert_true(now >= s->makespan && now <= s->makespan);
    ASSERT_CLOSE(added, s->makespan, 1e-9 * (1 + s->makespan));
    builder_free(&b);
  }
}

/* With NICs: at no time do two transfers leave, or enter, one node for another; nothing begins before it is ready
 * and the makespan is never shorter than with links of one's own. */
static void test_shared_links_only_delay(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= SEEDS; seed++) {
    mt_random random = mt_random_stream(seed, "links");
    builder b;
    motet_program *p = builder_random(&b, &random);
    mt_simulation *own = builder_simulate(&b, p);
    b.costs.links.shared_nic = true;
    mt_simulation *shared = builder_simulate(&b, p), *again = builder_simulate(&b, p);
    assert_non_null(own);
    assert_non_null(shared);
    assert_true(shared->makespan >= own->makespan);
    assert_memory_equal(shared->finish, again->finish, (size_t)p->rank_begin[p->ranks] * sizeof(double));
    for (int64_t i = 0; i < p->rank_begin[p->ranks]; i++) assert_true(shared->finish[i] >= own->finish[i]);
    builder_free(&b);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_events_equal_the_recurrence),
      cmocka_unit_test(test_idle_causes_add_up),
      cmocka_unit_test(test_the_critical_path_has_no_gap),
      cmocka_unit_test(test_shared_links_only_delay),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
