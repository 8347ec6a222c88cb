/* The projector: without the class token, pixel shuffle, LayerNorm, linear, GELU, linear. */
#include "nn/layer.h"

#include <string.h>

/* Both published forms build this LayerNorm with the framework's default. */
static const float projector_epsilon = 1e-5F;

static mt_shape projector_output(const mt_internvl *config, const mt_batch *batch) {
  return (mt_shape){mt_feature_rows(config, batch), config->decoder.hidden};
}

static int64_t shuffled_width(const mt_internvl *config) {
  const int64_t side = mt_internvl_shuffle(config);
  return side * side * config->vision.hidden;
}

/* F features, S shuffled width, H decoder hidden. */
typedef struct projector_saved {
  void *shuffled; /* (F, S), before the norm */
  void *hidden;   /* (F, H), before GELU */
} projector_saved;

static size_t cut_saved(const mt_internvl *config, mt_element element, const mt_batch *batch, float *data,
                        projector_saved *saved) {
  const int64_t rows = mt_feature_rows(config, batch);
  mt_cutter cutter = {.data = data, .element = element};
  saved->shuffled = mt_cut(&cutter, rows, shuffled_width(config));
  saved->hidden = mt_cut(&cutter, rows, config->decoder.hidden);
  return cutter.used;
}

static size_t saved_floats(const mt_internvl *config, mt_element element, const mt_batch *batch) {
  projector_saved saved;
  return cut_saved(config, element, batch, NULL, &saved);
}

typedef struct projector_scratch {
  void *normed;    /* (F, S) */
  void *activated; /* (F, H) */
  void *hidden;    /* (F, H) gradient */
} projector_scratch;

static size_t cut_scratch(const mt_internvl *config, mt_element element, const mt_batch *batch, float *data,
                          projector_scratch *scratch) {
  const int64_t rows = mt_feature_rows(config, batch);
  mt_cutter cutter = {.data = data, .element = element};
  scratch->normed = mt_cut(&cutter, rows, shuffled_width(config));
  scratch->activated = mt_cut(&cutter, rows, config->decoder.hidden);
  scratch->hidden = mt_cut(&cutter, rows, config->decoder.hidden);
  return cutter.used;
}

static size_t scratch_floats(const mt_internvl *config, mt_element element, const mt_batch *batch) {
  projector_scratch scratch;
  return cut_scratch(config, element, batch, NULL, &scratch);
}

static projector_scratch take_scratch(const mt_layer_call *call) {
  projector_scratch scratch;
  size_t floats = scratch_floats(call->config, mt_layer_element(call), call->batch);
  cut_scratch(call->config, mt_layer_element(call), call->batch, mt_workspace_take(call->workspace, floats),
              &scratch);
  return scratch;
}

/*
 * Squares of side x side patches become one row: the square's rows, within them its columns, within them the
 * channels. tower (tiles, 1 + grid * grid, H) <-> shuffled (tiles * (grid / side)^2, side * side * H).
 */
static void shuffle(const mt_layer_call *call, const void *tower, void *shuffled) {
  const mt_internvl *config = call->config;
  const int64_t tiles = call->batch->tiles, hidden = config->vision.hidden;
  const int64_t grid = config->vision.image_size / config->vision.patch_size;
  const int64_t side = mt_internvl_shuffle(config), squares = grid / side;
  const int64_t row_bytes = (int64_t)mt_layer_bytes(call, hidden);
  const char *from = tower;
  char *to = shuffled;
  for (int64_t tile = 0; tile < tiles; tile++, from += (grid * grid + 1) * row_bytes)
    for (int64_t square = 0; square < squares * squares; square++)
      for (int64_t patch = 0; patch < side * side; patch++, to += row_bytes) {
        const int64_t y = square / squares * side + patch / side, x = square % squares * side + patch % side;
        memcpy(to, from + (1 + y * grid + x) * row_bytes, (size_t)row_bytes);
      }
}

static void unshuffle(const mt_layer_call *call, const void *shuffled, void *tower) {
  const mt_internvl *config = call->config;
  const int64_t tiles = call->batch->tiles, hidden = config->vision.hidden;
  const int64_t grid = config->vision.image_size / config->vision.patch_size;
  const int64_t side = mt_internvl_shuffle(config), squares = grid / side;
  const int64_t row_bytes = (int64_t)mt_layer_bytes(call, hidden);
  const char *from = shuffled;
  char *to = tower;
  for (int64_t tile = 0; tile < tiles; tile++, to += (grid * grid + 1) * row_bytes) {
    memset(to, 0, (size_t)row_bytes); /* the class token goes nowhere */
    for (int64_t square = 0; square < squares * squares; square++)
      for (int64_t patch = 0; patch < side * side; patch++, from += row_bytes) {
        const int64_t y = square / squares * side + patch / side, x = square % squares * side + patch % side;
        memcpy(to + (1 + y * grid + x) * row_bytes, from, (size_t)row_bytes);
      }
  }
}

static mt_norm projector_norm(const mt_layer_call *call, const projector_saved *saved) {
  return (mt_norm){.epsilon = projector_epsilon,
                   .rows = mt_feature_rows(call->config, call->batch),
                   .columns = shuffled_width(call->config),
                   .input = saved->shuffled,
                   .stride = shuffled_width(call->config),
                   .weight = call->weight[MT_PROJECTOR_NORM],
                   .bias = call->weight[MT_PROJECTOR_NORM_BIAS]};
}

static motet_status projector_forward(const mt_layer_call *call) {
  const int64_t rows = mt_feature_rows(call->config, call->batch), hidden = call->config->decoder.hidden;
  const int64_t width = shuffled_width(call->config);
  const projector_scratch s = take_scratch(call);
  projector_saved saved;
  cut_saved(call->config, mt_layer_element(call), call->batch, call->saved, &saved);
  shuffle(call, call->input, saved.shuffled);
  const mt_norm norm = projector_norm(call, &saved);
  mt_parallel_norm_forward(call->device, &norm, s.normed);
  MT_TRY(mt_linear_forward(call, rows, width, hidden, s.normed, call->weight[MT_PROJECTOR_IN],
                           call->weight[MT_PROJECTOR_IN_BIAS], saved.hidden));
  mt_parallel_gelu_forward(call->device, rows * hidden, saved.hidden, s.activated);
  return mt_linear_forward(call, rows, hidden, hidden, s.activated, call->weight[MT_PROJECTOR_OUT],
                           call->weight[MT_PROJECTOR_OUT_BIAS], call->output);
}

static motet_status projector_backward(const mt_layer_call *call) {
  const int64_t rows = mt_feature_rows(call->config, call->batch), hidden = call->config->decoder.hidden;
  const int64_t width = shuffled_width(call->config);
  const projector_scratch s = take_scratch(call);
  projector_saved saved;
  cut_saved(call->config, mt_layer_element(call), call->batch, call->saved, &saved);
  const mt_norm norm = projector_norm(call, &saved);
  MT_TRY(mt_linear_input_gradient(call, rows, hidden, hidden, call->output_gradient, call->weight[MT_PROJECTOR_OUT],
                                  s.hidden));
  mt_parallel_gelu_backward(call->device, rows * hidden, saved.hidden, s.hidden, call->trains ? s.activated : NULL);
  if (call->trains) {
    MT_TRY(mt_linear_weight_gradient(call, rows, hidden, hidden, call->output_gradient, s.activated, false,
                                     call->gradient[MT_PROJECTOR_OUT], call->gradient[MT_PROJECTOR_OUT_BIAS]));
    mt_parallel_norm_forward(call->device, &norm, s.normed);
    MT_TRY(mt_linear_weight_gradient(call, rows, width, hidden, s.hidden, s.normed, false,
                                     call->gradient[MT_PROJECTOR_IN], call->gradient[MT_PROJECTOR_IN_BIAS]));
  }
  MT_TRY(mt_linear_input_gradient(call, rows, width, hidden, s.hidden, call->weight[MT_PROJECTOR_IN], s.normed));
  MT_TRY(mt_parallel_norm_backward(call->device, &norm, s.normed, NULL,
                                   call->input_gradient != NULL ? s.normed : NULL,
                                   call->trains ? call->gradient[MT_PROJECTOR_NORM] : NULL,
                                   call->trains ? call->gradient[MT_PROJECTOR_NORM_BIAS] : NULL, call->error));
  if (call->input_gradient != NULL) unshuffle(call, s.normed, call->input_gradient);
  return MOTET_OK;
}

const mt_layer_kind mt_layer_projector = {.output = projector_output,
                                          .saved = saved_floats,
                                          .scratch = scratch_floats,
                                          .forward = projector_forward,
                                          .backward = projector_backward};
