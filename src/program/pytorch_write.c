/* From a program to a PyTorch pipelining CSV. */
#include "program/pytorch_csv.h"

static motet_status unsupported(motet_error *error, const char *what) {
  return mt_error_set(error, MOTET_ERROR_UNSUPPORTED,
                      "a PyTorch pipelining CSV cannot say %s; program JSON holds every program", what);
}

static motet_status check_tables(const motet_program *program, motet_error *error) {
  if (program->replicas != 1) return unsupported(error, "several data-parallel replicas");
  for (int32_t s = 0; s < program->stage_count; s++)
    if (program->groups[program->stages[s].group].count != 1)
      return unsupported(error, "a stage that several ranks hold");
  bool chain = program->edge_count == program->stage_count - 1;
  for (int32_t e = 0; chain && e < program->edge_count; e++)
    chain = program->edges[e].from == e && program->edges[e].to == e + 1;
  return chain ? MOTET_OK : unsupported(error, "stages that are not one chain");
}

/* The action of an instruction, or -1 where the form leaves it to PyTorch: loading, waiting for what was received,
 * optimizer and end. */
static int action_of(const motet_program *program, const motet_instruction *instruction, bool communication) {
  static const int8_t computes[] = {[MOTET_FWD] = MT_CSV_FORWARD,
                                    [MOTET_BWD] = MT_CSV_BACKWARD,
                                    [MOTET_BWD_X] = MT_CSV_BACKWARD_INPUT,
                                    [MOTET_BWD_W] = MT_CSV_BACKWARD_WEIGHT};
  if (instruction->kind <= MOTET_BWD_W) return computes[instruction->kind];
  if (!communication) return -1;
  bool gradient = instruction->kind <= MOTET_WAIT && instruction->kind >= MOTET_SEND &&
                  program->buffers[instruction->buffer].kind == MOTET_BUFFER_GRADIENT;
  if (instruction->kind == MOTET_SEND) return gradient ? MT_CSV_SEND_BACKWARD : MT_CSV_SEND_FORWARD;
  if (instruction->kind == MOTET_RECV) return gradient ? MT_CSV_RECEIVE_BACKWARD : MT_CSV_RECEIVE_FORWARD;
  if (instruction->kind == MOTET_WAIT && !(instruction->flags & MOTET_FLAG_RECV))
    return gradient ? MT_CSV_WAIT_SEND_BACKWARD : MT_CSV_WAIT_SEND_FORWARD;
  return -1;
}

static motet_status check_instruction(const motet_instruction *instruction, bool communication,
                                      motet_error *error) {
  if (instruction->range != 0) return unsupported(error, "token ranges");
  if (instruction->flags & MOTET_FLAG_JOINED) return unsupported(error, "several microbatches at a time");
  if (instruction->flags & MOTET_FLAG_NEXT) return unsupported(error, "work for the next step");
  if (instruction->kind == MOTET_RECOMPUTE) return unsupported(error, "recomputation");
  if (instruction->kind == MOTET_OFFLOAD || instruction->kind == MOTET_FETCH)
    return unsupported(error, "activations moved to the host");
  if (communication && instruction->kind >= MOTET_REDUCE && instruction->kind <= MOTET_ALL_REDUCE)
    return unsupported(error, "collectives");
  return MOTET_OK;
}

/* An action names the stage at its own end of the edge. */
static int32_t stage_of(const motet_program *program, const motet_instruction *instruction, mt_csv_kind action) {
  if (action <= MT_CSV_BACKWARD_WEIGHT) return instruction->stage;
  const motet_program_edge *edge = &program->edges[program->buffers[instruction->buffer].edge];
  bool at_begin =
      action == MT_CSV_SEND_FORWARD || action == MT_CSV_WAIT_SEND_FORWARD || action == MT_CSV_RECEIVE_BACKWARD;
  return at_begin ? edge->from : edge->to;
}

static motet_status append_rank(const motet_program *program, int32_t rank, bool communication, motet_error *error,
                                mt_text *text) {
  bool first = true;
  for (int64_t i = program->rank_begin[rank]; i < program->rank_begin[rank + 1]; i++) {
    const motet_instruction *instruction = &program->instructions[i];
    motet_status status = check_instruction(instruction, communication, error);
    if (status != MOTET_OK) {
      mt_error_rule(error, "", rank, i - program->rank_begin[rank], instruction->microbatch);
      return status;
    }
    int action = action_of(program, instruction, communication);
    if (action < 0) continue;
    mt_text_append(text, "%s%d%s%d", first ? "" : ",", stage_of(program, instruction, (mt_csv_kind)action),
                   mt_csv_name((mt_csv_kind)action), instruction->microbatch);
    first = false;
  }
  mt_text_append(text, "\r\n"); /* as Python's csv module ends its rows */
  return MOTET_OK;
}

motet_status mt_program_print_pytorch_csv(const motet_program *program, bool communication, motet_error *error,
                                          mt_text *text) {
  motet_status status = check_tables(program, error);
  for (int32_t rank = 0; status == MOTET_OK && rank < program->ranks; rank++)
    status = append_rank(program, rank, communication, error, text);
  if (status == MOTET_OK && text->failed) status = mt_error_memory(error, text->length, "a CSV file");
  return status;
}

motet_status motet_program_write_pytorch_csv(const motet_program *program, bool communication, const char *path,
                                             motet_error *error) {
  mt_text text = {0};
  motet_status status = mt_program_print_pytorch_csv(program, communication, error, &text);
  if (status == MOTET_OK) status = mt_file_write(path, text.data, text.length, error);
  mt_text_free(&text);
  return status;
}
