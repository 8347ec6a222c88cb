/* What is done to a product's sums on their way to the result, and numbers on their way into products; products of
 * bfloat16 where the processor has instructions for them. */
#include "tensor/kernels/block.h"
#include "tensor/xsmm.h"

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
 * A block of the result is computed panel by panel, of as many columns as libxsmm's blocks have, whose right factor
 * is packed first and stays in the second cache. Sums over more than DEPTH are added up chunk by chunk. Copies of
 * left factors stand chunk by chunk too, each padded to a multiple of UNIT, and are made UNIT lines at a time: the
 * library writes code for each depth, and rows that are summed over differ from microbatch to microbatch.
 */
enum { ROWS = 24, PANEL = MT_XSMM_COLUMNS, DEPTH = 2048, UNIT = 32 };

static int64_t round_up(int64_t count, int64_t unit) { return (count + unit - 1) / unit * unit; }
static int64_t lesser(int64_t a, int64_t b) { return a < b ? a : b; }

size_t MT_KERNEL(product_scratch)(int64_t k, int64_t rows, int64_t columns) {
  const int64_t width = round_up(columns, PANEL), deep = round_up(lesser(k, DEPTH), UNIT);
  return (size_t)(width * deep / 2 + (k > DEPTH ? rows * width : ROWS * PANEL));
}

size_t MT_KERNEL(product_left_size)(int64_t k, int64_t rows) { return (size_t)(rows * round_up(k, UNIT)); }

int64_t MT_KERNEL(product_left_units)(const mt_matmul *product, int64_t rows) {
  return round_up(product->transpose_a ? product->k : rows, UNIT) / UNIT;
}

mt_left_factor MT_KERNEL(product_left)(const mt_matmul *product, int64_t row, int64_t rows, void *copy) {
  if (copy == NULL) return (mt_left_factor){.data = product->a, .row_step = product->a_stride, .chunk_step = DEPTH};
  /* The last chunk's rows are shorter. */
  return (mt_left_factor){.data = copy, .row = row, .chunk_step = rows * DEPTH};
}

/* Elements of a row of the chunk that begins at `begin`. */
static int64_t chunk_width(const mt_matmul *product, int64_t begin) {
  return round_up(lesser(product->k - begin, DEPTH), UNIT);
}

/* UNIT lines of a factor stored as (k, rows), from k = `line` on, turned: 16 rows at a time. */
static void pack_turned(const mt_matmul *product, int64_t row, int64_t rows, int64_t line, element *left) {
  const int64_t chunk = line / DEPTH, width = chunk_width(product, chunk * DEPTH);
  element *to = left + chunk * rows * DEPTH + line % DEPTH;
  for (int64_t r = 0; r < rows; r += 16) {
    __m512i words[16];
    for (int64_t p = 0; p < 16; p++) {
      vec x[GROUP];
      for (int64_t g = 0; g < GROUP; g++) {
        const int64_t from = line + GROUP * p + g;
        x[g] = from < product->k
                   ? load_source(product->a, product->a_float, from * product->a_stride + row + r, rows - r)
                   : splat(0.0F);
      }
      factor groups[GROUP * LANES];
      store_groups(groups, x);
      words[p] = _mm512_loadu_si512(groups);
    }
    transpose(words);
    for (int64_t i = 0; i < 16 && r + i < rows; i++) _mm512_storeu_si512(to + (r + i) * width, words[i]);
  }
}

void MT_KERNEL(product_pack_left)(const mt_matmul *product, int64_t row, int64_t rows, int64_t unit, void *left) {
  const int64_t line = unit * UNIT, lines = lesser(UNIT, rows - line);
  if (product->transpose_a) {
    pack_turned(product, row, rows, line, left);
    return;
  }
  for (int64_t begin = 0; begin < product->k; begin += DEPTH)
    for (int64_t r = line; r < line + lines; r++) {
      const int64_t width = chunk_width(product, begin);
      element *to = (element *)left + begin * rows + r * width;
      for (int64_t c = 0; c < width; c += LANES)
        store_elements(to + c, width - c,
                       begin + c < product->k
                           ? load_source(product->a, product->a_float, (row + r) * product->a_stride + begin + c,
                                         product->k - begin - c)
                           : splat(0.0F));
    }
}

/* The right factor's columns [column, column + columns), k from `begin` on, as panels padded to `deep`. */
static void pack_right(const mt_matmul *product, int64_t begin, int64_t deep, int64_t column, int64_t columns,
                       element *right) {
  const int64_t count = lesser(product->k - begin, deep);
  for (int64_t c = 0; c < columns; c += PANEL, right += PANEL * deep) {
    const int64_t at =
        product->transpose_b ? (column + c) * product->b_stride + begin : begin * product->b_stride + column + c;
    const void *from = product->b_float ? (const void *)((const float *)product->b + at)
                                        : (const void *)((const element *)product->b + at);
    if (product->transpose_b)
      pack_transposed(from, product->b_float, product->b_stride, columns - c, count, right, PANEL, deep);
    else
      pack_groups(from, product->b_float, product->b_stride, count, columns - c, right, deep, PANEL);
  }
}

bool MT_KERNEL(product_block)(const mt_matmul *product, const mt_left_factor *left, int64_t row, int64_t rows,
                              int64_t column, int64_t columns, float *scratch) {
  const int64_t k = product->k, panels = (columns + PANEL - 1) / PANEL;
  const bool whole = k > DEPTH; /* sums of the whole block are kept */
  element *const right = (element *)(void *)scratch;
  float *const sums = scratch + panels * PANEL * round_up(whole ? DEPTH : k, UNIT) / 2;
  const bool straight =
      product->c_float && product->bias == NULL && product->scale == NULL && product->base == NULL;
  for (int64_t begin = 0; begin < k; begin += DEPTH) {
    const int64_t deep = round_up(lesser(k - begin, DEPTH), left->row_step > 0 ? GROUP : UNIT);
    const int64_t stride = left->row_step > 0 ? left->row_step : deep;
    const bool last = begin + DEPTH >= k;
    pack_right(product, begin, deep, column, columns, right);
    for (int64_t r = 0; r < rows; r += ROWS) {
      const int64_t count = lesser(rows - r, ROWS);
      for (int64_t panel = 0; panel < panels; panel++) {
        const int64_t first = column + panel * PANEL, wide = lesser(columns - panel * PANEL, PANEL);
        const bool direct = straight && wide == PANEL;
        mt_xsmm_block block = {.rows = count,
                               .depth = deep,
                               .left = (const element *)left->data + (row + r - left->row) * stride +
                                       begin / DEPTH * left->chunk_step,
                               .left_stride = stride,
                               .right = right + panel * PANEL * deep,
                               .c = direct  ? (float *)product->c + (row + r) * product->c_stride + first
                                    : whole ? sums + (panel * rows + r) * PANEL
                                            : sums,
                               .c_stride = direct ? product->c_stride : PANEL,
                               .accumulate = begin > 0 || (direct && product->accumulate)};
        if (!mt_xsmm_multiply(&block)) return false;
        if (last && !direct) MT_KERNEL(product_finish)(product, block.c, PANEL, row + r, count, first, wide);
      }
    }
  }
  return true;
}
#endif
