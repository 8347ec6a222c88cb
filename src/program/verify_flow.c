/* Rule 2, the driver: walks every rank's list once. */
#include "program/verify_walk.h"

#include <stdio.h>

static const mt_walk_function functions[MOTET_INSTRUCTION_KINDS] = {
    [MOTET_FWD] = mt_walk_forward,
    [MOTET_BWD] = mt_walk_backward,
    [MOTET_BWD_X] = mt_walk_backward,
    [MOTET_BWD_W] = mt_walk_backward_weights,
    [MOTET_RECOMPUTE] = mt_walk_recompute,
    [MOTET_SEND] = mt_walk_send,
    [MOTET_RECV] = mt_walk_recv,
    [MOTET_WAIT] = mt_walk_wait,
    [MOTET_REDUCE] = mt_walk_collective,
    [MOTET_REDUCE_SCATTER] = mt_walk_collective,
    [MOTET_ALL_GATHER] = mt_walk_collective,
    [MOTET_ALL_REDUCE] = mt_walk_collective,
    [MOTET_OFFLOAD] = mt_walk_offload,
    [MOTET_FETCH] = mt_walk_fetch,
    [MOTET_LOAD] = mt_walk_load,
    [MOTET_OPTIM] = mt_walk_optimizer,
    [MOTET_STEP_END] = mt_walk_step_end,
};

/* Starts @p walk on a rank's list: its weights and the features found are there from the beginning. */
static void start_rank(mt_walk *walk, int32_t rank) {
  mt_verifier *verifier = walk->verifier;
  const motet_program *p = verifier->program;
  *walk = (mt_walk){.verifier = verifier,
                    .rank = rank,
                    .channels = walk->channels,
                    .stages = walk->stages,
                    .ties = walk->ties,
                    .peak_instruction = p->rank_begin[rank + 1] > p->rank_begin[rank] ? 0 : -1,
                    .first_reduce = -1,
                    .optimizer = -1,
                    .step_end = -1};
  for (int64_t i = verifier->held.begin[rank]; i < verifier->held.begin[rank + 1]; i++) {
    int32_t stage = verifier->held.items[i];
    walk->stages[stage] = (mt_walk_stage){.rank = rank + 1};
    mt_walk_take(walk, p->static_bytes[stage]);
  }
  mt_walk_take_carried(walk);
  mt_walk_peak(walk);
  /* The weights stay whatever runs; an empty list's peak is theirs. */
  walk->peak.bytes = walk->live.bytes;
}

/* Bytes, and where they are many how many gigabytes. */
static const char *bytes_text(int64_t bytes, const char *unit, char text[48]) {
  int length = snprintf(text, 48, "%lld%s", (long long)bytes, unit);
  if (bytes >= 1000000000) snprintf(text + length, 48 - (size_t)length, " (%.4g GB)", (double)bytes / 1e9);
  return text;
}

static void judge_memory(mt_walk *walk) {
  mt_verifier *verifier = walk->verifier;
  const motet_program *p = verifier->program;
  const char *region = "";
  int32_t microbatch = -1;
  if (walk->overflow) {
    mt_verify_refuse(verifier, MT_RULE_MEMORY, walk->rank, walk->peak_instruction, -1,
                     "rank %d holds more bytes than 63 bits can count", walk->rank);
    return;
  }
  if (p->memory_cap == 0 || walk->peak.bytes <= p->memory_cap) return;
  char text[MT_VERIFY_TEXT_SIZE] = "the weights it holds", needed[48], more[48], cap[48];
  if (walk->peak_instruction >= 0) {
    const motet_instruction *instruction = &p->instructions[p->rank_begin[walk->rank] + walk->peak_instruction];
    mt_verify_instruction_text(verifier, instruction, text);
    microbatch = instruction->microbatch;
    region = "at ";
  }
  mt_verify_refuse(verifier, MT_RULE_MEMORY, walk->rank, walk->peak_instruction, microbatch,
                   "rank %d needs %s %s%s, %s more than the cap of %s", walk->rank,
                   bytes_text(walk->peak.bytes, " bytes", needed), region, text,
                   bytes_text(walk->peak.bytes - p->memory_cap, "", more), bytes_text(p->memory_cap, "", cap));
}

static motet_status walk_rank(mt_walk *walk) {
  mt_verifier *verifier = walk->verifier;
  const motet_program *p = verifier->program;
  int32_t rank = walk->rank;
  const motet_instruction *list = p->instructions + p->rank_begin[rank];
  int32_t length = (int32_t)(p->rank_begin[rank + 1] - p->rank_begin[rank]);
  for (int32_t i = 0; i < length; i++) {
    walk->position = i;
    if (i == 0 || (list[i - 1].flags & MOTET_FLAG_JOINED) == 0) walk->run = i;
    if (walk->step_end >= 0)
      mt_verify_refuse(verifier, MT_RULE_GRADIENTS, rank, i, list[i].microbatch,
                       "%s stands behind STEP_END: STEP_END must be the rank's last instruction",
                       motet_instruction_name(list[i].kind));
    motet_status status = functions[list[i].kind](walk, &list[i]);
    if (status == MOTET_OK && mt_is_shared(p, &list[i])) status = mt_walk_share(walk, &list[i]);
    if (status != MOTET_OK) return status;
    if ((list[i].flags & MOTET_FLAG_JOINED) == 0) mt_walk_settle(walk);
  }
  walk->position = length;
  mt_walk_finish_transfers(walk);
  mt_walk_finish_gradients(walk);
  judge_memory(walk);
  verifier->memory[rank] = (motet_rank_memory){
      .peak_bytes = walk->peak.bytes,
      .peak_instruction = walk->peak_instruction,
      .peak_activations = (double)walk->peak.units / (double)MT_SHARE_UNIT,
      .peak_features = walk->peak.features,
  };
  return MOTET_OK;
}

motet_status mt_verify_flow(mt_verifier *verifier) {
  const motet_program *p = verifier->program;
  size_t flags = (size_t)p->edge_count * (size_t)verifier->columns;
  size_t buffers = (size_t)p->buffer_count;
  verifier->edge_flags = mt_verify_array(verifier, flags, sizeof *verifier->edge_flags);
  verifier->transfers = mt_verify_array(verifier, buffers, sizeof *verifier->transfers);
  mt_walk walk = {.verifier = verifier};
  walk.channels = mt_verify_array(verifier, (size_t)p->ranks, sizeof *walk.channels);
  walk.stages = mt_verify_array(verifier, (size_t)p->stage_count, sizeof *walk.stages);
  walk.ties = mt_verify_array(verifier, (size_t)p->tie_count, sizeof *walk.ties);
  verifier->memory = mt_verify_array(verifier, (size_t)p->ranks, sizeof *verifier->memory);
  if (verifier->edge_flags == NULL || verifier->transfers == NULL || walk.channels == NULL || walk.stages == NULL ||
      walk.ties == NULL || verifier->memory == NULL)
    return MOTET_ERROR_MEMORY;
  for (int32_t rank = 0; rank < p->ranks; rank++) verifier->memory[rank].peak_instruction = -1;
  for (int32_t rank = 0; rank < p->ranks; rank++) {
    start_rank(&walk, rank);
    motet_status status = walk_rank(&walk);
    if (status != MOTET_OK) return status;
  }
  return MOTET_OK;
}
