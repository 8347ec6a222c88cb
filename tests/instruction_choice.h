/** @file Instructions of a program chosen at random among those of a sort. */
#ifndef MT_TESTS_INSTRUCTION_CHOICE_H
#define MT_TESTS_INSTRUCTION_CHOICE_H

#include "support/program_builder.h"

static inline int64_t below(mt_random *random, int64_t bound) {
  return (int64_t)mt_random_below(random, (uint64_t)bound);
}

static inline void swap(motet_program *p, int64_t a, int64_t b) {
  motet_instruction first = p->instructions[a];
  p->instructions[a] = p->instructions[b];
  p->instructions[b] = first;
}

static inline bool is_transfer(const motet_instruction *i) {
  return i->kind >= MOTET_SEND && i->kind <= MOTET_WAIT;
}
static inline bool is_collective(const motet_instruction *i) {
  return i->kind >= MOTET_REDUCE && i->kind <= MOTET_ALL_REDUCE;
}
static inline bool is_compute(const motet_instruction *i) { return i->kind <= MOTET_RECOMPUTE; }
static inline bool is_send(const motet_instruction *i) { return i->kind == MOTET_SEND; }
static inline bool is_recv(const motet_instruction *i) { return i->kind == MOTET_RECV; }
static inline bool is_wait(const motet_instruction *i) { return i->kind == MOTET_WAIT; }
static inline bool has_stage(const motet_instruction *i) { return i->stage >= 0; }
static inline bool has_flag(const motet_instruction *i) {
  return i->kind == MOTET_WAIT || i->kind == MOTET_FWD || i->kind == MOTET_LOAD;
}
static inline bool is_saved_move(const motet_instruction *i) {
  return i->kind == MOTET_RECOMPUTE || i->kind == MOTET_OFFLOAD || i->kind == MOTET_FETCH || i->kind == MOTET_LOAD;
}
static inline bool is_end(const motet_instruction *i) {
  return i->kind == MOTET_OPTIM || i->kind == MOTET_STEP_END;
}
static inline bool is_joined(const motet_instruction *i) { return (i->flags & MOTET_FLAG_JOINED) != 0; }
static inline bool is_any(const motet_instruction *i) { return i->kind < MOTET_INSTRUCTION_KINDS; }

/* A random instruction for which @p fits holds, at or behind @p from on the rank of @p from; -1. */
static inline int64_t pick_behind(const motet_program *p, mt_random *random, int64_t from,
                                  bool (*fits)(const motet_instruction *)) {
  int64_t chosen = -1, seen = 0;
  for (int64_t i = from; i < p->rank_begin[program_rank_of(p, from) + 1]; i++) {
    if (fits(&p->instructions[i]) && below(random, ++seen) == 0) chosen = i;
  }
  return chosen;
}

static inline int64_t pick(const motet_program *p, mt_random *random, bool (*fits)(const motet_instruction *)) {
  int64_t chosen = -1, seen = 0;
  for (int64_t i = 0; i < program_length(p); i++) {
    if (fits(&p->instructions[i]) && below(random, ++seen) == 0) chosen = i;
  }
  return chosen;
}

#endif
