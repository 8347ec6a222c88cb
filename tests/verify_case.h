/** @file For tests of the verifier: a pipeline to put together by hand, and assertions on what the verifier says.
 */
#ifndef MT_TESTS_VERIFY_CASE_H
#define MT_TESTS_VERIFY_CASE_H

#include "support/program_builder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* ---- A pipeline of two ranks, one microbatch: vision (rank 0) -> llm (rank 1), all trainable ---- */

enum { VISION, LLM, EDGE = 0, FIRST = 0 };

typedef struct pipeline {
  program_builder b;
  int32_t groups[2];
} pipeline;

static inline void start_pipeline(pipeline *p, bool train_vision, bool train_llm) {
  builder_start(&p->b, 2, 1);
  builder_module(&p->b, "vision", 2, train_vision);
  builder_module(&p->b, "llm", 3, train_llm);
  builder_module_edge(&p->b, 0, 1);
  for (int32_t rank = 0; rank < 2; rank++) p->groups[rank] = builder_group(&p->b, 1, &rank);
  int32_t region = builder_region(&p->b, "vision+llm", false);
  builder_stage(&p->b, region, 0, 0, 2, p->groups[0]);
  builder_stage(&p->b, region, 1, 2, 5, p->groups[1]);
  builder_edge(&p->b, VISION, LLM);
  builder_microbatch(&p->b, 0, 3, 0);
  p->b.saved_bytes = 100;
  p->b.output_bytes = 10;
  p->b.static_bytes = 1000;
}

/* One rank: a frozen encoder, stage 0, before a trained llm, stage 1; the step before left microbatch 0's feature.
 */
static inline void start_ahead(program_builder *b, int32_t microbatches) {
  const motet_carried found = {0, 0, 0};
  builder_start(b, 1, 1);
  builder_module(b, "vision", 1, false);
  builder_module(b, "llm", 1, true);
  builder_module_edge(b, 0, 1);
  builder_stage(b, builder_region(b, "vision", true), 0, 0, 1, 0);
  builder_stage(b, builder_region(b, "llm", false), 0, 1, 2, 0);
  builder_edge(b, 0, 1);
  for (int32_t m = 0; m < microbatches; m++) builder_microbatch(b, 0, 3, 0);
  assert_true(MT_ARRAY_PUSH(&b->carried, found));
}

static inline motet_instruction *at(motet_program *program, int32_t rank, int64_t position) {
  return &program->instructions[program->rank_begin[rank] + position];
}

static inline void assert_accepted(const motet_program *program) {
  motet_error error;
  if (motet_verify(program, NULL, &error, NULL) != MOTET_OK) fail_msg("%s: %s", error.rule, error.text);
}

/* Refused by @p rule at the place (numbers below -1: any); the message must hold @p words. */
static inline void assert_refused(const motet_program *program, const char *rule, int rank, long long instruction,
                                  int microbatch, const char *words) {
  motet_error error;
  motet_status status = motet_verify(program, NULL, &error, NULL);
  if (status != MOTET_ERROR_REFUSED) fail_msg("status %d instead of a refusal by %s", status, rule);
  if (strcmp(error.rule, rule) != 0) fail_msg("rule %s instead of %s: %s", error.rule, rule, error.text);
  if (error.rank != rank || error.instruction != instruction || error.microbatch != microbatch)
    fail_msg("place %d %lld %d instead of %d %lld %d: %s", error.rank, error.instruction, error.microbatch, rank,
             instruction, microbatch, error.text);
  if (strstr(error.text, words) == NULL) fail_msg("\"%s\" is not in: %s", words, error.text);
}

/* Compute, OFFLOAD, FETCH (H) and LOAD by letters. */
static inline motet_instruction_kind kind_of(char letter) {
  static const char letters[] = "FBXWROHL";
  static const motet_instruction_kind kinds[] = {MOTET_FWD,       MOTET_BWD,     MOTET_BWD_X, MOTET_BWD_W,
                                                 MOTET_RECOMPUTE, MOTET_OFFLOAD, MOTET_FETCH, MOTET_LOAD};
  return kinds[strchr(letters, letter) - letters];
}

#endif
