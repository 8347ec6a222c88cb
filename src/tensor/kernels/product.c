/* What is done to a product's sums on their way to the result, and numbers on their way into products. */
#include "tensor/kernels/kernels.h"
#include "tensor/kernels/vector.h"

void MT_KERNEL(product_finish)(const mt_matmul *p, const float *sums, int64_t stride, int64_t row, int64_t rows,
                               int64_t column, int64_t columns) {
  for (int64_t r = 0; r < rows; r++) {
    const float *from = sums + r * stride;
    const int64_t at = (row + r) * p->c_stride + column;
    for (int64_t c = 0; c < columns; c += LANES) {
      const int64_t left = columns - c;
      vec x = load_some(from + c, left, 0.0F);
      if (p->bias != NULL) x += load_some(p->bias + column + c, left, 0.0F);
      if (p->scale != NULL) x *= load_some(p->scale + column + c, left, 0.0F);
      if (p->base != NULL)
        x += load_elements((const element *)p->base + (row + r) * p->base_stride + column + c, left);
      if (p->c_float) {
        float *to = (float *)p->c + at + c;
        if (p->accumulate) x += load_some(to, left, 0.0F);
        store_some(to, left, x);
      } else {
        element *to = (element *)p->c + at + c;
        if (p->accumulate) x += load_elements(to, left);
        store_elements(to, left, x);
      }
    }
  }
}

void MT_KERNEL(to_elements)(int64_t count, const float *floats, void *elements) {
  for (int64_t i = 0; i < count; i += LANES)
    store_elements((element *)elements + i, count - i, load_some(floats + i, count - i, 0.0F));
}
