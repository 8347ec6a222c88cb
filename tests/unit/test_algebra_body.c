/* Body orders against published orders: tests/data/schedules. */
#include "algebra/body.h"
#include "algebra/derive.h"
#include "base/text.h"
#include "motet/program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static mt_derivation *derive(mt_arena *arena, const char *text, int32_t layers, bool trainable, int32_t ranks,
                             int32_t microbatches) {
  const char *names[] = {"llm"};
  motet_error error;
  mt_model *model = NULL;
  mt_schedule *schedule = NULL;
  mt_derivation *derivation = NULL;
  assert_int_equal(mt_model_abstract(arena, 1, names, &layers, &trainable, &error, &model), MOTET_OK);
  assert_int_equal(mt_schedule_parse(arena, text, &error, &schedule), MOTET_OK);
  mt_derive_request request = {.model = model, .schedule = schedule, .ranks = ranks, .microbatches = microbatches};
  if (mt_derive(arena, &request, &error, &derivation) != MOTET_OK) fail_msg("%s: %s", text, error.text);
  return derivation;
}

/* The body as PyTorch writes schedules: one line a rank, actions <stage><kind><microbatch>. */
static void print_body(const mt_derivation *d, mt_text *text) {
  for (int32_t r = 0; r < d->ranks; r++) {
    for (int64_t i = d->body_begin[r]; i < d->body_begin[r + 1]; i++) {
      const mt_event *event = &d->body[i];
      assert_int_equal(d->stages[event->stage].rank, r);
      mt_text_append(text, "%s%d%c%d", i > d->body_begin[r] ? "," : "", event->stage,
                     event->kind == MOTET_FWD   ? 'F'
                     : event->kind == MOTET_BWD ? 'B'
                                                : '?',
                     event->microbatch);
    }
    mt_text_append(text, "\n");
  }
}

static void compare(const char *schedule, const char *file) {
  mt_arena *arena = mt_arena_create();
  mt_text text = {0};
  print_body(derive(arena, schedule, 16, true, 4, 8), &text);
  motet_error error;
  char *published = NULL;
  size_t bytes = 0;
  assert_int_equal(mt_file_read(file, &error, &published, &bytes), MOTET_OK);
  /* The published files end their lines in either way. */
  size_t kept = 0;
  for (size_t i = 0; i < bytes; i++)
    if (published[i] != '\r') published[kept++] = published[i];
  published[kept] = '\0';
  assert_string_equal(text.data, published);
  free(published);
  mt_text_free(&text);
  mt_arena_destroy(arena);
}

static void test_orders_are_the_published_ones(void **state) {
  (void)state;
  compare("<1f1b>", MOTET_TEST_DATA "/schedules/1f1b_p4_m8.csv");
  compare("<1f1b(virtual=2)>", MOTET_TEST_DATA "/schedules/vpp2_p4_m8.csv");
  compare("<1f1b(virtual=4)>", MOTET_TEST_DATA "/schedules/vpp4_p4_m8.csv");
  compare("<1f1b, 1f1b>", MOTET_TEST_DATA "/schedules/vpp2_p4_m8.csv");
}

static void expect(const char *schedule, bool trainable, int32_t ranks, int32_t microbatches, const char *body) {
  mt_arena *arena = mt_arena_create();
  mt_text text = {0};
  print_body(derive(arena, schedule, 8, trainable, ranks, microbatches), &text);
  assert_string_equal(text.data, body);
  mt_text_free(&text);
  mt_arena_destroy(arena);
}

static void test_small_and_odd_numbers(void **state) {
  (void)state;
  expect("<1f1b>", true, 1, 3, "0F0,0B0,0F1,0B1,0F2,0B2\n");
  /* Fewer microbatches than ranks: the warm-up stops at the last microbatch. */
  expect("<1f1b>", true, 4, 2, "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n2F0,2F1,2B0,2B1\n3F0,3B0,3F1,3B1\n");
  expect("<1f1b>", true, 2, 3, "0F0,0F1,0B0,0F2,0B1,0B2\n1F0,1B0,1F1,1B1,1F2,1B2\n");
  expect("<gpipe>", true, 2, 3, "0F0,0F1,0F2,0B0,0B1,0B2\n1F0,1F1,1F2,1B0,1B1,1B2\n");
  expect("<1f1b(virtual=2)>", true, 1, 2, "0F0,1F0,1B0,0F1,0B0,1F1,1B1,0B1\n");
}

static void test_nothing_trainable_runs_forwards_alone(void **state) {
  (void)state;
  expect("<1f1b>", false, 2, 3, "0F0,0F1,0F2\n1F0,1F1,1F2\n");
}

/* The order of the least filling number of microbatches, step by step, without those of the surplus: a place of
 * weight gradients stays empty for every input gradient left out so far, and else takes the oldest that is written.
 */
static int64_t strike_out(const mt_body_step *full, int64_t count, int32_t surplus, mt_body_step *steps) {
  int64_t written = 0, weighed = 0, struck = 0;
  for (int64_t i = 0; i < count; i++) {
    mt_body_step step = full[i];
    bool kept = step.microbatch >= surplus;
    if (step.kind == MT_BODY_WEIGHT) {
      if (struck-- > 0) continue;
      struck = 0;
      while (steps[weighed].kind != MT_BODY_INPUT) weighed++;
      steps[written] = steps[weighed++];
      steps[written++].kind = MT_BODY_WEIGHT;
    } else if (kept) {
      step.microbatch -= surplus;
      steps[written++] = step;
    } else if (step.kind == MT_BODY_INPUT) {
      struck++;
    }
  }
  return written;
}

static void test_dualpipev_of_few_microbatches(void **state) {
  (void)state;
  enum { RANKS = 12, STEPS = 3 * 2 * 2 * RANKS };
  mt_body_step full[STEPS], expected[STEPS], steps[STEPS];
  for (int32_t ranks = 1; ranks <= RANKS; ranks++)
    for (int32_t microbatches = 1; microbatches < 2 * ranks; microbatches++)
      for (int32_t rank = 0; rank < ranks; rank++) {
        mt_body_shape filled = {.ranks = ranks, .chunks = 2, .microbatches = 2 * ranks}, few = filled;
        few.microbatches = microbatches;
        int64_t count = mt_body_dualpipev(&filled, rank, full);
        count = strike_out(full, count, filled.microbatches - microbatches, expected);
        assert_int_equal(mt_body_dualpipev(&few, rank, steps), count);
        assert_memory_equal(steps, expected, (size_t)count * sizeof *steps);
      }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_orders_are_the_published_ones),
      cmocka_unit_test(test_small_and_odd_numbers),
      cmocka_unit_test(test_nothing_trainable_runs_forwards_alone),
      cmocka_unit_test(test_dualpipev_of_few_microbatches),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
