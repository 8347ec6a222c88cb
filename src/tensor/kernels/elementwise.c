#include "tensor/kernels/kernels.h"
#include "tensor/kernels/vector.h"

#include <math.h>

void MT_KERNEL(rotary)(void *rows, int64_t stride, int32_t heads, int32_t head_dim, int32_t begin, int32_t end,
                       const float *cosines, const float *sines, bool inverse) {
  const int32_t half = head_dim / 2;
  const vec sign = splat(inverse ? -1.0F : 1.0F);
  for (int32_t r = begin; r < end; r++) {
    const float *cosine = cosines + (int64_t)(r - begin) * half, *sine = sines + (int64_t)(r - begin) * half;
    for (int32_t head = 0; head < heads; head++) {
      element *low = (element *)rows + r * stride + (int64_t)head * head_dim, *high = low + half;
      for (int32_t c = 0; c < half; c += LANES) {
        const vec a = load_elements(low + c, half - c), b = load_elements(high + c, half - c);
        const vec cs = load_some(cosine + c, half - c, 0.0F), sn = load_some(sine + c, half - c, 0.0F) * sign;
        store_elements(low + c, half - c, a * cs - b * sn);
        store_elements(high + c, half - c, b * cs + a * sn);
      }
    }
  }
}

/* Upper tail of the normal distribution at |x| times one sided sign: Phi(x) by Abramowitz and Stegun 7.1.26 for the
 * error function, absolute error 1e-7; *density gets exp(-x^2 / 2). */
KERNEL_INLINE vec normal_distribution(vec x, vec *density) {
  const vec positive = larger(x, -x), z = positive * splat(0.70710678F);
  const vec t = splat(1.0F) / (splat(1.0F) + splat(0.3275911F) * z);
  *density = exponential(-z * z);
  vec p = splat(1.061405429F);
  p = p * t + splat(-1.453152027F);
  p = p * t + splat(1.421413741F);
  p = p * t + splat(-0.284496736F);
  p = p * t + splat(0.254829592F);
  const vec tail = splat(0.5F) * p * t * *density;
  return choose(x > splat(0.0F), splat(1.0F) - tail, tail);
}

void MT_KERNEL(gelu_forward)(int64_t count, const void *input, void *output) {
  for (int64_t i = 0; i < count; i += LANES) {
    const vec x = load_elements((const element *)input + i, count - i);
    vec density;
    store_elements((element *)output + i, count - i, x * normal_distribution(x, &density));
  }
}

void MT_KERNEL(gelu_backward)(int64_t count, const void *input, void *gradient, void *output) {
  for (int64_t i = 0; i < count; i += LANES) {
    const vec x = load_elements((const element *)input + i, count - i);
    vec density;
    const vec distribution = normal_distribution(x, &density);
    const vec slope = distribution + x * density * splat(0.39894228F); /* Phi(x) + x phi(x) */
    element *g = (element *)gradient + i;
    store_elements(g, count - i, load_elements(g, count - i) * slope);
    if (output != NULL) store_elements((element *)output + i, count - i, x * distribution);
  }
}

KERNEL_INLINE vec sigmoid(vec x) { return splat(1.0F) / (splat(1.0F) + exponential(-x)); }

void MT_KERNEL(swiglu_forward)(int64_t rows, int64_t columns, const void *gate_up, void *output) {
  for (int64_t r = 0; r < rows; r++) {
    const element *gate = (const element *)gate_up + r * 2 * columns, *up = gate + columns;
    for (int64_t c = 0; c < columns; c += LANES) {
      const vec g = load_elements(gate + c, columns - c);
      store_elements((element *)output + r * columns + c, columns - c,
                     g * sigmoid(g) * load_elements(up + c, columns - c));
    }
  }
}

void MT_KERNEL(swiglu_backward)(int64_t rows, int64_t columns, const void *gate_up, const void *output_gradient,
                                void *gate_up_gradient, void *output) {
  for (int64_t r = 0; r < rows; r++) {
    const element *gate = (const element *)gate_up + r * 2 * columns, *up = gate + columns;
    element *gate_gradient = (element *)gate_up_gradient + r * 2 * columns, *up_gradient = gate_gradient + columns;
    for (int64_t c = 0; c < columns; c += LANES) {
      const int64_t left = columns - c;
      const vec g = load_elements(gate + c, left), u = load_elements(up + c, left);
      const vec d = load_elements((const element *)output_gradient + r * columns + c, left), s = sigmoid(g),
                silu = g * s;
      if (output != NULL) store_elements((element *)output + r * columns + c, left, silu * u);
      store_elements(up_gradient + c, left, d * silu);
      store_elements(gate_gradient + c, left, d * u * (s + silu * (splat(1.0F) - s)));
    }
  }
}

void MT_KERNEL(add_column_sums)(int64_t rows, int64_t columns, const void *data, int64_t stride, float *sums) {
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < columns; c += LANES) {
      const vec x = load_elements((const element *)data + r * stride + c, columns - c);
      store_some(sums + c, columns - c, load_some(sums + c, columns - c, 0.0F) + x);
    }
}

void MT_KERNEL(scale_columns)(int64_t rows, int64_t columns, const float *scale, const void *data, void *output) {
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < columns; c += LANES) {
      const int64_t left = columns - c, at = r * columns + c;
      const vec x = load_elements((const element *)data + at, left);
      store_elements((element *)output + at, left, load_some(scale + c, left, 0.0F) * x);
    }
}

void MT_KERNEL(add_floats)(int64_t count, const float *source, const void *base, void *output) {
  for (int64_t i = 0; i < count; i += LANES) {
    vec x = load_some(source + i, count - i, 0.0F);
    if (base != NULL) x += load_elements((const element *)base + i, count - i);
    store_elements((element *)output + i, count - i, x);
  }
}

void MT_KERNEL(add_to_floats)(int64_t count, const void *source, float *sums) {
  for (int64_t i = 0; i < count; i += LANES) {
    const vec x = load_elements((const element *)source + i, count - i);
    store_some(sums + i, count - i, load_some(sums + i, count - i, 0.0F) + x);
  }
}

void MT_KERNEL(to_floats)(int64_t count, const void *source, float *floats) {
  for (int64_t i = 0; i < count; i += LANES)
    store_some(floats + i, count - i, load_elements((const element *)source + i, count - i));
}

void MT_KERNEL(scaled_linear_gradients)(int64_t rows, int64_t columns, const float *product, const float *sums,
                                        const float *weight, const float *bias, const float *scale,
                                        float *weight_gradient, float *bias_gradient, float *scale_gradient) {
  for (int64_t r = 0; r < rows; r++) {
    const float *p = product + r * columns, *w = weight + r * columns;
    float *gradient = weight_gradient + r * columns;
    const vec s = splat(scale[r]);
    vec dot = splat(0.0F);
    for (int64_t c = 0; c < columns; c += LANES) {
      const int64_t left = columns - c;
      const vec x = load_some(p + c, left, 0.0F);
      dot += x * load_some(w + c, left, 0.0F);
      store_some(gradient + c, left, load_some(gradient + c, left, 0.0F) + s * x);
    }
    scale_gradient[r] += lane_sum(dot) + bias[r] * sums[r];
    bias_gradient[r] += scale[r] * sums[r];
  }
}

void MT_KERNEL(adamw)(int64_t count, const mt_adamw_step *step, bool decay, float *restrict value,
                      const float *restrict gradient, float *restrict first, float *restrict second) {
  const mt_adamw_step s = *step;
  const float keep = decay ? 1.0F - s.learning_rate * s.weight_decay : 1.0F;
  const float rate = s.learning_rate / s.correction1;
  for (int64_t i = 0; i < count; i++) {
    const float g = gradient[i] * s.gradient_scale;
    first[i] = s.beta1 * first[i] + (1.0F - s.beta1) * g;
    second[i] = s.beta2 * second[i] + (1.0F - s.beta2) * g * g;
    value[i] = value[i] * keep - rate * first[i] / (sqrtf(second[i]) / s.correction2 + s.epsilon);
  }
}

double MT_KERNEL(square_sum)(int64_t count, const float *data) {
  enum { CHUNK = 4096 }; /* float inside, double between: rounding stays below 1e-6 for any length */
  double total = 0;
  for (int64_t begin = 0; begin < count; begin += CHUNK) {
    const int64_t end = count - begin < CHUNK ? count : begin + CHUNK;
    vec sum = splat(0.0F);
    for (int64_t i = begin; i < end; i += LANES) {
      const vec x = load_some(data + i, end - i, 0.0F);
      sum += x * x;
    }
    total += (double)lane_sum(sum);
  }
  return total;
}
