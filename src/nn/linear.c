#include "nn/deferred.h"

#include <string.h>

motet_status mt_linear_forward(const mt_layer_call *call, int64_t rows, int64_t in, int64_t out, const float *input,
                               const float *weight, const float *bias, float *output) {
  /* Filling the rows with the bias and adding to them is one pass less than adding it afterwards. */
  if (bias != NULL)
    for (int64_t r = 0; r < rows; r++) memcpy(output + r * out, bias, (size_t)out * sizeof *output);
  const mt_matmul product = {.transpose_b = true,
                             .accumulate = bias != NULL,
                             .m = rows,
                             .n = out,
                             .k = in,
                             .a = input,
                             .b = weight,
                             .c = output,
                             .a_stride = in,
                             .b_stride = in,
                             .c_stride = out};
  return call->backend->matmul(&product, call->error);
}

motet_status mt_linear_input_gradient(const mt_layer_call *call, int64_t rows, int64_t in, int64_t out,
                                      const float *output_gradient, const float *weight, float *input_gradient) {
  const mt_matmul product = {.m = rows,
                             .n = in,
                             .k = out,
                             .a = output_gradient,
                             .b = weight,
                             .c = input_gradient,
                             .a_stride = out,
                             .b_stride = in,
                             .c_stride = in};
  return call->backend->matmul(&product, call->error);
}

motet_status mt_linear_weight_gradient(const mt_layer_call *call, int64_t rows, int64_t in, int64_t out,
                                       const float *output_gradient, const float *input, float *weight_gradient,
                                       float *bias_gradient) {
  if (call->deferred != NULL)
    return mt_deferred_add(call, rows, in, out, output_gradient, input, weight_gradient, bias_gradient, NULL);
  if (bias_gradient != NULL) call->backend->add_column_sums(rows, out, output_gradient, out, bias_gradient);
  const mt_matmul product = {.transpose_a = true,
                             .accumulate = true,
                             .m = out,
                             .n = in,
                             .k = rows,
                             .a = output_gradient,
                             .b = input,
                             .c = weight_gradient,
                             .a_stride = out,
                             .b_stride = in,
                             .c_stride = in};
  return call->backend->matmul(&product, call->error);
}

motet_status mt_scaled_linear_weight_gradient(const mt_layer_call *call, int64_t rows, int64_t in, int64_t out,
                                              const float *output_gradient, const float *input,
                                              const mt_scaled_slots *slots, float *product, float *sums) {
  if (call->deferred != NULL)
    return mt_deferred_add(call, rows, in, out, output_gradient, input, NULL, NULL, slots);
  memset(sums, 0, (size_t)out * sizeof *sums);
  memset(product, 0, (size_t)(out * in) * sizeof *product);
  MT_TRY(mt_linear_weight_gradient(call, rows, in, out, output_gradient, input, product, sums));
  call->backend->scaled_linear_gradients(
      out, in, product, sums, call->weight[slots->weight], call->weight[slots->bias], call->weight[slots->scale],
      call->gradient[slots->weight], call->gradient[slots->bias], call->gradient[slots->scale]);
  return MOTET_OK;
}
