#include "nn/deferred.h"

#include <string.h>

motet_status mt_layer_multiply(const mt_layer_call *call, const mt_matmul *product) {
  return mt_matmul_run(call->device->backend, call->device->team, product, call->error);
}

motet_status mt_linear_residual(const mt_layer_call *call, int64_t rows, int64_t in, int64_t out, const void *input,
                                const float *weight, const float *bias, const float *scale, const void *base,
                                void *output) {
  const mt_matmul product = {.transpose_b = true,
                             .b_float = true,
                             .m = rows,
                             .n = out,
                             .k = in,
                             .a = input,
                             .b = weight,
                             .c = output,
                             .a_stride = in,
                             .b_stride = in,
                             .c_stride = out,
                             .bias = bias,
                             .scale = scale,
                             .base = base,
                             .base_stride = out};
  return mt_layer_multiply(call, &product);
}

motet_status mt_linear_forward(const mt_layer_call *call, int64_t rows, int64_t in, int64_t out, const void *input,
                               const float *weight, const float *bias, void *output) {
  return mt_linear_residual(call, rows, in, out, input, weight, bias, NULL, NULL, output);
}

motet_status mt_linear_input_gradient(const mt_layer_call *call, int64_t rows, int64_t in, int64_t out,
                                      const void *output_gradient, const float *weight, void *input_gradient) {
  const mt_matmul product = {.b_float = true,
                             .m = rows,
                             .n = in,
                             .k = out,
                             .a = output_gradient,
                             .b = weight,
                             .c = input_gradient,
                             .a_stride = out,
                             .b_stride = in,
                             .c_stride = in};
  return mt_layer_multiply(call, &product);
}

/* dW = or += dy' x. */
static motet_status multiply_gradient(const mt_layer_call *call, int64_t rows, int64_t in, int64_t out,
                                      const void *output_gradient, const void *input, bool input_float,
                                      bool accumulate, float *weight_gradient) {
  const mt_matmul product = {.transpose_a = true,
                             .b_float = input_float,
                             .c_float = true,
                             .accumulate = accumulate,
                             .m = out,
                             .n = in,
                             .k = rows,
                             .a = output_gradient,
                             .b = input,
                             .c = weight_gradient,
                             .a_stride = out,
                             .b_stride = in,
                             .c_stride = in};
  return mt_layer_multiply(call, &product);
}

motet_status mt_linear_weight_gradient(const mt_layer_call *call, int64_t rows, int64_t in, int64_t out,
                                       const void *output_gradient, const void *input, bool input_float,
                                       float *weight_gradient, float *bias_gradient) {
  if (call->deferred != NULL)
    return mt_deferred_add(call, rows, in, out, output_gradient, input, input_float, weight_gradient, bias_gradient,
                           NULL);
  if (bias_gradient != NULL)
    mt_parallel_add_column_sums(call->device, rows, out, output_gradient, out, bias_gradient);
  return multiply_gradient(call, rows, in, out, output_gradient, input, input_float, true, weight_gradient);
}

motet_status mt_scaled_linear_weight_gradient(const mt_layer_call *call, int64_t rows, int64_t in, int64_t out,
                                              const void *output_gradient, const void *input,
                                              const mt_scaled_slots *slots, float *product, float *sums) {
  if (call->deferred != NULL)
    return mt_deferred_add(call, rows, in, out, output_gradient, input, false, NULL, NULL, slots);
  memset(sums, 0, (size_t)out * sizeof *sums);
  mt_parallel_add_column_sums(call->device, rows, out, output_gradient, out, sums);
  MT_TRY(multiply_gradient(call, rows, in, out, output_gradient, input, false, false, product));
  mt_parallel_scaled_linear_gradients(call->device, out, in, product, sums, call->weight[slots->weight],
                                      call->weight[slots->bias], call->weight[slots->scale],
                                      call->gradient[slots->weight], call->gradient[slots->bias],
                                      call->gradient[slots->scale]);
  return MOTET_OK;
}
