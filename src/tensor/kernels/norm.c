/* LayerNorm and RMSNorm. Statistics are not kept for backward: a row in the nearest cache gives them again. */
#include "tensor/kernels/kernels.h"
#include "tensor/kernels/vector.h"

#include <math.h>

typedef struct statistics {
  float mean, inverse_deviation;
} statistics;

static statistics measure(const mt_norm *norm, const element *row) {
  const int64_t columns = norm->columns;
  float mean = 0;
  if (!norm->rms) {
    vec sum = splat(0.0F);
    for (int64_t c = 0; c < columns; c += LANES) sum += load_elements(row + c, columns - c);
    mean = lane_sum(sum) / (float)columns;
  }
  vec squares = splat(0.0F);
  for (int64_t c = 0; c < columns; c += LANES) {
    const vec x = load_elements(row + c, columns - c) - splat(mean);
    squares += columns - c < LANES ? some(x * x, columns - c) : x * x;
  }
  float variance = lane_sum(squares) / (float)columns;
  return (statistics){mean, 1.0F / sqrtf(variance + norm->epsilon)};
}

void MT_KERNEL(norm_forward)(const mt_norm *norm, void *output) {
  const int64_t columns = norm->columns;
  for (int64_t r = 0; r < norm->rows; r++) {
    const element *x = (const element *)norm->input + r * norm->stride;
    element *y = (element *)output + r * norm->stride;
    const statistics s = measure(norm, x);
    const vec mean = splat(s.mean), inverse = splat(s.inverse_deviation);
    for (int64_t c = 0; c < columns; c += LANES) {
      const int64_t left = columns - c;
      vec value = (load_elements(x + c, left) - mean) * inverse * load_some(norm->weight + c, left, 0.0F);
      if (norm->bias != NULL) value += load_some(norm->bias + c, left, 0.0F);
      store_elements(y + c, left, value);
    }
  }
}

void MT_KERNEL(norm_backward)(const mt_norm *norm, const void *output_gradient, const void *residual,
                              void *input_gradient, float *weight_gradient, float *bias_gradient) {
  const int64_t columns = norm->columns;
  for (int64_t r = 0; r < norm->rows; r++) {
    const element *x = (const element *)norm->input + r * norm->stride;
    const element *dy = (const element *)output_gradient + r * norm->stride;
    const statistics s = measure(norm, x);
    const vec mean = splat(s.mean), inverse = splat(s.inverse_deviation);
    /* With g = dy * weight and h the normalised row: dx = inverse (g - mean(g) - h mean(g h)). */
    vec sum_g = splat(0.0F), sum_gh = splat(0.0F);
    for (int64_t c = 0; c < columns; c += LANES) {
      const int64_t left = columns - c;
      const vec d = load_elements(dy + c, left), h = (load_elements(x + c, left) - mean) * inverse;
      const vec g = d * load_some(norm->weight + c, left, 0.0F);
      sum_g += g;
      sum_gh += g * h;
      if (weight_gradient != NULL)
        store_some(weight_gradient + c, left, load_some(weight_gradient + c, left, 0.0F) + d * h);
      if (bias_gradient != NULL) store_some(bias_gradient + c, left, load_some(bias_gradient + c, left, 0.0F) + d);
    }
    if (input_gradient == NULL) continue;
    const vec mean_g = splat(norm->rms ? 0.0F : lane_sum(sum_g) / (float)columns);
    const vec mean_gh = splat(lane_sum(sum_gh) / (float)columns);
    for (int64_t c = 0; c < columns; c += LANES) {
      const int64_t left = columns - c;
      const vec h = (load_elements(x + c, left) - mean) * inverse;
      const vec g = load_elements(dy + c, left) * load_some(norm->weight + c, left, 0.0F);
      vec dx = (g - mean_g - h * mean_gh) * inverse;
      if (residual != NULL) dx += load_elements((const element *)residual + r * norm->stride + c, left);
      store_elements((element *)input_gradient + r * norm->stride + c, left, dx);
    }
  }
}
