/** @file
 * Vectors by the compilers' portable extension, and by intrinsics where it has no words. Sums over lanes have one
 * fixed order, so that a table gives the same bits whatever the data's alignment.
 *
 * MT_BFLOAT16: elements are bfloat16, else float32. MT_BFLOAT16_INSTRUCTIONS: the processor rounds to them and
 * multiplies them itself (AVX-512 BF16).
 */
#ifndef MT_TENSOR_KERNELS_VECTOR_H
#define MT_TENSOR_KERNELS_VECTOR_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#if MT_VECTOR_BYTES == 64
#include <immintrin.h>
#endif
#if defined(MT_BFLOAT16) && defined(__AVX512BF16__)
#define MT_BFLOAT16_INSTRUCTIONS
#endif

enum { LANES = MT_VECTOR_BYTES / 4 };

typedef float vec __attribute__((vector_size(MT_VECTOR_BYTES)));
typedef int32_t ivec __attribute__((vector_size(MT_VECTOR_BYTES)));
typedef uint32_t uvec __attribute__((vector_size(MT_VECTOR_BYTES)));
typedef float vec_memory __attribute__((vector_size(MT_VECTOR_BYTES), aligned(4), may_alias));

#define KERNEL_INLINE static inline __attribute__((always_inline, unused))

KERNEL_INLINE vec load(const float *data) { return *(const vec_memory *)data; }
KERNEL_INLINE void store(float *data, vec x) { *(vec_memory *)data = x; }

#if MT_VECTOR_BYTES == 64
KERNEL_INLINE __mmask16 lanes_left(int64_t left) { return (__mmask16)(left <= 0 ? 0U : (1U << left) - 1U); }
#endif

KERNEL_INLINE vec splat(float x) {
#if MT_VECTOR_BYTES == 64
  return (vec){x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x};
#elif MT_VECTOR_BYTES == 32
  return (vec){x, x, x, x, x, x, x, x};
#else
  return (vec){x, x, x, x};
#endif
}

/* The vector at `data` of which `left` lanes remain in the array; absent lanes hold `fill`. */
KERNEL_INLINE vec load_some(const float *data, int64_t left, float fill) {
  if (left >= LANES) return load(data);
#if MT_VECTOR_BYTES == 64
  return (vec)_mm512_mask_loadu_ps(_mm512_set1_ps(fill), lanes_left(left), data);
#else
  float lanes[LANES];
  for (int i = 0; i < LANES; i++) lanes[i] = i < left ? data[i] : fill;
  return load(lanes);
#endif
}

KERNEL_INLINE void store_some(float *data, int64_t left, vec x) {
  if (left >= LANES) {
    store(data, x);
    return;
  }
#if MT_VECTOR_BYTES == 64
  _mm512_mask_storeu_ps(data, lanes_left(left), (__m512)x);
#else
  float lanes[LANES];
  store(lanes, x);
  for (int i = 0; i < left; i++) data[i] = lanes[i];
#endif
}

/* Zeros from lane `left` on. */
KERNEL_INLINE vec some(vec x, int64_t left) {
  float lanes[LANES] = {0};
  store_some(lanes, left, x);
  return load(lanes);
}

KERNEL_INLINE vec choose(ivec mask, vec yes, vec no) { return (vec)((mask & (ivec)yes) | (~mask & (ivec)no)); }

/*
 * Elements: what activations are stored as. bfloat16 is the upper half of a float32; numbers are rounded to the
 * nearest on their way there, ties to even, and what is not a number stays so.
 */
#ifdef MT_BFLOAT16
typedef uint16_t element;
typedef uint16_t half_vec __attribute__((vector_size(MT_VECTOR_BYTES / 2)));
typedef uint16_t half_memory __attribute__((vector_size(MT_VECTOR_BYTES / 2), aligned(2), may_alias));

KERNEL_INLINE vec widen(half_vec x) { return (vec)(__builtin_convertvector(x, uvec) << 16); }

#ifdef MT_BFLOAT16_INSTRUCTIONS
KERNEL_INLINE half_vec narrow(vec x) { return (half_vec)_mm512_cvtneps_pbh((__m512)x); } /* denormals become 0 */
#else
KERNEL_INLINE half_vec narrow(vec x) {
  const uvec bits = (uvec)x, rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16, quiet = bits >> 16 | 0x40;
  return __builtin_convertvector((uvec)choose(x == x, (vec)rounded, (vec)quiet), half_vec);
}
#endif

KERNEL_INLINE half_vec load_halves(const element *data, int64_t left) {
  if (left >= LANES) return *(const half_memory *)data;
  element lanes[LANES] = {0};
  for (int i = 0; i < left; i++) lanes[i] = data[i];
  return *(const half_memory *)lanes;
}

KERNEL_INLINE vec load_elements(const element *data, int64_t left) { return widen(load_halves(data, left)); }

KERNEL_INLINE void store_elements(element *data, int64_t left, vec x) {
  const half_vec halves = narrow(x);
  if (left >= LANES) {
    *(half_memory *)data = halves;
    return;
  }
  element lanes[LANES];
  *(half_memory *)lanes = halves;
  for (int i = 0; i < left; i++) data[i] = lanes[i];
}

#else
typedef float element;

KERNEL_INLINE vec load_elements(const element *data, int64_t left) { return load_some(data, left, 0.0F); }
KERNEL_INLINE void store_elements(element *data, int64_t left, vec x) { store_some(data, left, x); }
#endif

#if MT_VECTOR_BYTES == 64
/* As written out below: of a pair with one that is not a number, the second. */
KERNEL_INLINE vec larger(vec a, vec b) { return (vec)_mm512_max_ps((__m512)a, (__m512)b); }
KERNEL_INLINE vec smaller(vec a, vec b) { return (vec)_mm512_min_ps((__m512)a, (__m512)b); }

KERNEL_INLINE float lane_sum(vec x) { return _mm512_reduce_add_ps((__m512)x); }
KERNEL_INLINE float lane_maximum(vec x) { return _mm512_reduce_max_ps((__m512)x); }
#else
KERNEL_INLINE vec larger(vec a, vec b) { return choose(a > b, a, b); }
KERNEL_INLINE vec smaller(vec a, vec b) { return choose(a < b, a, b); }

KERNEL_INLINE float lane_sum(vec x) {
  float lanes[LANES];
  store(lanes, x);
  for (int width = LANES / 2; width > 0; width /= 2)
    for (int i = 0; i < width; i++) lanes[i] += lanes[i + width];
  return lanes[0];
}

KERNEL_INLINE float lane_maximum(vec x) {
  float lanes[LANES];
  store(lanes, x);
  for (int i = 1; i < LANES; i++) lanes[0] = lanes[i] > lanes[0] ? lanes[i] : lanes[0];
  return lanes[0];
}
#endif

/*
 * exp to about one unit in the last place: x = n log 2 + r, the fifth-degree polynomial of Cephes on
 * |r| <= log 2 / 2, 2^n by the exponent bits. Below -87.33 it gives exactly 0, above 88 the value there; what is
 * not a number stays so, or a diverged model would look healthy.
 */
KERNEL_INLINE vec exponential(vec x) {
#if MT_VECTOR_BYTES == 64
  const __mmask16 counts = _mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(-87.33F), _CMP_NLE_UQ);
#else
  const vec given = x;
  const ivec normal = x > splat(-87.33F), number = x == x;
#endif
  x = larger(splat(-87.33F), smaller(splat(88.0F), x)); /* the given one where it is not a number */
  const vec round = splat(12582912.0F);                 /* 1.5 * 2^23: adding it rounds to a whole number */
  vec n = (x * splat(1.44269504F) + round) - round;
  vec r = x - n * splat(0.693359375F);
  r = r - n * splat(-2.12194440e-4F);
  vec p = splat(1.9875691500e-4F);
  p = p * r + splat(1.3981999507e-3F);
  p = p * r + splat(8.3334519073e-3F);
  p = p * r + splat(4.1665795894e-2F);
  p = p * r + splat(1.6666665459e-1F);
  p = p * r + splat(5.0000001201e-1F);
  p = p * (r * r) + r + splat(1.0F);
#if MT_VECTOR_BYTES == 64
  return (vec)_mm512_maskz_scalef_ps(counts, (__m512)p, (__m512)n);
#else
  ivec power = (__builtin_convertvector(n, ivec) + 127) << 23;
  return choose(number, (vec)((ivec)(p * (vec)power) & normal), given);
#endif
}

KERNEL_INLINE float exponential_one(float x) {
  float lanes[LANES];
  store(lanes, exponential(splat(x)));
  return lanes[0];
}

#endif
