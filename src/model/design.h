/** @file
 * What a layer computes, as numbers per row.
 *
 * Every cost of a layer is linear in a few extents of the data: tokens of the decoder's row, patches of the
 * pictures, query-key pairs that a mask keeps. A layer design holds, for each extent, what one unit of it costs.
 * A family describes its layers operation by operation (a linear map, an attention, a norm); parameters, operations
 * of the forward and of both gradients, and the bytes that a backward needs all follow from the one description.
 *
 * Counted are products of matrices, convolutions and attention, two operations a multiply-add; element-wise work is
 * not. Saved bytes follow Korthikanti et al. (arXiv 2205.05198, section 4.1) for 16-bit activations, without
 * dropout masks and with attention that keeps its row statistics instead of its scores (FlashAttention-2, arXiv
 * 2307.08691).
 */
#ifndef MT_MODEL_DESIGN_H
#define MT_MODEL_DESIGN_H

#include <stdbool.h>
#include <stdint.h>

/** What a microbatch has how many of. Areas count query-key pairs. */
typedef enum mt_extent {
  MT_ROWS_TEXT,      /* tokens of the decoder's row, those of picture features included */
  MT_ROWS_PATCHES,   /* patches of all pictures, class tokens included */
  MT_ROWS_FEATURES,  /* features that the projector hands on */
  MT_ROWS_CONDITION, /* tokens that condition a generator, or an encoder's row */
  MT_ROWS_LATENT,    /* patches of latents */
  MT_ROWS_JOINT,     /* condition and latent tokens in one row */
  MT_ROWS_SAMPLES,   /* clips or pictures to generate */
  MT_ROWS_ROUTED,    /* tokens times the experts each is sent to */
  MT_ROWS_GRID_1,    /* positions of a convolutional encoder, finest grid first */
  MT_ROWS_GRID_2,
  MT_ROWS_GRID_3,
  MT_AREA_TEXT,      /* causal, segment by segment */
  MT_AREA_SLIDING,   /* the same, of each token with the last ones of a window alone */
  MT_AREA_PICTURE,   /* full, inside each picture, tile or frame */
  MT_AREA_WINDOW,    /* full, inside each window of a picture */
  MT_AREA_CONDITION, /* full, inside each condition */
  MT_AREA_CROSS,     /* every query of a sample with its condition */
  MT_AREA_LATENT,    /* full, inside each sample's latents */
  MT_AREA_SPARSE,    /* inside each of the parts that a sparse block splits a sample into */
  MT_AREA_JOINT,     /* full, inside each joint row */
  MT_AREA_GRID,      /* full, inside each frame of the coarsest grid */
  MT_EXTENTS
} mt_extent;

/** What one unit of an extent costs a layer. */
typedef struct mt_rates {
  double forward_flops;
  double input_flops;                       /* for the gradient of the layer's input */
  double weight_flops;                      /* for the gradients of its weights */
  double saved_bytes;                       /* kept for a backward with weight gradients */
  double passed_bytes;                      /* of these, what a backward without weight gradients needs */
  double saved_row_bytes, passed_row_bytes; /* of either: whole rows, which only sequence parallelism divides, not
                                               tensor parallelism */
  double output_bytes;                      /* handed to the next layer */
  double moved_bytes;     /* element-wise work of a forward, read and written, fused as frameworks fuse it */
  double moved_row_bytes; /* of these, on whole rows */
  double heads;           /* of areas: rows of scores that a query-key pair lies in */
} mt_rates;

/** One product of matrices: its shape decides how much of the peak a device reaches. */
typedef struct mt_product {
  mt_extent rows;
  int64_t in, out;
  int64_t copies;   /* experts that share the rows; else 1 */
  bool split_input; /* tensor parallelism divides `in`; else `out` */
} mt_product;

enum { MT_PRODUCTS_MAX = 48 };

typedef struct mt_layer_design {
  const char *name; /* "decoder block": constant text */
  int64_t parameters;
  int64_t expert_parameters; /* of these, in routed experts */
  mt_rates rates[MT_EXTENTS];
  mt_product products[MT_PRODUCTS_MAX];
  int32_t product_count;
  bool overflow; /* a size went beyond 64 bits or a list beyond its room; the rest is meaningless */
} mt_layer_design;

/** Options of mt_design_linear(). */
enum {
  MT_LINEAR_BIAS = 1,
  MT_LINEAR_SAVES = 2, /* its input is a tensor of its own; else an operation before it keeps that tensor already */
  MT_LINEAR_SPLIT = 4  /* tensor parallelism divides its input (row-parallel); else its output */
};

/** `out` values a row from `in` values (a convolution: kernel volume times channels). */
void mt_design_linear(mt_layer_design *design, mt_extent rows, int64_t in, int64_t out, int options);

/** `count` experts of `out` by `in`; @p rows are routed ones. */
void mt_design_experts(mt_layer_design *design, mt_extent rows, int64_t count, int64_t in, int64_t out,
                       int options);

/** Normalisation over `width` values, or `groups` of them a row, with `tensors` trained vectors (0: none, 1: scale,
 * 2: scale and shift). Keeps its input and its statistics (one a group for a root mean square, else two). */
void mt_design_norm(mt_layer_design *design, mt_extent rows, int64_t width, int64_t groups, int tensors);

/** The same over heads' values, which tensor parallelism divides. */
void mt_design_head_norm(mt_layer_design *design, mt_extent rows, int64_t width, int64_t groups, int tensors);

/** An attention's heads and the rows its two sides come from. */
typedef struct mt_attention {
  mt_extent queries, keys, area;
  int64_t heads, kv_heads;
  int64_t key_width, value_width; /* of one head */
} mt_attention;

/** Scores, softmax and weighted values; keeps queries, keys, values, result and one statistic a head and query. */
void mt_design_attention(mt_layer_design *design, const mt_attention *attention);

/** An element-wise function of `inputs` tensors of `width` values (1: GELU, SiLU; 2: gated): they are kept. */
void mt_design_activation(mt_layer_design *design, mt_extent rows, int64_t width, int inputs);

/** `bytes` a value of a whole row of `width`, kept for every backward: 2 for a factor, 1 for a dropout's mask. */
void mt_design_factor(mt_layer_design *design, mt_extent rows, int64_t width, int bytes);

/** A tensor of `width` 16-bit values a row that only gradients of weights need. */
void mt_design_keep(mt_layer_design *design, mt_extent rows, int64_t width);

/** A sum with the residual row: nothing is kept, three rows are moved. */
void mt_design_residual(mt_layer_design *design, mt_extent rows, int64_t width);

/** Rows copied into another order and back: nothing is kept. */
void mt_design_reorder(mt_layer_design *design, mt_extent rows, int64_t width);

/** Trained values outside matrices: embeddings, tables, class tokens. */
void mt_design_values(mt_layer_design *design, int64_t count, int64_t width);

/** The layer hands on `width` 16-bit values a row. */
void mt_design_output(mt_layer_design *design, mt_extent rows, int64_t width);

/** Logits in 32 bits for the loss: 4 bytes each (arXiv 2205.05198, section 4.1). */
void mt_design_loss(mt_layer_design *design, mt_extent rows, int64_t vocabulary);

#endif
