/* Forward and backward over a run of layers. */
#include "nn/context.h"
#include "nn/deferred.h"
#include "nn/exact.h"

#include <string.h>

struct mt_saved {
  int32_t layer_begin, layer_end, first_kept;
  float *blocks[]; /* one for each layer, NULL where nothing is kept */
};

static const mt_layer_kind *kind_of(const mt_internvl *config, int32_t layer) {
  int32_t block;
  return mt_layer_kind_of(mt_internvl_layer_kind(config, layer, &block));
}

static size_t output_floats(const mt_internvl *config, mt_element element, int32_t layer, const mt_batch *batch) {
  const mt_shape shape = kind_of(config, layer)->output(config, batch);
  return mt_workspace_room(mt_element_floats(element, shape.rows * shape.columns));
}

/* The layers of the image modules have no rows in a text batch; they are stepped over. */
static bool idle(const mt_internvl *config, int32_t layer, const mt_batch *batch) {
  return batch->tiles == 0 && layer <= config->vision.layers + 1;
}

void mt_network_output_shape(const mt_internvl *config, int32_t layer, const mt_batch *batch, int64_t *rows,
                             int64_t *columns) {
  const mt_shape shape = kind_of(config, layer)->output(config, batch);
  *rows = shape.rows;
  *columns = shape.columns;
}

static size_t saved_header_bytes(int32_t layers) {
  return (sizeof(mt_saved) + (size_t)layers * sizeof(float *) + 63) / 64 * 64;
}

static size_t saved_floats(const mt_internvl *config, mt_element element, int32_t begin, int32_t end,
                           int32_t first_kept, const mt_batch *batch) {
  size_t floats = 0;
  for (int32_t layer = begin > first_kept ? begin : first_kept; layer < end; layer++)
    if (!idle(config, layer, batch))
      floats += mt_workspace_room(kind_of(config, layer)->saved(config, element, batch));
  return floats;
}

/* An arena gives no less than this. */
static size_t arena_bytes(size_t bytes) { return bytes == 0 ? 64 : bytes; }

int64_t mt_network_saved_bytes(const mt_internvl *config, mt_element element, const bool *trainable,
                               int32_t layer_begin, int32_t layer_end, int32_t first_trainable,
                               const mt_batch *batch) {
  (void)trainable; /* what is kept for the gradient of the input serves the weights too */
  if (first_trainable < 0) return 0;
  const size_t floats = saved_floats(config, element, layer_begin, layer_end, first_trainable, batch);
  return (int64_t)(saved_header_bytes(layer_end - layer_begin) + arena_bytes(floats * sizeof(float)));
}

/* Workspace beside the layers' own: blocks of layers that keep nothing, activations in between. */
typedef struct passage {
  size_t block, activation, scratch; /* floats: the largest of each */
} passage;

static passage measure(const mt_network *network, int32_t begin, int32_t end, int32_t first_kept,
                       const mt_batch *batch) {
  const mt_internvl *config = &network->config;
  const mt_element element = network->device.backend->element;
  passage most = {0};
  for (int32_t layer = begin; layer < end; layer++) {
    if (idle(config, layer, batch)) continue;
    const mt_layer_kind *kind = kind_of(config, layer);
    const size_t block = layer < first_kept ? mt_workspace_room(kind->saved(config, element, batch)) : 0;
    const size_t activation = output_floats(config, element, layer, batch);
    const size_t scratch = mt_workspace_room(kind->scratch(config, element, batch));
    most.block = block > most.block ? block : most.block;
    most.activation = activation > most.activation ? activation : most.activation;
    most.scratch = scratch > most.scratch ? scratch : most.scratch;
  }
  return most;
}

static mt_layer_call make_call(mt_network *network, int32_t layer, const mt_batch *batch, motet_error *error) {
  mt_held_layer *held = &network->layers[layer];
  int32_t block;
  const bool decodes = mt_internvl_layer_kind(&network->config, layer, &block) == MT_INTERNVL_DECODER_BLOCK;
  return (mt_layer_call){.config = &network->config,
                         .device = &network->device,
                         .workspace = &network->workspace,
                         .logits = &network->logits,
                         .rotary = &network->rotary,
                         .cache = decodes && network->caches != NULL ? &network->caches[block] : NULL,
                         .batch = batch,
                         .weight = held->weight,
                         .gradient = held->gradient,
                         .trains = held->trainable,
                         .error = error};
}

static motet_status check_run(const mt_network *network, int32_t begin, int32_t end, const mt_batch *batch,
                              motet_error *error) {
  if (begin < 0 || end > network->layer_count || begin >= end)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT, "layers %d to %d are not in a model of %d", begin, end,
                        network->layer_count);
  for (int32_t layer = begin; layer < end; layer++)
    if (!network->layers[layer].held)
      return mt_error_set(error, MOTET_ERROR_ARGUMENT, "layer %d is not held by this rank", layer);
  const int32_t *bounds = batch->segment_begin;
  if (batch->segments < 1 || bounds[0] != 0 || bounds[batch->segments] != batch->tokens)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT, "the segments do not cover the %d tokens", batch->tokens);
  for (int32_t s = 0; s < batch->segments; s++)
    if (bounds[s] > bounds[s + 1])
      return mt_error_set(error, MOTET_ERROR_ARGUMENT, "segment %d ends before it begins", s);
  if (batch->parts > 0 && (batch->part_begin[0] != 0 || batch->part_begin[batch->parts] != batch->tokens))
    return mt_error_set(error, MOTET_ERROR_ARGUMENT, "the parts do not cover the %d tokens", batch->tokens);
  if (batch->context != NULL) MT_TRY(mt_context_check(batch, error));
  if (batch->tiles < 0 || mt_vision_rows(&network->config, batch) > INT32_MAX)
    return mt_error_set(error, MOTET_ERROR_LIMIT, "%d image tiles are more than one microbatch can have",
                        batch->tiles);
  return MOTET_OK;
}

static motet_status make_saved(const mt_network *network, int32_t begin, int32_t end, int32_t first_kept,
                               const mt_batch *batch, mt_arena *arena, motet_error *error, mt_saved **result) {
  const mt_internvl *config = &network->config;
  const mt_element element = network->device.backend->element;
  const size_t floats = saved_floats(config, element, begin, end, first_kept, batch);
  mt_saved *saved = mt_arena_array(arena, saved_header_bytes(end - begin), 1);
  float *data = mt_arena_array(arena, floats, sizeof(float));
  if (saved == NULL || data == NULL) return mt_error_memory(error, floats * sizeof(float), "saved activations");
  saved->layer_begin = begin;
  saved->layer_end = end;
  saved->first_kept = first_kept;
  for (int32_t layer = begin > first_kept ? begin : first_kept; layer < end; layer++) {
    if (idle(config, layer, batch)) continue;
    saved->blocks[layer - begin] = data;
    data += mt_workspace_room(kind_of(config, layer)->saved(config, element, batch));
  }
  *result = saved;
  return MOTET_OK;
}

/* With `discard` the output stays behind and the loss is not counted: what is saved is all that is wanted. */
static motet_status run_forward(mt_network *network, int32_t layer_begin, int32_t layer_end, const mt_batch *batch,
                                const void *input, void *output, bool keep, bool discard, int32_t first_trainable,
                                mt_arena *arena, motet_error *error, mt_saved **saved, double *loss) {
  const mt_internvl *config = &network->config;
  mt_workspace *workspace = &network->workspace;
  MT_TRY(check_run(network, layer_begin, layer_end, batch, error));
  const bool ends_in_loss = layer_end == network->layer_count;
  if (!discard && (ends_in_loss ? loss == NULL : output == NULL))
    return mt_error_set(error, MOTET_ERROR_ARGUMENT, "layers that end at %d need a place for their %s", layer_end,
                        ends_in_loss ? "loss" : "output");
  const bool keeps = keep && first_trainable >= 0;
  const int32_t first_kept = keeps ? first_trainable : layer_end;
  mt_saved *blocks = NULL;
  if (keeps) MT_TRY(make_saved(network, layer_begin, layer_end, first_kept, batch, arena, error, &blocks));
  const passage most = measure(network, layer_begin, layer_end, first_kept, batch);
  workspace->used = 0;
  MT_TRY(mt_workspace_reserve(workspace, 2 * most.block + 2 * most.activation + most.scratch, error));
  float *const spare[2] = {mt_workspace_take(workspace, most.block), mt_workspace_take(workspace, most.block)};
  float *const between[2] = {mt_workspace_take(workspace, most.activation),
                             mt_workspace_take(workspace, most.activation)};
  const size_t mark = workspace->used;
  const void *entering = input;
  for (int32_t layer = layer_begin; layer < layer_end; layer++) {
    if (idle(config, layer, batch)) continue;
    if (entering == NULL && network->layers[layer].kind != MT_INTERNVL_VISION_EMBED &&
        network->layers[layer].kind != MT_INTERNVL_TOKEN_EMBED)
      return mt_error_set(error, MOTET_ERROR_ARGUMENT, "layer %d needs an input", layer);
    float *block = layer >= first_kept ? blocks->blocks[layer - layer_begin] : spare[layer % 2];
    mt_layer_call call = make_call(network, layer, batch, error);
    call.saved = block;
    call.input = entering;
    if (layer >= first_kept && kind_of(config, layer)->keeps_input && entering != block) {
      const mt_shape shape = kind_of(config, layer - 1)->output(config, batch);
      memcpy(block, entering, mt_layer_bytes(&call, shape.rows * shape.columns));
      call.input = block;
    }
    if (layer == layer_end - 1)
      call.output = discard && !ends_in_loss ? between[layer % 2] : output;
    else if (kind_of(config, layer + 1)->keeps_input)
      call.output = layer + 1 >= first_kept ? blocks->blocks[layer + 1 - layer_begin] : spare[(layer + 1) % 2];
    else
      call.output = between[layer % 2];
    call.loss = loss;
    workspace->used = mark;
    motet_status status = kind_of(config, layer)->forward(&call);
    if (status != MOTET_OK) return mt_error_context(error, status, "forward of layer %d", layer);
    entering = call.output;
  }
  if (saved != NULL) *saved = blocks;
  return MOTET_OK;
}

motet_status mt_network_forward(mt_network *network, int32_t layer_begin, int32_t layer_end, const mt_batch *batch,
                                const void *input, void *output, bool keep, int32_t first_trainable,
                                mt_arena *arena, motet_error *error, mt_saved **saved, double *loss) {
  return run_forward(network, layer_begin, layer_end, batch, input, output, keep, false, first_trainable, arena,
                     error, saved, loss);
}

motet_status mt_network_restore(mt_network *network, int32_t layer_begin, int32_t layer_end, const mt_batch *batch,
                                const void *input, int32_t first_trainable, mt_arena *arena, motet_error *error,
                                mt_saved **saved) {
  return run_forward(network, layer_begin, layer_end, batch, input, NULL, true, true, first_trainable, arena, error,
                     saved, NULL);
}

static motet_status run_backward(mt_network *network, int32_t layer_begin, int32_t layer_end,
                                 int32_t first_trainable, const mt_batch *batch, mt_saved *saved,
                                 const void *output_gradient, void *input_gradient, mt_deferred *deferred,
                                 motet_error *error) {
  const mt_internvl *config = &network->config;
  mt_workspace *workspace = &network->workspace;
  MT_TRY(check_run(network, layer_begin, layer_end, batch, error));
  if (saved == NULL || saved->layer_begin != layer_begin || saved->layer_end != layer_end ||
      saved->first_kept > first_trainable || first_trainable < layer_begin)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT,
                        "backward of layers %d to %d down to %d needs what their forward kept", layer_begin,
                        layer_end, first_trainable);
  if (input_gradient != NULL && first_trainable > layer_begin)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT,
                        "the gradient of the input of layer %d cannot be had: backward ends at layer %d",
                        layer_begin, first_trainable);
  if (output_gradient == NULL && layer_end < network->layer_count)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT, "backward from layer %d needs its output's gradient",
                        layer_end - 1);
  const passage most = measure(network, layer_begin, layer_end, layer_begin, batch);
  workspace->used = 0;
  MT_TRY(mt_workspace_reserve(workspace, 2 * most.activation + most.scratch, error));
  float *const between[2] = {mt_workspace_take(workspace, most.activation),
                             mt_workspace_take(workspace, most.activation)};
  const size_t mark = workspace->used;
  const void *arriving = output_gradient;
  for (int32_t layer = layer_end - 1; layer >= first_trainable; layer--) {
    if (idle(config, layer, batch)) break;
    mt_layer_call call = make_call(network, layer, batch, error);
    call.saved = saved->blocks[layer - layer_begin];
    call.output_gradient = arriving;
    /* The lowest layer's goes to the caller, if it was asked for. */
    call.input_gradient = layer == first_trainable ? input_gradient : between[layer % 2];
    if (deferred != NULL && network->layers[layer].kind != MT_INTERNVL_HEAD) {
      call.deferred = deferred;
      mt_deferred_layer(deferred, layer, call.saved,
                        kind_of(config, layer)->saved(config, mt_network_element(network), batch));
    }
    workspace->used = mark;
    mt_exact_begin(network, layer);
    motet_status status = kind_of(config, layer)->backward(&call);
    mt_exact_end(network, layer);
    if (status != MOTET_OK) return mt_error_context(error, status, "backward of layer %d", layer);
    arriving = call.input_gradient;
  }
  return MOTET_OK;
}

motet_status mt_network_backward(mt_network *network, int32_t layer_begin, int32_t layer_end,
                                 int32_t first_trainable, const mt_batch *batch, mt_saved *saved,
                                 const void *output_gradient, void *input_gradient, motet_error *error) {
  return run_backward(network, layer_begin, layer_end, first_trainable, batch, saved, output_gradient,
                      input_gradient, NULL, error);
}

motet_status mt_network_backward_inputs(mt_network *network, int32_t layer_begin, int32_t layer_end,
                                        int32_t first_trainable, const mt_batch *batch, mt_saved *saved,
                                        const void *output_gradient, void *input_gradient, void *memory,
                                        motet_error *error, mt_deferred **deferred) {
  *deferred = mt_deferred_begin(memory, layer_end - layer_begin);
  return run_backward(network, layer_begin, layer_end, first_trainable, batch, saved, output_gradient,
                      input_gradient, *deferred, error);
}

motet_status mt_network_backward_weights(mt_network *network, const mt_batch *batch, const mt_deferred *deferred,
                                         motet_error *error) {
  const int32_t count = mt_deferred_count(deferred);
  size_t scratch = 0;
  for (int32_t i = 0; i < count; i++) {
    const size_t own = mt_deferred_scratch(deferred, i);
    scratch = own > scratch ? own : scratch;
  }
  network->workspace.used = 0;
  MT_TRY(mt_workspace_reserve(&network->workspace, scratch, error));
  for (int32_t i = 0; i < count; i++) {
    const int32_t layer = mt_deferred_layer_of(deferred, i);
    const mt_layer_call call = make_call(network, layer, batch, error);
    network->workspace.used = 0;
    if (i == 0 || mt_deferred_layer_of(deferred, i - 1) != layer) mt_exact_begin(network, layer);
    const motet_status status = mt_deferred_run(deferred, i, &call);
    if (status != MOTET_OK) return mt_error_context(error, status, "weight gradients of layer %d", layer);
    if (i + 1 == count || mt_deferred_layer_of(deferred, i + 1) != layer) mt_exact_end(network, layer);
  }
  return MOTET_OK;
}
