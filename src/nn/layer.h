/** @file
 * Layer kinds as a table. A kind is its sizes and two functions; the network runs chains of them. Internal to this
 * folder.
 *
 * Activations and their gradients are elements of the device's kernels, float32 or bfloat16, and pass as void
 * pointers. A layer keeps what its backward needs in one block, counted in floats. Where `keeps_input` is set, the
 * block begins with the layer's input: the layer before writes its output straight there.
 */
#ifndef MT_NN_LAYER_H
#define MT_NN_LAYER_H

#include "nn/network.h"
#include "tensor/matmul.h"
#include "tensor/memory.h"
#include "tensor/parallel.h"

typedef struct mt_rotary_cache mt_rotary_cache;
typedef struct mt_logits_cache mt_logits_cache;

/** Keys and values of a sequence's earlier tokens in one decoder block; forward adds those of the batch. */
typedef struct mt_layer_cache {
  float *keys, *values; /* (tokens + those of the batch, kv_heads * head_dim), keys rotated; float32 always */
  float *scores;        /* [tokens + those of the batch] scratch */
  int32_t tokens;
} mt_layer_cache;

/** A scaled linear layer's weights, as slots of the layer; without a scale: -1 each. */
typedef struct mt_scaled_slots {
  int weight, bias, scale;
} mt_scaled_slots;

/** One forward or backward of one layer. */
typedef struct mt_layer_call {
  const mt_internvl *config;
  const mt_device *device;
  mt_workspace *workspace;
  mt_logits_cache *logits; /* of the head */
  mt_rotary_cache *rotary;
  mt_layer_cache *cache; /* of a decoder block's forward where the batch goes on with a sequence; else NULL */
  const mt_batch *batch;
  float *const *weight;        /* by slot, see model/internvl.h; NULL where the model has none */
  float *const *gradient;      /* by slot; used if `trains` */
  bool trains;                 /* backward adds weight gradients */
  const void *input;           /* forward; NULL if the layer reads the batch alone */
  void *output;                /* forward; NULL for the head */
  float *saved;                /* the layer's block */
  const void *output_gradient; /* backward; NULL for the head */
  void *input_gradient;        /* backward; NULL if nobody wants it */
  double *loss;                /* forward of the head; one for each of the batch's parts; NULL: not counted */
  mt_deferred *deferred;       /* backward: where products of weight gradients are put off to; NULL: computed */
  motet_error *error;
} mt_layer_call;

/**
 * The logits that the head's last forward computed last, for a backward that follows it: if it finds them here, it
 * need not compute them again. What it finds are the bits it would compute.
 */
struct mt_logits_cache {
  mt_workspace memory;
  const float *owner; /* the saved block whose logits they are; NULL: nobody's */
};

typedef struct mt_shape {
  int64_t rows, columns;
} mt_shape;

typedef struct mt_layer_kind {
  bool keeps_input;
  mt_shape (*output)(const mt_internvl *config, const mt_batch *batch);
  /** Floats of the saved block, including the input if it is kept. */
  size_t (*saved)(const mt_internvl *config, mt_element element, const mt_batch *batch);
  /** Floats of workspace for either direction, beside the saved block. */
  size_t (*scratch)(const mt_internvl *config, mt_element element, const mt_batch *batch);
  motet_status (*forward)(const mt_layer_call *call);
  motet_status (*backward)(const mt_layer_call *call);
} mt_layer_kind;

/** Row of the table; @p kind is a mt_internvl_kind. */
const mt_layer_kind *mt_layer_kind_of(mt_internvl_kind kind);

extern const mt_layer_kind mt_layer_vision_embed, mt_layer_vision_block, mt_layer_projector, mt_layer_token_embed,
    mt_layer_decoder_block, mt_layer_head;

/** Position encodings, computed once for the longest segment seen. */
typedef struct mt_rotary_positions {
  int32_t positions;
  double base;
  float *cosines, *sines; /* one allocation, at cosines */
} mt_rotary_positions;

struct mt_rotary_cache {
  mt_rotary_positions plain;     /* of segments within the trained length */
  mt_rotary_positions stretched; /* of the last longer one, whose length changes the base */
};

/** (positions, head_dim / 2) cosines and sines for a segment of @p length tokens; valid until the next call. */
motet_status mt_rotary_table(mt_rotary_cache *cache, const mt_internvl_decoder *decoder, int32_t length,
                             motet_error *error, const float **cosines, const float **sines);
void mt_rotary_free(mt_rotary_cache *cache);

/* Linear layers y (rows, out) = x (rows, in) W' + b with W (out, in); bias may be NULL. */
motet_status mt_linear_forward(const mt_layer_call *call, int64_t rows, int64_t in, int64_t out, const void *input,
                               const float *weight, const float *bias, void *output);
/** y = base + scale * (x W' + b); bias and scale may be NULL. */
motet_status mt_linear_residual(const mt_layer_call *call, int64_t rows, int64_t in, int64_t out, const void *input,
                                const float *weight, const float *bias, const float *scale, const void *base,
                                void *output);
/** dx = dy W. */
motet_status mt_linear_input_gradient(const mt_layer_call *call, int64_t rows, int64_t in, int64_t out,
                                      const void *output_gradient, const float *weight, void *input_gradient);
/** dW += dy' x, db += column sums of dy; @p bias_gradient may be NULL; x is float32 where @p input_float says so.
 */
motet_status mt_linear_weight_gradient(const mt_layer_call *call, int64_t rows, int64_t in, int64_t out,
                                       const void *output_gradient, const void *input, bool input_float,
                                       float *weight_gradient, float *bias_gradient);
/** The gradients of y = scale * (x W' + b) from dy: the product dy' x before the scale gives both dW and, by its
 * rows' products with W, the gradient of the scale, without y itself having been kept. @p product (out, in) and @p
 * sums [out] are scratch. */
motet_status mt_scaled_linear_weight_gradient(const mt_layer_call *call, int64_t rows, int64_t in, int64_t out,
                                              const void *output_gradient, const void *input,
                                              const mt_scaled_slots *slots, float *product, float *sums);
/** Any product. */
motet_status mt_layer_multiply(const mt_layer_call *call, const mt_matmul *product);

/** Patches of a tile, and rows of the vision tower: one more a tile, the class token. */
static inline int64_t mt_tile_patches(const mt_internvl *config) {
  int64_t grid = config->vision.image_size / config->vision.patch_size;
  return grid * grid;
}
static inline int64_t mt_vision_rows(const mt_internvl *config, const mt_batch *batch) {
  return batch->tiles * (mt_tile_patches(config) + 1);
}
static inline int64_t mt_feature_rows(const mt_internvl *config, const mt_batch *batch) {
  return (int64_t)batch->tiles * config->tokens_per_tile;
}

/** Floats that hold @p count elements. */
static inline size_t mt_element_floats(mt_element element, int64_t count) {
  return ((size_t)count * mt_element_bytes(element) + sizeof(float) - 1) / sizeof(float);
}

static inline mt_element mt_layer_element(const mt_layer_call *call) { return call->device->backend->element; }

/** An array of elements from its element number @p offset on. */
static inline void *mt_layer_at(const mt_layer_call *call, const void *array, int64_t offset) {
  return (char *)(uintptr_t)array + offset * (int64_t)mt_element_bytes(mt_layer_element(call));
}

/** Bytes of @p count elements. */
static inline size_t mt_layer_bytes(const mt_layer_call *call, int64_t count) {
  return (size_t)count * mt_element_bytes(mt_layer_element(call));
}

/** Cuts arrays from a block or counts what they take, in floats: the same code states a layout and uses it. */
typedef struct mt_cutter {
  float *data; /* NULL: count only */
  size_t used;
  mt_element element;
} mt_cutter;

static inline float *mt_cut_floats(mt_cutter *cutter, int64_t rows, int64_t columns) {
  float *array = cutter->data == NULL ? NULL : cutter->data + cutter->used;
  cutter->used += mt_workspace_room((size_t)(rows * columns));
  return array;
}

/** An array of elements. */
static inline void *mt_cut(mt_cutter *cutter, int64_t rows, int64_t columns) {
  return mt_cut_floats(cutter, 1, (int64_t)mt_element_floats(cutter->element, rows * columns));
}

#define MT_TRY(expression)                                                                                         \
  do {                                                                                                             \
    const motet_status try_status_ = (expression);                                                                 \
    if (try_status_ != MOTET_OK) return try_status_;                                                               \
  } while (0)

#endif
