/*
 * Matrix products by panels (after Goto and van de Geijn, Anatomy of High-Performance Matrix Multiplication, 2008).
 * Both factors are packed first, with zeros to whole tiles, so that the loops inside have no ragged edges; packing
 * also converts and transposes. The unit of a packed panel is 32 bits: one element of k, or where the processor
 * multiplies pairs of bfloat16, two.
 *
 *   left   panels of MT_TILE_ROWS rows:     (panels, blocks of k, MT_TILE_ROWS, BLOCK_UNITS), or with the last two
 *          exchanged where the factor is stored transposed
 *   right  panels of MT_TILE_COLUMNS columns: (panels, blocks of k, BLOCK_UNITS, MT_TILE_COLUMNS)
 *
 * An element of the result is summed over k in one fixed order, whatever else is computed and by whom.
 */
#include "tensor/kernels/kernels.h"
#include "tensor/kernels/vector.h"

#if MT_TILE_ROWS == 12
#define FOR_ROWS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#else
#define FOR_ROWS(X) X(0) X(1) X(2) X(3) X(4) X(5)
#endif

enum { BLOCK_UNITS = 192 };
enum { LEFT_BLOCK = MT_TILE_ROWS * BLOCK_UNITS, RIGHT_BLOCK = MT_TILE_COLUMNS * BLOCK_UNITS };

#ifdef MT_PAIRS
enum { UNIT = 2 };
#define DOT(sum, left, right) multiply_pairs(sum, left, right)
#else
enum { UNIT = 1 };
#define DOT(sum, left, right) ((sum) + (left) * (right))
#endif

/* One block even where there is nothing to add: it makes the zeros. */
static int64_t blocks_of(int64_t k) { return k <= 0 ? 1 : (k + UNIT * BLOCK_UNITS - 1) / (UNIT * BLOCK_UNITS); }

/* A stored factor: `lines` lie `stride` elements apart, each with `length` elements in a row. */
typedef struct factor {
  const void *data;
  int64_t stride, lines, length;
  bool wide; /* float32, whatever the table's element */
} factor;

/* LANES units from element `k` of a line: what becomes neighbours in k. Zeros behind the end. */
KERNEL_INLINE vec units_along(const factor *f, int64_t line, int64_t k) {
  const int64_t at = line * f->stride + k, left = f->length - k;
#ifdef MT_PAIRS
  if (f->wide) {
    const float *data = (const float *)f->data + at;
    return pack_neighbours(load_some(data, left, 0.0F), load_some(data + LANES, left - LANES, 0.0F));
  }
  return load_pairs((const element *)f->data + at, left);
#elif defined(MT_BFLOAT16)
  if (f->wide) return round_element(load_some((const float *)f->data + at, left, 0.0F));
  return load_elements((const element *)f->data + at, left);
#else
  return load_some((const float *)f->data + at, left, 0.0F);
#endif
}

/* LANES units at element `c` of the line(s) that are unit `unit` of k. Zeros behind the ends. */
KERNEL_INLINE vec units_across(const factor *f, int64_t unit, int64_t c) {
  const int64_t at = unit * UNIT * f->stride + c, left = f->length - c;
#ifdef MT_PAIRS
  const bool second = unit * UNIT + 1 < f->lines;
  if (f->wide) {
    const float *data = (const float *)f->data + at;
    return pack_lines(load_some(data, left, 0.0F), second ? load_some(data + f->stride, left, 0.0F) : splat(0.0F));
  }
  const element *data = (const element *)f->data + at;
  return join_lines(data, second ? data + f->stride : NULL, left);
#elif defined(MT_BFLOAT16)
  if (f->wide) return round_element(load_some((const float *)f->data + at, left, 0.0F));
  return load_elements((const element *)f->data + at, left);
#else
  return load_some((const float *)f->data + at, left, 0.0F);
#endif
}

/* rows[i] lane j <-> rows[j] lane i. */
KERNEL_INLINE void transpose(vec rows[LANES]) {
  for (int width = LANES; width > 1; width /= 2) {
    vec next[LANES];
    for (int i = 0; i < LANES / 2; i++) {
      next[2 * i] = interleave_low(rows[i], rows[i + LANES / 2]);
      next[2 * i + 1] = interleave_high(rows[i], rows[i + LANES / 2]);
    }
    for (int i = 0; i < LANES; i++) rows[i] = next[i];
  }
}

int64_t MT_KERNEL(product_left_panel)(int64_t k) { return blocks_of(k) * LEFT_BLOCK; }
int64_t MT_KERNEL(product_right_panel)(int64_t k) { return blocks_of(k) * RIGHT_BLOCK; }

void MT_KERNEL(product_pack_left)(const mt_matmul *product, int64_t row, int64_t rows, float *packed) {
  const bool turned = product->transpose_a;
  const int64_t units = (product->k + UNIT - 1) / UNIT, end = row + rows;
  const factor f = {product->a, product->a_stride, turned ? product->k : end, turned ? end : product->k,
                    product->a_float};
  for (; row < end; row += MT_TILE_ROWS)
    for (int64_t unit = 0; unit < units; unit += BLOCK_UNITS, packed += LEFT_BLOCK) {
      const int64_t depth = units - unit < BLOCK_UNITS ? units - unit : BLOCK_UNITS;
      if (turned) {
        for (int64_t u = 0; u < depth; u++)
          for (int64_t r = 0; r < MT_TILE_ROWS; r += LANES)
            store_some(packed + u * MT_TILE_ROWS + r, MT_TILE_ROWS - r, units_across(&f, unit + u, row + r));
        continue;
      }
      for (int64_t r = 0; r < MT_TILE_ROWS; r++)
        for (int64_t u = 0; u < depth; u += LANES)
          store(packed + r * BLOCK_UNITS + u,
                row + r < end ? units_along(&f, row + r, (unit + u) * UNIT) : splat(0.0F));
    }
}

void MT_KERNEL(product_pack_right)(const mt_matmul *product, int64_t column, int64_t columns, float *packed) {
  const bool turned = product->transpose_b;
  const int64_t units = (product->k + UNIT - 1) / UNIT, end = column + columns;
  const factor f = {product->b, product->b_stride, turned ? end : product->k, turned ? product->k : end,
                    product->b_float};
  for (; column < end; column += MT_TILE_COLUMNS)
    for (int64_t unit = 0; unit < units; unit += BLOCK_UNITS, packed += RIGHT_BLOCK) {
      const int64_t depth = units - unit < BLOCK_UNITS ? units - unit : BLOCK_UNITS;
      for (int64_t half = 0; half < MT_TILE_COLUMNS; half += LANES) {
        if (!turned) {
          for (int64_t u = 0; u < depth; u++)
            store(packed + u * MT_TILE_COLUMNS + half, units_across(&f, unit + u, column + half));
          continue;
        }
        for (int64_t u = 0; u < depth; u += LANES) {
          vec rows[LANES];
          for (int64_t i = 0; i < LANES; i++) {
            const int64_t line = column + half + i;
            rows[i] = line < end ? units_along(&f, line, (unit + u) * UNIT) : splat(0.0F);
          }
          transpose(rows);
          for (int64_t i = 0; i < LANES; i++) store(packed + (u + i) * MT_TILE_COLUMNS + half, rows[i]);
        }
      }
    }
}

/* sums (MT_TILE_ROWS, MT_TILE_COLUMNS) = or += left right; left[i, u] lies at left[i * row + u * step]. */
KERNEL_INLINE void multiply_tile(int64_t units, const float *left, int64_t row, int64_t step, const float *right,
                                 float *sums, int64_t stride, bool add, int64_t next_panel) {
  const float *ahead = left + next_panel;
#define DECLARE(i) vec x##i = splat(0.0F), y##i = splat(0.0F);
#define MULTIPLY(i)                                                                                                \
  {                                                                                                                \
    const vec s = splat(left[i * row + u * step]);                                                                 \
    x##i = DOT(x##i, s, low);                                                                                      \
    y##i = DOT(y##i, s, high);                                                                                     \
  }
#define ADD(i) x##i += load(sums + i * stride), y##i += load(sums + i * stride + LANES);
#define STORE(i) store(sums + i * stride, x##i), store(sums + i * stride + LANES, y##i);
  FOR_ROWS(DECLARE)
  for (int64_t u = 0; u < units; u++) {
    __builtin_prefetch(ahead + u * MT_TILE_ROWS);
    const vec low = load(right + u * MT_TILE_COLUMNS), high = load(right + u * MT_TILE_COLUMNS + LANES);
    FOR_ROWS(MULTIPLY)
  }
  if (add) {
    FOR_ROWS(ADD)
  }
  FOR_ROWS(STORE)
#undef DECLARE
#undef MULTIPLY
#undef ADD
#undef STORE
}

static __attribute__((noinline)) void multiply_rows(int64_t units, const float *left, const float *right,
                                                    float *sums, int64_t stride, bool add, int64_t next_panel) {
  multiply_tile(units, left, BLOCK_UNITS, 1, right, sums, stride, add, next_panel);
}

static __attribute__((noinline)) void multiply_columns(int64_t units, const float *left, const float *right,
                                                       float *sums, int64_t stride, bool add, int64_t next_panel) {
  multiply_tile(units, left, 1, MT_TILE_ROWS, right, sums, stride, add, next_panel);
}

/* What is done to a tile's finished sums on their way to the result. */
static void finish(const mt_matmul *p, const float *sums, int64_t stride, int64_t row, int64_t rows, int64_t column,
                   int64_t columns) {
  for (int64_t r = 0; r < rows; r++) {
    const float *from = sums + r * stride;
    const int64_t at = (row + r) * p->c_stride + column;
    for (int64_t c = 0; c < columns; c += LANES) {
      const int64_t left = columns - c;
      vec x = load(from + c);
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

/* A tile's rows of the result, soon to be written. */
static void fetch(const mt_matmul *p, int64_t row, int64_t rows, int64_t column) {
  const size_t size = p->c_float ? sizeof(float) : sizeof(element);
  for (int64_t r = 0; r < rows; r++) {
    const char *to = (const char *)p->c + (size_t)((row + r) * p->c_stride + column) * size;
    __builtin_prefetch(to, 1);
    if (MT_TILE_COLUMNS * size > 64) __builtin_prefetch(to + 64, 1);
  }
}

void MT_KERNEL(product_block)(const mt_matmul *product, const float *left, const float *right, int64_t row,
                              int64_t rows, int64_t column, int64_t columns, float *sums) {
  /* Rows of sums a little apart from a power of two: or they would all want the same few lines of the cache. */
  const int64_t stride = (columns + MT_TILE_COLUMNS - 1) / MT_TILE_COLUMNS * MT_TILE_COLUMNS + LANES;
  const int64_t units = (product->k + UNIT - 1) / UNIT, blocks = blocks_of(product->k);
  for (int64_t block = 0; block < blocks; block++) {
    const int64_t rest = units - block * BLOCK_UNITS, depth = rest < BLOCK_UNITS ? rest : BLOCK_UNITS;
    for (int64_t c = 0; c < columns; c += MT_TILE_COLUMNS)
      for (int64_t r = 0; r < rows; r += MT_TILE_ROWS) {
        const int64_t here = rows - r < MT_TILE_ROWS ? rows - r : MT_TILE_ROWS;
        const int64_t wide = columns - c < MT_TILE_COLUMNS ? columns - c : MT_TILE_COLUMNS;
        float *tile = sums + r * stride + c;
        if (block + 1 == blocks) fetch(product, row + r, here, column + c);
        (product->transpose_a ? multiply_columns : multiply_rows)(
            depth, left + (r / MT_TILE_ROWS * blocks + block) * LEFT_BLOCK,
            right + (c / MT_TILE_COLUMNS * blocks + block) * RIGHT_BLOCK, tile, stride, block > 0,
            r + MT_TILE_ROWS < rows ? blocks * LEFT_BLOCK : 0);
        if (block + 1 == blocks) finish(product, tile, stride, row + r, here, column + c, wide);
      }
  }
}
