/** @file
 * oneDNN's products of float32, one thread at a time: what a team's threads call for blocks of a result. The
 * library would share out a product by threads of its own; a team has its own threads, and blocks that depend on
 * the shapes alone.
 */
#ifndef MT_TENSOR_ONEDNN_H
#define MT_TENSOR_ONEDNN_H

#include "base/error.h"

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct mt_onednn mt_onednn;

/** c (m, n) = op(a) op(b), or c += that; op(a) is (m, k), op(b) is (k, n), stored row-major with strides, as (k, m)
 * and (n, k) where transposed. c is float32. */
typedef struct mt_onednn_product {
  bool transpose_a, transpose_b, accumulate;
  int64_t m, n, k;
  const void *a, *b;
  float *c;
  int64_t a_stride, b_stride, c_stride;
} mt_onednn_product;

motet_status mt_onednn_create(motet_error *error, mt_onednn **library);
void mt_onednn_destroy(mt_onednn *library);

/** Any number of threads at once. False: the library refused. */
bool mt_onednn_multiply(mt_onednn *library, const mt_onednn_product *product);

/**
 * Keeps signals off the calling thread; whoever runs products does. The library's float32 kernels for AVX-512 point
 * the stack at memory from malloc() while they compute: a handler that runs then writes its frame over whatever
 * lies in front of it. @p before: the mask to give back with pthread_sigmask().
 */
void mt_onednn_hold_signals(sigset_t *before);

#endif
