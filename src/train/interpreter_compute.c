/* Compute: loads, forward and backward of (stage, microbatch). */
#include "train/interpreter_state.h"

#include <math.h>
#include <string.h>

/** Bytes of the activation that leaves the stage. An empty stage passes on what enters it. */
static motet_status output_bytes(const mt_interpreter *interpreter, int32_t stage, const mt_batch *batch,
                                 motet_error *error, int64_t *bytes) {
  return mt_interpreter_boundary_bytes(interpreter, interpreter->program->stages[stage].layer_end, batch, error,
                                       bytes);
}

/** Bytes of the image features that a share reads. */
static int64_t feature_bytes(const mt_interpreter *interpreter, const mt_batch *batch) {
  return (int64_t)batch->features * interpreter->options.config->decoder.hidden *
         (int64_t)mt_element_bytes(mt_network_element(interpreter->options.network));
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

void mt_interpreter_release_input(mt_interpreter *interpreter, mt_input *input) {
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
                               motet_error *error, mt_value **value) {
  const mt_interpreter_stage *stage = &interpreter->stages[instruction->stage];
  int32_t m = instruction->microbatch, edge = -1;
  *value = NULL;
  if ((instruction->flags & MOTET_FLAG_NEXT) != 0) return MOTET_OK;
  for (int32_t k = stage->in_begin; k < stage->in_end; k++) {
    int32_t candidate = interpreter->in_edges[k], from = interpreter->program->edges[candidate].from;
    if (!mt_interpreter_active(interpreter, from, m)) continue;
    if (edge >= 0)
      return mt_error_set(error, MOTET_ERROR_UNSUPPORTED, "the runtime's layers take one input, not several");
    bool seam = mt_interpreter_is_seam(interpreter, candidate);
    if (seam && mt_interpreter_input(interpreter, false, m)->share.features == 0) continue;
    mt_value *received = &interpreter->received[mt_interpreter_cell(interpreter, candidate, m)];
    *value = received->data != NULL ? received : &interpreter->outputs[mt_interpreter_cell(interpreter, from, m)];
    edge = candidate;
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

/** Sees to each member's cached layers, and puts the members together, with what enters the first layer that is
 * left. Where none is, that is all. */
static motet_status enter(mt_interpreter *interpreter, mt_run *run, motet_error *error, mt_joined *entering) {
  const motet_program_stage *place = &interpreter->program->stages[run->first->stage];
  int32_t first_layer = place->layer_begin;
  *entering = (mt_joined){.layer = first_layer};
  for (int32_t i = 0; i < run->count; i++) {
    mt_member *member = &run->members[i];
    int32_t layer = place->layer_begin;
    member->from = member->read != NULL ? member->read->data : NULL;
    motet_status status = MOTET_OK;
    if ((run->first->flags & MOTET_FLAG_NEXT) == 0)
      status = mt_interpreter_begin_stage(interpreter, member, error, &layer);
    if (status != MOTET_OK) return status;
    if (layer > first_layer) first_layer = layer; /* alike for all with tiles; others have no rows there */
  }
  entering->layer = first_layer;
  if (first_layer == place->layer_end) return MOTET_OK;
  motet_status status = mt_interpreter_run_join(interpreter, run, first_layer == 0, error);
  if (status == MOTET_OK) status = mt_interpreter_joined_make(interpreter, run, first_layer, error, entering);
  return status == MOTET_OK ? mt_interpreter_joined_put(interpreter, run, entering, error) : status;
}

/** Adds the losses of a run's microbatches to the step's, and judges them. */
static motet_status keep_losses(mt_interpreter *interpreter, const mt_run *run, const double *losses,
                                motet_error *error) {
  for (int32_t i = 0; i < run->count; i++) {
    int32_t m = run->members[i].instruction->microbatch;
    interpreter->step->sums[m] += losses[i];
    motet_status status = check_loss(interpreter, m, error);
    if (status != MOTET_OK) return status;
  }
  return MOTET_OK;
}

/** Layers from @p entering on; what is kept of them goes to the first member. */
static motet_status run_layers(mt_interpreter *interpreter, const mt_run *run, const mt_joined *entering,
                               void *leaving, motet_error *error) {
  const motet_instruction *first = run->first;
  const motet_program_stage *place = &interpreter->program->stages[first->stage];
  int32_t first_trainable = interpreter->stages[first->stage].first_trainable, begin = entering->layer;
  mt_kept *place_kept = &interpreter->kept[mt_interpreter_cell(interpreter, first->stage, first->microbatch)];
  bool next = (first->flags & MOTET_FLAG_NEXT) != 0;
  bool keep = first_trainable >= 0 && !next && !place_kept->recompute;
  mt_kept kept = {.split = place_kept->split, .members = run->count, .layer_begin = begin};
  double *losses = MT_ARENA_NEW(interpreter->run_arena, double, run->count);
  if (losses == NULL) return mt_error_memory(error, (unsigned)run->count * sizeof *losses, "losses");
  motet_status status = take_arena(interpreter, first, begin, run->batch, keep, error, &kept.arena);
  if (status != MOTET_OK) return status;
  const void *input = entering->data;
  void *piece = NULL;
  if (first->range > 0) begin = mt_interpreter_share_begin(interpreter, first);
  if (mt_interpreter_has_images(interpreter, first)) {
    status = mt_interpreter_forward_images(interpreter, first, keep, &kept, &piece, error);
    input = piece;
  }
  if (status == MOTET_OK)
    status = mt_network_forward(interpreter->options.network, begin, place->layer_end, run->batch, input, leaving,
                                keep, first_trainable > begin ? first_trainable : begin, kept.arena, error,
                                &kept.saved, losses);
  mt_pool_give(interpreter->pool, piece);
  mt_pool_arena_count(interpreter->pool, kept.arena);
  if (status == MOTET_OK && keep)
    *place_kept = kept;
  else
    release_kept(interpreter, &kept);
  return status == MOTET_OK && !next ? keep_losses(interpreter, run, losses, error) : status;
}

static motet_status run_forward(mt_interpreter *interpreter, mt_run *run, motet_error *error) {
  const motet_program_stage *place = &interpreter->program->stages[run->first->stage];
  mt_joined entering = {0}, leaving = {0};
  motet_status status = enter(interpreter, run, error, &entering);
  if (status == MOTET_OK && entering.layer < place->layer_end) {
    status = mt_interpreter_joined_make(interpreter, run, place->layer_end, error, &leaving);
    if (run->count == 1) leaving.data = run->members[0].to;
    if (status == MOTET_OK) status = run_layers(interpreter, run, &entering, leaving.data, error);
    if (status == MOTET_OK) status = mt_interpreter_joined_take(interpreter, run, &leaving, error);
  }
  mt_pool_give(interpreter->pool, entering.workspace);
  mt_pool_give(interpreter->pool, leaving.workspace);
  return status;
}

/** Finds what the members read and makes room for what they make; of the next step's, those without data for the
 * stage, as it may turn out, leave the run. */
static motet_status prepare_forward(mt_interpreter *interpreter, mt_run *run, motet_error *error) {
  bool next = (run->first->flags & MOTET_FLAG_NEXT) != 0;
  int32_t count = 0;
  for (int32_t i = 0; i < run->count; i++) {
    mt_member member = run->members[i];
    const motet_instruction *instruction = member.instruction;
    int64_t cell = mt_interpreter_cell(interpreter, instruction->stage, instruction->microbatch), bytes;
    motet_status status = find_input(interpreter, instruction, error, &member.read);
    if (status == MOTET_OK) status = output_bytes(interpreter, instruction->stage, member.batch, error, &bytes);
    if (status != MOTET_OK) return status;
    if (next && bytes == 0) {
      mt_interpreter_release_input(interpreter, member.input);
      continue;
    }
    /* Behind the head nothing leaves a stage, and stages without layers pass that nothing on. */
    member.made = next ? &interpreter->next_outputs[cell] : &interpreter->outputs[cell];
    member.made->data = mt_pool_take(interpreter->pool, bytes);
    if (member.made->data == NULL) return mt_error_memory(error, (unsigned long long)bytes, "an activation");
    member.to = bytes > 0 ? member.made->data : NULL;
    run->members[count++] = member;
  }
  run->count = count;
  return MOTET_OK;
}

/** A stage without layers passes on what it reads. */
static motet_status pass_on(mt_interpreter *interpreter, const mt_run *run, motet_error *error) {
  for (int32_t i = 0; i < run->count; i++) {
    const mt_member *member = &run->members[i];
    int64_t bytes;
    motet_status status = output_bytes(interpreter, run->first->stage, member->batch, error, &bytes);
    if (status != MOTET_OK) return status;
    if (member->read != NULL && member->made != NULL) memcpy(member->made->data, member->read->data, (size_t)bytes);
  }
  return MOTET_OK;
}

/** What a run has read is released, and what it made and nobody uses. */
static void finish_run(mt_interpreter *interpreter, mt_run *run) {
  for (int32_t i = 0; i < run->count; i++) {
    mt_member *member = &run->members[i];
    if (member->read != NULL) mt_interpreter_release(interpreter, member->read);
    if (member->made == NULL || member->made->uses > 0) continue;
    mt_pool_give(interpreter->pool, member->made->data);
    member->made->data = NULL;
  }
  mt_interpreter_run_end(interpreter, run);
}

motet_status mt_interpreter_forward(mt_interpreter *interpreter, const motet_instruction *instruction,
                                    motet_error *error) {
  const motet_program_stage *place = &interpreter->program->stages[instruction->stage];
  mt_run run;
  motet_status status = mt_interpreter_run_make(interpreter, instruction, error, &run);
  if (status == MOTET_OK) status = prepare_forward(interpreter, &run, error);
  if (status != MOTET_OK || run.count == 0) return status;
  run.batch = run.members[0].batch;
  status = place->layer_begin == place->layer_end ? pass_on(interpreter, &run, error)
                                                  : run_forward(interpreter, &run, error);
  finish_run(interpreter, &run);
  return status;
}

static motet_status restore(mt_interpreter *interpreter, mt_run *run, motet_error *error) {
  const motet_instruction *first = run->first;
  int32_t first_trainable = interpreter->stages[first->stage].first_trainable;
  mt_kept *kept = &interpreter->kept[mt_interpreter_cell(interpreter, first->stage, first->microbatch)];
  mt_joined entering = {0};
  motet_status status = enter(interpreter, run, error, &entering);
  int32_t begin = first->range > 0 ? mt_interpreter_share_begin(interpreter, first) : entering.layer;
  kept->members = run->count;
  kept->layer_begin = begin;
  if (status == MOTET_OK) status = take_arena(interpreter, first, begin, run->batch, true, error, &kept->arena);
  if (status == MOTET_OK)
    status = mt_network_restore(
        interpreter->options.network, begin, interpreter->program->stages[first->stage].layer_end, run->batch,
        entering.data, first_trainable > begin ? first_trainable : begin, kept->arena, error, &kept->saved);
  mt_pool_arena_count(interpreter->pool, kept->arena);
  mt_pool_give(interpreter->pool, entering.workspace);
  return status;
}

motet_status mt_interpreter_recompute(mt_interpreter *interpreter, const motet_instruction *instruction,
                                      motet_error *error) {
  const motet_program_stage *place = &interpreter->program->stages[instruction->stage];
  mt_run run;
  motet_status status = mt_interpreter_run_make(interpreter, instruction, error, &run);
  for (int32_t i = 0; i < run.count && status == MOTET_OK; i++)
    status = find_input(interpreter, run.members[i].instruction, error, &run.members[i].read);
  if (status == MOTET_OK && place->layer_begin < place->layer_end) status = restore(interpreter, &run, error);
  if (status == MOTET_OK) finish_run(interpreter, &run);
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
    motet_status status = output_bytes(interpreter, from, batch, error, &bytes);
    if (status != MOTET_OK) return status;
    if (seam) bytes = feature_bytes(interpreter, batch);
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
    int64_t bytes = feature_bytes(interpreter, batch);
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
static motet_status backward_layers(mt_interpreter *interpreter, const mt_run *run, mt_kept *kept,
                                    const void *arriving, void *leaving, motet_error *error) {
  const motet_instruction *first = run->first;
  const motet_program_stage *place = &interpreter->program->stages[first->stage];
  mt_network *network = interpreter->options.network;
  int32_t first_trainable = interpreter->stages[first->stage].first_trainable;
  motet_status status;
  if (!kept->split) {
    status = first->range > 0 ? run_backward_share(interpreter, first, run->batch, kept, arriving, leaving, error)
                              : mt_network_backward(network, kept->layer_begin, place->layer_end, first_trainable,
                                                    run->batch, kept->saved, arriving, leaving, error);
    mt_pool_arena_count(interpreter->pool, kept->arena);
    release_kept(interpreter, kept);
    return status;
  }
  int64_t bytes =
      mt_network_deferred_bytes(interpreter->options.config, mt_network_element(network), interpreter->trainable,
                                place->layer_begin, place->layer_end, first_trainable, run->batch);
  kept->memory = mt_pool_take(interpreter->pool, bytes);
  if (kept->memory == NULL)
    return mt_error_memory(error, (unsigned long long)bytes, "weight gradients that are put off");
  return mt_network_backward_inputs(network, kept->layer_begin, place->layer_end, first_trainable, run->batch,
                                    kept->saved, arriving, leaving, kept->memory, error, &kept->deferred);
}

/** What a run's forward has kept for its backward, which is of the same microbatches. */
static motet_status find_kept(mt_interpreter *interpreter, const mt_run *run, motet_error *error, mt_kept **kept) {
  *kept = &interpreter->kept[mt_interpreter_cell(interpreter, run->first->stage, run->first->microbatch)];
  if ((*kept)->saved == NULL)
    return mt_error_set(error, MOTET_ERROR_FAILED, "its forward has not run, or its saved activations are gone");
  if ((*kept)->members != run->count)
    return mt_error_set(error, MOTET_ERROR_FAILED, "its forward was of %d microbatches at once, and it is of %d",
                        (int)(*kept)->members, (int)run->count);
  return MOTET_OK;
}

static motet_status run_backward(mt_interpreter *interpreter, mt_run *run, motet_error *error) {
  const motet_program *program = interpreter->program;
  const motet_program_stage *place = &program->stages[run->first->stage];
  const int32_t first_trainable = interpreter->stages[run->first->stage].first_trainable;
  mt_joined arriving = {0}, leaving = {0};
  bool wanted = false;
  mt_kept *kept;
  motet_status status = find_kept(interpreter, run, error, &kept);
  for (int32_t i = 0; i < run->count; i++) {
    mt_member *member = &run->members[i];
    wanted = wanted || member->made != NULL;
    member->from = member->read != NULL ? member->read->data : NULL;
    member->to = member->made != NULL ? member->made->data : NULL;
  }
  if (status == MOTET_OK) status = mt_interpreter_run_join(interpreter, run, first_trainable == 0, error);
  if (status == MOTET_OK && place->layer_end < program->layer_count) {
    status = mt_interpreter_joined_make(interpreter, run, place->layer_end, error, &arriving);
    if (status == MOTET_OK) status = mt_interpreter_joined_put(interpreter, run, &arriving, error);
  }
  if (status == MOTET_OK && wanted)
    status = mt_interpreter_joined_make(interpreter, run, place->layer_begin, error, &leaving);
  if (run->count == 1) leaving.data = run->members[0].to;
  if (status == MOTET_OK) status = backward_layers(interpreter, run, kept, arriving.data, leaving.data, error);
  if (status == MOTET_OK) status = mt_interpreter_joined_take(interpreter, run, &leaving, error);
  mt_pool_give(interpreter->pool, arriving.workspace);
  mt_pool_give(interpreter->pool, leaving.workspace);
  return status;
}

/** The gradient of the member's output, NULL where none flows back. */
static motet_status find_gradient(mt_interpreter *interpreter, const motet_instruction *instruction,
                                  motet_error *error, mt_value **arriving) {
  const motet_program *program = interpreter->program;
  int32_t edge = interpreter->stages[instruction->stage].out_edge, m = instruction->microbatch;
  *arriving = NULL;
  if (edge < 0 || !mt_interpreter_active(interpreter, program->edges[edge].to, m)) return MOTET_OK;
  mt_value *table = mt_interpreter_is_seam(interpreter, edge) ? interpreter->wholes : interpreter->gradients;
  *arriving = &table[mt_interpreter_cell(interpreter, edge, m)];
  if ((*arriving)->data != NULL) return MOTET_OK;
  return mt_error_set(error, MOTET_ERROR_FAILED, "the gradient from stage %d has not arrived",
                      (int)program->edges[edge].to);
}

motet_status mt_interpreter_backward(mt_interpreter *interpreter, const motet_instruction *instruction,
                                     motet_error *error) {
  const motet_program_stage *place = &interpreter->program->stages[instruction->stage];
  mt_run run;
  motet_status status = mt_interpreter_run_make(interpreter, instruction, error, &run);
  for (int32_t i = 0; i < run.count && status == MOTET_OK; i++) {
    mt_member *member = &run.members[i];
    status = find_gradient(interpreter, member->instruction, error, &member->read);
    if (status == MOTET_OK)
      status = make_input_gradient(interpreter, member->instruction, member->batch, error, &member->made);
  }
  if (status == MOTET_OK)
    status = place->layer_begin == place->layer_end ? pass_on(interpreter, &run, error)
                                                    : run_backward(interpreter, &run, error);
  for (int32_t i = 0; i < run.count && status == MOTET_OK; i++)
    if (run.members[i].made != NULL)
      status = keep_own_gradient(interpreter, run.members[i].instruction, run.members[i].made, error);
  if (status == MOTET_OK) finish_run(interpreter, &run);
  return status;
}

motet_status mt_interpreter_backward_weights(mt_interpreter *interpreter, const motet_instruction *instruction,
                                             motet_error *error) {
  const motet_program_stage *place = &interpreter->program->stages[instruction->stage];
  mt_run run;
  motet_status status = mt_interpreter_run_make(interpreter, instruction, error, &run);
  if (status == MOTET_OK && place->layer_begin < place->layer_end) {
    mt_kept *kept;
    status = find_kept(interpreter, &run, error, &kept);
    if (status == MOTET_OK && kept->deferred == NULL)
      status = mt_error_set(error, MOTET_ERROR_FAILED, "its BWD_X has not run, or what it left is gone");
    if (status == MOTET_OK) status = mt_interpreter_run_join(interpreter, &run, false, error);
    if (status != MOTET_OK) return status;
    status = mt_network_backward_weights(interpreter->options.network, run.batch, kept->deferred, error);
    release_kept(interpreter, kept);
  }
  if (status == MOTET_OK) mt_interpreter_run_end(interpreter, &run);
  return status;
}
