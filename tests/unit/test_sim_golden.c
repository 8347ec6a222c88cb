/* Nine published schedules, their orders read from tests/data/schedules, against golden.csv there. */
#include "../sim_builder.h"
#include "base/text.h"
#include "sim/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

enum { RANKS = 4, MICROBATCHES = 8, NAME = 16 };

typedef struct golden_row {
  char name[NAME];
  int32_t ranks, microbatches;
  double forward, input, weight, makespan, bubble_whole, span, bubble_stage, peak_activations;
} golden_row;

static char *read_data(const char *name) {
  char path[512], *text = NULL;
  size_t bytes = 0;
  snprintf(path, sizeof path, "%s/schedules/%s", MOTET_TEST_DATA, name);
  assert_int_equal(mt_file_read(path, NULL, &text, &bytes), MOTET_OK);
  return text;
}

/* One action, `12F3`; the rest of the row behind it. */
static const char *read_action(const char *at, int32_t *stage, char *letter, int32_t *microbatch) {
  char *rest;
  *stage = (int32_t)strtol(at, &rest, 10);
  *letter = *rest++;
  *microbatch = (int32_t)strtol(rest, &rest, 10);
  return *rest == ',' ? rest + 1 : rest;
}

static void build_order(builder *b, const char *csv, const golden_row *row) {
  int32_t stages = 0, stage, microbatch;
  char letter;
  for (const char *at = csv; *at != '\0'; at += *at == '\n' || *at == '\r') {
    at = read_action(at, &stage, &letter, &microbatch);
    if (stage >= stages) stages = stage + 1;
    while (*at == '\r') at++;
  }
  builder_begin(b, RANKS, 1, stages, MICROBATCHES);
  double share = (double)RANKS / stages; /* one of stages / RANKS chunks of a rank */
  for (int32_t s = 0; s < stages; s++) {
    b->program.stages[s].share = share;
    builder_cost(b, MT_COST_FORWARD, s, row->forward * share);
    builder_cost(b, MT_COST_BACKWARD, s, (row->input + row->weight) * share);
    builder_cost(b, MT_COST_BACKWARD_X, s, row->input * share);
    builder_cost(b, MT_COST_BACKWARD_W, s, row->weight * share);
  }
  for (int pass = 0; pass < 2; pass++) { /* first who holds which stage, then the lists */
    int32_t rank = 0;
    for (const char *at = csv; *at != '\0' && rank < RANKS; rank++) {
      for (; *at != '\n' && *at != '\r' && *at != '\0';) {
        at = read_action(at, &stage, &letter, &microbatch);
        int kind = letter == 'F'   ? MOTET_FWD
                   : letter == 'B' ? MOTET_BWD
                   : letter == 'I' ? MOTET_BWD_X
                                   : MOTET_BWD_W;
        if (pass == 0)
          b->stage_rank[stage] = rank;
        else
          builder_step(b, 0, kind, stage, microbatch, 0);
      }
      while (*at == '\n' || *at == '\r') at++;
    }
    assert_int_equal(rank, RANKS);
  }
  builder_send_waits(b);
}

static void check_row(const golden_row *row) {
  char name[2 * NAME];
  snprintf(name, sizeof name, "%s_p4_m8.csv", row->name);
  char *csv = read_data(name);
  builder b;
  build_order(&b, csv, row);
  int64_t one = 1;
  b.program.saved_bytes.values = &one;
  motet_program *program = builder_end(&b);
  mt_simulation *s = builder_simulate(&b, program);
  assert_non_null(s);
  ASSERT_NEAR(s->makespan, row->makespan);
  ASSERT_CLOSE(s->bubble_whole, row->bubble_whole, 0.5e-5); /* printed with five digits */
  /* The order files were generated for equal times; for others the generator may order a span more tightly. */
  if (row->input >= row->weight && row->input <= row->weight)
    ASSERT_CLOSE(s->bubble_stage, row->bubble_stage, 0.5e-5);
  /* A byte per chunk saved: the peak of bytes counts chunks, each a part of a rank's share. */
  mt_memory_timeline *memory = NULL;
  assert_int_equal(mt_memory_timeline_make(b.arena, program, s->start, s->finish, NULL, &memory), MOTET_OK);
  int64_t most = 0;
  for (int32_t rank = 0; rank < RANKS; rank++)
    if (memory->peak_bytes[rank] > most) most = memory->peak_bytes[rank];
  ASSERT_NEAR((double)most * program->stages[0].share, row->peak_activations);
  builder_free(&b);
  free(csv);
}

/* The importer's transfers hold nobody up either, and the verifier counts the same activations. */
static void check_import(const golden_row *row) {
  char path[512];
  snprintf(path, sizeof path, "%s/schedules/%s_p4_m8.csv", MOTET_TEST_DATA, row->name);
  motet_program *program = NULL;
  motet_error error;
  if (motet_program_read_pytorch_csv(path, MOTET_PLACEMENT_AUTO, &error, &program) != MOTET_OK)
    fail_msg("%s", error.text);
  double share = (double)RANKS / program->stage_count;
  double seconds[] = {row->forward * share, (row->input + row->weight) * share, row->input * share,
                      row->weight * share};
  mt_cost_table costs = {0};
  for (int kind = MT_COST_FORWARD; kind <= MT_COST_BACKWARD_W; kind++) costs.seconds[kind].values = &seconds[kind];
  mt_arena *arena = mt_arena_create();
  mt_simulation *s = NULL;
  motet_verification verification = {0};
  if (mt_simulate(arena, program, &costs, NULL, &error, &s) != MOTET_OK) fail_msg("%s", error.text);
  if (motet_verify(program, NULL, &error, &verification) != MOTET_OK) fail_msg("%s", error.text);
  ASSERT_NEAR(s->makespan, row->makespan);
  double most = 0;
  for (int32_t rank = 0; rank < RANKS; rank++) most = fmax(most, verification.memory[rank].peak_activations);
  ASSERT_NEAR(most, row->peak_activations);
  motet_verification_free(&verification);
  mt_arena_destroy(arena);
  motet_program_destroy(program);
}

static void test_golden_rows(void **state) {
  (void)state;
  char *text = read_data("golden.csv");
  int rows = 0;
  for (size_t at = strcspn(text, "\n") + 1; text[at] != '\0'; at += strcspn(text + at, "\n") + 1) {
    golden_row row;
    assert_int_equal(sscanf(text + at, "%15[^,],%d,%d,%lf,%lf,%lf,%lf,%lf,%lf,%lf,%lf", row.name, &row.ranks,
                            &row.microbatches, &row.forward, &row.input, &row.weight, &row.makespan,
                            &row.bubble_whole, &row.span, &row.bubble_stage, &row.peak_activations),
                     11);
    check_row(&row);
    check_import(&row);
    rows++;
  }
  assert_int_equal(rows, 18);
  free(text);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_golden_rows)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
