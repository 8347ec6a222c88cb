/* Hand-built derivations, random legal orders, and a machine that runs programs: shared by the tests of the
 * program floor. The machine knows the instruction format and nothing of how programs are made. */
#ifndef MOTET_TESTS_PROGRAM_FIXTURE_H
#define MOTET_TESTS_PROGRAM_FIXTURE_H

#include "base/arena.h"
#include "base/random.h"
#include "program/lower.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct fixture_options {
  int32_t ranks, microbatches, chunks; /* chunks: trunk stages a rank */
  bool folded;                         /* trunk stages lie in a V instead of a loop */
  bool encoder, generator;             /* transposed regions before and behind the trunk */
  bool train_encoder, train_trunk, train_generator;
  const uint64_t *present; /* [M] or NULL: all */
} fixture_options;

static inline int32_t fixture_slab_rank(const fixture_options *options, int32_t slab) {
  int32_t round = slab / options->ranks, place = slab % options->ranks;
  return options->folded && round % 2 == 1 ? options->ranks - 1 - place : place;
}

/* A chain: [encoder ->] trunk slabs [-> generator], one layer a stage. */
static inline mt_derivation *fixture_derive(mt_arena *arena, const fixture_options *options) {
  const char *names[3] = {NULL};
  int32_t layers[3], modules = 0, trunk_module = options->encoder ? 1 : 0;
  bool trainable[3];
  int32_t slabs = options->ranks * options->chunks;
  if (options->encoder)
    names[modules] = "vision", layers[modules] = 1, trainable[modules++] = options->train_encoder;
  names[modules] = "llm", layers[modules] = slabs, trainable[modules++] = options->train_trunk;
  if (options->generator)
    names[modules] = "generator", layers[modules] = 1, trainable[modules++] = options->train_generator;
  mt_model *model;
  if (mt_model_abstract(arena, modules, names, layers, trainable, NULL, &model) != MOTET_OK) return NULL;
  if (options->encoder) model->modules[0].inputs = MOTET_INPUT_PIXELS;
  model->modules[trunk_module].inputs = MOTET_INPUT_TOKENS;
  mt_derivation *derivation = MT_ARENA_NEW(arena, mt_derivation, 1);
  int32_t stages = slabs + options->encoder + options->generator;
  *derivation = (mt_derivation){.ranks = options->ranks,
                                .shared_ranks = options->ranks,
                                .microbatches = options->microbatches,
                                .model = model,
                                .region_count = modules,
                                .stage_count = stages,
                                .edge_count = stages - 1,
                                .text = mt_arena_text(arena, "<test>")};
  derivation->regions = MT_ARENA_NEW(arena, mt_region, modules);
  derivation->stages = MT_ARENA_NEW(arena, mt_stage, stages);
  derivation->edges = MT_ARENA_NEW(arena, mt_edge, stages);
  for (int32_t r = 0; r < modules; r++) {
    bool replicated = r != trunk_module;
    derivation->regions[r] = (mt_region){.name = names[r],
                                         .skeleton = {.kind = replicated ? MT_SKELETON_TRANSPOSE : MT_SKELETON_1F1B,
                                                      .virtual_stages = options->chunks,
                                                      .data = 1},
                                         .module_begin = r,
                                         .module_end = r + 1,
                                         .layer_begin = model->modules[r].layer_begin,
                                         .layer_end = model->modules[r].layer_end,
                                         .slabs = replicated ? 1 : slabs,
                                         .replicated = replicated,
                                         .trainable = trainable[r],
                                         .host = -1,
                                         .pipeline = options->ranks,
                                         .data = 1};
  }
  bool upstream = false;
  for (int32_t s = 0; s < stages; s++) {
    int32_t region = model->layers[s].module, slab = s - model->modules[region].layer_begin;
    bool replicated = region != trunk_module;
    derivation->stages[s] =
        (mt_stage){.region = region,
                   .slab = slab,
                   .layer_begin = s,
                   .layer_end = s + 1,
                   .gate = (mt_gate)((trainable[region] ? MT_GATE_WEIGHTS : 0) | (upstream ? MT_GATE_INPUT : 0)),
                   .inputs = slab == 0 && (replicated || s == trunk_module) ? model->modules[region].inputs : 0,
                   .modules = (uint64_t)1 << region,
                   .share = replicated ? 1.0 : 1.0 / options->chunks,
                   .rank = replicated ? -1 : fixture_slab_rank(options, slab)};
    upstream = upstream || trainable[region];
    if (s + 1 < stages) derivation->edges[s] = (mt_edge){.from = s, .to = s + 1, .gradient = upstream};
  }
  uint64_t *present = MT_ARENA_NEW(arena, uint64_t, options->microbatches);
  derivation->cached = MT_ARENA_NEW(arena, uint64_t, options->microbatches);
  for (int32_t m = 0; m < options->microbatches; m++)
    present[m] = options->present != NULL ? options->present[m] : ((uint64_t)1 << modules) - 1;
  derivation->present = present;
  return derivation;
}

/* ---- Random legal orders ---- */

typedef struct fixture_task {
  mt_event event;
  int32_t rank;
  int32_t needs[8]; /* tasks, need_count of them */
  int32_t need_count;
  double seconds, finish;
  bool done;
} fixture_task;

static inline void fixture_need(fixture_task *task, int32_t needed) {
  if (needed >= 0 && task->need_count < 8) task->needs[task->need_count++] = needed;
}

static inline bool fixture_active(const mt_derivation *derivation, int32_t stage, int32_t microbatch) {
  return (derivation->stages[stage].modules & derivation->present[microbatch]) != 0;
}

/* Draws a legal order by running tasks at random as they become ready; start times are those of that run. */
static inline mt_order *fixture_random_order(mt_arena *arena, const mt_derivation *derivation, bool split,
                                             bool timed, mt_random *random, double **seconds) {
  int32_t stages = derivation->stage_count, count = derivation->microbatches, total = 0;
  fixture_task *tasks = MT_ARENA_NEW(arena, fixture_task, 3 * stages * count);
  int32_t *forward = MT_ARENA_NEW(arena, int32_t, stages * count);
  int32_t *backward = MT_ARENA_NEW(arena, int32_t, stages * count);
  int32_t *owner = MT_ARENA_NEW(arena, int32_t, stages * count);
  for (int32_t i = 0; i < stages * count; i++) forward[i] = backward[i] = -1;
  for (int32_t s = 0; s < stages; s++)
    for (int32_t m = 0; m < count; m++) {
      const mt_stage *stage = &derivation->stages[s];
      int32_t at = s * count + m;
      if (!fixture_active(derivation, s, m)) continue;
      owner[at] = stage->rank >= 0 ? stage->rank : (int32_t)mt_random_below(random, (uint64_t)derivation->ranks);
      forward[at] = total;
      tasks[total++] = (fixture_task){.event = {.kind = MOTET_FWD, .stage = s, .microbatch = m}, .rank = owner[at]};
      for (int32_t e = 0; e < derivation->edge_count; e++)
        if (derivation->edges[e].to == s)
          fixture_need(&tasks[forward[at]], forward[derivation->edges[e].from * count + m]);
    }
  for (int32_t s = stages - 1; s >= 0; s--)
    for (int32_t m = 0; m < count; m++) {
      const mt_stage *stage = &derivation->stages[s];
      int32_t at = s * count + m;
      if (forward[at] < 0 || stage->gate == MT_GATE_NONE) continue;
      bool halves = stage->gate != MT_GATE_INPUT && split;
      backward[at] = total;
      tasks[total++] =
          (fixture_task){.event = {.kind = stage->gate == MT_GATE_INPUT || halves ? MOTET_BWD_X : MOTET_BWD,
                                   .stage = s,
                                   .microbatch = m},
                         .rank = owner[at],
                         .needs = {forward[at]},
                         .need_count = 1};
      for (int32_t e = 0; e < derivation->edge_count; e++)
        if (derivation->edges[e].from == s)
          fixture_need(&tasks[backward[at]], backward[derivation->edges[e].to * count + m]);
      if (!halves) continue;
      tasks[total++] = (fixture_task){.event = {.kind = MOTET_BWD_W, .stage = s, .microbatch = m},
                                      .rank = owner[at],
                                      .needs = {backward[at]},
                                      .need_count = 1};
    }
  mt_order *order = MT_ARENA_NEW(arena, mt_order, 1);
  order->begin = MT_ARENA_NEW(arena, int64_t, derivation->ranks + 1);
  order->events = MT_ARENA_NEW(arena, mt_event, total);
  order->start = MT_ARENA_NEW(arena, double, total);
  *seconds = MT_ARENA_NEW(arena, double, total);
  int32_t *sequence = MT_ARENA_NEW(arena, int32_t, total);
  double *start = MT_ARENA_NEW(arena, double, total), *free_at = MT_ARENA_NEW(arena, double, derivation->ranks);
  int32_t *ready = MT_ARENA_NEW(arena, int32_t, total);
  for (int32_t done = 0; done < total; done++) {
    int32_t choices = 0;
    for (int32_t t = 0; t < total; t++) {
      bool good = !tasks[t].done;
      for (int n = 0; n < tasks[t].need_count; n++) good = good && tasks[tasks[t].needs[n]].done;
      if (good) ready[choices++] = t;
    }
    int32_t t = ready[mt_random_below(random, (uint64_t)choices)];
    start[t] = free_at[tasks[t].rank];
    for (int n = 0; n < tasks[t].need_count; n++)
      if (tasks[tasks[t].needs[n]].finish > start[t]) start[t] = tasks[tasks[t].needs[n]].finish;
    tasks[t].seconds = (double)mt_random_below(random, 4);
    free_at[tasks[t].rank] = tasks[t].finish = start[t] + tasks[t].seconds;
    tasks[t].done = true;
    sequence[done] = t;
  }
  int32_t used = 0;
  for (int32_t rank = 0; rank < derivation->ranks; rank++) {
    order->begin[rank] = used;
    for (int32_t i = 0; i < total; i++) {
      if (tasks[sequence[i]].rank != rank) continue;
      order->events[used] = tasks[sequence[i]].event;
      order->start[used] = start[sequence[i]];
      (*seconds)[used++] = tasks[sequence[i]].seconds;
    }
  }
  order->begin[derivation->ranks] = used;
  if (!timed) order->start = NULL;
  return order;
}

/* ---- A machine that runs programs ----
 *
 * Rendezvous without buffers: the k-th SEND of a channel meets its k-th RECV; a WAIT blocks until both are posted.
 * Collectives block until all members stand at the same one. */

typedef struct fixture_channel {
  int32_t *sends, *receives; /* buffers in posting order */
  int32_t send_count, receive_count;
} fixture_channel;

enum { FIXTURE_POSTED = 1, FIXTURE_WAITED = 2 };

typedef struct fixture_machine {
  const motet_program *program;
  int64_t *next;             /* [ranks] */
  fixture_channel *channels; /* [ranks * ranks] (source, destination) */
  uint8_t *sent, *received;  /* [buffers] FIXTURE_* */
  uint8_t *held;             /* (ranks, stages, microbatches): bit 0 output, bit 1 gradient of its input */
} fixture_machine;

static inline uint8_t *fixture_held(fixture_machine *machine, int32_t rank, int32_t stage, int32_t microbatch) {
  const motet_program *program = machine->program;
  return &machine->held[((int64_t)rank * program->stage_count + stage) * program->microbatch_count + microbatch];
}

static inline bool fixture_program_active(const motet_program *program, int32_t stage, int32_t microbatch) {
  const motet_program_microbatch *data = &program->microbatches[microbatch];
  for (int32_t j = 0; j < program->module_count; j++)
    if (program->modules[j].layer_begin < program->stages[stage].layer_end &&
        program->stages[stage].layer_begin < program->modules[j].layer_end &&
        (data->present & ~data->cached) >> j & 1)
      return true;
  return false;
}

/* Whether the stage or one before it has a trainable layer. */
static inline bool fixture_trains_up_to(const motet_program *program, int32_t stage) {
  for (int32_t layer = program->stages[stage].layer_begin; layer < program->stages[stage].layer_end; layer++)
    if (program->layer_trainable[layer]) return true;
  for (int32_t e = 0; e < program->edge_count; e++)
    if (program->edges[e].to == stage && fixture_trains_up_to(program, program->edges[e].from)) return true;
  return false;
}

/* Whether the rank has the value, produced here or received and waited for. */
static inline bool fixture_has(fixture_machine *machine, int32_t rank, int32_t edge, int32_t microbatch,
                               bool gradient) {
  const motet_program *program = machine->program;
  int32_t producer = gradient ? program->edges[edge].to : program->edges[edge].from;
  if (*fixture_held(machine, rank, producer, microbatch) & (gradient ? 2 : 1)) return true;
  for (int64_t b = 0; b < program->buffer_count; b++) {
    const motet_buffer *buffer = &program->buffers[b];
    if (buffer->kind == (gradient ? MOTET_BUFFER_GRADIENT : MOTET_BUFFER_ACTIVATION) && buffer->edge == edge &&
        buffer->microbatch == microbatch && (machine->received[b] & FIXTURE_WAITED))
      return true;
  }
  return false;
}

static inline const char *fixture_compute(fixture_machine *machine, int32_t rank,
                                          const motet_instruction *instruction) {
  const motet_program *program = machine->program;
  int32_t s = instruction->stage, m = instruction->microbatch;
  uint8_t *held = fixture_held(machine, rank, s, m);
  for (int32_t e = 0; e < program->edge_count; e++) {
    const motet_program_edge *edge = &program->edges[e];
    if (!fixture_program_active(program, edge->from, m) || !fixture_program_active(program, edge->to, m)) continue;
    if (instruction->kind == MOTET_FWD && edge->to == s && !fixture_has(machine, rank, e, m, false))
      return "FWD without its input";
    bool backward = instruction->kind == MOTET_BWD || instruction->kind == MOTET_BWD_X;
    if (backward && edge->from == s && fixture_trains_up_to(program, s) && !fixture_has(machine, rank, e, m, true))
      return "backward without its gradient";
  }
  if (instruction->kind == MOTET_FWD)
    *held |= 1;
  else if (!(*held & 1))
    return "backward before FWD";
  else if (instruction->kind != MOTET_BWD_W)
    *held |= 2;
  return NULL;
}

static inline const char *fixture_post(fixture_machine *machine, int32_t rank,
                                       const motet_instruction *instruction) {
  const motet_program *program = machine->program;
  const motet_buffer *buffer = &program->buffers[instruction->buffer];
  bool send = instruction->kind == MOTET_SEND;
  int32_t source = send ? rank : instruction->peer, destination = send ? instruction->peer : rank;
  if (source == destination) return "a transfer to itself";
  fixture_channel *channel = &machine->channels[source * program->ranks + destination];
  uint8_t *state = send ? &machine->sent[instruction->buffer] : &machine->received[instruction->buffer];
  if (*state != 0) return "a buffer posted twice";
  *state = FIXTURE_POSTED;
  bool gradient = buffer->kind == MOTET_BUFFER_GRADIENT;
  const motet_program_edge *edge = &program->edges[buffer->edge];
  int32_t producer = gradient ? edge->to : edge->from;
  if (send && !(*fixture_held(machine, rank, producer, buffer->microbatch) & (gradient ? 2 : 1)))
    return "SEND before its buffer is produced";
  if (send)
    channel->sends[channel->send_count++] = instruction->buffer;
  else
    channel->receives[channel->receive_count++] = instruction->buffer;
  int32_t pairs = channel->send_count < channel->receive_count ? channel->send_count : channel->receive_count;
  for (int32_t k = 0; k < pairs; k++)
    if (channel->sends[k] != channel->receives[k]) return "posting orders of a channel differ";
  return NULL;
}

/* Whether rank can go past its instruction; errors in *wrong. */
static inline bool fixture_step(fixture_machine *machine, int32_t rank, const char **wrong) {
  const motet_program *program = machine->program;
  const motet_instruction *instruction = &program->instructions[machine->next[rank]];
  switch (instruction->kind) {
  case MOTET_SEND:
  case MOTET_RECV: *wrong = fixture_post(machine, rank, instruction); return true;
  case MOTET_WAIT: {
    uint8_t *own = &machine->sent[instruction->buffer], *other = &machine->received[instruction->buffer];
    if (instruction->flags & MOTET_FLAG_RECV) own = other, other = &machine->sent[instruction->buffer];
    if (!(*own & FIXTURE_POSTED)) *wrong = "WAIT for what was not posted";
    if (!(*other & FIXTURE_POSTED)) return false;
    if (*own & FIXTURE_WAITED) *wrong = "waited for twice";
    *own |= FIXTURE_WAITED;
    return true;
  }
  case MOTET_ALL_REDUCE:
  case MOTET_STEP_END: {
    const motet_group *group = &program->groups[instruction->peer];
    bool member = false;
    for (int32_t i = 0; i < group->count; i++) {
      int32_t other = program->group_ranks[group->first + i];
      member |= other == rank;
      /* Not yet there, or past it already: a member past it went through when all stood there. */
      bool past = false;
      for (int64_t j = program->rank_begin[other]; j < machine->next[other]; j++)
        past |= memcmp(&program->instructions[j], instruction, sizeof *instruction) == 0;
      if (past) continue;
      if (machine->next[other] == program->rank_begin[other + 1] ||
          memcmp(&program->instructions[machine->next[other]], instruction, sizeof *instruction) != 0)
        return false;
    }
    if (!member) *wrong = "a collective by a rank outside its group";
    return true;
  }
  case MOTET_LOAD:
  case MOTET_OPTIM: return true;
  default:
    if (!(instruction->flags & MOTET_FLAG_NEXT)) *wrong = fixture_compute(machine, rank, instruction);
    return true;
  }
}

static inline const char *fixture_finish(fixture_machine *machine) {
  const motet_program *program = machine->program;
  for (int64_t b = 0; b < program->buffer_count; b++) {
    int32_t kind = program->buffers[b].kind;
    if (kind != MOTET_BUFFER_ACTIVATION && kind != MOTET_BUFFER_GRADIENT) continue;
    if (machine->sent[b] != (FIXTURE_POSTED | FIXTURE_WAITED) ||
        machine->received[b] != (FIXTURE_POSTED | FIXTURE_WAITED))
      return "a transfer not posted and waited for on both sides";
  }
  return NULL;
}

/* Runs the program, ranks in an order drawn from @p random. NULL when it runs through. */
static inline const char *fixture_run(mt_arena *arena, const motet_program *program, mt_random *random) {
  fixture_machine machine = {
      .program = program,
      .next = MT_ARENA_NEW(arena, int64_t, program->ranks),
      .channels = MT_ARENA_NEW(arena, fixture_channel, program->ranks * program->ranks),
      .sent = MT_ARENA_NEW(arena, uint8_t, program->buffer_count),
      .received = MT_ARENA_NEW(arena, uint8_t, program->buffer_count),
      .held = MT_ARENA_NEW(arena, uint8_t, program->ranks * program->stage_count * program->microbatch_count),
  };
  for (int32_t c = 0; c < program->ranks * program->ranks; c++) {
    machine.channels[c].sends = MT_ARENA_NEW(arena, int32_t, program->buffer_count);
    machine.channels[c].receives = MT_ARENA_NEW(arena, int32_t, program->buffer_count);
  }
  for (int32_t i = 0; i < program->carried_count; i++)
    *fixture_held(&machine, program->carried[i].rank, program->carried[i].stage, program->carried[i].microbatch) =
        1;
  int64_t left = 0;
  for (int32_t rank = 0; rank < program->ranks; rank++) {
    machine.next[rank] = program->rank_begin[rank];
    left += program->rank_begin[rank + 1] - program->rank_begin[rank];
  }
  int32_t stuck = 0; /* ranks tried in a row without progress */
  for (int32_t rank = 0; left > 0 && stuck < program->ranks; rank = (rank + 1) % program->ranks) {
    uint64_t most = 1 + mt_random_below(random, 7);
    const char *wrong = NULL;
    stuck++;
    while (most-- > 0 && machine.next[rank] < program->rank_begin[rank + 1]) {
      bool past = fixture_step(&machine, rank, &wrong);
      if (wrong != NULL)
        return mt_arena_format(arena, "rank %d, instruction %lld: %s", rank,
                               (long long)(machine.next[rank] - program->rank_begin[rank]), wrong);
      if (!past) break;
      machine.next[rank]++;
      left--;
      stuck = 0;
    }
  }
  if (left > 0) {
    char *text = mt_arena_text(arena, "hangs:");
    for (int32_t rank = 0; rank < program->ranks; rank++) {
      if (machine.next[rank] == program->rank_begin[rank + 1]) continue;
      const motet_instruction *at = &program->instructions[machine.next[rank]];
      text = mt_arena_format(arena, "%s rank %d at %lld %s(stage %d, microbatch %d, buffer %d)", text, rank,
                             (long long)(machine.next[rank] - program->rank_begin[rank]),
                             motet_instruction_name(at->kind), at->stage, at->microbatch, at->buffer);
    }
    return text;
  }
  return fixture_finish(&machine);
}

#endif
