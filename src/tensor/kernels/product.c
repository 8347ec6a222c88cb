/* What is done to a product's sums on their way to the result, and numbers on their way into products; products of
 * bfloat16 where the processor has instructions for them. */
#include "tensor/kernels/block.h"

void MT_KERNEL(product_finish)(const mt_matmul *p, const float *sums, int64_t stride, int64_t row, int64_t rows,
                               int64_t column, int64_t columns) {
  for (int64_t r = 0; r < rows; r++) {
    const float *from = sums + r * stride;
    const int64_t at = (row + r) * p->c_stride + column;
    for (int64_t c = 0; c < columns; c += LANES) {
      const int64_t left = columns - c;
      vec x = load_some(from + c, left, 0.0F);
      if (p->bias != NULL) x += load_some(p->bias + column + c, left, 0.0F);
      if (p->scale != NULL) x *= load_some(p->scale + column + c, left, 0.0F);
      if (p->base != NULL)
        x += load_elements((const element *)p->base + (row + r) * p->base_stride + column + c, left);
      if (p->c_float) {
        float *to = (float *)p->c + at + c;
        if (p->accumulate) x += load_some(to, left, 0.0F);
        store_some(to, left, x);
      } else {
        element *to = (element *)p->c + at + c;
        if (p->accumulate) x += load_elements(to, left);
        store_elements(to, left, x);
      }
    }
  }
}

void MT_KERNEL(to_elements)(int64_t count, const float *floats, void *elements) {
  for (int64_t i = 0; i < count; i += LANES)
    store_elements((element *)elements + i, count - i, load_some(floats + i, count - i, 0.0F));
}

#ifdef MT_BFLOAT16_INSTRUCTIONS
/*
 * A block of the result is computed panel by panel, of PANEL columns, whose right factor is packed first: while it
 * stays in the second cache, a few rows of the left factor at a time stay in the first one. Sums over more than
 * DEPTH are added up chunk by chunk.
 */
enum { ROWS = 6, VECTORS = 4, PANEL = VECTORS * 16, DEPTH = 2048, LINES = 32 };

static int64_t even(int64_t count) { return (count + 1) / 2 * 2; }

/* c (rows, PANEL) = or += left (rows, groups) right (groups, PANEL); `rows` is a constant where this is inlined. */
KERNEL_INLINE void multiply_rows(int rows, int64_t groups, const element *left, int64_t row_step,
                                 int64_t group_step, const element *right, float *c, int64_t stride,
                                 bool accumulate) {
  vec x[ROWS][VECTORS];
#pragma GCC unroll 6
  for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
    for (int j = 0; j < VECTORS; j++) x[i][j] = splat(0.0F);
  for (int64_t p = 0; p < groups; p++, left += group_step, right += PANEL * GROUP) {
    factors columns[VECTORS];
#pragma GCC unroll 4
    for (int j = 0; j < VECTORS; j++) columns[j] = load_factors(right + j * LANES * GROUP);
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++) {
      const factors row = splat_factors(left + i * row_step);
#pragma GCC unroll 4
      for (int j = 0; j < VECTORS; j++) x[i][j] = add_products(x[i][j], row, columns[j]);
    }
  }
#pragma GCC unroll 6
  for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
    for (int j = 0; j < VECTORS; j++) {
      float *to = c + i * stride + j * LANES;
      store(to, accumulate ? load(to) + x[i][j] : x[i][j]);
    }
}

static void multiply_panel(int64_t rows, int64_t groups, const element *left, int64_t row_step, int64_t group_step,
                           const element *right, float *c, int64_t stride, bool accumulate) {
#define CASE(count)                                                                                                \
  case count: multiply_rows(count, groups, left, row_step, group_step, right, c, stride, accumulate); break;
  switch (rows) {
    CASE(1)
    CASE(2)
    CASE(3)
    CASE(4)
    CASE(5)
    CASE(ROWS)
  }
#undef CASE
}

size_t MT_KERNEL(product_scratch)(int64_t k, int64_t rows, int64_t columns) {
  const int64_t panels = (columns + PANEL - 1) / PANEL, deep = even(k < DEPTH ? k : DEPTH);
  const int64_t sums = k > DEPTH ? rows * panels * PANEL : ROWS * PANEL;
  return (size_t)(panels * PANEL * deep / 2 + sums);
}

int64_t MT_KERNEL(product_left_units)(const mt_matmul *product, int64_t rows) {
  return ((product->transpose_a ? product->k : rows) + LINES - 1) / LINES;
}

void MT_KERNEL(product_pack_left)(const mt_matmul *product, int64_t row, int64_t rows, int64_t unit, void *left) {
  const int64_t line = unit * LINES, lines = product->transpose_a ? product->k : rows;
  const int64_t count = lines - line < LINES ? lines - line : LINES, width = even(product->k);
  if (product->transpose_a) {
    const int64_t at = line * product->a_stride + row;
    const void *from = product->a_float ? (const void *)((const float *)product->a + at)
                                        : (const void *)((const element *)product->a + at);
    for (int64_t g = 0; g < count; g += GROUP)
      for (int64_t c = 0; c < rows; c += LANES) {
        vec x[GROUP];
        for (int i = 0; i < GROUP; i++)
          x[i] = g + i < count ? load_source(from, product->a_float, (g + i) * product->a_stride + c, rows - c)
                               : splat(0.0F);
        element *to = (element *)left + (line + g) * rows + c * GROUP;
        if (rows - c >= LANES) {
          store_groups(to, x);
          continue;
        }
        element some[LANES * GROUP];
        store_groups(some, x);
        memcpy(to, some, (size_t)((rows - c) * GROUP) * sizeof *some);
      }
    return;
  }
  for (int64_t r = line; r < line + count; r++) {
    element *to = (element *)left + r * width;
    for (int64_t c = 0; c < product->k; c += LANES)
      store_elements(to + c, product->k - c,
                     load_source(product->a, product->a_float, (row + r) * product->a_stride + c, product->k - c));
    if (width > product->k) to[product->k] = 0;
  }
}

/* The right factor's columns [column, column + columns), k from `begin` on, as panels. */
static void pack_right(const mt_matmul *product, int64_t begin, int64_t deep, int64_t column, int64_t columns,
                       element *right) {
  for (int64_t c = 0; c < columns; c += PANEL, right += PANEL * even(deep)) {
    const int64_t at =
        product->transpose_b ? (column + c) * product->b_stride + begin : begin * product->b_stride + column + c;
    const void *from = product->b_float ? (const void *)((const float *)product->b + at)
                                        : (const void *)((const element *)product->b + at);
    if (product->transpose_b)
      pack_transposed(from, product->b_float, product->b_stride, columns - c, deep, right, PANEL, even(deep));
    else
      pack_groups(from, product->b_float, product->b_stride, deep, columns - c, right, even(deep), PANEL);
  }
}

void MT_KERNEL(product_block)(const mt_matmul *product, const mt_left_factor *given, int64_t row, int64_t rows,
                              int64_t column, int64_t columns, float *scratch) {
  const int64_t k = product->k, panels = (columns + PANEL - 1) / PANEL;
  const bool whole = k > DEPTH; /* sums of the whole block are kept */
  element *const right = (element *)(void *)scratch;
  float *const sums = scratch + panels * PANEL * even(whole ? DEPTH : k) / 2;
  const bool straight =
      product->c_float && product->bias == NULL && product->scale == NULL && product->base == NULL;
  for (int64_t begin = 0; begin < k; begin += DEPTH) {
    const int64_t deep = k - begin < DEPTH ? k - begin : DEPTH;
    const bool last = begin + deep == k;
    pack_right(product, begin, deep, column, columns, right);
    for (int64_t r = 0; r < rows; r += ROWS) {
      const int64_t count = rows - r < ROWS ? rows - r : ROWS;
      const element *left = (const element *)given->data + (row + r - given->row) * given->row_step +
                            begin / GROUP * given->group_step;
      for (int64_t panel = 0; panel < panels; panel++) {
        const int64_t first = column + panel * PANEL,
                      wide = columns - panel * PANEL < PANEL ? columns - panel * PANEL : PANEL;
        const bool direct = straight && wide == PANEL;
        float *to = direct  ? (float *)product->c + (row + r) * product->c_stride + first
                    : whole ? sums + (panel * rows + r) * PANEL
                            : sums;
        multiply_panel(count, even(deep) / GROUP, left, given->row_step, given->group_step,
                       right + panel * PANEL * even(deep), to, direct ? product->c_stride : PANEL,
                       begin > 0 || (direct && product->accumulate));
        if (last && !direct) MT_KERNEL(product_finish)(product, to, PANEL, row + r, count, first, wide);
      }
    }
  }
}
#endif
