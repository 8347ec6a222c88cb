/** @file
 * The backend's kernels on a team's threads: the same arguments, the work cut into parts whose number and order
 * depend on the shapes alone, so that results are the same bits with any number of threads. What needs scratch says
 * so.
 */
#ifndef MT_TENSOR_PARALLEL_H
#define MT_TENSOR_PARALLEL_H

#include "tensor/backend.h"
#include "tensor/team.h"

/** Kernels and the threads that run them; one network's. */
typedef struct mt_device {
  const mt_tensor_backend *backend;
  mt_team *team;
} mt_device;

motet_status mt_parallel_attention_forward(const mt_device *device, const mt_attention *attention, void *output,
                                           int64_t output_stride, float *log_sum, motet_error *error);
motet_status mt_parallel_attention_backward(const mt_device *device, const mt_attention *attention,
                                            const mt_attention_gradients *gradients, motet_error *error);

void mt_parallel_attention_merge(const mt_device *device, int64_t rows, int32_t heads, int32_t head_dim,
                                 const void *part, int64_t part_stride, const float *part_log_sum, void *output,
                                 int64_t output_stride, float *log_sum);

void mt_parallel_norm_forward(const mt_device *device, const mt_norm *norm, void *output);
/** Weight gradients are summed in parts, then part after part. */
motet_status mt_parallel_norm_backward(const mt_device *device, const mt_norm *norm, const void *output_gradient,
                                       const void *residual, void *input_gradient, float *weight_gradient,
                                       float *bias_gradient, motet_error *error);

void mt_parallel_rotary(const mt_device *device, void *rows, int64_t stride, int32_t heads, int32_t head_dim,
                        int32_t begin, int32_t end, const float *cosines, const float *sines, bool inverse);
void mt_parallel_gelu_forward(const mt_device *device, int64_t count, const void *input, void *output);
void mt_parallel_gelu_backward(const mt_device *device, int64_t count, const void *input, void *gradient,
                               void *output);
void mt_parallel_swiglu_forward(const mt_device *device, int64_t rows, int64_t columns, const void *gate_up,
                                void *output);
void mt_parallel_swiglu_backward(const mt_device *device, int64_t rows, int64_t columns, const void *gate_up,
                                 const void *output_gradient, void *gate_up_gradient, void *output);
void mt_parallel_add_column_sums(const mt_device *device, int64_t rows, int64_t columns, const void *data,
                                 int64_t stride, float *sums);
void mt_parallel_scale_columns(const mt_device *device, int64_t rows, int64_t columns, const float *scale,
                               const void *data, void *output);
void mt_parallel_scaled_linear_gradients(const mt_device *device, int64_t rows, int64_t columns,
                                         const float *product, const float *sums, const float *weight,
                                         const float *bias, const float *scale, float *weight_gradient,
                                         float *bias_gradient, float *scale_gradient);

double mt_parallel_cross_entropy_forward(const mt_device *device, int64_t rows, int64_t columns,
                                         const float *logits, const int32_t *targets, float *log_sum);
void mt_parallel_cross_entropy_backward(const mt_device *device, int64_t rows, int64_t columns, float *logits,
                                        const int32_t *targets, const float *log_sum, float weight);

void mt_parallel_adamw(const mt_device *device, int64_t count, const mt_adamw_step *step, bool decay, float *value,
                       const float *gradient, float *first, float *second);
double mt_parallel_square_sum(const mt_device *device, int64_t count, const float *data);
void mt_parallel_zero(const mt_device *device, int64_t count, float *data);

#endif
