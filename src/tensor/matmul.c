/*
 * The library's plain product, not its primitives: it is as fast (both near the processor's peak), and packed
 * rows give a new shape with nearly every microbatch, for which a primitive would have to be made.
 */
#include "tensor/matmul.h"

#include <oneapi/dnnl/dnnl.h>

motet_status mt_matmul_run(const mt_matmul *product, motet_error *error) {
  if (product->m == 0 || product->n == 0 || (product->k == 0 && product->accumulate)) return MOTET_OK;
  dnnl_status_t status =
      dnnl_sgemm(product->transpose_a ? 'T' : 'N', product->transpose_b ? 'T' : 'N', product->m, product->n,
                 product->k, 1.0F, product->a, product->a_stride, product->b, product->b_stride,
                 product->accumulate ? 1.0F : 0.0F, product->c, product->c_stride);
  if (status == dnnl_success) return MOTET_OK;
  return mt_error_set(error, status == dnnl_out_of_memory ? MOTET_ERROR_MEMORY : MOTET_ERROR_FAILED,
                      "oneDNN refused the product (%lld, %lld) x (%lld, %lld): code %d", (long long)product->m,
                      (long long)product->k, (long long)product->k, (long long)product->n, (int)status);
}
