/* Rule 7: reduces behind the last accumulation and behind the gradients that others wait for, then the optimizer,
 * then the end. Collectives are noted for rule 5. */
#include "program/verify_walk.h"

#define STAGE(stage) MT_VERIFY_STAGE(walk->verifier, (stage))
#define REFUSE(position, microbatch, ...)                                                                          \
  mt_verify_refuse(walk->verifier, MT_RULE_GRADIENTS, walk->rank, (position), (microbatch), __VA_ARGS__)

static bool same_ranks(const motet_program *p, int32_t group, int32_t count, const int32_t *ranks) {
  if (p->groups[group].count != count) return false;
  for (int32_t i = 0; i < count; i++) {
    if (p->group_ranks[p->groups[group].first + i] != ranks[i]) return false;
  }
  return true;
}

static bool same_group(const motet_program *p, int32_t a, int32_t b) {
  return a == b || same_ranks(p, a, p->groups[b].count, p->group_ranks + p->groups[b].first);
}

static int32_t tie_rank_count(const mt_verifier *verifier, int32_t tie) {
  return (int32_t)(verifier->tie_ranks.begin[tie + 1] - verifier->tie_ranks.begin[tie]);
}

static mt_walk_tie *tie_of(mt_walk *walk, int32_t tie) {
  mt_walk_tie *state = &walk->ties[tie];
  if (state->rank != walk->rank + 1) *state = (mt_walk_tie){.rank = walk->rank + 1};
  return state;
}

void mt_walk_accumulate(mt_walk *walk, int32_t stage, int32_t microbatch) {
  const mt_verifier *verifier = walk->verifier;
  const mt_walk_stage *state = &walk->stages[stage];
  if (state->reduces > 0)
    REFUSE(state->last_reduce, -1,
           "the gradients of %s are reduced ahead of its backward of microbatch %d at "
           "instruction %d: must be reduced behind it",
           STAGE(stage), microbatch, walk->position);
  if (walk->optimizer >= 0)
    REFUSE(walk->optimizer, -1,
           "OPTIM stands ahead of the backward of %s, microbatch %d, at instruction %d: must stand "
           "behind it",
           STAGE(stage), microbatch, walk->position);
  for (int64_t i = verifier->ties.begin[stage]; i < verifier->ties.begin[stage + 1]; i++) {
    const mt_walk_tie *tie = tie_of(walk, verifier->ties.items[i]);
    if (tie->reduces > 0)
      REFUSE(tie->last_reduce, -1,
             "the gradient that %s shares is reduced ahead of its backward of microbatch %d at "
             "instruction %d: must be reduced behind it",
             STAGE(stage), microbatch, walk->position);
  }
}

static void note_reduce(mt_walk *walk) {
  if (walk->first_reduce < 0) walk->first_reduce = walk->position;
  if (walk->optimizer >= 0)
    REFUSE(walk->optimizer, -1, "OPTIM stands ahead of the reduce at instruction %d: must stand behind it",
           walk->position);
}

static void reduce_weights(mt_walk *walk, const motet_instruction *instruction, const motet_buffer *buffer) {
  const motet_program *p = walk->verifier->program;
  const char *name = motet_instruction_name(instruction->kind);
  int32_t stage = buffer->stage, group = p->stages[stage].group;
  mt_walk_stage *state = &walk->stages[stage];
  if (instruction->kind != MOTET_ALL_REDUCE && instruction->kind != MOTET_REDUCE_SCATTER) {
    REFUSE(walk->position, -1, "%s of weight gradients: must be ALL_REDUCE, or REDUCE_SCATTER and later ALL_GATHER",
           name);
    return;
  }
  note_reduce(walk);
  if (state->rank != walk->rank + 1 || !same_group(p, instruction->peer, group)) {
    REFUSE(walk->position, -1, "%s of the gradients of %s over group %d: must be over group %d, which holds it",
           name, STAGE(stage), instruction->peer, group);
    return;
  }
  if (walk->verifier->trainable[stage] == 0 || p->groups[group].count == 1)
    REFUSE(walk->position, -1, "%s of the gradients of %s: %s, so there must be none", name, STAGE(stage),
           walk->verifier->trainable[stage] == 0 ? "it is frozen" : "it is on one rank");
  if (state->reduces > 0)
    REFUSE(walk->position, -1, "%s of the gradients of %s a second time: must stand once", name, STAGE(stage));
  state->reduces++;
  state->last_reduce = walk->position;
  state->scattered = instruction->kind == MOTET_REDUCE_SCATTER;
}

static void reduce_tie(mt_walk *walk, const motet_instruction *instruction, const motet_buffer *buffer) {
  const mt_verifier *verifier = walk->verifier;
  const motet_program *p = verifier->program;
  int32_t count = tie_rank_count(verifier, buffer->edge);
  mt_walk_tie *state = tie_of(walk, buffer->edge);
  if (instruction->kind != MOTET_ALL_REDUCE) {
    REFUSE(walk->position, -1, "%s of a tied gradient: must be ALL_REDUCE",
           motet_instruction_name(instruction->kind));
    return;
  }
  note_reduce(walk);
  if (count <= 1) {
    REFUSE(walk->position, -1, "ALL_REDUCE of tie %d, which %s: there must be none", buffer->edge,
           count == 0 ? "is frozen or inside one stage" : "lies on one rank");
    return;
  }
  if (!same_ranks(p, instruction->peer, count, verifier->tie_ranks.items + verifier->tie_ranks.begin[buffer->edge]))
    REFUSE(walk->position, -1,
           "ALL_REDUCE of tie %d over group %d: must be over all %d ranks that hold stage %d or %d", buffer->edge,
           instruction->peer, count, p->ties[buffer->edge].first_stage, p->ties[buffer->edge].second_stage);
  if (buffer->bytes != p->ties[buffer->edge].bytes)
    mt_verify_refuse(walk->verifier, MT_RULE_COLLECTIVES, walk->rank, walk->position, -1,
                     "ALL_REDUCE of %lld bytes: tie %d has %lld", (long long)buffer->bytes, buffer->edge,
                     (long long)p->ties[buffer->edge].bytes);
  if (state->reduces > 0)
    REFUSE(walk->position, -1, "ALL_REDUCE of tie %d a second time: must stand once", buffer->edge);
  state->reduces++;
  state->last_reduce = walk->position;
}

static void gather_parameters(mt_walk *walk, const motet_instruction *instruction, const motet_buffer *buffer) {
  const motet_program *p = walk->verifier->program;
  mt_walk_stage *state = &walk->stages[buffer->stage];
  if (instruction->kind != MOTET_ALL_GATHER || state->rank != walk->rank + 1 ||
      !same_group(p, instruction->peer, p->stages[buffer->stage].group)) {
    REFUSE(walk->position, -1,
           "%s of the weights of %s over group %d: must be ALL_GATHER over group %d, which holds it",
           motet_instruction_name(instruction->kind), STAGE(buffer->stage), instruction->peer,
           p->stages[buffer->stage].group);
    return;
  }
  if (walk->optimizer >= 0) state->gathered = true;
}

motet_status mt_walk_collective(mt_walk *walk, const motet_instruction *instruction) {
  mt_verifier *verifier = walk->verifier;
  const motet_program *p = verifier->program;
  const motet_buffer *buffer = &p->buffers[instruction->buffer];
  bool tied = buffer->kind == MOTET_BUFFER_TIED_GRADIENT;
  if (buffer->kind == MOTET_BUFFER_ACTIVATION || buffer->kind == MOTET_BUFFER_GRADIENT)
    MT_WALK_REFUSE(walk, -1, "%s of buffer %d, an activation's: must be of weight gradients or weights",
                   motet_instruction_name(instruction->kind), instruction->buffer);
  if (!tied && instruction->stage != -1 && instruction->stage != buffer->stage)
    MT_WALK_REFUSE(walk, -1, "%s for stage %d: its buffer is of stage %d",
                   motet_instruction_name(instruction->kind), instruction->stage, buffer->stage);
  if (!mt_verify_member(p, instruction->peer, walk->rank))
    mt_verify_refuse(verifier, MT_RULE_COLLECTIVES, walk->rank, walk->position, -1,
                     "%s over group %d, of which rank %d is no member", motet_instruction_name(instruction->kind),
                     instruction->peer, walk->rank);
  mt_verify_collective entry = {.rank = walk->rank,
                                .position = walk->position,
                                .group = instruction->peer,
                                .buffer = instruction->buffer,
                                .kind = instruction->kind};
  if (!MT_ARRAY_PUSH(&verifier->collectives, entry))
    return mt_error_memory(verifier->error, verifier->collectives.count * sizeof entry, "collectives");
  switch (buffer->kind) {
  case MOTET_BUFFER_WEIGHT_GRADIENT: reduce_weights(walk, instruction, buffer); break;
  case MOTET_BUFFER_TIED_GRADIENT: reduce_tie(walk, instruction, buffer); break;
  default: gather_parameters(walk, instruction, buffer);
  }
  return MOTET_OK;
}

motet_status mt_walk_share(mt_walk *walk, const motet_instruction *instruction) {
  mt_verifier *verifier = walk->verifier;
  mt_verify_collective entry = {.rank = walk->rank,
                                .position = walk->position,
                                .group = instruction->peer,
                                .buffer = -1,
                                .kind = instruction->kind,
                                .stage = instruction->stage,
                                .range = instruction->range};
  if (!MT_ARRAY_PUSH(&verifier->collectives, entry))
    return mt_error_memory(verifier->error, verifier->collectives.count * sizeof entry, "collectives");
  return MOTET_OK;
}

motet_status mt_walk_optimizer(mt_walk *walk, const motet_instruction *instruction) {
  (void)instruction;
  if (walk->optimizer >= 0) REFUSE(walk->position, -1, "OPTIM a second time: must stand once");
  walk->optimizer = walk->position;
  return MOTET_OK;
}

motet_status mt_walk_step_end(mt_walk *walk, const motet_instruction *instruction) {
  mt_verifier *verifier = walk->verifier;
  if (instruction->peer != 0)
    REFUSE(walk->position, -1, "STEP_END over group %d: must be over group 0, all ranks", instruction->peer);
  walk->step_end = walk->position;
  mt_verify_collective entry = {.rank = walk->rank,
                                .position = walk->position,
                                .group = instruction->peer,
                                .buffer = -1,
                                .kind = instruction->kind};
  if (!mt_verify_member(verifier->program, instruction->peer, walk->rank))
    mt_verify_refuse(verifier, MT_RULE_COLLECTIVES, walk->rank, walk->position, -1,
                     "STEP_END over group %d, of which rank %d is no member", instruction->peer, walk->rank);
  if (!MT_ARRAY_PUSH(&verifier->collectives, entry))
    return mt_error_memory(verifier->error, verifier->collectives.count * sizeof entry, "collectives");
  return MOTET_OK;
}

/* The reduces that the rank owes for one stage that it holds. */
static void check_owed(mt_walk *walk, int32_t stage) {
  const mt_verifier *verifier = walk->verifier;
  const motet_program *p = verifier->program;
  const mt_walk_stage *state = &walk->stages[stage];
  if (verifier->trainable[stage] != 0 && p->groups[p->stages[stage].group].count > 1) {
    if (state->reduces == 0)
      REFUSE(-1, -1, "rank %d holds %s and has no reduce of its gradients over group %d", walk->rank, STAGE(stage),
             p->stages[stage].group);
    if (state->scattered && !state->gathered)
      REFUSE(state->last_reduce, -1, "REDUCE_SCATTER for %s: an ALL_GATHER of its weights must follow OPTIM",
             STAGE(stage));
  }
  for (int64_t i = verifier->ties.begin[stage]; i < verifier->ties.begin[stage + 1]; i++) {
    int32_t tie = verifier->ties.items[i];
    if (tie_rank_count(verifier, tie) > 1 && tie_of(walk, tie)->reduces == 0)
      REFUSE(-1, -1, "rank %d holds %s and has no ALL_REDUCE of the gradient that it shares (tie %d)", walk->rank,
             STAGE(stage), tie);
  }
}

void mt_walk_finish_gradients(mt_walk *walk) {
  const mt_verifier *verifier = walk->verifier;
  bool trains = false;
  for (int64_t i = verifier->held.begin[walk->rank]; i < verifier->held.begin[walk->rank + 1]; i++) {
    int32_t stage = verifier->held.items[i];
    trains = trains || verifier->trainable[stage] != 0;
    check_owed(walk, stage);
  }
  if (trains && walk->optimizer < 0)
    REFUSE(-1, -1, "rank %d holds trainable layers and has no OPTIM: must stand behind its reduces", walk->rank);
  if (walk->step_end < 0) REFUSE(-1, -1, "rank %d has no STEP_END: must be its last instruction", walk->rank);
}
