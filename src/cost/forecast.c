#include "cost/forecast.h"

#include "cost/exchange.h"

#include <math.h>
#include <string.h>

enum { WEIGHT_BYTES = 2, STATE_BYTES = 12, SCORE_BYTES = 5 };

/* Buckets of gradients: the last one waits for the last layer's and hides behind nothing. Of states, where they
 * pass through the device's memory. */
static const double BUCKETS = 8;

/* What the fullest device of a cell has of a microbatch. */
static void device_extents(const mt_parallel *parallel, const double *extents, double *own) {
  double parts = mt_exchange_parts(parallel, extents);
  for (int e = 0; e < MT_EXTENTS; e++) own[e] = extents[e] / parts;
}

/* Of two that run side by side what the exchange adds to the compute. The exchange takes a share of the compute
 * units for as long as it lasts: e of exchange hide behind c of compute at a cost of share * e, as long as e does
 * not outlast c / (1 - share), then at e - c. */
static double not_hidden(double exchange, double compute, double share, double *hidden) {
  double exposed = fmax(share * exchange, exchange - compute);
  *hidden += exchange - exposed;
  return exposed;
}

/* What tensor ranks exchange, cut into a chunk a rank: each but the first (or the last) goes while the product that
 * takes (or gives) another chunk is computed. */
static double tensor_exchange(const mt_parallel *parallel, double exchange, double products, double *hidden) {
  if (!parallel->tensor_overlap) return exchange;
  double first = exchange / parallel->tensor;
  return first + not_hidden(exchange - first, products, 0, hidden);
}

/* Where gradients are reduced in every microbatch they are copied into what is sent, in its precision. */
static double copied_gradients(const mt_forecast *forecast, int32_t layer) {
  const mt_parallel *parallel = &forecast->parallel[forecast->architecture->model->layers[layer].module];
  if (parallel->zero_level < 2 && !parallel->layered) return 0;
  mt_layer_parameters held = mt_exchange_parameters(forecast, layer);
  double bytes = WEIGHT_BYTES + (parallel->float32_gradients ? 4 : 2);
  return mt_device_moved_seconds(&forecast->cluster->device, bytes * (held.dense + held.expert));
}

/* Weights that are gathered ahead of a pass and gradients that are reduced behind it: in the forward behind the
 * forward, in the backward together behind all that a backward computes; behind what rings and tensor ranks hide
 * behind nothing else does. @p forward_hidden: theirs in the forward; the rest of what is hidden is the backward's.
 */
static void add_shards(bool trains, const mt_parallel *parallel, const mt_exchange *exchange, double share,
                       double forward_hidden, mt_layer_forecast *result) {
  double *hidden = &result->hidden_exchange, counted = 0;
  double backward = result->input_gradient + result->recompute + (trains ? result->weight_gradient : 0);
  double ahead = parallel->overlap ? fmax(0, result->forward - forward_hidden) : 0;
  double behind = parallel->overlap ? fmax(0, backward - (*hidden - forward_hidden)) : 0;
  result->forward_exchange += not_hidden(exchange->gather, ahead, share, hidden);
  double gather = not_hidden(exchange->gather, behind, share, &counted);
  result->input_exchange += gather;
  result->weight_exchange += not_hidden(exchange->gather + exchange->reduce, behind, share, hidden) - gather;
}

static void forecast_seconds(const mt_forecast *forecast, int32_t layer, const double *extents,
                             const mt_device_seconds *compute, mt_saving saving, mt_layer_forecast *result) {
  const mt_layer *described = &forecast->architecture->model->layers[layer];
  const mt_parallel *parallel = &forecast->parallel[described->module];
  mt_exchange exchange;
  mt_exchange_layer(forecast, layer, extents, &exchange);
  double *hidden = &result->hidden_exchange;
  double rings = (double)(parallel->ring - 1) / parallel->ring;
  const mt_device *device = &forecast->cluster->device;
  double share = device->compute_units > 0 ? device->collective_units / device->compute_units : 0;
  result->forward = compute->forward;
  result->input_gradient = compute->input_gradient;
  result->weight_gradient = compute->weight_gradient + copied_gradients(forecast, layer);
  result->forward_exchange = exchange.forward +
                             tensor_exchange(parallel, exchange.tensor, compute->products, hidden) +
                             not_hidden(exchange.ring, compute->attention * rings, 0, hidden);
  double forward_hidden = *hidden;
  /* The gradient of the attention takes two and a half times its forward. */
  result->input_exchange = exchange.input +
                           tensor_exchange(parallel, exchange.tensor_input, compute->products, hidden) +
                           not_hidden(exchange.ring_backward, 2.5 * compute->attention * rings, 0, hidden);
  result->weight_exchange = not_hidden(exchange.regather, compute->input_gradient, share, hidden);
  if (saving == MT_SAVING_SELECTIVE) {
    result->recompute = compute->attention;
  } else if (saving == MT_SAVING_INPUT) {
    result->recompute = compute->forward;
    result->recompute_exchange = exchange.forward +
                                 tensor_exchange(parallel, exchange.tensor, compute->products, hidden) +
                                 fmax(0, exchange.ring - compute->attention * rings);
  }
  add_shards(described->trainable, parallel, &exchange, share, forward_hidden, result);
}

static int64_t ceil_bytes(double bytes) { return bytes < 9.2e18 ? (int64_t)ceil(bytes) : INT64_MAX; }

/* Of attention whose scores are stored: scores and softmax in two bytes, a mask of one (arXiv 2205.05198, section
 * 4.1), on the full square. */
static double score_bytes(const mt_layer_design *design, const mt_parallel *parallel, const double *own) {
  if (!parallel->stored_scores) return 0;
  double bytes = 0;
  for (int e = MT_AREA_TEXT; e < MT_EXTENTS; e++)
    bytes += (e == MT_AREA_TEXT ? 2 : 1) * own[e] * design->rates[e].heads * SCORE_BYTES / parallel->tensor;
  return bytes;
}

static void forecast_bytes(const mt_forecast *forecast, int32_t layer, const double *own, mt_saving saving,
                           mt_layer_forecast *result) {
  const mt_layer *described = &forecast->architecture->model->layers[layer];
  const mt_parallel *parallel = &forecast->parallel[described->module];
  mt_layer_cost cost;
  mt_architecture_cost(forecast->architecture, layer, own, 1, &cost);
  int32_t tensor = parallel->tensor;
  bool rows = parallel->sequence_parallel;
  int64_t saved = mt_architecture_share(cost.saved_bytes, cost.saved_row_bytes, tensor, rows);
  int64_t passed = mt_architecture_share(cost.passed_bytes, cost.passed_row_bytes, tensor, rows);
  int64_t scores = ceil_bytes(score_bytes(&forecast->architecture->designs[described->kind], parallel, own));
  result->output_bytes = mt_architecture_share(cost.output_bytes, cost.output_bytes, tensor, rows);
  if (saving == MT_SAVING_ALL) {
    result->saved_bytes = saved + scores;
    result->passed_bytes = passed + scores;
  } else if (saving == MT_SAVING_SELECTIVE) {
    result->saved_bytes = saved;
    result->passed_bytes = passed;
    result->working_bytes = scores;
  } else {
    result->saved_bytes = result->passed_bytes = result->output_bytes;
    result->working_bytes = saved + scores;
    if (saving == MT_SAVING_HOST) result->host_bytes = saved + scores;
  }
  if (parallel->zero_level == 3 || parallel->layered) {
    /* Two layers' weights are there at a time: the one in use and the one that is gathered ahead. */
    mt_layer_parameters held = mt_exchange_parameters(forecast, layer);
    result->working_bytes += ceil_bytes(2 * WEIGHT_BYTES * (held.dense + held.expert));
  }
}

static mt_saving saving_of(const mt_forecast *forecast, int32_t layer) {
  return forecast->savings != NULL ? (mt_saving)forecast->savings[layer] : MT_SAVING_ALL;
}

void mt_forecast_layer(const mt_forecast *forecast, int32_t layer, const double extents[MT_EXTENTS],
                       mt_layer_forecast *result) {
  const mt_architecture *architecture = forecast->architecture;
  int32_t module = architecture->model->layers[layer].module;
  const mt_parallel *parallel = &forecast->parallel[module];
  mt_saving saving = saving_of(forecast, layer);
  double own[MT_EXTENTS];
  device_extents(parallel, extents, own);
  mt_device_share share = {.tensor_parallel = parallel->tensor,
                           .sequence_parallel = parallel->sequence_parallel,
                           .stored_scores = parallel->stored_scores,
                           .float8 = parallel->float8,
                           .eager = parallel->eager,
                           .expert_parallel = parallel->expert,
                           .worst_routing =
                               parallel->worst_routing
                                   ? mt_architecture_worst_routing(&architecture->facts[module], parallel->expert)
                                   : 1.0};
  mt_device_seconds compute;
  mt_device_layer_seconds(&forecast->cluster->device, architecture, layer, own, &share, &compute);
  *result = (mt_layer_forecast){0};
  forecast_seconds(forecast, layer, extents, &compute, saving, result);
  forecast_bytes(forecast, layer, own, saving, result);
  if (saving == MT_SAVING_HOST) {
    /* Out during the forward, in during the backward; what does not fit behind them is in the open. */
    double moved = mt_device_host_seconds(&forecast->cluster->device, (double)result->host_bytes);
    double backward = result->input_gradient + result->weight_gradient;
    result->forward_exchange += not_hidden(moved, result->forward, 0, &result->hidden_exchange);
    result->recompute_exchange += not_hidden(moved, backward, 0, &result->hidden_exchange);
  }
}

static bool alike(const mt_forecast *forecast, int32_t a, int32_t b) {
  const mt_layer *layers = forecast->architecture->model->layers;
  return layers[a].kind == layers[b].kind && layers[a].module == layers[b].module &&
         saving_of(forecast, a) == saving_of(forecast, b);
}

void mt_forecast_span(const mt_forecast *forecast, const mt_span *span, const double extents[MT_EXTENTS],
                      mt_span_forecast *result) {
  *result = (mt_span_forecast){0};
  mt_layer_forecast layer = {0};
  double *seconds = result->seconds;
  int32_t known = -1; /* the layer that `layer` was made for */
  for (int32_t l = span->layer_begin; l < span->layer_end; l++) {
    if (span->absent >> forecast->architecture->model->layers[l].module & 1) continue;
    if (known < 0 || !alike(forecast, known, l)) mt_forecast_layer(forecast, l, extents, &layer);
    known = l;
    seconds[MT_COST_FORWARD] += layer.forward + layer.forward_exchange;
    result->exchange_seconds += layer.forward_exchange;
    result->output_bytes = layer.output_bytes;
    if (span->first_trainable < 0 || l < span->first_trainable) continue;
    bool trains = forecast->architecture->model->layers[l].trainable;
    bool passes = span->sends_gradient || l > span->first_trainable;
    double again = layer.recompute + layer.recompute_exchange;
    double input = passes ? layer.input_gradient + layer.input_exchange : 0;
    double weight = trains ? layer.weight_gradient + layer.weight_exchange : 0;
    seconds[MT_COST_BACKWARD_X] += input + again;
    seconds[MT_COST_BACKWARD_W] += weight;
    seconds[MT_COST_BACKWARD] += input + weight + again;
    seconds[MT_COST_RECOMPUTE] += again;
    result->exchange_seconds +=
        layer.recompute_exchange + (passes ? layer.input_exchange : 0) + (trains ? layer.weight_exchange : 0);
    result->saved_bytes += trains ? layer.saved_bytes : layer.passed_bytes;
    result->host_bytes += layer.host_bytes;
    if (layer.working_bytes > result->working_bytes) result->working_bytes = layer.working_bytes;
  }
}

/* The part of the whole that @p own is of @p alone, the sum of all parts; where that is nothing, one of @p count.
 */
static double part_of(double whole, double own, double alone, int32_t count) {
  return alone > 0 ? whole * (own / alone) : whole / count;
}

void mt_forecast_share(const mt_span_forecast *together, int32_t count, mt_span_forecast *results) {
  mt_span_forecast alone = {0};
  double saved = 0, output = 0;
  for (int32_t i = 0; i < count; i++) {
    for (int k = 0; k < MT_COST_KINDS; k++) alone.seconds[k] += results[i].seconds[k];
    alone.exchange_seconds += results[i].exchange_seconds;
    saved += (double)results[i].saved_bytes;
    output += (double)results[i].output_bytes;
  }
  for (int32_t i = 0; i < count; i++) {
    mt_span_forecast *own = &results[i];
    for (int k = 0; k < MT_COST_KINDS; k++)
      own->seconds[k] = part_of(together->seconds[k], own->seconds[k], alone.seconds[k], count);
    own->exchange_seconds =
        part_of(together->exchange_seconds, own->exchange_seconds, alone.exchange_seconds, count);
    own->saved_bytes = ceil_bytes(part_of((double)together->saved_bytes, (double)own->saved_bytes, saved, count));
    own->output_bytes =
        ceil_bytes(part_of((double)together->output_bytes, (double)own->output_bytes, output, count));
    own->working_bytes = together->working_bytes;
  }
}

/* What a stage's parameters come to on one device. */
typedef struct held_state {
  double bytes;   /* in the device's memory */
  double states;  /* the optimizer's, in either */
  double host;    /* in the host's */
  double updated; /* parameters */
} held_state;

/* Weights, gradients and states of one kind of parameters on one device. */
static void add_state(const mt_parallel *parallel, double parameters, int32_t copies, bool trains,
                      mt_state_forecast *result, held_state *held) {
  double gradient_bytes = parallel->float32_gradients ? 4 : 2;
  double shards = mt_exchange_shards(parallel, copies);
  double weights = parallel->zero_level == 3 || parallel->layered ? shards : 1;
  double gradients = parallel->zero_level >= 2 || parallel->layered ? shards : 1;
  double states = parallel->layered ? copies : parallel->zero_level >= 1 ? shards : 1;
  result->parameters += parameters;
  held->bytes += WEIGHT_BYTES * parameters / weights;
  if (!trains) return;
  double state_bytes = STATE_BYTES * parameters / states;
  result->trainable_parameters += parameters;
  held->bytes += gradient_bytes * parameters / gradients + (parallel->host_optimizer ? 0 : state_bytes);
  held->states += state_bytes;
  held->host += parallel->host_optimizer ? state_bytes : 0;
  held->updated += parameters / states;
}

/* States in host memory come in, are updated and go out again bucket by bucket, both ways of the link at once: a
 * flow shop of three machines whose jobs are alike. */
static double optimizer_seconds(const mt_device *device, const held_state *held) {
  double update = mt_device_optimizer_seconds(device, held->updated);
  double way = mt_device_host_seconds(device, held->host);
  if (way <= 0) return update;
  return (way + update + way + (BUCKETS - 1) * fmax(way, update)) / BUCKETS;
}

/* Once a step. Below level 2 gradients are reduced and, with divided states, weights gathered: together an
 * all-reduce. Above, shards are reduced between shard groups alone; what they exchange inside is each layer's. */
static double reduce_seconds(const mt_forecast *forecast, const mt_parallel *parallel, double parameters,
                             int32_t copies, int32_t stride) {
  if (copies <= 1 || parameters == 0) return 0;
  double gradient_bytes = parallel->float32_gradients ? 4 : 2;
  int32_t shards = mt_exchange_shards(parallel, copies), groups = copies / shards;
  const mt_cluster *cluster = forecast->cluster;
  const mt_collective_fit *fit = &forecast->fit;
  bool divided = parallel->zero_level >= 2 || parallel->layered;
  double seconds = 0;
  if (!divided && parallel->zero_level == 1 && groups == 1)
    return mt_collective_seconds(cluster, fit, MT_COLLECTIVE_REDUCE_SCATTER, copies, stride,
                                 gradient_bytes * parameters) +
           mt_collective_seconds(cluster, fit, MT_COLLECTIVE_ALL_GATHER, copies, stride, WEIGHT_BYTES * parameters);
  if (!divided)
    return mt_collective_seconds(cluster, fit, MT_COLLECTIVE_ALL_REDUCE, copies, stride,
                                 gradient_bytes * parameters);
  if (groups > 1)
    seconds += mt_collective_seconds(cluster, fit, MT_COLLECTIVE_ALL_REDUCE, groups, stride * shards,
                                     gradient_bytes * parameters / shards);
  if (parallel->zero_level == 2 && !parallel->layered)
    seconds +=
        mt_collective_seconds(cluster, fit, MT_COLLECTIVE_ALL_GATHER, shards, stride, WEIGHT_BYTES * parameters);
  return seconds;
}

void mt_forecast_state(const mt_forecast *forecast, const mt_span *span, double backward_seconds,
                       mt_state_forecast *result) {
  *result = (mt_state_forecast){0};
  held_state state = {0};
  bool overlap = false;
  const mt_model *model = forecast->architecture->model;
  /* Per module, because modules may lie differently. */
  for (int32_t j = 0; j < model->module_count; j++) {
    int32_t begin = span->layer_begin, end = span->layer_end;
    if (model->modules[j].layer_begin > begin) begin = model->modules[j].layer_begin;
    if (model->modules[j].layer_end < end) end = model->modules[j].layer_end;
    if (span->absent >> j & 1) continue;
    const mt_parallel *parallel = &forecast->parallel[j];
    double dense = 0, expert = 0;
    mt_layer_parameters held = {.dense_copies = 1, .expert_copies = 1, .dense_stride = 1, .expert_stride = 1};
    for (int32_t l = begin; l < end; l++) {
      held = mt_exchange_parameters(forecast, l);
      bool trains = model->layers[l].trainable;
      add_state(parallel, held.dense, held.dense_copies, trains, result, &state);
      add_state(parallel, held.expert, held.expert_copies, trains, result, &state);
      dense += trains ? held.dense : 0;
      expert += trains ? held.expert : 0;
      overlap |= parallel->overlap;
    }
    result->reduce_seconds += reduce_seconds(forecast, parallel, dense, held.dense_copies, held.dense_stride) +
                              reduce_seconds(forecast, parallel, expert, held.expert_copies, held.expert_stride);
    result->gradient_bytes += ceil_bytes((parallel->float32_gradients ? 4 : 2) * (dense + expert));
  }
  result->static_bytes = ceil_bytes(state.bytes);
  result->state_bytes = ceil_bytes(state.states);
  result->host_bytes = ceil_bytes(state.host);
  result->optimizer_seconds = optimizer_seconds(&forecast->cluster->device, &state);
  result->exposed_seconds = overlap
                                ? fmax(result->reduce_seconds / BUCKETS, result->reduce_seconds - backward_seconds)
                                : result->reduce_seconds;
}
