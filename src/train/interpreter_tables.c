/* The tables of a step: what each stage needs, and how often each value is used on this rank, so that it is freed
 * right after its last use. */
#include "train/interpreter_state.h"

#include <stdlib.h>
#include <string.h>

bool mt_interpreter_active(const mt_interpreter *interpreter, int32_t stage, int32_t microbatch) {
  const motet_program_microbatch *data = &interpreter->program->microbatches[microbatch];
  return (interpreter->stages[stage].modules & data->present & ~data->cached) != 0;
}

/** The modules with layers in the stage; an empty stage, which passes data on, counts as its whole region. */
static uint64_t modules_of(const motet_program *program, int32_t stage) {
  const motet_program_stage *place = &program->stages[stage];
  bool empty = place->layer_begin == place->layer_end;
  uint64_t modules = 0;
  for (int32_t s = 0; s < program->stage_count; s++) {
    const motet_program_stage *other = &program->stages[s];
    if (empty ? other->region != place->region : s != stage) continue;
    for (int32_t j = 0; j < program->module_count; j++)
      if (other->layer_begin < program->modules[j].layer_end && program->modules[j].layer_begin < other->layer_end)
        modules |= UINT64_C(1) << j;
  }
  return modules;
}

void mt_interpreter_release(mt_interpreter *interpreter, mt_value *value) {
  if (--value->uses > 0) return;
  mt_pool_give(interpreter->pool, value->data);
  *value = (mt_value){0};
}

static motet_status refuse(const mt_interpreter *interpreter, int64_t index, motet_error *error, const char *why) {
  const motet_instruction *instruction = &interpreter->instructions[index];
  const char *kind = motet_instruction_name(instruction->kind);
  mt_error_set(error, MOTET_ERROR_UNSUPPORTED, "the runtime cannot execute %s of stage %d, microbatch %d: %s",
               kind != NULL ? kind : "?", (int)instruction->stage, (int)instruction->microbatch, why);
  mt_error_rule(error, NULL, interpreter->rank, index, instruction->microbatch);
  return MOTET_ERROR_UNSUPPORTED;
}

/** Of compute on a share: image modules stand in front of a decoder's layers in one stage, or elsewhere. */
static motet_status check_shared(const mt_interpreter *interpreter, int64_t index, motet_error *error) {
  const motet_instruction *instruction = &interpreter->instructions[index];
  const motet_program *program = interpreter->program;
  int32_t embedding = interpreter->options.config->vision.layers + 2;
  if (instruction->range == 0 || instruction->kind > MOTET_RECOMPUTE) {
    bool behind = program->share_count > 0 && instruction->kind == MOTET_FWD && instruction->range == 0 &&
                  program->stages[instruction->stage].layer_end > embedding;
    return behind
               ? refuse(interpreter, index, error, "of a cut microbatch it computes the image modules whole alone")
               : MOTET_OK;
  }
  const motet_program_stage *stage = &program->stages[instruction->stage];
  if (stage->layer_begin < stage->layer_end && stage->layer_end <= embedding)
    return refuse(interpreter, index, error, "a share has tokens, and image modules alone have none");
  if (stage->layer_begin < embedding && (instruction->kind == MOTET_BWD_W || instruction->kind == MOTET_RECOMPUTE))
    return refuse(
        interpreter, index, error,
        "on shares a backward behind image modules of one stage is neither split nor recomputed: transpose "
        "the image modules");
  return MOTET_OK;
}

/** Joined instructions are of one kind, stage and step, and whole. */
static motet_status check_joined(const mt_interpreter *interpreter, int64_t index, motet_error *error) {
  const motet_instruction *this = &interpreter->instructions[index], *behind = this + 1;
  if ((this->flags & MOTET_FLAG_JOINED) == 0) return MOTET_OK;
  if (this->kind > MOTET_RECOMPUTE || index + 1 == interpreter->instruction_count || behind->kind != this->kind ||
      behind->stage != this->stage || ((behind->flags ^ this->flags) & MOTET_FLAG_NEXT) != 0 ||
      behind->microbatch == this->microbatch)
    return refuse(interpreter, index, error,
                  "it is joined, but not with another microbatch's behind it, of the same kind, stage and step");
  if (this->range > 0 || behind->range > 0)
    return refuse(interpreter, index, error,
                  "it computes whole microbatches at once, and shares of cut ones one by one: batch=1");
  return MOTET_OK;
}

static motet_status check_supported(const mt_interpreter *interpreter, motet_error *error) {
  const motet_program *program = interpreter->program;
  for (int64_t i = 0; i < interpreter->instruction_count; i++) {
    const motet_instruction *instruction = &interpreter->instructions[i];
    switch (instruction->kind) {
    case MOTET_OFFLOAD:
    case MOTET_FETCH:
    case MOTET_REDUCE:
    case MOTET_REDUCE_SCATTER:
    case MOTET_ALL_GATHER: return refuse(interpreter, i, error, "it has no such operation yet");
    case MOTET_SEND:
    case MOTET_RECV:
    case MOTET_ALL_REDUCE: {
      int32_t kind = program->buffers[instruction->buffer].kind;
      if (kind == MOTET_BUFFER_PARAMETER) return refuse(interpreter, i, error, "it does not move parameters");
      break;
    }
    default: break;
    }
    motet_status status = check_shared(interpreter, i, error);
    if (status == MOTET_OK) status = check_joined(interpreter, i, error);
    if (status != MOTET_OK) return status;
  }
  return MOTET_OK;
}

static motet_status fill_stages(mt_interpreter *interpreter, motet_error *error) {
  const motet_program *program = interpreter->program;
  int32_t stages = program->stage_count, edges = program->edge_count, filled = 0;
  interpreter->stages = MT_ARENA_NEW(interpreter->tables, mt_interpreter_stage, stages);
  interpreter->in_edges = MT_ARENA_NEW(interpreter->tables, int32_t, edges);
  bool *trains = MT_ARENA_NEW(interpreter->tables, bool, stages); /* it or something before it */
  interpreter->trainable = MT_ARENA_NEW(interpreter->tables, bool, program->layer_count);
  if (interpreter->stages == NULL || interpreter->in_edges == NULL || trains == NULL ||
      interpreter->trainable == NULL)
    return mt_error_memory(error, (size_t)stages * sizeof *interpreter->stages, "the stages");
  for (int32_t layer = 0; layer < program->layer_count; layer++)
    interpreter->trainable[layer] = program->layer_trainable[layer] != 0;
  for (int32_t s = 0; s < stages; s++) {
    mt_interpreter_stage *stage = &interpreter->stages[s];
    const motet_program_stage *place = &program->stages[s];
    stage->modules = modules_of(program, s);
    stage->in_begin = filled;
    stage->out_edge = -1;
    for (int32_t e = 0; e < edges; e++) {
      if (program->edges[e].to == s) {
        interpreter->in_edges[filled++] = e;
        stage->sends_gradient |= trains[program->edges[e].from];
      }
      if (program->edges[e].from == s) stage->out_edge = e;
    }
    stage->in_end = filled;
    stage->first_trainable = stage->sends_gradient ? place->layer_begin : -1;
    trains[s] = stage->sends_gradient;
    for (int32_t layer = place->layer_end - 1; layer >= place->layer_begin; layer--) {
      if (!program->layer_trainable[layer]) continue;
      trains[s] = true;
      if (!stage->sends_gradient) stage->first_trainable = layer;
    }
  }
  return MOTET_OK;
}

static motet_status allocate(mt_interpreter *interpreter, motet_error *error) {
  const motet_program *program = interpreter->program;
  int64_t stages = (int64_t)program->stage_count * interpreter->microbatches;
  int64_t edges = (int64_t)program->edge_count * interpreter->microbatches;
  mt_arena *arena = interpreter->tables;
  interpreter->outputs = MT_ARENA_NEW(arena, mt_value, stages);
  interpreter->next_outputs = MT_ARENA_NEW(arena, mt_value, stages);
  interpreter->received = MT_ARENA_NEW(arena, mt_value, edges);
  interpreter->gradients = MT_ARENA_NEW(arena, mt_value, edges);
  interpreter->kept = MT_ARENA_NEW(arena, mt_kept, stages);
  interpreter->inputs = MT_ARENA_NEW(arena, mt_input, 2 * (int64_t)interpreter->microbatches);
  interpreter->transfers = MT_ARENA_NEW(arena, mt_transfer *, program->buffer_count);
  interpreter->wholes = MT_ARENA_NEW(arena, mt_value, edges);
  interpreter->staged = MT_ARENA_NEW(arena, void *, program->buffer_count);
  interpreter->pieces = MT_ARENA_NEW(arena, mt_share *, program->share_count);
  interpreter->optimizer_ranks = MT_ARENA_NEW(arena, int32_t, program->ranks);
  if (interpreter->outputs == NULL || interpreter->next_outputs == NULL || interpreter->received == NULL ||
      interpreter->gradients == NULL || interpreter->kept == NULL || interpreter->inputs == NULL ||
      interpreter->transfers == NULL || interpreter->wholes == NULL || interpreter->staged == NULL ||
      interpreter->pieces == NULL || interpreter->optimizer_ranks == NULL)
    return mt_error_memory(error,
                           (size_t)(2 * stages + 3 * edges) * sizeof(mt_value) + (size_t)stages * sizeof(mt_kept),
                           "a step's tables");
  return MOTET_OK;
}

/** Whether the instruction's share has anything of what flows along the edge. */
static bool reads(const mt_interpreter *interpreter, const motet_instruction *instruction, int32_t edge) {
  const motet_program *program = interpreter->program;
  return !mt_interpreter_is_seam(interpreter, edge) ||
         program->shares[mt_column_of(program, interpreter->rank, instruction)].features > 0;
}

/** A forward, and its repetition, read what enters the stage: what was received, else this rank's own output. A
 * received value has one use already, for the forward that it was sent for. */
static void count_inputs(mt_interpreter *interpreter, const motet_instruction *instruction) {
  const mt_interpreter_stage *stage = &interpreter->stages[instruction->stage];
  int32_t m = instruction->microbatch;
  for (int32_t k = stage->in_begin; k < stage->in_end; k++) {
    int32_t edge = interpreter->in_edges[k], from = interpreter->program->edges[edge].from;
    if (!mt_interpreter_active(interpreter, from, m) || !reads(interpreter, instruction, edge)) continue;
    mt_value *received = &interpreter->received[mt_interpreter_cell(interpreter, edge, m)];
    if (received->uses == 0)
      interpreter->outputs[mt_interpreter_cell(interpreter, from, m)].uses++;
    else if (instruction->kind == MOTET_RECOMPUTE)
      received->uses++;
  }
}

static void count_reads(mt_interpreter *interpreter, const motet_instruction *instruction) {
  if (instruction->kind > MOTET_RECOMPUTE || (instruction->flags & MOTET_FLAG_NEXT) != 0) return;
  const motet_program *program = interpreter->program;
  const mt_interpreter_stage *stage = &interpreter->stages[instruction->stage];
  int32_t m = instruction->microbatch;
  if (instruction->kind == MOTET_FWD || instruction->kind == MOTET_RECOMPUTE) {
    count_inputs(interpreter, instruction);
  } else if (instruction->kind != MOTET_BWD_W && stage->out_edge >= 0 &&
             mt_interpreter_active(interpreter, program->edges[stage->out_edge].to, m)) {
    bool seam = mt_interpreter_is_seam(interpreter, stage->out_edge);
    mt_value *gradient = seam ? interpreter->wholes : interpreter->gradients;
    gradient += mt_interpreter_cell(interpreter, stage->out_edge, m);
    /* Received ones are counted already; a seam's pieces are put together and read once. */
    if (gradient->uses == 0 || seam) gradient->uses = 1;
  }
}

/** Every instruction adds a use to each value that it reads. */
static motet_status count_uses(mt_interpreter *interpreter, motet_error *error) {
  const motet_program *program = interpreter->program;
  for (int64_t i = 0; i < interpreter->instruction_count; i++) {
    const motet_instruction *instruction = &interpreter->instructions[i];
    int32_t m = instruction->microbatch, s = instruction->stage;
    bool next = (instruction->flags & MOTET_FLAG_NEXT) != 0;
    if (instruction->kind == MOTET_RECV) {
      const motet_buffer *buffer = &program->buffers[instruction->buffer];
      mt_value *table = buffer->kind == MOTET_BUFFER_ACTIVATION             ? interpreter->received
                        : mt_interpreter_is_seam(interpreter, buffer->edge) ? interpreter->wholes
                                                                            : interpreter->gradients;
      table[mt_interpreter_cell(interpreter, buffer->edge, m)].uses++;
    } else if (instruction->kind == MOTET_SEND) {
      const motet_buffer *buffer = &program->buffers[instruction->buffer];
      if (buffer->kind == MOTET_BUFFER_ACTIVATION)
        interpreter->outputs[mt_interpreter_cell(interpreter, buffer->stage, m)].uses++;
      else
        interpreter->gradients[mt_interpreter_cell(interpreter, buffer->edge, m)].uses++;
    } else if (instruction->kind <= MOTET_RECOMPUTE) {
      mt_kept *kept = &interpreter->kept[mt_interpreter_cell(interpreter, s, m)];
      mt_interpreter_input(interpreter, next, m)->uses++;
      if (instruction->kind == MOTET_BWD_W) kept->split = true;
      if (instruction->kind == MOTET_RECOMPUTE) kept->recompute = true;
    }
    if (instruction->kind == MOTET_FWD && next) {
      if (interpreter->stages[s].in_begin != interpreter->stages[s].in_end)
        return refuse(interpreter, i, error, "only stages that begin the model can run ahead of their step");
      interpreter->next_outputs[mt_interpreter_cell(interpreter, s, m)].uses = 1;
    }
  }
  for (int64_t i = 0; i < interpreter->instruction_count; i++)
    count_reads(interpreter, &interpreter->instructions[i]);
  return MOTET_OK;
}

static motet_status adopt_carried(mt_interpreter *interpreter, motet_error *error) {
  const motet_program *program = interpreter->program;
  for (int32_t i = 0; i < program->carried_count; i++) {
    const motet_carried *carried = &program->carried[i];
    if (carried->rank != interpreter->rank) continue;
    int64_t cell = mt_interpreter_cell(interpreter, carried->stage, carried->microbatch);
    for (int32_t k = 0; k < interpreter->carried_count; k++) {
      struct mt_carried_value *value = &interpreter->carried[k];
      if (value->data == NULL || value->stage != carried->stage ||
          value->microbatch != carried->microbatch - interpreter->first_microbatch)
        continue;
      interpreter->outputs[cell].data = value->data;
      value->data = NULL;
    }
    if (interpreter->outputs[cell].data == NULL)
      return mt_error_set(
          error, MOTET_ERROR_FAILED,
          "rank %d should have the output of stage %d, microbatch %d from the step before, and has not",
          (int)interpreter->rank, (int)carried->stage, (int)carried->microbatch);
  }
  return MOTET_OK;
}

static motet_status fill_inputs(mt_interpreter *interpreter, motet_error *error) {
  const mt_batch_source *source = interpreter->step->source;
  for (int next = 0; next < 2; next++) {
    for (int32_t m = 0; m < interpreter->microbatches; m++) {
      mt_input *input = mt_interpreter_input(interpreter, next, interpreter->first_microbatch + m);
      if (input->uses == 0) continue;
      motet_status status =
          source->shape(source->context, next, interpreter->first_microbatch + m, error, &input->batch);
      if (status != MOTET_OK) return status;
    }
  }
  return MOTET_OK;
}

static void find_optimizers(mt_interpreter *interpreter) {
  const motet_program *program = interpreter->program;
  interpreter->optimizer_count = 0;
  for (int32_t rank = 0; rank < program->ranks; rank++)
    for (int64_t i = program->rank_begin[rank + 1]; i-- > program->rank_begin[rank];)
      if (program->instructions[i].kind == MOTET_OPTIM) {
        interpreter->optimizer_ranks[interpreter->optimizer_count++] = rank;
        break;
      } else if (program->instructions[i].kind <= MOTET_WAIT) {
        break; /* it stands at the end, or not at all */
      }
}

motet_status mt_interpreter_prepare(mt_interpreter *interpreter, motet_error *error) {
  const motet_program *program = interpreter->program;
  if (program->ranks != interpreter->options.transport->ranks)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT, "a program for %d ranks cannot run on %d", (int)program->ranks,
                        (int)interpreter->options.transport->ranks);
  if (interpreter->step->sum_count < program->microbatch_count)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT, "the step's sums have no room for %d losses",
                        (int)program->microbatch_count);
  interpreter->microbatches = program->microbatch_count / program->replicas;
  interpreter->first_microbatch =
      interpreter->rank / (program->ranks / program->replicas) * interpreter->microbatches;
  memset(interpreter->step->sums, 0, (size_t)program->microbatch_count * sizeof(double));
  motet_status status = check_supported(interpreter, error);
  if (status == MOTET_OK) status = fill_stages(interpreter, error);
  if (status == MOTET_OK) status = allocate(interpreter, error);
  if (status == MOTET_OK) status = count_uses(interpreter, error);
  if (status == MOTET_OK) status = adopt_carried(interpreter, error);
  if (status == MOTET_OK) status = fill_inputs(interpreter, error);
  if (status == MOTET_OK) status = mt_interpreter_share_prepare(interpreter, error);
  if (status == MOTET_OK) find_optimizers(interpreter);
  return status;
}

motet_status mt_interpreter_carry(mt_interpreter *interpreter, motet_error *error) {
  if (interpreter->step->aside) return MOTET_OK;
  for (int32_t i = 0; i < interpreter->carried_count; i++)
    mt_pool_give(interpreter->pool, interpreter->carried[i].data);
  free(interpreter->carried);
  interpreter->carried = NULL;
  interpreter->carried_count = 0;
  int64_t cells = (int64_t)interpreter->program->stage_count * interpreter->microbatches;
  int32_t count = 0;
  for (int64_t i = 0; i < cells; i++) count += interpreter->next_outputs[i].data != NULL;
  if (count == 0) return MOTET_OK;
  interpreter->carried = calloc((size_t)count, sizeof *interpreter->carried);
  if (interpreter->carried == NULL)
    return mt_error_memory(error, (size_t)count * sizeof *interpreter->carried, "the carried features");
  for (int64_t i = 0; i < cells; i++)
    if (interpreter->next_outputs[i].data != NULL)
      interpreter->carried[interpreter->carried_count++] =
          (struct mt_carried_value){.stage = (int32_t)(i / interpreter->microbatches),
                                    .microbatch = (int32_t)(i % interpreter->microbatches),
                                    .data = interpreter->next_outputs[i].data};
  return MOTET_OK;
}
