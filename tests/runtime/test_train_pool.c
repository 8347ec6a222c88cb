/* The pool counts what is in use and gives freed memory out again; the board remembers the rank that fell silent.
 */
#include "train/board.h"
#include "train/pool.h"

#include "motet/program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void test_buffers_are_counted_and_used_again(void **state) {
  (void)state;
  mt_pool *pool = mt_pool_create();
  float *large = mt_pool_take(pool, 4000), *small = mt_pool_take(pool, 1000), *empty = mt_pool_take(pool, 0);
  assert_true((uintptr_t)large % 64 == 0 && (uintptr_t)small % 64 == 0 && empty != NULL);
  assert_int_equal(mt_pool_bytes(pool), 5000);
  mt_pool_give(pool, large);
  mt_pool_give(pool, small);
  assert_int_equal(mt_pool_bytes(pool), 0);
  assert_int_equal(mt_pool_peak(pool), 5000);
  /* The smaller one that fits, though the larger was freed first. */
  assert_ptr_equal(mt_pool_take(pool, 900), small);
  assert_int_equal(mt_pool_bytes(pool), 900);
  assert_ptr_equal(mt_pool_take(pool, 1100), large);
  mt_pool_peak_reset(pool);
  assert_int_equal(mt_pool_peak(pool), 2000);
  mt_pool_give(pool, NULL);
  mt_pool_destroy(pool);
}

static void test_arenas_are_counted_by_what_was_taken(void **state) {
  (void)state;
  mt_pool *pool = mt_pool_create();
  mt_arena *arena = mt_pool_arena_take(pool, 1 << 20);
  assert_int_equal(mt_pool_bytes(pool), 0);
  assert_non_null(mt_arena_array(arena, 128, 1));
  mt_pool_arena_count(pool, arena);
  assert_int_equal(mt_pool_bytes(pool), 128);
  assert_non_null(mt_arena_array(arena, 64, 1));
  mt_pool_arena_count(pool, arena);
  assert_int_equal(mt_pool_bytes(pool), 192);
  mt_pool_arena_give(pool, arena);
  assert_int_equal(mt_pool_bytes(pool), 0);
  assert_int_equal(mt_pool_peak(pool), 192);
  assert_ptr_equal(mt_pool_arena_take(pool, 1000), arena); /* large enough, and empty again */
  assert_int_equal(mt_arena_used(arena), 0);
  mt_pool_destroy(pool);
}

static void test_board_names_the_silent_rank(void **state) {
  (void)state;
  char path[] = "/tmp/motet-board-XXXXXX";
  int file = mkstemp(path);
  assert_true(file >= 0);
  close(file);
  motet_error error;
  mt_board *launcher, *rank;
  assert_int_equal(mt_board_open(path, 3, &error, &launcher), MOTET_OK);
  assert_int_equal(mt_board_open(path, 3, &error, &rank), MOTET_OK);
  assert_int_equal(mt_board_victim(launcher), -1);
  mt_board_at(rank, 0)->state = MT_BOARD_STOPPED;
  mt_board_at(rank, 2)->state = MT_BOARD_FINISHED;
  *mt_board_at(rank, 1) = (mt_board_place){.state = MT_BOARD_RUNNING,
                                           .step = 3,
                                           .instruction = 17,
                                           .kind = MOTET_FWD,
                                           .microbatch = 4,
                                           .region = "vision"};
  assert_int_equal(mt_board_victim(launcher), 1);
  char text[256];
  mt_board_describe(launcher, 1, text, sizeof text);
  assert_string_equal(text, "rank 1 was at instruction 17 of step 3 (FWD of vision, microbatch 4)");
  assert_int_equal(mt_board_reported(launcher), -1);
  mt_board_note_report(rank, 0);
  mt_board_note_report(rank, 3);
  assert_int_equal(mt_board_reported(launcher), 0);
  mt_board_close(rank);
  mt_board_close(launcher);
  unlink(path);
  assert_int_equal(mt_board_open("/nowhere/board", 3, &error, &launcher), MOTET_ERROR_IO);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_buffers_are_counted_and_used_again),
      cmocka_unit_test(test_arenas_are_counted_by_what_was_taken),
      cmocka_unit_test(test_board_names_the_silent_rank),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
