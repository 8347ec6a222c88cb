#include "base/digest.h"

#include "motet/program.h"
#include "program/columns.h"

#include <assert.h>
#include <stdlib.h>

/* Records that hold 32-bit and 64-bit integers without gaps are hashed as they lie in memory, which is the
 * canonical form: little-endian. */
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the canonical form is hashed from memory");
static_assert(sizeof(motet_instruction) == 24, "instructions have no padding");
static_assert(sizeof(motet_range) == 20 && sizeof(motet_carried) == 12, "records have no padding");
static_assert(sizeof(motet_share) == 8, "records have no padding");
static_assert(sizeof(motet_program_edge) == 8 && sizeof(motet_module_edge) == 8, "records have no padding");
static_assert(sizeof(motet_program_microbatch) == 24, "records have no padding");

static void add_bytes(mt_digest *digest, const void *data, int64_t count, size_t size) {
  mt_digest_integer(digest, count);
  if (count > 0) mt_digest_bytes(digest, data, (size_t)count * size);
}

static void add_statement(mt_digest *digest, const motet_program *program) {
  mt_digest_integer(digest, program->ranks);
  mt_digest_integer(digest, program->replicas);
  mt_digest_integer(digest, program->module_count);
  for (int32_t j = 0; j < program->module_count; j++) {
    mt_digest_text(digest, program->modules[j].name);
    mt_digest_integer(digest, program->modules[j].layer_begin);
    mt_digest_integer(digest, program->modules[j].layer_end);
  }
  add_bytes(digest, program->module_edges, program->module_edge_count, sizeof *program->module_edges);
  add_bytes(digest, program->layer_trainable, program->layer_count, sizeof *program->layer_trainable);
  add_bytes(digest, program->microbatches, program->microbatch_count, sizeof *program->microbatches);
}

static void add_placement(mt_digest *digest, const motet_program *program) {
  mt_digest_integer(digest, program->region_count);
  for (int32_t r = 0; r < program->region_count; r++) {
    mt_digest_text(digest, program->regions[r].name);
    mt_digest_text(digest, program->regions[r].skeleton);
    mt_digest_integer(digest, program->regions[r].replicated);
  }
  mt_digest_integer(digest, program->stage_count);
  for (int32_t s = 0; s < program->stage_count; s++) {
    const motet_program_stage *stage = &program->stages[s];
    mt_digest_integer(digest, stage->region);
    mt_digest_integer(digest, stage->slab);
    mt_digest_integer(digest, stage->layer_begin);
    mt_digest_integer(digest, stage->layer_end);
    mt_digest_integer(digest, stage->group);
    mt_digest_integer(digest, stage->inputs);
    mt_digest_number(digest, stage->share);
  }
  add_bytes(digest, program->edges, program->edge_count, sizeof *program->edges);
  mt_digest_integer(digest, program->range_count);
  mt_digest_bytes(digest, program->ranges, 2 * sizeof(int32_t)); /* entry 0, of which nothing else counts */
  if (program->range_count > 1) {
    mt_digest_bytes(digest, program->ranges + 1, (size_t)(program->range_count - 1) * sizeof *program->ranges);
    add_bytes(digest, program->shares, program->share_count, sizeof *program->shares);
  }
  mt_digest_integer(digest, program->group_count);
  for (int32_t g = 0; g < program->group_count; g++) {
    const motet_group *group = &program->groups[g];
    add_bytes(digest, &program->group_ranks[group->first], group->count, sizeof *program->group_ranks);
  }
  mt_digest_integer(digest, program->tie_count);
  for (int32_t t = 0; t < program->tie_count; t++) {
    mt_digest_integer(digest, program->ties[t].first_stage);
    mt_digest_integer(digest, program->ties[t].second_stage);
    mt_digest_integer(digest, program->ties[t].bytes);
  }
  add_bytes(digest, program->carried, program->carried_count, sizeof *program->carried);
  mt_digest_text(digest, program->schedule);
}

/* By content: a stage whose microbatches are all alike adds one value, whatever the strides. */
static void add_size_table(mt_digest *digest, const motet_program *program, const motet_size_table *table) {
  int32_t microbatches = mt_column_count(program);
  for (int32_t s = 0; s < program->stage_count; s++) {
    const int64_t *row = table->values != NULL ? &table->values[s * table->stage_stride] : NULL;
    int64_t stride = table->microbatch_stride, first = row != NULL && microbatches > 0 ? row[0] : 0;
    bool alike = true;
    for (int32_t m = 1; row != NULL && stride != 0 && alike && m < microbatches; m++)
      alike = row[m * stride] == first;
    mt_digest_integer(digest, alike ? 1 : microbatches);
    for (int32_t m = 0; m < (alike ? 1 : microbatches); m++)
      mt_digest_integer(digest, alike ? first : row[m * stride]);
  }
}

static void add_buffers(mt_digest *digest, const motet_program *program) {
  enum { CHUNK = 128, FIELDS = 6 };
  int64_t chunk[CHUNK * FIELDS], *next = chunk;
  mt_digest_integer(digest, program->buffer_count);
  for (int64_t b = 0; b < program->buffer_count; b++) {
    const motet_buffer *buffer = &program->buffers[b];
    *next++ = buffer->kind;
    *next++ = buffer->stage;
    *next++ = buffer->edge;
    *next++ = buffer->microbatch;
    *next++ = buffer->range | (int64_t)buffer->member << 32;
    *next++ = buffer->bytes;
    if (next < chunk + CHUNK * FIELDS) continue;
    mt_digest_bytes(digest, chunk, sizeof chunk);
    next = chunk;
  }
  mt_digest_bytes(digest, chunk, (size_t)(next - chunk) * sizeof *chunk);
}

uint64_t motet_program_digest(const motet_program *program) {
  mt_digest *digest = mt_digest_create();
  if (digest == NULL) return 0;
  add_statement(digest, program);
  add_placement(digest, program);
  add_buffers(digest, program);
  for (int32_t s = 0; s < program->stage_count; s++)
    mt_digest_integer(digest, program->static_bytes != NULL ? program->static_bytes[s] : 0);
  add_size_table(digest, program, &program->saved_bytes);
  add_size_table(digest, program, &program->output_bytes);
  mt_digest_integer(digest, program->memory_cap);
  for (int32_t rank = 0; rank < program->ranks; rank++) {
    int64_t begin = program->rank_begin[rank];
    add_bytes(digest, &program->instructions[begin], program->rank_begin[rank + 1] - begin,
              sizeof *program->instructions);
  }
  uint64_t value = mt_digest_value(digest);
  mt_digest_destroy(digest);
  return value;
}
