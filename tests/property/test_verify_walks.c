/* Walks among accepted programs. Each step changes one in a way that keeps it consistent with itself: both ends of
 * a transfer, tables together with the lists that name them, a backward split or joined, a group with its
 * collectives. As long as the verifier accepts, the walk goes on from there, far from what derivation makes; and
 * every program that it accepts must come out right on the machine of tests/support/program_run.c. */
#include "program_builder.h"
#include "program_run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { WALKS = 40, STEPS = 150 };

static int64_t below(mt_random *random, int64_t bound) { return (int64_t)mt_random_below(random, (uint64_t)bound); }
static int32_t below32(mt_random *random, int64_t bound) { return (int32_t)below(random, bound); }
static bool one_in(mt_random *random, int64_t many) { return below(random, many) == 0; }

/* ---- Editing ---- */

static int64_t begin_of(const motet_program *p, int64_t i) { return p->rank_begin[program_rank_of(p, i)]; }
static int64_t end_of(const motet_program *p, int64_t i) { return p->rank_begin[program_rank_of(p, i) + 1]; }

/* @p table with room for one more entry. */
static void *grow(void *table, int64_t count, size_t size) {
  void *grown = calloc((size_t)count + 1, size);
  if (grown == NULL) abort();
  memcpy(grown, table, (size_t)count * size);
  free(table);
  return grown;
}

static void move_within(motet_program *p, int64_t from, int64_t to) {
  motet_instruction moved = p->instructions[from];
  for (; from < to; from++) p->instructions[from] = p->instructions[from + 1];
  for (; from > to; from--) p->instructions[from] = p->instructions[from - 1];
  p->instructions[to] = moved;
}

/* A random instruction of this kind, or -1. */
static int64_t pick(const motet_program *p, mt_random *random, int kind) {
  int64_t chosen = -1, seen = 0;
  for (int64_t i = 0; i < program_length(p); i++)
    if (p->instructions[i].kind == kind && below(random, ++seen) == 0) chosen = i;
  return chosen;
}

static bool transfers(const motet_instruction *x) { return x->kind >= MOTET_SEND && x->kind <= MOTET_WAIT; }
static bool collects(const motet_instruction *x) { return x->kind >= MOTET_REDUCE && x->kind <= MOTET_ALL_REDUCE; }
static bool computes(const motet_instruction *x) {
  return x->kind <= MOTET_RECOMPUTE || (x->kind >= MOTET_OFFLOAD && x->kind <= MOTET_LOAD);
}

static void exchange(int32_t *number, int32_t a, int32_t b) {
  if (*number == a)
    *number = b;
  else if (*number == b)
    *number = a;
}

/* ---- Changes: each returns false where it does not apply ---- */

static bool shift(motet_program *p, mt_random *random) {
  int64_t i = below(random, program_length(p)), to = i + below(random, 13) - 6;
  if (one_in(random, 3)) to = begin_of(p, i) + below(random, end_of(p, i) - begin_of(p, i));
  if (to < begin_of(p, i) || to >= end_of(p, i)) return false;
  move_within(p, i, to);
  return true;
}

static bool rotate_block(motet_program *p, mt_random *random) {
  int64_t i = below(random, program_length(p)), count = 2 + below(random, 8), by = 1 + below(random, 5);
  if (i + count >= end_of(p, i)) return false;
  for (; by > 0; by--) move_within(p, i, i + count);
  return true;
}

static bool split_backward(motet_program *p, mt_random *random) {
  int64_t i = pick(p, random, MOTET_BWD);
  if (i < 0) return false;
  motet_instruction weights = p->instructions[i];
  p->instructions[i].kind = MOTET_BWD_X;
  weights.kind = MOTET_BWD_W;
  program_insert(p, program_rank_of(p, i), i + 1 + below(random, end_of(p, i) - i), weights);
  return true;
}

static bool join_backward(motet_program *p, mt_random *random) {
  int64_t i = pick(p, random, MOTET_BWD_W);
  for (int64_t j = i < 0 ? 0 : begin_of(p, i); j < i; j++) {
    motet_instruction *x = &p->instructions[j];
    const motet_instruction *w = &p->instructions[i];
    if (x->kind != MOTET_BWD_X || x->stage != w->stage || x->microbatch != w->microbatch) continue;
    x->kind = MOTET_BWD;
    program_remove(p, i);
    return true;
  }
  return false;
}

/* RECOMPUTE, a second LOAD, or OFFLOAD and FETCH, somewhere behind a forward. */
static bool add_moves(motet_program *p, mt_random *random) {
  int64_t i = pick(p, random, MOTET_FWD);
  if (i < 0) return false;
  motet_instruction x = p->instructions[i];
  int32_t rank = program_rank_of(p, i);
  int64_t end = end_of(p, i), to = i + 1 + below(random, end - i);
  static const uint8_t kinds[] = {MOTET_RECOMPUTE, MOTET_LOAD, MOTET_OFFLOAD, MOTET_OFFLOAD};
  x.kind = kinds[below(random, 4)];
  x.flags = 0;
  program_insert(p, rank, to, x);
  if (x.kind != MOTET_OFFLOAD) return true;
  x.kind = MOTET_FETCH;
  program_insert(p, rank, to + 1 + below(random, end - to + 1), x);
  return true;
}

/* Two transfers take each other's places on both of their sides: with their waits or without, and under their own
 * stage and microbatch or the other's. */
static bool exchange_transfers(motet_program *p, mt_random *random) {
  if (p->buffer_count < 2) return false;
  int32_t a = below32(random, p->buffer_count), b = below32(random, p->buffer_count);
  bool waits = !one_in(random, 3), names = !one_in(random, 3);
  for (int64_t i = 0; i < program_length(p); i++) {
    motet_instruction *x = &p->instructions[i];
    if (!transfers(x) || (x->buffer != a && x->buffer != b) || (x->kind == MOTET_WAIT && !waits)) continue;
    exchange(&x->buffer, a, b);
    if (!names) continue;
    x->stage = p->buffers[x->buffer].stage;
    x->microbatch = p->buffers[x->buffer].microbatch;
  }
  return a != b;
}

static bool exchange_buffers(motet_program *p, mt_random *random) {
  if (p->buffer_count < 2) return false;
  int32_t a = below32(random, p->buffer_count), b = below32(random, p->buffer_count);
  motet_buffer kept = p->buffers[a];
  p->buffers[a] = p->buffers[b];
  p->buffers[b] = kept;
  bool lists = one_in(random, 2);
  for (int64_t i = 0; i < program_length(p) && lists; i++)
    if (transfers(&p->instructions[i])) exchange(&p->instructions[i].buffer, a, b);
  return a != b;
}

/* Two microbatches change names: in all lists, one rank's, those from a rank on, one stage's compute, all compute
 * or all transfers; with their buffers and statements or without. */
static bool rename_microbatches(motet_program *p, mt_random *random) {
  int32_t a = below32(random, p->microbatch_count), b = below32(random, p->microbatch_count);
  int64_t where = below(random, 6);
  int32_t rank = below32(random, p->ranks), stage = below32(random, p->stage_count);
  for (int64_t i = 0; i < program_length(p); i++) {
    motet_instruction *x = &p->instructions[i];
    int32_t own = program_rank_of(p, i);
    const bool in[] = {true, own == rank, own >= rank, computes(x) && x->stage == stage, computes(x), transfers(x)};
    if (in[where]) exchange(&x->microbatch, a, b);
  }
  bool buffers = where == 0 || one_in(random, 2), carried = one_in(random, 3);
  for (int64_t i = 0; i < p->buffer_count && buffers; i++) exchange(&p->buffers[i].microbatch, a, b);
  for (int32_t i = 0; i < p->carried_count && carried; i++) exchange(&p->carried[i].microbatch, a, b);
  if (one_in(random, 2)) {
    motet_program_microbatch kept = p->microbatches[a];
    p->microbatches[a] = p->microbatches[b];
    p->microbatches[b] = kept;
  }
  return a != b;
}

static bool rename_stages(motet_program *p, mt_random *random) {
  int32_t a = below32(random, p->stage_count), b = below32(random, p->stage_count);
  if (one_in(random, 2)) {
    motet_program_stage kept = p->stages[a];
    p->stages[a] = p->stages[b];
    p->stages[b] = kept;
  }
  if (one_in(random, 2)) {
    int32_t group = p->stages[a].group;
    p->stages[a].group = p->stages[b].group;
    p->stages[b].group = group;
  }
  bool all = one_in(random, 2);
  for (int64_t i = 0; i < program_length(p); i++)
    if (all || computes(&p->instructions[i])) exchange(&p->instructions[i].stage, a, b);
  for (int64_t i = 0; i < p->buffer_count && all; i++) exchange(&p->buffers[i].stage, a, b);
  return a != b;
}

/* Two neighbouring ranks change names: lists and peers, and mostly groups and what is carried. */
static bool exchange_ranks(motet_program *p, mt_random *random) {
  if (p->ranks < 2) return false;
  int32_t a = below32(random, p->ranks - 1), b = a + 1;
  int64_t first = p->rank_begin[a], middle = p->rank_begin[b], end = p->rank_begin[b + 1];
  for (int64_t i = 0; i < end - middle; i++) move_within(p, end - 1, first);
  p->rank_begin[b] = first + end - middle;
  for (int64_t i = 0; i < program_length(p); i++)
    if (transfers(&p->instructions[i])) exchange(&p->instructions[i].peer, a, b);
  if (one_in(random, 4)) return true;
  for (int32_t g = 0; g < p->group_count; g++) {
    int32_t *ranks = p->group_ranks + p->groups[g].first, count = p->groups[g].count;
    for (int32_t i = 0; i < count; i++)
      if ((i == 0 || ranks[i - 1] != a) && (i == count - 1 || ranks[i + 1] != b)) exchange(&ranks[i], a, b);
  }
  for (int32_t i = 0; i < p->carried_count; i++) exchange(&p->carried[i].rank, a, b);
  return true;
}

/* An all-reduce becomes a reduce-scatter on all its members, and an all-gather comes behind it, mostly behind
 * OPTIM. */
static bool scatter_reduce(motet_program *p, mt_random *random) {
  int64_t chosen = pick(p, random, MOTET_ALL_REDUCE);
  if (chosen < 0) return false;
  motet_instruction x = p->instructions[chosen];
  p->buffers = grow(p->buffers, p->buffer_count, sizeof *p->buffers);
  int32_t fresh = (int32_t)p->buffer_count++;
  p->buffers[fresh] = p->buffers[x.buffer];
  p->buffers[fresh].kind = one_in(random, 5) ? MOTET_BUFFER_WEIGHT_GRADIENT : MOTET_BUFFER_PARAMETER;
  bool reduces = !one_in(random, 4), late = !one_in(random, 4);
  for (int32_t rank = 0; rank < p->ranks; rank++)
    for (int64_t i = p->rank_begin[rank]; i < p->rank_begin[rank + 1]; i++) {
      motet_instruction *y = &p->instructions[i];
      if (y->kind != MOTET_ALL_REDUCE || y->buffer != x.buffer || y->peer != x.peer) continue;
      if (reduces) y->kind = MOTET_REDUCE_SCATTER;
      motet_instruction gather = *y;
      gather.kind = MOTET_ALL_GATHER;
      gather.buffer = fresh;
      int64_t last = p->rank_begin[rank + 1] - 1, to = late ? last : last - below(random, 3);
      program_insert(p, rank, to > i ? to : i + 1, gather);
      break;
    }
  return true;
}

/* A group gains or loses a member, who keeps its collectives or drops them. */
static bool change_group(motet_program *p, mt_random *random) {
  int32_t g = below32(random, p->group_count), rank = below32(random, p->ranks), count = 0;
  motet_group *group = &p->groups[g];
  int32_t *ranks = calloc((size_t)(p->group_rank_count + group->count + 1), sizeof *ranks);
  if (ranks == NULL) abort();
  memcpy(ranks, p->group_ranks, (size_t)p->group_rank_count * sizeof *ranks);
  int32_t *made = ranks + p->group_rank_count;
  for (int32_t r = 0; r < p->ranks; r++) {
    bool member = false;
    for (int32_t i = 0; i < group->count; i++) member = member || p->group_ranks[group->first + i] == r;
    if (member != (r == rank)) made[count++] = r;
  }
  free(p->group_ranks);
  p->group_ranks = ranks;
  *group = (motet_group){p->group_rank_count, count};
  p->group_rank_count += count;
  bool drops = one_in(random, 2);
  for (int64_t i = p->rank_begin[rank + 1] - 1; i >= p->rank_begin[rank] && drops; i--)
    if (collects(&p->instructions[i]) && p->instructions[i].peer == g) program_remove(p, i);
  return count > 0;
}

/* The same ranks under a second number, which some or all collectives, or a stage, name. */
static bool copy_group(motet_program *p, mt_random *random) {
  int32_t g = below32(random, p->group_count);
  p->groups = grow(p->groups, p->group_count, sizeof *p->groups);
  int32_t fresh = p->group_count++;
  p->groups[fresh] = p->groups[g];
  bool all = one_in(random, 2);
  for (int64_t i = 0; i < program_length(p); i++) {
    motet_instruction *x = &p->instructions[i];
    if (collects(x) && x->peer == g && (all || one_in(random, 2))) x->peer = fresh;
  }
  if (one_in(random, 3)) p->stages[below(random, p->stage_count)].group = fresh;
  return true;
}

/* A layer goes to the stage behind or before. None is emptied: which module reads what an empty stage loads, no
 * table says. */
static bool move_boundary(motet_program *p, mt_random *random) {
  motet_program_stage *stage = &p->stages[below(random, p->stage_count)];
  int32_t end = stage->layer_end, by = one_in(random, 2) ? 1 : -1;
  stage->layer_end += by;
  if (stage->layer_end == stage->layer_begin) return false;
  for (int32_t i = 0; i < p->stage_count; i++)
    if (&p->stages[i] != stage && p->stages[i].layer_begin == end && p->stages[i].layer_end > end)
      p->stages[i].layer_begin += by;
  for (int32_t i = 0; i < p->stage_count && by > 0; i++)
    if (p->stages[i].layer_begin == p->stages[i].layer_end && p->stages[i].layer_end == end + 1) return false;
  return true;
}

/* An edge ends or begins elsewhere, with all that names it; or its activations and gradients change roles. */
static bool change_edge(motet_program *p, mt_random *random) {
  if (p->edge_count == 0) return false;
  int32_t e = below32(random, p->edge_count), stage = below32(random, p->stage_count);
  int64_t what = below(random, 3);
  if (what == 0) p->edges[e].to = stage;
  if (what == 1) p->edges[e].from = stage;
  for (int64_t i = 0; i < p->buffer_count; i++) {
    motet_buffer *buffer = &p->buffers[i];
    if (buffer->kind > MOTET_BUFFER_GRADIENT || buffer->edge != e) continue;
    if (what == 1) buffer->stage = stage;
    if (what == 2) buffer->kind = MOTET_BUFFER_GRADIENT - buffer->kind;
  }
  for (int64_t i = 0; i < program_length(p) && what == 1; i++) {
    motet_instruction *x = &p->instructions[i];
    if (transfers(x) && p->buffers[x->buffer].edge == e) x->stage = stage;
  }
  return true;
}

/* A microbatch loses a module's data, or has them from a cache; what lies in the module's stages goes with them. */
static bool drop_data(motet_program *p, mt_random *random) {
  int32_t m = below32(random, p->microbatch_count), j = below32(random, p->module_count);
  if (one_in(random, 2))
    p->microbatches[m].present &= ~(UINT64_C(1) << j);
  else
    p->microbatches[m].cached |= UINT64_C(1) << j;
  for (int64_t i = program_length(p) - 1; i >= 0; i--) {
    const motet_instruction *x = &p->instructions[i];
    if (x->microbatch != m || x->stage < 0) continue;
    const motet_program_stage *stage = &p->stages[x->stage];
    if (stage->layer_begin >= p->modules[j].layer_begin && stage->layer_end <= p->modules[j].layer_end)
      program_remove(p, i);
  }
  return true;
}

/* A stage freezes: its reduces go, and its backwards become input gradients, go, or stay. */
static bool freeze(motet_program *p, mt_random *random) {
  int32_t s = below32(random, p->stage_count);
  for (int32_t l = p->stages[s].layer_begin; l < p->stages[s].layer_end; l++) p->layer_trainable[l] = 0;
  int64_t how = below(random, 3);
  for (int64_t i = program_length(p) - 1; i >= 0; i--) {
    motet_instruction *x = &p->instructions[i];
    bool reduce = collects(x) && p->buffers[x->buffer].stage == s;
    bool backward = x->stage == s && (x->kind == MOTET_BWD || x->kind == MOTET_BWD_X || x->kind == MOTET_RECOMPUTE);
    if (reduce || (x->stage == s && x->kind == MOTET_BWD_W) || (backward && how == 0))
      program_remove(p, i);
    else if (x->stage == s && x->kind == MOTET_BWD && how == 1)
      x->kind = MOTET_BWD_X;
  }
  return true;
}

static bool change_tie(motet_program *p, mt_random *random) {
  if (p->tie_count == 0) return false;
  motet_tie *tie = &p->ties[below(random, p->tie_count)];
  int32_t first = tie->first_stage;
  tie->first_stage = one_in(random, 2) ? tie->second_stage : below32(random, p->stage_count);
  if (tie->first_stage == tie->second_stage) tie->second_stage = first;
  return true;
}

static bool drop_one(motet_program *p, mt_random *random) {
  program_remove(p, below(random, program_length(p)));
  return true;
}

static const struct {
  const char *name;
  bool (*change)(motet_program *program, mt_random *random);
} changes[] = {
    {"shift", shift},
    {"rotate a block", rotate_block},
    {"split a backward", split_backward},
    {"join a backward", join_backward},
    {"add moves", add_moves},
    {"exchange transfers", exchange_transfers},
    {"exchange buffers", exchange_buffers},
    {"rename microbatches", rename_microbatches},
    {"rename stages", rename_stages},
    {"exchange ranks", exchange_ranks},
    {"scatter a reduce", scatter_reduce},
    {"change a group", change_group},
    {"copy a group", copy_group},
    {"move a boundary", move_boundary},
    {"change an edge", change_edge},
    {"drop data", drop_data},
    {"freeze", freeze},
    {"change a tie", change_tie},
    {"drop", drop_one},
};
enum { CHANGES = sizeof changes / sizeof changes[0] };

static int made[CHANGES], accepted[CHANGES];

/* Takes over @p program. */
static void walk(motet_program *program, mt_random *random, const char *origin, uint64_t seed) {
  char reason[RUN_REASON_SIZE];
  motet_error error;
  for (int step = 0; step < STEPS; step++) {
    motet_program *next = program_copy(program);
    int64_t kind = below(random, CHANGES);
    if (changes[kind].change(next, random)) {
      made[kind]++;
      bool accepts = motet_verify(next, NULL, &error, NULL) == MOTET_OK;
      if (accepts && !program_runs(next, reason))
        fail_msg("%s %llu, step %d: accepted after '%s': %s", origin, (unsigned long long)seed, step,
                 changes[kind].name, reason);
      if (accepts) {
        accepted[kind]++;
        motet_program *before = program;
        program = next;
        next = before;
      }
    }
    program_free(next);
  }
  program_free(program);
}

static void test_what_is_accepted_comes_out_right(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < WALKS; seed++) {
    mt_random random = mt_random_stream(seed, "walks");
    char schedule[PLAN_TEXT_SIZE];
    motet_error error;
    walk(program_draw(&random), &random, "drawn", seed);
    motet_program *plan = plan_draw_program(&random, schedule, &error);
    if (plan != NULL) walk(program_copy(plan), &random, "plan", seed);
    motet_program_destroy(plan);
  }
  print_message("%-22s %8s %9s\n", "change", "made", "accepted");
  for (int kind = 0; kind < CHANGES; kind++)
    print_message("%-22s %8d %9d\n", changes[kind].name, made[kind], accepted[kind]);
  for (int kind = 0; kind < CHANGES; kind++) assert_true(accepted[kind] > 0 && accepted[kind] < made[kind]);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_what_is_accepted_comes_out_right)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
