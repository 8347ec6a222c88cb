/*
 * Products of float32 are oneDNN's: a result is cut into blocks that depend on its shape alone; the library
 * computes a block on one thread, from whole rows of op(a) and columns of op(b), and the backend finishes it.
 * bfloat16 on a processor that does not multiply it is converted before, piece by piece. Where the processor does,
 * the backend packs factors for libxsmm's small blocks: oneDNN's fast kernels are made for one shape each, and rows
 * differ from microbatch to microbatch; its kernel for all shapes reached 83 % of the peak inside of a step.
 */
#include "tensor/matmul.h"

#include "tensor/memory.h"
#include "tensor/onednn.h"
#include "tensor/xsmm.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
  BLOCK_ROWS = 512,
  BLOCK_COLUMNS = 768,
  COLUMNS_LEAST = 192,
  BLOCKS_WANTED = 4,       /* so that several threads have work */
  LINES = 16,              /* of a factor that are converted in one go */
  PIECE_ELEMENTS = 8 << 20 /* of a converted factor, unless one block of the result needs more */
};

/* A factor as the library gets it: the stored one, or a converted copy of the part that a piece needs. */
typedef struct factor {
  const char *data;
  float *copy; /* NULL: taken as it is */
  int64_t stride, lines, length;
  size_t element; /* bytes */
  bool is_float;
} factor;

typedef struct piece {
  const mt_tensor_backend *backend;
  mt_team *team;
  const mt_matmul *product;
  int64_t row, rows, column, columns, row_blocks, block_columns;
  mt_onednn_product whole; /* of the piece, but for the result */
  bool straight;           /* the library writes the result itself */
  factor a, b;
  atomic_bool refused;
} piece;

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t parts(int64_t whole, int64_t part) { return (whole + part - 1) / part; }

/* ---- conversion ---- */

static void convert_line(const piece *p, const factor *f, int64_t line, int32_t thread) {
  const char *from = f->data + (size_t)(line * f->stride) * f->element;
  void *rounded = mt_team_own(p->team, thread);
  if (f->is_float) p->backend->to_elements(f->length, (const float *)(const void *)from, rounded);
  p->backend->to_floats(f->length, f->is_float ? rounded : (const void *)from, f->copy + line * f->length);
}

static void convert_lines(void *context, int64_t index, int32_t thread) {
  piece *p = context;
  const int64_t parts_of_a = p->a.copy == NULL ? 0 : parts(p->a.lines, LINES);
  const factor *f = index < parts_of_a ? &p->a : &p->b;
  const int64_t begin = (index < parts_of_a ? index : index - parts_of_a) * LINES;
  for (int64_t line = begin; line < smaller(begin + LINES, f->lines); line++) convert_line(p, f, line, thread);
}

/* What stands between the stored factor and the library: lines [line, line + lines), elements [at, at + length). */
static factor cut(const piece *p, const void *data, bool is_float, int64_t stride, int64_t line, int64_t lines,
                  int64_t at, int64_t length, float *copy) {
  const bool plain = p->backend->element == MT_ELEMENT_FLOAT32;
  const size_t element = plain || is_float ? sizeof(float) : mt_element_bytes(p->backend->element);
  return (factor){.data = (const char *)data + (size_t)(line * stride + at) * element,
                  .copy = plain ? NULL : copy,
                  .stride = stride,
                  .lines = lines,
                  .length = length,
                  .element = element,
                  .is_float = is_float};
}

/* ---- blocks ---- */

static void multiply(void *context, int64_t index, int32_t thread) {
  piece *p = context;
  const mt_matmul *product = p->product;
  const int64_t row = index % p->row_blocks * BLOCK_ROWS, column = index / p->row_blocks * p->block_columns;
  mt_onednn_product block = p->whole;
  block.m = smaller(BLOCK_ROWS, p->rows - row);
  block.n = smaller(p->block_columns, p->columns - column);
  block.a = (const char *)p->whole.a + (size_t)(block.transpose_a ? row : row * block.a_stride) * sizeof(float);
  block.b =
      (const char *)p->whole.b + (size_t)(block.transpose_b ? column * block.b_stride : column) * sizeof(float);
  const int64_t at = (p->row + row) * product->c_stride + p->column + column;
  block.c = p->straight ? (float *)product->c + at : mt_team_own(p->team, thread);
  block.c_stride = p->straight ? product->c_stride : block.n;
  const bool done = mt_onednn_multiply(mt_team_onednn(p->team), &block);
  if (!done) atomic_store(&p->refused, true);
  if (done && !p->straight)
    p->backend->product_finish(product, block.c, block.c_stride, p->row + row, block.m, p->column + column,
                               block.n);
}

/* One piece: rows and columns of the result whose factors fit the scratch. */
static void run_piece(piece *p, float *copy_a, float *copy_b, bool keeps_b) {
  const mt_matmul *product = p->product;
  p->a = product->transpose_a
             ? cut(p, product->a, product->a_float, product->a_stride, 0, product->k, p->row, p->rows, copy_a)
             : cut(p, product->a, product->a_float, product->a_stride, p->row, p->rows, 0, product->k, copy_a);
  p->b =
      product->transpose_b
          ? cut(p, product->b, product->b_float, product->b_stride, p->column, p->columns, 0, product->k, copy_b)
          : cut(p, product->b, product->b_float, product->b_stride, 0, product->k, p->column, p->columns, copy_b);
  const int64_t lines_of_a = p->a.copy == NULL ? 0 : parts(p->a.lines, LINES);
  const int64_t lines_of_b = p->b.copy == NULL || keeps_b ? 0 : parts(p->b.lines, LINES);
  if (lines_of_a + lines_of_b > 0) mt_team_run(p->team, lines_of_a + lines_of_b, convert_lines, p);
  p->whole.a = p->a.copy != NULL ? (const void *)p->a.copy : p->a.data;
  p->whole.b = p->b.copy != NULL ? (const void *)p->b.copy : p->b.data;
  p->whole.a_stride = p->a.copy != NULL ? p->a.length : p->a.stride;
  p->whole.b_stride = p->b.copy != NULL ? p->b.length : p->b.stride;
  p->row_blocks = parts(p->rows, BLOCK_ROWS);
  p->block_columns = BLOCK_COLUMNS;
  while (p->row_blocks * parts(p->columns, p->block_columns) < BLOCKS_WANTED && p->block_columns > COLUMNS_LEAST)
    p->block_columns /= 2;
  mt_team_run(p->team, p->row_blocks * parts(p->columns, p->block_columns), multiply, p);
}

/* Rows or columns of a converted piece: whole blocks, one or more. */
static int64_t fitting(int64_t whole, int64_t block, int64_t k) {
  const int64_t most = PIECE_ELEMENTS / (k > 0 ? k : 1) / block * block;
  return smaller(whole, most < block ? block : most);
}

/* The library does not take empty sums. */
static void finish_nothing(const mt_tensor_backend *backend, const mt_matmul *product, float *zeros) {
  for (int64_t column = 0; column < product->n; column++) zeros[column] = 0.0F;
  for (int64_t row = 0; row < product->m; row++)
    backend->product_finish(product, zeros, product->n, row, 1, 0, product->n);
}

/* ---- products of bfloat16 */

enum { OWN_ROWS = 1024, OWN_ROWS_LEAST = 96, OWN_COLUMNS = 128 };

typedef struct own_product {
  const mt_tensor_backend *backend;
  mt_team *team;
  const mt_matmul *product;
  int64_t row, rows, block_rows, row_blocks;
  void *copy;
  mt_left_factor left;
  atomic_bool refused;
} own_product;

static void pack_left(void *context, int64_t index, int32_t thread) {
  (void)thread;
  const own_product *p = context;
  p->backend->product_pack_left(p->product, p->row, p->rows, index, p->copy);
}

static void multiply_own(void *context, int64_t index, int32_t thread) {
  own_product *p = context;
  const int64_t row = index % p->row_blocks * p->block_rows, column = index / p->row_blocks * OWN_COLUMNS;
  if (!p->backend->product_block(p->product, &p->left, p->row + row, smaller(p->block_rows, p->rows - row), column,
                                 smaller(OWN_COLUMNS, p->product->n - column), mt_team_own(p->team, thread)))
    atomic_store(&p->refused, true);
}

/* Bits do not depend on how a result is cut, and so the cut may depend on the threads. */
static int64_t own_block_rows(int64_t rows, int64_t strips, int32_t threads) {
  int64_t block = smaller(rows, OWN_ROWS);
  while (threads > 1 && block > OWN_ROWS_LEAST && strips * parts(rows, block) < 4 * (int64_t)threads)
    block = (block / 2 + OWN_ROWS_LEAST - 1) / OWN_ROWS_LEAST * OWN_ROWS_LEAST;
  return block;
}

static motet_status run_own(const mt_tensor_backend *backend, mt_team *team, const mt_matmul *product,
                            motet_error *error) {
  own_product p = {.backend = backend, .team = team, .product = product};
  const int64_t strips = parts(product->n, OWN_COLUMNS);
  const bool copies = product->transpose_a || product->a_float || product->k % 2 != 0 || product->a_stride % 2 != 0;
  const int64_t most = copies ? fitting(product->m, OWN_ROWS_LEAST, product->k) : product->m;
  const size_t shared =
      copies ? backend->product_left_size(product->k, most) * mt_element_bytes(backend->element) : 0;
  const size_t own = backend->product_scratch(product->k, smaller(most, OWN_ROWS), OWN_COLUMNS) * sizeof(float);
  motet_status status = mt_team_reserve(team, shared, own, error);
  if (status != MOTET_OK) return status;
  p.copy = mt_team_shared(team);
  for (p.row = 0; p.row < product->m; p.row += most) {
    p.rows = smaller(most, product->m - p.row);
    p.left = backend->product_left(product, p.row, p.rows, copies ? p.copy : NULL);
    if (copies) mt_team_run(team, backend->product_left_units(product, p.rows), pack_left, &p);
    p.block_rows = own_block_rows(p.rows, strips, mt_team_threads(team));
    p.row_blocks = parts(p.rows, p.block_rows);
    mt_team_run(team, strips * p.row_blocks, multiply_own, &p);
  }
  return atomic_load(&p.refused) ? mt_error_memory(error, 0, "libxsmm's code for a product") : MOTET_OK;
}

static size_t larger_size(size_t a, size_t b) { return a > b ? a : b; }

motet_status mt_matmul_run(const mt_tensor_backend *backend, mt_team *team, const mt_matmul *product,
                           motet_error *error) {
  if (product->m == 0 || product->n == 0) return MOTET_OK;
  if (backend->product_block != NULL && product->k > 0 && mt_xsmm_multiplies())
    return run_own(backend, team, product, error);
  const bool plain = backend->element == MT_ELEMENT_FLOAT32;
  piece p = {.backend = backend, .team = team, .product = product};
  p.straight =
      (plain || product->c_float) && product->bias == NULL && product->scale == NULL && product->base == NULL;
  p.whole = (mt_onednn_product){.transpose_a = product->transpose_a,
                                .transpose_b = product->transpose_b,
                                .accumulate = p.straight && product->accumulate,
                                .k = product->k};
  /* Only what is converted is cut into pieces. */
  const int64_t rows = plain ? product->m : fitting(product->m, BLOCK_ROWS, product->k);
  const int64_t columns = plain ? product->n : fitting(product->n, BLOCK_COLUMNS, product->k);
  const size_t bytes_a = plain ? 0 : mt_workspace_room((size_t)(rows * product->k)) * sizeof(float);
  const size_t bytes_b = plain ? 0 : (size_t)(columns * product->k) * sizeof(float);
  /* Of a thread: a block's sums, or a line on its way from float32 to bfloat16 and back. */
  const int64_t line = product->k > rows ? product->k : rows;
  size_t own = (size_t)BLOCK_ROWS * BLOCK_COLUMNS * sizeof(float);
  own = larger_size(own, (size_t)(line > columns ? line : columns) * sizeof(float));
  motet_status status = mt_team_reserve(team, bytes_a + bytes_b, own, error);
  if (status != MOTET_OK) return status;
  if (product->k == 0) {
    finish_nothing(backend, product, mt_team_own(team, 0));
    return MOTET_OK;
  }
  float *copy_a = mt_team_shared(team), *copy_b = plain ? copy_a : copy_a + bytes_a / sizeof(float);
  sigset_t before;
  mt_onednn_hold_signals(&before);
  for (p.column = 0; p.column < product->n; p.column += columns) {
    p.columns = smaller(columns, product->n - p.column);
    for (p.row = 0; p.row < product->m; p.row += rows) {
      p.rows = smaller(rows, product->m - p.row);
      run_piece(&p, copy_a, copy_b, p.row > 0);
    }
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (!atomic_load(&p.refused)) return MOTET_OK;
  return mt_error_set(error, MOTET_ERROR_FAILED,
                      "oneDNN refused a block of the product (%lld, %lld) x (%lld, %lld)", (long long)product->m,
                      (long long)product->k, (long long)product->k, (long long)product->n);
}
