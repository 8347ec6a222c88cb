#include "tensor/kernels/kernels.h"
#include "tensor/kernels/vector.h"

#include <math.h>

double MT_KERNEL(cross_entropy_forward)(int64_t rows, int64_t columns, const float *logits, const int32_t *targets,
                                        float *log_sum) {
  enum { CHUNK = 2048 }; /* float inside a chunk, double between: vocabularies have 150,000 words */
  double loss = 0;
  for (int64_t r = 0; r < rows; r++) {
    const float *row = logits + r * columns;
    vec top = splat(-INFINITY);
    for (int64_t c = 0; c < columns; c += LANES) top = larger(top, load_some(row + c, columns - c, -INFINITY));
    const float maximum = lane_maximum(top);
    double sum = 0;
    for (int64_t begin = 0; begin < columns; begin += CHUNK) {
      const int64_t end = columns - begin < CHUNK ? columns : begin + CHUNK;
      vec part = splat(0.0F);
      for (int64_t c = begin; c < end; c += LANES)
        part += exponential(load_some(row + c, end - c, -INFINITY) - splat(maximum));
      sum += (double)lane_sum(part);
    }
    const double value = (double)maximum + log(sum);
    log_sum[r] = (float)value;
    loss += value - (double)row[targets[r]];
  }
  return loss;
}

void MT_KERNEL(cross_entropy_backward)(int64_t rows, int64_t columns, float *logits, const int32_t *targets,
                                       const float *log_sum, float weight) {
  for (int64_t r = 0; r < rows; r++) {
    float *row = logits + r * columns;
    const vec shift = splat(log_sum[r]), factor = splat(weight);
    for (int64_t c = 0; c < columns; c += LANES)
      store_some(row + c, columns - c, exponential(load_some(row + c, columns - c, 0.0F) - shift) * factor);
    row[targets[r]] -= weight;
  }
}
