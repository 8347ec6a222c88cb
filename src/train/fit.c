#include "train/fit.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

/** Solves the symmetric system of the chosen features by elimination with pivots; false where it is singular. */
static bool solve(double matrix[][MT_FIT_FEATURES_MAX + 1], int32_t size) {
  for (int32_t column = 0; column < size; column++) {
    int32_t pivot = column;
    for (int32_t row = column + 1; row < size; row++)
      if (fabs(matrix[row][column]) > fabs(matrix[pivot][column])) pivot = row;
    double largest = matrix[pivot][column];
    if (fabs(largest) < 1e-12) return false; /* features are scaled to about 1 */
    for (int32_t k = 0; k <= size; k++) {
      double swap = matrix[column][k];
      matrix[column][k] = matrix[pivot][k];
      matrix[pivot][k] = swap;
    }
    for (int32_t row = 0; row < size; row++) {
      if (row == column) continue;
      double factor = matrix[row][column] / matrix[column][column];
      for (int32_t k = column; k <= size; k++) matrix[row][k] -= factor * matrix[column][k];
    }
  }
  return true;
}

typedef struct system {
  const double *features, *targets;
  int32_t rows, feature_count;
  double scale[MT_FIT_FEATURES_MAX];
} system;

/** Feature of a row over its target, scaled by the feature's largest such value. */
static double entry(const system *this, int32_t row, int32_t feature) {
  double scale = this->scale[feature];
  return scale > 0 ? this->features[row * this->feature_count + feature] / this->targets[row] / scale : 0;
}

/** Least squares over the features in @p set; the error of the fit, or -1 where it has no solution >= 0. */
static double fit_set(const system *this, uint32_t set, double *coefficients) {
  double matrix[MT_FIT_FEATURES_MAX][MT_FIT_FEATURES_MAX + 1] = {{0}};
  int32_t chosen[MT_FIT_FEATURES_MAX], size = 0;
  for (int32_t i = 0; i < this->feature_count; i++)
    if ((set >> i & 1) != 0) chosen[size++] = i;
  for (int32_t i = 0; i < size; i++)
    for (int32_t row = 0; row < this->rows; row++) {
      for (int32_t j = 0; j < size; j++) matrix[i][j] += entry(this, row, chosen[i]) * entry(this, row, chosen[j]);
      matrix[i][size] += entry(this, row, chosen[i]);
    }
  if (!solve(matrix, size)) return -1;
  double sum = 0, solution[MT_FIT_FEATURES_MAX] = {0};
  for (int32_t i = 0; i < size; i++) {
    solution[i] = matrix[i][size] / matrix[i][i];
    if (!(solution[i] >= 0)) return -1;
  }
  for (int32_t row = 0; row < this->rows; row++) {
    double error = -1;
    for (int32_t i = 0; i < size; i++) error += solution[i] * entry(this, row, chosen[i]);
    sum += error * error;
  }
  memset(coefficients, 0, (size_t)this->feature_count * sizeof *coefficients);
  for (int32_t i = 0; i < size; i++) coefficients[chosen[i]] = solution[i] / this->scale[chosen[i]];
  return sum;
}

motet_status mt_fit(const double *features, const double *targets, int32_t rows, int32_t feature_count,
                    motet_error *error, double *coefficients) {
  if (rows < 1 || feature_count < 1 || feature_count > MT_FIT_FEATURES_MAX)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT, "a fit needs measurements, and 1 to %d features",
                        (int)MT_FIT_FEATURES_MAX);
  system this = {.features = features, .targets = targets, .rows = rows, .feature_count = feature_count};
  for (int32_t row = 0; row < rows; row++) {
    if (!(targets[row] > 0) || !isfinite(targets[row]))
      return mt_error_set(error, MOTET_ERROR_ARGUMENT, "measurement %d is %g; times must be positive", (int)row + 1,
                          targets[row]);
    for (int32_t i = 0; i < feature_count; i++)
      this.scale[i] = fmax(this.scale[i], fabs(features[row * feature_count + i] / targets[row]));
  }
  double best = -1;
  for (uint32_t set = 1; set < 1u << feature_count; set++) {
    double candidate[MT_FIT_FEATURES_MAX];
    double sum = fit_set(&this, set, candidate);
    /* Fewer features win a tie: sets are visited by number, and a larger set must be better by more than noise. */
    if (sum < 0 || (best >= 0 && sum >= best * (1 - 1e-9))) continue;
    best = sum;
    memcpy(coefficients, candidate, (size_t)feature_count * sizeof *coefficients);
  }
  if (best < 0) return mt_error_set(error, MOTET_ERROR_ARGUMENT, "the measurements determine no fit");
  return MOTET_OK;
}
