/* Context groups of a step's microbatches: every sample once, ranks once, planned ahead, the same for everybody. */
#include "base/random.h"
#include "train/grouping.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { ROWS = 3, SAMPLES = 12 };

static motet_error failure;

static void must(motet_status status) {
  if (status != MOTET_OK) fail_msg("%s", failure.text);
}

typedef struct step_rows {
  mt_row rows[ROWS];
  int32_t sample[ROWS][SAMPLES], begin[ROWS][SAMPLES + 1];
} step_rows;

/* Short samples and, in the middle row, one that is longer than all others together. */
static void fill(step_rows *step, int32_t number) {
  mt_random random = mt_random_stream((uint64_t)number, "rows");
  for (int32_t m = 0; m < ROWS; m++) {
    for (int32_t s = 0; s < SAMPLES; s++) {
      const int32_t tokens = m == 1 && s == 5 ? 20000 : 100 + (int32_t)mt_random_below(&random, 900);
      step->sample[m][s] = 1000 * number + 100 * m + s;
      step->begin[m][s + 1] = step->begin[m][s] + tokens;
    }
    step->rows[m] = (mt_row){.samples = SAMPLES,
                             .sample = step->sample[m],
                             .tokens = step->begin[m][SAMPLES],
                             .targets = 7 + m,
                             .segment_begin = step->begin[m],
                             .loss_weight = 0.5};
  }
}

static mt_internvl model(void) {
  return (mt_internvl){.decoder = {.layers = 4,
                                   .hidden = 64,
                                   .intermediate = 128,
                                   .heads = 4,
                                   .kv_heads = 2,
                                   .head_dim = 16,
                                   .vocabulary = 100},
                       .vision = {.layers = 1, .hidden = 16, .image_size = 4, .patch_size = 2},
                       .downsample_ratio = 0.5F,
                       .tokens_per_tile = 1};
}

static void check_row(const mt_grouped_row *grouped, const mt_row *row, int32_t width) {
  bool seen[SAMPLES] = {false}, used[64] = {false};
  int32_t segment = 0;
  for (int32_t g = 0; g < grouped->group_count; g++) {
    const mt_row_group *group = &grouped->groups[g];
    assert_int_equal(group->segment_begin, segment);
    assert_true(group->segment_end > segment && group->degree >= 1);
    segment = group->segment_end;
    for (int32_t i = 0; i < group->degree; i++) {
      assert_true(group->ranks[i] >= 0 && group->ranks[i] < width && !used[group->ranks[i]]);
      assert_true(i == 0 || group->ranks[i] > group->ranks[i - 1]);
      used[group->ranks[i]] = true;
    }
  }
  assert_int_equal(segment, SAMPLES);
  for (int32_t s = 0; s < SAMPLES; s++) {
    const int32_t before = grouped->row.sample[s] % 100, *begin = grouped->row.segment_begin + s;
    assert_false(seen[before]);
    seen[before] = true;
    assert_int_equal(grouped->row.sample[s], row->sample[before]);
    assert_int_equal(begin[1] - begin[0], row->segment_begin[before + 1] - row->segment_begin[before]);
  }
  assert_int_equal(grouped->row.tokens, row->tokens);
  assert_int_equal(grouped->row.targets, row->targets);
  assert_true(grouped->row.loss_weight == row->loss_weight);
}

/* Slowest group over what even shares would take, by the areas and tokens alone. */
static double unevenness(const mt_grouped_row *grouped, const motet_pack_cost *cost, int32_t width) {
  double slowest = 0, work = 0;
  for (int32_t g = 0; g < grouped->group_count; g++) {
    const mt_row_group *group = &grouped->groups[g];
    double seconds = 0;
    for (int32_t s = group->segment_begin; s < group->segment_end; s++) {
      const double tokens = grouped->row.segment_begin[s + 1] - grouped->row.segment_begin[s];
      seconds += cost->linear_seconds_per_token * tokens + cost->attention_seconds_per_area * tokens * tokens / 2;
    }
    work += seconds;
    slowest = fmax(slowest, seconds / group->degree);
  }
  return slowest * width / work;
}

static void test_groups(void **state) {
  (void)state;
  const mt_internvl config = model();
  mt_layer_costs costs;
  mt_layer_costs_from_operations(&config, &costs);
  costs.link =
      (mt_link){.latency_seconds = 1e-2, .bytes_per_second = 1e9}; /* short samples had better stay whole */
  for (int32_t width = 1; width <= 8; width++) {
    const mt_grouping_options options = {
        .config = &config, .costs = &costs, .width = width, .pipeline = 1, .rows = ROWS};
    const motet_pack_cost cost = mt_grouping_cost(&options);
    mt_grouping *own, *other;
    mt_arena *arena = mt_arena_create();
    must(mt_grouping_create(&options, &failure, &own));
    must(mt_grouping_create(&options, &failure, &other));
    static step_rows steps[4];
    for (int32_t k = 0; k < 4; k++) fill(&steps[k], k);
    must(mt_grouping_submit(own, steps[0].rows, &failure));
    for (int32_t k = 0; k < 4; k++) {
      mt_grouped_row *grouped, *again;
      if (k + 1 < 4) must(mt_grouping_submit(own, steps[k + 1].rows, &failure)); /* a step ahead */
      must(mt_grouping_take(own, steps[k].rows, arena, &failure, &grouped));
      must(mt_grouping_submit(other, steps[k].rows, &failure)); /* just in time */
      must(mt_grouping_take(other, steps[k].rows, arena, &failure, &again));
      for (int32_t m = 0; m < ROWS; m++) {
        check_row(&grouped[m], &steps[k].rows[m], width);
        assert_int_equal(grouped[m].group_count, again[m].group_count);
        for (int32_t g = 0; g < grouped[m].group_count; g++) {
          assert_int_equal(grouped[m].groups[g].degree, again[m].groups[g].degree);
          assert_memory_equal(grouped[m].groups[g].ranks, again[m].groups[g].ranks,
                              (size_t)grouped[m].groups[g].degree * sizeof(int32_t));
        }
        if (!(unevenness(&grouped[m], &cost, width) < (m == 1 ? 1.5 : 2)))
          fail_msg("width %d, row %d: the slowest group takes %.2f of an even share", width, m,
                   unevenness(&grouped[m], &cost, width));
      }
      if (!(grouped[0].group_count > 1 || width == 1)) fail_msg("width %d: one group of short samples", width);
      /* One sample has nearly all the work: it gets a ring, and most of the ranks. */
      int32_t widest = 0;
      for (int32_t g = 0; g < grouped[1].group_count; g++)
        widest = grouped[1].groups[g].degree > widest ? grouped[1].groups[g].degree : widest;
      assert_true(2 * widest >= width);
    }
    assert_true(mt_grouping_waited(own) >= 0);
    mt_grouping_destroy(own);
    mt_grouping_destroy(other);
    mt_arena_destroy(arena);
  }
}

/* Every row has a long sample and a shorter one, one for each rank: no row can be even, a step of four can. */
static void test_loads_even_out_over_a_step(void **state) {
  (void)state;
  enum { EVEN_ROWS = 4 };
  static const int32_t sample[2] = {0, 1}, begin[3] = {0, 1000, 1700};
  const mt_internvl config = model();
  mt_layer_costs costs;
  mt_layer_costs_from_operations(&config, &costs);
  costs.link = (mt_link){.latency_seconds = 1, .bytes_per_second = 1e9}; /* no rings */
  const mt_grouping_options options = {
      .config = &config, .costs = &costs, .width = 2, .pipeline = 1, .rows = EVEN_ROWS};
  mt_row rows[EVEN_ROWS];
  mt_grouping *grouping;
  mt_grouped_row *grouped;
  mt_arena *arena = mt_arena_create();
  for (int32_t m = 0; m < EVEN_ROWS; m++)
    rows[m] = (mt_row){.samples = 2, .sample = sample, .tokens = 1700, .segment_begin = begin};
  must(mt_grouping_create(&options, &failure, &grouping));
  for (int step = 0; step < 2; step++) {
    int32_t tokens[2] = {0, 0};
    must(mt_grouping_submit(grouping, rows, &failure));
    must(mt_grouping_take(grouping, rows, arena, &failure, &grouped));
    for (int32_t m = 0; m < EVEN_ROWS; m++) {
      assert_int_equal(grouped[m].group_count, 2);
      for (int32_t g = 0; g < 2; g++)
        tokens[grouped[m].groups[g].ranks[0]] +=
            grouped[m].row.segment_begin[g + 1] - grouped[m].row.segment_begin[g];
    }
    assert_int_equal(tokens[0], tokens[1]);
  }
  mt_grouping_destroy(grouping);
  mt_arena_destroy(arena);
}

static void test_one_ring(void **state) {
  (void)state;
  const mt_internvl config = model();
  mt_layer_costs costs;
  mt_layer_costs_from_operations(&config, &costs);
  mt_grouping_options options = {
      .config = &config, .costs = &costs, .width = 3, .pipeline = 1, .rows = ROWS, .fixed = true};
  mt_grouping *grouping;
  mt_grouped_row *grouped;
  static step_rows step;
  mt_arena *arena = mt_arena_create();
  fill(&step, 1);
  must(mt_grouping_create(&options, &failure, &grouping));
  must(mt_grouping_submit(grouping, step.rows, &failure));
  must(mt_grouping_take(grouping, step.rows, arena, &failure, &grouped));
  for (int32_t m = 0; m < ROWS; m++) {
    check_row(&grouped[m], &step.rows[m], 3);
    assert_int_equal(grouped[m].group_count, 1);
    assert_int_equal(grouped[m].groups[0].degree, 3);
    assert_ptr_equal(grouped[m].row.sample, step.rows[m].sample);
  }
  mt_grouping_destroy(grouping);
  mt_arena_destroy(arena);
}

/* A limit that the long sample fits with all ranks and not with fewer; one that nothing keeps; wrong calls. */
static void test_limits(void **state) {
  (void)state;
  const mt_internvl config = model();
  mt_layer_costs costs;
  mt_layer_costs_from_operations(&config, &costs);
  mt_grouping_options options = {.config = &config, .costs = &costs, .width = 4, .pipeline = 1, .rows = ROWS};
  mt_grouping *grouping;
  mt_grouped_row *grouped;
  static step_rows step;
  mt_arena *arena = mt_arena_create();
  fill(&step, 1);
  options.rank_tokens = 8000;
  must(mt_grouping_create(&options, &failure, &grouping));
  must(mt_grouping_submit(grouping, step.rows, &failure));
  must(mt_grouping_take(grouping, step.rows, arena, &failure, &grouped));
  for (int32_t g = 0; g < grouped[1].group_count; g++) {
    const mt_row_group *group = &grouped[1].groups[g];
    const int32_t *begin = grouped[1].row.segment_begin;
    assert_true(begin[group->segment_end] - begin[group->segment_begin] <= 8000 * group->degree);
  }
  assert_int_equal(mt_grouping_take(grouping, step.rows, arena, &failure, &grouped), MOTET_ERROR_ARGUMENT);
  must(mt_grouping_submit(grouping, step.rows, &failure));
  must(mt_grouping_submit(grouping, step.rows, &failure));
  assert_int_equal(mt_grouping_submit(grouping, step.rows, &failure), MOTET_ERROR_LIMIT);
  mt_grouping_destroy(grouping);
  for (int fixed = 0; fixed < 2; fixed++) {
    options.rank_tokens = 5100; /* 20000 fit on four ranks, and beside them next to nothing */
    options.fixed = fixed != 0;
    must(mt_grouping_create(&options, &failure, &grouping));
    must(mt_grouping_submit(grouping, step.rows, &failure));
    assert_int_equal(mt_grouping_take(grouping, step.rows, arena, &failure, &grouped), MOTET_ERROR_ILLEGAL);
    assert_non_null(strstr(failure.text, "microbatch 1"));
    assert_non_null(strstr(failure.text, "5100 "));
    mt_grouping_destroy(grouping);
  }
  options.width = 0;
  assert_int_equal(mt_grouping_create(&options, &failure, &grouping), MOTET_ERROR_ARGUMENT);
  mt_arena_destroy(arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_groups),
      cmocka_unit_test(test_loads_even_out_over_a_step),
      cmocka_unit_test(test_one_ring),
      cmocka_unit_test(test_limits),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
