/*
 * Digests of the weights. Ranks that hold the same layer must hold the same weights: after every step the rank that
 * answers for a layer tells the digest of its weights, and all others that hold it compare. Together the layers'
 * digests are that of the whole model, which no layout changes.
 */
#include "base/digest.h"
#include "train/interpreter_state.h"

#include <inttypes.h>
#include <stdlib.h>

static int32_t layer_count(const mt_interpreter *interpreter) {
  return mt_internvl_layer_count(interpreter->options.config);
}

static int32_t embedding_layer(const mt_interpreter *interpreter) {
  return interpreter->options.config->vision.layers + 2;
}

static uint64_t join(uint64_t first, uint64_t second) {
  const uint64_t both[2] = {first, second};
  return mt_digest_of(both, sizeof both);
}

/** Digests what may have changed. The head's copy of a tied matrix counts as the matrix, not as the head's. */
static void update(mt_interpreter *interpreter) {
  struct mt_weight_digest *digests = interpreter->digests;
  const mt_internvl *config = interpreter->options.config;
  int32_t layers = layer_count(interpreter), count = mt_network_parameter_count(interpreter->options.network);
  for (int32_t i = 0; i < count;) {
    int32_t layer = mt_network_parameter(interpreter->options.network, i)->layer;
    bool fresh = !digests[layer].known;
    for (uint64_t value = 0; i < count; i++) {
      const mt_parameter *parameter = mt_network_parameter(interpreter->options.network, i);
      if (parameter->layer != layer) break;
      if (!fresh && !parameter->trainable) continue;
      uint64_t own = mt_digest_of(parameter->value, (size_t)parameter->count * sizeof(float));
      bool tied = config->decoder.tied_embeddings && parameter->dims == 2 &&
                  (layer == embedding_layer(interpreter) || layer == layers - 1);
      if (tied) digests[layers].value = own;
      if (!tied || layer == embedding_layer(interpreter)) value = join(value, own);
      digests[layer] = (struct mt_weight_digest){.known = !parameter->trainable, .value = value};
    }
  }
}

size_t mt_interpreter_digest_count(const mt_interpreter *interpreter) {
  return 2 * ((size_t)layer_count(interpreter) + 1);
}

motet_status mt_interpreter_digest_tell(mt_interpreter *interpreter, motet_error *error, double *sums) {
  int32_t layers = layer_count(interpreter);
  if (interpreter->digests == NULL) interpreter->digests = calloc((size_t)layers + 1, sizeof *interpreter->digests);
  if (interpreter->digests == NULL)
    return mt_error_memory(error, ((size_t)layers + 1) * sizeof *interpreter->digests, "the weights' digests");
  update(interpreter);
  /* One rank alone adds to each: halves are exact as doubles, and the others add zeros. */
  for (int32_t i = 0; i <= layers; i++) {
    bool answers = mt_interpreter_answers_for(interpreter, i < layers ? i : embedding_layer(interpreter));
    uint64_t value = interpreter->digests[i].value;
    sums[2 * i] = answers ? (double)(uint32_t)value : 0;
    sums[2 * i + 1] = answers ? (double)(value >> 32) : 0;
  }
  return MOTET_OK;
}

static bool holds(mt_interpreter *interpreter, int32_t layer) {
  const mt_internvl *config = interpreter->options.config;
  int32_t layers = layer_count(interpreter);
  for (int32_t i = 0; i < mt_network_parameter_count(interpreter->options.network); i++) {
    const mt_parameter *parameter = mt_network_parameter(interpreter->options.network, i);
    if (parameter->layer == layer) return true;
    if (layer == layers && config->decoder.tied_embeddings && parameter->dims == 2 &&
        (parameter->layer == embedding_layer(interpreter) || parameter->layer == layers - 1))
      return true;
  }
  return false;
}

static int32_t answering_rank(const mt_interpreter *interpreter, int32_t layer) {
  const motet_program *program = interpreter->program;
  for (int32_t s = 0; s < program->stage_count; s++)
    if (layer >= program->stages[s].layer_begin && layer < program->stages[s].layer_end)
      return program->group_ranks[program->groups[program->stages[s].group].first];
  return -1;
}

motet_status mt_interpreter_digest_check(mt_interpreter *interpreter, const double *sums, motet_error *error) {
  int32_t layers = layer_count(interpreter);
  uint64_t whole = 0;
  for (int32_t i = 0; i <= layers; i++) {
    uint64_t value = (uint64_t)sums[2 * i] | (uint64_t)sums[2 * i + 1] << 32;
    int32_t layer = i < layers ? i : embedding_layer(interpreter);
    if (i < layers) whole = join(whole, value);
    if (interpreter->digests[i].value == value || !holds(interpreter, i)) continue;
    return mt_error_set(error, MOTET_ERROR_FAILED,
                        "rank %d's weights of layer %d%s (digest %016" PRIx64
                        ") are not those of rank %d (%016" PRIx64
                        "): ranks that hold the same layer have come apart, by a fault of memory or of a message; "
                        "start again from the last checkpoint",
                        (int)interpreter->rank, (int)layer, i < layers ? "" : " as the head's copy",
                        interpreter->digests[i].value, (int)answering_rank(interpreter, layer), value);
  }
  interpreter->weights_digest = whole;
  return MOTET_OK;
}
