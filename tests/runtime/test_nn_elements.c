/* Networks with bfloat16 activations and with several threads: the same bits with any number of threads, memory as
 * forecast, nothing allocated once a step has run, and training that goes as in float32. */
#include "nn/network.h"
#include "nn_case.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static motet_error failure;

static void must(motet_status status) {
  if (status != MOTET_OK) fail_msg("%s", failure.text);
}

/* Allocations that the program's own code asks for; those inside of shared libraries are theirs. Sanitizers have
 * allocators of their own, which nothing may stand in front of. */
static _Atomic int64_t allocations;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define ALLOCATIONS_ARE_SEEN false
#else
#define ALLOCATIONS_ARE_SEEN true
extern const char __executable_start[], etext[];
/* glibc's own names of what stands in front of them here. */
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

#define NOTE(caller) allocations += (const char *)(caller) >= __executable_start && (const char *)(caller) < etext

void *malloc(size_t bytes) {
  NOTE(__builtin_return_address(0));
  return __libc_malloc(bytes);
}
void *calloc(size_t count, size_t bytes) {
  NOTE(__builtin_return_address(0));
  return __libc_calloc(count, bytes);
}
void *realloc(void *memory, size_t bytes) {
  NOTE(__builtin_return_address(0));
  return __libc_realloc(memory, bytes);
}
void *aligned_alloc(size_t alignment, size_t bytes) {
  NOTE(__builtin_return_address(0));
  return __libc_memalign(alignment, bytes);
}
#endif

typedef struct training {
  mt_internvl config;
  mt_network *network;
  mt_arena *arena;
  nn_case_batch data;
  mt_batch batch;
  int64_t steps;
} training;

static void open_training(training *t, bool other, mt_element element, int32_t threads) {
  bool all[NN_CASE_LAYERS];
  for (int i = 0; i < NN_CASE_LAYERS; i++) all[i] = true;
  *t = (training){.config = nn_case_config(other), .arena = mt_arena_create()};
  t->batch = nn_case_fill(&t->data);
  must(mt_network_create(&t->config, all, all, &failure, &t->network));
  must(mt_network_use(t->network, element, threads, &failure));
  nn_case_weights(t->network);
}

static void close_training(training *t) {
  mt_network_destroy(t->network);
  mt_arena_destroy(t->arena);
}

static double step(training *t) {
  const mt_adamw options = {
      .learning_rate = 2e-3, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1};
  mt_saved *saved;
  double loss = 0;
  mt_arena_reset(t->arena);
  mt_network_zero_gradients(t->network);
  must(mt_network_forward(t->network, 0, NN_CASE_LAYERS, &t->batch, NULL, NULL, true, 0, t->arena, &failure, &saved,
                          &loss));
  must(mt_network_backward(t->network, 0, NN_CASE_LAYERS, 0, &t->batch, saved, NULL, NULL, &failure));
  double squares = 0;
  for (int32_t i = 0; i < mt_network_parameter_count(t->network); i++)
    squares += mt_network_gradient_square_sum(t->network, i);
  const double norm = sqrt(squares);
  must(mt_network_adamw(t->network, &options, ++t->steps, norm > 1 ? 1 / norm : 1, &failure));
  return loss;
}

static void test_threads_do_not_change_a_bit(void **state) {
  (void)state;
  for (int kind = 0; kind < 4; kind++) {
    const mt_element element = kind & 1 ? MT_ELEMENT_BFLOAT16 : MT_ELEMENT_FLOAT32;
    training alone, team;
    open_training(&alone, kind & 2, element, 1);
    double losses[3];
    for (int i = 0; i < 3; i++) losses[i] = step(&alone);
    for (int32_t threads = 2; threads <= 5; threads += 3) {
      open_training(&team, kind & 2, element, threads);
      for (int i = 0; i < 3; i++) assert_true(step(&team) == losses[i]);
      for (int32_t i = 0; i < mt_network_parameter_count(alone.network); i++) {
        const mt_parameter *one = mt_network_parameter(alone.network, i),
                           *two = mt_network_parameter(team.network, i);
        assert_memory_equal(one->gradient, two->gradient, (size_t)one->count * sizeof(float));
        assert_memory_equal(one->value, two->value, (size_t)one->count * sizeof(float));
      }
      close_training(&team);
    }
    close_training(&alone);
  }
}

static void test_a_step_allocates_nothing(void **state) {
  (void)state;
  const int64_t before = allocations;
  for (int kind = 0; kind < 4; kind++) {
    training t;
    open_training(&t, kind & 2, kind & 1 ? MT_ELEMENT_BFLOAT16 : MT_ELEMENT_FLOAT32, 2);
    assert_true(allocations > before || !ALLOCATIONS_ARE_SEEN);
    step(&t);
    step(&t); /* an arena's second round may still put its blocks together */
    const int64_t settled = allocations;
    for (int i = 0; i < 3; i++) step(&t);
    assert_int_equal(allocations - settled, 0);
    close_training(&t);
  }
}

/* A decoder block of nn_case.h by hand: arrays of two bytes an element, but for the log-sums; each rounded up to 64
 * bytes. And what a fresh arena really gives. */
static void test_saved_bytes_of_bfloat16(void **state) {
  (void)state;
  training t;
  open_training(&t, false, MT_ELEMENT_BFLOAT16, 1);
  const int64_t halves[] = {90 * 40, 90 * (40 + 2 * 20), 90 * 40, 90 * 40, 90 * 88};
  int64_t bytes = 64 + (90 * 4 * 4 + 63) / 64 * 64;
  for (int i = 0; i < 5; i++) bytes += (halves[i] * 2 + 63) / 64 * 64;
  assert_int_equal(mt_network_saved_bytes(&t.config, MT_ELEMENT_BFLOAT16, NULL, 5, 6, 5, &t.batch), bytes);
  mt_saved *saved;
  double loss = 0;
  mt_arena_array(t.arena, 1, 1);
  const size_t empty = mt_arena_bytes(t.arena);
  must(mt_network_forward(t.network, 0, NN_CASE_LAYERS, &t.batch, NULL, NULL, true, 0, t.arena, &failure, &saved,
                          &loss));
  const int64_t forecast =
      mt_network_saved_bytes(&t.config, MT_ELEMENT_BFLOAT16, NULL, 0, NN_CASE_LAYERS, 0, &t.batch);
  assert_int_equal(mt_arena_bytes(t.arena) - empty, forecast - 128); /* the header is in the small block */
  const int64_t whole = mt_network_saved_bytes(&t.config, MT_ELEMENT_FLOAT32, NULL, 0, NN_CASE_LAYERS, 0, &t.batch);
  assert_true((double)forecast < 0.56 * (double)whole);
  close_training(&t);
}

/* The same batch again and again: bfloat16 learns it as float32 does. Losses fall from 5 to below 1; a step's
 * rounding of 2^-9 in every activation moves them by a few hundredths of what they have fallen. */
static void test_bfloat16_trains_as_float32(void **state) {
  (void)state;
  training whole, half;
  open_training(&whole, false, MT_ELEMENT_FLOAT32, 1);
  open_training(&half, false, MT_ELEMENT_BFLOAT16, 2);
  double first = 0, last = 0;
  for (int i = 0; i < 60; i++) {
    const double exact = step(&whole), rounded = step(&half);
    if (i == 0) first = exact;
    last = exact;
    if (!(fabs(rounded - exact) < 0.03 * first)) fail_msg("step %d: loss %g, in float32 %g", i, rounded, exact);
  }
  assert_true(last < 0.5 * first);
  close_training(&whole);
  close_training(&half);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_threads_do_not_change_a_bit),
      cmocka_unit_test(test_a_step_allocates_nothing),
      cmocka_unit_test(test_saved_bytes_of_bfloat16),
      cmocka_unit_test(test_bfloat16_trains_as_float32),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
