#include "program/check.h"

#include "program/columns.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

mt_instruction_shape mt_instruction_shape_of(int kind) {
  static const uint8_t shapes[MOTET_INSTRUCTION_KINDS] = {
      [MOTET_SEND] = MT_SHAPE_TRANSFER,
      [MOTET_RECV] = MT_SHAPE_TRANSFER,
      [MOTET_WAIT] = MT_SHAPE_TRANSFER,
      [MOTET_REDUCE] = MT_SHAPE_COLLECTIVE,
      [MOTET_REDUCE_SCATTER] = MT_SHAPE_COLLECTIVE,
      [MOTET_ALL_GATHER] = MT_SHAPE_COLLECTIVE,
      [MOTET_ALL_REDUCE] = MT_SHAPE_COLLECTIVE,
      [MOTET_OPTIM] = MT_SHAPE_OPTIM,
      [MOTET_STEP_END] = MT_SHAPE_STEP_END, /* the others: MT_SHAPE_COMPUTE, which is 0 */
  };
  return (mt_instruction_shape)shapes[kind];
}

/* Reports a value out of [low, high]; the format names the key path. */
static motet_status MT_PRINTF(5, 6)
    outside(motet_error *error, int64_t value, int64_t low, int64_t high, const char *format, ...) {
  char key[MOTET_ERROR_KEY_SIZE];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(key, sizeof key, format, arguments);
  va_end(arguments);
  if (low > high)
    mt_error_set(error, MOTET_ERROR_PARSE, "%s is %" PRId64 ", but nothing is there to be named", key, value);
  else
    mt_error_set(error, MOTET_ERROR_PARSE, "%s is %" PRId64 "; it must be from %" PRId64 " to %" PRId64, key, value,
                 low, high);
  mt_error_key(error, key);
  return MOTET_ERROR_PARSE;
}

#define CHECK(value, low, high, ...)                                                                               \
  do {                                                                                                             \
    if ((value) < (low) || (value) > (high)) return outside(error, (value), (low), (high), __VA_ARGS__);           \
  } while (0)

static motet_status check_statement(const motet_program *program, motet_error *error) {
  CHECK(program->ranks, 1, INT32_MAX, "ranks");
  CHECK(program->replicas, 1, program->ranks, "replicas");
  if (program->ranks % program->replicas != 0) {
    mt_error_set(error, MOTET_ERROR_PARSE, "%d ranks cannot be divided into %d replicas of equal size",
                 program->ranks, program->replicas);
    mt_error_key(error, "replicas");
    return MOTET_ERROR_PARSE;
  }
  CHECK(program->module_count, 1, 64, "number of modules");
  int32_t next = 0;
  for (int32_t j = 0; j < program->module_count; j++) {
    const motet_program_module *module = &program->modules[j];
    CHECK(module->layer_begin, next, next, "modules[%d].layers[0]", j);
    CHECK(module->layer_end, next, program->layer_count, "modules[%d].layers[1]", j);
    next = module->layer_end;
  }
  CHECK(next, program->layer_count, program->layer_count, "modules[%d].layers[1]", program->module_count - 1);
  for (int32_t e = 0; e < program->module_edge_count; e++) {
    CHECK(program->module_edges[e].from, 0, program->module_count - 1, "module_edges[%d][0]", e);
    CHECK(program->module_edges[e].to, program->module_edges[e].from + 1, program->module_count - 1,
          "module_edges[%d][1]", e);
  }
  CHECK(program->microbatch_count, 1, INT32_MAX, "number of microbatches");
  uint64_t beyond = program->module_count == 64 ? 0 : ~(((uint64_t)1 << program->module_count) - 1);
  for (int32_t m = 0; m < program->microbatch_count; m++) {
    const motet_program_microbatch *microbatch = &program->microbatches[m];
    CHECK(microbatch->replica, 0, program->replicas - 1, "microbatches[%d][0]", m);
    CHECK(microbatch->tokens, 0, INT32_MAX, "microbatches[%d][1]", m);
    if (((microbatch->present | microbatch->cached) & beyond) == 0) continue;
    char key[48];
    snprintf(key, sizeof key, "microbatches[%d][%d]", m, microbatch->present & beyond ? 2 : 3);
    mt_error_set(error, MOTET_ERROR_PARSE, "%s names modules beyond the last, %d", key, program->module_count - 1);
    mt_error_key(error, key);
    return MOTET_ERROR_PARSE;
  }
  return MOTET_OK;
}

static motet_status check_groups(const motet_program *program, motet_error *error) {
  CHECK(program->group_count, 1, INT32_MAX, "number of groups");
  CHECK(program->groups[0].count, program->ranks, program->ranks, "number of ranks of groups[0]");
  for (int32_t g = 0; g < program->group_count; g++) {
    CHECK(program->groups[g].count, 1, program->ranks, "number of ranks of groups[%d]", g);
    for (int32_t i = 0, next = 0; i < program->groups[g].count; i++) {
      int32_t rank = program->group_ranks[program->groups[g].first + i];
      CHECK(rank, next, program->ranks - 1, "groups[%d][%d]", g, i);
      next = rank + 1;
    }
  }
  return MOTET_OK;
}

static motet_status check_placement(const motet_program *program, motet_error *error) {
  for (int32_t s = 0; s < program->stage_count; s++) {
    const motet_program_stage *stage = &program->stages[s];
    CHECK(stage->region, 0, program->region_count - 1, "stages[%d].region", s);
    CHECK(stage->slab, 0, INT32_MAX, "stages[%d].slab", s);
    CHECK(stage->layer_begin, 0, program->layer_count, "stages[%d].layers[0]", s);
    CHECK(stage->layer_end, stage->layer_begin, program->layer_count, "stages[%d].layers[1]", s);
    CHECK(stage->group, 0, program->group_count - 1, "stages[%d].group", s);
    if (stage->share > 0 && stage->share <= 1) continue;
    char key[48];
    snprintf(key, sizeof key, "stages[%d].share", s);
    mt_error_set(error, MOTET_ERROR_PARSE, "%s is %g; a part of a rank's work is above 0 and at most 1", key,
                 stage->share);
    mt_error_key(error, key);
    return MOTET_ERROR_PARSE;
  }
  for (int32_t e = 0; e < program->edge_count; e++) {
    CHECK(program->edges[e].from, 0, program->stage_count - 1, "edges[%d][0]", e);
    CHECK(program->edges[e].to, program->edges[e].from + 1, program->stage_count - 1, "edges[%d][1]", e);
  }
  CHECK(program->range_count, 1, INT32_MAX, "number of ranges");
  CHECK(program->ranges[0].begin, 0, 0, "ranges[0][0]");
  CHECK(program->ranges[0].end, -1, -1, "ranges[0][1]");
  int32_t share = 0;
  for (int32_t r = 1; r < program->range_count; r++) {
    const motet_range *range = &program->ranges[r];
    CHECK(range->begin, 0, INT32_MAX - 1, "ranges[%d][0]", r);
    CHECK(range->end, range->begin + 1, INT32_MAX, "ranges[%d][1]", r);
    /* Either no microbatch is cut or all are, in their order. */
    int32_t before = r > 1 ? program->ranges[r - 1].microbatch : -1, next = before + 1;
    if (next >= program->microbatch_count) next = program->microbatch_count - 1;
    CHECK(range->microbatch, before < 0 ? 0 : before, next, "ranges[%d][2]", r);
    CHECK(range->degree, 1, program->share_count - share, "number of shares of ranges[%d]", r);
    CHECK(range->first_share, share, share, "first share of ranges[%d]", r);
    for (int32_t i = 0; i < range->degree; i++, share++) {
      CHECK(program->shares[share].tokens, 0, INT32_MAX, "ranges[%d][3][%d][0]", r, i);
      CHECK(program->shares[share].features, 0, program->shares[share].tokens, "ranges[%d][3][%d][1]", r, i);
    }
  }
  CHECK(program->share_count, share, share, "number of shares");
  if (program->range_count > 1)
    CHECK(program->ranges[program->range_count - 1].microbatch, program->microbatch_count - 1,
          program->microbatch_count - 1, "ranges[%d][2]", program->range_count - 1);
  for (int32_t t = 0; t < program->tie_count; t++) {
    CHECK(program->ties[t].first_stage, 0, program->stage_count - 1, "ties[%d][0]", t);
    CHECK(program->ties[t].second_stage, 0, program->stage_count - 1, "ties[%d][1]", t);
    CHECK(program->ties[t].bytes, 0, MT_PROGRAM_BYTES_MAX, "ties[%d][2]", t);
  }
  for (int32_t i = 0; i < program->carried_count; i++) {
    CHECK(program->carried[i].stage, 0, program->stage_count - 1, "carried[%d][0]", i);
    CHECK(program->carried[i].microbatch, 0, program->microbatch_count - 1, "carried[%d][1]", i);
    CHECK(program->carried[i].rank, 0, program->ranks - 1, "carried[%d][2]", i);
  }
  return MOTET_OK;
}

static motet_status check_buffers(const motet_program *program, motet_error *error) {
  CHECK(program->buffer_count, 0, INT32_MAX, "number of buffers");
  for (int64_t b = 0; b < program->buffer_count; b++) {
    const motet_buffer *buffer = &program->buffers[b];
    CHECK(buffer->kind, 0, MOTET_BUFFER_PARAMETER, "buffers[%" PRId64 "][0]", b);
    bool transfer = buffer->kind <= MOTET_BUFFER_GRADIENT, tie = buffer->kind == MOTET_BUFFER_TIED_GRADIENT;
    int32_t edges = transfer ? program->edge_count : tie ? program->tie_count : 0;
    CHECK(buffer->stage, tie ? -1 : 0, tie ? -1 : program->stage_count - 1, "buffers[%" PRId64 "][1]", b);
    CHECK(buffer->edge, transfer || tie ? 0 : -1, edges - 1, "buffers[%" PRId64 "][2]", b);
    CHECK(buffer->microbatch, transfer ? 0 : -1, transfer ? program->microbatch_count - 1 : -1,
          "buffers[%" PRId64 "][3]", b);
    CHECK(buffer->range, 0, program->range_count - 1, "buffers[%" PRId64 "][4]", b);
    CHECK(buffer->bytes, 0, MT_PROGRAM_BYTES_MAX, "buffers[%" PRId64 "][5]", b);
    int32_t last_member = buffer->range > 0 ? program->ranges[buffer->range].degree - 1 : 0;
    CHECK(buffer->member, 0, last_member, "buffers[%" PRId64 "][6]", b);
  }
  return MOTET_OK;
}

static motet_status check_size_table(const motet_program *program, const motet_size_table *table, const char *key,
                                     motet_error *error) {
  if (table->values == NULL) return MOTET_OK;
  for (int32_t s = 0; s < program->stage_count; s++)
    for (int32_t m = 0; m < (table->microbatch_stride != 0 ? mt_column_count(program) : 1); m++)
      CHECK(table->values[s * table->stage_stride + m * table->microbatch_stride], 0, MT_PROGRAM_BYTES_MAX,
            "%s[%d][%d]", key, s, m);
  return MOTET_OK;
}

static motet_status check_sizes(const motet_program *program, motet_error *error) {
  CHECK(program->memory_cap, 0, MT_PROGRAM_BYTES_MAX, "memory_cap");
  for (int32_t s = 0; program->static_bytes != NULL && s < program->stage_count; s++)
    CHECK(program->static_bytes[s], 0, MT_PROGRAM_BYTES_MAX, "static_bytes[%d]", s);
  motet_status status = check_size_table(program, &program->saved_bytes, "saved_bytes", error);
  if (status != MOTET_OK) return status;
  return check_size_table(program, &program->output_bytes, "output_bytes", error);
}

static motet_status check_instruction(const motet_program *program, const motet_instruction *instruction,
                                      motet_error *error) {
  CHECK(instruction->kind, 0, MOTET_INSTRUCTION_KINDS - 1, "kind");
  mt_instruction_shape shape = mt_instruction_shape_of(instruction->kind);
  bool compute = shape == MT_SHAPE_COMPUTE, transfer = shape == MT_SHAPE_TRANSFER;
  bool collective = shape == MT_SHAPE_COLLECTIVE, group = collective || shape == MT_SHAPE_STEP_END;
  int flags = instruction->kind <= MOTET_RECOMPUTE ? MOTET_FLAG_JOINED : 0;
  if (instruction->kind == MOTET_WAIT) flags |= MOTET_FLAG_RECV;
  if (instruction->kind == MOTET_FWD || instruction->kind == MOTET_LOAD) flags |= MOTET_FLAG_NEXT;
  if ((instruction->flags & ~flags) != 0) return outside(error, instruction->flags, 0, flags, "flags");
  int32_t last_stage = compute || transfer || collective ? program->stage_count - 1 : -1;
  int32_t last_microbatch = compute || transfer || collective ? program->microbatch_count - 1 : -1;
  /* Compute of a token range names the group that shares it. */
  group = group || (compute && instruction->range > 0);
  int32_t last_peer = transfer ? program->ranks - 1 : group ? program->group_count - 1 : -1;
  CHECK(instruction->reserved, 0, 0, "reserved");
  CHECK(instruction->stage, compute ? 0 : -1, last_stage, "stage");
  CHECK(instruction->microbatch, compute || transfer ? 0 : -1, last_microbatch, "microbatch");
  CHECK(instruction->range, 0, compute || transfer || collective ? program->range_count - 1 : 0, "range");
  CHECK(instruction->buffer, transfer || collective ? 0 : -1,
        transfer || collective ? program->buffer_count - 1 : -1, "buffer");
  CHECK(instruction->peer, transfer || group ? 0 : -1, last_peer, "peer");
  /* A transfer moves what flows along an edge; a collective does not. */
  if (transfer || collective)
    CHECK(program->buffers[instruction->buffer].kind, transfer ? 0 : MOTET_BUFFER_WEIGHT_GRADIENT,
          transfer ? MOTET_BUFFER_GRADIENT : MOTET_BUFFER_PARAMETER, "kind of buffers[%d]", instruction->buffer);
  return MOTET_OK;
}

static motet_status check_lists(const motet_program *program, motet_error *error) {
  for (int32_t rank = 0; rank < program->ranks; rank++)
    for (int64_t i = program->rank_begin[rank]; i < program->rank_begin[rank + 1]; i++) {
      const motet_instruction *instruction = &program->instructions[i];
      if (check_instruction(program, instruction, error) == MOTET_OK) continue;
      long long index = i - program->rank_begin[rank];
      const char *name = motet_instruction_name(instruction->kind);
      char key[48];
      snprintf(key, sizeof key, "lists[%d][%lld]", rank, index);
      mt_error_context(error, MOTET_ERROR_PARSE, "%s, %s", key, name != NULL ? name : "no kind");
      mt_error_key(error, key);
      mt_error_rule(error, "", rank, index, instruction->microbatch);
      return MOTET_ERROR_PARSE;
    }
  return MOTET_OK;
}

motet_status mt_program_check(const motet_program *program, motet_error *error) {
  motet_status status = check_statement(program, error);
  if (status == MOTET_OK) status = check_groups(program, error);
  if (status == MOTET_OK) status = check_placement(program, error);
  if (status == MOTET_OK) status = check_buffers(program, error);
  if (status == MOTET_OK) status = check_sizes(program, error);
  if (status == MOTET_OK) status = check_lists(program, error);
  return status;
}
