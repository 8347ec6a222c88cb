#include "../sim_builder.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

static double sum(const double *values, int count) {
  double total = 0;
  for (int i = 0; i < count; i++) total += values[i];
  return total;
}

/* (M + P - 1)(f + b): the closed form of 1F1B and GPipe with equal stages and free communication. */
static void test_1f1b_and_gpipe_follow_their_closed_form(void **state) {
  (void)state;
  for (int32_t P = 1; P <= 8; P *= 2)
    for (int32_t M = P; M <= 16; M += 3)
      for (int gpipe = 0; gpipe < 2; gpipe++) {
        builder b;
        builder_begin(&b, P, 1, P, M);
        builder_cost_all(&b, 1.0, 2.0);
        builder_pipeline(&b, 0, P, 1, 0, M, gpipe != 0, 0);
        builder_send_waits(&b);
        builder_collective(&b, MOTET_STEP_END, 0, -1, -1);
        mt_simulation *s = builder_simulate(&b, builder_end(&b));
        assert_non_null(s);
        ASSERT_NEAR(s->makespan, (M + P - 1) * 3.0);
        ASSERT_NEAR(s->bubble_whole, (P - 1.0) / (M + P - 1));
        ASSERT_NEAR(s->idle_share, (P - 1.0) / (M + P - 1));
        for (int32_t r = 0; r < P; r++) {
          ASSERT_NEAR(s->ranks[r].busy, M * 3.0);
          ASSERT_NEAR(s->ranks[r].idle, (P - 1) * 3.0);
        }
        /* Equal stages and no transfer time: nothing but warm-up and cool-down. */
        ASSERT_NEAR(s->idle_by_cause[MT_IDLE_WARM_UP] + s->idle_by_cause[MT_IDLE_COOL_DOWN], P * (P - 1) * 3.0);
        if (!gpipe) { /* rank r stands r f before its first forward and (P-1-r)(f+b) before its first backward */
          double warm_up = 0;
          for (int32_t r = 0; r < P; r++) warm_up += r * 1.0 + (P - 1 - r) * 2.0;
          ASSERT_NEAR(s->idle_by_cause[MT_IDLE_WARM_UP], warm_up);
        }
        builder_free(&b);
      }
}

/* M (f + b) + (P - 1)(f + b) / v, Narayanan et al. 2021, section 2.2: chunks take a v-th of a rank's time. */
static void test_interleaving_divides_the_bubble(void **state) {
  (void)state;
  for (int32_t P = 2; P <= 4; P *= 2)
    for (int32_t V = 2; V <= 4; V *= 2)
      for (int32_t M = P; M <= 4 * P; M += P) {
        builder b;
        builder_begin(&b, P, 1, P * V, M);
        builder_cost_all(&b, 1.0 / V, 2.0 / V);
        builder_pipeline(&b, 0, P, V, 0, M, false, 0);
        builder_send_waits(&b);
        mt_simulation *s = builder_simulate(&b, builder_end(&b));
        assert_non_null(s);
        ASSERT_NEAR(s->makespan, M * 3.0 + (P - 1) * 3.0 / V);
        builder_free(&b);
      }
}

/* The fill of a GPipe crosses P - 1 edges, its drain as many: each adds latency + bytes / bandwidth once. */
static void test_gpipe_pays_every_hop_once_each_way(void **state) {
  (void)state;
  builder b;
  builder_begin(&b, 4, 1, 4, 6);
  builder_cost_all(&b, 1.0, 2.0);
  b.costs.links.local = (mt_link){0.25, 1000.0};
  builder_pipeline(&b, 0, 4, 1, 0, 6, true, 500);
  builder_send_waits(&b);
  mt_simulation *s = builder_simulate(&b, builder_end(&b));
  assert_non_null(s);
  ASSERT_NEAR(s->makespan, (6 + 3) * 3.0 + 2 * 3 * 0.75);
  builder_free(&b);
}

/* By hand: rank 0 F0 0-1 F1 1-2 B0 5-7 F2 7-8 B1 8-10 F3 10-11 B2 12-14 B3 15-17; rank 1 F0 1.5-2.5 B0 -4.5 F1 -5.5
 * B1 -7.5 F2 8.5-9.5 B2 -11.5 F3 -12.5 B3 -14.5. */
static void test_1f1b_with_latency_by_hand(void **state) {
  (void)state;
  builder b;
  builder_begin(&b, 2, 1, 2, 4);
  builder_cost_all(&b, 1.0, 2.0);
  b.costs.links.local = (mt_link){0.5, 0};
  builder_pipeline(&b, 0, 2, 1, 0, 4, false, 0);
  builder_send_waits(&b);
  motet_program *p = builder_end(&b);
  mt_simulation *s = builder_simulate(&b, p);
  assert_non_null(s);
  ASSERT_NEAR(s->makespan, 17.0);
  static const double forward[2][4] = {{0, 1, 7, 10}, {1.5, 4.5, 8.5, 11.5}};
  static const double backward[2][4] = {{5, 8, 12, 15}, {2.5, 5.5, 9.5, 12.5}};
  for (int64_t i = 0; i < p->rank_begin[2]; i++) {
    const motet_instruction *at = &p->instructions[i];
    if (at->kind == MOTET_FWD) ASSERT_NEAR(s->start[i], forward[at->stage][at->microbatch]);
    if (at->kind == MOTET_BWD) ASSERT_NEAR(s->start[i], backward[at->stage][at->microbatch]);
  }
  ASSERT_NEAR(s->idle_by_cause[MT_IDLE_WARM_UP], 3 + 1.5);
  ASSERT_NEAR(s->idle_by_cause[MT_IDLE_COMMUNICATION], 1.0);
  ASSERT_NEAR(s->idle_by_cause[MT_IDLE_COOL_DOWN], 2 + 2.5);
  ASSERT_NEAR(s->bubble_whole, 1 - 12.0 / 17);
  ASSERT_NEAR(s->bubble_stage, 1 - 12.0 / 17); /* rank 0 spans the whole step */
  builder_free(&b);
}

static mt_simulation *simulate_two_ranks(builder *b) {
  builder_pipeline(b, 0, 2, 1, 0, 4, false, 0);
  builder_send_waits(b);
  mt_simulation *s = builder_simulate(b, builder_end(b));
  assert_non_null(s);
  return s;
}

/* Rank 1 takes twice as long: rank 0 stands 10-13 before B1; all other idle time is warm-up or cool-down. */
static void test_a_slow_stage_is_named(void **state) {
  (void)state;
  builder b;
  builder_begin(&b, 2, 1, 2, 4);
  builder_cost_all(&b, 1.0, 2.0);
  builder_cost(&b, MT_COST_FORWARD, 1, 2.0);
  builder_cost(&b, MT_COST_BACKWARD, 1, 4.0);
  mt_simulation *s = simulate_two_ranks(&b);
  ASSERT_NEAR(s->makespan, 27.0);
  ASSERT_NEAR(s->idle_by_cause[MT_IDLE_STAGE_IMBALANCE], 3.0);
  ASSERT_NEAR(s->idle_by_cause[MT_IDLE_WARM_UP], 5.0 + 1.0);
  ASSERT_NEAR(s->idle_by_cause[MT_IDLE_COOL_DOWN], 7.0 + 2.0);
  builder_free(&b);
}

/* Microbatch 1's backward alone takes 5 instead of 2: rank 0 stands 7-10 before it. */
static void test_a_long_microbatch_is_named(void **state) {
  (void)state;
  builder b;
  builder_begin(&b, 2, 1, 2, 4);
  builder_cost_all(&b, 1.0, 2.0);
  b.costs.seconds[MT_COST_BACKWARD].values[1 * 4 + 1] = 5.0;
  mt_simulation *s = simulate_two_ranks(&b);
  ASSERT_NEAR(s->idle_by_cause[MT_IDLE_MICROBATCH_VARIANCE], 3.0);
  ASSERT_NEAR(s->idle_by_cause[MT_IDLE_STAGE_IMBALANCE], 0.0);
  ASSERT_NEAR(s->idle_by_cause[MT_IDLE_COMMUNICATION], 0.0);
  builder_free(&b);
}

/* Both at once. Rank 1 takes twice as long, and its backward of microbatch 1 another 3 s: F0 1-3, B0 3-7, F1 7-9,
 * B1 9-16. Rank 0 stands 10-16, its last idle time ended at 7. On the chain since then: 3 s of excess, and half
 * (the part that rank 1 has more) of the 4 + 2 s that B1 and F1 take by their medians. */
static void test_causes_share_a_wait(void **state) {
  (void)state;
  builder b;
  builder_begin(&b, 2, 1, 2, 4);
  builder_cost_all(&b, 1.0, 2.0);
  builder_cost(&b, MT_COST_FORWARD, 1, 2.0);
  builder_cost(&b, MT_COST_BACKWARD, 1, 4.0);
  b.costs.seconds[MT_COST_BACKWARD].values[1 * 4 + 1] = 7.0;
  mt_simulation *s = simulate_two_ranks(&b);
  ASSERT_NEAR(s->idle_by_cause[MT_IDLE_MICROBATCH_VARIANCE], 3.0);
  ASSERT_NEAR(s->idle_by_cause[MT_IDLE_STAGE_IMBALANCE], 3.0);
  builder_free(&b);
}

/* Reading inputs for 0.5 s, in the warm-up and in the steady part of a rank that waits for nobody. */
static void test_loading_is_an_input_stall(void **state) {
  (void)state;
  builder b;
  builder_begin(&b, 1, 1, 1, 3);
  builder_cost_all(&b, 1.0, 2.0);
  builder_cost(&b, MT_COST_LOAD, 0, 0.5);
  for (int32_t m = 0; m < 3; m++) {
    builder_compute(&b, 0, MOTET_LOAD, 0, m);
    builder_compute(&b, 0, MOTET_FWD, 0, m);
    builder_compute(&b, 0, MOTET_BWD, 0, m);
  }
  mt_simulation *s = builder_simulate(&b, builder_end(&b));
  assert_non_null(s);
  ASSERT_NEAR(s->makespan, 3 * 3.5);
  ASSERT_NEAR(s->idle_by_cause[MT_IDLE_WARM_UP], 0.0);
  ASSERT_NEAR(s->idle_by_cause[MT_IDLE_INPUT_STALL], 1.5);
  builder_free(&b);
}

/* Two replicas of two ranks; replica 1's microbatches take a second longer on both ranks. The reduces of a stage
 * cost 2 (n-1)/n bytes/bandwidth + 2 (n-1) latency = 1 + 0.5. */
static void test_data_parallel_waiting_is_apart_from_cool_down(void **state) {
  (void)state;
  builder b;
  builder_begin(&b, 4, 2, 2, 2);
  builder_cost_all(&b, 1.0, 2.0);
  for (int32_t stage = 0; stage < 2; stage++) b.costs.seconds[MT_COST_BACKWARD].values[stage * 2 + 1] = 3.0;
  b.costs.links = (mt_links){.ranks_per_node = 2, .local = {0, 0}, .remote = {0.25, 1000}};
  b.costs.links.local.latency_seconds = 0;
  for (int32_t replica = 0; replica < 2; replica++) builder_pipeline(&b, 2 * replica, 2, 1, replica, 1, false, 0);
  builder_send_waits(&b);
  for (int32_t stage = 0; stage < 2; stage++) {
    int32_t ranks[2] = {stage, stage + 2};
    int32_t group = builder_group(&b, ranks, 2);
    b.program.stages[stage].group = group;
    builder_collective(&b, MOTET_ALL_REDUCE, group, stage,
                       builder_buffer(&b, MOTET_BUFFER_WEIGHT_GRADIENT, stage, -1, -1, 1000));
  }
  builder_collective(&b, MOTET_STEP_END, 0, -1, -1);
  mt_simulation *s = builder_simulate(&b, builder_end(&b));
  assert_non_null(s);
  /* Rank 0: F 0-1, B 4-6; rank 1: F 1-2, B 2-4; rank 2: F 0-1, B 5-8; rank 3: F 1-2, B 2-5. Sends' waits are done
   * with by the posts. Reduces: stage 0 8-9.5, stage 1 5-6.5; the step ends at 9.5. */
  ASSERT_NEAR(s->makespan, 9.5);
  ASSERT_NEAR(s->idle_by_cause[MT_IDLE_WARM_UP], 3 + 1 + 4 + 1);
  /* Reduces: rank 0 waits 2 and takes 1.5, rank 1 waits 1 and takes 1.5, ranks 2 and 3 take 1.5 each. At the step's
   * end ranks 1 and 3 wait from 6.5 to 9.5, both for rank 0 or 2 of their own pipelines. */
  ASSERT_NEAR(s->idle_by_cause[MT_IDLE_DATA_PARALLEL_WAIT], 3.5 + 2.5 + 1.5 + 1.5);
  ASSERT_NEAR(s->idle_by_cause[MT_IDLE_COOL_DOWN], 3.0 + 3.0);
  ASSERT_NEAR(sum(s->idle_by_cause, MT_IDLE_CAUSES), 4 * 9.5 - 3 - 3 - 4 - 4);
  builder_free(&b);
}

/* Ranks 0 and 1 (node 0) each send a 2 s message to node 1 at time 0 while rank 2 sends one back: the two share a
 * NIC one after the other, lowest sender first, and the opposite direction is its own. */
static void test_a_node_serialises_its_transfers(void **state) {
  (void)state;
  for (int shared = 0; shared < 2; shared++) {
    builder b;
    builder_begin(&b, 4, 1, 1, 3);
    builder_edge(&b, 0, 0);
    b.costs.links = (mt_links){.ranks_per_node = 2, .remote = {0, 100}, .shared_nic = shared != 0};
    static const int32_t from[] = {1, 0, 2}, to[] = {3, 2, 0};
    for (int32_t m = 0; m < 3; m++) {
      int32_t buffer = builder_buffer(&b, MOTET_BUFFER_ACTIVATION, 0, 0, m, 200);
      builder_add(&b, from[m], MOTET_SEND, 0, 0, m, buffer, to[m]);
      builder_add(&b, to[m], MOTET_RECV, 0, 0, m, buffer, from[m]);
    }
    for (int32_t m = 0; m < 3; m++) builder_add(&b, to[m], MOTET_WAIT, MOTET_FLAG_RECV, 0, m, m, from[m]);
    motet_program *p = builder_end(&b);
    mt_simulation *s = builder_simulate(&b, p);
    assert_non_null(s);
    ASSERT_NEAR(s->makespan, shared ? 4.0 : 2.0);
    ASSERT_NEAR(s->finish[p->rank_begin[4] - 1], shared ? 4.0 : 2.0); /* rank 3, whose sender is rank 1 */
    ASSERT_NEAR(s->finish[p->rank_begin[3] - 1], 2.0);                /* rank 2 hears from rank 0 */
    ASSERT_NEAR(s->finish[p->rank_begin[1] - 1], 2.0);                /* rank 0 hears from the other direction */
    builder_free(&b);
  }
}

/* Two nodes send to a third at once: its NIC takes one after the other. */
static void test_a_node_takes_in_one_transfer_at_a_time(void **state) {
  (void)state;
  builder b;
  builder_begin(&b, 3, 1, 1, 2);
  builder_edge(&b, 0, 0);
  b.costs.links = (mt_links){.ranks_per_node = 1, .remote = {0, 100}, .shared_nic = true};
  for (int32_t r = 0; r < 2; r++) {
    int32_t buffer = builder_buffer(&b, MOTET_BUFFER_ACTIVATION, 0, 0, r, 200);
    builder_add(&b, r, MOTET_SEND, 0, 0, r, buffer, 2);
    builder_add(&b, r, MOTET_WAIT, 0, 0, r, buffer, 2);
    builder_add(&b, 2, MOTET_RECV, 0, 0, r, buffer, r);
  }
  motet_program *p = builder_end(&b);
  mt_simulation *s = builder_simulate(&b, p);
  assert_non_null(s);
  ASSERT_NEAR(s->finish[1], 2.0);
  ASSERT_NEAR(s->finish[3], 4.0);
  builder_free(&b);
}

/* Readiness decides before rank: rank 1's message is ready first and goes first. */
static void test_the_first_ready_transfer_takes_the_link(void **state) {
  (void)state;
  builder b;
  builder_begin(&b, 4, 1, 1, 2);
  builder_edge(&b, 0, 0);
  builder_cost_all(&b, 0.5, 0);
  b.costs.links = (mt_links){.ranks_per_node = 2, .remote = {0, 100}, .shared_nic = true};
  builder_compute(&b, 0, MOTET_FWD, 0, 0);
  for (int32_t r = 0; r < 2; r++) {
    int32_t buffer = builder_buffer(&b, MOTET_BUFFER_ACTIVATION, 0, 0, r, 200);
    builder_add(&b, r, MOTET_SEND, 0, 0, r, buffer, r + 2);
    builder_add(&b, r + 2, MOTET_RECV, 0, 0, r, buffer, r);
    builder_add(&b, r + 2, MOTET_WAIT, MOTET_FLAG_RECV, 0, r, buffer, r);
  }
  motet_program *p = builder_end(&b);
  mt_simulation *s = builder_simulate(&b, p);
  assert_non_null(s);
  ASSERT_NEAR(s->finish[p->rank_begin[4] - 1], 2.0);
  ASSERT_NEAR(s->finish[p->rank_begin[3] - 1], 4.0);
  builder_free(&b);
}

/* A transfer begins when both ends are posted: the receiver's lateness delays the sender's WAIT. */
static void test_transfers_are_rendezvous(void **state) {
  (void)state;
  builder b;
  builder_begin(&b, 2, 1, 1, 1);
  builder_edge(&b, 0, 0);
  builder_cost_all(&b, 3.0, 0);
  b.costs.links.local = (mt_link){0.5, 0};
  int32_t buffer = builder_buffer(&b, MOTET_BUFFER_ACTIVATION, 0, 0, 0, 8);
  builder_add(&b, 0, MOTET_SEND, 0, 0, 0, buffer, 1);
  builder_add(&b, 0, MOTET_WAIT, 0, 0, 0, buffer, 1);
  builder_compute(&b, 1, MOTET_FWD, 0, 0);
  builder_add(&b, 1, MOTET_RECV, 0, 0, 0, buffer, 0);
  builder_compute(&b, 1, MOTET_FWD, 0, 0);
  motet_program *p = builder_end(&b);
  mt_simulation *s = builder_simulate(&b, p);
  assert_non_null(s);
  ASSERT_NEAR(s->finish[1], 3.5);
  ASSERT_NEAR(s->makespan, 6.0);
  builder_free(&b);
}

static void test_a_hang_names_the_standing_ranks(void **state) {
  (void)state;
  builder b;
  builder_begin(&b, 3, 1, 2, 2);
  for (int32_t r = 0; r < 2; r++) { /* each sends only after it has received */
    int32_t mine = builder_buffer(&b, MOTET_BUFFER_ACTIVATION, r, builder_edge(&b, 0, 1), r, 8);
    int32_t theirs = builder_buffer(&b, MOTET_BUFFER_ACTIVATION, 1 - r, 0, 1 - r, 8);
    builder_add(&b, r, MOTET_RECV, 0, 1 - r, 1 - r, theirs, 1 - r);
    builder_add(&b, r, MOTET_WAIT, MOTET_FLAG_RECV, 1 - r, 1 - r, theirs, 1 - r);
    builder_add(&b, r, MOTET_SEND, 0, r, r, mine, 1 - r);
  }
  builder_collective(&b, MOTET_STEP_END, 0, -1, -1);
  motet_program *p = builder_end(&b);
  motet_error error;
  mt_simulation *s = NULL;
  assert_int_equal(mt_simulate(b.arena, p, &b.costs, NULL, &error, &s), MOTET_ERROR_FAILED);
  assert_null(s);
  assert_non_null(strstr(error.text, "3 of 3 ranks"));
  assert_non_null(
      strstr(error.text, "rank 0 at instruction 1 for rank 1 to send the output of stage 1, microbatch 1"));
  assert_non_null(strstr(error.text, "rank 2 at instruction 0 (STEP_END)"));
  assert_string_equal(error.rule, "progress");
  assert_int_equal(error.rank, 0);
  assert_int_equal(error.instruction, 1);
  double makespan;
  assert_int_equal(mt_simulate_max_plus(b.arena, p, &b.costs, &error, &makespan, NULL), MOTET_ERROR_FAILED);
  assert_non_null(strstr(error.text, "hangs"));
  builder_free(&b);
}

static void test_collectives_that_do_not_meet_are_refused(void **state) {
  (void)state;
  builder b;
  builder_begin(&b, 2, 1, 2, 1);
  int32_t buffer = builder_buffer(&b, MOTET_BUFFER_WEIGHT_GRADIENT, 0, -1, -1, 8);
  builder_add(&b, 0, MOTET_ALL_REDUCE, 0, 0, -1, buffer, 0);
  builder_add(&b, 1, MOTET_ALL_REDUCE, 0, 1, -1, buffer, 0);
  motet_program *p = builder_end(&b);
  motet_error error;
  mt_simulation *s = NULL;
  assert_int_equal(mt_simulate(b.arena, p, &b.costs, NULL, &error, &s), MOTET_ERROR_FAILED);
  assert_string_equal(error.rule, "collectives");
  builder_free(&b);

  builder_begin(&b, 2, 1, 1, 1);
  builder_edge(&b, 0, 0);
  builder_add(&b, 1, MOTET_WAIT, MOTET_FLAG_RECV, 0, 0, builder_buffer(&b, MOTET_BUFFER_ACTIVATION, 0, 0, 0, 8), 0);
  assert_int_equal(mt_simulate(b.arena, builder_end(&b), &b.costs, NULL, &error, &s), MOTET_ERROR_FAILED);
  assert_string_equal(error.rule, "channels");
  builder_free(&b);
}

/* Costs of collectives, from the formulas: n = 4 on two nodes of two, so the ring's slowest edge is a remote one.
 */
static void test_collectives_cost_their_ring(void **state) {
  (void)state;
  static const struct {
    int kind;
    double seconds;
  } rows[] = {{MOTET_ALL_REDUCE, 2 * 3.0 / 4 * 800 / 100 + 2 * 3 * 0.5},
              {MOTET_REDUCE_SCATTER, 3.0 / 4 * 800 / 100 + 3 * 0.5},
              {MOTET_ALL_GATHER, 3.0 / 4 * 800 / 100 + 3 * 0.5}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    builder b;
    builder_begin(&b, 4, 1, 1, 1);
    b.costs.links = (mt_links){.ranks_per_node = 2, .local = {0.1, 1000}, .remote = {0.5, 100}};
    builder_collective(&b, rows[i].kind, 0, 0, builder_buffer(&b, MOTET_BUFFER_WEIGHT_GRADIENT, 0, -1, -1, 800));
    mt_simulation *s = builder_simulate(&b, builder_end(&b));
    assert_non_null(s);
    ASSERT_NEAR(s->makespan, rows[i].seconds);
    builder_free(&b);
  }
}

/* Members that disagree on the size: the largest sets the time, whoever comes first. */
static void test_the_largest_piece_sets_a_collective_s_time(void **state) {
  (void)state;
  for (int32_t large = 0; large < 2; large++) {
    builder b;
    builder_begin(&b, 2, 1, 1, 1);
    b.costs.links.local = (mt_link){0, 100};
    for (int32_t r = 0; r < 2; r++) {
      int32_t buffer = builder_buffer(&b, MOTET_BUFFER_WEIGHT_GRADIENT, 0, -1, r, r == large ? 800 : 0);
      builder_add(&b, r, MOTET_ALL_REDUCE, 0, 0, -1, buffer, 0);
    }
    mt_simulation *s = builder_simulate(&b, builder_end(&b));
    assert_non_null(s);
    ASSERT_NEAR(s->makespan, 8.0);
    builder_free(&b);
  }
}

/* Features of a transposed encoder: one rank encodes three microbatches of 1 s, the other takes 2 s for each. They
 * are born at 1, 2, 3 and die at 3, 5, 7: two are alive from 2 on, a third never, since 3 is a birth and a death.
 */
static void test_features_live_from_encode_to_consumer(void **state) {
  (void)state;
  builder b;
  builder_begin(&b, 2, 1, 2, 3);
  b.program.stages[0].region = 1;
  builder_cost(&b, MT_COST_FORWARD, 0, 1.0);
  builder_cost(&b, MT_COST_FORWARD, 1, 2.0);
  for (int32_t m = 0; m < 3; m++) builder_step(&b, 0, MOTET_FWD, 0, m, 0);
  for (int32_t m = 0; m < 3; m++) builder_step(&b, 0, MOTET_FWD, 1, m, 0);
  mt_simulation *s = builder_simulate(&b, builder_end(&b));
  assert_non_null(s);
  ASSERT_NEAR(s->makespan, 7.0);
  assert_int_equal(s->peak_features, 2);
  builder_free(&b);

  /* A carried feature is there from the beginning; one of the next step stays to the end: 3 + 1 at time 1. */
  builder_begin(&b, 1, 1, 2, 4);
  b.program.stages[0].region = 1;
  builder_edge(&b, 0, 1);
  builder_cost_all(&b, 1.0, 0);
  motet_carried carried[3] = {{0, 0, 0}, {0, 1, 0}, {0, 2, 0}};
  b.program.carried = carried;
  b.program.carried_count = 3;
  builder_add(&b, 0, MOTET_FWD, MOTET_FLAG_NEXT, 0, 3, -1, -1);
  for (int32_t m = 0; m < 3; m++) builder_compute(&b, 0, MOTET_FWD, 1, m);
  s = builder_simulate(&b, builder_end(&b));
  assert_non_null(s);
  assert_int_equal(s->peak_features, 4);
  builder_free(&b);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_1f1b_and_gpipe_follow_their_closed_form),
      cmocka_unit_test(test_interleaving_divides_the_bubble),
      cmocka_unit_test(test_gpipe_pays_every_hop_once_each_way),
      cmocka_unit_test(test_1f1b_with_latency_by_hand),
      cmocka_unit_test(test_a_slow_stage_is_named),
      cmocka_unit_test(test_a_long_microbatch_is_named),
      cmocka_unit_test(test_causes_share_a_wait),
      cmocka_unit_test(test_loading_is_an_input_stall),
      cmocka_unit_test(test_data_parallel_waiting_is_apart_from_cool_down),
      cmocka_unit_test(test_a_node_serialises_its_transfers),
      cmocka_unit_test(test_a_node_takes_in_one_transfer_at_a_time),
      cmocka_unit_test(test_the_first_ready_transfer_takes_the_link),
      cmocka_unit_test(test_transfers_are_rendezvous),
      cmocka_unit_test(test_a_hang_names_the_standing_ranks),
      cmocka_unit_test(test_collectives_that_do_not_meet_are_refused),
      cmocka_unit_test(test_collectives_cost_their_ring),
      cmocka_unit_test(test_the_largest_piece_sets_a_collective_s_time),
      cmocka_unit_test(test_features_live_from_encode_to_consumer),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
