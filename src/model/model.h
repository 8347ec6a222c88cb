/** @file
 * A model as planning sees it: modules in forward order, each a chain of layers with a trainable flag of its
 * own. Where it came from (abstract units, a HuggingFace config) is nobody's business above this floor.
 */
#ifndef MT_MODEL_MODEL_H
#define MT_MODEL_MODEL_H

#include "base/arena.h"
#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

enum { MT_MODEL_MODULES_MAX = 64 }; /* module sets are 64-bit masks */

typedef struct mt_layer {
  const char *name; /* "vision.3", as users read it in messages */
  int32_t module;
  int32_t kind; /* meaning belongs to the architecture; 0 for abstract layers */
  bool trainable;
  int64_t parameters; /* elements; 0 for abstract layers */
} mt_layer;

typedef struct mt_module {
  const char *name;
  int32_t layer_begin, layer_end;
  uint32_t inputs; /* MOTET_INPUT_* bits read by the first layer */
} mt_module;

typedef struct mt_module_edge {
  int32_t from, to;
} mt_module_edge;

typedef struct mt_model {
  int32_t module_count, layer_count, edge_count;
  mt_module *modules;
  mt_layer *layers;
  mt_module_edge *edges; /* from < to; in a chain: (0,1), (1,2), ... */
  uint32_t last_inputs;  /* MOTET_INPUT_* bits read by the very last layer: the labels */
  bool tied_embeddings;  /* first layer of the trunk and last layer share a weight */
} mt_model;

/** A chain of modules of abstract layers; @p layers and @p trainable have one entry a module. Arrays and texts
 * are copied into @p arena. */
motet_status mt_model_abstract(mt_arena *arena, int32_t module_count, const char *const *names,
                               const int32_t *layers, const bool *trainable, motet_error *error, mt_model **model);

#endif
