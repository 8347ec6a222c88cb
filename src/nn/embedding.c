/* The token embedding, where image features take their places in the packed row. */
#include "nn/layer.h"

#include <string.h>

static mt_shape embed_output(const mt_internvl *config, const mt_batch *batch) {
  return (mt_shape){batch->tokens, config->decoder.hidden};
}

static size_t embed_saved(const mt_internvl *config, mt_element element, const mt_batch *batch) {
  (void)config, (void)element, (void)batch;
  return 0;
}

static size_t embed_scratch(const mt_internvl *config, mt_element element, const mt_batch *batch) {
  (void)config, (void)element;
  return mt_workspace_room((size_t)batch->tokens); /* bytes would do; one mark a token */
}

/* Image features that enter: of all tiles, or of a member's rows. */
static int64_t entering(const mt_internvl *config, const mt_batch *batch) {
  return batch->context != NULL ? batch->features : mt_feature_rows(config, batch);
}

/* marks[t] = 1 where a feature stands. Ids and rows come from the data set: this is where they are checked. */
static motet_status mark_features(const mt_layer_call *call, int64_t features, float *marks) {
  const mt_batch *batch = call->batch;
  const int32_t vocabulary = call->config->decoder.vocabulary;
  if (batch->token_ids == NULL || (features > 0 && batch->feature_rows == NULL))
    return mt_error_set(call->error, MOTET_ERROR_ARGUMENT, "the token embedding needs the batch's %s",
                        batch->token_ids == NULL ? "token ids" : "feature rows");
  memset(marks, 0, (size_t)batch->tokens * sizeof *marks);
  for (int64_t f = 0; f < features; f++) {
    const int32_t row = batch->feature_rows[f];
    if (row < 0 || row >= batch->tokens || marks[row] > 0)
      return mt_error_set(call->error, MOTET_ERROR_ARGUMENT,
                          "image feature %lld belongs to row %d, which is %s of a sequence of %d tokens",
                          (long long)f, row,
                          row < 0 || row >= batch->tokens ? "outside" : "taken already, in a row", batch->tokens);
    marks[row] = 1.0F;
  }
  for (int32_t t = 0; t < batch->tokens; t++)
    if (batch->token_ids[t] < 0 || batch->token_ids[t] >= vocabulary)
      return mt_error_set(call->error, MOTET_ERROR_ARGUMENT, "token %d has id %d; the vocabulary has %d", t,
                          batch->token_ids[t], vocabulary);
  return MOTET_OK;
}

static motet_status embed_forward(const mt_layer_call *call) {
  const mt_batch *batch = call->batch;
  const int64_t hidden = call->config->decoder.hidden, features = entering(call->config, batch);
  if (features > 0 && call->input == NULL)
    return mt_error_set(call->error, MOTET_ERROR_ARGUMENT, "a batch with %lld image features needs them as input",
                        (long long)features);
  float *marks = mt_workspace_take(call->workspace, (size_t)batch->tokens);
  MT_TRY(mark_features(call, features, marks));
  for (int32_t t = 0; t < batch->tokens; t++)
    if (marks[t] == 0.0F)
      call->device->backend->add_floats(hidden, call->weight[MT_TOKEN_EMBED_WEIGHT] + batch->token_ids[t] * hidden,
                                        NULL, mt_layer_at(call, call->output, t * hidden));
  for (int64_t f = 0; f < features; f++)
    memcpy(mt_layer_at(call, call->output, batch->feature_rows[f] * hidden),
           mt_layer_at(call, call->input, f * hidden), mt_layer_bytes(call, hidden));
  return MOTET_OK;
}

static motet_status embed_backward(const mt_layer_call *call) {
  const mt_batch *batch = call->batch;
  const int64_t hidden = call->config->decoder.hidden, features = entering(call->config, batch);
  float *marks = mt_workspace_take(call->workspace, (size_t)batch->tokens);
  MT_TRY(mark_features(call, features, marks));
  if (call->trains) /* in token order: a word that comes twice gets the same bits every time */
    for (int32_t t = 0; t < batch->tokens; t++)
      if (marks[t] == 0.0F)
        call->device->backend->add_to_floats(hidden, mt_layer_at(call, call->output_gradient, t * hidden),
                                             call->gradient[MT_TOKEN_EMBED_WEIGHT] + batch->token_ids[t] * hidden);
  if (call->input_gradient == NULL) return MOTET_OK;
  for (int64_t f = 0; f < features; f++)
    memcpy(mt_layer_at(call, call->input_gradient, f * hidden),
           mt_layer_at(call, call->output_gradient, batch->feature_rows[f] * hidden), mt_layer_bytes(call, hidden));
  return MOTET_OK;
}

const mt_layer_kind mt_layer_token_embed = {.output = embed_output,
                                            .saved = embed_saved,
                                            .scratch = embed_scratch,
                                            .forward = embed_forward,
                                            .backward = embed_backward};
