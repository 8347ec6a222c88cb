/* Seams by joining layouts: the published table of patterns, and the cases that follow from the same rule. */
#include "algebra/seam.h"
#include "algebra_model.h"

/* Rows of the table in arXiv 2607.03229: what each pair of layouts exchanges, forward and backward. */
static void test_the_four_rows_fall_out_of_the_join(void **state) {
  (void)state;
  static const struct {
    const char *model, *schedule;
    int32_t from, to; /* stages on the two sides of the seam */
    mt_pattern forward, backward;
  } rows[] = {
      {"v:t l:tttt", "<transpose, 1f1b>", 0, 1, MT_PATTERN_GATHER, MT_PATTERN_SCATTER},
      {"v:tttt l:tttt", "<v: 1f1b, l: 1f1b>", 3, 4, MT_PATTERN_SEND, MT_PATTERN_SEND},
      {"l:tttt g:t", "<l: 1f1b, g: transpose>", 3, 4, MT_PATTERN_SCATTER, MT_PATTERN_GATHER},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    mt_arena *arena = mt_arena_create();
    const mt_derivation *d = derive_of(arena, rows[i].model, rows[i].schedule, 4, 8);
    bool found = false;
    for (int32_t e = 0; e < d->edge_count; e++) {
      if (d->edges[e].from != rows[i].from || d->edges[e].to != rows[i].to) continue;
      found = true;
      assert_int_equal(d->edges[e].forward, rows[i].forward);
      assert_int_equal(d->edges[e].backward, rows[i].backward);
    }
    assert_true(found);
    mt_arena_destroy(arena);
  }
  /* Replicated -> Replicated: one rule of owners on both sides moves nothing. */
  mt_layout owners = {.map = MT_SLAB_OWNER, .slabs = 1, .pipeline = 4, .data = 1, .context = 1};
  mt_seam_side side = {&owners, 0};
  assert_int_equal(mt_seam_pattern(side, side, 8), MT_PATTERN_IDENTITY);
  mt_layout others = owners;
  others.owner = 1;
  assert_int_equal(mt_seam_pattern(side, (mt_seam_side){&others, 0}, 8), MT_PATTERN_ALL_TO_ALL);
}

static void test_one_rank_moves_nothing(void **state) {
  (void)state;
  mt_arena *arena = mt_arena_create();
  const mt_derivation *d = derive_of(arena, "v:t l:tttt g:t", "<transpose, 1f1b(virtual=4), transpose>", 1, 8);
  assert_int_equal(d->edge_count, 5);
  for (int32_t e = 0; e < d->edge_count; e++) {
    assert_int_equal(d->edges[e].forward, MT_PATTERN_IDENTITY);
    assert_int_equal(d->edges[e].backward, MT_PATTERN_IDENTITY);
  }
  mt_arena_destroy(arena);
}

static void test_virtual_stages_send_round(void **state) {
  (void)state;
  mt_arena *arena = mt_arena_create();
  const mt_derivation *d = derive_of(arena, "l:tttttttt", "<1f1b(virtual=2)>", 4, 8);
  assert_int_equal(d->edge_count, 7);
  for (int32_t e = 0; e < d->edge_count; e++) assert_int_equal(d->edges[e].forward, MT_PATTERN_SEND);
  mt_arena_destroy(arena);
}

static void test_dedicated_ranks_and_folded_maps(void **state) {
  (void)state;
  mt_layout trunk = {.map = MT_SLAB_LOOP, .slabs = 4, .pipeline = 4, .data = 1, .context = 1};
  mt_layout encoder = {.map = MT_SLAB_LOOP, .slabs = 2, .first_rank = 4, .pipeline = 2, .data = 1, .context = 1};
  mt_seam_row row;
  assert_int_equal(mt_seam_join((mt_seam_side){&encoder, 1}, (mt_seam_side){&trunk, 0}, 3, 10, &row, 1), 1);
  assert_int_equal(row.from.first, 5); /* the last of the ranks of its own */
  assert_int_equal(row.to.first, 0);
  assert_false(row.local);
  assert_int_equal(mt_seam_pattern((mt_seam_side){&encoder, 1}, (mt_seam_side){&trunk, 0}, 8), MT_PATTERN_SEND);
  /* A V: slabs 3 and 4 both lie on rank 3, so the turn is local; 7 ends on rank 0, where the next V begins. */
  mt_layout fold = {.map = MT_SLAB_FOLD, .slabs = 8, .pipeline = 4, .data = 1, .context = 1};
  static const int32_t ranks[8] = {0, 1, 2, 3, 3, 2, 1, 0};
  for (int32_t s = 0; s < 8; s++) assert_int_equal(mt_layout_rank(&fold, s), ranks[s]);
  for (int32_t s = 0; s < 7; s++)
    assert_int_equal(mt_seam_pattern((mt_seam_side){&fold, s}, (mt_seam_side){&fold, s + 1}, 8),
                     s == 3 ? MT_PATTERN_IDENTITY : MT_PATTERN_SEND);
  assert_int_equal(mt_seam_pattern((mt_seam_side){&fold, 7}, (mt_seam_side){&trunk, 0}, 8), MT_PATTERN_IDENTITY);
}

/* Two data-parallel pipelines of two ranks feed four of one: rank 2 * (m mod 2) + 1 to rank m mod 4. */
static void test_different_data_parallel_widths(void **state) {
  (void)state;
  mt_layout left = {.map = MT_SLAB_LOOP, .slabs = 2, .pipeline = 2, .data = 2, .context = 1};
  mt_layout right = {.map = MT_SLAB_LOOP, .slabs = 1, .pipeline = 1, .data = 4, .context = 1};
  mt_seam_side from = {&left, 1}, to = {&right, 0};
  static const int32_t sources[4] = {1, 3, 1, 3};
  for (int32_t m = 0; m < 4; m++) {
    mt_seam_row row;
    assert_int_equal(mt_seam_join(from, to, m, 5, &row, 1), 1);
    assert_int_equal(row.from.first, sources[m]);
    assert_int_equal(row.to.first, m);
    assert_int_equal(row.local, sources[m] == m);
  }
  assert_int_equal(mt_seam_pattern(from, to, 8), MT_PATTERN_ALL_TO_ALL);
  assert_int_equal(mt_seam_pattern(from, to, 1), MT_PATTERN_SEND); /* with one microbatch only two ranks meet */
}

/* 12 tokens from thirds to quarters: cut at 3, 4, 6, 8, 9. */
static void test_context_parallel_groups_exchange_intersections(void **state) {
  (void)state;
  mt_layout left = {.map = MT_SLAB_LOOP, .slabs = 1, .pipeline = 1, .data = 1, .context = 3};
  mt_layout right = {.map = MT_SLAB_LOOP, .slabs = 1, .pipeline = 1, .data = 1, .context = 4};
  static const struct {
    int32_t begin, end, from, to;
  } expected[] = {{0, 3, 0, 0}, {3, 4, 0, 1}, {4, 6, 1, 1}, {6, 8, 1, 2}, {8, 9, 2, 2}, {9, 12, 2, 3}};
  mt_seam_row rows[6];
  assert_int_equal(mt_seam_join((mt_seam_side){&left, 0}, (mt_seam_side){&right, 0}, 0, 12, rows, 6), 6);
  for (int i = 0; i < 6; i++) {
    assert_int_equal(rows[i].from.begin, expected[i].begin);
    assert_int_equal(rows[i].from.end, expected[i].end);
    assert_int_equal(rows[i].from.first, expected[i].from);
    assert_int_equal(rows[i].to.first, expected[i].to);
    assert_int_equal(rows[i].local, expected[i].from == expected[i].to);
  }
  assert_int_equal(mt_seam_pattern((mt_seam_side){&left, 0}, (mt_seam_side){&right, 0}, 1), MT_PATTERN_ALL_TO_ALL);
  assert_int_equal(mt_seam_pattern((mt_seam_side){&left, 0}, (mt_seam_side){&left, 0}, 1), MT_PATTERN_IDENTITY);
  /* Fewer tokens than context ranks: the joined ranges still tile the tokens. */
  assert_int_equal(mt_seam_join((mt_seam_side){&left, 0}, (mt_seam_side){&right, 0}, 0, 1, rows, 6), 1);
  assert_int_equal(rows[0].from.end, 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_the_four_rows_fall_out_of_the_join),
      cmocka_unit_test(test_one_rank_moves_nothing),
      cmocka_unit_test(test_virtual_stages_send_round),
      cmocka_unit_test(test_dedicated_ranks_and_folded_maps),
      cmocka_unit_test(test_different_data_parallel_widths),
      cmocka_unit_test(test_context_parallel_groups_exchange_intersections),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
