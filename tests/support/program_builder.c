#include "program_builder.h"

#include "program/columns.h"

#include <stdlib.h>
#include <string.h>

#define PUSH(array, ...)                                                                                           \
  do {                                                                                                             \
    if (!MT_ARRAY_PUSH((array), __VA_ARGS__)) abort();                                                             \
  } while (0)

void builder_start(program_builder *builder, int32_t ranks, int32_t replicas) {
  *builder = (program_builder){.ranks = ranks, .replicas = replicas};
  PUSH(&builder->groups, (motet_group){.first = 0, .count = ranks});
  for (int32_t rank = 0; rank < ranks; rank++) PUSH(&builder->group_ranks, rank);
}

void builder_free(program_builder *builder) {
  free(builder->modules.data);
  free(builder->module_edges.data);
  free(builder->layers.data);
  free(builder->microbatches.data);
  free(builder->regions.data);
  free(builder->stages.data);
  free(builder->edges.data);
  free(builder->groups.data);
  free(builder->group_ranks.data);
  free(builder->ties.data);
  free(builder->carried.data);
  free(builder->buffers.data);
  for (int32_t i = 0; i < BUILDER_RANKS_MAX; i++) free(builder->lists[i].data);
}

int32_t builder_module(program_builder *builder, const char *name, int32_t layers, bool trainable) {
  int32_t begin = (int32_t)builder->layers.count;
  for (int32_t i = 0; i < layers; i++) PUSH(&builder->layers, trainable);
  PUSH(&builder->modules, (motet_program_module){.name = name, .layer_begin = begin, .layer_end = begin + layers});
  return (int32_t)builder->modules.count - 1;
}

void builder_module_edge(program_builder *builder, int32_t from, int32_t to) {
  PUSH(&builder->module_edges, (motet_module_edge){from, to});
}

int32_t builder_region(program_builder *builder, const char *name, bool replicated) {
  PUSH(&builder->regions, (motet_program_region){name, replicated ? "transpose" : "1f1b", replicated});
  return (int32_t)builder->regions.count - 1;
}

int32_t builder_group(program_builder *builder, int32_t count, const int32_t *ranks) {
  PUSH(&builder->groups, (motet_group){.first = (int64_t)builder->group_ranks.count, .count = count});
  for (int32_t i = 0; i < count; i++) PUSH(&builder->group_ranks, ranks[i]);
  return (int32_t)builder->groups.count - 1;
}

int32_t builder_stage(program_builder *builder, int32_t region, int32_t slab, int32_t layer_begin,
                      int32_t layer_end, int32_t group) {
  PUSH(&builder->stages, (motet_program_stage){.region = region,
                                               .slab = slab,
                                               .layer_begin = layer_begin,
                                               .layer_end = layer_end,
                                               .group = group,
                                               .share = 1});
  return (int32_t)builder->stages.count - 1;
}

int32_t builder_edge(program_builder *builder, int32_t from, int32_t to) {
  PUSH(&builder->edges, (motet_program_edge){from, to});
  return (int32_t)builder->edges.count - 1;
}

int32_t builder_microbatch(program_builder *builder, int32_t replica, uint64_t present, uint64_t cached) {
  PUSH(&builder->microbatches,
       (motet_program_microbatch){.replica = replica, .tokens = 8, .present = present, .cached = cached});
  return (int32_t)builder->microbatches.count - 1;
}

static motet_instruction blank(motet_instruction_kind kind) {
  return (motet_instruction){
      .kind = (uint8_t)kind, .stage = -1, .microbatch = -1, .range = 0, .buffer = -1, .peer = -1};
}

void builder_compute(program_builder *builder, int32_t rank, motet_instruction_kind kind, int32_t stage,
                     int32_t microbatch) {
  motet_instruction instruction = blank(kind);
  instruction.stage = stage;
  instruction.microbatch = microbatch;
  PUSH(&builder->lists[rank], instruction);
}

void builder_compute_next(program_builder *builder, int32_t rank, motet_instruction_kind kind, int32_t stage,
                          int32_t microbatch) {
  builder_compute(builder, rank, kind, stage, microbatch);
  builder->lists[rank].data[builder->lists[rank].count - 1].flags = MOTET_FLAG_NEXT;
}

void builder_join(program_builder *builder, int32_t rank) {
  builder->lists[rank].data[builder->lists[rank].count - 1].flags |= MOTET_FLAG_JOINED;
}

static int64_t size_of(const program_builder *builder, int64_t base, int32_t stage, int32_t microbatch) {
  return base + builder->bytes_step * (stage + microbatch);
}

static int32_t find_buffer(program_builder *builder, motet_buffer wanted) {
  for (size_t i = 0; i < builder->buffers.count; i++) {
    const motet_buffer *buffer = &builder->buffers.data[i];
    if (buffer->kind == wanted.kind && buffer->stage == wanted.stage && buffer->edge == wanted.edge &&
        buffer->microbatch == wanted.microbatch)
      return (int32_t)i;
  }
  PUSH(&builder->buffers, wanted);
  return (int32_t)builder->buffers.count - 1;
}

void builder_transfer(program_builder *builder, int32_t rank, motet_instruction_kind kind, uint8_t flags,
                      int32_t edge, int32_t microbatch, bool gradient, int32_t peer) {
  motet_instruction instruction = blank(kind);
  int32_t from = builder->edges.data[edge].from;
  instruction.flags = flags;
  instruction.stage = from;
  instruction.microbatch = microbatch;
  instruction.peer = peer;
  instruction.buffer =
      find_buffer(builder, (motet_buffer){.kind = gradient ? MOTET_BUFFER_GRADIENT : MOTET_BUFFER_ACTIVATION,
                                          .stage = from,
                                          .edge = edge,
                                          .microbatch = microbatch,
                                          .bytes = size_of(builder, builder->output_bytes, from, microbatch)});
  PUSH(&builder->lists[rank], instruction);
}

void builder_reduce(program_builder *builder, int32_t rank, int32_t stage, int32_t tie, int32_t group) {
  motet_instruction instruction = blank(MOTET_ALL_REDUCE);
  motet_buffer buffer = {.kind = stage < 0 ? MOTET_BUFFER_TIED_GRADIENT : MOTET_BUFFER_WEIGHT_GRADIENT,
                         .stage = stage,
                         .edge = tie,
                         .microbatch = -1,
                         .bytes = stage < 0 ? builder->ties.data[tie].bytes : 100};
  instruction.stage = stage;
  instruction.peer = group;
  instruction.buffer = find_buffer(builder, buffer);
  PUSH(&builder->lists[rank], instruction);
}

void builder_end(program_builder *builder) {
  for (int32_t rank = 0; rank < builder->ranks; rank++) {
    PUSH(&builder->lists[rank], blank(MOTET_OPTIM));
    motet_instruction end = blank(MOTET_STEP_END);
    end.peer = 0;
    PUSH(&builder->lists[rank], end);
  }
}

/* A copy of exactly this length; a valid pointer for length 0. */
static void *exact(const void *data, size_t count, size_t size) {
  void *copy = malloc(count * size + (count == 0));
  if (copy == NULL) abort();
  if (count > 0) memcpy(copy, data, count * size);
  return copy;
}

#define EXACT(data, count) exact((data), (size_t)(count), sizeof *(data))

motet_program *program_copy(const motet_program *program) {
  motet_program *copy = EXACT(program, 1);
  int64_t columns = mt_column_count(program), sizes = program->stage_count * columns;
  copy->modules = EXACT(program->modules, program->module_count);
  copy->module_edges = EXACT(program->module_edges, program->module_edge_count);
  copy->layer_trainable = EXACT(program->layer_trainable, program->layer_count);
  copy->microbatches = EXACT(program->microbatches, program->microbatch_count);
  copy->regions = EXACT(program->regions, program->region_count);
  copy->stages = EXACT(program->stages, program->stage_count);
  copy->edges = EXACT(program->edges, program->edge_count);
  copy->ranges = EXACT(program->ranges, program->range_count);
  copy->shares = EXACT(program->shares, program->share_count);
  copy->groups = EXACT(program->groups, program->group_count);
  copy->group_ranks = EXACT(program->group_ranks, program->group_rank_count);
  copy->ties = EXACT(program->ties, program->tie_count);
  copy->carried = EXACT(program->carried, program->carried_count);
  copy->buffers = EXACT(program->buffers, program->buffer_count);
  copy->static_bytes = EXACT(program->static_bytes, program->stage_count);
  copy->rank_begin = EXACT(program->rank_begin, program->ranks + 1);
  copy->instructions = EXACT(program->instructions, program->rank_begin[program->ranks]);
  motet_size_table *tables[] = {&copy->saved_bytes, &copy->output_bytes};
  for (int i = 0; i < 2; i++) {
    /* Spread out to [stage][column], whatever the strides were. */
    motet_size_table old = *tables[i];
    if (old.values == NULL) continue;
    tables[i]->values = malloc((size_t)sizes * sizeof *old.values + 1);
    tables[i]->stage_stride = columns;
    tables[i]->microbatch_stride = 1;
    for (int64_t j = 0; j < sizes; j++)
      tables[i]->values[j] = old.values[j / columns * old.stage_stride + j % columns * old.microbatch_stride];
  }
  copy->arena = NULL;
  return copy;
}

void program_free(motet_program *program) {
  if (program == NULL) return;
  free(program->modules);
  free(program->module_edges);
  free(program->layer_trainable);
  free(program->microbatches);
  free(program->regions);
  free(program->stages);
  free(program->edges);
  free(program->ranges);
  free(program->shares);
  free(program->groups);
  free(program->group_ranks);
  free(program->ties);
  free(program->carried);
  free(program->buffers);
  free(program->static_bytes);
  free(program->rank_begin);
  free(program->instructions);
  free(program->saved_bytes.values);
  free(program->output_bytes.values);
  free(program);
}

motet_program *builder_program(const program_builder *builder) {
  size_t stages = builder->stages.count, microbatches = builder->microbatches.count;
  int64_t *saved = calloc(stages * microbatches + 1, sizeof *saved),
          *output = calloc(stages * microbatches + 1, sizeof *output);
  int64_t *fixed = calloc(stages + 1, sizeof *fixed), *begin = calloc((size_t)builder->ranks + 1, sizeof *begin);
  for (size_t i = 0; i < stages * microbatches; i++) {
    int32_t stage = (int32_t)(i / microbatches), microbatch = (int32_t)(i % microbatches);
    saved[i] = size_of(builder, builder->saved_bytes, stage, microbatch);
    output[i] = size_of(builder, builder->output_bytes, stage, microbatch);
  }
  for (size_t i = 0; i < stages; i++) fixed[i] = builder->static_bytes;
  for (int32_t i = 0; i < builder->ranks; i++) begin[i + 1] = begin[i] + (int64_t)builder->lists[i].count;
  motet_instruction *instructions = calloc((size_t)begin[builder->ranks] + 1, sizeof *instructions);
  for (int32_t i = 0; i < builder->ranks; i++) {
    if (builder->lists[i].count > 0)
      memcpy(instructions + begin[i], builder->lists[i].data, builder->lists[i].count * sizeof *instructions);
  }
  motet_range whole = {.begin = 0, .end = -1};
  motet_program draft = {
      .ranks = builder->ranks,
      .replicas = builder->replicas,
      .module_count = (int32_t)builder->modules.count,
      .modules = builder->modules.data,
      .module_edge_count = (int32_t)builder->module_edges.count,
      .module_edges = builder->module_edges.data,
      .layer_count = (int32_t)builder->layers.count,
      .layer_trainable = builder->layers.data,
      .microbatch_count = (int32_t)microbatches,
      .microbatches = builder->microbatches.data,
      .region_count = (int32_t)builder->regions.count,
      .regions = builder->regions.data,
      .stage_count = (int32_t)stages,
      .stages = builder->stages.data,
      .edge_count = (int32_t)builder->edges.count,
      .edges = builder->edges.data,
      .range_count = 1,
      .ranges = &whole,
      .group_count = (int32_t)builder->groups.count,
      .groups = builder->groups.data,
      .group_rank_count = (int64_t)builder->group_ranks.count,
      .group_ranks = builder->group_ranks.data,
      .tie_count = (int32_t)builder->ties.count,
      .ties = builder->ties.data,
      .carried_count = (int32_t)builder->carried.count,
      .carried = builder->carried.data,
      .buffer_count = (int64_t)builder->buffers.count,
      .buffers = builder->buffers.data,
      .static_bytes = fixed,
      .saved_bytes = {saved, (int64_t)microbatches, 1},
      .output_bytes = {output, (int64_t)microbatches, 1},
      .rank_begin = begin,
      .instructions = instructions,
      .schedule = "",
  };
  motet_program *program = program_copy(&draft);
  free(saved);
  free(output);
  free(fixed);
  free(begin);
  free(instructions);
  return program;
}

int32_t program_rank_of(const motet_program *program, int64_t index) {
  int32_t rank = 0;
  while (program->rank_begin[rank + 1] <= index) rank++;
  return rank;
}

int64_t program_length(const motet_program *program) { return program->rank_begin[program->ranks]; }

void program_remove(motet_program *program, int64_t index) {
  int32_t rank = program_rank_of(program, index);
  memmove(&program->instructions[index], &program->instructions[index + 1],
          (size_t)(program_length(program) - index - 1) * sizeof *program->instructions);
  for (int32_t i = rank + 1; i <= program->ranks; i++) program->rank_begin[i]--;
}

void program_insert(motet_program *program, int32_t rank, int64_t index, motet_instruction instruction) {
  int64_t length = program_length(program);
  motet_instruction *grown = malloc((size_t)(length + 1) * sizeof *grown);
  if (grown == NULL) abort();
  memcpy(grown, program->instructions, (size_t)index * sizeof *grown);
  grown[index] = instruction;
  memcpy(grown + index + 1, program->instructions + index, (size_t)(length - index) * sizeof *grown);
  free(program->instructions);
  program->instructions = grown;
  for (int32_t i = rank + 1; i <= program->ranks; i++) program->rank_begin[i]++;
}
