/* Compute: loads, forward and backward of (stage, microbatch). */
#include "train/interpreter_state.h"

#include <math.h>
#include <string.h>

static motet_status bytes_of(int64_t rows, int64_t columns, mt_element element, motet_error *error,
                             int64_t *bytes) {
  int64_t count;
  *bytes = 0;
  if (__builtin_mul_overflow(rows, columns, &count) ||
      __builtin_mul_overflow(count, (int64_t)mt_element_bytes(element), bytes))
    return mt_error_set(error, MOTET_ERROR_LIMIT, "an activation of %lld x %lld is too large", (long long)rows,
                        (long long)columns);
  return MOTET_OK;
}

/** Bytes of the activation that leaves the stage. An empty stage passes on what enters it. */
static motet_status output_bytes(const mt_interpreter *interpreter, int32_t stage, const mt_batch *batch,
                                 motet_error *error, int64_t *bytes) {
  const motet_program *program = interpreter->program;
  int64_t rows = 0, columns = 0;
  if (program->stages[stage].layer_end > 0)
    mt_network_output_shape(interpreter->options.config, program->stages[stage].layer_end - 1, batch, &rows,
                            &columns);
  return bytes_of(rows, columns, mt_network_element(interpreter->options.network), error, bytes);
}

motet_status mt_interpreter_load(mt_interpreter *interpreter, const motet_instruction *instruction,
                                 motet_error *error) {
  bool next = (instruction->flags & MOTET_FLAG_NEXT) != 0;
  mt_input *input = mt_interpreter_input(interpreter, next, instruction->microbatch);
  uint32_t wanted = interpreter->program->stages[instruction->stage].inputs & ~input->loaded;
  if (!next && mt_interpreter_cached(interpreter, instruction->microbatch)) wanted &= ~(uint32_t)MOTET_INPUT_PIXELS;
  if (wanted == 0) return MOTET_OK;
  if (input->arena == NULL) input->arena = mt_pool_arena_take(interpreter->pool, 0);
  if (input->arena == NULL) return mt_error_memory(error, 0, "a microbatch's inputs");
  const mt_batch_source *source = interpreter->step->source;
  motet_status status =
      source->load(source->context, next, instruction->microbatch, wanted, input->arena, error, &input->batch);
  if (status == MOTET_OK) input->loaded |= wanted;
  if (status == MOTET_OK && instruction->range > 0)
    status = mt_interpreter_share_load(interpreter, instruction, error);
  return status;
}

/** One instruction less that reads the microbatch's inputs. */
static void release_input(mt_interpreter *interpreter, mt_input *input) {
  if (--input->uses > 0 || input->arena == NULL) return;
  mt_pool_arena_give(interpreter->pool, input->arena);
  input->arena = NULL;
  input->loaded = 0;
}

static void release_kept(mt_interpreter *interpreter, mt_kept *kept) {
  mt_pool_arena_give(interpreter->pool, kept->arena);
  mt_pool_give(interpreter->pool, kept->memory);
  *kept = (mt_kept){0};
}

/** What this rank's share reads of an output that was made here, as if it had been received. */
static motet_status take_own_features(mt_interpreter *interpreter, const motet_instruction *instruction,
                                      mt_value *output, mt_value *received, motet_error *error) {
  int32_t member = mt_interpreter_input(interpreter, false, instruction->microbatch)->share.context->index;
  motet_status status =
      mt_interpreter_gather(interpreter, instruction->range, member, output->data, error, &received->data);
  if (status != MOTET_OK) return status;
  received->uses = 1;
  mt_interpreter_release(interpreter, output);
  return MOTET_OK;
}

/** The activation that enters the stage, NULL where it has none. */
static motet_status find_input(mt_interpreter *interpreter, const motet_instruction *instruction,
                               motet_error *error, mt_value **value, int32_t *edge) {
  const mt_interpreter_stage *stage = &interpreter->stages[instruction->stage];
  int32_t m = instruction->microbatch;
  *value = NULL;
  *edge = -1;
  if ((instruction->flags & MOTET_FLAG_NEXT) != 0) return MOTET_OK;
  for (int32_t k = stage->in_begin; k < stage->in_end; k++) {
    int32_t candidate = interpreter->in_edges[k], from = interpreter->program->edges[candidate].from;
    if (!mt_interpreter_active(interpreter, from, m)) continue;
    if (*edge >= 0)
      return mt_error_set(error, MOTET_ERROR_UNSUPPORTED, "the runtime's layers take one input, not several");
    bool seam = mt_interpreter_is_seam(interpreter, candidate);
    if (seam && mt_interpreter_input(interpreter, false, m)->share.features == 0) continue;
    mt_value *received = &interpreter->received[mt_interpreter_cell(interpreter, candidate, m)];
    *value = received->data != NULL ? received : &interpreter->outputs[mt_interpreter_cell(interpreter, from, m)];
    *edge = candidate;
    if ((*value)->data == NULL)
      return mt_error_set(error, MOTET_ERROR_FAILED, "the output of stage %d has not arrived", (int)from);
    if (seam && *value != received) {
      motet_status status = take_own_features(interpreter, instruction, *value, received, error);
      if (status != MOTET_OK) return status;
      *value = received;
    }
  }
  return MOTET_OK;
}

/** An arena that holds what a forward from @p layer on saves. */
static motet_status take_arena(mt_interpreter *interpreter, const motet_instruction *instruction, int32_t layer,
                               const mt_batch *batch, bool keep, motet_error *error, mt_arena **arena) {
  const motet_program_stage *place = &interpreter->program->stages[instruction->stage];
  int64_t bytes = 0;
  if (keep)
    bytes = mt_network_saved_bytes(interpreter->options.config, mt_network_element(interpreter->options.network),
                                   interpreter->trainable, layer, place->layer_end,
                                   interpreter->stages[instruction->stage].first_trainable, batch);
  *arena = mt_pool_arena_take(interpreter->pool, bytes);
  return *arena != NULL ? MOTET_OK : mt_error_memory(error, (unsigned long long)bytes, "saved activations");
}

/** A loss that is no number is refused where it comes up: with frozen parts no gradient may ever show it. An
 * evaluation's is its caller's matter, who has the weights that train. */
static motet_status check_loss(const mt_interpreter *interpreter, int32_t microbatch, motet_error *error) {
  const double loss = fabs(interpreter->step->sums[microbatch]); /* without the sign that printing gives a NaN */
  const mt_batch_source *source = interpreter->step->source;
  if (interpreter->step->aside || isfinite(loss)) return MOTET_OK;
  char origin[512] = "";
  if (source->origin != NULL) source->origin(source->context, microbatch, origin, sizeof origin);
  return mt_error_set(error, MOTET_ERROR_FAILED,
                      "the loss is %g: a lower learning rate may help, or a sample is damaged%s%s%s", loss,
                      origin[0] != 0 ? " (" : "", origin, origin[0] != 0 ? ")" : "");
}

static motet_status run_forward(mt_interpreter *interpreter, const motet_instruction *instruction,
                                const mt_batch *batch, const void *entering, void *leaving, motet_error *error) {
  const motet_program_stage *place = &interpreter->program->stages[instruction->stage];
  int32_t first_trainable = interpreter->stages[instruction->stage].first_trainable;
  int64_t cell = mt_interpreter_cell(interpreter, instruction->stage, instruction->microbatch);
  bool next = (instruction->flags & MOTET_FLAG_NEXT) != 0;
  bool keep = first_trainable >= 0 && !next && !interpreter->kept[cell].recompute;
  mt_stage_begin begin = {.layer = place->layer_begin, .entering = entering};
  motet_status status = MOTET_OK;
  if (!next) status = mt_interpreter_begin_stage(interpreter, instruction, batch, leaving, error, &begin);
  if (status != MOTET_OK || begin.layer == place->layer_end) return status;
  mt_kept kept = {.split = interpreter->kept[cell].split, .layer_begin = begin.layer};
  status = take_arena(interpreter, instruction, begin.layer, batch, keep, error, &kept.arena);
  if (status != MOTET_OK) return status;
  double *loss = &interpreter->step->sums[instruction->microbatch];
  void *piece = NULL;
  if (instruction->range > 0) begin.layer = mt_interpreter_share_begin(interpreter, instruction);
  if (mt_interpreter_has_images(interpreter, instruction)) {
    status = mt_interpreter_forward_images(interpreter, instruction, keep, &kept, &piece, error);
    begin.entering = piece;
  }
  if (status == MOTET_OK)
    status = mt_network_forward(interpreter->options.network, begin.layer, place->layer_end, batch, begin.entering,
                                leaving, keep, first_trainable > begin.layer ? first_trainable : begin.layer,
                                kept.arena, error, &kept.saved, loss);
  mt_pool_give(interpreter->pool, piece);
  mt_pool_arena_count(interpreter->pool, kept.arena);
  if (status == MOTET_OK && keep)
    interpreter->kept[cell] = kept;
  else
    release_kept(interpreter, &kept);
  return status == MOTET_OK && !next ? check_loss(interpreter, instruction->microbatch, error) : status;
}

motet_status mt_interpreter_forward(mt_interpreter *interpreter, const motet_instruction *instruction,
                                    motet_error *error) {
  const motet_program_stage *place = &interpreter->program->stages[instruction->stage];
  bool next = (instruction->flags & MOTET_FLAG_NEXT) != 0;
  mt_input *input = mt_interpreter_input(interpreter, next, instruction->microbatch);
  const mt_batch *batch = mt_interpreter_batch(interpreter, instruction);
  int64_t cell = mt_interpreter_cell(interpreter, instruction->stage, instruction->microbatch), bytes;
  mt_value *entering, *leaving = next ? &interpreter->next_outputs[cell] : &interpreter->outputs[cell];
  int32_t edge;
  motet_status status = find_input(interpreter, instruction, error, &entering, &edge);
  if (status == MOTET_OK) status = output_bytes(interpreter, instruction->stage, batch, error, &bytes);
  if (status != MOTET_OK) return status;
  /* The next step's microbatch may turn out to have no data for the stage: then nothing runs ahead for it. */
  if (next && bytes == 0) {
    release_input(interpreter, input);
    return MOTET_OK;
  }
  /* Behind the head nothing leaves a stage, and stages without layers pass that nothing on. */
  void *output = mt_pool_take(interpreter->pool, bytes);
  if (output == NULL) return mt_error_memory(error, (unsigned long long)bytes, "an activation");
  if (place->layer_begin == place->layer_end) {
    if (entering != NULL) memcpy(output, entering->data, (size_t)bytes);
  } else {
    status = run_forward(interpreter, instruction, batch, entering != NULL ? entering->data : NULL,
                         bytes > 0 ? output : NULL, error);
  }
  if (entering != NULL) mt_interpreter_release(interpreter, entering);
  release_input(interpreter, input);
  leaving->data = output;
  if (leaving->uses == 0) {
    mt_pool_give(interpreter->pool, output);
    leaving->data = NULL;
  }
  return status;
}

motet_status mt_interpreter_recompute(mt_interpreter *interpreter, const motet_instruction *instruction,
                                      motet_error *error) {
  const motet_program_stage *place = &interpreter->program->stages[instruction->stage];
  int32_t first_trainable = interpreter->stages[instruction->stage].first_trainable;
  mt_input *input = mt_interpreter_input(interpreter, false, instruction->microbatch);
  mt_kept *kept = &interpreter->kept[mt_interpreter_cell(interpreter, instruction->stage, instruction->microbatch)];
  const mt_batch *batch = mt_interpreter_batch(interpreter, instruction);
  mt_value *entering;
  int32_t edge;
  motet_status status = find_input(interpreter, instruction, error, &entering, &edge);
  if (status != MOTET_OK) return status;
  if (place->layer_begin < place->layer_end) {
    mt_stage_begin begin = {.layer = place->layer_begin, .entering = entering != NULL ? entering->data : NULL};
    if (instruction->range > 0) begin.layer = mt_interpreter_share_begin(interpreter, instruction);
    status = mt_interpreter_begin_stage(interpreter, instruction, batch, NULL, error, &begin);
    kept->layer_begin = begin.layer;
    if (status == MOTET_OK)
      status = take_arena(interpreter, instruction, begin.layer, batch, true, error, &kept->arena);
    if (status == MOTET_OK)
      status = mt_network_restore(interpreter->options.network, begin.layer, place->layer_end, batch,
                                  begin.entering, first_trainable > begin.layer ? first_trainable : begin.layer,
                                  kept->arena, error, &kept->saved);
    mt_pool_arena_count(interpreter->pool, kept->arena);
  }
  if (entering != NULL) mt_interpreter_release(interpreter, entering);
  release_input(interpreter, input);
  return status;
}

/** Makes room for the gradient of the activation that entered the stage, where it is wanted. */
static motet_status make_input_gradient(mt_interpreter *interpreter, const motet_instruction *instruction,
                                        const mt_batch *batch, motet_error *error, mt_value **gradient) {
  const mt_interpreter_stage *stage = &interpreter->stages[instruction->stage];
  const motet_program *program = interpreter->program;
  *gradient = NULL;
  if (!stage->sends_gradient) return MOTET_OK;
  for (int32_t k = stage->in_begin; k < stage->in_end; k++) {
    int32_t edge = interpreter->in_edges[k], from = program->edges[edge].from;
    mt_value *value = &interpreter->gradients[mt_interpreter_cell(interpreter, edge, instruction->microbatch)];
    bool seam = mt_interpreter_is_seam(interpreter, edge);
    if (!mt_interpreter_active(interpreter, from, instruction->microbatch)) continue;
    if (seam ? batch->features == 0 : value->uses == 0) continue;
    int64_t bytes;
    motet_status status = seam ? bytes_of(batch->features, interpreter->options.config->decoder.hidden,
                                          mt_network_element(interpreter->options.network), error, &bytes)
                               : output_bytes(interpreter, from, batch, error, &bytes);
    if (status != MOTET_OK) return status;
    value->data = mt_pool_take(interpreter->pool, bytes);
    if (value->data == NULL) return mt_error_memory(error, (unsigned long long)bytes, "a gradient");
    *gradient = value;
  }
  return MOTET_OK;
}

/** A seam's gradient whose owner is this rank is put with the other shares'; others wait for their SEND. */
static motet_status keep_own_gradient(mt_interpreter *interpreter, const motet_instruction *instruction,
                                      mt_value *gradient, motet_error *error) {
  int32_t edge = (int32_t)((gradient - interpreter->gradients) / interpreter->microbatches);
  if (!mt_interpreter_is_seam(interpreter, edge) || gradient->uses > 0) return MOTET_OK;
  int32_t member = mt_interpreter_input(interpreter, false, instruction->microbatch)->share.context->index;
  motet_status status =
      mt_interpreter_scatter(interpreter, edge, instruction->range, member, gradient->data, error);
  mt_pool_give(interpreter->pool, gradient->data);
  gradient->data = NULL;
  return status;
}

/** Backward of a share's layers, and of the image modules in front of them in the stage. */
static motet_status run_backward_share(mt_interpreter *interpreter, const motet_instruction *instruction,
                                       const mt_batch *batch, const mt_kept *kept, const void *arriving,
                                       void *leaving, motet_error *error) {
  int32_t begin = mt_interpreter_share_begin(interpreter, instruction);
  int32_t first_trainable = interpreter->stages[instruction->stage].first_trainable;
  void *piece = NULL;
  if (mt_interpreter_has_images(interpreter, instruction) && first_trainable < begin) {
    int64_t bytes;
    motet_status status = bytes_of(batch->features, interpreter->options.config->decoder.hidden,
                                   mt_network_element(interpreter->options.network), error, &bytes);
    if (status != MOTET_OK) return status;
    leaving = piece = mt_pool_take(interpreter->pool, bytes);
    if (piece == NULL) return mt_error_memory(error, (unsigned long long)bytes, "a gradient");
  }
  motet_status status = mt_network_backward(
      interpreter->options.network, begin, interpreter->program->stages[instruction->stage].layer_end,
      first_trainable > begin ? first_trainable : begin, batch, kept->saved, arriving, leaving, error);
  if (status == MOTET_OK && piece != NULL)
    status = mt_interpreter_backward_images(interpreter, instruction, kept, piece, error);
  mt_pool_give(interpreter->pool, piece);
  return status;
}

/** The whole backward of a stage's layers, or its first half where a BWD_W follows. */
static motet_status run_backward(mt_interpreter *interpreter, const motet_instruction *instruction,
                                 const mt_batch *batch, mt_kept *kept, const float *arriving, float *leaving,
                                 motet_error *error) {
  const motet_program_stage *place = &interpreter->program->stages[instruction->stage];
  mt_network *network = interpreter->options.network;
  int32_t first_trainable = interpreter->stages[instruction->stage].first_trainable;
  motet_status status;
  if (!kept->split) {
    status = instruction->range > 0
                 ? run_backward_share(interpreter, instruction, batch, kept, arriving, leaving, error)
                 : mt_network_backward(network, kept->layer_begin, place->layer_end, first_trainable, batch,
                                       kept->saved, arriving, leaving, error);
    mt_pool_arena_count(interpreter->pool, kept->arena);
    release_kept(interpreter, kept);
    return status;
  }
  int64_t bytes = mt_network_deferred_bytes(
      interpreter->options.config, mt_network_element(interpreter->options.network), interpreter->trainable,
      place->layer_begin, place->layer_end, first_trainable, batch);
  kept->memory = mt_pool_take(interpreter->pool, bytes);
  if (kept->memory == NULL)
    return mt_error_memory(error, (unsigned long long)bytes, "weight gradients that are put off");
  return mt_network_backward_inputs(network, kept->layer_begin, place->layer_end, first_trainable, batch,
                                    kept->saved, arriving, leaving, kept->memory, error, &kept->deferred);
}

motet_status mt_interpreter_backward(mt_interpreter *interpreter, const motet_instruction *instruction,
                                     motet_error *error) {
  const motet_program *program = interpreter->program;
  const motet_program_stage *place = &program->stages[instruction->stage];
  const mt_interpreter_stage *stage = &interpreter->stages[instruction->stage];
  int32_t m = instruction->microbatch;
  mt_input *input = mt_interpreter_input(interpreter, false, m);
  const mt_batch *batch = mt_interpreter_batch(interpreter, instruction);
  mt_kept *kept = &interpreter->kept[mt_interpreter_cell(interpreter, instruction->stage, m)];
  bool empty = place->layer_begin == place->layer_end;
  mt_value *arriving = NULL, *leaving;
  if (stage->out_edge >= 0 && mt_interpreter_active(interpreter, program->edges[stage->out_edge].to, m)) {
    bool seam = mt_interpreter_is_seam(interpreter, stage->out_edge);
    arriving = seam ? interpreter->wholes : interpreter->gradients;
    arriving += mt_interpreter_cell(interpreter, stage->out_edge, m);
    if (arriving->data == NULL)
      return mt_error_set(error, MOTET_ERROR_FAILED, "the gradient from stage %d has not arrived",
                          (int)program->edges[stage->out_edge].to);
  }
  if (!empty && kept->saved == NULL)
    return mt_error_set(error, MOTET_ERROR_FAILED, "its forward has not run, or its saved activations are gone");
  motet_status status = make_input_gradient(interpreter, instruction, batch, error, &leaving);
  if (status != MOTET_OK) return status;
  void *input_gradient = leaving != NULL ? leaving->data : NULL;
  if (empty) {
    int64_t bytes;
    status = output_bytes(interpreter, instruction->stage, batch, error, &bytes);
    if (status == MOTET_OK && input_gradient != NULL && arriving != NULL)
      memcpy(input_gradient, arriving->data, (size_t)bytes);
  } else {
    bool ends = place->layer_end == program->layer_count;
    status = run_backward(interpreter, instruction, batch, kept, arriving != NULL && !ends ? arriving->data : NULL,
                          input_gradient, error);
  }
  if (status == MOTET_OK && leaving != NULL) status = keep_own_gradient(interpreter, instruction, leaving, error);
  if (arriving != NULL) mt_interpreter_release(interpreter, arriving);
  release_input(interpreter, input);
  return status;
}

motet_status mt_interpreter_backward_weights(mt_interpreter *interpreter, const motet_instruction *instruction,
                                             motet_error *error) {
  const motet_program_stage *place = &interpreter->program->stages[instruction->stage];
  mt_input *input = mt_interpreter_input(interpreter, false, instruction->microbatch);
  mt_kept *kept = &interpreter->kept[mt_interpreter_cell(interpreter, instruction->stage, instruction->microbatch)];
  motet_status status = MOTET_OK;
  if (place->layer_begin < place->layer_end) {
    if (kept->deferred == NULL)
      return mt_error_set(error, MOTET_ERROR_FAILED, "its BWD_X has not run, or what it left is gone");
    status = mt_network_backward_weights(interpreter->options.network,
                                         mt_interpreter_batch(interpreter, instruction), kept->deferred, error);
    release_kept(interpreter, kept);
  }
  release_input(interpreter, input);
  return status;
}
