#include "program/lower.h"

#include "program/pipeline.h"
#include "program/tables.h"

#include <stdlib.h>
#include <string.h>

/* A pipeline lowered once for all replicas that share derivation, order and sizes. */
typedef struct pipeline_class {
  const mt_replica *replica;
  mt_pipeline pipeline;
} pipeline_class;

typedef struct assembly {
  const mt_replica *replicas;
  mt_arena *scratch;
  motet_program *program;
  int32_t class_count;
  pipeline_class *classes; /* [replicas] */
  int32_t *class_of;       /* [replicas] */
  int64_t shared_count;    /* collectives' buffers stand first, the replicas' behind them */
  motet_buffer *shared;
  int32_t *range_groups;    /* (ranges, P) the group that shares a range */
  int64_t *tail_begin;      /* [ranks + 1] */
  motet_instruction *tails; /* what ends the list of each rank of a replica, the same in every one */
} assembly;

static bool sizes_same(const mt_sizes *one, const mt_sizes *other) {
  return one->output_bytes.values == other->output_bytes.values &&
         one->output_bytes.stage_stride == other->output_bytes.stage_stride &&
         one->output_bytes.microbatch_stride == other->output_bytes.microbatch_stride;
}

static motet_status check_agreement(const mt_replica *replicas, int32_t count, motet_error *error) {
  if (count < 1)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT, "a program has at least one replica, not %d", count);
  const mt_derivation *first = replicas[0].derivation;
  for (int32_t k = 1; k < count; k++) {
    const mt_derivation *other = replicas[k].derivation;
    if (mt_replica_width(&replicas[k]) != mt_replica_width(&replicas[0]) ||
        (replicas[k].spread == NULL) != (replicas[0].spread == NULL))
      return mt_error_set(error, MOTET_ERROR_ARGUMENT,
                          "replica %d spreads its microbatches over %d context ranks, replica 0 over %d: all must "
                          "over as many",
                          k, mt_replica_width(&replicas[k]), mt_replica_width(&replicas[0]));
    if (other == first) continue;
    bool same = other->ranks == first->ranks && other->microbatches == first->microbatches &&
                other->region_count == first->region_count && other->stage_count == first->stage_count &&
                other->edge_count == first->edge_count && other->model->layer_count == first->model->layer_count;
    for (int32_t s = 0; same && s < first->stage_count; s++) {
      const mt_stage *a = &first->stages[s], *b = &other->stages[s];
      same = a->rank == b->rank && a->layer_begin == b->layer_begin && a->layer_end == b->layer_end &&
             a->gate == b->gate && a->region == b->region;
    }
    for (int32_t e = 0; same && e < first->edge_count; e++)
      same = first->edges[e].from == other->edges[e].from && first->edges[e].to == other->edges[e].to &&
             first->edges[e].gradient == other->edges[e].gradient;
    if (!same)
      return mt_error_set(error, MOTET_ERROR_ARGUMENT,
                          "replica %d differs from replica 0 in its ranks, microbatches, regions, stages or edges; "
                          "replicas may differ in data and order alone",
                          k);
  }
  int64_t ranks;
  if (__builtin_mul_overflow((int64_t)first->ranks * mt_replica_width(&replicas[0]), count, &ranks))
    ranks = INT64_MAX;
  if (ranks > INT32_MAX)
    return mt_error_set(error, MOTET_ERROR_LIMIT, "%lld ranks are more than a program may have", (long long)ranks);
  return MOTET_OK;
}

static motet_status lower_classes(assembly *this, const mt_lower_options *options, motet_error *error) {
  int32_t replicas = this->program->replicas;
  this->classes = MT_ARENA_NEW(this->scratch, pipeline_class, replicas);
  this->class_of = MT_ARENA_NEW(this->scratch, int32_t, replicas);
  if (this->classes == NULL || this->class_of == NULL)
    return mt_error_memory(error, (unsigned long long)replicas * sizeof(pipeline_class), "pipelines");
  for (int32_t k = 0; k < replicas; k++) {
    const mt_replica *replica = &this->replicas[k];
    int32_t c = 0;
    while (c < this->class_count && !(this->classes[c].replica->derivation == replica->derivation &&
                                      this->classes[c].replica->order == replica->order &&
                                      this->classes[c].replica->spread == replica->spread &&
                                      sizes_same(&this->classes[c].replica->sizes, &replica->sizes)))
      c++;
    this->class_of[k] = c;
    if (c < this->class_count) continue;
    this->classes[c].replica = replica;
    this->class_count++;
    motet_status status = mt_pipeline_lower(this->scratch, replica, options, error, &this->classes[c].pipeline);
    if (status != MOTET_OK) return replicas > 1 ? mt_error_context(error, status, "replica %d", k) : status;
  }
  return MOTET_OK;
}

/* The shared weight is the last layer's of the second stage: the head's. */
static bool tie_trains(const motet_program *program, const motet_tie *tie) {
  return program->layer_trainable[program->stages[tie->second_stage].layer_end - 1];
}

static int compare_ranks(const void *left, const void *right) {
  int32_t a = *(const int32_t *)left, b = *(const int32_t *)right;
  return (a > b) - (a < b);
}

/* The group of all that hold either stage: an existing one, or a new one at the end of the tables. */
static motet_status tie_group(motet_program *program, const motet_tie *tie, motet_error *error, int32_t *group) {
  const motet_group *first = &program->groups[program->stages[tie->first_stage].group];
  const motet_group *second = &program->groups[program->stages[tie->second_stage].group];
  *group = 0;
  if (first->count == program->ranks || second->count == program->ranks) return MOTET_OK;
  *group = program->stages[tie->first_stage].group;
  if (first == second) return MOTET_OK;
  int32_t count = first->count + second->count;
  int64_t used = program->group_rank_count;
  motet_group *groups = MT_ARENA_NEW(program->arena, motet_group, program->group_count + 1);
  int32_t *ranks = MT_ARENA_NEW(program->arena, int32_t, used + count);
  if (groups == NULL || ranks == NULL)
    return mt_error_memory(error, (unsigned long long)used * sizeof(int32_t), "a tie's group");
  memcpy(groups, program->groups, (size_t)program->group_count * sizeof *groups);
  memcpy(ranks, program->group_ranks, (size_t)used * sizeof *ranks);
  memcpy(ranks + used, ranks + first->first, (size_t)first->count * sizeof *ranks);
  memcpy(ranks + used + first->count, ranks + second->first, (size_t)second->count * sizeof *ranks);
  qsort(ranks + used, (size_t)count, sizeof *ranks, compare_ranks);
  int32_t distinct = 0;
  for (int32_t i = 0; i < count; i++)
    if (i == 0 || ranks[used + i] != ranks[used + i - 1]) ranks[used + distinct++] = ranks[used + i];
  count = distinct;
  if (count == program->ranks) {
    *group = 0;
    return MOTET_OK;
  }
  groups[program->group_count] = (motet_group){.first = used, .count = count};
  program->groups = groups;
  program->group_ranks = ranks;
  program->group_rank_count = used + count;
  *group = program->group_count++;
  return MOTET_OK;
}

typedef struct collective {
  motet_instruction instruction;
  motet_buffer buffer;
} collective;

/* The step's collectives in the one order that all members follow: stages ascending, then ties. */
static motet_status plan_collectives(assembly *this, motet_error *error, collective **result, int32_t *count) {
  motet_program *program = this->program;
  const mt_sizes *sizes = &this->replicas[0].sizes;
  *count = 0;
  *result = MT_ARENA_NEW(this->scratch, collective, program->stage_count + program->tie_count);
  if (*result == NULL)
    return mt_error_memory(error, (unsigned long long)program->stage_count * sizeof(collective), "collectives");
  for (int32_t s = 0; s < program->stage_count; s++) {
    int32_t group = program->stages[s].group;
    if (program->groups[group].count < 2 || !mt_stage_trains(program, s)) continue;
    (*result)[*count] = (collective){
        .instruction = {.kind = MOTET_ALL_REDUCE, .stage = s, .microbatch = -1, .buffer = *count, .peer = group},
        .buffer = {.kind = MOTET_BUFFER_WEIGHT_GRADIENT,
                   .stage = s,
                   .edge = -1,
                   .microbatch = -1,
                   .bytes = sizes->weight_bytes != NULL ? sizes->weight_bytes[s] : 0}};
    (*count)++;
  }
  for (int32_t t = 0; t < program->tie_count; t++) {
    const motet_tie *tie = &program->ties[t];
    if (!tie_trains(program, tie)) continue;
    int32_t group;
    motet_status status = tie_group(program, tie, error, &group);
    if (status != MOTET_OK) return status;
    if (program->groups[group].count < 2) continue;
    (*result)[*count] = (collective){
        .instruction = {.kind = MOTET_ALL_REDUCE, .stage = -1, .microbatch = -1, .buffer = *count, .peer = group},
        .buffer = {
            .kind = MOTET_BUFFER_TIED_GRADIENT, .stage = -1, .edge = t, .microbatch = -1, .bytes = tie->bytes}};
    (*count)++;
  }
  return MOTET_OK;
}

/* Marks a group's members in the first replica, which stand first in the group. */
static void count_members(const assembly *this, int32_t group, int64_t *counts) {
  const motet_program *program = this->program;
  const motet_group *members = &program->groups[group];
  for (int32_t i = 0; i < members->count; i++) {
    int32_t rank = program->group_ranks[members->first + i];
    if (rank >= mt_replica_ranks(&this->replicas[0])) break;
    counts[rank]++;
  }
}

/* Writes each rank's tail; `next` holds where it begins and `trains` whether the rank has an optimizer step. */
static void write_tails(assembly *this, const collective *collectives, int32_t count, const int64_t *trains,
                        int64_t *next) {
  const motet_program *program = this->program;
  int32_t ranks = mt_replica_ranks(&this->replicas[0]);
  for (int32_t c = 0; c < count; c++) {
    const motet_group *members = &program->groups[collectives[c].instruction.peer];
    this->shared[c] = collectives[c].buffer;
    for (int32_t i = 0; i < members->count; i++) {
      int32_t rank = program->group_ranks[members->first + i];
      if (rank >= ranks) break;
      this->tails[next[rank]++] = collectives[c].instruction;
    }
  }
  for (int32_t rank = 0; rank < ranks; rank++) {
    motet_instruction end = {.kind = MOTET_OPTIM, .stage = -1, .microbatch = -1, .buffer = -1, .peer = -1};
    if (trains[rank] > 0) this->tails[next[rank]++] = end;
    end.kind = MOTET_STEP_END;
    end.peer = 0;
    this->tails[next[rank]] = end;
  }
}

/* Reduces, optimizer step and step barrier, one list a rank of the first replica. */
static motet_status plan_tails(assembly *this, motet_error *error) {
  const motet_program *program = this->program;
  int32_t ranks = mt_replica_ranks(&this->replicas[0]), count;
  collective *collectives;
  motet_status status = plan_collectives(this, error, &collectives, &count);
  if (status != MOTET_OK) return status;
  this->shared_count = count;
  this->tail_begin = MT_ARENA_NEW(this->scratch, int64_t, ranks + 1);
  this->shared = MT_ARENA_NEW(this->scratch, motet_buffer, count);
  int64_t *counts = MT_ARENA_NEW(this->scratch, int64_t, ranks);
  int64_t *trains = MT_ARENA_NEW(this->scratch, int64_t, ranks);
  if (this->tail_begin == NULL || this->shared == NULL || counts == NULL || trains == NULL)
    return mt_error_memory(error, (unsigned long long)ranks * 24, "collectives");
  for (int32_t c = 0; c < count; c++) count_members(this, collectives[c].instruction.peer, counts);
  for (int32_t s = 0; s < program->stage_count; s++)
    if (mt_stage_trains(program, s)) count_members(this, program->stages[s].group, trains);
  for (int32_t rank = 0; rank < ranks; rank++) {
    this->tail_begin[rank + 1] = this->tail_begin[rank] + counts[rank] + (trains[rank] > 0) + 1;
    counts[rank] = this->tail_begin[rank];
  }
  this->tails = MT_ARENA_NEW(this->scratch, motet_instruction, this->tail_begin[ranks]);
  if (this->tails == NULL)
    return mt_error_memory(error, (unsigned long long)this->tail_begin[ranks] * sizeof(motet_instruction),
                           "collectives");
  write_tails(this, collectives, count, trains, counts);
  return MOTET_OK;
}

static motet_status allocate_lists(assembly *this, motet_error *error) {
  motet_program *program = this->program;
  int32_t ranks = mt_replica_ranks(&this->replicas[0]);
  int64_t buffers = this->shared_count, instructions = 0;
  for (int32_t k = 0; k < program->replicas; k++) {
    const mt_pipeline *pipeline = &this->classes[this->class_of[k]].pipeline;
    buffers += pipeline->buffer_count;
    instructions += pipeline->begin[ranks] + this->tail_begin[ranks];
  }
  if (buffers > INT32_MAX)
    return mt_error_set(error, MOTET_ERROR_LIMIT, "%lld transfers are more than a program may have",
                        (long long)buffers);
  program->buffer_count = buffers;
  program->rank_begin = MT_ARENA_NEW(program->arena, int64_t, program->ranks + (int64_t)1);
  program->buffers = MT_ARENA_NEW(program->arena, motet_buffer, buffers);
  program->instructions = MT_ARENA_NEW(program->arena, motet_instruction, instructions);
  if (program->rank_begin == NULL || program->buffers == NULL || program->instructions == NULL)
    return mt_error_memory(error, (unsigned long long)instructions * sizeof(motet_instruction), "a program");
  for (int64_t b = 0; b < this->shared_count; b++) program->buffers[b] = this->shared[b];
  return MOTET_OK;
}

/* What a replica's numbers begin at. */
typedef struct offsets {
  int32_t microbatch, buffer, rank, range;
  const int32_t *range_groups; /* (program ranges) the groups of the pipeline rank whose list it is */
  int32_t range_stride;
} offsets;

/* One rank's list with the replica's numbers. Transfers alone have a buffer or a peer here. */
static motet_instruction *copy_list(motet_instruction *next, const mt_pipeline *pipeline, int32_t rank,
                                    const offsets *by) {
  const motet_instruction *source = &pipeline->instructions[pipeline->begin[rank]];
  int64_t count = pipeline->begin[rank + 1] - pipeline->begin[rank];
  for (int64_t i = 0; i < count; i++) {
    motet_instruction instruction = source[i];
    instruction.microbatch += by->microbatch;
    instruction.buffer += instruction.buffer >= 0 ? by->buffer : 0;
    instruction.peer += instruction.peer >= 0 ? by->rank : 0;
    instruction.range += instruction.range > 0 ? by->range : 0;
    if (instruction.range > 0 && instruction.buffer < 0)
      instruction.peer = by->range_groups[(int64_t)instruction.range * by->range_stride];
    *next++ = instruction;
  }
  return next;
}

static motet_status write_lists(assembly *this, motet_error *error) {
  motet_status status = allocate_lists(this, error);
  if (status != MOTET_OK) return status;
  motet_program *program = this->program;
  int32_t ranks = mt_replica_ranks(&this->replicas[0]), width = mt_replica_width(&this->replicas[0]);
  int32_t microbatches = this->replicas[0].derivation->microbatches, ranges = 0;
  motet_instruction *next = program->instructions;
  int64_t buffers = this->shared_count;
  for (int32_t k = 0; k < program->replicas; k++) {
    const mt_pipeline *pipeline = &this->classes[this->class_of[k]].pipeline;
    for (int32_t rank = 0; rank < ranks; rank++) {
      program->rank_begin[(int64_t)k * ranks + rank] = next - program->instructions;
      offsets by = {.microbatch = k * microbatches,
                    .buffer = (int32_t)buffers,
                    .rank = k * ranks,
                    .range = ranges,
                    .range_groups = this->range_groups + rank / width,
                    .range_stride = ranks / width};
      next = copy_list(next, pipeline, rank, &by);
      int64_t tail = this->tail_begin[rank + 1] - this->tail_begin[rank];
      memcpy(next, &this->tails[this->tail_begin[rank]], (size_t)tail * sizeof *next);
      next += tail;
    }
    for (int32_t b = 0; b < pipeline->buffer_count; b++) {
      motet_buffer *buffer = &program->buffers[buffers++];
      *buffer = pipeline->buffers[b];
      buffer->microbatch += k * microbatches;
      buffer->range += buffer->range > 0 ? ranges : 0;
    }
    if (this->replicas[k].spread != NULL) ranges += this->replicas[k].spread->range_count;
  }
  program->rank_begin[program->ranks] = next - program->instructions;
  return MOTET_OK;
}

motet_status mt_program_lower_with(const mt_replica *replicas, int32_t replica_count,
                                   const mt_lower_options *options, motet_error *error, motet_program **result) {
  *result = NULL;
  motet_status status = check_agreement(replicas, replica_count, error);
  if (status != MOTET_OK) return status;
  mt_arena *arena = mt_arena_create();
  assembly this = {.replicas = replicas, .scratch = mt_arena_create()};
  motet_program *program = arena != NULL ? MT_ARENA_NEW(arena, motet_program, 1) : NULL;
  if (program == NULL || this.scratch == NULL) {
    status = mt_error_memory(error, sizeof *program, "a program");
    goto fail;
  }
  program->arena = arena;
  program->replicas = replica_count;
  program->ranks = mt_replica_ranks(&replicas[0]) * replica_count;
  this.program = program;
  status = mt_tables_fill(replicas, this.scratch, error, program, &this.range_groups);
  if (status == MOTET_OK) status = lower_classes(&this, options, error);
  if (status == MOTET_OK) status = plan_tails(&this, error);
  if (status == MOTET_OK) status = write_lists(&this, error);
  if (status != MOTET_OK) goto fail;
  mt_arena_destroy(this.scratch);
  *result = program;
  return MOTET_OK;
fail:
  mt_arena_destroy(this.scratch);
  mt_arena_destroy(arena);
  return status;
}

motet_status mt_program_lower(const mt_replica *replicas, int32_t replica_count, motet_error *error,
                              motet_program **program) {
  const mt_lower_options options = {.receive_ahead = 1};
  return mt_program_lower_with(replicas, replica_count, &options, error, program);
}
