/** @file
 * Seconds of a product of matrices on a device: whole tiles in whole waves over its compute units, or, where those
 * are not known, an efficiency that the smallest side decides; never faster than memory moves the matrices.
 */
#ifndef MT_COST_PRODUCT_H
#define MT_COST_PRODUCT_H

#include "cluster/cluster.h"

#include <stdbool.h>

/** `copies` products of (rows, depth) by (depth, columns). */
typedef struct mt_product_shape {
  double rows, columns, depth, copies;
  bool float8; /* operands of one byte, at the device's peak for them */
} mt_product_shape;

double mt_product_seconds(const mt_device *device, const mt_product_shape *shape);

#endif
