/* Rule 3 between ranks: a SEND and a RECV for every transfer, and both in one order on each channel. */
#include "program/verify.h"

/* The walk has made sure that a buffer's ends lie on the ranks that make and read it. */
static motet_status check_transfer(mt_verifier *verifier, int32_t rank, int64_t index) {
  const motet_program *p = verifier->program;
  const motet_instruction *instruction = &p->instructions[index];
  const mt_verify_transfer *transfer = &verifier->transfers[instruction->buffer];
  int64_t position = index - p->rank_begin[rank];
  char text[MT_VERIFY_TEXT_SIZE];
  bool sends = instruction->kind == MOTET_SEND;
  if ((sends ? transfer->recv_position : transfer->send_position) == 0)
    return mt_verify_refuse(verifier, MT_RULE_CHANNELS, rank, position, instruction->microbatch,
                            "%s has no %s of the same buffer (%d) on rank %d",
                            mt_verify_instruction_text(verifier, instruction, text), sends ? "RECV" : "SEND",
                            instruction->buffer, instruction->peer);
  if (transfer->send_number != transfer->recv_number)
    return mt_verify_refuse(
        verifier, MT_RULE_CHANNELS, rank, position, instruction->microbatch,
        "%s is number %d sent and number %d received between the two (from 0): sends and receives "
        "must be posted in one order",
        mt_verify_instruction_text(verifier, instruction, text), transfer->send_number, transfer->recv_number);
  return MOTET_OK;
}

motet_status mt_verify_channels(mt_verifier *verifier) {
  const motet_program *p = verifier->program;
  bool right = true;
  for (int64_t i = 0; i < p->buffer_count; i++) {
    const mt_verify_transfer *transfer = &verifier->transfers[i];
    bool both = (transfer->send_position == 0) == (transfer->recv_position == 0);
    right = right && both && transfer->send_number == transfer->recv_number;
  }
  if (right) return MOTET_OK;
  /* Which post is the first to be wrong. */
  for (int32_t rank = 0; rank < p->ranks; rank++) {
    for (int64_t i = p->rank_begin[rank]; i < p->rank_begin[rank + 1]; i++) {
      if (p->instructions[i].kind != MOTET_SEND && p->instructions[i].kind != MOTET_RECV) continue;
      motet_status status = check_transfer(verifier, rank, i);
      if (status != MOTET_OK) return status;
    }
  }
  return MOTET_OK;
}
