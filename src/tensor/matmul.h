/** @file Matrix products by oneDNN. */
#ifndef MT_TENSOR_MATMUL_H
#define MT_TENSOR_MATMUL_H

#include "tensor/backend.h"

motet_status mt_matmul_run(const mt_matmul *product, motet_error *error);

#endif
