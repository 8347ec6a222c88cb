#include "cost/device.h"

#include "cost/product.h"

#include <math.h>

enum { ADAM_BYTES = 38 };

/* A value of two bytes is read, and written as one byte twice: products for weights want it transposed. */
enum { CAST_BYTES = 4 };

/* Bytes of element-wise work where every operation is a kernel of its own and norms compute in float32, to those of
 * fused kernels. Counted on a Llama block as transformers writes it, bytes a value of a row: two norms of 36 (cast,
 * square, mean, scale, cast, weight), rotary embeddings of queries and keys 40, a gate 10 for each of 2.7 values of
 * the inner width, two residual sums of 6: 151 to 44. */
static const double EAGER_BYTES = 3.4;

/* Scores that are stored: softmax reads and writes two bytes, dropout the same and a mask of one; backward dropout
 * reads a gradient and the mask and writes, softmax reads a gradient and its result and writes. What products move
 * of them is theirs. */
enum { SCORE_BYTES = 9, SCORE_BACKWARD_BYTES = 11 };

double mt_device_moved_seconds(const mt_device *device, double bytes) {
  return bytes / (device->memory_bytes_per_second * device->memory_efficiency);
}

/* Of a linear map: forward, gradient of its input, gradient of its weight. */
typedef struct map_seconds {
  double forward, input, weight;
} map_seconds;

static map_seconds map_on_device(const mt_device *device, const mt_product *product, const double *extents,
                                 const mt_device_share *share, bool float8) {
  double rows = extents[product->rows], in = (double)product->in, out = (double)product->out;
  double copies = (double)product->copies;
  if (product->rows == MT_ROWS_ROUTED && share->expert_parallel > 1) {
    rows *= (share->worst_routing > 0 ? share->worst_routing : 1) / share->tensor_parallel;
    copies = copies > share->expert_parallel ? copies / share->expert_parallel : 1;
  } else if (product->split_input) {
    in /= share->tensor_parallel;
  } else {
    out /= share->tensor_parallel;
  }
  /* Rows and their gradients are cast; whole rows on the tensor rank that has them. */
  double divided = share->sequence_parallel && product->rows != MT_ROWS_ROUTED ? share->tensor_parallel : 1;
  double taken = rows * in / (product->split_input ? 1 : divided);
  double given = rows * out / (product->split_input ? divided : 1);
  rows /= copies;
  map_seconds result = {.forward = mt_product_seconds(device, &(mt_product_shape){rows, out, in, copies, float8}),
                        .input = mt_product_seconds(device, &(mt_product_shape){rows, in, out, copies, float8}),
                        .weight = mt_product_seconds(device, &(mt_product_shape){in, out, rows, copies, float8})};
  if (float8) {
    result.forward += mt_device_moved_seconds(device, CAST_BYTES * taken);
    result.input += mt_device_moved_seconds(device, CAST_BYTES * given);
  }
  return result;
}

/* Maps that follow each other from the same rows and width are one product: queries, keys and values, a gate and
 * its other half. Returns the next product behind them. */
static int32_t joined_maps(const mt_layer_design *design, int32_t first, mt_product *joined) {
  int32_t next = first + 1;
  *joined = design->products[first];
  for (; next < design->product_count; next++) {
    const mt_product *product = &design->products[next];
    if (product->rows != joined->rows || product->in != joined->in || product->copies != joined->copies ||
        product->split_input || joined->split_input)
      break;
    joined->out += product->out;
  }
  return next;
}

typedef struct attention_seconds {
  double forward, input;
} attention_seconds;

/* Scores and weighted values as two batches of products, and their gradients twice as many, over the full square: a
 * causal mask saves nothing. The square's side is a row's, on the average of all rows. */
static attention_seconds stored_attention(const mt_device *device, const mt_rates *rates, double square,
                                          double rows, int32_t parts) {
  double side = square / rows, heads = rates->heads / parts;
  double width = rates->forward_flops / (4 * rates->heads); /* mean of a head's keys and values */
  const mt_product_shape scores = {side, side, width, heads * rows / side, false};
  const mt_product_shape values = {side, width, side, heads * rows / side, false};
  double both = mt_product_seconds(device, &scores) + mt_product_seconds(device, &values);
  double bytes = square * heads;
  return (attention_seconds){.forward = both + mt_device_moved_seconds(device, SCORE_BYTES * bytes),
                             .input = 2 * both + mt_device_moved_seconds(device, SCORE_BACKWARD_BYTES * bytes)};
}

static double attention_rows(const mt_layer_design *design, const double *extents) {
  for (int32_t p = 0; p < design->product_count; p++)
    if (design->products[p].rows != MT_ROWS_ROUTED && extents[design->products[p].rows] > 0)
      return extents[design->products[p].rows];
  return 1;
}

static attention_seconds attention_on_device(const mt_device *device, const mt_layer_design *design,
                                             const double *extents, const mt_device_share *share) {
  attention_seconds sum = {0};
  double rows = attention_rows(design, extents);
  double rate = device->bfloat16_flops * device->attention_efficiency;
  for (int e = MT_AREA_TEXT; e < MT_EXTENTS; e++) {
    const mt_rates *rates = &design->rates[e];
    if (extents[e] <= 0 || rates->heads <= 0) continue;
    if (share->stored_scores) {
      double square = (e == MT_AREA_TEXT ? 2 : 1) * extents[e];
      attention_seconds stored = stored_attention(device, rates, square, rows, share->tensor_parallel);
      sum.forward += stored.forward;
      sum.input += stored.input;
    } else {
      sum.forward += extents[e] * rates->forward_flops / share->tensor_parallel / rate;
      sum.input += extents[e] * rates->input_flops / share->tensor_parallel / rate;
    }
  }
  return sum;
}

/* A router, sorting, two exchanges and experts' products: to a block's launches without experts. Not fitted. */
static const double ROUTED_LAUNCHES = 4;

static double element_wise(const mt_device *device, const mt_layer_design *design, const double *extents,
                           const mt_device_share *share) {
  double moved = 0;
  for (int e = 0; e < MT_AREA_TEXT; e++) {
    const mt_rates *rates = &design->rates[e];
    double row = extents[e] * rates->moved_row_bytes;
    moved += (extents[e] * rates->moved_bytes - row) / share->tensor_parallel +
             (share->sequence_parallel ? row / share->tensor_parallel : row);
  }
  return mt_device_moved_seconds(device, (share->eager ? EAGER_BYTES : 1) * moved);
}

void mt_device_layer_seconds(const mt_device *device, const mt_architecture *architecture, int32_t layer,
                             const double extents[MT_EXTENTS], const mt_device_share *share,
                             mt_device_seconds *seconds) {
  const mt_layer_design *design = &architecture->designs[architecture->model->layers[layer].kind];
  map_seconds maps = {0};
  /* Tables and heads stay in bfloat16. */
  bool float8 = share->float8 && design->product_count > 1;
  for (int32_t p = 0; p < design->product_count;) {
    mt_product joined;
    p = joined_maps(design, p, &joined);
    map_seconds one = map_on_device(device, &joined, extents, share, float8);
    maps.forward += one.forward;
    maps.input += one.input;
    maps.weight += one.weight;
  }
  attention_seconds attention = attention_on_device(device, design, extents, share);
  double rest = element_wise(device, design, extents, share);
  /* A device waits for what its host has not launched yet. Layers without data launch nothing. */
  double launches = design->expert_parameters > 0 ? ROUTED_LAUNCHES : 1;
  double host = maps.forward > 0 ? launches * device->layer_host_seconds : 0;
  seconds->attention = attention.forward;
  seconds->products = maps.forward;
  seconds->forward = fmax(maps.forward + attention.forward + rest, host);
  /* A backward of element-wise work reads what was kept and the gradient, and writes a gradient: half as much
   * again. */
  seconds->input_gradient = fmax(maps.input + attention.input + 1.5 * rest, host);
  seconds->weight_gradient = fmax(maps.weight, host);
}

double mt_device_host_seconds(const mt_device *device, double bytes) {
  double rate = device->host_bytes_per_second * device->host_efficiency;
  return rate > 0 ? bytes / rate : 0;
}

double mt_device_optimizer_seconds(const mt_device *device, double parameters) {
  return mt_device_moved_seconds(device, ADAM_BYTES * parameters);
}
