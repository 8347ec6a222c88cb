/* Exchange: transfers, reductions, and the end of the step. */
#include "base/clock.h"
#include "train/interpreter_state.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STAGING_BYTES = 8 << 20 }; /* arrays up to this size are reduced together, as many as fit twice of it */

static int32_t tag_of(const motet_instruction *instruction) {
  return MT_TAG_TRANSFER + instruction->buffer % MT_TAG_TRANSFERS;
}

/** Where a transfer's data lie on this rank. */
static mt_value *value_of(mt_interpreter *interpreter, const motet_instruction *instruction, bool receive) {
  const motet_buffer *buffer = &interpreter->program->buffers[instruction->buffer];
  if (buffer->kind == MOTET_BUFFER_GRADIENT)
    return &interpreter->gradients[mt_interpreter_cell(interpreter, buffer->edge, buffer->microbatch)];
  if (receive) return &interpreter->received[mt_interpreter_cell(interpreter, buffer->edge, buffer->microbatch)];
  return &interpreter->outputs[mt_interpreter_cell(interpreter, buffer->stage, buffer->microbatch)];
}

/** Of a seam's transfers the owner's end is one of several pieces of a value. */
static bool is_piece(const mt_interpreter *interpreter, const motet_buffer *buffer, bool receive) {
  return receive == (buffer->kind == MOTET_BUFFER_GRADIENT) && buffer->range > 0 &&
         mt_interpreter_is_seam(interpreter, buffer->edge);
}

motet_status mt_interpreter_send(mt_interpreter *interpreter, const motet_instruction *instruction,
                                 motet_error *error) {
  const motet_buffer *buffer = &interpreter->program->buffers[instruction->buffer];
  mt_value *value = value_of(interpreter, instruction, false);
  if (value->data == NULL)
    return mt_error_set(error, MOTET_ERROR_FAILED, "there is nothing to send: the value was not computed here");
  void *data = value->data;
  if (is_piece(interpreter, buffer, false)) {
    motet_status status = mt_interpreter_gather(interpreter, buffer->range, buffer->member, value->data, error,
                                                &interpreter->staged[instruction->buffer]);
    if (status != MOTET_OK) return status;
    data = interpreter->staged[instruction->buffer];
  }
  return mt_transport_send(interpreter->options.transport, instruction->peer, tag_of(instruction), data,
                           (size_t)buffer->bytes, error, &interpreter->transfers[instruction->buffer]);
}

motet_status mt_interpreter_recv(mt_interpreter *interpreter, const motet_instruction *instruction,
                                 motet_error *error) {
  const motet_buffer *buffer = &interpreter->program->buffers[instruction->buffer];
  void *data = mt_pool_take(interpreter->pool, buffer->bytes);
  if (data == NULL) return mt_error_memory(error, (unsigned long long)buffer->bytes, "a received buffer");
  if (is_piece(interpreter, buffer, true))
    interpreter->staged[instruction->buffer] = data;
  else
    value_of(interpreter, instruction, true)->data = data;
  return mt_transport_recv(interpreter->options.transport, instruction->peer, tag_of(instruction), data,
                           (size_t)buffer->bytes, error, &interpreter->transfers[instruction->buffer]);
}

/** A piece has come, or gone. */
static motet_status finish_piece(mt_interpreter *interpreter, const motet_instruction *instruction, bool receive,
                                 motet_error *error) {
  const motet_buffer *buffer = &interpreter->program->buffers[instruction->buffer];
  void **piece = &interpreter->staged[instruction->buffer];
  motet_status status = MOTET_OK;
  if (receive)
    status = mt_interpreter_scatter(interpreter, buffer->edge, buffer->range, buffer->member, *piece, error);
  mt_pool_give(interpreter->pool, *piece);
  *piece = NULL;
  return status;
}

motet_status mt_interpreter_wait(mt_interpreter *interpreter, const motet_instruction *instruction,
                                 motet_error *error) {
  mt_transfer **transfer = &interpreter->transfers[instruction->buffer];
  motet_status status = mt_transport_wait(interpreter->options.transport, *transfer, error);
  if (status != MOTET_OK) return status;
  *transfer = NULL;
  bool receive = (instruction->flags & MOTET_FLAG_RECV) != 0;
  if (is_piece(interpreter, &interpreter->program->buffers[instruction->buffer], receive))
    status = finish_piece(interpreter, instruction, receive, error);
  if (!receive) mt_interpreter_release(interpreter, value_of(interpreter, instruction, false));
  return status;
}

static mt_rank_group group_of(const mt_interpreter *interpreter, int32_t group) {
  const motet_program *program = interpreter->program;
  return (mt_rank_group){.number = group,
                         .count = program->groups[group].count,
                         .ranks = program->group_ranks + program->groups[group].first};
}

bool mt_interpreter_is_tied(const mt_interpreter *interpreter, const mt_parameter *parameter) {
  if (interpreter->program->tie_count == 0 || parameter->dims != 2) return false;
  const mt_internvl *config = interpreter->options.config;
  int32_t block;
  mt_internvl_kind kind = mt_internvl_layer_kind(config, parameter->layer, &block);
  return config->decoder.tied_embeddings && (kind == MT_INTERNVL_TOKEN_EMBED || kind == MT_INTERNVL_HEAD);
}

static bool belongs(const mt_interpreter *interpreter, const motet_buffer *buffer, const mt_parameter *parameter) {
  if (parameter->gradient == NULL) return false;
  bool tied = mt_interpreter_is_tied(interpreter, parameter);
  if (buffer->kind == MOTET_BUFFER_TIED_GRADIENT) return tied;
  const motet_program_stage *stage = &interpreter->program->stages[buffer->stage];
  return !tied && parameter->layer >= stage->layer_begin && parameter->layer < stage->layer_end;
}

/** One array of a parameter that a reduction adds up. */
typedef struct addend {
  void *data;
  size_t bytes;
} addend;

/** Its gradient, or the two exact sums that stand for it. */
static int addends_of(const mt_interpreter *interpreter, int32_t index, addend arrays[2]) {
  mt_network *network = interpreter->options.network;
  const mt_parameter *parameter = mt_network_parameter(network, index);
  size_t count = (size_t)parameter->count;
  if (!mt_network_sums_exactly(network)) {
    arrays[0] = (addend){parameter->gradient, count * sizeof(float)};
    return 1;
  }
  double *high, *low;
  mt_network_exact_sums(network, index, &high, &low);
  arrays[0] = (addend){high, count * sizeof *high};
  arrays[1] = (addend){low, count * sizeof *low};
  return 2;
}

/** Reduces arrays in runs that fit the staging buffer; larger ones in place. */
typedef struct reduction {
  mt_interpreter *interpreter;
  const motet_buffer *buffer;
  mt_rank_group group;
  int32_t first, end; /* parameters that wait in the staging buffer */
  size_t staged;      /* bytes */
} reduction;

static motet_status reduce(reduction *this, void *values, size_t bytes, motet_error *error) {
  mt_interpreter *interpreter = this->interpreter;
  mt_transport *transport = interpreter->options.transport;
  if (mt_network_sums_exactly(interpreter->options.network))
    return mt_all_reduce_doubles(transport, &this->group, values, bytes / sizeof(double), &interpreter->scratch,
                                 error);
  return mt_all_reduce_floats(transport, &this->group, values, bytes / sizeof(float), &interpreter->scratch, error);
}

static motet_status flush(reduction *this, motet_error *error) {
  mt_interpreter *interpreter = this->interpreter;
  if (this->staged == 0) return MOTET_OK;
  motet_status status = reduce(this, interpreter->staging, this->staged, error);
  size_t at = 0;
  for (int32_t i = this->first; i < this->end && status == MOTET_OK; i++) {
    if (!belongs(interpreter, this->buffer, mt_network_parameter(interpreter->options.network, i))) continue;
    addend arrays[2];
    int count = addends_of(interpreter, i, arrays);
    for (int k = 0; k < count && arrays[k].bytes <= STAGING_BYTES; k++) {
      memcpy(arrays[k].data, interpreter->staging + at, arrays[k].bytes);
      at += arrays[k].bytes;
    }
  }
  this->first = this->end;
  this->staged = 0;
  return status;
}

static motet_status add_parameter(reduction *this, int32_t index, motet_error *error) {
  addend arrays[2];
  int count = addends_of(this->interpreter, index, arrays);
  motet_status status = MOTET_OK;
  if (arrays[0].bytes > STAGING_BYTES) {
    for (int k = 0; k < count && status == MOTET_OK; k++)
      status = reduce(this, arrays[k].data, arrays[k].bytes, error);
    return status;
  }
  if (this->staged + (size_t)count * arrays[0].bytes > 2 * (size_t)STAGING_BYTES) status = flush(this, error);
  if (status != MOTET_OK) return status;
  for (int k = 0; k < count; k++) {
    memcpy(this->interpreter->staging + this->staged, arrays[k].data, arrays[k].bytes);
    this->staged += arrays[k].bytes;
  }
  return MOTET_OK;
}

motet_status mt_interpreter_all_reduce(mt_interpreter *interpreter, const motet_instruction *instruction,
                                       motet_error *error) {
  reduction this = {.interpreter = interpreter,
                    .buffer = &interpreter->program->buffers[instruction->buffer],
                    .group = group_of(interpreter, instruction->peer)};
  if (this.group.count < 2) return MOTET_OK;
  if (interpreter->staging == NULL) interpreter->staging = malloc(2 * (size_t)STAGING_BYTES);
  if (interpreter->staging == NULL) return mt_error_memory(error, 2 * (size_t)STAGING_BYTES, "a reduction");
  motet_status status = MOTET_OK;
  int32_t count = mt_network_parameter_count(interpreter->options.network);
  for (int32_t i = 0; i < count && status == MOTET_OK; i++) {
    if (belongs(interpreter, this.buffer, mt_network_parameter(interpreter->options.network, i)))
      status = add_parameter(&this, i, error);
    this.end = i + 1;
  }
  return status == MOTET_OK ? flush(&this, error) : status;
}

bool mt_interpreter_answers_for(const mt_interpreter *interpreter, int32_t layer) {
  const motet_program *program = interpreter->program;
  for (int32_t s = 0; s < program->stage_count; s++) {
    if (layer < program->stages[s].layer_begin || layer >= program->stages[s].layer_end) continue;
    return program->group_ranks[program->groups[program->stages[s].group].first] == interpreter->rank;
  }
  return false;
}

/**
 * The norm over all gradients of the model. One number a layer goes round, each from one rank, and everyone adds
 * them in the order of the layers: the same bits wherever the layers lie.
 */
static motet_status gradient_norm(mt_interpreter *interpreter, motet_error *error, double *norm) {
  int32_t layers = interpreter->program->layer_count;
  double *squares = MT_ARENA_NEW(interpreter->tables, double, layers);
  if (squares == NULL) return mt_error_memory(error, (size_t)layers * sizeof *squares, "the gradient's norm");
  int32_t count = mt_network_parameter_count(interpreter->options.network);
  for (int32_t i = 0; i < count; i++) {
    const mt_parameter *parameter = mt_network_parameter(interpreter->options.network, i);
    if (parameter->gradient == NULL || !mt_interpreter_answers_for(interpreter, parameter->layer)) continue;
    /* The head's copy of a tied weight has the same gradient as the embedding by now: it counts once. */
    if (!mt_interpreter_is_tied(interpreter, parameter) || parameter->layer + 1 < layers)
      squares[parameter->layer] += mt_network_gradient_square_sum(interpreter->options.network, i);
  }
  /* Its number is beyond the program's groups: same members, other messages. */
  mt_rank_group group = {.number = interpreter->program->group_count,
                         .count = interpreter->optimizer_count,
                         .ranks = interpreter->optimizer_ranks};
  double begin = mt_clock_seconds();
  motet_status status = mt_all_reduce_doubles(interpreter->options.transport, &group, squares, (size_t)layers,
                                              &interpreter->scratch, error);
  interpreter->optimizer_wait = mt_clock_seconds() - begin;
  double sum = 0;
  for (int32_t layer = 0; layer < layers; layer++) sum += squares[layer];
  *norm = sqrt(sum);
  return status;
}

motet_status mt_interpreter_optimize(mt_interpreter *interpreter, const motet_instruction *instruction,
                                     motet_error *error) {
  (void)instruction;
  const mt_step *step = interpreter->step;
  double norm;
  if (mt_network_sums_exactly(interpreter->options.network)) mt_network_round_sums(interpreter->options.network);
  motet_status status = gradient_norm(interpreter, error, &norm);
  if (status != MOTET_OK) return status;
  if (!isfinite(norm))
    return mt_error_set(
        error, MOTET_ERROR_FAILED,
        "the gradients are not finite (their norm is %g): a lower learning rate may help, or a sample "
        "is damaged",
        norm);
  interpreter->gradient_norm = norm;
  double scale = step->clip_norm > 0 && norm > step->clip_norm ? step->clip_norm / norm : 1.0;
  return mt_network_adamw(interpreter->options.network, &step->optimizer, step->number, scale, error);
}

motet_status mt_interpreter_end(mt_interpreter *interpreter, const motet_instruction *instruction,
                                motet_error *error) {
  const mt_step *step = interpreter->step;
  mt_rank_group group = group_of(interpreter, instruction->peer);
  if (step->aside)
    return mt_all_reduce_doubles(interpreter->options.transport, &group, step->sums, (size_t)step->sum_count,
                                 &interpreter->scratch, error);
  /* The digests travel with the step's sums. */
  size_t own = (size_t)step->sum_count, all = own + mt_interpreter_digest_count(interpreter);
  double *sums = MT_ARENA_NEW(interpreter->tables, double, all);
  if (sums == NULL) return mt_error_memory(error, all * sizeof *sums, "the step's sums");
  memcpy(sums, step->sums, own * sizeof *sums);
  motet_status status = mt_interpreter_digest_tell(interpreter, error, sums + own);
  if (status == MOTET_OK)
    status = mt_all_reduce_doubles(interpreter->options.transport, &group, sums, all, &interpreter->scratch, error);
  if (status != MOTET_OK) return status;
  memcpy(step->sums, sums, own * sizeof *sums);
  return mt_interpreter_digest_check(interpreter, sums + own, error);
}
