#include "train/planner_tables.h"

#include "nn/network.h"

bool mt_planner_is_image_layer(mt_internvl_kind kind) {
  return kind == MT_INTERNVL_VISION_EMBED || kind == MT_INTERNVL_VISION_BLOCK || kind == MT_INTERNVL_PROJECTOR;
}

/** What messages take beyond the attention that hides them; @p times: of a forward's. */
static double exposed_seconds(const mt_planner_tables *this, const mt_planner_column *column, mt_layer_pass pass,
                              double times) {
  double attention =
      this->costs->seconds[MT_INTERNVL_DECODER_BLOCK][pass][MT_COST_AREA] * column->features[MT_COST_AREA];
  double messages = times * column->exchange_seconds;
  return messages > attention ? messages - attention : 0;
}

static double forward_seconds(const mt_planner_tables *this, const mt_stage *stage,
                              const mt_planner_column *column) {
  const double *features = column->features;
  double seconds = 0;
  int32_t begin = stage->layer_begin > column->done_layers ? stage->layer_begin : column->done_layers;
  for (int32_t layer = begin; layer < stage->layer_end; layer++) {
    mt_internvl_kind kind = (mt_internvl_kind)this->model->layers[layer].kind;
    if (mt_planner_is_image_layer(kind) && features[MT_COST_TILES] == 0) continue;
    seconds += mt_layer_seconds(this->costs, kind, MT_PASS_FORWARD, features);
    if (kind == MT_INTERNVL_DECODER_BLOCK) seconds += exposed_seconds(this, column, MT_PASS_FORWARD, 1);
  }
  return seconds;
}

/** Seconds of a stage's backward; with @p inputs, of its first half where it is split: all but the matrices' weight
 * gradients. The head puts nothing off. */
static double backward_seconds(const mt_planner_tables *this, const mt_stage *stage,
                               const mt_planner_column *column, bool inputs) {
  const double *features = column->features;
  double seconds = 0;
  if (stage->gate == MT_GATE_NONE) return 0;
  bool sends = stage->gate == MT_GATE_INPUT || stage->gate == MT_GATE_FULL;
  for (int32_t layer = stage->first_trainable; layer < stage->layer_end; layer++) {
    mt_internvl_kind kind = (mt_internvl_kind)this->model->layers[layer].kind;
    if (mt_planner_is_image_layer(kind) && features[MT_COST_TILES] == 0) continue;
    bool passes_on = sends || layer > stage->first_trainable;
    mt_layer_pass pass = !this->trainable[layer] ? MT_PASS_BACKWARD_X
                         : passes_on             ? MT_PASS_BACKWARD
                                                 : MT_PASS_BACKWARD_W;
    double whole = mt_layer_seconds(this->costs, kind, pass, features);
    double half = mt_layer_seconds(this->costs, kind, MT_PASS_BACKWARD_X, features);
    seconds += inputs && kind != MT_INTERNVL_HEAD && half < whole ? half : whole;
    /* Backward sends twice as much as forward: keys and values once more, and their gradients. */
    if (kind == MT_INTERNVL_DECODER_BLOCK) seconds += exposed_seconds(this, column, pass, 2);
  }
  return seconds;
}

static int64_t stage_parameters(const mt_planner_tables *this, const mt_stage *stage, bool trainable_only) {
  int64_t count = 0;
  for (int32_t layer = stage->layer_begin; layer < stage->layer_end; layer++)
    if (this->trainable[layer] || !trainable_only) count += this->model->layers[layer].parameters;
  return count;
}

motet_status mt_planner_tables_costs(const mt_planner_tables *this, motet_error *error, mt_cost_table *costs) {
  int32_t stages = this->derivation->stage_count, columns = this->columns;
  const mt_layer_costs *layers = this->costs;
  double *forward = MT_ARENA_NEW(this->arena, double, (int64_t)stages *columns);
  double *backward = MT_ARENA_NEW(this->arena, double, (int64_t)stages *columns);
  double *inputs = MT_ARENA_NEW(this->arena, double, (int64_t)stages *columns);
  double *weights = MT_ARENA_NEW(this->arena, double, (int64_t)stages *columns);
  double *optimizer = MT_ARENA_NEW(this->arena, double, stages);
  if (forward == NULL || backward == NULL || inputs == NULL || weights == NULL || optimizer == NULL)
    return mt_error_memory(error, (unsigned long long)stages * (unsigned)columns, "a step's costs");
  for (int32_t c = 0; c < columns; c++) {
    for (int32_t s = 0; s < stages; s++) {
      const mt_stage *stage = &this->derivation->stages[s];
      int64_t cell = (int64_t)s * columns + c;
      forward[cell] = forward_seconds(this, stage, &this->column[c]);
      backward[cell] = backward_seconds(this, stage, &this->column[c], false);
      inputs[cell] = backward_seconds(this, stage, &this->column[c], true);
      weights[cell] = backward[cell] - inputs[cell];
    }
  }
  for (int32_t s = 0; s < stages; s++)
    optimizer[s] = layers->optimizer_seconds_per_parameter *
                   (double)stage_parameters(this, &this->derivation->stages[s], true);
  *costs =
      (mt_cost_table){.optimizer_seconds = optimizer, .links = {.local = layers->link, .remote = layers->link}};
  costs->seconds[MT_COST_FORWARD] = costs->seconds[MT_COST_RECOMPUTE] =
      (mt_cost_values){.values = forward, .stage_stride = columns, .microbatch_stride = 1};
  costs->seconds[MT_COST_BACKWARD] =
      (mt_cost_values){.values = backward, .stage_stride = columns, .microbatch_stride = 1};
  costs->seconds[MT_COST_BACKWARD_X] =
      (mt_cost_values){.values = inputs, .stage_stride = columns, .microbatch_stride = 1};
  costs->seconds[MT_COST_BACKWARD_W] =
      (mt_cost_values){.values = weights, .stage_stride = columns, .microbatch_stride = 1};
  return MOTET_OK;
}

/** Weights, and for what trains a gradient and two moments, all float32; exact sums are two doubles a gradient. */
enum { WEIGHT_BYTES = 4, STATE_BYTES = 16, EXACT_BYTES = 16 };

/** Which stages' backward is split. What is put off is counted from the forward on: the forecast is an upper bound.
 */
static void find_split(const mt_derivation *derivation, bool *split) {
  for (int64_t i = 0; i < derivation->body_begin[derivation->ranks]; i++)
    if (derivation->body[i].kind == MOTET_BWD_W) split[derivation->body[i].stage] = true;
}

/** Image modules in front of the decoder in one stage keep what their own batch takes. */
static int64_t image_saved_bytes(const mt_planner_tables *this, const mt_stage *stage,
                                 const mt_planner_column *column) {
  int32_t embedding = this->config->vision.layers + 2;
  if (column->images == NULL || stage->layer_begin >= embedding || stage->first_trainable >= embedding) return 0;
  return mt_network_saved_bytes(this->config, this->element, this->trainable, stage->layer_begin,
                                stage->layer_end < embedding ? stage->layer_end : embedding, stage->first_trainable,
                                column->images);
}

motet_status mt_planner_tables_sizes(const mt_planner_tables *this, motet_error *error, mt_sizes *sizes) {
  const mt_internvl *config = this->config;
  bool exact = this->exact;
  mt_element element = this->element;
  int32_t stages = this->derivation->stage_count, columns = this->columns;
  int64_t cells = (int64_t)stages * columns;
  int64_t *held = MT_ARENA_NEW(this->arena, int64_t, stages), *weights = MT_ARENA_NEW(this->arena, int64_t, stages);
  int64_t *saved = MT_ARENA_NEW(this->arena, int64_t, cells), *outputs = MT_ARENA_NEW(this->arena, int64_t, cells);
  bool *split = MT_ARENA_NEW(this->arena, bool, stages);
  if (split != NULL) find_split(this->derivation, split);
  if (split == NULL || held == NULL || weights == NULL || saved == NULL || outputs == NULL)
    return mt_error_memory(error, (unsigned long long)cells, "a step's sizes");
  for (int32_t s = 0; s < stages; s++) {
    const mt_stage *stage = &this->derivation->stages[s];
    int64_t all = stage_parameters(this, stage, false), trained = stage_parameters(this, stage, true);
    held[s] = (all - trained) * WEIGHT_BYTES + trained * (exact ? STATE_BYTES + EXACT_BYTES : STATE_BYTES);
    weights[s] = trained * (exact ? EXACT_BYTES : WEIGHT_BYTES);
    for (int32_t c = 0; c < columns; c++) {
      int64_t rows = 0, width = 0, cell = (int64_t)s * columns + c;
      const mt_planner_column *column = &this->column[c];
      if (stage->layer_end > 0) mt_network_output_shape(config, stage->layer_end - 1, column->batch, &rows, &width);
      outputs[cell] = rows * width * (int64_t)mt_element_bytes(element);
      if (stage->gate != MT_GATE_NONE)
        saved[cell] = mt_network_saved_bytes(config, element, this->trainable, stage->layer_begin, stage->layer_end,
                                             stage->first_trainable, column->batch) +
                      image_saved_bytes(this, stage, column);
      if (split[s])
        saved[cell] += mt_network_deferred_bytes(config, element, this->trainable, stage->layer_begin,
                                                 stage->layer_end, stage->first_trainable, column->batch);
    }
  }
  *sizes = (mt_sizes){
      .static_bytes = held,
      .weight_bytes = weights,
      .saved_bytes = {.values = saved, .stage_stride = columns, .microbatch_stride = 1},
      .output_bytes = {.values = outputs, .stage_stride = columns, .microbatch_stride = 1},
      .tied_bytes =
          (int64_t)config->decoder.vocabulary * config->decoder.hidden * (exact ? EXACT_BYTES : WEIGHT_BYTES),
  };
  return MOTET_OK;
}

motet_status mt_planner_whole_columns(mt_arena *arena, const mt_planner_microbatch *microbatches, int32_t count,
                                      motet_error *error, mt_planner_column **result) {
  mt_planner_column *columns = MT_ARENA_NEW(arena, mt_planner_column, count);
  if (columns == NULL) return mt_error_memory(error, (unsigned)count, "a step's microbatches");
  for (int32_t m = 0; m < count; m++) {
    columns[m].batch = &microbatches[m].batch;
    mt_cost_features(&microbatches[m].batch, microbatches[m].targets, columns[m].features);
  }
  *result = columns;
  return MOTET_OK;
}
