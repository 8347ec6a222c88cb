/** @file
 * Exchanges of one layer for one microbatch inside a cell and between the devices that share experts: tensor,
 * sequence and context parallelism, routing, gathered weights. Volumes follow docs/forecast.md.
 */
#ifndef MT_COST_EXCHANGE_H
#define MT_COST_EXCHANGE_H

#include "cost/forecast.h"

/** Seconds of one direction. Tensor ranks', ring and weights may hide behind compute; the caller knows what there
 * is. */
typedef struct mt_exchange {
  double forward;             /* Ulysses, routing: in the open */
  double input;               /* the same in a backward */
  double tensor;              /* tensor parallel, forward: in the open or, in chunks, behind its own products */
  double tensor_input;        /* the same in a backward */
  double regather;            /* sequence parallelism: the inputs of column-parallel maps, for weight gradients */
  double ring, ring_backward; /* behind attention */
  double gather, reduce;      /* ZeRO: weights of a layer before its use, its gradients after */
} mt_exchange;

void mt_exchange_layer(const mt_forecast *forecast, int32_t layer, const double extents[MT_EXTENTS],
                       mt_exchange *exchange);

/**
 * The fullest of a cell's devices has one part in so many of a microbatch's rows and areas. Context ranks divide
 * them evenly (the load of a causal mask is balanced); sample ranks share out whole pictures, tiles or frames, or
 * samples of what is generated: of unlike ones as many as alike ones of the same rows and area would be.
 */
double mt_exchange_parts(const mt_parallel *parallel, const double extents[MT_EXTENTS]);

/** Parameters of a layer on one device: dense ones over tensor ranks, routed experts over theirs. */
typedef struct mt_layer_parameters {
  double dense, expert;
  int32_t dense_copies, expert_copies; /* devices with the same ones */
  int32_t dense_stride, expert_stride; /* and how far apart they are */
} mt_layer_parameters;

mt_layer_parameters mt_exchange_parameters(const mt_forecast *forecast, int32_t layer);

/** Devices of @p copies that divide weights and gradients. */
int32_t mt_exchange_shards(const mt_parallel *parallel, int32_t copies);

#endif
