/** @file
 * The kernels of one device behind one table. Activations and their gradients are the table's elements, float32 or
 * bfloat16, and pass as void pointers; weights, their gradients, sums and logits are float32 always, and all
 * arithmetic is. Arrays are row-major; a stride is the distance between rows in elements. Kernels run on the
 * calling thread, keep no state and are deterministic: equal inputs give equal bits. Arrays of one call must not
 * overlap unless a comment allows it. A table may be used from any thread. Layers use tensor/parallel.h and
 * tensor/matmul.h, which share out this work.
 */
#ifndef MT_TENSOR_BACKEND_H
#define MT_TENSOR_BACKEND_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** What activations are stored as. */
typedef enum mt_element { MT_ELEMENT_FLOAT32, MT_ELEMENT_BFLOAT16, MT_ELEMENT_COUNT } mt_element;

/**
 * c (m, n) = ((op(a) op(b) + bias) * scale) + base, or c += that with `accumulate`; op(a) is (m, k), op(b) is (k,
 * n). Arrays are elements, or float32 where the flag says so; bias and scale, [n], are float32, base (m, n) is
 * elements; all three may be NULL. c may be base. With bfloat16 elements both factors are rounded to bfloat16.
 */
typedef struct mt_matmul {
  bool transpose_a, transpose_b; /* stored as (k, m); as (n, k) */
  bool a_float, b_float, c_float;
  bool accumulate;
  int64_t m, n, k;
  const void *a, *b;
  void *c;
  int64_t a_stride, b_stride, c_stride;
  const float *bias, *scale;
  const void *base;
  int64_t base_stride;
} mt_matmul;

/** op(a) as product_block reads it: rows from `row` on, row_step apart, cut along k into chunks, chunk_step apart;
 * row_step 0: a copy, each chunk's rows one behind the other, padded with zeros. */
typedef struct mt_left_factor {
  const void *data;
  int64_t row, row_step, chunk_step;
} mt_left_factor;

/** Attention over packed rows: segment s is rows [segment_begin[s], segment_begin[s + 1]), alone with itself.
 * Query head h reads key and value head h / (heads / kv_heads). */
typedef struct mt_attention {
  const void *query, *key, *value; /* (rows, heads * head_dim), (rows, kv_heads * head_dim) twice */
  int64_t query_stride, key_stride, value_stride;
  int32_t heads, kv_heads, head_dim;
  int32_t segments;
  const int32_t *segment_begin; /* [segments + 1] */
  bool causal;                  /* row i sees rows up to i of its segment; else all of them */
  float scale;
  /* Keys of other rows than the queries': segment s has keys [key_begin[s], key_begin[s + 1]). NULL: the same rows.
   */
  const int32_t *key_begin;
  /* [rows] of the keys of its segment, how many each query row sees: the first ones, never fewer than the row
     before it in the segment. NULL: as `causal` says. A row that sees none has output 0 and log_sum -infinity. */
  const int32_t *visible;
} mt_attention;

typedef struct mt_attention_gradients {
  const void *output, *output_gradient; /* (rows, heads * head_dim), forward's result and its gradient */
  int64_t output_stride, output_gradient_stride;
  const float *log_sum;      /* (heads, rows) as forward wrote it */
  void *query, *key, *value; /* written, laid out as the inputs */
  int64_t query_stride, key_stride, value_stride;
  bool accumulate; /* added to instead of written */
} mt_attention_gradients;

/** Row normalisation: LayerNorm with `bias`, RMSNorm (no mean, no bias) with `rms`. */
typedef struct mt_norm {
  bool rms;
  float epsilon;
  int64_t rows, columns;
  const void *input; /* (rows, columns) */
  int64_t stride;    /* of input, output and their gradients */
  const float *weight, *bias;
} mt_norm;

typedef struct mt_adamw_step {
  float learning_rate, beta1, beta2, epsilon, weight_decay;
  float gradient_scale;
  float correction1, correction2; /* 1 - beta1^step, sqrt(1 - beta2^step) */
} mt_adamw_step;

typedef struct mt_tensor_backend {
  const char *name;
  mt_element element;

  /** What a product does with a block of finished sums, `stride` apart: bias, scale, base, addition, and the
   * result's type. */
  void (*product_finish)(const mt_matmul *product, const float *sums, int64_t stride, int64_t row, int64_t rows,
                         int64_t column, int64_t columns);
  void (*to_elements)(int64_t count, const float *floats, void *elements);

  /** Products by blocks of libxsmm, where the processor multiplies the elements faster than float32; else NULL.
   * Floats of scratch that a block of the result needs. */
  size_t (*product_scratch)(int64_t k, int64_t rows, int64_t columns);
  /** Rows [row, row + rows) of op(a), as they are (@p copy is NULL; k and stride are even then) or as they will be
   * copied. */
  mt_left_factor (*product_left)(const mt_matmul *product, int64_t row, int64_t rows, void *copy);
  /** Elements of such a copy, in how many units of work it is made, and one of them. */
  size_t (*product_left_size)(int64_t k, int64_t rows);
  int64_t (*product_left_units)(const mt_matmul *product, int64_t rows);
  void (*product_pack_left)(const mt_matmul *product, int64_t row, int64_t rows, int64_t unit, void *left);
  /** A block of the result, finished. Its bits do not depend on how the result is cut into blocks. False: memory is
   * out. */
  bool (*product_block)(const mt_matmul *product, const mt_left_factor *left, int64_t row, int64_t rows,
                        int64_t column, int64_t columns, float *scratch);

  /** Floats of scratch that either direction needs for segments of at most @p longest keys. */
  size_t (*attention_scratch)(int32_t head_dim, int32_t longest);
  /** One key and value head, and the query heads that read it, in one segment. output (rows, heads * head_dim);
   * log_sum (heads, rows): log of the row's sum of exponentials. */
  void (*attention_forward)(const mt_attention *attention, int32_t segment, int32_t kv_head, float *scratch,
                            void *output, int64_t output_stride, float *log_sum);
  void (*attention_backward)(const mt_attention *attention, const mt_attention_gradients *gradients,
                             int32_t segment, int32_t kv_head, float *scratch);

  /** Attention over two sets of keys from the attention over each: `output` (rows, heads * head_dim) and `log_sum`
   * (heads, rows), which stood for the first, become those over both. */
  void (*attention_merge)(int64_t rows, int32_t heads, int32_t head_dim, const void *part, int64_t part_stride,
                          const float *part_log_sum, void *output, int64_t output_stride, float *log_sum);

  void (*norm_forward)(const mt_norm *norm, void *output);
  /** input_gradient = residual (if not NULL) + gradient through the norm; weight and bias gradients are added to
   * unless NULL. input_gradient may be the same array as residual or output_gradient, or NULL. */
  void (*norm_backward)(const mt_norm *norm, const void *output_gradient, const void *residual,
                        void *input_gradient, float *weight_gradient, float *bias_gradient);

  /** HF half rotation of each head in place; `cosines`, `sines` (positions, head_dim / 2) of rows begin to end.
   * `inverse` turns back: the gradient. */
  void (*rotary)(void *rows, int64_t stride, int32_t heads, int32_t head_dim, int32_t begin, int32_t end,
                 const float *cosines, const float *sines, bool inverse);

  /** output = x * Phi(x); output may be input. */
  void (*gelu_forward)(int64_t count, const void *input, void *output);
  /** gradient *= derivative at input; output, if not NULL, gets forward's result again. */
  void (*gelu_backward)(int64_t count, const void *input, void *gradient, void *output);
  /** gate_up (rows, 2 * columns): gate, then up; output (rows, columns) = silu(gate) * up. */
  void (*swiglu_forward)(int64_t rows, int64_t columns, const void *gate_up, void *output);
  /** gate_up_gradient (rows, 2 * columns) from output_gradient (rows, columns); output, if not NULL, gets forward's
   * result again. */
  void (*swiglu_backward)(int64_t rows, int64_t columns, const void *gate_up, const void *output_gradient,
                          void *gate_up_gradient, void *output);

  /** sums[c] += column sums, row after row. */
  void (*add_column_sums)(int64_t rows, int64_t columns, const void *data, int64_t stride, float *sums);
  /** output = scale * data per column; output may be data. */
  void (*scale_columns)(int64_t rows, int64_t columns, const float *scale, const void *data, void *output);
  /** output = base + source in elements; base NULL: zero; output may be base. */
  void (*add_floats)(int64_t count, const float *source, const void *base, void *output);
  /** sums += source. */
  void (*add_to_floats)(int64_t count, const void *source, float *sums);
  void (*to_floats)(int64_t count, const void *source, float *floats);

  /**
   * The gradients of y = scale * (x W' + b) from `product` (rows, columns) = dy' x and `sums` [rows], the column
   * sums of dy: weight_gradient += scale * product, bias_gradient += scale * sums, scale_gradient += row sums of W
   * * product + b * sums.
   */
  void (*scaled_linear_gradients)(int64_t rows, int64_t columns, const float *product, const float *sums,
                                  const float *weight, const float *bias, const float *scale,
                                  float *weight_gradient, float *bias_gradient, float *scale_gradient);

  /** Sum over the rows of log sum exp(logits) - logits[target], added in row order; log_sum [rows] is written. */
  double (*cross_entropy_forward)(int64_t rows, int64_t columns, const float *logits, const int32_t *targets,
                                  float *log_sum);
  /** logits become their gradient: (softmax - one at target) * weight. */
  void (*cross_entropy_backward)(int64_t rows, int64_t columns, float *logits, const int32_t *targets,
                                 const float *log_sum, float weight);

  void (*adamw)(int64_t count, const mt_adamw_step *step, bool decay, float *value, const float *gradient,
                float *first, float *second);
  double (*square_sum)(int64_t count, const float *data);
} mt_tensor_backend;

static inline size_t mt_element_bytes(mt_element element) { return element == MT_ELEMENT_BFLOAT16 ? 2 : 4; }

/** The fastest table for these elements that this processor can run; constant, never NULL. */
const mt_tensor_backend *mt_tensor_backend_cpu(mt_element element);

/** All tables that this processor can run; returns their number (tests compare them). */
int mt_tensor_backend_list(const mt_tensor_backend *backends[], int maximum);

#endif
