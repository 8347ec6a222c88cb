/** @file
 * Products of small blocks in the nearest cache, for attention: c (m, n) = or += left (m, k) right (k, n), sums in
 * float32. Factors are float32, or bfloat16 where the processor multiplies those: it adds products of two
 * neighbours along k at a time, so that factors lie in groups of GROUP along k, padded with zeros.
 *
 *   left   (m, k) row-major, or across: (k / GROUP, m, GROUP)
 *   right  (k / GROUP, n, GROUP)
 *
 * With GROUP = 1 both are plain row-major, and across is the transposed.
 */
#ifndef MT_TENSOR_KERNELS_BLOCK_H
#define MT_TENSOR_KERNELS_BLOCK_H

#include "tensor/kernels/kernels.h"
#include "tensor/kernels/vector.h"

/* Rows of one register tile: with two vectors of columns each it fills half to all of the registers. */
#if MT_VECTOR_BYTES == 64
#define TILE_ROWS 8
#define FOR_ROWS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#else
#define TILE_ROWS 4
#define FOR_ROWS(X) X(0) X(1) X(2) X(3)
#endif

#ifdef MT_BFLOAT16_INSTRUCTIONS
enum { GROUP = 2 };
typedef element factor;
typedef __m512i factors; /* LANES groups */

KERNEL_INLINE factors load_factors(const factor *data) { return _mm512_loadu_si512(data); }
KERNEL_INLINE factors splat_factors(const factor *group) {
  int32_t both;
  memcpy(&both, group, sizeof both);
  return _mm512_set1_epi32(both);
}
KERNEL_INLINE vec add_products(vec sums, factors left, factors right) {
  return (vec)_mm512_dpbf16_ps((__m512)sums, (__m512bh)left, (__m512bh)right);
}

/* LANES elements of a row. */
KERNEL_INLINE void store_factors(factor *to, vec x) { *(half_memory *)to = narrow(x); }
/* LANES groups, of one vector each of GROUP neighbours along k. */
KERNEL_INLINE void store_groups(factor *to, const vec x[GROUP]) {
  const uvec low = __builtin_convertvector(narrow(x[0]), uvec), high = __builtin_convertvector(narrow(x[1]), uvec);
  _mm512_storeu_si512(to, (__m512i)(low | high << 16));
}
/* GROUP * LANES neighbours of a row. */
KERNEL_INLINE __m512i words_of(const vec x[GROUP]) {
  return (__m512i)_mm512_cvtne2ps_pbh((__m512)x[1], (__m512)x[0]);
}
#else
enum { GROUP = 1 };
typedef float factor;
typedef vec factors;

KERNEL_INLINE factors load_factors(const factor *data) { return load(data); }
KERNEL_INLINE factors splat_factors(const factor *group) { return splat(*group); }
KERNEL_INLINE vec add_products(vec sums, factors left, factors right) { return sums + left * right; }
KERNEL_INLINE void store_factors(factor *to, vec x) { store(to, x); }
KERNEL_INLINE void store_groups(factor *to, const vec x[GROUP]) { store(to, x[0]); }
#endif

/* c (TILE_ROWS, 2 vectors); left's group (i, p) lies at left[i * left_row + p * left_step]. */
static inline void tile_wide(int64_t groups, const factor *left, int64_t left_row, int64_t left_step,
                             const factor *right, int64_t right_step, float *c, int64_t c_stride, bool accumulate) {
#define DECLARE(i) vec x##i = splat(0.0F), y##i = splat(0.0F);
#define LOAD(i) x##i = load(c + i * c_stride), y##i = load(c + i * c_stride + LANES);
#define MULTIPLY(i)                                                                                                \
  {                                                                                                                \
    const factors s = splat_factors(left + i * left_row + p * left_step);                                          \
    x##i = add_products(x##i, s, near);                                                                            \
    y##i = add_products(y##i, s, far);                                                                             \
  }
#define STORE(i) store(c + i * c_stride, x##i), store(c + i * c_stride + LANES, y##i);
  FOR_ROWS(DECLARE)
  if (accumulate) {
    FOR_ROWS(LOAD)
  }
  for (int64_t p = 0; p < groups; p++) {
    const factors near = load_factors(right + p * right_step);
    const factors far = load_factors(right + p * right_step + LANES * GROUP);
    FOR_ROWS(MULTIPLY)
  }
  FOR_ROWS(STORE)
#undef DECLARE
#undef LOAD
#undef MULTIPLY
#undef STORE
}

/* The same for one vector of columns. */
static inline void tile_narrow(int64_t groups, const factor *left, int64_t left_row, int64_t left_step,
                               const factor *right, int64_t right_step, float *c, int64_t c_stride,
                               bool accumulate) {
#define DECLARE(i) vec x##i = splat(0.0F);
#define LOAD(i) x##i = load(c + i * c_stride);
#define MULTIPLY(i) x##i = add_products(x##i, splat_factors(left + i * left_row + p * left_step), column);
#define STORE(i) store(c + i * c_stride, x##i);
  FOR_ROWS(DECLARE)
  if (accumulate) {
    FOR_ROWS(LOAD)
  }
  for (int64_t p = 0; p < groups; p++) {
    const factors column = load_factors(right + p * right_step);
    FOR_ROWS(MULTIPLY)
  }
  FOR_ROWS(STORE)
#undef DECLARE
#undef LOAD
#undef MULTIPLY
#undef STORE
}

/* m is a multiple of TILE_ROWS, n of LANES, k of GROUP; right_columns is the n of right's layout. */
static inline void multiply(int64_t m, int64_t n, int64_t k, const factor *left, int64_t left_row,
                            int64_t left_step, const factor *right, int64_t right_columns, float *c,
                            int64_t c_stride, bool accumulate) {
  const int64_t groups = k / GROUP, right_step = right_columns * GROUP;
  int64_t column = 0;
  for (; column + 2 * LANES <= n; column += 2 * LANES)
    for (int64_t row = 0; row < m; row += TILE_ROWS)
      tile_wide(groups, left + row * left_row, left_row, left_step, right + column * GROUP, right_step,
                c + row * c_stride + column, c_stride, accumulate);
  for (; column < n; column += LANES)
    for (int64_t row = 0; row < m; row += TILE_ROWS)
      tile_narrow(groups, left + row * left_row, left_row, left_step, right + column * GROUP, right_step,
                  c + row * c_stride + column, c_stride, accumulate);
}

/* A vector of a source of elements or, with `is_float`, of float32. */
KERNEL_INLINE vec load_source(const void *source, bool is_float, int64_t at, int64_t left) {
  return is_float ? load_some((const float *)source + at, left, 0.0F)
                  : load_elements((const element *)source + at, left);
}

/* target (padded_rows, width), row-major, from source (rows, columns); width is whole vectors. */
static inline void pack_rows(const element *source, int64_t stride, int64_t rows, int64_t columns, factor *target,
                             int64_t padded_rows, int64_t width) {
  for (int64_t r = 0; r < padded_rows; r++) {
    factor *to = target + r * width;
    const int64_t filled = r < rows ? columns : 0;
    for (int64_t c = 0; c < width; c += LANES)
      store_factors(to + c, c < filled ? load_elements(source + r * stride + c, filled - c) : splat(0.0F));
  }
}

/* A right factor whose k are rows: target (padded_rows / GROUP, width, GROUP). */
static inline void pack_groups(const void *source, bool is_float, int64_t stride, int64_t rows, int64_t columns,
                               factor *target, int64_t padded_rows, int64_t width) {
  for (int64_t r = 0; r < padded_rows; r += GROUP)
    for (int64_t c = 0; c < width; c += LANES) {
      vec x[GROUP];
      for (int g = 0; g < GROUP; g++)
        x[g] = r + g < rows && c < columns ? load_source(source, is_float, (r + g) * stride + c, columns - c)
                                           : splat(0.0F);
      store_groups(target + r * width + c * GROUP, x);
    }
}

#if MT_VECTOR_BYTES == 64
#ifndef MT_BFLOAT16_INSTRUCTIONS
KERNEL_INLINE __m512i words_of(const vec x[GROUP]) { return (__m512i)x[0]; }
#endif

/* 16 vectors of 16 words become their transposed. */
KERNEL_INLINE void transpose(__m512i x[16]) {
  __m512i y[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    y[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
    y[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) { /* x[i + j]: column j of each quarter, of rows i to i + 3 */
    x[i] = _mm512_unpacklo_epi64(y[i], y[i + 2]);
    x[i + 1] = _mm512_unpackhi_epi64(y[i], y[i + 2]);
    x[i + 2] = _mm512_unpacklo_epi64(y[i + 1], y[i + 3]);
    x[i + 3] = _mm512_unpackhi_epi64(y[i + 1], y[i + 3]);
  }
#pragma GCC unroll 4
  for (int j = 0; j < 4; j++) {
    const __m512i a = _mm512_shuffle_i32x4(x[j], x[j + 4], 0x88), b = _mm512_shuffle_i32x4(x[j], x[j + 4], 0xdd);
    const __m512i c = _mm512_shuffle_i32x4(x[j + 8], x[j + 12], 0x88);
    const __m512i d = _mm512_shuffle_i32x4(x[j + 8], x[j + 12], 0xdd);
    y[j] = _mm512_shuffle_i32x4(a, c, 0x88);
    y[j + 4] = _mm512_shuffle_i32x4(b, d, 0x88);
    y[j + 8] = _mm512_shuffle_i32x4(a, c, 0xdd);
    y[j + 12] = _mm512_shuffle_i32x4(b, d, 0xdd);
  }
  memcpy(x, y, sizeof y);
}

/* A right factor whose n are rows, the first `padded_rows` of them, and whose k are columns: target (width / GROUP,
 * padded_rows, GROUP). */
static inline void pack_transposed(const void *source, bool is_float, int64_t stride, int64_t rows, int64_t columns,
                                   factor *target, int64_t padded_rows, int64_t width) {
  for (int64_t r = 0; r < padded_rows; r += 16)
    for (int64_t c = 0; c < width; c += 16 * GROUP) {
      __m512i x[16];
      for (int i = 0; i < 16; i++) {
        vec line[GROUP];
        for (int g = 0; g < GROUP; g++) {
          const int64_t left = columns - c - g * LANES;
          line[g] = r + i < rows && left > 0 ? load_source(source, is_float, (r + i) * stride + c + g * LANES, left)
                                             : splat(0.0F);
        }
        x[i] = words_of(line);
      }
      transpose(x);
      for (int i = 0; i < 16 && c + i * GROUP < width; i++)
        _mm512_storeu_si512(target + (c + i * GROUP) * padded_rows + r * GROUP, x[i]);
    }
}
#else
static inline void pack_transposed(const void *source, bool is_float, int64_t stride, int64_t rows, int64_t columns,
                                   factor *target, int64_t padded_rows, int64_t width) {
  memset(target, 0, (size_t)(width * padded_rows) * sizeof *target);
  for (int64_t r = 0; r < rows && r < padded_rows; r++)
    for (int64_t c = 0; c < columns; c += LANES) {
      float lanes[LANES];
      store(lanes, load_source(source, is_float, r * stride + c, columns - c));
      for (int64_t i = 0; i < LANES && c + i < columns; i++) target[(c + i) * padded_rows + r] = lanes[i];
    }
}
#endif

#endif
