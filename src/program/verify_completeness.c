/* Rule 1: what the statement requires is computed exactly once, and nothing else is. */
#include "program/verify.h"

#define REFUSE(...) return mt_verify_refuse(verifier, MT_RULE_COMPLETENESS, __VA_ARGS__)
#define STAGE MT_VERIFY_STAGE(verifier, stage)

typedef struct place {
  int32_t rank;
  int32_t position;
  const int32_t *holds; /* [stages] rank + 1 where the rank holds the stage */
} place;

/* What holds for every compute instruction: the rank has the weights, the microbatch is its replica's, and there
 * is work. The data of the next step's microbatches are not known here. */
static motet_status check_place(mt_verifier *verifier, place at, const motet_instruction *instruction) {
  const motet_program *p = verifier->program;
  int32_t stage = instruction->stage, microbatch = instruction->microbatch;
  int32_t replica = at.rank / verifier->pipeline_ranks;
  if (at.holds[stage] != at.rank + 1)
    REFUSE(at.rank, at.position, microbatch, "rank %d computes %s and does not hold it: must be in group %d",
           at.rank, STAGE, p->stages[stage].group);
  if (p->microbatches[microbatch].replica != replica)
    REFUSE(at.rank, at.position, microbatch, "rank %d is of replica %d and computes microbatch %d of replica %d",
           at.rank, replica, microbatch, p->microbatches[microbatch].replica);
  if ((instruction->flags & MOTET_FLAG_NEXT) == 0 && !mt_verify_allowed(verifier, stage, microbatch))
    REFUSE(at.rank, at.position, microbatch,
           "%s of %s for microbatch %d, which has no data for it: must not be computed",
           motet_instruction_name(instruction->kind), STAGE, microbatch);
  return MOTET_OK;
}

static motet_status note_forward(mt_verifier *verifier, place at, const motet_instruction *instruction) {
  int32_t stage = instruction->stage, microbatch = instruction->microbatch;
  mt_verify_cell *cell = mt_verify_cell_at(verifier, stage, mt_column_of(verifier->program, at.rank, instruction));
  if ((instruction->flags & MOTET_FLAG_NEXT) != 0) {
    bool has_inputs = verifier->in_edges.begin[stage] != verifier->in_edges.begin[stage + 1];
    if (verifier->asks[stage] != MT_ASKS_NOTHING || has_inputs)
      REFUSE(at.rank, at.position, microbatch,
             "FWD of %s for the next step: only a frozen stage that needs no other stage may run ahead", STAGE);
    if ((cell->flags & MT_HAS_NEXT) != 0)
      REFUSE(at.rank, at.position, microbatch, "FWD of %s for the next step's microbatch %d: must run once", STAGE,
             microbatch);
    cell->flags |= MT_HAS_NEXT;
    cell->next_rank = at.rank;
    return MOTET_OK;
  }
  if ((cell->flags & MT_HAS_FORWARD) != 0)
    REFUSE(at.rank, at.position, microbatch, "FWD of %s for microbatch %d: must run once, and %s on rank %d", STAGE,
           microbatch, (cell->flags & MT_CARRIED) != 0 ? "the step before left it" : "runs", cell->rank);
  cell->flags |= MT_HAS_FORWARD;
  cell->rank = at.rank;
  cell->group = instruction->range > 0 ? instruction->peer : -1;
  return MOTET_OK;
}

/* The backward kinds that exclude each other, by kind. */
static const struct {
  uint32_t has, excludes;
  const char *hint;
} backwards[MOTET_INSTRUCTION_KINDS] = {
    [MOTET_BWD] = {MT_HAS_BACKWARD, MT_HAS_BACKWARD | MT_HAS_BACKWARD_X | MT_HAS_BACKWARD_W,
                   "one BWD, or BWD_X and BWD_W"},
    [MOTET_BWD_X] = {MT_HAS_BACKWARD_X, MT_HAS_BACKWARD | MT_HAS_BACKWARD_X, "one BWD, or BWD_X and BWD_W"},
    [MOTET_BWD_W] = {MT_HAS_BACKWARD_W, MT_HAS_BACKWARD | MT_HAS_BACKWARD_W, "one BWD, or BWD_X and BWD_W"},
    [MOTET_RECOMPUTE] = {MT_HAS_RECOMPUTE, MT_HAS_RECOMPUTE, "one RECOMPUTE at most"},
};

static motet_status note_backward(mt_verifier *verifier, place at, const motet_instruction *instruction) {
  int32_t stage = instruction->stage, microbatch = instruction->microbatch;
  mt_verify_cell *cell = mt_verify_cell_at(verifier, stage, mt_column_of(verifier->program, at.rank, instruction));
  unsigned asks = verifier->asks[stage];
  const char *name = motet_instruction_name(instruction->kind);
  if (asks == MT_ASKS_NOTHING)
    REFUSE(at.rank, at.position, microbatch,
           "%s of %s: nothing at or before it trains, so it must have no backward", name, STAGE);
  bool weights = instruction->kind == MOTET_BWD || instruction->kind == MOTET_BWD_W;
  if (weights && (asks & MT_ASKS_WEIGHTS) == 0)
    REFUSE(at.rank, at.position, microbatch, "%s of %s: it is frozen, so its backward must be one BWD_X", name,
           STAGE);
  if ((cell->flags & backwards[instruction->kind].excludes) != 0)
    REFUSE(at.rank, at.position, microbatch, "%s of %s, microbatch %d, is one too many: there must be %s", name,
           STAGE, microbatch, backwards[instruction->kind].hint);
  cell->flags |= backwards[instruction->kind].has;
  return MOTET_OK;
}

static motet_status note_carried(mt_verifier *verifier) {
  const motet_program *p = verifier->program;
  for (int32_t i = 0; i < p->carried_count; i++) {
    const motet_carried *carried = &p->carried[i];
    mt_verify_cell *cell = mt_verify_cell_at(verifier, carried->stage, verifier->first_column[carried->microbatch]);
    if (!mt_verify_replicated(verifier, carried->stage) && p->share_count > 0)
      return mt_verify_refuse_entry(
          verifier, MT_RULE_COMPLETENESS, "carried", i,
          "stage %d computes token ranges: only a replicated region's output may come from "
          "the step before",
          carried->stage);
    if (verifier->asks[carried->stage] != MT_ASKS_NOTHING)
      return mt_verify_refuse_entry(verifier, MT_RULE_COMPLETENESS, "carried", i,
                                    "stage %d trains: only a frozen stage's output may come from the step before",
                                    carried->stage);
    if (!mt_verify_allowed(verifier, carried->stage, carried->microbatch))
      return mt_verify_refuse_entry(verifier, MT_RULE_COMPLETENESS, "carried", i,
                                    "microbatch %d has no data for stage %d", carried->microbatch, carried->stage);
    if (!mt_verify_member(p, p->stages[carried->stage].group, carried->rank) ||
        carried->rank / verifier->pipeline_ranks != p->microbatches[carried->microbatch].replica)
      return mt_verify_refuse_entry(verifier, MT_RULE_COMPLETENESS, "carried", i,
                                    "rank %d cannot have computed stage %d for microbatch %d of replica %d",
                                    carried->rank, carried->stage, carried->microbatch,
                                    p->microbatches[carried->microbatch].replica);
    if ((cell->flags & MT_HAS_FORWARD) != 0)
      return mt_verify_refuse_entry(verifier, MT_RULE_COMPLETENESS, "carried", i, "is listed twice");
    cell->flags |= MT_HAS_FORWARD | MT_CARRIED | MT_FORWARD_DONE;
    cell->rank = carried->rank;
    cell->group = -1;
  }
  return MOTET_OK;
}

static motet_status note_lists(mt_verifier *verifier, int32_t *holds) {
  const motet_program *p = verifier->program;
  for (int32_t rank = 0; rank < p->ranks; rank++) {
    for (int64_t i = verifier->held.begin[rank]; i < verifier->held.begin[rank + 1]; i++)
      holds[verifier->held.items[i]] = rank + 1;
    for (int64_t i = p->rank_begin[rank]; i < p->rank_begin[rank + 1]; i++) {
      const motet_instruction *instruction = &p->instructions[i];
      if (instruction->kind > MOTET_RECOMPUTE) continue;
      place at = {rank, (int32_t)(i - p->rank_begin[rank]), holds};
      motet_status status = check_place(verifier, at, instruction);
      if (status == MOTET_OK) {
        status = instruction->kind == MOTET_FWD ? note_forward(verifier, at, instruction)
                                                : note_backward(verifier, at, instruction);
      }
      if (status != MOTET_OK) return status;
    }
  }
  return MOTET_OK;
}

/* A rank that could compute what is missing: the first of the group in the replica. */
static int32_t expected_rank(const mt_verifier *verifier, int32_t stage, int32_t microbatch) {
  const motet_program *p = verifier->program;
  motet_group group = p->groups[p->stages[stage].group];
  for (int32_t i = 0; i < group.count; i++) {
    int32_t rank = p->group_ranks[group.first + i];
    if (rank / verifier->pipeline_ranks == p->microbatches[microbatch].replica) return rank;
  }
  return -1;
}

/* All members compute their shares of a range as one group. */
static motet_status check_shared(mt_verifier *verifier, int32_t stage, int32_t index) {
  const motet_range *range = &verifier->program->ranges[index];
  const mt_verify_cell *first = mt_verify_cell_at(verifier, stage, range->first_share);
  for (int32_t i = 1; i < range->degree; i++) {
    const mt_verify_cell *cell = mt_verify_cell_at(verifier, stage, range->first_share + i);
    if ((first->flags & cell->flags & MT_HAS_FORWARD) == 0 || cell->group == first->group) continue;
    REFUSE(
        cell->rank, -1, range->microbatch,
        "%s computes range %d of microbatch %d with group %d on rank %d and with group %d on rank %d: all members "
        "must be of one group",
        STAGE, index, range->microbatch, first->group, first->rank, cell->group, cell->rank);
  }
  return MOTET_OK;
}

static motet_status check_cell(mt_verifier *verifier, int32_t stage, int32_t column) {
  int32_t microbatch = verifier->column_microbatch[column];
  uint32_t flags = mt_verify_cell_at(verifier, stage, column)->flags;
  int32_t rank = mt_verify_cell_at(verifier, stage, column)->rank;
  unsigned asks = verifier->asks[stage];
  if ((flags & MT_HAS_FORWARD) == 0)
    REFUSE(expected_rank(verifier, stage, microbatch), -1, microbatch,
           "%s has no FWD for microbatch %d: a rank of its group and of the microbatch's replica must compute it",
           STAGE, microbatch);
  if (asks == MT_ASKS_NOTHING) return MOTET_OK;
  if ((flags & (MT_HAS_BACKWARD | MT_HAS_BACKWARD_X)) == 0)
    REFUSE(rank, -1, microbatch, "%s has no %s for microbatch %d: its gradients must be computed", STAGE,
           (asks & MT_ASKS_WEIGHTS) == 0      ? "BWD_X"
           : (flags & MT_HAS_BACKWARD_W) != 0 ? "BWD_X before its BWD_W"
                                              : "BWD",
           microbatch);
  bool weights = (flags & (MT_HAS_BACKWARD | MT_HAS_BACKWARD_W)) != 0;
  if ((asks & MT_ASKS_WEIGHTS) != 0 && !weights)
    REFUSE(rank, -1, microbatch, "%s has a BWD_X and no BWD_W for microbatch %d: its weights train", STAGE,
           microbatch);
  return MOTET_OK;
}

static bool is_required(const mt_verifier *verifier, int32_t stage, int32_t column) {
  int32_t microbatch = verifier->column_microbatch[column];
  if (mt_verify_home(verifier, stage, column) != column) return false; /* the whole stands in the first column */
  if (mt_verify_active(verifier, stage, column)) return true;
  if (!mt_verify_empty(verifier, stage)) return false;
  for (int64_t i = verifier->passes.begin[stage]; i < verifier->passes.begin[stage + 1]; i++) {
    uint64_t ends = verifier->passed[verifier->passes.items[i]];
    if ((ends & ~verifier->live[microbatch]) == 0) return true;
  }
  return false;
}

motet_status mt_verify_completeness(mt_verifier *verifier) {
  const motet_program *p = verifier->program;
  size_t cells = (size_t)p->stage_count * (size_t)verifier->columns;
  verifier->cells = mt_verify_array(verifier, cells, sizeof *verifier->cells);
  int32_t *holds = mt_verify_array(verifier, (size_t)p->stage_count, sizeof *holds);
  if (verifier->cells == NULL || holds == NULL) return MOTET_ERROR_MEMORY;
  motet_status status = note_carried(verifier);
  if (status == MOTET_OK) status = note_lists(verifier, holds);
  if (status != MOTET_OK) return status;
  for (int32_t stage = 0; stage < p->stage_count; stage++) {
    for (int32_t column = 0; column < verifier->columns; column++) {
      if (!is_required(verifier, stage, column)) continue;
      status = check_cell(verifier, stage, column);
      if (status != MOTET_OK) return status;
    }
    for (int32_t range = 1; range < p->range_count; range++) {
      if (mt_verify_replicated(verifier, stage)) break;
      status = check_shared(verifier, stage, range);
      if (status != MOTET_OK) return status;
    }
  }
  return MOTET_OK;
}
