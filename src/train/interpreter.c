#include "train/interpreter.h"

#include "base/array.h"
#include "base/clock.h"
#include "train/interpreter_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef motet_status execute(mt_interpreter *interpreter, const motet_instruction *instruction, motet_error *error);

static execute *const executions[MOTET_INSTRUCTION_KINDS] = {
    [MOTET_FWD] = mt_interpreter_forward,
    [MOTET_BWD] = mt_interpreter_backward,
    [MOTET_BWD_X] = mt_interpreter_backward,
    [MOTET_BWD_W] = mt_interpreter_backward_weights,
    [MOTET_RECOMPUTE] = mt_interpreter_recompute,
    [MOTET_SEND] = mt_interpreter_send,
    [MOTET_RECV] = mt_interpreter_recv,
    [MOTET_WAIT] = mt_interpreter_wait,
    [MOTET_ALL_REDUCE] = mt_interpreter_all_reduce,
    [MOTET_LOAD] = mt_interpreter_load,
    [MOTET_OPTIM] = mt_interpreter_optimize,
    [MOTET_STEP_END] = mt_interpreter_end,
};

motet_status mt_interpreter_create(const mt_interpreter_options *options, motet_error *error,
                                   mt_interpreter **out) {
  mt_interpreter *interpreter = calloc(1, sizeof *interpreter);
  if (interpreter == NULL) return mt_error_memory(error, sizeof *interpreter, "the interpreter");
  interpreter->options = *options;
  interpreter->rank = options->transport->rank;
  interpreter->pool = mt_pool_create();
  interpreter->tables = mt_arena_create();
  interpreter->run_arena = mt_arena_create();
  if (interpreter->pool == NULL || interpreter->tables == NULL || interpreter->run_arena == NULL) {
    mt_interpreter_destroy(interpreter);
    return mt_error_memory(error, sizeof *interpreter, "the interpreter");
  }
  *out = interpreter;
  return MOTET_OK;
}

void mt_interpreter_destroy(mt_interpreter *interpreter) {
  if (interpreter == NULL) return;
  mt_collective_scratch_free(&interpreter->scratch);
  for (int32_t i = 0; i < interpreter->carried_count; i++)
    mt_pool_give(interpreter->pool, interpreter->carried[i].data);
  mt_pool_destroy(interpreter->pool);
  mt_arena_destroy(interpreter->tables);
  mt_arena_destroy(interpreter->run_arena);
  free(interpreter->carried);
  free(interpreter->digests);
  free(interpreter->staging);
  free(interpreter->start);
  free(interpreter->finish);
  free(interpreter);
}

static const char *region_of(const mt_interpreter *interpreter, const motet_instruction *instruction) {
  const motet_program *program = interpreter->program;
  if (instruction->stage < 0) return "";
  return program->regions[program->stages[instruction->stage].region].name;
}

static void note(mt_interpreter *interpreter, int64_t index) {
  mt_board_place *place = interpreter->options.place;
  if (place == NULL) return;
  const motet_instruction *instruction = &interpreter->instructions[index];
  place->instruction = index;
  place->kind = instruction->kind;
  place->microbatch = instruction->microbatch;
  strncpy(place->region, region_of(interpreter, instruction), sizeof place->region - 1);
}

/** "step 3, FWD of vision (stage 0): " in front of the cause; rank, instruction and microbatch beside it. */
static motet_status explain(const mt_interpreter *interpreter, int64_t index, motet_error *error,
                            motet_status status) {
  const motet_instruction *instruction = &interpreter->instructions[index];
  const char *kind = motet_instruction_name(instruction->kind);
  long long number = interpreter->step->number;
  if (instruction->stage < 0)
    mt_error_context(error, status, "step %lld, %s", number, kind);
  else if (mt_interpreter_run_length(interpreter, instruction) == 1)
    mt_error_context(error, status, "step %lld, %s of %s (stage %d)", number, kind,
                     region_of(interpreter, instruction), (int)instruction->stage);
  else
    mt_error_context(error, status, "step %lld, %s of %s (stage %d), %d microbatches at once", number, kind,
                     region_of(interpreter, instruction), (int)instruction->stage,
                     (int)mt_interpreter_run_length(interpreter, instruction));
  mt_error_rule(error, NULL, interpreter->rank, index, instruction->microbatch);
  return status;
}

static motet_status reserve_times(mt_interpreter *interpreter, motet_error *error) {
  size_t needed = (size_t)interpreter->instruction_count, capacity = interpreter->time_capacity;
  bool good = mt_array_reserve((void **)&interpreter->start, &capacity, needed, sizeof(double));
  capacity = interpreter->time_capacity;
  good = good && mt_array_reserve((void **)&interpreter->finish, &capacity, needed, sizeof(double));
  if (!good) return mt_error_memory(error, needed * sizeof(double), "the measured times");
  interpreter->time_capacity = capacity;
  return MOTET_OK;
}

motet_status mt_interpreter_run(mt_interpreter *interpreter, const mt_step *step, motet_error *error,
                                mt_step_result *result) {
  const motet_program *program = step->program;
  interpreter->step = step;
  interpreter->program = program;
  int64_t begin = program->rank_begin[interpreter->rank];
  interpreter->instructions = program->instructions + begin;
  interpreter->instruction_count = program->rank_begin[interpreter->rank + 1] - begin;
  interpreter->gradient_norm = interpreter->optimizer_wait = 0;
  mt_arena_reset(interpreter->tables);
  mt_pool_peak_reset(interpreter->pool);
  motet_status status = reserve_times(interpreter, error);
  if (status == MOTET_OK) status = mt_interpreter_prepare(interpreter, error);
  if (status != MOTET_OK) return status;
  for (int64_t i = 0, length; i < interpreter->instruction_count; i += length) {
    const motet_instruction *instruction = &interpreter->instructions[i];
    length = mt_interpreter_run_length(interpreter, instruction);
    note(interpreter, i);
    const double start = mt_clock_seconds();
    status = executions[instruction->kind](interpreter, instruction, error);
    if (status != MOTET_OK) return explain(interpreter, i, error, status);
    mt_interpreter_run_times(interpreter, i, (int32_t)length, start, mt_clock_seconds());
  }
  status = mt_interpreter_carry(interpreter, error);
  *result = (mt_step_result){.gradient_norm = interpreter->gradient_norm,
                             .optimizer_wait = interpreter->optimizer_wait,
                             .weights_digest = interpreter->weights_digest,
                             .counts = interpreter->counts,
                             .peak_bytes = mt_pool_peak(interpreter->pool),
                             .start = interpreter->start,
                             .finish = interpreter->finish};
  return status;
}
