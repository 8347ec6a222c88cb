#include "tensor/kernels/kernels.h"
#include "tensor/kernels/vector.h"

const mt_tensor_backend MT_KERNEL_TABLE(MT_KERNEL_SET) = {
    .name = MT_KERNEL_TEXT(MT_KERNEL_SET),
#ifdef MT_BFLOAT16
    .element = MT_ELEMENT_BFLOAT16,
#else
    .element = MT_ELEMENT_FLOAT32,
#endif
    .product_finish = MT_KERNEL(product_finish),
#ifdef MT_BFLOAT16_INSTRUCTIONS
    .product_scratch = MT_KERNEL(product_scratch),
    .product_left_size = MT_KERNEL(product_left_size),
    .product_left = MT_KERNEL(product_left),
    .product_left_units = MT_KERNEL(product_left_units),
    .product_pack_left = MT_KERNEL(product_pack_left),
    .product_block = MT_KERNEL(product_block),
#endif
    .to_elements = MT_KERNEL(to_elements),
    .attention_scratch = MT_KERNEL(attention_scratch),
    .attention_forward = MT_KERNEL(attention_forward),
    .attention_backward = MT_KERNEL(attention_backward),
    .attention_merge = MT_KERNEL(attention_merge),
    .norm_forward = MT_KERNEL(norm_forward),
    .norm_backward = MT_KERNEL(norm_backward),
    .rotary = MT_KERNEL(rotary),
    .gelu_forward = MT_KERNEL(gelu_forward),
    .gelu_backward = MT_KERNEL(gelu_backward),
    .swiglu_forward = MT_KERNEL(swiglu_forward),
    .swiglu_backward = MT_KERNEL(swiglu_backward),
    .add_column_sums = MT_KERNEL(add_column_sums),
    .scale_columns = MT_KERNEL(scale_columns),
    .add_floats = MT_KERNEL(add_floats),
    .add_to_floats = MT_KERNEL(add_to_floats),
    .to_floats = MT_KERNEL(to_floats),
    .scaled_linear_gradients = MT_KERNEL(scaled_linear_gradients),
    .cross_entropy_forward = MT_KERNEL(cross_entropy_forward),
    .cross_entropy_backward = MT_KERNEL(cross_entropy_backward),
    .adamw = MT_KERNEL(adamw),
    .square_sum = MT_KERNEL(square_sum),
};
