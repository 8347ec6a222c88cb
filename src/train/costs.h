/** @file
 * What layers cost on this machine: non-negative linear models per layer kind, measured by `motet profile` or, for
 * want of a profile, taken from the number of floating-point operations. See docs/formats/profile.md.
 */
#ifndef MT_TRAIN_COSTS_H
#define MT_TRAIN_COSTS_H

#include "cluster/links.h"
#include "model/internvl.h"
#include "nn/batch.h"

#include <stdbool.h>
#include <stdint.h>

/** What a layer's time depends on. */
typedef enum mt_cost_feature {
  MT_COST_FIXED,
  MT_COST_TOKENS, /* of the packed row */
  MT_COST_TILES,
  MT_COST_AREA,    /* sum over segments of tokens^2 */
  MT_COST_TARGETS, /* tokens that carry a loss */
  MT_COST_FEATURES
} mt_cost_feature;

typedef enum mt_layer_pass {
  MT_PASS_FORWARD,
  MT_PASS_BACKWARD,   /* input and weight gradients */
  MT_PASS_BACKWARD_X, /* input gradients: a frozen layer with something trainable before it */
  MT_PASS_BACKWARD_W, /* weight gradients: the first trainable layer */
  MT_PASSES
} mt_layer_pass;

enum { MT_LAYER_KINDS = MT_INTERNVL_HEAD + 1 };

/** What pictures and videos take from file to tiles, on one thread. */
typedef struct mt_decode_costs {
  double medium_seconds; /* each picture or video */
  double pixel_seconds;  /* each pixel in the file; of a video's, each in every frame */
  double tile_seconds;   /* each tile that comes out */
  bool measured;
} mt_decode_costs;

typedef struct mt_layer_costs {
  double seconds[MT_LAYER_KINDS][MT_PASSES][MT_COST_FEATURES];
  double optimizer_seconds_per_parameter;
  mt_link link;                      /* between ranks of one machine */
  double peak_operations_per_second; /* of a rank's matrix products while all ranks are busy; 0: not known */
  mt_decode_costs decode;
  int32_t spare_processors; /* of a rank, beside the threads that compute: they decode meanwhile */
  bool measured;            /* else: from operations */
} mt_layer_costs;

/** The features of a microbatch, by its shapes and the number of its target tokens. */
void mt_cost_features(const mt_batch *batch, int32_t targets, double features[MT_COST_FEATURES]);

double mt_layer_seconds(const mt_layer_costs *costs, mt_internvl_kind kind, mt_layer_pass pass,
                        const double features[MT_COST_FEATURES]);

/** Operations of a layer's forward over a microbatch, two a multiply-add, in products and attention alone. */
typedef struct mt_layer_operations {
  double linear; /* products with weights; a gradient of their inputs takes as many again, one of the weights too */
  double entry;  /* of these, on the layer's own input: whose gradient is what the layer passes on */
  double attention; /* products of activations: gradients take twice as many */
} mt_layer_operations;

mt_layer_operations mt_layer_operations_of(const mt_internvl *config, mt_internvl_kind kind,
                                           const double features[MT_COST_FEATURES]);

/** The rate at which mt_layer_costs_from_operations() turns operations into seconds. */
enum { MT_OPERATIONS_PER_MICROSECOND = 50000 };

/** Costs from operations at a round 50 GFLOP/s a rank: right in their ratios, not in their size. */
void mt_layer_costs_from_operations(const mt_internvl *config, mt_layer_costs *costs);

motet_status mt_layer_costs_read(const char *path, motet_error *error, mt_layer_costs *costs);
motet_status mt_layer_costs_write(const mt_layer_costs *costs, const char *path, motet_error *error);

#endif
