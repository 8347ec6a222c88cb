/* Rule 1 for joined instructions: what is computed at once stands together, and goes back as it went forward.
 *
 * That members stand directly behind one another is all that the other rules need to know. A run has no post, WAIT
 * or collective inside and none of its members reads what another makes (edges lead to other stages, a BWD_W is
 * another kind than its BWD_X): what is there before a member is there before the run, and what waits for a
 * member's output waits for a SEND behind the run. Data flow and progress, judged instruction by instruction, hold
 * for runs too. */
#include "program/verify.h"

#include <stdio.h>

#define REFUSE(...) return mt_verify_refuse(verifier, MT_RULE_COMPLETENESS, __VA_ARGS__)

static bool is_joined(const motet_instruction *instruction) {
  return (instruction->flags & MOTET_FLAG_JOINED) != 0;
}

/* A joined instruction and the one behind it are of one computation, on another microbatch. That the microbatches
 * of a run differ, and are of the rank's replica, follows from each being computed once, where it must be. */
static motet_status check_joined(mt_verifier *verifier, int32_t rank, int64_t position) {
  const motet_program *p = verifier->program;
  const motet_instruction *instruction = &p->instructions[p->rank_begin[rank] + position],
                          *behind = instruction + 1;
  const char *name = motet_instruction_name(instruction->kind);
  bool next = (instruction->flags & MOTET_FLAG_NEXT) != 0;
  if (p->rank_begin[rank] + position + 1 == p->rank_begin[rank + 1])
    REFUSE(rank, position, instruction->microbatch,
           "%s of %s, microbatch %d, is joined and the last of rank %d's list: another %s of that stage must stand "
           "directly behind it",
           name, MT_VERIFY_STAGE(verifier, instruction->stage), instruction->microbatch, rank, name);
  bool one = behind->kind == instruction->kind && behind->stage == instruction->stage &&
             ((behind->flags ^ instruction->flags) & MOTET_FLAG_NEXT) == 0;
  char found[MT_VERIFY_TEXT_SIZE];
  if (!one)
    REFUSE(
        rank, position, instruction->microbatch,
        "%s of %s, microbatch %d, is joined with the instruction behind it, %s%s: must be a %s of that stage and "
        "of %s step",
        name, MT_VERIFY_STAGE(verifier, instruction->stage), instruction->microbatch,
        mt_verify_instruction_text(verifier, behind, found),
        (behind->flags & MOTET_FLAG_NEXT) != 0 ? " of the next step" : "", name, next ? "the next" : "this");
  if (instruction->range != 0 || behind->range != 0)
    REFUSE(rank, position, instruction->microbatch,
           "%s of %s, microbatch %d, range %d, is joined with microbatch %d, range %d: joined microbatches must be "
           "whole, range 0",
           name, MT_VERIFY_STAGE(verifier, instruction->stage), instruction->microbatch, instruction->range,
           behind->microbatch, behind->range);
  return MOTET_OK;
}

static motet_status note_runs(mt_verifier *verifier, int32_t rank) {
  const motet_program *p = verifier->program;
  for (int64_t i = p->rank_begin[rank]; i < p->rank_begin[rank + 1]; i++) {
    const motet_instruction *instruction = &p->instructions[i], *behind = instruction + 1;
    if (!is_joined(instruction)) continue;
    motet_status status = check_joined(verifier, rank, i - p->rank_begin[rank]);
    if (status != MOTET_OK) return status;
    if (instruction->kind != MOTET_FWD || (instruction->flags & MOTET_FLAG_NEXT) != 0) continue;
    int32_t stage = instruction->stage;
    mt_verify_cell_at(verifier, stage, verifier->first_column[instruction->microbatch])->behind =
        behind->microbatch + 1;
    mt_verify_cell_at(verifier, stage, verifier->first_column[behind->microbatch])->before =
        instruction->microbatch + 1;
  }
  return MOTET_OK;
}

/* "microbatch 3", or "none", of a microbatch plus one. */
static const char *neighbour_text(int32_t neighbour, char text[MT_VERIFY_TEXT_SIZE]) {
  if (neighbour == 0) return "none";
  snprintf(text, MT_VERIFY_TEXT_SIZE, "microbatch %d", neighbour - 1);
  return text;
}

#define NEIGHBOUR(neighbour) neighbour_text((neighbour), (char[MT_VERIFY_TEXT_SIZE]){""})

/* Every member of a run has its neighbours where all runs are those of the forward. */
static motet_status check_backward_runs(mt_verifier *verifier, int32_t rank) {
  const motet_program *p = verifier->program;
  for (int64_t i = p->rank_begin[rank]; i < p->rank_begin[rank + 1]; i++) {
    const motet_instruction *instruction = &p->instructions[i];
    if (instruction->kind == MOTET_FWD || instruction->kind > MOTET_RECOMPUTE || instruction->range != 0) continue;
    bool first = i == p->rank_begin[rank] || !is_joined(instruction - 1);
    int32_t before = first ? 0 : instruction[-1].microbatch + 1;
    int32_t behind = is_joined(instruction) ? instruction[1].microbatch + 1 : 0;
    const mt_verify_cell *cell =
        mt_verify_cell_at(verifier, instruction->stage, verifier->first_column[instruction->microbatch]);
    if (cell->before == before && cell->behind == behind) continue;
    REFUSE(rank, i - p->rank_begin[rank], instruction->microbatch,
           "%s of %s, microbatch %d, is computed together with %s before and %s behind it, its FWD with %s before "
           "and %s behind it: must be joined as its FWD is",
           motet_instruction_name(instruction->kind), MT_VERIFY_STAGE(verifier, instruction->stage),
           instruction->microbatch, NEIGHBOUR(before), NEIGHBOUR(behind), NEIGHBOUR(cell->before),
           NEIGHBOUR(cell->behind));
  }
  return MOTET_OK;
}

motet_status mt_verify_joined(mt_verifier *verifier) {
  motet_status status = MOTET_OK;
  for (int32_t rank = 0; rank < verifier->program->ranks && status == MOTET_OK; rank++)
    status = note_runs(verifier, rank);
  for (int32_t rank = 0; rank < verifier->program->ranks && status == MOTET_OK; rank++)
    status = check_backward_runs(verifier, rank);
  return status;
}
