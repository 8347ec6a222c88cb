#include "cost/device.h"

enum { ADAM_BYTES = 38 };

/* Scaling and masking, softmax, dropout: scores are read and written three times, and a mask of one byte written
 * (arXiv 2205.05198, section 4.1: the tensors that attention keeps). */
enum { SCORE_BYTES = 13 };

static double smallest(double a, double b, double c) {
  double least = a < b ? a : b;
  return least < c ? least : c;
}

static double product_seconds(const mt_device *device, const mt_product *product, const double *extents,
                              const mt_device_share *share) {
  double rows = extents[product->rows], in = (double)product->in, out = (double)product->out;
  double copies = (double)product->copies;
  if (rows <= 0) return 0;
  if (product->rows == MT_ROWS_ROUTED && share->expert_parallel > 1) {
    rows *= (share->worst_routing > 0 ? share->worst_routing : 1) / share->tensor_parallel;
    copies = copies > share->expert_parallel ? copies / share->expert_parallel : 1;
  } else if (product->split_input) {
    in /= share->tensor_parallel;
  } else {
    out /= share->tensor_parallel;
  }
  double width = smallest(rows / copies, in, out);
  double efficiency = device->matmul_efficiency * width / (width + device->matmul_half_width);
  return 2 * rows * in * out / (device->bfloat16_flops * efficiency);
}

static double moved_seconds(const mt_device *device, double bytes) {
  return bytes / (device->memory_bytes_per_second * device->memory_efficiency);
}

/* Of a forward: operations of attention, and seconds of its scores where they are stored. */
typedef struct attention_work {
  double forward_flops, input_flops, score_seconds;
} attention_work;

static attention_work attention_of(const mt_device *device, const mt_layer_design *design, const double *extents,
                                   const mt_device_share *share) {
  attention_work work = {0};
  for (int e = MT_AREA_TEXT; e < MT_EXTENTS; e++) {
    const mt_rates *rates = &design->rates[e];
    double area = extents[e] / share->tensor_parallel;
    /* Without fusion a causal mask saves nothing, and the backward finds the scores stored. */
    double full = share->stored_scores && e == MT_AREA_TEXT ? 2 : 1;
    work.forward_flops += full * area * rates->forward_flops;
    work.input_flops += full * area * (share->stored_scores ? 2 * rates->forward_flops : rates->input_flops);
    if (share->stored_scores) work.score_seconds += moved_seconds(device, full * area * rates->heads * SCORE_BYTES);
  }
  return work;
}

void mt_device_layer_seconds(const mt_device *device, const mt_architecture *architecture, int32_t layer,
                             const double extents[MT_EXTENTS], const mt_device_share *share,
                             mt_device_seconds *seconds) {
  const mt_layer_design *design = &architecture->designs[architecture->model->layers[layer].kind];
  int32_t parts = share->tensor_parallel;
  double products = 0, moved = 0;
  for (int32_t p = 0; p < design->product_count; p++)
    products += product_seconds(device, &design->products[p], extents, share);
  for (int e = 0; e < MT_AREA_TEXT; e++) {
    const mt_rates *rates = &design->rates[e];
    double row = extents[e] * rates->moved_row_bytes;
    moved += (extents[e] * rates->moved_bytes - row) / parts + (share->sequence_parallel ? row / parts : row);
  }
  attention_work work = attention_of(device, design, extents, share);
  double rate =
      device->bfloat16_flops * (share->stored_scores ? device->matmul_efficiency : device->attention_efficiency);
  double element_wise = moved_seconds(device, moved);
  seconds->attention = work.forward_flops / rate + work.score_seconds;
  seconds->forward = products + seconds->attention + element_wise;
  /* A backward of element-wise work reads what was kept and the gradient, and writes a gradient: half as much
   * again. */
  seconds->input_gradient = products + work.input_flops / rate + 1.5 * (element_wise + work.score_seconds);
  seconds->weight_gradient = products;
}

double mt_device_optimizer_seconds(const mt_device *device, double parameters) {
  return moved_seconds(device, ADAM_BYTES * parameters);
}
