/* Rule 4 of the verifier: orders that hang in one reading and not in the other, and progress against a machine that
 * runs the lists. */
#include "program_builder.h"
#include "program_run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static motet_instruction *at(motet_program *program, int32_t rank, int64_t position) {
  return &program->instructions[program->rank_begin[rank] + position];
}

/* ---- Progress: the fragments of PyTorch issue 172668, completed to whole steps ----
 *
 * Four stages in a loop over two ranks, forward and backward of three microbatches. Each rank's list holds SENDs
 * and RECVs in the order that is reported to hang; WAITs stand before the consumer, and those of sends at the end.
 */

typedef struct action {
  int kind; /* MOTET_FWD, MOTET_BWD, MOTET_SEND, MOTET_RECV; -1 ends a list */
  int32_t stage, microbatch;
  bool gradient;
} action;

#define F(s, m)                                                                                                    \
  { MOTET_FWD, s, m, false }
#define B(s, m)                                                                                                    \
  { MOTET_BWD, s, m, false }
#define SF(s, m)                                                                                                   \
  { MOTET_SEND, s, m, false }
#define RF(s, m)                                                                                                   \
  { MOTET_RECV, s, m, false }
#define SB(s, m)                                                                                                   \
  { MOTET_SEND, s, m, true }
#define RB(s, m)                                                                                                   \
  { MOTET_RECV, s, m, true }
#define END                                                                                                        \
  { -1, 0, 0, false }

/* As in `0SEND_F1`: stage 0 sends its output of microbatch 1, stage 1 receives it by `1RECV_F1`; `3SEND_B1` goes to
 * stage 2, which takes it by `2RECV_B1`. */
static void push_actions(program_builder *b, int32_t rank, const action *actions) {
  for (const action *a = actions; a->kind >= 0; a++) {
    bool sends = a->kind == MOTET_SEND;
    int32_t edge = sends != a->gradient ? a->stage : a->stage - 1;
    if (a->kind == MOTET_SEND || a->kind == MOTET_RECV) {
      builder_transfer(b, rank, (motet_instruction_kind)a->kind, 0, edge, a->microbatch, a->gradient, 1 - rank);
      continue;
    }
    bool gradient = a->kind == MOTET_BWD;
    if (gradient ? a->stage < 3 : a->stage > 0)
      builder_transfer(b, rank, MOTET_WAIT, MOTET_FLAG_RECV, gradient ? a->stage : a->stage - 1, a->microbatch,
                       gradient, 1 - rank);
    builder_compute(b, rank, (motet_instruction_kind)a->kind, a->stage, a->microbatch);
  }
  for (const action *a = actions; a->kind >= 0; a++) {
    if (a->kind == MOTET_SEND)
      builder_transfer(b, rank, MOTET_WAIT, 0, a->gradient ? a->stage - 1 : a->stage, a->microbatch, a->gradient,
                       1 - rank);
  }
}

static motet_program *two_rank_order(const action *first, const action *second, int32_t microbatches) {
  program_builder b;
  builder_start(&b, 2, 1);
  builder_module(&b, "llm", 4, true);
  int32_t region = builder_region(&b, "llm", false), groups[2];
  for (int32_t rank = 0; rank < 2; rank++) groups[rank] = builder_group(&b, 1, &rank);
  for (int32_t s = 0; s < 4; s++) builder_stage(&b, region, s, s, s + 1, groups[s % 2]);
  for (int32_t s = 0; s < 3; s++) builder_edge(&b, s, s + 1);
  for (int32_t m = 0; m < microbatches; m++) builder_microbatch(&b, 0, 1, 0);
  push_actions(&b, 0, first);
  push_actions(&b, 1, second);
  builder_end(&b);
  motet_program *program = builder_program(&b);
  builder_free(&b);
  return program;
}

static const action first_rank_0[] = {F(0, 0),  SF(0, 0), F(0, 1),  SF(0, 1), RF(2, 0), F(2, 0),  SF(2, 0),
                                      RF(2, 1), F(2, 1),  SF(2, 1), RB(2, 0), B(2, 0),  SB(2, 0), RB(2, 1),
                                      B(2, 1),  SB(2, 1), RB(0, 0), B(0, 0),  RB(0, 1), B(0, 1),  END};
static const action first_rank_1[] = {RF(1, 0), F(1, 0), SF(1, 0), RF(1, 1), F(1, 1), SF(1, 1), RF(3, 0),
                                      F(3, 0),  B(3, 0), SB(3, 0), RF(3, 1), F(3, 1), B(3, 1),  SB(3, 1),
                                      RB(1, 0), B(1, 0), SB(1, 0), RB(1, 1), B(1, 1), SB(1, 1), END};

static const action second_rank_0[] = {
    F(0, 0),  SF(0, 0), F(0, 1),  SF(0, 1), RF(2, 0), F(2, 0),  SF(2, 0), RF(2, 1), F(2, 1),  SF(2, 1), F(0, 2),
    SF(0, 2), RB(2, 0), B(2, 0),  RB(2, 1), B(2, 1),  RF(2, 2), F(2, 2),  SF(2, 2), SB(2, 0), SB(2, 1), RB(2, 2),
    B(2, 2),  SB(2, 2), RB(0, 0), B(0, 0),  RB(0, 1), B(0, 1),  RB(0, 2), B(0, 2),  END};
static const action second_rank_1[] = {
    RF(1, 0), F(1, 0),  RF(1, 1), SF(1, 0), F(1, 1), RF(3, 0), SF(1, 1), F(3, 0),  B(3, 0), RF(3, 1), SB(3, 0),
    F(3, 1),  B(3, 1),  RF(1, 2), SB(3, 1), F(1, 2), SF(1, 2), RF(3, 2), F(3, 2),  B(3, 2), RB(1, 0), RB(1, 1),
    SB(3, 2), RB(1, 2), B(1, 0),  SB(1, 0), B(1, 1), SB(1, 1), B(1, 2),  SB(1, 2), END};

/* Where an action's post stands in the rank's list. */
static int64_t post_position(const motet_program *p, int32_t rank, int kind, int32_t edge, int32_t microbatch,
                             bool gradient) {
  for (int64_t i = p->rank_begin[rank]; i < p->rank_begin[rank + 1]; i++) {
    const motet_instruction *x = &p->instructions[i];
    if (x->kind != kind || x->microbatch != microbatch || p->buffers[x->buffer].edge != edge) continue;
    if ((p->buffers[x->buffer].kind == MOTET_BUFFER_GRADIENT) == gradient) return i - p->rank_begin[rank];
  }
  return -1;
}

static void assert_hangs_when_blocking(const motet_program *p, int64_t on_rank_0, int64_t on_rank_1) {
  motet_error error;
  motet_verification verification;
  motet_verify_options options = {.check_blocking = true};
  if (motet_verify(p, &options, &error, &verification) != MOTET_OK) fail_msg("%s: %s", error.rule, error.text);
  assert_true(verification.blocking_hangs);
  assert_int_equal(verification.cycle_count, 2);
  assert_int_equal(verification.cycle[0], 0);
  assert_int_equal(verification.cycle[1], on_rank_0);
  assert_int_equal(verification.cycle[2], 1);
  assert_int_equal(verification.cycle[3], on_rank_1);
  motet_verification_free(&verification);
  assert_true(program_hangs(p, true, 0));
  assert_false(program_hangs(p, false, 0));
}

static void test_fragments_hang_when_blocking(void **state) {
  (void)state;
  /* `0SEND_F1, 2RECV_F0` against `1SEND_F0, 1RECV_F1`: each send waits for the receive behind the other's. */
  motet_program *p = two_rank_order(first_rank_0, first_rank_1, 2);
  assert_hangs_when_blocking(p, post_position(p, 0, MOTET_SEND, 0, 1, false),
                             post_position(p, 1, MOTET_SEND, 1, 0, false));
  /* One buffered send a channel breaks that circle. */
  motet_error error;
  motet_verification verification;
  motet_verify_options options = {.check_blocking = true, .capacity = 1};
  assert_int_equal(motet_verify(p, &options, &error, &verification), MOTET_OK);
  assert_int_equal(verification.blocking_hangs, program_hangs(p, true, 1));
  assert_false(verification.blocking_hangs);
  motet_verification_free(&verification);
  program_free(p);
  /* `0SEND_F2, 2RECV_B0` against `3SEND_B0, ..., 1RECV_F2`. */
  p = two_rank_order(second_rank_0, second_rank_1, 3);
  assert_hangs_when_blocking(p, post_position(p, 0, MOTET_SEND, 0, 2, false),
                             post_position(p, 1, MOTET_SEND, 2, 0, true));
  program_free(p);
}

/* With the WAIT right behind each SEND the posted reading hangs as well, and is refused. */
static void test_waits_that_hang_are_refused(void **state) {
  (void)state;
  motet_program *p = two_rank_order(first_rank_0, first_rank_1, 2);
  for (int32_t rank = 0; rank < 2; rank++) {
    int64_t length = p->rank_begin[rank + 1] - p->rank_begin[rank];
    for (int64_t i = 0; i < length; i++) {
      motet_instruction send = *at(p, rank, i);
      if (send.kind != MOTET_SEND) continue;
      int64_t wait = i;
      while (at(p, rank, wait)->kind != MOTET_WAIT || at(p, rank, wait)->buffer != send.buffer) wait++;
      motet_instruction moved = *at(p, rank, wait);
      memmove(at(p, rank, i + 2), at(p, rank, i + 1), (size_t)(wait - i - 1) * sizeof moved);
      *at(p, rank, i + 1) = moved;
    }
  }
  assert_true(program_hangs(p, false, 0));
  motet_error error;
  motet_verification verification;
  assert_int_equal(motet_verify(p, NULL, &error, &verification), MOTET_ERROR_REFUSED);
  assert_string_equal(error.rule, "progress");
  assert_int_equal(verification.cycle_count, 2);
  assert_int_equal(verification.cycle[0], 0);
  assert_int_equal(verification.cycle[1], post_position(p, 0, MOTET_SEND, 0, 1, false) + 1);
  assert_int_equal(verification.cycle[2], 1);
  assert_int_equal(verification.cycle[3], post_position(p, 1, MOTET_SEND, 1, 0, false) + 1);
  assert_int_equal(error.rank, 0);
  assert_int_equal(error.instruction, verification.cycle[1]);
  motet_verification_free(&verification);
  program_free(p);
}

/* ---- Progress against the machine, on random programs with their WAITs for sends moved ahead ---- */

static void hurry_waits(motet_program *p, mt_random *random) {
  int64_t length = p->rank_begin[p->ranks];
  for (int64_t i = 0; i < length; i++) {
    motet_instruction wait = p->instructions[i];
    if (wait.kind != MOTET_WAIT || (wait.flags & MOTET_FLAG_RECV) != 0 || mt_random_below(random, 3) == 0) continue;
    int64_t send = i;
    while (p->instructions[send].kind != MOTET_SEND || p->instructions[send].buffer != wait.buffer) send--;
    int64_t to = send + 1 + (int64_t)mt_random_below(random, (uint64_t)(i - send));
    while ((p->instructions[to - 1].flags & MOTET_FLAG_JOINED) != 0) to--; /* not inside of a run */
    memmove(&p->instructions[to + 1], &p->instructions[to], (size_t)(i - to) * sizeof wait);
    p->instructions[to] = wait;
  }
}

/* The cycle is one: everyone stands at its instruction for the next. */
static void check_cycle(const motet_program *p, const motet_verification *verification, bool blocking) {
  for (int32_t i = 0; i < verification->cycle_count; i++) {
    int64_t rank = verification->cycle[2 * i], position = verification->cycle[2 * i + 1];
    int64_t next = verification->cycle[2 * ((i + 1) % verification->cycle_count)];
    const motet_instruction *x = &p->instructions[p->rank_begin[rank] + position];
    bool transfer = blocking ? x->kind == MOTET_SEND || x->kind == MOTET_RECV : x->kind == MOTET_WAIT;
    if (transfer) assert_int_equal(x->peer, next);
    assert_true(transfer || x->kind >= MOTET_REDUCE);
  }
}

static void test_progress_against_a_machine(void **state) {
  (void)state;
  int hangs = 0, blocking_hangs = 0, buffered_hangs = 0, runs = 0;
  for (uint64_t seed = 0; seed < 3000; seed++) {
    mt_random random = mt_random_stream(seed, "progress");
    motet_program *p = program_draw(&random);
    hurry_waits(p, &random);
    motet_error error;
    motet_verification verification;
    motet_verify_options options = {.check_blocking = true, .capacity = (int32_t)mt_random_below(&random, 2)};
    motet_status status = motet_verify(p, &options, &error, &verification);
    bool hung = program_hangs(p, false, 0);
    assert_int_equal(status, hung ? MOTET_ERROR_REFUSED : MOTET_OK);
    if (hung) assert_string_equal(error.rule, "progress");
    if (!hung) assert_int_equal(verification.blocking_hangs, program_hangs(p, true, options.capacity));
    assert_int_equal(verification.cycle_count > 0, hung || verification.blocking_hangs);
    check_cycle(p, &verification, !hung);
    hangs += hung;
    runs += !hung && !verification.blocking_hangs;
    blocking_hangs += verification.blocking_hangs && options.capacity == 0;
    buffered_hangs += verification.blocking_hangs && options.capacity > 0;
    motet_verification_free(&verification);
    program_free(p);
  }
  /* All four answers occur. */
  assert_true(hangs > 100 && runs > 100 && blocking_hangs > 100 && buffered_hangs > 10);
}

/* ---- Collectives of overlapping groups: three stages, each held by two of three ranks ---- */

/* Every group has one collective, alike on both members; @p turned: each rank begins with the other of its two. */
static motet_program *overlapping_groups(bool turned) {
  static const int32_t members[3][2] = {{0, 1}, {1, 2}, {0, 2}};
  static const int32_t reduces[2][3][2] = {{{0, 2}, {0, 1}, {1, 2}}, {{0, 2}, {1, 0}, {2, 1}}};
  program_builder b;
  builder_start(&b, 3, 1);
  builder_module(&b, "llm", 3, true);
  int32_t region = builder_region(&b, "llm", false);
  for (int32_t s = 0; s < 3; s++) builder_stage(&b, region, s, s, s + 1, builder_group(&b, 2, members[s]));
  for (int32_t s = 0; s < 2; s++) builder_edge(&b, s, s + 1);
  builder_microbatch(&b, 0, 1, 0);
  for (int32_t s = 0; s < 3; s++) { /* stage s runs on rank s */
    if (s > 0) {
      builder_transfer(&b, s, MOTET_RECV, 0, s - 1, 0, false, s - 1);
      builder_transfer(&b, s, MOTET_WAIT, MOTET_FLAG_RECV, s - 1, 0, false, s - 1);
    }
    builder_compute(&b, s, MOTET_FWD, s, 0);
    if (s == 2) continue;
    builder_transfer(&b, s, MOTET_SEND, 0, s, 0, false, s + 1);
    builder_transfer(&b, s, MOTET_WAIT, 0, s, 0, false, s + 1);
  }
  for (int32_t s = 2; s >= 0; s--) {
    if (s < 2) {
      builder_transfer(&b, s, MOTET_RECV, 0, s, 0, true, s + 1);
      builder_transfer(&b, s, MOTET_WAIT, MOTET_FLAG_RECV, s, 0, true, s + 1);
    }
    builder_compute(&b, s, MOTET_BWD, s, 0);
    if (s == 0) continue;
    builder_transfer(&b, s, MOTET_SEND, 0, s - 1, 0, true, s - 1);
    builder_transfer(&b, s, MOTET_WAIT, 0, s - 1, 0, true, s - 1);
  }
  for (int32_t rank = 0; rank < 3; rank++) {
    for (int32_t i = 0; i < 2; i++) {
      int32_t stage = reduces[turned][rank][i];
      builder_reduce(&b, rank, stage, -1, b.stages.data[stage].group);
    }
  }
  builder_end(&b);
  motet_program *program = builder_program(&b);
  builder_free(&b);
  return program;
}

static void test_overlapping_groups(void **state) {
  (void)state;
  motet_program *p = overlapping_groups(false);
  motet_error error;
  if (motet_verify(p, NULL, &error, NULL) != MOTET_OK) fail_msg("%s: %s", error.rule, error.text);
  assert_false(program_hangs(p, false, 0));
  program_free(p);
  /* Rank 0 stands in {0, 1}, rank 1 in {1, 2}, rank 2 in {0, 2}: each waits for the next. */
  p = overlapping_groups(true);
  motet_verification verification;
  assert_int_equal(motet_verify(p, NULL, &error, &verification), MOTET_ERROR_REFUSED);
  assert_string_equal(error.rule, "progress");
  assert_int_equal(verification.cycle_count, 3);
  for (int32_t i = 0; i < 3; i++) {
    int64_t position = verification.cycle[2 * i + 1];
    assert_int_equal(verification.cycle[2 * i], i);
    assert_int_equal(at(p, i, position)->kind, MOTET_ALL_REDUCE);
    assert_int_equal(at(p, i, position)->stage, i);
  }
  assert_true(program_hangs(p, false, 0));
  motet_verification_free(&verification);
  program_free(p);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_fragments_hang_when_blocking),
      cmocka_unit_test(test_waits_that_hang_are_refused),
      cmocka_unit_test(test_progress_against_a_machine),
      cmocka_unit_test(test_overlapping_groups),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
