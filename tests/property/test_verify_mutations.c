/* Damaged programs are refused. Accepted programs are damaged in every way below; a machine that runs them on
 * symbolic values (tests/support/program_run.c) says which mutants are damaging, and the verifier must refuse each
 * of those. Mutants that do no harm may be refused or not. */
#include "../instruction_choice.h"
#include "program_run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { WILD = 3000, DRAWN = 250, PLANS = 150, MUTANTS_A_PROGRAM = 3, TRIES = 20 };

/* ---- The mutations: each returns false where it does not apply ---- */

static bool drop(motet_program *p, mt_random *random, bool (*fits)(const motet_instruction *)) {
  int64_t i = pick(p, random, fits);
  if (i < 0) return false;
  program_remove(p, i);
  return true;
}

static bool drop_any(motet_program *p, mt_random *random) { return drop(p, random, is_any); }
static bool drop_compute(motet_program *p, mt_random *random) { return drop(p, random, is_compute); }
static bool drop_wait(motet_program *p, mt_random *random) { return drop(p, random, is_wait); }
static bool drop_collective(motet_program *p, mt_random *random) { return drop(p, random, is_collective); }
static bool drop_saved_move(motet_program *p, mt_random *random) { return drop(p, random, is_saved_move); }
static bool drop_end(motet_program *p, mt_random *random) { return drop(p, random, is_end); }

static bool duplicate(motet_program *p, mt_random *random) {
  int64_t i = pick(p, random, is_any), to = pick_behind(p, random, i, is_any);
  program_insert(p, program_rank_of(p, i), to + 1, p->instructions[i]);
  return true;
}

static bool swap_of(motet_program *p, mt_random *random, bool (*fits)(const motet_instruction *)) {
  int64_t a = pick(p, random, fits), b = a < 0 ? -1 : pick_behind(p, random, a, fits);
  if (b < 0 || a == b) return false;
  swap(p, a, b);
  return true;
}

static bool swap_any(motet_program *p, mt_random *random) { return swap_of(p, random, is_any); }
static bool swap_compute(motet_program *p, mt_random *random) { return swap_of(p, random, is_compute); }
static bool swap_sends(motet_program *p, mt_random *random) { return swap_of(p, random, is_send); }
static bool swap_receives(motet_program *p, mt_random *random) { return swap_of(p, random, is_recv); }
static bool swap_waits(motet_program *p, mt_random *random) { return swap_of(p, random, is_wait); }
static bool swap_collectives(motet_program *p, mt_random *random) { return swap_of(p, random, is_collective); }

static bool swap_neighbours(motet_program *p, mt_random *random) {
  int64_t i = pick(p, random, is_any);
  if (i + 1 >= p->rank_begin[program_rank_of(p, i) + 1]) return false;
  swap(p, i, i + 1);
  return true;
}

static bool move_in_list(motet_program *p, mt_random *random) {
  int64_t i = pick(p, random, is_any);
  int32_t rank = program_rank_of(p, i);
  motet_instruction instruction = p->instructions[i];
  program_remove(p, i);
  program_insert(p, rank, p->rank_begin[rank] + below(random, p->rank_begin[rank + 1] - p->rank_begin[rank] + 1),
                 instruction);
  return true;
}

static bool move_to_rank(motet_program *p, mt_random *random) {
  int64_t i = pick(p, random, is_any);
  int32_t to = (int32_t)below(random, p->ranks);
  if (to == program_rank_of(p, i)) return false;
  motet_instruction instruction = p->instructions[i];
  program_remove(p, i);
  program_insert(p, to, p->rank_begin[to] + below(random, p->rank_begin[to + 1] - p->rank_begin[to] + 1),
                 instruction);
  return true;
}

static bool redirect_peer(motet_program *p, mt_random *random) {
  int64_t i = pick(p, random, is_transfer);
  if (i < 0) return false;
  p->instructions[i].peer = (int32_t)below(random, p->ranks);
  return true;
}

static bool redirect_group(motet_program *p, mt_random *random) {
  int64_t i = pick(p, random, below(random, 2) == 0 ? is_collective : is_end);
  if (i < 0) return false;
  p->instructions[i].peer = (int32_t)below(random, p->group_count);
  return true;
}

static bool redirect_buffer(motet_program *p, mt_random *random) {
  int64_t i = pick(p, random, below(random, 4) == 0 ? is_collective : is_transfer);
  if (i < 0) return false;
  p->instructions[i].buffer = (int32_t)below(random, p->buffer_count);
  return true;
}

/* A transfer turned to another buffer, with stage and microbatch to match. */
static bool redirect_whole(motet_program *p, mt_random *random) {
  int64_t i = pick(p, random, is_transfer);
  if (i < 0) return false;
  motet_instruction *x = &p->instructions[i];
  x->buffer = (int32_t)below(random, p->buffer_count);
  x->stage = p->buffers[x->buffer].stage;
  x->microbatch = p->buffers[x->buffer].microbatch;
  return true;
}

static bool change_microbatch(motet_program *p, mt_random *random) {
  int64_t i = pick(p, random, has_stage);
  p->instructions[i].microbatch = (int32_t)below(random, p->microbatch_count);
  return true;
}

static bool change_stage(motet_program *p, mt_random *random) {
  int64_t i = pick(p, random, has_stage);
  p->instructions[i].stage = (int32_t)below(random, p->stage_count);
  return true;
}

static bool change_kind(motet_program *p, mt_random *random) {
  int64_t i = pick(p, random, is_any);
  p->instructions[i].kind = (uint8_t)below(random, MOTET_INSTRUCTION_KINDS);
  return true;
}

/* Into a kind of the same family. */
static bool change_to_relative(motet_program *p, mt_random *random) {
  int64_t i = pick(p, random, is_any);
  motet_instruction *x = &p->instructions[i];
  if (is_compute(x))
    x->kind = (uint8_t)below(random, MOTET_RECOMPUTE + 1);
  else if (is_transfer(x))
    x->kind = (uint8_t)(MOTET_SEND + below(random, 3));
  else if (is_collective(x))
    x->kind = (uint8_t)(MOTET_REDUCE + below(random, 4));
  else
    return false;
  return true;
}

static bool flip_flag(motet_program *p, mt_random *random) {
  int64_t i = pick(p, random, has_flag);
  if (i < 0) return false;
  p->instructions[i].flags ^= p->instructions[i].kind == MOTET_WAIT ? MOTET_FLAG_RECV : MOTET_FLAG_NEXT;
  return true;
}

/* Joined or not any more. */
static bool flip_joined(motet_program *p, mt_random *random) {
  int64_t i = pick(p, random, below(random, 2) == 0 ? is_joined : is_compute);
  if (i < 0) return false;
  p->instructions[i].flags ^= MOTET_FLAG_JOINED;
  return true;
}

static bool move_joined(motet_program *p, mt_random *random) {
  int64_t from = pick(p, random, is_joined), to = pick(p, random, is_compute);
  if (from < 0 || is_joined(&p->instructions[to])) return false;
  p->instructions[from].flags &= (uint8_t)~MOTET_FLAG_JOINED;
  p->instructions[to].flags |= MOTET_FLAG_JOINED;
  return true;
}

/* A member of a run changes its microbatch with another instruction of its kind and stage, in its run or not. */
static bool swap_members(motet_program *p, mt_random *random) {
  int64_t one = pick(p, random, is_joined), other = -1, seen = 0;
  if (one < 0) return false;
  motet_instruction *x = &p->instructions[one];
  for (int64_t i = 0; i < program_length(p); i++) {
    const motet_instruction *y = &p->instructions[i];
    if (i != one && y->kind == x->kind && y->stage == x->stage && below(random, ++seen) == 0) other = i;
  }
  if (other < 0) return false;
  int32_t microbatch = x->microbatch;
  x->microbatch = p->instructions[other].microbatch;
  p->instructions[other].microbatch = microbatch;
  return true;
}

/* An instruction of the rank moves in between two members. */
static bool part_run(motet_program *p, mt_random *random) {
  int64_t between = pick(p, random, is_joined) + 1;
  if (between == 0) return false;
  int32_t rank = program_rank_of(p, between - 1);
  int64_t from = p->rank_begin[rank] + below(random, p->rank_begin[rank + 1] - p->rank_begin[rank]);
  if (from == between || from == between - 1) return false;
  motet_instruction instruction = p->instructions[from];
  program_remove(p, from);
  program_insert(p, rank, from < between ? between - 1 : between, instruction);
  return true;
}

static bool shrink_bytes(motet_program *p, mt_random *random) {
  if (p->buffer_count == 0) return false;
  motet_buffer *buffer = &p->buffers[below(random, p->buffer_count)];
  buffer->bytes = buffer->bytes > 0 ? below(random, buffer->bytes) : 1;
  return true;
}

static bool lower_cap(motet_program *p, mt_random *random) {
  motet_rank_memory *memory = calloc((size_t)p->ranks, sizeof *memory);
  program_peaks(p, memory);
  int64_t most = 0;
  for (int32_t i = 0; i < p->ranks; i++) most = memory[i].peak_bytes > most ? memory[i].peak_bytes : most;
  free(memory);
  if (most < 2) return false;
  p->memory_cap = most - 1 - below(random, most - 1);
  return true;
}

static bool truncate_list(motet_program *p, mt_random *random) {
  int64_t i = pick(p, random, is_any);
  int32_t rank = program_rank_of(p, i);
  while (p->rank_begin[rank + 1] > i) program_remove(p, p->rank_begin[rank + 1] - 1);
  return true;
}

static bool is_same_collective(const motet_instruction *a, const motet_instruction *b) {
  return a->kind == b->kind && a->buffer == b->buffer && a->peer == b->peer;
}

/* A collective goes on all ranks. */
static bool drop_whole_collective(motet_program *p, mt_random *random) {
  int64_t chosen = pick(p, random, is_collective);
  if (chosen < 0) return false;
  motet_instruction collective = p->instructions[chosen];
  for (int64_t i = program_length(p) - 1; i >= 0; i--) {
    if (is_same_collective(&p->instructions[i], &collective)) program_remove(p, i);
  }
  return true;
}

/* A transfer goes with its WAITs on both sides. */
static bool drop_whole_transfer(motet_program *p, mt_random *random) {
  int64_t chosen = pick(p, random, is_transfer);
  if (chosen < 0) return false;
  int32_t buffer = p->instructions[chosen].buffer;
  for (int64_t i = program_length(p) - 1; i >= 0; i--) {
    if (is_transfer(&p->instructions[i]) && p->instructions[i].buffer == buffer) program_remove(p, i);
  }
  return true;
}

/* Everything of one stage and microbatch goes to another rank, transfers left as they are. */
static bool move_all_work(motet_program *p, mt_random *random) {
  int64_t chosen = pick(p, random, is_compute);
  int32_t stage = p->instructions[chosen].stage, microbatch = p->instructions[chosen].microbatch;
  int32_t from = program_rank_of(p, chosen), to = (int32_t)below(random, p->ranks);
  if (from == to) return false;
  int64_t place = 0; /* counted from the begin of the target's list */
  for (int64_t i = p->rank_begin[from]; i < p->rank_begin[from + 1];) {
    motet_instruction x = p->instructions[i];
    bool ours = x.stage == stage && x.microbatch == microbatch && !is_transfer(&x);
    if (!ours) {
      i++;
      continue;
    }
    program_remove(p, i);
    int64_t length = p->rank_begin[to + 1] - p->rank_begin[to];
    place += below(random, length - place > 2 ? length - place - 1 : 1);
    if (place > length) place = length;
    program_insert(p, to, p->rank_begin[to] + place, x);
    place++;
    if (to < from) i++;
  }
  return true;
}

/* One reduce of every rank of its group goes ahead of the last instruction before it that is no reduce. */
static bool hoist_reduces(motet_program *p, mt_random *random) {
  int64_t chosen = pick(p, random, is_collective);
  if (chosen < 0) return false;
  motet_instruction reduce = p->instructions[chosen];
  for (int32_t rank = 0; rank < p->ranks; rank++) {
    for (int64_t i = p->rank_begin[rank]; i < p->rank_begin[rank + 1]; i++) {
      if (memcmp(&p->instructions[i], &reduce, sizeof reduce) != 0) continue;
      int64_t steps = 1 + below(random, 6);
      for (; steps > 0 && i > p->rank_begin[rank]; steps--, i--) swap(p, i, i - 1);
      break;
    }
  }
  return true;
}

static int32_t *table_entry(motet_program *p, mt_random *random) {
  switch (below(random, 16)) {
  case 0: return &p->modules[below(random, p->module_count)].layer_begin;
  case 1: return &p->modules[below(random, p->module_count)].layer_end;
  case 2: return p->module_edge_count == 0 ? NULL : &p->module_edges[below(random, p->module_edge_count)].from;
  case 3: return p->module_edge_count == 0 ? NULL : &p->module_edges[below(random, p->module_edge_count)].to;
  case 4: return &p->microbatches[below(random, p->microbatch_count)].replica;
  case 5: return &p->stages[below(random, p->stage_count)].layer_begin;
  case 6: return &p->stages[below(random, p->stage_count)].layer_end;
  case 7: return &p->stages[below(random, p->stage_count)].group;
  case 8: return p->edge_count == 0 ? NULL : &p->edges[below(random, p->edge_count)].from;
  case 9: return p->edge_count == 0 ? NULL : &p->edges[below(random, p->edge_count)].to;
  case 10: return &p->group_ranks[below(random, p->ranks)];
  case 11: return p->tie_count == 0 ? NULL : &p->ties[0].second_stage;
  case 12: return p->carried_count == 0 ? NULL : &p->carried[below(random, p->carried_count)].rank;
  case 13: return p->buffer_count == 0 ? NULL : &p->buffers[below(random, p->buffer_count)].edge;
  case 14: return p->buffer_count == 0 ? NULL : &p->buffers[below(random, p->buffer_count)].microbatch;
  default: return p->buffer_count == 0 ? NULL : &p->buffers[below(random, p->buffer_count)].kind;
  }
}

static bool break_table(motet_program *p, mt_random *random) {
  int32_t *entry = table_entry(p, random);
  if (entry == NULL) return false;
  int64_t change = below(random, 8);
  *entry = change < 5 ? *entry + (int32_t)change - 2 : change == 5 ? -1 : (int32_t)mt_random_bits(random);
  return true;
}

static bool change_data(motet_program *p, mt_random *random) {
  motet_program_microbatch *microbatch = &p->microbatches[below(random, p->microbatch_count)];
  uint64_t bit = UINT64_C(1) << below(random, p->module_count);
  if (below(random, 2) == 0) {
    microbatch->present ^= bit;
  } else {
    microbatch->cached ^= bit;
  }
  return true;
}

static bool change_trainable(motet_program *p, mt_random *random) {
  p->layer_trainable[below(random, p->layer_count)] ^= 1;
  return true;
}

static bool shuffle_fields(motet_program *p, mt_random *random) {
  motet_instruction *x = &p->instructions[pick(p, random, is_any)];
  int32_t *fields[] = {&x->stage, &x->microbatch, &x->range, &x->buffer, &x->peer};
  *fields[below(random, 5)] = (int32_t)mt_random_bits(random);
  return true;
}

static bool twice(motet_program *p, mt_random *random);

static const struct {
  const char *name;
  bool (*mutate)(motet_program *program, mt_random *random);
} kinds[] = {
    {"drop an instruction", drop_any},
    {"drop a compute", drop_compute},
    {"drop a WAIT", drop_wait},
    {"drop a collective's member", drop_collective},
    {"drop a whole collective", drop_whole_collective},
    {"drop a whole transfer", drop_whole_transfer},
    {"move all work of a pair", move_all_work},
    {"drop LOAD, OFFLOAD, ...", drop_saved_move},
    {"drop OPTIM or STEP_END", drop_end},
    {"duplicate", duplicate},
    {"swap with a later one", swap_any},
    {"swap neighbours", swap_neighbours},
    {"swap two computes", swap_compute},
    {"swap two sends", swap_sends},
    {"swap two receives", swap_receives},
    {"swap two waits", swap_waits},
    {"swap two collectives", swap_collectives},
    {"hoist a reduce", hoist_reduces},
    {"move in the list", move_in_list},
    {"move to another rank", move_to_rank},
    {"redirect peer", redirect_peer},
    {"redirect group", redirect_group},
    {"redirect buffer", redirect_buffer},
    {"redirect whole transfer", redirect_whole},
    {"change microbatch", change_microbatch},
    {"change stage", change_stage},
    {"change kind", change_kind},
    {"change to a relative", change_to_relative},
    {"flip flag", flip_flag},
    {"flip joined", flip_joined},
    {"move joined", move_joined},
    {"swap a run's member", swap_members},
    {"part a run", part_run},
    {"wild field", shuffle_fields},
    {"shrink bytes", shrink_bytes},
    {"lower the cap", lower_cap},
    {"truncate a list", truncate_list},
    {"break a table entry", break_table},
    {"change data masks", change_data},
    {"change trainable", change_trainable},
    {"two of these", twice},
};

enum { KINDS = sizeof kinds / sizeof kinds[0] };

static bool twice(motet_program *p, mt_random *random) {
  bool first = kinds[below(random, KINDS - 1)].mutate(p, random);
  /* After the first the tables may hold anything: the second keeps to the lists. */
  static bool (*const safe[])(motet_program *, mt_random *) = {drop_any, swap_any, swap_neighbours, move_in_list,
                                                               duplicate};
  return program_length(p) > 0 && safe[below(random, 5)](p, random) && first;
}

typedef struct tally {
  int mutants, damaging, killed, harmless_accepted;
} tally;

static tally tallies[KINDS];

static void judge_mutant(const motet_program *mutant, int kind, const char *origin, uint64_t seed) {
  char reason[RUN_REASON_SIZE];
  motet_error error;
  motet_verification verification;
  motet_verify_options options = {.check_blocking = true};
  bool damaging = !program_runs(mutant, reason);
  motet_status status = motet_verify(mutant, &options, &error, &verification);
  motet_verification_free(&verification);
  tallies[kind].mutants++;
  if (damaging) tallies[kind].damaging++;
  if (damaging && status != MOTET_OK) tallies[kind].killed++;
  if (!damaging && status == MOTET_OK) tallies[kind].harmless_accepted++;
  if (damaging && status == MOTET_OK)
    print_message("alive: %s %llu, %s: %s\n", origin, (unsigned long long)seed, kinds[kind].name, reason);
  /* A refusal names its rule; what is no program at all is an argument error. */
  if (status == MOTET_ERROR_REFUSED) assert_true(error.rule[0] != '\0' && error.text[0] != '\0');
}

static void mutate_program(const motet_program *base, const char *origin, uint64_t seed) {
  mt_random random = mt_random_stream(seed, origin);
  motet_program *bounded = program_copy(base);
  if (seed % 2 == 0) { /* under the tightest cap */
    motet_rank_memory *memory = calloc((size_t)base->ranks, sizeof *memory);
    program_peaks(base, memory);
    for (int32_t i = 0; i < base->ranks; i++) {
      if (memory[i].peak_bytes > bounded->memory_cap) bounded->memory_cap = memory[i].peak_bytes;
    }
    free(memory);
  }
  motet_error error;
  if (motet_verify(bounded, NULL, &error, NULL) != MOTET_OK)
    fail_msg("%s %llu: %s", origin, (unsigned long long)seed, error.text);
  for (int kind = 0; kind < KINDS; kind++) {
    for (int made = 0, tried = 0; made < MUTANTS_A_PROGRAM && tried < TRIES; tried++) {
      motet_program *mutant = program_copy(bounded);
      if (kinds[kind].mutate(mutant, &random)) {
        judge_mutant(mutant, kind, origin, seed);
        made++;
      }
      program_free(mutant);
    }
  }
  program_free(bounded);
}

static void mutate_foreign(void) {
  static const char *const names[] = {"zb1p_2rank_2stagep_comms", "zb1p_2rank_2stagep_compute", "vhalf_p4_m8",
                                      "1f1b_p4_m8", "vpp2_p4_m8"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    char path[512];
    snprintf(path, sizeof path, "%s/schedules/%s.csv", MOTET_TEST_DATA, names[i]);
    motet_program *program;
    motet_error error;
    if (motet_program_read_pytorch_csv(path, MOTET_PLACEMENT_AUTO, &error, &program) != MOTET_OK)
      fail_msg("%s: %s", path, error.text);
    mutate_program(program, names[i], i);
    motet_program_destroy(program);
  }
}

static void test_damaging_mutants_are_refused(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < DRAWN; seed++) {
    mt_random random = mt_random_stream(seed, "mutations");
    motet_program *program = program_draw(&random);
    mutate_program(program, "drawn", seed);
    program_free(program);
  }
  for (uint64_t seed = 0; seed < PLANS; seed++) {
    mt_random random = mt_random_stream(seed, "mutated plans");
    char schedule[PLAN_TEXT_SIZE];
    motet_error error;
    motet_program *program = plan_draw_program(&random, schedule, &error);
    if (program != NULL) mutate_program(program, "plan", seed);
    motet_program_destroy(program);
  }
  mutate_foreign();
  print_message("%-28s %8s %9s %7s %10s %18s\n", "mutation", "mutants", "damaging", "killed", "kill rate",
                "harmless, accepted");
  for (int kind = 0; kind < KINDS; kind++) {
    const tally *t = &tallies[kind];
    print_message("%-28s %8d %9d %7d %9.2f%% %10d of %d\n", kinds[kind].name, t->mutants, t->damaging, t->killed,
                  t->damaging > 0 ? 100.0 * t->killed / t->damaging : 100.0, t->harmless_accepted,
                  t->mutants - t->damaging);
  }
  for (int kind = 0; kind < KINDS; kind++) {
    assert_true(tallies[kind].damaging > 30);
    assert_int_equal(tallies[kind].killed, tallies[kind].damaging);
  }
}

/* ---- Wild tables: whatever they hold, an answer comes and nothing breaks ---- */

typedef struct table {
  void *data;
  int64_t bytes;
} table;

static void scribble(motet_program *p, int64_t length, mt_random *random) {
  table tables[] = {
      {p->modules, p->module_count * (int64_t)sizeof *p->modules},
      {p->module_edges, p->module_edge_count * (int64_t)sizeof *p->module_edges},
      {p->layer_trainable, p->layer_count},
      {p->microbatches, p->microbatch_count * (int64_t)sizeof *p->microbatches},
      {p->stages, p->stage_count * (int64_t)sizeof *p->stages},
      {p->edges, p->edge_count * (int64_t)sizeof *p->edges},
      {p->group_ranks, p->ranks * (int64_t)sizeof *p->group_ranks},
      {p->ties, p->tie_count * (int64_t)sizeof *p->ties},
      {p->carried, p->carried_count * (int64_t)sizeof *p->carried},
      {p->buffers, p->buffer_count * (int64_t)sizeof *p->buffers},
      {p->static_bytes, p->stage_count * (int64_t)sizeof *p->static_bytes},
      {p->saved_bytes.values, (int64_t)p->stage_count * p->microbatch_count * 8},
      {p->output_bytes.values, (int64_t)p->stage_count * p->microbatch_count * 8},
      {p->instructions, length * (int64_t)sizeof *p->instructions},
      {&p->saved_bytes.stage_stride, 16}, /* both strides */
      {p->rank_begin, (p->ranks + 1) * (int64_t)sizeof *p->rank_begin},
  };
  table chosen = tables[below(random, (int64_t)(sizeof tables / sizeof tables[0]))];
  bool names = chosen.data == p->modules; /* pointers stay */
  if (chosen.bytes < 8) return;
  int64_t word = below(random, chosen.bytes / 4);
  if (names) word = word / 4 * 4 + 2 + word % 2;
  int32_t value = (int32_t)mt_random_bits(random);
  int32_t near[] = {-1, 0, 1, 2, 3, INT32_MAX, INT32_MIN, value};
  memcpy((char *)chosen.data + 4 * word, &near[below(random, 8)], sizeof value);
}

/* Lists keep inside the array: how long that is only its owner knows. */
static void clamp_lists(motet_program *p, int64_t length) {
  for (int32_t i = 0; i <= p->ranks; i++) {
    if (p->rank_begin[i] > length || p->rank_begin[i] < -length) p->rank_begin[i] = length;
  }
}

static void test_wild_tables_are_answered(void **state) {
  (void)state;
  int answers[2] = {0, 0};
  for (uint64_t seed = 0; seed < WILD; seed++) {
    mt_random random = mt_random_stream(seed, "wild");
    motet_program *base = program_draw(&random);
    for (int i = 0; i < 5; i++) {
      motet_program *p = program_copy(base);
      for (int64_t changes = 1 + below(&random, 4); changes > 0; changes--) {
        scribble(p, program_length(base), &random);
        clamp_lists(p, program_length(base));
      }
      motet_error error;
      motet_verification verification;
      motet_verify_options options = {.check_blocking = true, .capacity = (int32_t)below(&random, 3)};
      motet_status status = motet_verify(p, &options, &error, &verification);
      answers[status == MOTET_OK]++;
      if (status != MOTET_OK) assert_true(error.status == status && error.text[0] != '\0');
      motet_verification_free(&verification);
      program_free(p);
    }
    program_free(base);
  }
  assert_true(answers[0] > WILD && answers[1] > WILD / 20);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_damaging_mutants_are_refused),
      cmocka_unit_test(test_wild_tables_are_answered),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
