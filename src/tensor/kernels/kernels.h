/** @file
 * The files of this folder are compiled once for each instruction set and element: MT_KERNEL(name) gives every
 * function and the table a name of its own, MT_VECTOR_BYTES the width of the vectors, MT_BFLOAT16 the element.
 */
#ifndef MT_TENSOR_KERNELS_KERNELS_H
#define MT_TENSOR_KERNELS_KERNELS_H

#include "tensor/backend.h"

extern const mt_tensor_backend mt_tensor_backend_generic, mt_tensor_backend_generic_bfloat16;
extern const mt_tensor_backend mt_tensor_backend_avx2, mt_tensor_backend_avx2_bfloat16;
extern const mt_tensor_backend mt_tensor_backend_avx512, mt_tensor_backend_avx512_bfloat16;
extern const mt_tensor_backend mt_tensor_backend_avx512bf16_bfloat16;

#ifdef MT_KERNEL_SET

#define MT_KERNEL_JOIN_(name, set) mt_kernel_##name##_##set
#define MT_KERNEL_JOIN(name, set) MT_KERNEL_JOIN_(name, set)
#define MT_KERNEL(name) MT_KERNEL_JOIN(name, MT_KERNEL_SET)
#define MT_KERNEL_TABLE_(set) mt_tensor_backend_##set
#define MT_KERNEL_TABLE(set) MT_KERNEL_TABLE_(set)
#define MT_KERNEL_TEXT_(set) #set
#define MT_KERNEL_TEXT(set) MT_KERNEL_TEXT_(set)

void MT_KERNEL(product_finish)(const mt_matmul *product, const float *sums, int64_t stride, int64_t row,
                               int64_t rows, int64_t column, int64_t columns);
size_t MT_KERNEL(product_scratch)(int64_t k, int64_t rows, int64_t columns);
size_t MT_KERNEL(product_left_size)(int64_t k, int64_t rows);
mt_left_factor MT_KERNEL(product_left)(const mt_matmul *product, int64_t row, int64_t rows, void *copy);
int64_t MT_KERNEL(product_left_units)(const mt_matmul *product, int64_t rows);
void MT_KERNEL(product_pack_left)(const mt_matmul *product, int64_t row, int64_t rows, int64_t unit, void *left);
bool MT_KERNEL(product_block)(const mt_matmul *product, const mt_left_factor *left, int64_t row, int64_t rows,
                              int64_t column, int64_t columns, float *scratch);
void MT_KERNEL(to_elements)(int64_t count, const float *floats, void *elements);
size_t MT_KERNEL(attention_scratch)(int32_t head_dim, int32_t longest);
void MT_KERNEL(attention_forward)(const mt_attention *attention, int32_t segment, int32_t kv_head, float *scratch,
                                  void *output, int64_t output_stride, float *log_sum);
void MT_KERNEL(attention_backward)(const mt_attention *attention, const mt_attention_gradients *gradients,
                                   int32_t segment, int32_t kv_head, float *scratch);
void MT_KERNEL(attention_merge)(int64_t rows, int32_t heads, int32_t head_dim, const void *part,
                                int64_t part_stride, const float *part_log_sum, void *output, int64_t output_stride,
                                float *log_sum);
void MT_KERNEL(norm_forward)(const mt_norm *norm, void *output);
void MT_KERNEL(norm_backward)(const mt_norm *norm, const void *output_gradient, const void *residual,
                              void *input_gradient, float *weight_gradient, float *bias_gradient);
void MT_KERNEL(rotary)(void *rows, int64_t stride, int32_t heads, int32_t head_dim, int32_t begin, int32_t end,
                       const float *cosines, const float *sines, bool inverse);
void MT_KERNEL(gelu_forward)(int64_t count, const void *input, void *output);
void MT_KERNEL(gelu_backward)(int64_t count, const void *input, void *gradient, void *output);
void MT_KERNEL(swiglu_forward)(int64_t rows, int64_t columns, const void *gate_up, void *output);
void MT_KERNEL(swiglu_backward)(int64_t rows, int64_t columns, const void *gate_up, const void *output_gradient,
                                void *gate_up_gradient, void *output);
void MT_KERNEL(add_column_sums)(int64_t rows, int64_t columns, const void *data, int64_t stride, float *sums);
void MT_KERNEL(scale_columns)(int64_t rows, int64_t columns, const float *scale, const void *data, void *output);
void MT_KERNEL(add_floats)(int64_t count, const float *source, const void *base, void *output);
void MT_KERNEL(add_to_floats)(int64_t count, const void *source, float *sums);
void MT_KERNEL(to_floats)(int64_t count, const void *source, float *floats);
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
