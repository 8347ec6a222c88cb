#include "tensor/xsmm.h"

#include <libxsmm.h>

/* The library's matrices are stored by columns: our rows are its columns, our right factor its left one. */
static libxsmm_bsmmfunction find(const mt_xsmm_block *block) {
  const libxsmm_blasint left_stride = (libxsmm_blasint)block->left_stride,
                        c_stride = (libxsmm_blasint)block->c_stride, columns = MT_XSMM_COLUMNS;
  const float one = 1.0F, beta = block->accumulate ? 1.0F : 0.0F;
  const int flags = LIBXSMM_GEMM_FLAG_VNNI_A, prefetch = LIBXSMM_GEMM_PREFETCH_NONE;
  return libxsmm_bsmmdispatch(columns, (libxsmm_blasint)block->rows, (libxsmm_blasint)block->depth, &columns,
                              &left_stride, &c_stride, &one, &beta, &flags, &prefetch);
}

bool mt_xsmm_multiplies(void) {
  const mt_xsmm_block any = {.rows = 1, .depth = 2, .left_stride = 2, .c_stride = MT_XSMM_COLUMNS};
  return libxsmm_get_target_archid() >= LIBXSMM_X86_AVX512_CPX && find(&any) != NULL;
}

bool mt_xsmm_multiply(const mt_xsmm_block *block) {
  const libxsmm_bsmmfunction multiply = find(block);
  if (multiply != NULL) multiply(block->right, block->left, block->c);
  return multiply != NULL;
}
