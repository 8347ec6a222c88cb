/** @file
 * Forecasts: seconds and bytes of a layer, of a run of layers, and of a step's end, from a model, a cluster, how
 * modules lie on it and the shape of a microbatch. Compute by device.h, exchanges by collective.h, memory by the
 * model's own counts. What was held against measurements stands in docs/forecast.md.
 *
 * All numbers are those of one device. Extents are those of a whole microbatch of a replica.
 */
#ifndef MT_COST_FORECAST_H
#define MT_COST_FORECAST_H

#include "cost/collective.h"
#include "cost/device.h"
#include "cost/parallel.h"
#include "cost/table.h"

/** What a layer keeps of its forward, and so what its backward does again. */
typedef enum mt_saving {
  MT_SAVING_ALL,
  MT_SAVING_SELECTIVE, /* all but attention's scores, which are computed again (arXiv 2205.05198, section 5) */
  MT_SAVING_INPUT,     /* its input alone: full recomputation */
  MT_SAVING_HOST,      /* its input alone; the rest lies in host memory until the backward */
  MT_SAVINGS
} mt_saving;

typedef struct mt_forecast {
  const mt_architecture *architecture;
  const mt_cluster *cluster;
  const mt_parallel *parallel; /* [module_count]; cells, data and pipeline alike */
  const uint8_t *savings;      /* [layer_count] mt_saving; NULL: MT_SAVING_ALL */
  mt_collective_fit fit;
  int32_t microbatches; /* of a replica in a step: ZeRO 2 and 3 exchange in each */
} mt_forecast;

/** One layer, one microbatch. Exchanges are what compute does not hide. */
typedef struct mt_layer_forecast {
  double forward, input_gradient, weight_gradient, recompute;
  double forward_exchange, input_exchange, weight_exchange, recompute_exchange;
  double hidden_exchange; /* of a forward and a backward, behind compute */
  int64_t saved_bytes;    /* from forward to backward if the layer trains */
  int64_t passed_bytes;   /* the same if it only passes a gradient on */
  int64_t working_bytes;  /* more while it computes: restored activations, gathered weights */
  int64_t output_bytes;   /* handed on */
  int64_t host_bytes;     /* in host memory from forward to backward */
} mt_layer_forecast;

void mt_forecast_layer(const mt_forecast *forecast, int32_t layer, const double extents[MT_EXTENTS],
                       mt_layer_forecast *result);

/** Layers that one stage computes. */
typedef struct mt_span {
  int32_t layer_begin, layer_end;
  int32_t first_trainable; /* the layer at which its backward stops; -1: no backward */
  bool sends_gradient;     /* to what stands in front of it; then first_trainable is layer_begin */
  uint64_t absent;         /* bit j: module j has nothing to do here: no data, or its outputs are cached */
} mt_span;

/** A stage and a microbatch: what the cost table and the size tables hold. */
typedef struct mt_span_forecast {
  double seconds[MT_COST_KINDS];
  double exchange_seconds; /* of these, in forward and backward: exposed communication */
  int64_t saved_bytes, working_bytes, output_bytes;
  int64_t host_bytes; /* in host memory from forward to backward */
} mt_span_forecast;

void mt_forecast_span(const mt_forecast *forecast, const mt_span *span, const double extents[MT_EXTENTS],
                      mt_span_forecast *result);

/** A run of microbatches that are computed together. @p results[i]: on entry what the i-th takes alone, on return
 * what it has of @p together, the forecast of all their extents in one; working bytes are those of the whole. */
void mt_forecast_share(const mt_span_forecast *together, int32_t count, mt_span_forecast *results);

/** What a stage holds over the whole step, and what stands at the step's end. */
typedef struct mt_state_forecast {
  double parameters, trainable_parameters; /* on one device, before ZeRO divides them */
  int64_t static_bytes;                    /* weights, gradients, optimizer's states */
  int64_t state_bytes;                     /* of these, or in host memory: the optimizer's states */
  int64_t host_bytes;                      /* states that lie in host memory instead */
  int64_t gradient_bytes;                  /* reduced over replicas */
  double optimizer_seconds;
  double reduce_seconds;  /* gradients over replicas and weights back, once a step */
  double exposed_seconds; /* of these, not behind the last microbatch's backward */
} mt_state_forecast;

/** @param backward_seconds of the step's last microbatch on this stage: what reductions hide behind */
void mt_forecast_state(const mt_forecast *forecast, const mt_span *span, double backward_seconds,
                       mt_state_forecast *result);

#endif
