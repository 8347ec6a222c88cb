/* A packer that has seen its largest batch allocates nothing. The allocator's entry points are counted here; under
 * a sanitizer, which brings its own, only the equality of plans is checked. */
#include "motet/pack.h"
#include "workload/trace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

static long allocations;

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define OWN_ALLOCATOR
#endif
#endif
#ifndef OWN_ALLOCATOR
#define COUNTED
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *memory, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

void *malloc(size_t bytes) {
  allocations++;
  return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t size) {
  allocations++;
  return __libc_calloc(count, size);
}

void *realloc(void *memory, size_t bytes) {
  allocations++;
  return __libc_realloc(memory, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes) {
  allocations++;
  return __libc_memalign(alignment, bytes);
}
#endif
#endif

enum { BATCHES = 6, SEQUENCES = 512 };

static void no_allocation(motet_pack_batch batch, motet_pack_scope scope) {
  static motet_pack_sequence sequences[BATCHES * SEQUENCES];
  mt_distribution distribution = {"wikipedia", BATCHES * SEQUENCES, 9, 64, 16384};
  mt_trace trace;
  assert_int_equal(mt_distribution_draw(&distribution, NULL, &trace), MOTET_OK);
  for (int i = 0; i < BATCHES * SEQUENCES; i++)
    sequences[i] = (motet_pack_sequence){trace.items[i].tokens, trace.items[i].area};
  mt_trace_destroy(&trace);
  motet_pack_options options = {
      .ranks = 64,
      .memory_tokens = 16384,
      .ranks_per_node = 8,
      .batch = batch,
      .scope = scope,
      .cost = {.attention_seconds_per_area = 1e-8, .linear_seconds_per_token = 2e-4, .fixed_seconds = 0.6}};
  motet_packer *packer;
  const motet_pack_plan *plan;
  uint64_t digests[BATCHES];
  assert_int_equal(motet_packer_create(&options, NULL, &packer), MOTET_OK);
  for (int round = 0; round < 2; round++) {
    long before = allocations;
    for (int b = 0; b < BATCHES; b++) {
      if (motet_packer_plan(packer, sequences + b * SEQUENCES, SEQUENCES, NULL, &plan) != MOTET_OK) fail();
      if (round == 0)
        digests[b] = plan->digest;
      else if (scope == MOTET_PACK_GLOBAL)
        assert_int_equal(plan->digest, digests[b]);
    }
#ifdef COUNTED
    if (round == 0)
      assert_true(allocations > before); /* the counter counts */
    else
      assert_int_equal(allocations, before);
#else
    (void)before;
#endif
  }
  motet_packer_destroy(packer);
}

static void one_microbatch(void **unused) {
  (void)unused;
  no_allocation(MOTET_PACK_ALL, MOTET_PACK_MICROBATCH);
}

static void cut_by_the_planner(void **unused) {
  (void)unused;
  no_allocation(MOTET_PACK_AUTO, MOTET_PACK_MICROBATCH);
}

static void without_barriers(void **unused) {
  (void)unused;
  no_allocation(MOTET_PACK_ALL, MOTET_PACK_GLOBAL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(one_microbatch),
      cmocka_unit_test(cut_by_the_planner),
      cmocka_unit_test(without_barriers),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
