/** @file The network's inside, for the files that run and update it. */
#ifndef MT_NN_INTERNAL_H
#define MT_NN_INTERNAL_H

#include "nn/layer.h"

typedef struct mt_held_layer {
  mt_internvl_kind kind;
  bool held, trainable;
  float *weight[MT_INTERNVL_SLOTS_MAX];   /* NULL: not held, or the model has none */
  float *gradient[MT_INTERNVL_SLOTS_MAX]; /* NULL too where frozen */
} mt_held_layer;

/* One mapping each for values, gradients and both moments; gradients and moments have the order of values,
 * trainable layers only. */
typedef struct mt_network_memory {
  float *data;
  size_t bytes;
} mt_network_memory;

/* Two sums a gradient, see exact.c. */
typedef struct mt_exact mt_exact;

struct mt_network {
  mt_internvl config;
  mt_device device;
  mt_workspace workspace;
  mt_logits_cache logits;
  mt_rotary_cache rotary;
  mt_layer_cache *caches; /* [decoder blocks] while a sequence is extended; else NULL */
  mt_arena *arena;        /* names and tables */
  int32_t layer_count, parameter_count;
  mt_held_layer *layers;
  mt_parameter *parameters;
  float **first, **second; /* [parameter_count] moments, NULL where frozen */
  mt_network_memory values, gradients, moments;
  mt_exact *exact; /* NULL: gradients are added as they come */
};

#endif
