#include "model/design.h"

enum { VALUE_BYTES = 2, STATISTIC_BYTES = 4, LOGIT_BYTES = 4 };

static void add_parameters(mt_layer_design *design, int64_t a, int64_t b, int64_t c, int64_t *of_these) {
  int64_t count;
  if (__builtin_mul_overflow(a, b, &count) || __builtin_mul_overflow(count, c, &count) ||
      __builtin_add_overflow(design->parameters, count, &design->parameters)) {
    design->overflow = true;
    return;
  }
  if (of_these != 0) *of_these += count;
}

/* Kept for every backward. */
static void keep(mt_rates *rates, double bytes, bool row) {
  rates->saved_bytes += bytes;
  rates->passed_bytes += bytes;
  if (!row) return;
  rates->saved_row_bytes += bytes;
  rates->passed_row_bytes += bytes;
}

/* Kept for gradients of weights. */
static void keep_input(mt_rates *rates, double bytes, bool row) {
  rates->saved_bytes += bytes;
  if (row) rates->saved_row_bytes += bytes;
}

static void move(mt_rates *rates, double bytes, bool row) {
  rates->moved_bytes += bytes;
  if (row) rates->moved_row_bytes += bytes;
}

static void product(mt_layer_design *design, mt_extent rows, int64_t copies, int64_t in, int64_t out, int options) {
  if (design->product_count == MT_PRODUCTS_MAX)
    design->overflow = true;
  else
    design->products[design->product_count++] = (mt_product){
        .rows = rows, .in = in, .out = out, .copies = copies, .split_input = (options & MT_LINEAR_SPLIT) != 0};
  mt_rates *rates = &design->rates[rows];
  double flops = 2.0 * (double)in * (double)out;
  rates->forward_flops += flops;
  rates->input_flops += flops;
  rates->weight_flops += flops;
  if (options & MT_LINEAR_SAVES) keep_input(rates, VALUE_BYTES * (double)in, !(options & MT_LINEAR_SPLIT));
}

void mt_design_linear(mt_layer_design *design, mt_extent rows, int64_t in, int64_t out, int options) {
  product(design, rows, 1, in, out, options);
  add_parameters(design, in, out, 1, 0);
  if (options & MT_LINEAR_BIAS) add_parameters(design, out, 1, 1, 0);
}

void mt_design_experts(mt_layer_design *design, mt_extent rows, int64_t count, int64_t in, int64_t out,
                       int options) {
  product(design, rows, count, in, out, options);
  add_parameters(design, count, in, out, &design->expert_parameters);
}

static void norm(mt_layer_design *design, mt_extent rows, int64_t width, int64_t groups, int tensors, bool row) {
  int statistics = tensors == 1 ? 1 : 2;
  keep(&design->rates[rows], (double)groups * (VALUE_BYTES * (double)width + (double)statistics * STATISTIC_BYTES),
       row);
  move(&design->rates[rows], 2 * VALUE_BYTES * (double)groups * (double)width, row);
  add_parameters(design, width, tensors, 1, 0);
}

void mt_design_norm(mt_layer_design *design, mt_extent rows, int64_t width, int64_t groups, int tensors) {
  norm(design, rows, width, groups, tensors, true);
}

void mt_design_head_norm(mt_layer_design *design, mt_extent rows, int64_t width, int64_t groups, int tensors) {
  norm(design, rows, width, groups, tensors, false);
}

void mt_design_attention(mt_layer_design *design, const mt_attention *attention) {
  double heads = (double)attention->heads, kv_heads = (double)attention->kv_heads;
  double key = (double)attention->key_width, value = (double)attention->value_width;
  mt_rates *area = &design->rates[attention->area];
  /* Forward: scores and weighted values. Backward: scores once more, gradients of values, weights, queries, keys
     (arXiv 2307.08691, section 3.1.2: five products to the forward's two). */
  area->forward_flops += 2 * heads * (key + value);
  area->heads += heads;
  area->input_flops += 2 * heads * (3 * key + 2 * value);
  keep(&design->rates[attention->queries], heads * (VALUE_BYTES * (key + value) + STATISTIC_BYTES), false);
  keep(&design->rates[attention->keys], kv_heads * VALUE_BYTES * (key + value), false);
}

void mt_design_activation(mt_layer_design *design, mt_extent rows, int64_t width, int inputs) {
  keep(&design->rates[rows], VALUE_BYTES * (double)inputs * (double)width, false);
  move(&design->rates[rows], VALUE_BYTES * (double)(inputs + 1) * (double)width, false);
}

void mt_design_residual(mt_layer_design *design, mt_extent rows, int64_t width) {
  move(&design->rates[rows], 3 * VALUE_BYTES * (double)width, true);
}

void mt_design_reorder(mt_layer_design *design, mt_extent rows, int64_t width) {
  move(&design->rates[rows], 4 * VALUE_BYTES * (double)width, false);
}

void mt_design_keep(mt_layer_design *design, mt_extent rows, int64_t width) {
  keep_input(&design->rates[rows], VALUE_BYTES * (double)width, true);
}

void mt_design_factor(mt_layer_design *design, mt_extent rows, int64_t width, int bytes) {
  keep(&design->rates[rows], bytes * (double)width, true);
  move(&design->rates[rows], bytes * (double)width, true);
}

void mt_design_values(mt_layer_design *design, int64_t count, int64_t width) {
  add_parameters(design, count, width, 1, 0);
}

void mt_design_output(mt_layer_design *design, mt_extent rows, int64_t width) {
  design->rates[rows].output_bytes += VALUE_BYTES * (double)width;
}

void mt_design_loss(mt_layer_design *design, mt_extent rows, int64_t vocabulary) {
  keep(&design->rates[rows], LOGIT_BYTES * (double)vocabulary, false);
  /* Read, widened to 32 bits, and read once more for the sum of exponentials. */
  move(&design->rates[rows], (VALUE_BYTES + 2 * LOGIT_BYTES) * (double)vocabulary, false);
}
