/* Programs made by hand for the tests of the sim and report floors: a builder that appends instructions, and the
 * textbook orders with their transfers. */
#ifndef TESTS_SIM_BUILDER_H
#define TESTS_SIM_BUILDER_H

#include "base/arena.h"
#include "base/array.h"
#include "base/random.h"
#include "cost/table.h"
#include "motet/program.h"
#include "sim/simulate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* cmocka's assert_float_equal compares in single precision. */
#define ASSERT_CLOSE(value, expected, tolerance)                                                                   \
  do {                                                                                                             \
    double value_ = (value), expected_ = (expected);                                                               \
    if (!(fabs(value_ - expected_) <= (tolerance)))                                                                \
      fail_msg("%s is %.17g and should be %.17g", #value, value_, expected_);                                      \
  } while (0)
#define ASSERT_NEAR(value, expected) ASSERT_CLOSE(value, expected, 1e-9)

enum { BUILDER_RANKS = 16 };

typedef struct builder {
  motet_program program;
  mt_arena *arena;
  mt_cost_table costs;
  int32_t *stage_rank; /* [stages] rank inside a replica, for the chain orders below */
  MT_ARRAY(motet_instruction) lists[BUILDER_RANKS];
  MT_ARRAY(motet_instruction) receives[BUILDER_RANKS]; /* put in front of the lists */
  MT_ARRAY(motet_buffer) buffers;
  MT_ARRAY(motet_group) groups;
  MT_ARRAY(int32_t) group_ranks;
  MT_ARRAY(motet_program_edge) edges;
} builder;

static inline int32_t builder_group(builder *b, const int32_t *ranks, int32_t count) {
  (void)MT_ARRAY_PUSH(&b->groups, (motet_group){(int64_t)b->group_ranks.count, count});
  for (int32_t i = 0; i < count; i++) (void)MT_ARRAY_PUSH(&b->group_ranks, ranks[i]);
  return (int32_t)b->groups.count - 1;
}

/* One sharded region of `stages` stages; group 0 is all ranks, and every stage's until told otherwise. */
static inline void builder_begin(builder *b, int32_t ranks, int32_t replicas, int32_t stages,
                                 int32_t microbatches) {
  *b = (builder){.arena = mt_arena_create()};
  motet_program *p = &b->program;
  p->ranks = ranks;
  p->replicas = replicas;
  p->schedule = "";
  p->stage_count = stages;
  p->microbatch_count = microbatches;
  p->stages = MT_ARENA_NEW(b->arena, motet_program_stage, stages);
  p->regions = MT_ARENA_NEW(b->arena, motet_program_region, 2);
  p->regions[0] = (motet_program_region){"llm", "1f1b", false};
  p->regions[1] = (motet_program_region){"vision", "transpose", true};
  p->region_count = 2;
  p->module_count = 1;
  p->modules = MT_ARENA_NEW(b->arena, motet_program_module, 1);
  p->modules[0] = (motet_program_module){"llm", 0, stages};
  p->layer_count = stages;
  p->layer_trainable = MT_ARENA_NEW(b->arena, uint8_t, stages);
  memset(p->layer_trainable, 1, (size_t)stages);
  p->range_count = 1;
  p->ranges = MT_ARENA_NEW(b->arena, motet_range, 1);
  p->ranges[0] = (motet_range){.begin = 0, .end = -1};
  p->static_bytes = MT_ARENA_NEW(b->arena, int64_t, stages);
  p->microbatches = MT_ARENA_NEW(b->arena, motet_program_microbatch, microbatches);
  for (int32_t m = 0; m < microbatches; m++) {
    p->microbatches[m].replica = m / (microbatches / replicas);
    p->microbatches[m].present = 1;
  }
  b->stage_rank = MT_ARENA_NEW(b->arena, int32_t, stages);
  for (int32_t s = 0; s < stages; s++) b->stage_rank[s] = s % (ranks / replicas);
  int32_t all[BUILDER_RANKS];
  for (int32_t r = 0; r < ranks; r++) all[r] = r;
  builder_group(b, all, ranks);
  for (int32_t s = 0; s < stages; s++)
    p->stages[s] = (motet_program_stage){.slab = s, .layer_begin = s, .layer_end = s + 1, .share = 1.0};
  for (int kind = 0; kind < MT_COST_KINDS; kind++) {
    b->costs.seconds[kind].values = MT_ARENA_NEW(b->arena, double, stages *microbatches);
    b->costs.seconds[kind].stage_stride = microbatches;
    b->costs.seconds[kind].microbatch_stride = 1;
  }
}

static inline void builder_cost(builder *b, mt_cost_kind kind, int32_t stage, double seconds) {
  for (int32_t m = 0; m < b->program.microbatch_count; m++)
    b->costs.seconds[kind].values[stage * b->program.microbatch_count + m] = seconds;
}

static inline void builder_cost_all(builder *b, double forward, double backward) {
  for (int32_t s = 0; s < b->program.stage_count; s++) {
    builder_cost(b, MT_COST_FORWARD, s, forward);
    builder_cost(b, MT_COST_BACKWARD, s, backward);
  }
}

static inline void builder_add(builder *b, int32_t rank, int kind, int flags, int32_t stage, int32_t microbatch,
                               int32_t buffer, int32_t peer) {
  (void)MT_ARRAY_PUSH(&b->lists[rank], (motet_instruction){.kind = (uint8_t)kind,
                                                           .flags = (uint8_t)flags,
                                                           .stage = stage,
                                                           .microbatch = microbatch,
                                                           .buffer = buffer,
                                                           .peer = peer});
}

static inline void builder_compute(builder *b, int32_t rank, int kind, int32_t stage, int32_t microbatch) {
  builder_add(b, rank, kind, 0, stage, microbatch, -1, -1);
}

static inline int32_t builder_edge(builder *b, int32_t from, int32_t to) {
  for (size_t i = 0; i < b->edges.count; i++)
    if (b->edges.data[i].from == from && b->edges.data[i].to == to) return (int32_t)i;
  (void)MT_ARRAY_PUSH(&b->edges, (motet_program_edge){from, to});
  return (int32_t)b->edges.count - 1;
}

static inline int32_t builder_buffer(builder *b, int kind, int32_t stage, int32_t edge, int32_t microbatch,
                                     int64_t bytes) {
  for (size_t i = 0; i < b->buffers.count; i++) {
    motet_buffer *buffer = &b->buffers.data[i];
    if (buffer->kind == kind && buffer->edge == edge && buffer->microbatch == microbatch && buffer->stage == stage)
      return (int32_t)i;
  }
  (void)MT_ARRAY_PUSH(&b->buffers, (motet_buffer){kind, stage, edge, microbatch, 0, 0, bytes});
  return (int32_t)b->buffers.count - 1;
}

static inline void builder_collective(builder *b, int kind, int32_t group, int32_t stage, int32_t buffer) {
  for (int32_t i = 0; i < b->groups.data[group].count; i++)
    builder_add(b, b->group_ranks.data[b->groups.data[group].first + i], kind, 0, stage, -1, buffer, group);
}

static inline motet_program *builder_end(builder *b) {
  motet_program *p = &b->program;
  int64_t total = 0;
  p->rank_begin = MT_ARENA_NEW(b->arena, int64_t, p->ranks + 1);
  for (int32_t r = 0; r < p->ranks; r++)
    p->rank_begin[r + 1] = total += (int64_t)(b->receives[r].count + b->lists[r].count);
  p->instructions = MT_ARENA_NEW(b->arena, motet_instruction, total);
  for (int32_t r = 0; r < p->ranks; r++) {
    motet_instruction *list = p->instructions + p->rank_begin[r];
    for (size_t i = 0; i < b->receives[r].count; i++) *list++ = b->receives[r].data[i];
    for (size_t i = 0; i < b->lists[r].count; i++) *list++ = b->lists[r].data[i];
  }
  p->buffers = b->buffers.data;
  p->buffer_count = (int64_t)b->buffers.count;
  p->groups = b->groups.data;
  p->group_count = (int32_t)b->groups.count;
  p->group_rank_count = (int64_t)b->group_ranks.count;
  p->group_ranks = b->group_ranks.data;
  p->edges = b->edges.data;
  p->edge_count = (int32_t)b->edges.count;
  return p;
}

static inline void builder_free(builder *b) {
  for (int32_t r = 0; r < BUILDER_RANKS; r++) {
    free(b->lists[r].data);
    free(b->receives[r].data);
  }
  free(b->buffers.data);
  free(b->groups.data);
  free(b->group_ranks.data);
  free(b->edges.data);
  mt_arena_destroy(b->arena);
}

/* --- orders of a chain of P * virtual stages, stage s on rank s mod P unless stage_rank says otherwise ----------
 */

/* Compute of a chain with its transfers: receives posted at the list's begin and waited for right before, sends
 * right after; the sends' waits come last. */
static inline void builder_step(builder *b, int32_t base, int kind, int32_t stage, int32_t microbatch,
                                int64_t bytes) {
  int32_t rank = base + b->stage_rank[stage], stages = b->program.stage_count;
  bool forward = kind == MOTET_FWD;
  int32_t before = forward ? stage - 1 : stage + 1, after = forward ? stage + 1 : stage - 1;
  int buffer_kind = forward ? MOTET_BUFFER_ACTIVATION : MOTET_BUFFER_GRADIENT;
  if (before >= 0 && before < stages && b->stage_rank[before] + base != rank && kind != MOTET_BWD_W) {
    int32_t from = forward ? before : stage;
    int32_t buffer = builder_buffer(b, buffer_kind, from, builder_edge(b, from, from + 1), microbatch, bytes);
    (void)MT_ARRAY_PUSH(&b->receives[rank], (motet_instruction){.kind = MOTET_RECV,
                                                                .stage = from,
                                                                .microbatch = microbatch,
                                                                .buffer = buffer,
                                                                .peer = b->stage_rank[before] + base});
    builder_add(b, rank, MOTET_WAIT, MOTET_FLAG_RECV, from, microbatch, buffer, b->stage_rank[before] + base);
  }
  builder_compute(b, rank, kind, stage, microbatch);
  if (after >= 0 && after < stages && b->stage_rank[after] + base != rank && kind != MOTET_BWD_W) {
    int32_t from = forward ? stage : after;
    int32_t buffer = builder_buffer(b, buffer_kind, from, builder_edge(b, from, from + 1), microbatch, bytes);
    builder_add(b, rank, MOTET_SEND, 0, from, microbatch, buffer, b->stage_rank[after] + base);
  }
}

static inline void builder_send_waits(builder *b) {
  for (int32_t r = 0; r < b->program.ranks; r++)
    for (size_t i = 0, count = b->lists[r].count; i < count; i++) {
      motet_instruction at = b->lists[r].data[i];
      if (at.kind == MOTET_SEND) builder_add(b, r, MOTET_WAIT, 0, at.stage, at.microbatch, at.buffer, at.peer);
    }
}

/* 1F1B, interleaved with virtual > 1 (M a multiple of P), or GPipe, of one replica that starts at rank `base`. */
static inline void builder_pipeline(builder *b, int32_t base, int32_t P, int32_t V, int32_t first, int32_t M,
                                    bool gpipe, int64_t bytes) {
  for (int32_t r = 0; r < P; r++) {
    int32_t total = M * V;
    int32_t warm = V == 1 ? P - r - 1 : 2 * (P - r - 1) + (V - 1) * P;
    if (warm > total || gpipe) warm = total;
    for (int32_t k = 0; k < total + warm; k++) {
      if (k < total) {
        int32_t chunk = V == 1 ? 0 : (k / P) % V, m = V == 1 ? k : k / (P * V) * P + k % P;
        builder_step(b, base, MOTET_FWD, chunk * P + r, first + m, bytes);
      }
      if (k >= warm) {
        int32_t j = k - warm, chunk = V == 1 ? 0 : V - 1 - (j / P) % V, m = V == 1 ? j : j / (P * V) * P + j % P;
        builder_step(b, base, MOTET_BWD, chunk * P + r, first + m, bytes);
      }
    }
  }
}

static inline mt_simulation *builder_simulate(builder *b, motet_program *program) {
  mt_simulation *simulation = NULL;
  motet_error error;
  mt_simulate_options options = {.timeline = true, .attribute = true};
  if (mt_simulate(b->arena, program, &b->costs, &options, &error, &simulation) != MOTET_OK) return NULL;
  return simulation;
}

/* A random program that cannot hang: actions are dealt to the lists in one global order. */
static inline motet_program *builder_random(builder *b, mt_random *random) {
  int32_t ranks = 1 + (int32_t)mt_random_below(random, 8),
          replicas = ranks % 2 == 0 && mt_random_below(random, 2) ? 2 : 1;
  int32_t stages = 1 + (int32_t)mt_random_below(random, 6);
  int32_t microbatches = replicas * (1 + (int32_t)mt_random_below(random, 5));
  builder_begin(b, ranks, replicas, stages, microbatches);
  if (stages > 1 && mt_random_below(random, 2)) b->program.stages[0].region = 1;
  for (int kind = 0; kind < MT_COST_KINDS; kind++)
    for (int32_t i = 0; i < stages * microbatches; i++)
      b->costs.seconds[kind].values[i] = mt_random_below(random, 4) == 0 ? 0.0 : mt_random_unit(random);
  b->costs.links.ranks_per_node = (int32_t)mt_random_below(random, 4);
  b->costs.links.local = (mt_link){mt_random_unit(random) * 0.1, mt_random_below(random, 2) ? 1e9 : 0};
  b->costs.links.remote = (mt_link){mt_random_unit(random) * 0.5, 1e8};
  int32_t some[BUILDER_RANKS], some_count = 0;
  for (int32_t r = 0; r < ranks; r++)
    if (mt_random_below(random, 2)) some[some_count++] = r;
  int32_t group = some_count > 0 ? builder_group(b, some, some_count) : 0;

  typedef struct open_end {
    int32_t rank, buffer, peer, kind, flags;
  } open_end;
  MT_ARRAY(open_end) open = {0};
  int32_t steps = 1 + (int32_t)mt_random_below(random, 300);
  static const int kinds[] = {MOTET_FWD,  MOTET_FWD,   MOTET_BWD,       MOTET_BWD_X, MOTET_BWD_W,
                              MOTET_LOAD, MOTET_FETCH, MOTET_RECOMPUTE, MOTET_OPTIM, MOTET_OFFLOAD};
  for (int32_t step = 0; step < steps; step++) {
    int32_t rank = (int32_t)mt_random_below(random, (uint64_t)ranks);
    int32_t stage = (int32_t)mt_random_below(random, (uint64_t)stages);
    int32_t microbatch = (int32_t)mt_random_below(random, (uint64_t)microbatches);
    uint64_t draw = mt_random_below(random, 20);
    if (draw == 0) {
      int kind = MOTET_REDUCE + (int)mt_random_below(random, 4);
      int32_t buffer = builder_buffer(b, MOTET_BUFFER_WEIGHT_GRADIENT, stage, -1, -1, 1000000 * (stage + 1));
      builder_collective(b, kind, mt_random_below(random, 2) ? group : 0, stage, buffer);
    } else if (draw < 8 && ranks > 1) {
      int32_t peer = (rank + 1 + (int32_t)mt_random_below(random, (uint64_t)ranks - 1)) % ranks;
      /* few buffers, so that the same one travels several times */
      int32_t buffer =
          builder_buffer(b, MOTET_BUFFER_ACTIVATION, 0, 0, microbatch, 5000000 * (int64_t)(microbatch + 1));
      bool send_first = mt_random_below(random, 2) != 0;
      for (int half = 0; half < 2; half++) {
        bool send = (half == 0) == send_first;
        builder_add(b, send ? rank : peer, send ? MOTET_SEND : MOTET_RECV, 0, 0, microbatch, buffer,
                    send ? peer : rank);
        (void)MT_ARRAY_PUSH(&open, (open_end){send ? rank : peer, buffer, send ? peer : rank, MOTET_WAIT,
                                              send ? 0 : MOTET_FLAG_RECV});
      }
    } else if (draw < 14 && open.count > 0) {
      size_t at = (size_t)mt_random_below(random, open.count);
      open_end wait = open.data[at];
      open.data[at] = open.data[--open.count];
      builder_add(b, wait.rank, MOTET_WAIT, wait.flags, 0, b->buffers.data[wait.buffer].microbatch, wait.buffer,
                  wait.peer);
    } else {
      builder_compute(b, rank, kinds[mt_random_below(random, sizeof kinds / sizeof *kinds)], stage, microbatch);
    }
  }
  if (mt_random_below(random, 2)) builder_collective(b, MOTET_STEP_END, 0, -1, -1);
  free(open.data);
  if (b->edges.count == 0) builder_edge(b, 0, stages - 1);
  b->costs.optimizer_seconds = MT_ARENA_NEW(b->arena, double, stages);
  for (int32_t s = 0; s < stages; s++) b->costs.optimizer_seconds[s] = mt_random_unit(random);
  return builder_end(b);
}

#endif
