/* Lists written out by hand, and orders that are refused. */
#include "../program_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

/* A rank's list, one instruction a line; transfers and collectives with what they move and with whom. */
static char *list_text(mt_arena *arena, const motet_program *program, int32_t rank) {
  static const char *const kinds[] = {"activation", "gradient", "weights", "tie", "parameters"};
  char *text = mt_arena_text(arena, "");
  for (int64_t i = program->rank_begin[rank]; i < program->rank_begin[rank + 1]; i++) {
    const motet_instruction *at = &program->instructions[i];
    text = mt_arena_format(arena, "%s%s", text, motet_instruction_name(at->kind));
    if (at->buffer >= 0)
      text = mt_arena_format(arena, "%s%s %s", text,
                             at->kind != MOTET_WAIT               ? ""
                             : (at->flags & MOTET_FLAG_RECV) != 0 ? " recv"
                                                                  : " send",
                             kinds[program->buffers[at->buffer].kind]);
    text = mt_arena_format(arena, "%s %d.%d", text, at->stage, at->microbatch);
    if (at->peer >= 0) text = mt_arena_format(arena, "%s @%d", text, at->peer);
    text = mt_arena_format(arena, "%s\n", text);
  }
  return text;
}

static mt_event event(int kind, int32_t stage, int32_t microbatch) {
  return (mt_event){.kind = (uint8_t)kind, .stage = stage, .microbatch = microbatch};
}

#define F(stage, microbatch) event(MOTET_FWD, stage, microbatch)
#define B(stage, microbatch) event(MOTET_BWD, stage, microbatch)

static motet_program *lower(const mt_derivation *derivation, const mt_order *order, int32_t count) {
  mt_replica replicas[4];
  for (int32_t k = 0; k < count; k++) replicas[k] = (mt_replica){.derivation = derivation, .order = order};
  motet_error error;
  motet_program *program;
  if (mt_program_lower(replicas, count, &error, &program) != MOTET_OK) fail_msg("%s", error.text);
  return program;
}

/* 1F1B on two ranks, two replicas. Rank 0 waits for a send where an answer has come; rank 1 gets none after its
 * last gradient. Its microbatch-0 gradient is answered by the activation of microbatch 2. */
static void test_one_f_one_b(void **state) {
  (void)state;
  mt_arena *arena = mt_arena_create();
  const fixture_options options = {.ranks = 2, .microbatches = 3, .chunks = 1, .train_trunk = true};
  mt_derivation *derivation = fixture_derive(arena, &options);
  mt_event events[] = {F(0, 0), F(0, 1), B(0, 0), F(0, 2), B(0, 1), B(0, 2),
                       F(1, 0), B(1, 0), F(1, 1), B(1, 1), F(1, 2), B(1, 2)};
  int64_t begin[] = {0, 6, 12};
  const mt_order order = {.begin = begin, .events = events};
  motet_program *program = lower(derivation, &order, 2);
  assert_int_equal(program->ranks, 4);
  /* Groups: all; pipeline rank 0 in both replicas; pipeline rank 1 in both. */
  assert_int_equal(program->group_count, 3);
  const int32_t ranks[] = {0, 1, 2, 3, 0, 2, 1, 3};
  assert_memory_equal(program->group_ranks, ranks, sizeof ranks);
  assert_string_equal(list_text(arena, program, 0),
                      "LOAD 0.0\nFWD 0.0\nSEND activation 0.0 @1\n"
                      "RECV gradient 0.0 @1\n"
                      "LOAD 0.1\nFWD 0.1\nSEND activation 0.1 @1\n"
                      "WAIT recv gradient 0.0 @1\nWAIT send activation 0.0 @1\nBWD 0.0\n"
                      "RECV gradient 0.1 @1\n"
                      "LOAD 0.2\nFWD 0.2\nSEND activation 0.2 @1\n"
                      "RECV gradient 0.2 @1\n"
                      "WAIT recv gradient 0.1 @1\nWAIT send activation 0.1 @1\nBWD 0.1\n"
                      "WAIT recv gradient 0.2 @1\nWAIT send activation 0.2 @1\nBWD 0.2\n"
                      "ALL_REDUCE weights 0.-1 @1\nOPTIM -1.-1\nSTEP_END -1.-1 @0\n");
  assert_string_equal(list_text(arena, program, 3),
                      "RECV activation 0.3 @2\nWAIT recv activation 0.3 @2\nFWD 1.3\n"
                      "RECV activation 0.4 @2\nBWD 1.3\nSEND gradient 0.3 @2\n"
                      "WAIT recv activation 0.4 @2\nFWD 1.4\n"
                      "RECV activation 0.5 @2\nBWD 1.4\nSEND gradient 0.4 @2\n"
                      "WAIT recv activation 0.5 @2\nWAIT send gradient 0.3 @2\nFWD 1.5\n"
                      "BWD 1.5\nSEND gradient 0.5 @2\n"
                      "WAIT send gradient 0.4 @2\nWAIT send gradient 0.5 @2\n"
                      "ALL_REDUCE weights 1.-1 @2\nOPTIM -1.-1\nSTEP_END -1.-1 @0\n");
  motet_program_destroy(program);
  mt_arena_destroy(arena);
}

/* With times: the receiver's event behind the consumer of the activation of microbatch 0 begins at 2, when rank 0's
 * FWD of microbatch 2 does, which is earlier than the answer (the backward at 5). */
static void test_waits_by_the_timeline(void **state) {
  (void)state;
  mt_arena *arena = mt_arena_create();
  const fixture_options options = {.ranks = 2, .microbatches = 3, .chunks = 1, .train_trunk = true};
  mt_derivation *derivation = fixture_derive(arena, &options);
  mt_event events[] = {F(0, 0), F(0, 1), F(0, 2), B(0, 0), B(0, 1), B(0, 2),
                       F(1, 0), F(1, 1), F(1, 2), B(1, 0), B(1, 1), B(1, 2)};
  double start[] = {0, 1, 2, 6, 8, 10, 1, 2, 3, 4, 6, 8};
  int64_t begin[] = {0, 6, 12};
  const mt_order order = {.begin = begin, .events = events, .start = start};
  motet_program *program = lower(derivation, &order, 1);
  assert_string_equal(
      list_text(arena, program, 0),
      "LOAD 0.0\nFWD 0.0\nSEND activation 0.0 @1\n"
      "LOAD 0.1\nFWD 0.1\nSEND activation 0.1 @1\n"
      "RECV gradient 0.0 @1\n"
      "LOAD 0.2\nWAIT send activation 0.0 @1\nFWD 0.2\nSEND activation 0.2 @1\n"
      "RECV gradient 0.1 @1\n"
      "WAIT recv gradient 0.0 @1\nWAIT send activation 0.1 @1\nWAIT send activation 0.2 @1\nBWD 0.0\n"
      "RECV gradient 0.2 @1\n"
      "WAIT recv gradient 0.1 @1\nBWD 0.1\n"
      "WAIT recv gradient 0.2 @1\nBWD 0.2\nOPTIM -1.-1\nSTEP_END -1.-1 @0\n");
  motet_program_destroy(program);
  mt_arena_destroy(arena);
}

/* Encoder on its owners, prefix: slab 0 on rank 0 waits for both features; all ranks reduce the encoder. */
static void test_prefix(void **state) {
  (void)state;
  mt_arena *arena = mt_arena_create();
  const fixture_options options = {.ranks = 2,
                                   .microbatches = 3,
                                   .chunks = 1,
                                   .encoder = true,
                                   .train_encoder = true,
                                   .present = (const uint64_t[]){3, 3, 2}}; /* the last is text alone */
  mt_derivation *derivation = fixture_derive(arena, &options);
  mt_event events[] = {F(0, 0),
                       F(1, 0),
                       F(1, 1),
                       F(1, 2),
                       event(MOTET_BWD_X, 1, 0),
                       event(MOTET_BWD_X, 1, 1),
                       event(MOTET_BWD_X, 1, 2),
                       B(0, 0),
                       F(0, 1),
                       F(2, 0),
                       F(2, 1),
                       F(2, 2),
                       event(MOTET_BWD_X, 2, 0),
                       event(MOTET_BWD_X, 2, 1),
                       event(MOTET_BWD_X, 2, 2),
                       B(0, 1)};
  int64_t begin[] = {0, 8, 16};
  const mt_order order = {.begin = begin, .events = events, .barrier = true};
  motet_program *program = lower(derivation, &order, 1);
  assert_string_equal(list_text(arena, program, 0),
                      "RECV activation 0.1 @1\nLOAD 0.0\nFWD 0.0\n"
                      "LOAD 1.0\nWAIT recv activation 0.1 @1\nFWD 1.0\nSEND activation 1.0 @1\n"
                      "LOAD 1.1\nFWD 1.1\nSEND activation 1.1 @1\n"
                      "RECV gradient 1.0 @1\n"
                      "LOAD 1.2\nFWD 1.2\nSEND activation 1.2 @1\n"
                      "RECV gradient 1.1 @1\n"
                      "WAIT recv gradient 1.0 @1\nWAIT send activation 1.0 @1\nWAIT send activation 1.1 @1\nWAIT "
                      "send activation 1.2 @1\nBWD_X 1.0\n"
                      "RECV gradient 1.2 @1\n"
                      "WAIT recv gradient 1.1 @1\nBWD_X 1.1\nSEND gradient 0.1 @1\n"
                      "WAIT recv gradient 1.2 @1\nBWD_X 1.2\n"
                      "BWD 0.0\nWAIT send gradient 0.1 @1\n"
                      "ALL_REDUCE weights 0.-1 @0\nOPTIM -1.-1\nSTEP_END -1.-1 @0\n");
  motet_program_destroy(program);
  mt_arena_destroy(arena);
}

/* Embedding and head on different ranks share a weight; one replica has nothing else to reduce. */
static void test_tied_weight(void **state) {
  (void)state;
  mt_arena *arena = mt_arena_create();
  mt_random random = mt_random_stream(1, "tie");
  for (int32_t ranks = 1; ranks <= 3; ranks++)
    for (int32_t replicas = 1; replicas <= 2; replicas++) {
      const fixture_options options = {.ranks = ranks, .microbatches = 1, .chunks = 2, .train_trunk = true};
      mt_derivation *derivation = fixture_derive(arena, &options);
      ((mt_model *)(uintptr_t)derivation->model)->tied_embeddings = true;
      double *seconds;
      mt_order *order = fixture_random_order(arena, derivation, false, true, &random, &seconds);
      motet_program *program = lower(derivation, order, replicas);
      assert_int_equal(program->tie_count, 1);
      assert_int_equal(program->ties[0].first_stage, 0);
      assert_int_equal(program->ties[0].second_stage, 2 * ranks - 1);
      int64_t found = 0;
      for (int64_t i = 0; i < program->rank_begin[program->ranks]; i++) {
        const motet_instruction *at = &program->instructions[i];
        if (at->kind != MOTET_ALL_REDUCE || program->buffers[at->buffer].kind != MOTET_BUFFER_TIED_GRADIENT)
          continue;
        assert_int_equal(program->groups[at->peer].count, (ranks == 1 ? 1 : 2) * replicas);
        found++;
      }
      assert_int_equal(found, ranks == 1 && replicas == 1 ? 0 : (ranks == 1 ? 1 : 2) * replicas);
      motet_program_destroy(program);
    }
  mt_arena_destroy(arena);
}

static void test_refused_orders(void **state) {
  (void)state;
  mt_arena *arena = mt_arena_create();
  const fixture_options options = {.ranks = 2, .microbatches = 1, .chunks = 1, .train_trunk = true};
  mt_derivation *derivation = fixture_derive(arena, &options);
  const struct {
    mt_event events[5];
    int64_t begin[3];
    motet_status status;
    int rank, instruction;
    const char *words;
  } cases[] = {
      {{F(0, 0), B(0, 0), B(1, 0)},
       {0, 2, 3},
       MOTET_ERROR_ILLEGAL,
       -1,
       -1,
       "no rank's order has the forward of stage 1"},
      {{F(0, 0), F(1, 0), B(1, 0)},
       {0, 1, 3},
       MOTET_ERROR_ILLEGAL,
       -1,
       -1,
       "no rank's order has the backward of stage 0"},
      {{F(0, 0), F(0, 0), B(0, 0), F(1, 0), B(1, 0)}, {0, 3, 5}, MOTET_ERROR_ILLEGAL, 0, 1, "a second time"},
      {{F(0, 0), B(0, 0), F(1, 0), B(1, 0)}, {0, 3, 4}, MOTET_ERROR_ILLEGAL, 0, 2, "another rank computes"},
      {{B(0, 0), F(0, 0), F(1, 0), B(1, 0)},
       {0, 2, 4},
       MOTET_ERROR_ILLEGAL,
       0,
       0,
       "rank 0 stands before BWD of stage 0"},
      {{F(0, 0), B(0, 0), F(2, 0), B(1, 0)}, {0, 2, 4}, MOTET_ERROR_ARGUMENT, 1, 0, "stage 2"},
      {{F(0, 0), B(0, 0), F(1, 1), B(1, 0)}, {0, 2, 4}, MOTET_ERROR_ARGUMENT, 1, 0, "microbatch 1"},
      {{F(0, 0), B(0, 0), event(MOTET_SEND, 1, 0), B(1, 0)},
       {0, 2, 4},
       MOTET_ERROR_ARGUMENT,
       1,
       0,
       "not a compute"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    const mt_order order = {.begin = (int64_t *)(uintptr_t)cases[i].begin,
                            .events = (mt_event *)(uintptr_t)cases[i].events};
    const mt_replica replica = {.derivation = derivation, .order = &order};
    motet_error error;
    motet_program *program;
    motet_status status = mt_program_lower(&replica, 1, &error, &program);
    if (status != cases[i].status || error.rank != cases[i].rank || error.instruction != cases[i].instruction ||
        strstr(error.text, cases[i].words) == NULL)
      fail_msg("case %zu: status %d, rank %d, instruction %lld: %s", i, status, error.rank, error.instruction,
               error.text);
    assert_null(program);
  }
  /* On one rank, the consumer before the producer. */
  const fixture_options single = {.ranks = 1, .microbatches = 1, .chunks = 2};
  derivation = fixture_derive(arena, &single);
  mt_event reversed[] = {F(1, 0), F(0, 0)};
  int64_t begin[] = {0, 2};
  const mt_order order = {.begin = begin, .events = reversed};
  const mt_replica replica = {.derivation = derivation, .order = &order};
  motet_error error;
  motet_program *program;
  assert_int_equal(mt_program_lower(&replica, 1, &error, &program), MOTET_ERROR_ILLEGAL);
  assert_non_null(strstr(error.text, "whose result"));
  mt_arena_destroy(arena);
}

static void test_replicas_must_agree(void **state) {
  (void)state;
  mt_arena *arena = mt_arena_create();
  mt_random random = mt_random_stream(1, "agree");
  fixture_options options = {.ranks = 2, .microbatches = 2, .chunks = 1, .train_trunk = true};
  mt_replica replicas[2];
  double *seconds;
  motet_error error;
  motet_program *program;
  for (int k = 0; k < 2; k++) {
    replicas[k] = (mt_replica){.derivation = fixture_derive(arena, &options)};
    replicas[k].order = fixture_random_order(arena, replicas[k].derivation, false, true, &random, &seconds);
    options.chunks = 2;
  }
  assert_int_equal(mt_program_lower(replicas, 2, &error, &program), MOTET_ERROR_ARGUMENT);
  assert_non_null(strstr(error.text, "replica 1"));
  assert_int_equal(mt_program_lower(replicas, 0, &error, &program), MOTET_ERROR_ARGUMENT);
  mt_arena_destroy(arena);
}

static void test_instruction_names(void **state) {
  (void)state;
  assert_string_equal(motet_instruction_name(MOTET_BWD_X), "BWD_X");
  assert_string_equal(motet_instruction_name(MOTET_STEP_END), "STEP_END");
  assert_null(motet_instruction_name(-1));
  assert_null(motet_instruction_name(MOTET_INSTRUCTION_KINDS));
  motet_program_destroy(NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_one_f_one_b),
      cmocka_unit_test(test_waits_by_the_timeline),
      cmocka_unit_test(test_prefix),
      cmocka_unit_test(test_tied_weight),
      cmocka_unit_test(test_refused_orders),
      cmocka_unit_test(test_replicas_must_agree),
      cmocka_unit_test(test_instruction_names),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
