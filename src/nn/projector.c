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
  float *shuffled; /* (F, S), before the norm */
  float *hidden;   /* (F, H), before GELU */
} projector_saved;

static size_t cut_saved(const mt_internvl *config, const mt_batch *batch, float *data, projector_saved *saved) {
  const int64_t rows = mt_feature_rows(config, batch);
  mt_cutter cutter = {.data = data};
  saved->shuffled = mt_cut(&cutter, rows, shuffled_width(config));
  saved->hidden = mt_cut(&cutter, rows, config->decoder.hidden);
  return cutter.used;
}

static size_t saved_floats(const mt_internvl *config, const mt_batch *batch) {
  projector_saved saved;
  return cut_saved(config, batch, NULL, &saved);
}

typedef struct projector_scratch {
  float *normed;    /* (F, S) */
  float *activated; /* (F, H) */
  float *hidden;    /* (F, H) gradient */
} projector_scratch;

static size_t cut_scratch(const mt_internvl *config, const mt_batch *batch, float *data,
                          projector_scratch *scratch) {
  const int64_t rows = mt_feature_rows(config, batch);
  mt_cutter cutter = {.data = data};
  scratch->normed = mt_cut(&cutter, rows, shuffled_width(config));
  scratch->activated = mt_cut(&cutter, rows, config->decoder.hidden);
  scratch->hidden = mt_cut(&cutter, rows, config->decoder.hidden);
  return cutter.used;
}

static size_t scratch_floats(const mt_internvl *config, const mt_tensor_backend *backend, const mt_batch *batch) {
  (void)backend;
  projector_scratch scratch;
  return cut_scratch(config, batch, NULL, &scratch);
}

static projector_scratch take_scratch(const mt_layer_call *call) {
  projector_scratch scratch;
  size_t floats = scratch_floats(call->config, call->backend, call->batch);
  cut_scratch(call->config, call->batch, mt_workspace_take(call->workspace, floats), &scratch);
  return scratch;
}

/*
 * Squares of side x side patches become one row: the square's rows, within them its columns, within them the
 * channels. tower (tiles, 1 + grid * grid, H) <-> shuffled (tiles * (grid / side)^2, side * side * H).
 */
static void shuffle(const mt_internvl *config, int64_t tiles, const float *tower, float *shuffled) {
  const int64_t hidden = config->vision.hidden, grid = config->vision.image_size / config->vision.patch_size;
  const int64_t side = mt_internvl_shuffle(config), squares = grid / side;
  for (int64_t tile = 0; tile < tiles; tile++, tower += (grid * grid + 1) * hidden)
    for (int64_t square = 0; square < squares * squares; square++)
      for (int64_t patch = 0; patch < side * side; patch++, shuffled += hidden) {
        const int64_t y = square / squares * side + patch / side, x = square % squares * side + patch % side;
        memcpy(shuffled, tower + (1 + y * grid + x) * hidden, (size_t)hidden * sizeof *shuffled);
      }
}

static void unshuffle(const mt_internvl *config, int64_t tiles, const float *shuffled, float *tower) {
  const int64_t hidden = config->vision.hidden, grid = config->vision.image_size / config->vision.patch_size;
  const int64_t side = mt_internvl_shuffle(config), squares = grid / side;
  for (int64_t tile = 0; tile < tiles; tile++, tower += (grid * grid + 1) * hidden) {
    memset(tower, 0, (size_t)hidden * sizeof *tower); /* the class token goes nowhere */
    for (int64_t square = 0; square < squares * squares; square++)
      for (int64_t patch = 0; patch < side * side; patch++, shuffled += hidden) {
        const int64_t y = square / squares * side + patch / side, x = square % squares * side + patch % side;
        memcpy(tower + (1 + y * grid + x) * hidden, shuffled, (size_t)hidden * sizeof *shuffled);
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
  cut_saved(call->config, call->batch, call->saved, &saved);
  shuffle(call->config, call->batch->tiles, call->input, saved.shuffled);
  const mt_norm norm = projector_norm(call, &saved);
  call->backend->norm_forward(&norm, s.normed);
  MT_TRY(mt_linear_forward(call, rows, width, hidden, s.normed, call->weight[MT_PROJECTOR_IN],
                           call->weight[MT_PROJECTOR_IN_BIAS], saved.hidden));
  call->backend->gelu_forward(rows * hidden, saved.hidden, s.activated);
  return mt_linear_forward(call, rows, hidden, hidden, s.activated, call->weight[MT_PROJECTOR_OUT],
                           call->weight[MT_PROJECTOR_OUT_BIAS], call->output);
}

static motet_status projector_backward(const mt_layer_call *call) {
  const int64_t rows = mt_feature_rows(call->config, call->batch), hidden = call->config->decoder.hidden;
  const int64_t width = shuffled_width(call->config);
  const projector_scratch s = take_scratch(call);
  projector_saved saved;
  cut_saved(call->config, call->batch, call->saved, &saved);
  const mt_norm norm = projector_norm(call, &saved);
  if (call->trains) {
    call->backend->gelu_forward(rows * hidden, saved.hidden, s.activated);
    MT_TRY(mt_linear_weight_gradient(call, rows, hidden, hidden, call->output_gradient, s.activated,
                                     call->gradient[MT_PROJECTOR_OUT], call->gradient[MT_PROJECTOR_OUT_BIAS]));
  }
  MT_TRY(mt_linear_input_gradient(call, rows, hidden, hidden, call->output_gradient, call->weight[MT_PROJECTOR_OUT],
                                  s.hidden));
  call->backend->gelu_backward(rows * hidden, saved.hidden, s.hidden);
  if (call->trains) {
    call->backend->norm_forward(&norm, s.normed);
    MT_TRY(mt_linear_weight_gradient(call, rows, width, hidden, s.hidden, s.normed, call->gradient[MT_PROJECTOR_IN],
                                     call->gradient[MT_PROJECTOR_IN_BIAS]));
  }
  MT_TRY(mt_linear_input_gradient(call, rows, width, hidden, s.hidden, call->weight[MT_PROJECTOR_IN], s.normed));
  call->backend->norm_backward(&norm, s.normed, NULL, call->input_gradient != NULL ? s.normed : NULL,
                               call->trains ? call->gradient[MT_PROJECTOR_NORM] : NULL,
                               call->trains ? call->gradient[MT_PROJECTOR_NORM_BIAS] : NULL);
  if (call->input_gradient != NULL) unshuffle(call->config, call->batch->tiles, s.normed, call->input_gradient);
  return MOTET_OK;
}

const mt_layer_kind mt_layer_projector = {.output = projector_output,
                                          .saved = saved_floats,
                                          .scratch = scratch_floats,
                                          .forward = projector_forward,
                                          .backward = projector_backward};
