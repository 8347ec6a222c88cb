/* From a PyTorch pipelining CSV to a program. */
#include "program/pipeline.h"
#include "program/pytorch_csv.h"
#include "program/tables.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct import {
  const char *path;
  mt_csv_table table;
  mt_arena *arena; /* what is needed until the program stands */
  motet_error *error;
  int32_t ranks, stages, microbatches;
  int32_t *stage_action; /* [stages] first action that names the stage: its row is the stage's rank */
  int32_t *chunks;       /* [ranks] stages a rank has */
  bool backward;         /* some action is a backward */
  bool transfers;        /* some action is a send or a receive */
  mt_derivation *derivation;
} import;

static const mt_csv_action *first_action(const import *this, int32_t stage) {
  return &this->table.actions.data[this->stage_action[stage]];
}

static motet_status refuse(const import *this, motet_status status, int line, const char *key) {
  mt_error_place(this->error, this->path, line);
  mt_error_key(this->error, key);
  return status;
}

/* Counts stages and microbatches; data-parallel actions, which are passed over, do not make a stage. Numbers far
 * beyond what the actions can fill are refused here, so that memory stays in proportion to the file. */
static motet_status count(import *this) {
  int64_t stages = 0, microbatches = 0, actions = (int64_t)this->table.actions.count;
  for (int64_t i = 0; i < actions; i++) {
    const mt_csv_action *action = &this->table.actions.data[i];
    if (action->kind == MT_CSV_SHARDING) continue;
    if (action->stage >= stages) stages = (int64_t)action->stage + 1;
    if (action->microbatch >= microbatches) microbatches = (int64_t)action->microbatch + 1;
    this->backward |= action->kind == MT_CSV_BACKWARD || action->kind == MT_CSV_BACKWARD_INPUT ||
                      action->kind == MT_CSV_BACKWARD_WEIGHT;
    this->transfers |= action->kind >= MT_CSV_SEND_FORWARD && action->kind <= MT_CSV_WAIT_SEND_BACKWARD;
  }
  if (actions > INT32_MAX || this->table.row_begin.count > INT32_MAX)
    return mt_error_set(this->error, MOTET_ERROR_LIMIT, "%s has too many actions", this->path);
  if (stages * (microbatches > 0 ? microbatches : 1) > 4 * actions + 65536) {
    mt_error_set(this->error, MOTET_ERROR_PARSE,
                 "%lld stages and %lld microbatches, by the highest numbers, cannot be filled by the file's %lld "
                 "actions; numbers run from 0 without gaps",
                 (long long)stages, (long long)microbatches, (long long)actions);
    return refuse(this, MOTET_ERROR_PARSE, 0, "");
  }
  this->ranks = (int32_t)this->table.row_begin.count - 1;
  this->stages = (int32_t)stages;
  this->microbatches = (int32_t)microbatches;
  if (microbatches == 0) {
    mt_error_set(this->error, MOTET_ERROR_PARSE, "%s has no action of a microbatch", this->path);
    return refuse(this, MOTET_ERROR_PARSE, 1, "");
  }
  return MOTET_OK;
}

static int32_t folded_rank(int32_t stage, int32_t ranks) {
  int32_t place = stage % ranks;
  return stage / ranks % 2 == 1 ? ranks - 1 - place : place;
}

static motet_status read_placement(import *this, motet_placement placement) {
  this->stage_action = MT_ARENA_NEW(this->arena, int32_t, this->stages);
  if (this->stage_action == NULL)
    return mt_error_memory(this->error, (unsigned long long)this->stages * 4, "the placement");
  for (int32_t s = 0; s < this->stages; s++) this->stage_action[s] = -1;
  for (size_t i = 0; i < this->table.actions.count; i++) {
    const mt_csv_action *action = &this->table.actions.data[i];
    if (action->kind == MT_CSV_SHARDING) continue;
    int32_t *first = &this->stage_action[action->stage];
    if (*first < 0) *first = (int32_t)i;
    if (first_action(this, action->stage)->row == action->row) continue;
    mt_error_set(this->error, MOTET_ERROR_PARSE,
                 "line %d, cell %d has an action of stage %d, which line %d has too; a stage lies on one rank",
                 action->line, action->cell, action->stage, first_action(this, action->stage)->line);
    return refuse(this, MOTET_ERROR_PARSE, action->line, "placement");
  }
  for (int32_t s = 0; s < this->stages; s++) {
    if (this->stage_action[s] < 0) {
      mt_error_set(this->error, MOTET_ERROR_PARSE,
                   "no row has an action of stage %d, though there are stages up to %d", s, this->stages - 1);
      return refuse(this, MOTET_ERROR_PARSE, 0, "placement");
    }
    if (placement == MOTET_PLACEMENT_AUTO) continue;
    int32_t found = first_action(this, s)->row;
    int32_t asked = placement == MOTET_PLACEMENT_V ? folded_rank(s, this->ranks) : s % this->ranks;
    if (found == asked) continue;
    mt_error_set(this->error, MOTET_ERROR_ARGUMENT,
                 "placement %s puts stage %d on rank %d, but the file has it in the row of rank %d",
                 placement == MOTET_PLACEMENT_V ? "v" : "loop", s, asked, found);
    return refuse(this, MOTET_ERROR_ARGUMENT, first_action(this, s)->line, "placement");
  }
  return MOTET_OK;
}

/* The statement that the actions imply: one module, one layer a stage, a chain. Trainable unless the file has no
 * backward at all. */
static motet_status build_derivation(import *this) {
  mt_arena *arena = this->arena;
  const char *name = "model";
  mt_model *model;
  motet_status status = mt_model_abstract(arena, 1, &name, &this->stages, &this->backward, this->error, &model);
  if (status != MOTET_OK) return status;
  mt_derivation *derivation = this->derivation = MT_ARENA_NEW(arena, mt_derivation, 1);
  mt_region *region = MT_ARENA_NEW(arena, mt_region, 1);
  mt_stage *stages = MT_ARENA_NEW(arena, mt_stage, this->stages);
  mt_edge *edges = MT_ARENA_NEW(arena, mt_edge, this->stages);
  uint64_t *present = MT_ARENA_NEW(arena, uint64_t, this->microbatches);
  uint64_t *cached = MT_ARENA_NEW(arena, uint64_t, this->microbatches);
  int32_t *chunks = this->chunks = MT_ARENA_NEW(arena, int32_t, this->ranks);
  if (derivation == NULL || region == NULL || stages == NULL || edges == NULL || present == NULL ||
      cached == NULL || chunks == NULL)
    return mt_error_memory(this->error, (unsigned long long)this->stages * sizeof(mt_stage), "an imported order");
  *region = (mt_region){.name = name,
                        .skeleton = {.kind = MT_SKELETON_1F1B, .virtual_stages = 1, .data = 1, .batch = 1},
                        .module_end = 1,
                        .layer_end = this->stages,
                        .slabs = this->stages,
                        .trainable = this->backward,
                        .host = -1,
                        .pipeline = this->ranks,
                        .data = 1};
  for (int32_t m = 0; m < this->microbatches; m++) present[m] = 1;
  for (int32_t s = 0; s < this->stages; s++) chunks[first_action(this, s)->row]++;
  for (int32_t s = 0; s < this->stages; s++) {
    int32_t rank = first_action(this, s)->row;
    mt_gate gate = !this->backward ? MT_GATE_NONE : s == 0 ? MT_GATE_WEIGHTS : MT_GATE_FULL;
    stages[s] = (mt_stage){.slab = s,
                           .layer_begin = s,
                           .layer_end = s + 1,
                           .gate = gate,
                           .modules = 1,
                           .share = 1.0 / chunks[rank],
                           .rank = rank};
    if (s > 0) edges[s - 1] = (mt_edge){.from = s - 1, .to = s, .gradient = this->backward};
  }
  *derivation = (mt_derivation){.ranks = this->ranks,
                                .shared_ranks = this->ranks,
                                .microbatches = this->microbatches,
                                .model = model,
                                .present = present,
                                .cached = cached,
                                .region_count = 1,
                                .stage_count = this->stages,
                                .edge_count = this->stages - 1,
                                .regions = region,
                                .stages = stages,
                                .edges = edges};
  return MOTET_OK;
}

static const uint8_t compute_kinds[] = {
    [MT_CSV_FORWARD] = MOTET_FWD,
    [MT_CSV_BACKWARD] = MOTET_BWD,
    [MT_CSV_BACKWARD_INPUT] = MOTET_BWD_X,
    [MT_CSV_BACKWARD_WEIGHT] = MOTET_BWD_W,
};

/* A compute-only order is lowered like any other. */
static motet_status import_computes(import *this, motet_program **program) {
  mt_order order = {.begin = MT_ARENA_NEW(this->arena, int64_t, this->ranks + 1),
                    .events = MT_ARENA_NEW(this->arena, mt_event, this->table.actions.count)};
  if (order.begin == NULL || order.events == NULL)
    return mt_error_memory(this->error, this->table.actions.count * sizeof(mt_event), "an imported order");
  int64_t used = 0;
  for (int32_t rank = 0; rank < this->ranks; rank++) {
    order.begin[rank] = used;
    for (int64_t i = this->table.row_begin.data[rank]; i < this->table.row_begin.data[rank + 1]; i++) {
      const mt_csv_action *action = &this->table.actions.data[i];
      if (action->kind > MT_CSV_BACKWARD_WEIGHT) continue;
      order.events[used++] =
          (mt_event){.kind = compute_kinds[action->kind], .stage = action->stage, .microbatch = action->microbatch};
    }
  }
  order.begin[this->ranks] = used;
  const mt_replica replica = {.derivation = this->derivation, .order = &order};
  const mt_lower_options options = {.receive_ahead = 0, .lenient = true};
  return mt_program_lower_with(&replica, 1, &options, this->error, program);
}

/* ---- Orders with their own sends and receives ---- */

/* (edges, microbatches, 2): buffer of the activation (0) and of its gradient (1); -1: none yet. And, while a row is
 * walked, how many waits for its receives and its sends are still due. */
typedef struct transfer_state {
  int32_t buffer;
  int32_t receives, sends;
} transfer_state;

typedef struct explicit_import {
  import *from;
  motet_program *program;
  transfer_state *states;
  int64_t instruction_count, instruction_limit;
} explicit_import;

static transfer_state *state_of(explicit_import *this, int32_t edge, int32_t microbatch, bool gradient) {
  return &this->states[((int64_t)edge * this->from->microbatches + microbatch) * 2 + gradient];
}

static void push(explicit_import *this, motet_instruction instruction) {
  this->program->instructions[this->instruction_count++] = instruction;
}

static void push_transfer(explicit_import *this, int kind, int flags, int32_t buffer, int32_t peer) {
  const motet_buffer *data = &this->program->buffers[buffer];
  push(this, (motet_instruction){.kind = (uint8_t)kind,
                                 .flags = (uint8_t)flags,
                                 .stage = data->stage,
                                 .microbatch = data->microbatch,
                                 .buffer = buffer,
                                 .peer = peer});
}

/* The rank on the far side of an edge, as seen by the sender or the receiver. */
static int32_t far_rank(const explicit_import *this, int32_t edge, bool gradient, bool sends) {
  return first_action(this->from, gradient == sends ? edge : edge + 1)->row;
}

/* What a compute has received and not waited for yet, it waits for now. */
static void wait_for_input(explicit_import *this, int32_t edge, int32_t microbatch, bool gradient) {
  if (edge < 0 || edge >= this->from->stages - 1) return;
  transfer_state *state = state_of(this, edge, microbatch, gradient);
  for (; state->receives > 0; state->receives--)
    push_transfer(this, MOTET_WAIT, MOTET_FLAG_RECV, state->buffer, far_rank(this, edge, gradient, false));
}

static void import_compute(explicit_import *this, const mt_csv_action *action) {
  if (action->kind == MT_CSV_FORWARD)
    wait_for_input(this, action->stage - 1, action->microbatch, false);
  else if (action->kind != MT_CSV_BACKWARD_WEIGHT)
    wait_for_input(this, action->stage, action->microbatch, true);
  push(this, (motet_instruction){.kind = compute_kinds[action->kind],
                                 .stage = action->stage,
                                 .microbatch = action->microbatch,
                                 .buffer = -1,
                                 .peer = -1});
}

static motet_status import_transfer(explicit_import *this, const mt_csv_action *action) {
  bool gradient = action->kind == MT_CSV_SEND_BACKWARD || action->kind == MT_CSV_RECEIVE_BACKWARD ||
                  action->kind == MT_CSV_WAIT_SEND_BACKWARD;
  bool receives = action->kind == MT_CSV_RECEIVE_FORWARD || action->kind == MT_CSV_RECEIVE_BACKWARD;
  bool waits = action->kind == MT_CSV_WAIT_SEND_FORWARD || action->kind == MT_CSV_WAIT_SEND_BACKWARD;
  int32_t edge = gradient == receives ? action->stage : action->stage - 1;
  if (edge < 0 || edge >= this->from->stages - 1) {
    mt_error_set(this->from->error, MOTET_ERROR_PARSE,
                 "line %d, cell %d: %s of stage %d has no other side; the stages are 0 to %d", action->line,
                 action->cell, mt_csv_name(action->kind), action->stage, this->from->stages - 1);
    char key[32];
    snprintf(key, sizeof key, "cell %d", action->cell);
    return refuse(this->from, MOTET_ERROR_PARSE, action->line, key);
  }
  transfer_state *state = state_of(this, edge, action->microbatch, gradient);
  if (state->buffer < 0) {
    state->buffer = (int32_t)this->program->buffer_count++;
    this->program->buffers[state->buffer] =
        (motet_buffer){.kind = gradient ? MOTET_BUFFER_GRADIENT : MOTET_BUFFER_ACTIVATION,
                       .stage = edge,
                       .edge = edge,
                       .microbatch = action->microbatch};
  }
  int kind = waits ? MOTET_WAIT : receives ? MOTET_RECV : MOTET_SEND;
  push_transfer(this, kind, 0, state->buffer, far_rank(this, edge, gradient, !receives));
  state->receives += receives;
  state->sends += kind == MOTET_SEND;
  state->sends -= waits && state->sends > 0;
  return MOTET_OK;
}

/* What nobody has waited for is waited for at the end, where that can hold up nothing. */
static void finish_row(explicit_import *this, int32_t rank) {
  const mt_csv_table *table = &this->from->table;
  for (int64_t i = table->row_begin.data[rank]; i < table->row_begin.data[rank + 1]; i++) {
    const mt_csv_action *action = &table->actions.data[i];
    if (action->kind < MT_CSV_SEND_FORWARD || action->kind > MT_CSV_RECEIVE_BACKWARD) continue;
    bool gradient = action->kind >= MT_CSV_SEND_BACKWARD;
    bool receives = action->kind == MT_CSV_RECEIVE_FORWARD || action->kind == MT_CSV_RECEIVE_BACKWARD;
    int32_t edge = gradient == receives ? action->stage : action->stage - 1;
    transfer_state *state = state_of(this, edge, action->microbatch, gradient);
    int32_t *due = receives ? &state->receives : &state->sends;
    if (*due == 0) continue;
    --*due;
    push_transfer(this, MOTET_WAIT, receives ? MOTET_FLAG_RECV : 0, state->buffer,
                  far_rank(this, edge, gradient, !receives));
  }
  motet_instruction end = {.kind = MOTET_OPTIM, .stage = -1, .microbatch = -1, .buffer = -1, .peer = -1};
  if (this->from->backward && this->from->chunks[rank] > 0) push(this, end);
  end.kind = MOTET_STEP_END;
  end.peer = 0;
  push(this, end);
}

static motet_status import_transfers(import *from, motet_program *program) {
  size_t actions = from->table.actions.count;
  size_t states = (size_t)(from->stages - 1) * (size_t)from->microbatches * 2;
  explicit_import this = {
      .from = from, .program = program, .states = MT_ARENA_NEW(from->arena, transfer_state, states)};
  /* At most one instruction an action and one wait, and the two that end each list. */
  program->instructions = MT_ARENA_NEW(program->arena, motet_instruction, 2 * actions + 2 * (size_t)from->ranks);
  program->buffers = MT_ARENA_NEW(program->arena, motet_buffer, actions);
  program->rank_begin = MT_ARENA_NEW(program->arena, int64_t, from->ranks + 1);
  if (this.states == NULL || program->instructions == NULL || program->buffers == NULL ||
      program->rank_begin == NULL)
    return mt_error_memory(from->error, actions * 2 * sizeof(motet_instruction), "an imported order");
  for (size_t i = 0; i < states; i++) this.states[i].buffer = -1;
  for (int32_t rank = 0; rank < from->ranks; rank++) {
    program->rank_begin[rank] = this.instruction_count;
    for (int64_t i = from->table.row_begin.data[rank]; i < from->table.row_begin.data[rank + 1]; i++) {
      const mt_csv_action *action = &from->table.actions.data[i];
      motet_status status = MOTET_OK;
      if (action->kind <= MT_CSV_BACKWARD_WEIGHT)
        import_compute(&this, action);
      else if (action->kind != MT_CSV_SHARDING)
        status = import_transfer(&this, action);
      if (status != MOTET_OK) return status;
    }
    finish_row(&this, rank);
  }
  program->rank_begin[from->ranks] = this.instruction_count;
  return MOTET_OK;
}

static motet_status import_explicit(import *this, motet_program **result) {
  mt_arena *arena = mt_arena_create();
  motet_program *program = arena != NULL ? MT_ARENA_NEW(arena, motet_program, 1) : NULL;
  const mt_order no_order = {0};
  const mt_replica replica = {.derivation = this->derivation, .order = &no_order};
  int32_t *no_groups;
  motet_status status;
  if (program == NULL) {
    status = mt_error_memory(this->error, sizeof *program, "a program");
  } else {
    program->arena = arena;
    program->replicas = 1;
    program->ranks = this->ranks;
    status = mt_tables_fill(&replica, program->arena, this->error, program, &no_groups);
    if (status == MOTET_OK) status = import_transfers(this, program);
  }
  if (status == MOTET_OK)
    *result = program;
  else
    mt_arena_destroy(arena);
  return status;
}

motet_status mt_program_parse_pytorch_csv(const char *data, size_t bytes, const char *path,
                                          motet_placement placement, motet_error *error, motet_program **program) {
  *program = NULL;
  motet_status status = MOTET_OK;
  import this = {.path = path, .arena = mt_arena_create(), .error = error};
  if (this.arena == NULL) status = mt_error_memory(error, 64, "an arena");
  if (status == MOTET_OK) status = mt_csv_parse(path, data, bytes, error, &this.table);
  if (status == MOTET_OK) status = count(&this);
  if (status == MOTET_OK) status = read_placement(&this, placement);
  if (status == MOTET_OK) status = build_derivation(&this);
  if (status == MOTET_OK)
    status = this.transfers ? import_explicit(&this, program) : import_computes(&this, program);
  if (status == MOTET_OK)
    (*program)->regions[0].skeleton = "imported";
  else
    mt_error_place(error, path, 0);
  mt_csv_table_free(&this.table);
  mt_arena_destroy(this.arena);
  return status;
}

motet_status motet_program_read_pytorch_csv(const char *path, motet_placement placement, motet_error *error,
                                            motet_program **program) {
  *program = NULL;
  char *data;
  size_t bytes;
  motet_status status = mt_file_read(path, error, &data, &bytes);
  if (status == MOTET_OK) status = mt_program_parse_pytorch_csv(data, bytes, path, placement, error, program);
  free(data);
  return status;
}
