/** @file Non-negative least squares on a handful of features. */
#ifndef MT_TRAIN_FIT_H
#define MT_TRAIN_FIT_H

#include "base/error.h"

#include <stdint.h>

enum { MT_FIT_FEATURES_MAX = 6 };

/**
 * Finds coefficients >= 0 that minimise the sum over rows of ((features * coefficients - target) / target)^2:
 * errors count by their share of what was measured. Exact: the best of all sets of features whose unconstrained
 * solution is non-negative. Targets must be positive.
 * @param features (rows, feature_count)
 */
motet_status mt_fit(const double *features, const double *targets, int32_t rows, int32_t feature_count,
                    motet_error *error, double *coefficients);

#endif
