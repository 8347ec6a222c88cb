#include "base/random.h"
#include "nn/exact.h"

#include <stdlib.h>
#include <string.h>

/* Deviation of fresh matrices and start of layer scales: the published models' own. */
static const double initial_deviation = 0.02;
static const float initial_scale = 0.1F;

/* Where a weight goes: which layer's slot, at which float of the values and of the gradients. */
typedef struct placement {
  size_t value, gradient;
} placement;

/* Weights that a layer needs memory for. A head tied to an embedding that is not held here gets a copy. */
static int32_t own_weights(const mt_network *network, int32_t layer, const bool *held,
                           mt_internvl_weight weights[MT_INTERNVL_WEIGHTS_MAX]) {
  const mt_internvl *config = &network->config;
  int32_t count = mt_internvl_weights(config, layer, weights);
  const int32_t embed = config->vision.layers + 2;
  if (network->layers[layer].kind == MT_INTERNVL_HEAD && config->decoder.tied_embeddings && !held[embed]) {
    mt_internvl_weights(config, embed, weights + count);
    weights[count++].slot = MT_HEAD_WEIGHT;
  }
  return count;
}

/* Floats up to the start of each weight: those of one slot follow each other without a gap. */
static void advance(placement *next, const mt_internvl_weight *weight, bool new_slot, bool trainable) {
  if (new_slot) {
    next->value = mt_workspace_room(next->value);
    next->gradient = mt_workspace_room(next->gradient);
  }
  next->value += (size_t)weight->count;
  if (trainable) next->gradient += (size_t)weight->count;
}

static motet_status measure(mt_network *network, const bool *held, motet_error *error) {
  placement next = {0};
  for (int32_t layer = 0; layer < network->layer_count; layer++) {
    mt_internvl_weight weights[MT_INTERNVL_WEIGHTS_MAX];
    if (!held[layer]) continue;
    const int32_t count = own_weights(network, layer, held, weights);
    for (int32_t w = 0; w < count; w++)
      advance(&next, &weights[w], w == 0 || weights[w].slot != weights[w - 1].slot,
              network->layers[layer].trainable);
    network->parameter_count += count;
  }
  network->values.bytes = mt_workspace_room(next.value) * sizeof(float);
  network->gradients.bytes = mt_workspace_room(next.gradient) * sizeof(float);
  network->moments.bytes = 2 * network->gradients.bytes;
  mt_network_memory *const memories[] = {&network->values, &network->gradients, &network->moments};
  static const char *const purposes[] = {"weights", "gradients", "optimizer state"};
  for (int i = 0; i < 3; i++) {
    void *memory;
    MT_TRY(mt_memory_map(memories[i]->bytes, false, purposes[i], error, &memory));
    memories[i]->data = memory;
  }
  return MOTET_OK;
}

static motet_status describe(mt_network *network, int32_t layer, const mt_internvl_weight *weight, float *value,
                             float *gradient, motet_error *error, mt_parameter *parameter) {
  *parameter = (mt_parameter){.name = mt_arena_text(network->arena, weight->name),
                              .layer = layer,
                              .dims = weight->dims,
                              .count = weight->count,
                              .grouping = weight->grouping,
                              .trainable = gradient != NULL,
                              .decay = weight->decay,
                              .value = value,
                              .gradient = gradient};
  memcpy(parameter->shape, weight->shape, sizeof parameter->shape);
  if (weight->alias[0] != '\0') parameter->alias = mt_arena_text(network->arena, weight->alias);
  if (parameter->name == NULL || (weight->alias[0] != '\0' && parameter->alias == NULL))
    return mt_error_memory(error, sizeof weight->name, "a weight's name");
  return MOTET_OK;
}

static motet_status place(mt_network *network, const bool *held, motet_error *error) {
  placement next = {0};
  int32_t index = 0;
  const size_t moment_floats = network->gradients.bytes / sizeof(float);
  for (int32_t layer = 0; layer < network->layer_count; layer++) {
    mt_held_layer *own = &network->layers[layer];
    mt_internvl_weight weights[MT_INTERNVL_WEIGHTS_MAX];
    if (!held[layer]) continue;
    const int32_t count = own_weights(network, layer, held, weights);
    for (int32_t w = 0; w < count; w++, index++) {
      const int32_t slot = weights[w].slot;
      const bool new_slot = w == 0 || slot != weights[w - 1].slot;
      advance(&next, &weights[w], new_slot, own->trainable);
      float *value = network->values.data + next.value - weights[w].count;
      const size_t at = next.gradient - (own->trainable ? (size_t)weights[w].count : 0);
      float *gradient = own->trainable ? network->gradients.data + at : NULL;
      if (new_slot) {
        own->weight[slot] = value;
        own->gradient[slot] = gradient;
      }
      if (own->trainable) {
        network->first[index] = network->moments.data + at;
        network->second[index] = network->moments.data + moment_floats + at;
      }
      MT_TRY(describe(network, layer, &weights[w], value, gradient, error, &network->parameters[index]));
    }
  }
  mt_held_layer *embed = &network->layers[network->config.vision.layers + 2];
  mt_held_layer *head = &network->layers[network->layer_count - 1];
  if (head->held && head->weight[MT_HEAD_WEIGHT] == NULL) {
    head->weight[MT_HEAD_WEIGHT] = embed->weight[MT_TOKEN_EMBED_WEIGHT];
    head->gradient[MT_HEAD_WEIGHT] = embed->gradient[MT_TOKEN_EMBED_WEIGHT];
  }
  return MOTET_OK;
}

motet_status mt_network_create(const mt_internvl *config, const bool *held, const bool *trainable,
                               motet_error *error, mt_network **result) {
  const int32_t layers = mt_internvl_layer_count(config), embed = config->vision.layers + 2;
  if (config->decoder.tied_embeddings && trainable[embed] != trainable[layers - 1])
    return mt_error_set(error, MOTET_ERROR_UNSUPPORTED,
                        "token embedding and head share their matrix: freeze both or train both");
  mt_network *network = calloc(1, sizeof *network);
  if (network == NULL) return mt_error_memory(error, sizeof *network, "a network");
  motet_status status = MOTET_OK;
  network->config = *config;
  network->layer_count = layers;
  network->arena = mt_arena_create();
  if (network->arena != NULL) network->layers = MT_ARENA_NEW(network->arena, mt_held_layer, layers);
  if (network->layers == NULL) {
    status = mt_error_memory(error, (size_t)layers * sizeof *network->layers, "a network's layers");
    goto fail;
  }
  for (int32_t layer = 0; layer < layers; layer++) {
    int32_t block;
    network->layers[layer] = (mt_held_layer){.kind = mt_internvl_layer_kind(config, layer, &block),
                                             .held = held[layer],
                                             .trainable = held[layer] && trainable[layer]};
  }
  status = mt_network_use(network, MT_ELEMENT_FLOAT32, 1, error);
  if (status == MOTET_OK) status = measure(network, held, error);
  if (status != MOTET_OK) goto fail;
  network->parameters = MT_ARENA_NEW(network->arena, mt_parameter, network->parameter_count);
  network->first = MT_ARENA_NEW(network->arena, float *, network->parameter_count);
  network->second = MT_ARENA_NEW(network->arena, float *, network->parameter_count);
  if (network->parameters == NULL || network->first == NULL || network->second == NULL) {
    status = mt_error_memory(error, (size_t)network->parameter_count * sizeof *network->parameters, "parameters");
    goto fail;
  }
  status = place(network, held, error);
  if (status != MOTET_OK) goto fail;
  *result = network;
  return MOTET_OK;
fail:
  mt_network_destroy(network);
  return status;
}

void mt_network_destroy(mt_network *network) {
  if (network == NULL) return;
  mt_exact_free(network->exact);
  mt_memory_unmap(network->values.data, network->values.bytes);
  mt_memory_unmap(network->gradients.data, network->gradients.bytes);
  mt_memory_unmap(network->moments.data, network->moments.bytes);
  mt_workspace_free(&network->workspace);
  mt_workspace_free(&network->logits.memory);
  mt_team_destroy(network->device.team);
  mt_rotary_free(&network->rotary);
  mt_arena_destroy(network->arena);
  free(network);
}

motet_status mt_network_use(mt_network *network, mt_element element, int32_t threads, motet_error *error) {
  mt_team *team;
  motet_status status = mt_team_create(threads, error, &team);
  if (status != MOTET_OK) return status;
  mt_team_destroy(network->device.team);
  network->device = (mt_device){.backend = mt_tensor_backend_cpu(element), .team = team};
  return MOTET_OK;
}

motet_status mt_network_multiply(mt_network *network, const mt_matmul *product, motet_error *error) {
  return mt_matmul_run(network->device.backend, network->device.team, product, error);
}

mt_element mt_network_element(const mt_network *network) { return network->device.backend->element; }

int32_t mt_network_parameter_count(const mt_network *network) { return network->parameter_count; }

mt_parameter *mt_network_parameter(mt_network *network, int32_t index) { return &network->parameters[index]; }

void mt_network_moments(mt_network *network, int32_t index, float **first, float **second) {
  *first = network->first[index];
  *second = network->second[index];
}

static bool ends_with(const char *text, const char *end) {
  const size_t length = strlen(text), part = strlen(end);
  return length >= part && strcmp(text + length - part, end) == 0;
}

/* Constant at the start, or NAN for random numbers: norms 1, biases 0, layer scales small. */
static bool starts_constant(const mt_parameter *parameter, float *value) {
  static const struct {
    const char *end;
    float value;
  } rules[] = {{".bias", 0.0F},
               {".ls1", initial_scale},
               {".ls2", initial_scale},
               {".lambda_1", initial_scale},
               {".lambda_2", initial_scale}};
  for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
    if (ends_with(parameter->name, rules[i].end)) {
      *value = rules[i].value;
      return true;
    }
  *value = 1.0F;
  return parameter->dims == 1; /* what is left with one dimension is a norm's weight */
}

void mt_network_initialize(mt_network *network, uint64_t seed) {
  for (int32_t i = 0; i < network->parameter_count; i++) {
    const mt_parameter *parameter = &network->parameters[i];
    mt_random random = mt_random_stream(seed, parameter->name);
    float constant;
    const bool fixed = starts_constant(parameter, &constant);
    for (int64_t e = 0; e < parameter->count; e++)
      parameter->value[e] = fixed ? constant : (float)(initial_deviation * mt_random_normal(&random));
  }
}

void mt_network_zero_gradients(mt_network *network) {
  mt_parallel_zero(&network->device, (int64_t)(network->gradients.bytes / sizeof(float)), network->gradients.data);
  if (network->exact != NULL) mt_exact_zero(network->exact);
}
