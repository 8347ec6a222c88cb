/* Right programs at random: a model, a placement, and one global order of events drawn step by step from those that
 * are ready, dealt out to the ranks' lists with the transfers that it needs. */
#include "program_builder.h"

#include <stdlib.h>
#include <string.h>

enum { STAGES_MAX = 32, MICROBATCHES_MAX = 16, EDGES_MAX = 64, RANKS_MAX = 8 };

typedef enum transfer_state { UNSENT, SENT, POSTED, ARRIVED } transfer_state;

typedef struct pending {
  int32_t edge, microbatch, peer;
  bool gradient, done;
} pending;

typedef struct draw {
  mt_random *random;
  program_builder b;
  int32_t pipeline_ranks, microbatches; /* of one replica */
  bool split;                           /* backward in two */
  int32_t stage_rank[STAGES_MAX];       /* pipeline rank of a sharded stage; -1: replicated */
  bool trains[STAGES_MAX], upstream[STAGES_MAX], before[STAGES_MAX];
  int32_t rank[STAGES_MAX][MICROBATCHES_MAX]; /* -1: no work */
  bool carried[STAGES_MAX][MICROBATCHES_MAX];
  bool recompute[STAGES_MAX][MICROBATCHES_MAX], offload[STAGES_MAX][MICROBATCHES_MAX];
  bool forward[STAGES_MAX][MICROBATCHES_MAX], back[STAGES_MAX][MICROBATCHES_MAX];
  bool weights[STAGES_MAX][MICROBATCHES_MAX];
  int32_t behind[STAGES_MAX][MICROBATCHES_MAX]; /* joined behind it, plus one; 0: none */
  bool inside[STAGES_MAX][MICROBATCHES_MAX];    /* joined behind another */
  transfer_state state[2][EDGES_MAX][MICROBATCHES_MAX];
  MT_ARRAY(pending) sent[RANKS_MAX][RANKS_MAX]; /* by source and destination, in order */
  size_t posted[RANKS_MAX][RANKS_MAX];
} draw;

static int32_t below(draw *d, int32_t bound) { return (int32_t)mt_random_below(d->random, (uint64_t)bound); }
static bool chance(draw *d, int32_t percent) { return below(d, 100) < percent; }

/* Modules 0.. in forward order; every encoder feeds the trunk, the generator hangs off it. Returns the trunk. */
static int32_t draw_model(draw *d) {
  program_builder *b = &d->b;
  int32_t encoders = below(d, 3);
  bool generator = chance(d, 20), projector = encoders > 0 && chance(d, 30);
  static const char *const names[] = {"vision", "audio"};
  for (int32_t i = 0; i < encoders; i++) builder_module(b, names[i], 1 + below(d, 3), false);
  if (projector) builder_module(b, "projector", 1, false);
  int32_t trunk = builder_module(b, "llm", 1 + below(d, 6), false);
  for (int32_t i = 0; i < trunk; i++) {
    bool feeds_projector = projector && i == encoders - 1;
    builder_module_edge(b, i, feeds_projector ? i + 1 : trunk);
  }
  if (generator) {
    builder_module(b, "generator", 1 + below(d, 3), false);
    builder_module_edge(b, trunk, trunk + 1);
  }
  /* Trainable layers: none, all, by module, or any. */
  int32_t manner = below(d, 5);
  for (size_t i = 0; i < b->modules.count; i++) {
    bool module_trains = chance(d, 50);
    for (int32_t layer = b->modules.data[i].layer_begin; layer < b->modules.data[i].layer_end; layer++)
      b->layers.data[layer] = manner == 0   ? chance(d, 10)
                              : manner == 1 ? 1
                              : manner == 2 ? chance(d, 50)
                                            : module_trains;
  }
  return trunk;
}

/* Group of the ranks at one place of every replica. */
static int32_t replica_group(draw *d, int32_t pipeline_rank) {
  int32_t ranks[RANKS_MAX];
  for (int32_t i = 0; i < d->b.replicas; i++) ranks[i] = i * d->pipeline_ranks + pipeline_rank;
  return builder_group(&d->b, d->b.replicas, ranks);
}

static void add_sharded(draw *d, int32_t layer_begin, int32_t layer_end, const char *name) {
  int32_t chunks = 1 + below(d, 2), slabs = d->pipeline_ranks * chunks, region = builder_region(&d->b, name, false);
  bool v_shaped = chance(d, 50);
  int32_t cuts[STAGES_MAX];
  cuts[0] = layer_begin;
  for (int32_t i = 1; i < slabs; i++) {
    int32_t even = layer_begin + (layer_end - layer_begin) * i / slabs;
    cuts[i] = chance(d, 30) ? cuts[i - 1] : even < cuts[i - 1] ? cuts[i - 1] : even;
  }
  cuts[slabs] = layer_end;
  int32_t groups[RANKS_MAX];
  for (int32_t i = 0; i < d->pipeline_ranks; i++) groups[i] = replica_group(d, i);
  for (int32_t i = 0; i < slabs; i++) {
    int32_t turn = i % d->pipeline_ranks;
    int32_t rank = v_shaped && i / d->pipeline_ranks % 2 == 1 ? d->pipeline_ranks - 1 - turn : turn;
    int32_t stage = builder_stage(&d->b, region, i, cuts[i], cuts[i + 1], groups[rank]);
    d->b.stages.data[stage].share = 1.0 / chunks;
    d->stage_rank[stage] = rank;
    if (i > 0) builder_edge(&d->b, stage - 1, stage);
  }
}

static void add_replicated(draw *d, int32_t layer_begin, int32_t layer_end, const char *name) {
  int32_t region = builder_region(&d->b, name, true);
  d->stage_rank[builder_stage(&d->b, region, 0, layer_begin, layer_end, 0)] = -1;
}

/* Regions: each encoder, with its projector, replicated, sharded or on the trunk's first slab. */
static void draw_placement(draw *d, int32_t trunk) {
  program_builder *b = &d->b;
  int32_t first[8], last[8], region_of[8], modules = (int32_t)b->modules.count, inline_from = trunk;
  bool on_trunk = chance(d, 20); /* the module right before the trunk rides along */
  if (on_trunk && trunk > 0) inline_from = trunk - 1;
  for (int32_t i = 0; i < modules; i++) {
    int32_t begin = b->modules.data[i].layer_begin, end = b->modules.data[i].layer_end,
            start = (int32_t)b->stages.count;
    if (i >= inline_from && i < trunk) continue;
    bool with_projector = i + 1 < inline_from && strcmp(b->modules.data[i + 1].name, "projector") == 0;
    if (with_projector) end = b->modules.data[i + 1].layer_end;
    if (i == trunk) begin = b->modules.data[inline_from].layer_begin;
    if (i == trunk || chance(d, 30)) {
      add_sharded(d, begin, end, b->modules.data[i].name);
    } else {
      add_replicated(d, begin, end, b->modules.data[i].name);
    }
    if (i == trunk && inline_from < trunk) { /* what rides along lies whole on the first slab, with a layer of it */
      int32_t need = b->modules.data[trunk].layer_begin + 1;
      for (size_t s = (size_t)start; s < b->stages.count; s++) {
        motet_program_stage *stage = &b->stages.data[s];
        if (s == (size_t)start && stage->layer_end < need) stage->layer_end = need;
        if (s > (size_t)start && stage->layer_begin < need) stage->layer_begin = need;
        if (stage->layer_end < stage->layer_begin) stage->layer_end = stage->layer_begin;
      }
    }
    for (int32_t j = i; j <= (with_projector ? i + 1 : i); j++) {
      first[j] = start;
      last[j] = (int32_t)b->stages.count - 1;
      region_of[j] = b->stages.data[start].region;
    }
    if (with_projector) i++;
  }
  for (int32_t i = inline_from; i < trunk; i++) {
    first[i] = last[i] = first[trunk];
    region_of[i] = region_of[trunk];
  }
  for (size_t i = 0; i < b->module_edges.count; i++) {
    motet_module_edge edge = b->module_edges.data[i];
    if (region_of[edge.from] == region_of[edge.to]) continue;
    bool known = false; /* two modules of one stage may feed the same stage: one edge */
    for (size_t j = 0; j < b->edges.count; j++)
      known = known || (b->edges.data[j].from == last[edge.from] && b->edges.data[j].to == first[edge.to]);
    if (!known) builder_edge(b, last[edge.from], first[edge.to]);
  }
  for (size_t i = 0; i < b->stages.count; i++) {
    bool source = true;
    for (size_t j = 0; j < b->edges.count; j++) source = source && b->edges.data[j].to != (int32_t)i;
    if (source) b->stages.data[i].inputs = MOTET_INPUT_PIXELS;
  }
  b->stages.data[last[trunk]].inputs |= MOTET_INPUT_LABELS;
}

static bool has_work(const draw *d, size_t stage, int32_t microbatch) {
  const program_builder *b = &d->b;
  const motet_program_stage *entry = &b->stages.data[stage];
  uint64_t modules = 0;
  for (size_t s = 0; s < b->stages.count; s++) {
    const motet_program_stage *other = &b->stages.data[s];
    if (entry->layer_begin != entry->layer_end && s != stage) continue;
    if (other->region != entry->region) continue;
    for (size_t i = 0; i < b->modules.count; i++) {
      const motet_program_module *module = &b->modules.data[i];
      if (module->layer_begin < other->layer_end && other->layer_begin < module->layer_end)
        modules |= UINT64_C(1) << i;
    }
  }
  const motet_program_microbatch *data = &b->microbatches.data[microbatch];
  return (modules & data->present & ~data->cached) != 0;
}

static void draw_data(draw *d, int32_t trunk) {
  program_builder *b = &d->b;
  uint64_t all = (UINT64_C(1) << b->modules.count) - 1, always = UINT64_C(1) << trunk;
  for (int32_t replica = 0; replica < b->replicas; replica++) {
    for (int32_t i = 0; i < d->microbatches; i++) {
      uint64_t present = chance(d, 60) ? all : (mt_random_bits(d->random) & all) | always;
      uint64_t cached = chance(d, 90) ? 0 : mt_random_bits(d->random) & present & ~always;
      builder_microbatch(b, replica, present, cached);
    }
  }
  for (size_t s = 0; s < b->stages.count; s++) {
    const motet_program_stage *stage = &b->stages.data[s];
    for (int32_t layer = stage->layer_begin; layer < stage->layer_end; layer++)
      d->trains[s] = d->trains[s] || b->layers.data[layer] != 0;
  }
  for (size_t s = 0; s < b->stages.count; s++) { /* edges go up */
    for (size_t e = 0; e < b->edges.count; e++)
      d->before[s] = d->before[s] || (b->edges.data[e].to == (int32_t)s && d->upstream[b->edges.data[e].from]);
    d->upstream[s] = d->trains[s] || d->before[s];
    for (int32_t m = 0; m < (int32_t)b->microbatches.count; m++) {
      int32_t place = d->stage_rank[s] >= 0 ? d->stage_rank[s] : below(d, d->pipeline_ranks);
      d->rank[s][m] = has_work(d, s, m) ? m / d->microbatches * d->pipeline_ranks + place : -1;
      if (d->rank[s][m] < 0) continue;
      d->recompute[s][m] = d->upstream[s] && chance(d, 5);
      d->offload[s][m] = d->upstream[s] && !d->recompute[s][m] && chance(d, 5);
      bool source = (b->stages.data[s].inputs & MOTET_INPUT_PIXELS) != 0;
      if (source && !d->upstream[s] && d->stage_rank[s] < 0 && chance(d, 10)) {
        d->carried[s][m] = true;
        motet_carried entry = {(int32_t)s, m, d->rank[s][m]};
        if (!MT_ARRAY_PUSH(&b->carried, entry)) abort();
      }
    }
  }
}

/* Posts the receives of a channel in the order of its sends, up to and with the @p wanted one. */
static void post_receives(draw *d, int32_t source, int32_t destination, size_t until) {
  for (; d->posted[source][destination] < until; d->posted[source][destination]++) {
    const pending *sent = &d->sent[source][destination].data[d->posted[source][destination]];
    builder_transfer(&d->b, destination, MOTET_RECV, 0, sent->edge, sent->microbatch, sent->gradient, source);
    d->state[sent->gradient][sent->edge][sent->microbatch] = POSTED;
  }
}

static void bring(draw *d, int32_t edge, int32_t microbatch, bool gradient, int32_t source, int32_t destination) {
  size_t i = d->posted[source][destination];
  if (d->state[gradient][edge][microbatch] == SENT) {
    for (;; i++) {
      const pending *sent = &d->sent[source][destination].data[i];
      if (sent->edge == edge && sent->microbatch == microbatch && sent->gradient == gradient) break;
    }
    post_receives(d, source, destination, i + 1);
  }
  builder_transfer(&d->b, destination, MOTET_WAIT, MOTET_FLAG_RECV, edge, microbatch, gradient, source);
  d->state[gradient][edge][microbatch] = ARRIVED;
}

static void post_send(draw *d, int32_t edge, int32_t microbatch, bool gradient, int32_t source,
                      int32_t destination) {
  builder_transfer(&d->b, source, MOTET_SEND, 0, edge, microbatch, gradient, destination);
  pending sent = {.edge = edge, .microbatch = microbatch, .peer = destination, .gradient = gradient};
  if (!MT_ARRAY_PUSH(&d->sent[source][destination], sent)) abort();
  d->state[gradient][edge][microbatch] = SENT;
}

/* WAITs of a rank for sends whose receive is posted, each with a chance. */
static void wait_sends(draw *d, int32_t rank, int32_t percent) {
  for (int32_t peer = 0; peer < d->b.ranks; peer++) {
    for (size_t i = 0; i < d->posted[rank][peer]; i++) {
      pending *sent = &d->sent[rank][peer].data[i];
      if (sent->done || !chance(d, percent)) continue;
      builder_transfer(&d->b, rank, MOTET_WAIT, 0, sent->edge, sent->microbatch, sent->gradient, peer);
      sent->done = true;
    }
  }
}

/* Brings what came in over in-edges (forward) or out-edges (backward), or sends what goes out. */
static void exchange(draw *d, int32_t stage, int32_t microbatch, bool gradient, bool incoming) {
  int32_t here = d->rank[stage][microbatch];
  for (int32_t e = 0; e < (int32_t)d->b.edges.count; e++) {
    motet_program_edge edge = d->b.edges.data[e];
    bool ours = gradient == incoming ? edge.from == stage : edge.to == stage;
    int32_t other = edge.from == stage ? edge.to : edge.from, there = d->rank[other][microbatch];
    if (!ours || there < 0 || there == here || (gradient && !d->upstream[edge.from])) continue;
    if (incoming) {
      bring(d, e, microbatch, gradient, there, here);
    } else {
      post_send(d, e, microbatch, gradient, here, there);
    }
  }
}

static bool ready_forward(const draw *d, int32_t stage, int32_t microbatch) {
  if (d->rank[stage][microbatch] < 0 || d->forward[stage][microbatch]) return false;
  for (size_t e = 0; e < d->b.edges.count; e++) {
    motet_program_edge edge = d->b.edges.data[e];
    if (edge.to == stage && d->rank[edge.from][microbatch] >= 0 && !d->forward[edge.from][microbatch]) return false;
  }
  return true;
}

static bool ready_backward(const draw *d, int32_t stage, int32_t microbatch) {
  int32_t behind = d->behind[stage][microbatch];
  if (behind > 0 && !ready_backward(d, stage, behind - 1)) return false;
  if (!d->upstream[stage] || !d->forward[stage][microbatch] || d->back[stage][microbatch]) return false;
  for (size_t e = 0; e < d->b.edges.count; e++) {
    motet_program_edge edge = d->b.edges.data[e];
    if (edge.from == stage && d->rank[edge.to][microbatch] >= 0 && !d->back[edge.to][microbatch]) return false;
  }
  return true;
}

static bool ready_weights(const draw *d, int32_t stage, int32_t microbatch) {
  return d->split && d->trains[stage] && d->back[stage][microbatch] && !d->weights[stage][microbatch];
}

/* Walks a run, from its first microbatch on. */
#define FOR_RUN(d, s, first, m)                                                                                    \
  for (int32_t m = (first), m##_behind; m >= 0 && (m##_behind = (d)->behind[s][m], true); m = m##_behind - 1)

/* Now and then others whose forward is ready on the same rank are computed together with @p first. Whether a run is
 * computed again is a matter of the whole. */
static void draw_run(draw *d, int32_t s, int32_t first) {
  int32_t microbatches = (int32_t)d->b.microbatches.count, start = below(d, microbatches), last = first;
  if (!chance(d, 30)) return;
  for (int32_t i = 0; i < microbatches; i++) {
    int32_t m = (start + i) % microbatches;
    if (m == first || d->rank[s][m] != d->rank[s][first] || d->carried[s][m] || !ready_forward(d, s, m) ||
        !chance(d, 70))
      continue;
    d->behind[s][last] = m + 1;
    d->inside[s][m] = true;
    d->recompute[s][m] = d->recompute[s][first];
    d->offload[s][m] = d->offload[s][m] && !d->recompute[s][m];
    last = m;
  }
}

static void emit_run(draw *d, motet_instruction_kind kind, int32_t s, int32_t first) {
  FOR_RUN(d, s, first, m) {
    builder_compute(&d->b, d->rank[s][m], kind, s, m);
    if (d->behind[s][m] > 0) builder_join(&d->b, d->rank[s][m]);
  }
}

static void emit_forward(draw *d, int32_t s, int32_t first) {
  int32_t rank = d->rank[s][first];
  if (d->carried[s][first]) {
    d->forward[s][first] = true;
    exchange(d, s, first, false, false);
    return;
  }
  draw_run(d, s, first);
  FOR_RUN(d, s, first, m) {
    if (d->b.stages.data[s].inputs != 0) builder_compute(&d->b, rank, MOTET_LOAD, s, m);
    exchange(d, s, m, false, true);
  }
  emit_run(d, MOTET_FWD, s, first);
  FOR_RUN(d, s, first, m) {
    d->forward[s][m] = true;
    if (d->offload[s][m]) builder_compute(&d->b, rank, MOTET_OFFLOAD, s, m);
    exchange(d, s, m, false, false);
  }
}

static void emit_backward(draw *d, int32_t s, int32_t first) {
  int32_t rank = d->rank[s][first];
  if (d->recompute[s][first]) emit_run(d, MOTET_RECOMPUTE, s, first);
  FOR_RUN(d, s, first, m) {
    if (d->offload[s][m]) builder_compute(&d->b, rank, MOTET_FETCH, s, m);
    exchange(d, s, m, true, true);
  }
  emit_run(d, d->split || !d->trains[s] ? MOTET_BWD_X : MOTET_BWD, s, first);
  FOR_RUN(d, s, first, m) {
    d->back[s][m] = true;
    exchange(d, s, m, true, false);
  }
}

static void emit_weights(draw *d, int32_t s, int32_t first) {
  emit_run(d, MOTET_BWD_W, s, first);
  FOR_RUN(d, s, first, m) d->weights[s][m] = true;
}

/* One ready event, drawn evenly; false when all is done. */
static bool emit_event(draw *d) {
  int32_t chosen_stage = -1, chosen_microbatch = -1, chosen_kind = 0, seen = 0;
  for (int32_t s = 0; s < (int32_t)d->b.stages.count; s++) {
    for (int32_t m = 0; m < (int32_t)d->b.microbatches.count; m++) {
      bool first = !d->inside[s][m];
      bool ready[3] = {ready_forward(d, s, m), first && ready_backward(d, s, m), first && ready_weights(d, s, m)};
      for (int32_t kind = 0; kind < 3; kind++) {
        if (!ready[kind] || below(d, ++seen) != 0) continue;
        chosen_stage = s;
        chosen_microbatch = m;
        chosen_kind = kind;
      }
    }
  }
  if (seen == 0) return false;
  int32_t s = chosen_stage, m = chosen_microbatch, rank = d->rank[s][m];
  wait_sends(d, rank, 30);
  if (chosen_kind == 0) emit_forward(d, s, m);
  if (chosen_kind == 1) emit_backward(d, s, m);
  if (chosen_kind == 2) emit_weights(d, s, m);
  /* Now and then some rank posts receives ahead of their use. */
  int32_t source = below(d, d->b.ranks), destination = below(d, d->b.ranks);
  if (chance(d, 30)) post_receives(d, source, destination, d->sent[source][destination].count);
  return true;
}

static bool holds(const draw *d, int32_t group, int32_t rank) {
  for (int32_t i = 0; i < d->b.groups.data[group].count; i++) {
    if (d->b.group_ranks.data[d->b.groups.data[group].first + i] == rank) return true;
  }
  return false;
}

/* Ties the trunk's first and last layer where both lie in stages of their own; returns the group, or -1. */
static int32_t draw_tie(draw *d, int32_t trunk) {
  program_builder *b = &d->b;
  int32_t first = -1, last = -1, ranks[RANKS_MAX], count = 0;
  for (int32_t s = 0; s < (int32_t)b->stages.count; s++) {
    const motet_program_stage *stage = &b->stages.data[s];
    if (stage->layer_begin <= b->modules.data[trunk].layer_begin &&
        b->modules.data[trunk].layer_begin < stage->layer_end)
      first = s;
    if (stage->layer_begin < b->modules.data[trunk].layer_end &&
        b->modules.data[trunk].layer_end == stage->layer_end)
      last = s;
  }
  if (first == last || !chance(d, 30)) return -1;
  uint8_t trains = b->layers.data[b->modules.data[trunk].layer_end - 1];
  if (b->layers.data[b->modules.data[trunk].layer_begin] != trains) return -1;
  if (!MT_ARRAY_PUSH(&b->ties, (motet_tie){first, last, 64})) abort();
  for (int32_t rank = 0; rank < b->ranks; rank++) {
    if (holds(d, b->stages.data[first].group, rank) || holds(d, b->stages.data[last].group, rank))
      ranks[count++] = rank;
  }
  return trains != 0 && count > 1 ? builder_group(b, count, ranks) : -1;
}

static void emit_end(draw *d, int32_t trunk) {
  program_builder *b = &d->b;
  for (int32_t source = 0; source < b->ranks; source++) {
    for (int32_t destination = 0; destination < b->ranks; destination++)
      post_receives(d, source, destination, d->sent[source][destination].count);
  }
  for (int32_t rank = 0; rank < b->ranks; rank++) wait_sends(d, rank, 100);
  int32_t tied = draw_tie(d, trunk);
  for (int32_t rank = 0; rank < b->ranks; rank++) {
    for (int32_t s = 0; s < (int32_t)b->stages.count; s++) {
      int32_t group = b->stages.data[s].group;
      if (d->trains[s] && b->groups.data[group].count > 1 && holds(d, group, rank))
        builder_reduce(b, rank, s, -1, group);
    }
    if (tied >= 0 && holds(d, tied, rank)) builder_reduce(b, rank, -1, 0, tied);
  }
  for (size_t i = 0, end; i < b->carried.count; i = end) { /* and the same for the next step, some together */
    motet_carried first = b->carried.data[i];
    for (end = i + 1; end < b->carried.count && chance(d, 50); end++)
      if (b->carried.data[end].stage != first.stage || b->carried.data[end].rank != first.rank) break;
    for (size_t k = i; k < end; k++)
      builder_compute_next(b, first.rank, MOTET_LOAD, first.stage, b->carried.data[k].microbatch);
    for (size_t k = i; k < end; k++) {
      builder_compute_next(b, first.rank, MOTET_FWD, first.stage, b->carried.data[k].microbatch);
      if (k + 1 < end) builder_join(b, first.rank);
    }
  }
  builder_end(b);
}

motet_program *program_draw(mt_random *random) {
  draw *d = calloc(1, sizeof *d);
  if (d == NULL) abort();
  d->random = random;
  d->pipeline_ranks = 1 + below(d, 4);
  int32_t replicas = 1 + below(d, 2);
  d->microbatches = 1 + below(d, replicas == 1 ? 6 : 4);
  d->split = chance(d, 40);
  builder_start(&d->b, d->pipeline_ranks * replicas, replicas);
  d->b.static_bytes = below(d, 100);
  d->b.saved_bytes = below(d, 100);
  d->b.output_bytes = 1 + below(d, 50);
  d->b.bytes_step = below(d, 5);
  int32_t trunk = draw_model(d);
  draw_placement(d, trunk);
  draw_data(d, trunk);
  while (emit_event(d)) continue;
  emit_end(d, trunk);
  motet_program *program = builder_program(&d->b);
  for (int32_t i = 0; i < RANKS_MAX; i++) {
    for (int32_t j = 0; j < RANKS_MAX; j++) free(d->sent[i][j].data);
  }
  builder_free(&d->b);
  free(d);
  return program;
}
