/* The verifier on hand-made programs: each rule broken in one place, the place named. */
#include "../verify_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void forward_half(pipeline *p) {
  builder_compute(&p->b, 0, MOTET_FWD, VISION, FIRST);
  builder_transfer(&p->b, 0, MOTET_SEND, 0, EDGE, FIRST, false, 1);
  builder_transfer(&p->b, 1, MOTET_RECV, 0, EDGE, FIRST, false, 0);
  builder_transfer(&p->b, 1, MOTET_WAIT, MOTET_FLAG_RECV, EDGE, FIRST, false, 0);
  builder_compute(&p->b, 1, MOTET_FWD, LLM, FIRST);
}

static void backward_half(pipeline *p) {
  builder_compute(&p->b, 1, MOTET_BWD, LLM, FIRST);
  builder_transfer(&p->b, 1, MOTET_SEND, 0, EDGE, FIRST, true, 0);
  builder_transfer(&p->b, 1, MOTET_WAIT, 0, EDGE, FIRST, true, 0);
  builder_transfer(&p->b, 0, MOTET_WAIT, 0, EDGE, FIRST, false, 1);
  builder_transfer(&p->b, 0, MOTET_RECV, 0, EDGE, FIRST, true, 1);
  builder_transfer(&p->b, 0, MOTET_WAIT, MOTET_FLAG_RECV, EDGE, FIRST, true, 1);
  builder_compute(&p->b, 0, MOTET_BWD, VISION, FIRST);
}

/* rank 0: 0 FWD, 1 SEND, 2 WAIT send, 3 RECV gradient, 4 WAIT, 5 BWD, 6 OPTIM, 7 STEP_END
 * rank 1: 0 RECV, 1 WAIT, 2 FWD, 3 BWD, 4 SEND gradient, 5 WAIT send, 6 OPTIM, 7 STEP_END */
static motet_program *whole_pipeline(void) {
  pipeline p;
  start_pipeline(&p, true, true);
  forward_half(&p);
  backward_half(&p);
  builder_end(&p.b);
  motet_program *program = builder_program(&p.b);
  builder_free(&p.b);
  return program;
}

static void test_accepts_and_measures(void **state) {
  (void)state;
  motet_program *program = whole_pipeline();
  motet_error error;
  motet_verification verification;
  assert_int_equal(motet_verify(program, NULL, &error, &verification), MOTET_OK);
  /* Rank 0: weights 1000, saved 100; the most with the output 10 and, since its WAIT has passed, the gradient 10.
   */
  assert_int_equal(verification.memory[0].peak_bytes, 1110);
  assert_int_equal(verification.memory[0].peak_instruction, 0);
  /* Rank 1: 1000 + 100 + the received 10 while its forward runs. */
  assert_int_equal(verification.memory[1].peak_bytes, 1110);
  assert_int_equal(verification.memory[1].peak_instruction, 2);
  assert_true(verification.memory[0].peak_activations == 1);
  assert_int_equal(verification.memory[0].peak_features, 0);
  assert_int_equal(verification.cycle_count, 0);
  motet_verification_free(&verification);
  program_free(program);
}

/* One field of the right program changed at a time. */
static void test_places_of_refusals(void **state) {
  (void)state;
  motet_program *p = whole_pipeline();

  at(p, 0, 0)->kind = MOTET_RECOMPUTE; /* FWD gone */
  assert_refused(p, "completeness", 0, -1, 0, "no FWD for microbatch 0");
  at(p, 0, 0)->kind = MOTET_FWD;

  at(p, 0, 5)->kind = MOTET_BWD_X;
  assert_refused(p, "completeness", 0, -1, 0, "no BWD_W");
  at(p, 0, 5)->kind = MOTET_BWD;

  at(p, 1, 3)->kind = MOTET_FWD;
  assert_refused(p, "completeness", 1, 3, 0, "must run once");
  at(p, 1, 3)->kind = MOTET_BWD;

  at(p, 0, 5)->stage = LLM;
  assert_refused(p, "completeness", 0, 5, 0, "does not hold it");
  at(p, 0, 5)->stage = VISION;

  p->microbatches[0].present = 1; /* only vision has data */
  assert_refused(p, "completeness", 1, 2, 0, "no data");
  p->microbatches[0].present = 3;

  at(p, 0, 5)->microbatch = 5;
  assert_refused(p, "data_flow", 0, 5, -1, "microbatch does not exist");
  at(p, 0, 5)->microbatch = 0;

  at(p, 1, 1)->flags = 0; /* the WAIT is for a send that is none of this rank's */
  assert_refused(p, "data_flow", 1, 2, 0, "RECV from rank 0");
  at(p, 1, 1)->flags = MOTET_FLAG_RECV;

  at(p, 0, 1)->peer = 0;
  assert_refused(p, "channels", 0, 1, 0, "itself");
  at(p, 0, 1)->peer = 1;

  p->buffers[0].bytes--;
  assert_refused(p, "channels", 0, 1, 0, "9 bytes: the output of stage 0");
  p->buffers[0].bytes++;

  at(p, 1, 6)->kind = MOTET_STEP_END; /* OPTIM gone, two ends */
  at(p, 1, 6)->peer = 0;
  assert_refused(p, "collectives", 1, 7, -1, "has only 1");
  at(p, 1, 6)->kind = MOTET_OPTIM;

  at(p, 0, 5)->flags = MOTET_FLAG_NEXT;
  assert_refused(p, "data_flow", 0, 5, -1, "flag that its kind does not know");
  at(p, 0, 5)->flags = 0;

  p->memory_cap = 1109;
  assert_refused(p, "memory", 0, 0, 0, "1 more than the cap of 1109");
  p->memory_cap = 1110;
  assert_accepted(p);
  program_free(p);
}

static void exchange(motet_program *p, int32_t rank, int64_t a, int64_t b) {
  motet_instruction first = *at(p, rank, a);
  *at(p, rank, a) = *at(p, rank, b);
  *at(p, rank, b) = first;
}

static void test_orders_on_one_rank(void **state) {
  (void)state;
  static const struct {
    int32_t rank;
    int64_t a, b;
    const char *rule;
    long long instruction;
    int microbatch;
    const char *words;
  } cases[] = {
      {0, 0, 1, "data_flow", 0, 0, "its FWD must stand before"},           /* SEND before FWD */
      {1, 1, 2, "data_flow", 1, 0, "WAIT for it must stand before"},       /* FWD before its WAIT */
      {1, 2, 3, "data_flow", 2, 0, "do not exist yet"},                    /* BWD before FWD */
      {1, 3, 4, "data_flow", 3, 0, "its backward must stand before"},      /* gradient before it is made */
      {0, 3, 4, "data_flow", 5, 0, "reads the gradient"},                  /* WAIT before RECV, passed over */
      {0, 5, 6, "gradients", 5, -1, "OPTIM stands ahead of the backward"}, /* OPTIM before BWD */
      {0, 6, 7, "gradients", 7, -1, "STEP_END must be the rank's last"},   /* OPTIM behind the end */
      {1, 4, 5, "channels", 4, 0, "not posted before it"},                 /* WAIT before its SEND */
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    motet_program *p = whole_pipeline();
    exchange(p, cases[i].rank, cases[i].a, cases[i].b);
    if (strcmp(cases[i].rule, "data_flow") != 0 || i != 4) {
      assert_refused(p, cases[i].rule, cases[i].rank, cases[i].instruction, cases[i].microbatch, cases[i].words);
    } else {
      /* The lower rule wins: the WAIT without a post is a channel's matter, the missing gradient data flow. */
      assert_refused(p, "data_flow", 0, 5, 0, cases[i].words);
    }
    program_free(p);
  }
}

/* A third rank, idle in the schedule, sends and waits in the producer's place. */
static void test_sends_from_another_rank(void **state) {
  (void)state;
  program_builder b;
  builder_start(&b, 3, 1);
  builder_module(&b, "llm", 2, false);
  int32_t region = builder_region(&b, "llm", false);
  for (int32_t rank = 0; rank < 2; rank++)
    builder_stage(&b, region, rank, rank, rank + 1, builder_group(&b, 1, &rank));
  builder_edge(&b, 0, 1);
  builder_microbatch(&b, 0, 1, 0);
  builder_compute(&b, 0, MOTET_FWD, 0, 0);
  builder_transfer(&b, 2, MOTET_SEND, 0, 0, 0, false, 1);
  builder_transfer(&b, 2, MOTET_WAIT, 0, 0, 0, false, 1);
  builder_transfer(&b, 1, MOTET_RECV, 0, 0, 0, false, 0);
  builder_transfer(&b, 1, MOTET_WAIT, MOTET_FLAG_RECV, 0, 0, false, 0);
  builder_compute(&b, 1, MOTET_FWD, 1, 0);
  builder_end(&b);
  motet_program *p = builder_program(&b);
  assert_refused(p, "data_flow", 2, 0, 0, "must be sent by rank 0");
  program_free(p);
  builder_free(&b);
}

/* ---- Gates ---- */

static void test_gates_ask_for_the_backward(void **state) {
  (void)state;
  pipeline p;
  /* Nothing trains: forward only. */
  start_pipeline(&p, false, false);
  forward_half(&p);
  builder_transfer(&p.b, 0, MOTET_WAIT, 0, EDGE, FIRST, false, 1);
  builder_end(&p.b);
  motet_program *program = builder_program(&p.b);
  assert_accepted(program);
  program_free(program);
  builder_free(&p.b);
  /* A frozen encoder: no gradient goes back. */
  start_pipeline(&p, false, true);
  forward_half(&p);
  builder_compute(&p.b, 1, MOTET_BWD, LLM, FIRST);
  builder_transfer(&p.b, 0, MOTET_WAIT, 0, EDGE, FIRST, false, 1);
  builder_end(&p.b);
  program = builder_program(&p.b);
  assert_accepted(program);
  program_free(program);
  builder_free(&p.b);
  start_pipeline(&p, false, true);
  forward_half(&p);
  backward_half(&p);
  builder_end(&p.b);
  program = builder_program(&p.b);
  assert_refused(program, "completeness", 0, 5, 0, "nothing at or before it trains");
  at(program, 0, 5)->kind = MOTET_OPTIM; /* BWD of the frozen stage gone: the transfer alone is not needed either */
  at(program, 0, 6)->kind = MOTET_OPTIM;
  assert_refused(program, "data_flow", 0, 3, 0, "nobody needs it");
  program_free(program);
  builder_free(&p.b);
  /* A frozen trunk over a trainable encoder: input gradients alone. */
  start_pipeline(&p, true, false);
  forward_half(&p);
  backward_half(&p);
  builder_end(&p.b);
  program = builder_program(&p.b);
  assert_refused(program, "completeness", 1, 3, 0, "must be one BWD_X");
  at(program, 1, 3)->kind = MOTET_BWD_X;
  assert_accepted(program);
  program_free(program);
  builder_free(&p.b);
}

/* ---- Statement ---- */

static void test_statement_and_placement(void **state) {
  (void)state;
  motet_program *p = whole_pipeline();
  p->stages[1].layer_begin = 3;
  assert_refused(p, "completeness", -1, -1, -1, "layer 2 is in no stage");
  p->stages[1].layer_begin = 1;
  assert_refused(p, "completeness", -1, -1, -1, "layer 1 is in stage 0 already");
  p->stages[1].layer_begin = 2;
  p->module_edges[0].from = 1;
  assert_refused(p, "data_flow", -1, -1, -1, "module_edges[0]");
  p->module_edges[0].from = 0;
  p->module_edge_count = 0;
  assert_refused(p, "completeness", -1, -1, -1, "no module edge or layer order asks for that");
  p->module_edge_count = 1;
  p->edge_count = 0;
  p->buffer_count = 0;
  int64_t begin[] = {0, 0, 0}, *lists = p->rank_begin;
  p->rank_begin = begin; /* empty lists: nothing names an edge */
  assert_refused(p, "completeness", -1, -1, -1, "needs the output of stage 0");
  p->rank_begin = lists;
  p->edge_count = 1;
  p->buffer_count = 2;
  p->group_rank_count--;
  assert_refused(p, "data_flow", -1, -1, -1, "group_ranks has 3 entries");
  p->group_rank_count++;
  p->group_ranks[1] = 0;
  assert_refused(p, "collectives", -1, -1, -1, "ascend, each once");
  p->group_ranks[1] = 1;
  p->rank_begin[1] = 100;
  motet_error error;
  assert_int_equal(motet_verify(p, NULL, &error, NULL), MOTET_ERROR_ARGUMENT);
  p->rank_begin[1] = 8;
  assert_accepted(p);
  assert_int_equal(motet_verify(NULL, NULL, &error, NULL), MOTET_ERROR_ARGUMENT);
  motet_program nothing = {0};
  assert_int_equal(motet_verify(&nothing, NULL, &error, NULL), MOTET_ERROR_ARGUMENT);
  program_free(p);
}

/* ---- Offload, fetch, recompute on one rank ---- */

static motet_status verify_one_rank(const char *letters, motet_error *error) {
  program_builder b;
  builder_start(&b, 1, 1);
  builder_module(&b, "llm", 1, true);
  builder_stage(&b, builder_region(&b, "llm", false), 0, 0, 1, 0);
  b.stages.data[0].inputs = MOTET_INPUT_TOKENS;
  builder_microbatch(&b, 0, 1, 0);
  for (const char *c = letters; *c != 0; c++) builder_compute(&b, 0, kind_of(*c), 0, 0);
  builder_end(&b);
  motet_program *program = builder_program(&b);
  motet_status status = motet_verify(program, NULL, error, NULL);
  program_free(program);
  builder_free(&b);
  return status;
}

static void test_saved_activations(void **state) {
  (void)state;
  static const struct {
    const char *letters;
    const char *words; /* NULL: accepted */
  } cases[] = {
      {"LFB", NULL},
      {"LFXW", NULL},
      {"LFOHB", NULL},
      {"LFRB", NULL},
      {"LFOHXW", NULL},
      {"LFXOHW", NULL},
      {"FB", "its LOAD must stand before"},
      {"FLB", "its LOAD must stand before"},
      {"LLFB", "must stand once"},
      {"LFWX", "its BWD_X must stand before"},
      {"LFOB", "on the host"},
      {"LFHB", "must follow its OFFLOAD"},
      {"LFOOHB", "on the host"},
      {"LFBO", "are freed"},
      {"LRFB", "between its FWD and its backward"},
      {"LFBR", "were dropped"},
      {"LFRRB", "at most"},
      {"LFX", "no BWD_W"},
      {"LFW", "BWD_X before its BWD_W"},
      {"LFBW", "one too many"},
      {"LF", "no BWD for microbatch 0"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    motet_error error;
    motet_status status = verify_one_rank(cases[i].letters, &error);
    if ((status == MOTET_OK) != (cases[i].words == NULL)) fail_msg("%s: %s", cases[i].letters, error.text);
    if (cases[i].words != NULL && strstr(error.text, cases[i].words) == NULL)
      fail_msg("%s: %s", cases[i].letters, error.text);
  }
}

/* ---- Channels: two microbatches ---- */

static void test_channels_keep_their_order(void **state) {
  (void)state;
  for (int crossed = 0; crossed < 2; crossed++) {
    pipeline p;
    start_pipeline(&p, false, true);
    builder_microbatch(&p.b, 0, 3, 0);
    for (int32_t m = 0; m < 2; m++) {
      builder_compute(&p.b, 0, MOTET_FWD, VISION, m);
      builder_transfer(&p.b, 0, MOTET_SEND, 0, EDGE, m, false, 1);
      builder_transfer(&p.b, 1, MOTET_RECV, 0, EDGE, crossed ? 1 - m : m, false, 0);
    }
    for (int32_t m = 0; m < 2; m++) {
      builder_transfer(&p.b, 0, MOTET_WAIT, 0, EDGE, m, false, 1);
      builder_transfer(&p.b, 1, MOTET_WAIT, MOTET_FLAG_RECV, EDGE, m, false, 0);
      builder_compute(&p.b, 1, MOTET_FWD, LLM, m);
      builder_compute(&p.b, 1, MOTET_BWD, LLM, m);
    }
    builder_end(&p.b);
    motet_program *program = builder_program(&p.b);
    if (crossed) {
      assert_refused(program, "channels", 0, 1, 0, "number 0 sent and number 1 received");
    } else {
      assert_accepted(program);
      at(program, 0, 4)->kind = MOTET_OPTIM; /* a WAIT gone */
      at(program, 0, 6)->kind = MOTET_WAIT;
      *at(program, 0, 6) = *at(program, 0, 5);
      *at(program, 0, 5) = *at(program, 0, 4);
      assert_refused(program, "channels", 0, 1, 0, "has no WAIT");
    }
    program_free(program);
    builder_free(&p.b);
  }
}

/* ---- Reduces: two replicas of one rank, one stage ---- */

static motet_program *replicas(program_builder *b) {
  builder_start(b, 2, 2);
  builder_module(b, "llm", 1, true);
  builder_stage(b, builder_region(b, "llm", false), 0, 0, 1, 0);
  for (int32_t rank = 0; rank < 2; rank++) {
    builder_microbatch(b, rank, 1, 0);
    builder_compute(b, rank, MOTET_FWD, 0, rank);
    builder_compute(b, rank, MOTET_BWD, 0, rank);
    builder_reduce(b, rank, 0, -1, 0);
  }
  builder_end(b);
  return builder_program(b);
}

static void test_reduces(void **state) {
  (void)state;
  program_builder b;
  motet_program *p = replicas(&b); /* each rank: FWD, BWD, ALL_REDUCE, OPTIM, STEP_END */
  assert_accepted(p);
  exchange(p, 0, 1, 2);
  assert_refused(p, "gradients", 0, 1, -1, "reduced ahead of its backward");
  exchange(p, 0, 1, 2);
  exchange(p, 1, 2, 3);
  assert_refused(p, "gradients", 1, 2, -1, "OPTIM stands ahead of the reduce");
  exchange(p, 1, 2, 3);
  at(p, 1, 2)->kind = MOTET_REDUCE_SCATTER;
  assert_refused(p, "collectives", 1, 2, -1, "in one order");
  at(p, 0, 2)->kind = MOTET_REDUCE_SCATTER;
  assert_refused(p, "gradients", 0, 2, -1, "ALL_GATHER of its weights must follow OPTIM");
  at(p, 0, 2)->kind = at(p, 1, 2)->kind = MOTET_REDUCE;
  assert_refused(p, "gradients", 0, 2, -1, "must be ALL_REDUCE");
  at(p, 0, 2)->kind = at(p, 1, 2)->kind = MOTET_ALL_REDUCE;
  at(p, 1, 2)->kind = MOTET_OPTIM; /* rank 1 takes no part */
  at(p, 1, 3)->kind = MOTET_OPTIM;
  assert_refused(p, "collectives", 1, 4, -1, "ALL_REDUCE of buffer 0 on rank 0");
  at(p, 1, 2)->kind = MOTET_ALL_REDUCE;
  at(p, 0, 2)->kind = at(p, 1, 2)->kind = MOTET_OPTIM; /* nobody reduces */
  at(p, 0, 3)->kind = at(p, 1, 3)->kind = MOTET_OPTIM;
  assert_refused(p, "gradients", 0, 3, -1, "OPTIM a second time");
  program_free(p);
  builder_free(&b);
}

/* ---- Next step's encodes ---- */

static void test_running_ahead(void **state) {
  (void)state;
  program_builder b;
  start_ahead(&b, 1);
  builder_compute(&b, 0, MOTET_FWD, 1, 0);
  builder_compute(&b, 0, MOTET_BWD, 1, 0);
  builder_compute_next(&b, 0, MOTET_FWD, 0, 0);
  builder_end(&b);
  motet_program *p = builder_program(&b);
  assert_accepted(p);
  at(p, 0, 2)->flags = 0;
  assert_refused(p, "completeness", 0, 2, 0, "the step before left it");
  at(p, 0, 2)->flags = MOTET_FLAG_NEXT;
  p->carried_count = 0;
  assert_refused(p, "completeness", 0, -1, 0, "no FWD");
  p->carried_count = 1;
  p->layer_trainable[0] = 1;
  assert_refused(p, "completeness", -1, -1, -1, "only a frozen stage's output may come from the step before");
  program_free(p);
  builder_free(&b);
}

/* ---- Golden orders: peaks of held activations (tests/data/schedules/golden.csv, p 4, m 8) ---- */

static void test_golden_peaks(void **state) {
  (void)state;
  static const struct {
    const char *name;
    double peak;
  } rows[] = {{"1f1b", 4}, {"vpp2", 5.5}, {"vpp4", 4.75}, {"1f1bv", 3}, {"zb1p", 4},
              {"zb2p", 8}, {"zbv", 4},    {"vhalf", 3},   {"vmin", 2}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    char path[512];
    snprintf(path, sizeof path, "%s/schedules/%s_p4_m8.csv", MOTET_TEST_DATA, rows[i].name);
    motet_program *program;
    motet_error error;
    motet_verification verification;
    assert_int_equal(motet_program_read_pytorch_csv(path, MOTET_PLACEMENT_AUTO, &error, &program), MOTET_OK);
    assert_int_equal(motet_verify(program, NULL, &error, &verification), MOTET_OK);
    double peak = 0;
    for (int32_t rank = 0; rank < program->ranks; rank++) {
      if (verification.memory[rank].peak_activations > peak) peak = verification.memory[rank].peak_activations;
    }
    assert_true(peak == rows[i].peak);
    motet_verification_free(&verification);
    motet_program_destroy(program);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_accepts_and_measures),
      cmocka_unit_test(test_places_of_refusals),
      cmocka_unit_test(test_orders_on_one_rank),
      cmocka_unit_test(test_sends_from_another_rank),
      cmocka_unit_test(test_gates_ask_for_the_backward),
      cmocka_unit_test(test_statement_and_placement),
      cmocka_unit_test(test_saved_activations),
      cmocka_unit_test(test_channels_keep_their_order),
      cmocka_unit_test(test_reduces),
      cmocka_unit_test(test_running_ahead),
      cmocka_unit_test(test_golden_peaks),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
