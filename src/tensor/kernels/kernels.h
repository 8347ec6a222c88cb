/** @file
 * The files of this folder are compiled once for each instruction set: MT_KERNEL(name) gives every function and
 * the table a name of its own, MT_VECTOR_BYTES the width of the vectors.
 */
#ifndef MT_TENSOR_KERNELS_KERNELS_H
#define MT_TENSOR_KERNELS_KERNELS_H

#include "tensor/backend.h"

extern const mt_tensor_backend mt_tensor_backend_generic;
extern const mt_tensor_backend mt_tensor_backend_avx2;
extern const mt_tensor_backend mt_tensor_backend_avx512;

#ifdef MT_KERNEL_SET

#define MT_KERNEL_JOIN_(name, set) mt_kernel_##name##_##set
#define MT_KERNEL_JOIN(name, set) MT_KERNEL_JOIN_(name, set)
#define MT_KERNEL(name) MT_KERNEL_JOIN(name, MT_KERNEL_SET)
#define MT_KERNEL_TABLE_(set) mt_tensor_backend_##set
#define MT_KERNEL_TABLE(set) MT_KERNEL_TABLE_(set)
#define MT_KERNEL_TEXT_(set) #set
#define MT_KERNEL_TEXT(set) MT_KERNEL_TEXT_(set)

size_t MT_KERNEL(attention_scratch)(int32_t head_dim, int32_t longest);
void MT_KERNEL(attention_forward)(const mt_attention *attention, float *scratch, float *output,
                                  int64_t output_stride, float *log_sum);
void MT_KERNEL(attention_backward)(const mt_attention *attention, const mt_attention_gradients *gradients,
                                   float *scratch);
void MT_KERNEL(attention_merge)(int64_t rows, int32_t heads, int32_t head_dim, const float *part,
                                int64_t part_stride, const float *part_log_sum, float *output,
                                int64_t output_stride, float *log_sum);
void MT_KERNEL(norm_forward)(const mt_norm *norm, float *output);
void MT_KERNEL(norm_backward)(const mt_norm *norm, const float *output_gradient, const float *residual,
                              float *input_gradient, float *weight_gradient, float *bias_gradient);
void MT_KERNEL(rotary)(float *rows, int64_t stride, int32_t heads, int32_t head_dim, int32_t begin, int32_t end,
                       const float *cosines, const float *sines, bool inverse);
void MT_KERNEL(gelu_forward)(int64_t count, const float *input, float *output);
void MT_KERNEL(gelu_backward)(int64_t count, const float *input, float *gradient);
void MT_KERNEL(swiglu_forward)(int64_t rows, int64_t columns, const float *gate_up, float *output);
void MT_KERNEL(swiglu_backward)(int64_t rows, int64_t columns, const float *gate_up, const float *output_gradient,
                                float *gate_up_gradient, float *output);
void MT_KERNEL(add_rows)(int64_t rows, int64_t columns, float *data, int64_t stride, const float *vector);
void MT_KERNEL(add_column_sums)(int64_t rows, int64_t columns, const float *data, int64_t stride, float *sums);
void MT_KERNEL(scale_columns)(int64_t rows, int64_t columns, const float *base, const float *scale,
                              const float *data, float *output);
void MT_KERNEL(add)(int64_t count, const float *source, float *target);
void MT_KERNEL(scaled_linear_gradients)(int64_t rows, int64_t columns, const float *product, const float *sums,
                                        const float *weight, const float *bias, const float *scale,
                                        float *weight_gradient, float *bias_gradient, float *scale_gradient);
double MT_KERNEL(cross_entropy_forward)(int64_t rows, int64_t columns, const float *logits, const int32_t *targets,
                                        float *log_sum);
void MT_KERNEL(cross_entropy_backward)(int64_t rows, int64_t columns, float *logits, const int32_t *targets,
                                       const float *log_sum, float weight);
void MT_KERNEL(adamw)(int64_t count, const mt_adamw_step *step, bool decay, float *value, const float *gradient,
                      float *first, float *second);
double MT_KERNEL(square_sum)(int64_t count, const float *data);

#endif
#endif
