/** @file Matrix products on a team's threads. */
#ifndef MT_TENSOR_MATMUL_H
#define MT_TENSOR_MATMUL_H

#include "tensor/backend.h"
#include "tensor/team.h"

/** Computes the product. Its bits do not depend on the number of threads. */
motet_status mt_matmul_run(const mt_tensor_backend *backend, mt_team *team, const mt_matmul *product,
                           motet_error *error);

#endif
