/* The verifier on joined instructions: runs broken in one place, the place named; the memory of one computation. */
#include "../verify_case.h"

#include <stdlib.h>

/* Two stages on one rank, whose instructions are letter, microbatch, `'` for the second stage, `+` for joined. */
static motet_program *joined_program(const char *text, int32_t microbatches) {
  program_builder b;
  builder_start(&b, 1, 1);
  builder_module(&b, "projector", 1, true);
  builder_module(&b, "llm", 1, true);
  builder_module_edge(&b, 0, 1);
  int32_t region = builder_region(&b, "projector+llm", false);
  for (int32_t s = 0; s < 2; s++) builder_stage(&b, region, s, s, s + 1, 0);
  builder_edge(&b, 0, 1);
  for (int32_t m = 0; m < microbatches; m++) builder_microbatch(&b, 0, 3, 0);
  b.saved_bytes = 100;
  b.output_bytes = 10;
  for (const char *c = text; *c != 0;) {
    motet_instruction_kind kind = kind_of(*c++);
    int32_t microbatch = *c++ - '0', stage = *c == '\'' ? 1 : 0;
    builder_compute(&b, 0, kind, stage, microbatch);
    c += stage;
    if (*c != '+') continue;
    builder_join(&b, 0);
    c++;
  }
  builder_end(&b);
  motet_program *program = builder_program(&b);
  builder_free(&b);
  return program;
}

static void test_joined_runs(void **state) {
  (void)state;
  static const struct {
    const char *text;
    int32_t microbatches;
    long long instruction; /* -1: accepted */
    int microbatch;
    const char *words;
  } cases[] = {
      {"F0+F1F0'F1'B0'B1'B0+B1", 2, -1, 0, NULL},
      {"F1+F0F0'F1'B0'B1'B1+B0", 2, -1, 0, NULL},
      {"F0+F1F0'+F1'B0'+B1'B0+B1", 2, -1, 0, NULL},
      {"F0F1F0'+F1'B0'+B1'B0B1", 2, -1, 0, NULL},
      {"F0+F1+F2F0'F1'B0'F2'B1'B2'X0+X1+X2W0+W1+W2", 3, -1, 0, NULL},
      {"F0+F1R0+R1F0'F1'B0'B1'B0+B1", 2, -1, 0, NULL},
      {"F0+F1O1O0F0'F1'B0'B1'H0H1B0+B1", 2, -1, 0, NULL},
      {"F0+F1F2+F3F0'F1'F2'F3'B0'B1'B2'B3'B2+B3B0+B1", 4, -1, 0, NULL},
      /* Something else stands behind a joined one. */
      {"F0+O0F1F0'F1'B0'B1'H0B0B1", 2, 0, 0, "must be a FWD of that stage and of this step"},
      {"F0+F0'F1F1'B0'B1'B0B1", 2, 0, 0, "joined with the instruction behind it, FWD of stage 1, microbatch 0"},
      {"F0F1F0'F1'B0'B1'X0+W0X1W1", 2, 6, 0, "must be a BWD_X of that stage"},
      {"F0+F1+F0'F1'B0'B1'B0+B1", 2, 1, 1, "must be a FWD of that stage"},
      {"F0+F0F1F0'F1'B0'B1'B0B1", 2, 1, 0, "must run once"},
      {"F0F1F0'F1'B0'B1'B0B1+", 2, 7, 1, "with the instruction behind it, OPTIM"},
      /* Backward is not as forward. */
      {"F0+F1F0'F1'B0'B1'B0B1", 2, 6, 0,
       "none before and none behind it, its FWD with none before and microbatch 1"},
      {"F0F1F0'F1'B0'B1'B0+B1", 2, 6, 0,
       "none before and microbatch 1 behind it, its FWD with none before and none"},
      {"F0+F1F0'F1'B0'B1'B1+B0", 2, 6, 1, "its FWD with microbatch 0 before and none behind it: must be joined"},
      {"F0+F1+F2F0'F1'F2'B0'B1'B2'B0+B1B2", 3, 10, 1, "its FWD with microbatch 0 before and microbatch 2 behind"},
      {"F0+F1+F2R1+R2F0'F1'F2'B0'B1'B2'B0+B1+B2", 3, 3, 1, "its FWD with microbatch 0 before"},
      {"F0+F1R0R1F0'F1'B0'B1'B0+B1", 2, 2, 0, "RECOMPUTE"},
      {"F0+F1F0'F1'B0'B1'X0+X1W0W1", 2, 8, 0, "BWD_W"},
      {"F0+F1F0'F1'B0'B1'X0X1W0+W1", 2, 6, 0, "BWD_X"},
      {"F0+F1F2+F3F0'F1'F2'F3'B0'B1'B2'B3'B0+B2B1+B3", 4, 12, 0,
       "microbatch 2 behind it, its FWD with none before"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    motet_program *p = joined_program(cases[i].text, cases[i].microbatches);
    if (cases[i].instruction < 0)
      assert_accepted(p);
    else
      assert_refused(p, "completeness", 0, cases[i].instruction, cases[i].microbatch, cases[i].words);
    program_free(p);
  }
}

static void test_joined_to_nothing_or_parts(void **state) {
  (void)state;
  motet_program *p = joined_program("F0F1F0'F1'B0'B1'B0B1", 2);
  at(p, 0, 8)->flags = MOTET_FLAG_JOINED; /* OPTIM */
  assert_refused(p, "data_flow", 0, 8, -1, "flag that its kind does not know");
  at(p, 0, 8)->flags = 0;
  at(p, 0, 7)->flags = MOTET_FLAG_JOINED;
  p->rank_begin[1] = 8; /* nothing behind the last BWD */
  assert_refused(p, "completeness", 0, 7, 1, "the last of rank 0's list: another BWD of that stage must stand");
  p->rank_begin[1] = 10;
  at(p, 0, 7)->flags = 0;
  /* Every microbatch one token range, which one rank computes. */
  motet_range ranges[] = {{0, -1, -1, 0, 0}, {0, 8, 0, 0, 1}, {0, 8, 1, 1, 1}}, *whole = p->ranges;
  motet_share shares[] = {{8, 0}, {8, 0}}, *none = p->shares;
  p->ranges = ranges;
  p->range_count = 3;
  p->shares = shares;
  p->share_count = 2;
  for (int64_t i = 0; i < 8; i++) {
    at(p, 0, i)->range = 1 + at(p, 0, i)->microbatch;
    at(p, 0, i)->peer = 0;
  }
  assert_accepted(p);
  at(p, 0, 0)->flags = MOTET_FLAG_JOINED;
  assert_refused(p, "completeness", 0, 0, 0, "must be whole, range 0");
  p->ranges = whole;
  p->shares = none;
  p->range_count = 1;
  p->share_count = 0;
  program_free(p);
}

/* Frozen features that the step before left, and two for the step behind, computed together. */
static void test_joined_for_the_next_step(void **state) {
  (void)state;
  program_builder b;
  start_ahead(&b, 2);
  builder_compute(&b, 0, MOTET_FWD, 0, 1);
  for (int32_t m = 0; m < 2; m++) {
    builder_compute(&b, 0, MOTET_FWD, 1, m);
    if (m == 0) builder_join(&b, 0);
  }
  for (int32_t m = 0; m < 2; m++) {
    builder_compute(&b, 0, MOTET_BWD, 1, m);
    if (m == 0) builder_join(&b, 0);
  }
  for (int32_t m = 1; m >= 0; m--) {
    builder_compute_next(&b, 0, MOTET_FWD, 0, m);
    if (m == 1) builder_join(&b, 0);
  }
  builder_end(&b);
  motet_program *p = builder_program(&b);
  assert_accepted(p);
  motet_instruction late = *at(p, 0, 0); /* this step's encode moved to the run for the next step */
  for (int64_t i = 0; i < 5; i++) *at(p, 0, i) = *at(p, 0, i + 1);
  *at(p, 0, 5) = late;
  assert_refused(p, "completeness", 0, 4, 1, "the next step");
  program_free(p);
  builder_free(&b);
}

/* Rank 0 computes two microbatches at once between two stages of rank 1, which begins the second when the first has
 * come back: the run's inputs wait for its own outputs. */
static void test_joined_run_waits_for_itself(void **state) {
  (void)state;
  for (int joined = 0; joined < 2; joined++) {
    program_builder b;
    builder_start(&b, 2, 1);
    builder_module(&b, "llm", 3, false);
    int32_t region = builder_region(&b, "llm", false), ranks[] = {0, 1}, groups[2];
    for (int32_t rank = 0; rank < 2; rank++) groups[rank] = builder_group(&b, 1, &ranks[rank]);
    for (int32_t s = 0; s < 3; s++) builder_stage(&b, region, s, s, s + 1, groups[s == 1 ? 0 : 1]);
    for (int32_t e = 0; e < 2; e++) builder_edge(&b, e, e + 1);
    for (int32_t m = 0; m < 2; m++) builder_microbatch(&b, 0, 1, 0);
    for (int32_t m = 0; m < 2; m++) {
      builder_compute(&b, 1, MOTET_FWD, 0, m);
      builder_transfer(&b, 1, MOTET_SEND, 0, 0, m, false, 0);
      builder_transfer(&b, 1, MOTET_RECV, 0, 1, m, false, 0);
      builder_transfer(&b, 1, MOTET_WAIT, 0, 0, m, false, 0);
      builder_transfer(&b, 1, MOTET_WAIT, MOTET_FLAG_RECV, 1, m, false, 0);
      builder_compute(&b, 1, MOTET_FWD, 2, m);
    }
    for (int32_t m = 0; m < 2; m++) builder_transfer(&b, 0, MOTET_RECV, 0, 0, m, false, 1);
    for (int32_t m = 0; m < 2; m++) {
      builder_transfer(&b, 0, MOTET_WAIT, MOTET_FLAG_RECV, 0, m, false, 1);
      if (joined) continue;
      builder_compute(&b, 0, MOTET_FWD, 1, m);
      builder_transfer(&b, 0, MOTET_SEND, 0, 1, m, false, 1);
    }
    for (int32_t m = 0; m < 2 && joined; m++) builder_compute(&b, 0, MOTET_FWD, 1, m);
    for (int32_t m = 0; m < 2 && joined; m++) builder_transfer(&b, 0, MOTET_SEND, 0, 1, m, false, 1);
    for (int32_t m = 0; m < 2; m++) builder_transfer(&b, 0, MOTET_WAIT, 0, 1, m, false, 1);
    for (int32_t rank = 0; rank < 2; rank++) {
      motet_instruction end = {.kind = MOTET_STEP_END, .stage = -1, .microbatch = -1, .buffer = -1};
      assert_true(MT_ARRAY_PUSH(&b.lists[rank], end));
    }
    motet_program *p = builder_program(&b);
    if (joined) at(p, 0, 4)->flags = MOTET_FLAG_JOINED;
    if (joined)
      assert_refused(p, "progress", 0, 3, 1, "ranks waiting in a circle");
    else
      assert_accepted(p);
    program_free(p);
    builder_free(&b);
  }
}

/* The second rank computes both microbatches at once: what they read, save and give back is there together. */
static void test_joined_memory(void **state) {
  (void)state;
  pipeline p;
  start_pipeline(&p, true, true);
  builder_microbatch(&p.b, 0, 3, 0);
  for (int32_t m = 0; m < 2; m++) {
    builder_compute(&p.b, 0, MOTET_FWD, VISION, m);
    builder_transfer(&p.b, 0, MOTET_SEND, 0, EDGE, m, false, 1);
    builder_transfer(&p.b, 1, MOTET_RECV, 0, EDGE, m, false, 0);
    builder_transfer(&p.b, 1, MOTET_WAIT, MOTET_FLAG_RECV, EDGE, m, false, 0);
  }
  for (int32_t m = 0; m < 2; m++) builder_transfer(&p.b, 0, MOTET_WAIT, 0, EDGE, m, false, 1);
  for (int32_t m = 0; m < 2; m++) builder_compute(&p.b, 1, MOTET_FWD, LLM, m);
  for (int32_t m = 0; m < 2; m++) builder_compute(&p.b, 1, MOTET_BWD, LLM, m);
  for (int32_t m = 0; m < 2; m++) {
    builder_transfer(&p.b, 1, MOTET_SEND, 0, EDGE, m, true, 0);
    builder_transfer(&p.b, 0, MOTET_RECV, 0, EDGE, m, true, 1);
  }
  for (int32_t m = 0; m < 2; m++) {
    builder_transfer(&p.b, 1, MOTET_WAIT, 0, EDGE, m, true, 0);
    builder_transfer(&p.b, 0, MOTET_WAIT, MOTET_FLAG_RECV, EDGE, m, true, 1);
    builder_compute(&p.b, 0, MOTET_BWD, VISION, m);
  }
  builder_end(&p.b);
  motet_program *program = builder_program(&p.b);
  motet_error error;
  motet_verification verification;
  /* One after the other: the second forward, 1000 + 2 x 100 and one input of 10; the first backward as much. */
  assert_int_equal(motet_verify(program, NULL, &error, &verification), MOTET_OK);
  assert_int_equal(verification.memory[1].peak_bytes, 1210);
  assert_int_equal(verification.memory[1].peak_instruction, 5);
  motet_verification_free(&verification);
  /* At once: both inputs with both saved, from the first one's begin; likewise both gradients. */
  at(program, 1, 4)->flags = at(program, 1, 6)->flags = MOTET_FLAG_JOINED;
  program->memory_cap = 1220;
  assert_int_equal(motet_verify(program, NULL, &error, &verification), MOTET_OK);
  assert_int_equal(verification.memory[1].peak_bytes, 1220);
  assert_int_equal(verification.memory[1].peak_instruction, 4);
  assert_true(verification.memory[1].peak_activations == 2);
  motet_verification_free(&verification);
  program->static_bytes[VISION] = 0; /* the other rank has less */
  program->memory_cap = 1219;
  assert_refused(program, "memory", 1, 4, 0, "1220 bytes at FWD of stage 1, microbatch 0, joined");
  program_free(program);
  builder_free(&p.b);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_joined_runs),
      cmocka_unit_test(test_joined_to_nothing_or_parts),
      cmocka_unit_test(test_joined_for_the_next_step),
      cmocka_unit_test(test_joined_run_waits_for_itself),
      cmocka_unit_test(test_joined_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
