/* The table check: after it every index in the tables and lists may be followed. What cannot be checked is that
 * the arrays are as long as the counts say. */
#include "program/verify.h"

#include <limits.h>
#include <string.h>

#define REFUSE_ENTRY(...) return mt_verify_refuse_entry(verifier, MT_RULE_DATA_FLOW, __VA_ARGS__)

/* More (stage, microbatch) pairs or held stages than this a list entry are a sign of damage, not of a large job,
 * and would only use up memory. */
enum { PAIRS_AN_INSTRUCTION = 64, PAIRS_ALWAYS = 1 << 20 };

static bool in_range(int32_t index, int64_t count) { return index >= 0 && index < count; }

static motet_status wrong_shape(mt_verifier *verifier, const char *what) {
  return mt_error_set(verifier->error, MOTET_ERROR_ARGUMENT, "the program's tables have no sound shape: %s", what);
}

static motet_status check_shape(mt_verifier *verifier) {
  const motet_program *p = verifier->program;
  const struct {
    int64_t count;
    const void *array;
    const char *what;
  } tables[] = {
      {p->module_count, p->modules, "modules"},
      {p->module_edge_count, p->module_edges, "module_edges"},
      {p->layer_count, p->layer_trainable, "layer_trainable"},
      {p->microbatch_count, p->microbatches, "microbatches"},
      {p->region_count, p->regions, "regions"},
      {p->stage_count, p->stages, "stages"},
      {p->stage_count, p->static_bytes, "static_bytes"},
      {p->edge_count, p->edges, "edges"},
      {p->range_count, p->ranges, "ranges"},
      {p->share_count, p->shares, "shares"},
      {p->group_count, p->groups, "groups"},
      {p->group_rank_count, p->group_ranks, "group_ranks"},
      {p->tie_count, p->ties, "ties"},
      {p->carried_count, p->carried, "carried"},
      {p->buffer_count, p->buffers, "buffers"},
      {1, p->rank_begin, "rank_begin"},
  };
  for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
    if (tables[i].count < 0 || (tables[i].count > 0 && tables[i].array == NULL))
      return wrong_shape(verifier, tables[i].what);
  }
  if (p->ranks < 1 || p->replicas < 1 || p->ranks % p->replicas != 0)
    return wrong_shape(verifier, "the ranks must be a positive multiple of the replicas");
  if (p->module_count < 1 || p->module_count > 64) return wrong_shape(verifier, "there must be 1 to 64 modules");
  if (p->range_count < 1 || p->group_count < 1)
    return wrong_shape(verifier, "range 0 (the whole microbatch) and group 0 (all ranks) must exist");
  if (p->memory_cap < 0) return wrong_shape(verifier, "memory_cap is negative");
  if (p->buffer_count > INT32_MAX) return wrong_shape(verifier, "buffers are numbered by 32 bits");
  if (p->rank_begin[0] != 0) return wrong_shape(verifier, "rank_begin must start at 0");
  for (int32_t rank = 0; rank < p->ranks; rank++) {
    int64_t begin = p->rank_begin[rank], end = p->rank_begin[rank + 1];
    if (end < begin || end - begin >= INT32_MAX) return wrong_shape(verifier, "rank_begin must ascend");
  }
  if (p->rank_begin[p->ranks] > 0 && p->instructions == NULL) return wrong_shape(verifier, "instructions");
  int64_t pairs = (int64_t)p->stage_count * mt_column_count(p);
  int64_t edge_pairs = (int64_t)p->edge_count * mt_column_count(p);
  if (edge_pairs > pairs) pairs = edge_pairs;
  if ((pairs - PAIRS_ALWAYS) / PAIRS_AN_INSTRUCTION > p->rank_begin[p->ranks] + p->carried_count)
    return mt_error_set(verifier->error, MOTET_ERROR_LIMIT,
                        "%d stages, %d edges and %d microbatches are far more than the %lld instructions can serve",
                        p->stage_count, p->edge_count, p->microbatch_count, (long long)p->rank_begin[p->ranks]);
  return MOTET_OK;
}

static motet_status check_statement_entries(mt_verifier *verifier) {
  const motet_program *p = verifier->program;
  uint64_t known = p->module_count == 64 ? UINT64_MAX : (UINT64_C(1) << p->module_count) - 1;
  for (int32_t i = 0; i < p->module_edge_count; i++) {
    motet_module_edge edge = p->module_edges[i];
    if (!in_range(edge.from, edge.to) || !in_range(edge.to, p->module_count))
      REFUSE_ENTRY("module_edges", i, "%d -> %d must go from a module to a later one of the %d", edge.from, edge.to,
                   p->module_count);
  }
  for (int32_t i = 0; i < p->layer_count; i++) {
    if (p->layer_trainable[i] > 1) REFUSE_ENTRY("layer_trainable", i, "%d must be 0 or 1", p->layer_trainable[i]);
  }
  for (int32_t i = 0; i < p->microbatch_count; i++) {
    const motet_program_microbatch *microbatch = &p->microbatches[i];
    if (!in_range(microbatch->replica, p->replicas))
      REFUSE_ENTRY("microbatches", i, "replica %d must be below %d", microbatch->replica, p->replicas);
    if (((microbatch->present | microbatch->cached) & ~known) != 0)
      REFUSE_ENTRY("microbatches", i, "present and cached must name modules below %d", p->module_count);
    if (microbatch->tokens < 0) REFUSE_ENTRY("microbatches", i, "%d tokens", microbatch->tokens);
  }
  return MOTET_OK;
}

static motet_status check_placement_entries(mt_verifier *verifier) {
  const motet_program *p = verifier->program;
  for (int32_t i = 0; i < p->stage_count; i++) {
    const motet_program_stage *stage = &p->stages[i];
    if (!in_range(stage->region, p->region_count))
      REFUSE_ENTRY("stages", i, "region %d must be below %d", stage->region, p->region_count);
    if (!in_range(stage->group, p->group_count))
      REFUSE_ENTRY("stages", i, "group %d must be below %d", stage->group, p->group_count);
    if (!in_range(stage->slab, p->stage_count))
      REFUSE_ENTRY("stages", i, "slab %d must be below %d", stage->slab, p->stage_count);
    if (stage->layer_begin < 0 || stage->layer_end < stage->layer_begin || stage->layer_end > p->layer_count)
      REFUSE_ENTRY("stages", i, "layers [%d, %d) must lie in [0, %d)", stage->layer_begin, stage->layer_end,
                   p->layer_count);
    if (!(stage->share >= 0 && stage->share <= 1)) REFUSE_ENTRY("stages", i, "share must lie in 0 to 1");
    if (p->static_bytes[i] < 0) REFUSE_ENTRY("static_bytes", i, "must not be negative");
  }
  for (int32_t i = 0; i < p->edge_count; i++) {
    motet_program_edge edge = p->edges[i];
    if (!in_range(edge.from, edge.to) || !in_range(edge.to, p->stage_count))
      REFUSE_ENTRY("edges", i, "%d -> %d must go from a stage to a later one of the %d", edge.from, edge.to,
                   p->stage_count);
  }
  for (int32_t i = 0; i < p->tie_count; i++) {
    const motet_tie *tie = &p->ties[i];
    if (!in_range(tie->first_stage, p->stage_count) || !in_range(tie->second_stage, p->stage_count) ||
        tie->bytes < 0)
      REFUSE_ENTRY("ties", i, "must join two stages below %d", p->stage_count);
  }
  for (int32_t i = 0; i < p->carried_count; i++) {
    const motet_carried *carried = &p->carried[i];
    if (!in_range(carried->stage, p->stage_count) || !in_range(carried->microbatch, p->microbatch_count) ||
        !in_range(carried->rank, p->ranks))
      REFUSE_ENTRY("carried", i, "stage %d, microbatch %d, rank %d: must exist", carried->stage,
                   carried->microbatch, carried->rank);
  }
  return MOTET_OK;
}

static motet_status check_groups(mt_verifier *verifier) {
  const motet_program *p = verifier->program;
  for (int32_t i = 0; i < p->group_count; i++) {
    int64_t first = p->groups[i].first;
    int32_t count = p->groups[i].count;
    if (count < 1 || count > p->ranks) REFUSE_ENTRY("groups", i, "%d members: must have 1 to %d", count, p->ranks);
    if (first < 0 || first > p->group_rank_count - count)
      REFUSE_ENTRY("groups", i, "members from %lld on: group_ranks has %lld entries", (long long)first,
                   (long long)p->group_rank_count);
    const int32_t *ranks = p->group_ranks + first;
    for (int32_t j = 0; j < count; j++) {
      if (!in_range(ranks[j], p->ranks) || (j > 0 && ranks[j] <= ranks[j - 1]))
        return mt_verify_refuse_entry(verifier, MT_RULE_COLLECTIVES, "groups", i,
                                      "member %d is rank %d: ranks must be below %d and ascend, each once", j,
                                      ranks[j], p->ranks);
    }
  }
  if (p->groups[0].count != p->ranks)
    return mt_verify_refuse_entry(verifier, MT_RULE_COLLECTIVES, "groups", 0, "must hold all %d ranks", p->ranks);
  return MOTET_OK;
}

static motet_status check_buffers(mt_verifier *verifier) {
  const motet_program *p = verifier->program;
  for (int32_t i = 0; i < (int32_t)p->buffer_count; i++) {
    const motet_buffer *buffer = &p->buffers[i];
    if (buffer->bytes < 0) REFUSE_ENTRY("buffers", i, "bytes must not be negative");
    if (!in_range(buffer->range, p->range_count))
      REFUSE_ENTRY("buffers", i, "range %d must be below %d", buffer->range, p->range_count);
    switch (buffer->kind) {
    case MOTET_BUFFER_ACTIVATION:
    case MOTET_BUFFER_GRADIENT:
      if (!in_range(buffer->edge, p->edge_count) || !in_range(buffer->microbatch, p->microbatch_count))
        REFUSE_ENTRY("buffers", i, "edge %d, microbatch %d: must be below %d and %d", buffer->edge,
                     buffer->microbatch, p->edge_count, p->microbatch_count);
      if (buffer->stage != p->edges[buffer->edge].from)
        REFUSE_ENTRY("buffers", i, "stage %d must be the producer of edge %d, stage %d", buffer->stage,
                     buffer->edge, p->edges[buffer->edge].from);
      break;
    case MOTET_BUFFER_WEIGHT_GRADIENT:
    case MOTET_BUFFER_PARAMETER:
      if (!in_range(buffer->stage, p->stage_count))
        REFUSE_ENTRY("buffers", i, "stage %d must be below %d", buffer->stage, p->stage_count);
      break;
    case MOTET_BUFFER_TIED_GRADIENT:
      if (!in_range(buffer->edge, p->tie_count))
        REFUSE_ENTRY("buffers", i, "tie %d must be below %d", buffer->edge, p->tie_count);
      break;
    default: REFUSE_ENTRY("buffers", i, "kind %d is no buffer kind", buffer->kind);
    }
  }
  return MOTET_OK;
}

/* The table must lie inside [stages][columns] values, in whatever order. */
static motet_status check_sizes(mt_verifier *verifier, const motet_size_table *table, const char *name) {
  const motet_program *p = verifier->program;
  int32_t columns = mt_column_count(p);
  if (table->values == NULL || p->stage_count == 0 || columns == 0) return MOTET_OK;
  int64_t room = (int64_t)p->stage_count * columns - 1, last_stage, last_microbatch;
  if (table->stage_stride < 0 || table->microbatch_stride < 0 ||
      __builtin_mul_overflow(table->stage_stride, (int64_t)p->stage_count - 1, &last_stage) ||
      __builtin_mul_overflow(table->microbatch_stride, (int64_t)columns - 1, &last_microbatch) ||
      last_stage > room || last_microbatch > room - last_stage)
    REFUSE_ENTRY(name, 0, "strides %lld and %lld reach beyond %d stages of %d microbatches or shares",
                 (long long)table->stage_stride, (long long)table->microbatch_stride, p->stage_count, columns);
  for (int64_t i = 0; i <= last_stage + last_microbatch; i++) {
    if (table->values[i] < 0)
      REFUSE_ENTRY(name, i, "%lld bytes: must not be negative", (long long)table->values[i]);
  }
  return MOTET_OK;
}

/* The fields that a kind uses, and the flags that mean something on it. */
enum { STAGE = 1, MICROBATCH = 2, TRANSFER = 4, COLLECTIVE = 8, GROUP = 16, RANGE = 32 };

static const struct {
  uint8_t uses, flags;
} kinds[MOTET_INSTRUCTION_KINDS] = {
    [MOTET_FWD] = {STAGE | MICROBATCH | RANGE, MOTET_FLAG_NEXT | MOTET_FLAG_JOINED},
    [MOTET_BWD] = {STAGE | MICROBATCH | RANGE, MOTET_FLAG_JOINED},
    [MOTET_BWD_X] = {STAGE | MICROBATCH | RANGE, MOTET_FLAG_JOINED},
    [MOTET_BWD_W] = {STAGE | MICROBATCH | RANGE, MOTET_FLAG_JOINED},
    [MOTET_RECOMPUTE] = {STAGE | MICROBATCH | RANGE, MOTET_FLAG_JOINED},
    [MOTET_SEND] = {STAGE | MICROBATCH | TRANSFER, 0},
    [MOTET_RECV] = {STAGE | MICROBATCH | TRANSFER, 0},
    [MOTET_WAIT] = {STAGE | MICROBATCH | TRANSFER, MOTET_FLAG_RECV},
    [MOTET_REDUCE] = {GROUP | COLLECTIVE, 0},
    [MOTET_REDUCE_SCATTER] = {GROUP | COLLECTIVE, 0},
    [MOTET_ALL_GATHER] = {GROUP | COLLECTIVE, 0},
    [MOTET_ALL_REDUCE] = {GROUP | COLLECTIVE, 0},
    [MOTET_OFFLOAD] = {STAGE | MICROBATCH | RANGE, 0},
    [MOTET_FETCH] = {STAGE | MICROBATCH | RANGE, 0},
    [MOTET_LOAD] = {STAGE | MICROBATCH | RANGE, MOTET_FLAG_NEXT},
    [MOTET_STEP_END] = {GROUP, 0},
};

/* What is wrong with the indices of an instruction, or NULL. */
static const char *instruction_fault(const motet_program *p, const motet_instruction *instruction) {
  if (instruction->kind >= MOTET_INSTRUCTION_KINDS) return "its kind does not exist";
  unsigned uses = kinds[instruction->kind].uses;
  if ((instruction->flags & ~kinds[instruction->kind].flags) != 0)
    return "it has a flag that its kind does not know";
  if ((uses & STAGE) != 0 && !in_range(instruction->stage, p->stage_count)) return "its stage does not exist";
  if ((uses & MICROBATCH) != 0 && !in_range(instruction->microbatch, p->microbatch_count))
    return "its microbatch does not exist";
  if (!in_range(instruction->range, p->range_count)) return "its token range does not exist";
  if (((uses & GROUP) != 0 || ((uses & RANGE) != 0 && instruction->range > 0)) &&
      !in_range(instruction->peer, p->group_count))
    return "its group does not exist";
  if ((uses & (TRANSFER | COLLECTIVE)) != 0 && !in_range(instruction->buffer, p->buffer_count))
    return "its buffer does not exist";
  if ((uses & TRANSFER) != 0 && !in_range(instruction->peer, p->ranks)) return "its peer is no rank";
  return NULL;
}

/* What an instruction and its buffer must say alike is checked where the walk reads the buffer. */
static motet_status check_lists(mt_verifier *verifier) {
  const motet_program *p = verifier->program;
  for (int32_t rank = 0; rank < p->ranks; rank++) {
    for (int64_t i = p->rank_begin[rank]; i < p->rank_begin[rank + 1]; i++) {
      const motet_instruction *instruction = &p->instructions[i];
      const char *fault = instruction_fault(p, instruction);
      int64_t position = i - p->rank_begin[rank];
      if (fault != NULL)
        return mt_verify_refuse(verifier, MT_RULE_DATA_FLOW, rank, position, -1, "rank %d, instruction %lld: %s",
                                rank, (long long)position, fault);
    }
  }
  return MOTET_OK;
}

motet_status mt_verify_tables(mt_verifier *verifier) {
  motet_status status = check_shape(verifier);
  if (status == MOTET_OK) status = check_statement_entries(verifier);
  if (status == MOTET_OK) status = check_placement_entries(verifier);
  if (status == MOTET_OK) status = check_groups(verifier);
  if (status == MOTET_OK) status = check_buffers(verifier);
  if (status == MOTET_OK) status = check_sizes(verifier, &verifier->program->saved_bytes, "saved_bytes");
  if (status == MOTET_OK) status = check_sizes(verifier, &verifier->program->output_bytes, "output_bytes");
  if (status == MOTET_OK) status = check_lists(verifier);
  if (status == MOTET_OK) verifier->pipeline_ranks = verifier->program->ranks / verifier->program->replicas;
  return status;
}
