/* How the statement cuts microbatches into token ranges: each into ranges that tile its row, each range into its
 * members' shares. What the tables are indexed by follows from it. */
#include "program/verify.h"

#define REFUSE_RANGE(index, ...)                                                                                   \
  return mt_verify_refuse_entry(verifier, MT_RULE_COMPLETENESS, "ranges", (index), __VA_ARGS__)

static motet_status check_shares(mt_verifier *verifier, int32_t index, int32_t next_share) {
  const motet_program *p = verifier->program;
  const motet_range *range = &p->ranges[index];
  if (range->first_share != next_share || range->degree < 1 || range->degree > p->share_count - next_share)
    REFUSE_RANGE(index, "has shares [%d, %d + %d): must begin at %d, have at least one and end by %d",
                 range->first_share, range->first_share, range->degree, next_share, p->share_count);
  int64_t tokens = 0;
  for (int32_t i = 0; i < range->degree; i++) {
    const motet_share *share = &p->shares[next_share + i];
    if (share->tokens < 0 || share->features < 0 || share->features > share->tokens)
      REFUSE_RANGE(index, "share %d has %d tokens, %d of them features: must be 0 to all", i, share->tokens,
                   share->features);
    tokens += share->tokens;
  }
  if (tokens != (int64_t)range->end - range->begin)
    REFUSE_RANGE(index, "its shares have %lld tokens: must be its own %lld", (long long)tokens,
                 (long long)range->end - range->begin);
  return MOTET_OK;
}

/* Ranges in the order of microbatches and tokens, so that each microbatch is covered once. */
static motet_status check_ranges(mt_verifier *verifier) {
  const motet_program *p = verifier->program;
  int32_t microbatch = 0, token = 0, share = 0;
  for (int32_t r = 1; r < p->range_count; r++) {
    const motet_range *range = &p->ranges[r];
    if (token > 0 && range->microbatch != microbatch && token == p->microbatches[microbatch].tokens) {
      microbatch++;
      token = 0;
    }
    if (range->microbatch != microbatch || range->begin != token || range->end <= token ||
        microbatch >= p->microbatch_count || range->end > p->microbatches[microbatch].tokens)
      REFUSE_RANGE(r,
                   "tokens [%d, %d) of microbatch %d: must go on at token %d of microbatch %d, so that ranges tile "
                   "every microbatch",
                   range->begin, range->end, range->microbatch, token, microbatch);
    motet_status status = check_shares(verifier, r, share);
    if (status != MOTET_OK) return status;
    token = range->end;
    share += range->degree;
  }
  if (share != p->share_count || microbatch + 1 != p->microbatch_count ||
      token != p->microbatches[microbatch].tokens)
    REFUSE_RANGE(p->range_count - 1,
                 "ends at token %d of microbatch %d, share %d: all %d microbatches must be tiled, "
                 "and all %d shares belong to a range",
                 token, microbatch, share, p->microbatch_count, p->share_count);
  return MOTET_OK;
}

static motet_status check_buffers(mt_verifier *verifier) {
  const motet_program *p = verifier->program;
  for (int64_t i = 0; i < p->buffer_count; i++) {
    const motet_buffer *buffer = &p->buffers[i];
    const motet_range *range = &p->ranges[buffer->range];
    bool flows = buffer->kind == MOTET_BUFFER_ACTIVATION || buffer->kind == MOTET_BUFFER_GRADIENT;
    bool whole = !flows || (mt_verify_replicated(verifier, p->edges[buffer->edge].from) &&
                            mt_verify_replicated(verifier, p->edges[buffer->edge].to));
    bool right = buffer->range == 0 ? buffer->member == 0 && (whole || p->share_count == 0)
                                    : !whole && range->microbatch == buffer->microbatch && buffer->member >= 0 &&
                                          buffer->member < range->degree;
    if (!right)
      return mt_verify_refuse_entry(verifier, MT_RULE_DATA_FLOW, "buffers", i,
                                    "range %d, member %d: what a cut microbatch's stages exchange is of one of its "
                                    "ranges and of a member that shares it, everything else of range 0",
                                    buffer->range, buffer->member);
  }
  return MOTET_OK;
}

/* Compute of a cut microbatch is of a range that a group of the right size shares, or whole in a replicated region.
 */
static motet_status check_list(mt_verifier *verifier, int32_t rank) {
  const motet_program *p = verifier->program;
  for (int64_t i = p->rank_begin[rank]; i < p->rank_begin[rank + 1]; i++) {
    const motet_instruction *instruction = &p->instructions[i];
    bool computes = instruction->kind <= MOTET_RECOMPUTE ||
                    (instruction->kind >= MOTET_OFFLOAD && instruction->kind <= MOTET_LOAD);
    if (!computes) continue;
    int32_t r = instruction->range, degree = p->ranges[r].degree;
    const char *fault = NULL;
    if (mt_verify_replicated(verifier, instruction->stage))
      fault = r != 0 ? "a replicated region's stage computes whole microbatches, range 0" : NULL;
    else if (r == 0)
      fault = p->share_count > 0 ? "its microbatch is cut into ranges: it must name one" : NULL;
    else if (p->ranges[r].microbatch != instruction->microbatch)
      fault = "its range is of another microbatch";
    else if (p->groups[instruction->peer].count != degree)
      fault = "its group has another number of members than the range has shares";
    else if (mt_group_place(p, instruction->peer, rank) < 0)
      fault = "the rank is no member of its group";
    if (fault == NULL) continue;
    return mt_verify_refuse(verifier, MT_RULE_COMPLETENESS, rank, i - p->rank_begin[rank], instruction->microbatch,
                            "%s of %s, microbatch %d, range %d: %s", motet_instruction_name(instruction->kind),
                            MT_VERIFY_STAGE(verifier, instruction->stage), instruction->microbatch, r, fault);
  }
  return MOTET_OK;
}

motet_status mt_verify_ranges(mt_verifier *verifier) {
  const motet_program *p = verifier->program;
  if (p->range_count > 1 || p->share_count > 0) {
    motet_status status = check_ranges(verifier);
    if (status == MOTET_OK) status = check_buffers(verifier);
    for (int32_t rank = 0; rank < p->ranks && status == MOTET_OK; rank++) status = check_list(verifier, rank);
    if (status != MOTET_OK) return status;
  }
  verifier->columns = mt_column_count(p);
  verifier->first_column = mt_verify_array(verifier, (size_t)p->microbatch_count + 1, sizeof(int32_t));
  verifier->column_microbatch = mt_verify_array(verifier, (size_t)verifier->columns, sizeof(int32_t));
  if (verifier->first_column == NULL || verifier->column_microbatch == NULL) return MOTET_ERROR_MEMORY;
  for (int32_t m = 0; m <= p->microbatch_count; m++) verifier->first_column[m] = mt_column_first(p, m);
  for (int32_t m = 0; m < p->microbatch_count; m++)
    for (int32_t c = verifier->first_column[m]; c < verifier->first_column[m + 1]; c++)
      verifier->column_microbatch[c] = m;
  return MOTET_OK;
}
