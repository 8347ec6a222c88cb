/*
 * A product is cut into pieces whose packed factors fit the scratch; within a piece the factors are packed once,
 * and blocks of the result, which only read them, go to whichever thread is free.
 */
#include "tensor/matmul.h"

#include <math.h>

enum {
  BLOCK_ROWS = 120,
  BLOCK_COLUMNS = 256, /* of the result: with its part of the left factor it fits the second cache */
  PACK_ROWS = 48,
  PACK_COLUMNS = 128,
  PIECE_FLOATS = 4 << 20, /* of a packed factor, unless one block of the result needs more */
  SMALL_PRODUCT = 1 << 17 /* multiplications that are sooner done than another thread is woken */
};

typedef struct piece {
  const mt_tensor_backend *backend;
  mt_team *team;
  const mt_matmul *product;
  int64_t row, rows, column, columns;
  int64_t left_tasks, left_panel, right_panel; /* floats of one panel */
  int64_t block_rows, block_columns, row_blocks;
  float *left, *right;
} piece;

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t parts(int64_t whole, int64_t part) { return (whole + part - 1) / part; }

static void pack_left(void *context, int64_t index, int32_t thread) {
  (void)thread;
  const piece *p = context;
  const int64_t row = index * PACK_ROWS;
  p->backend->product_pack_left(p->product, p->row + row, smaller(PACK_ROWS, p->rows - row),
                                p->left + row / p->backend->product_tile_rows * p->left_panel);
}

static void pack_right(void *context, int64_t index, int32_t thread) {
  (void)thread;
  const piece *p = context;
  const int64_t column = index * PACK_COLUMNS;
  p->backend->product_pack_right(p->product, p->column + column, smaller(PACK_COLUMNS, p->columns - column),
                                 p->right + column / p->backend->product_tile_columns * p->right_panel);
}

/* Both factors at once. */
static void pack_both(void *context, int64_t index, int32_t thread) {
  const piece *p = context;
  if (index < p->left_tasks)
    pack_left(context, index, thread);
  else
    pack_right(context, index - p->left_tasks, thread);
}

static void multiply(void *context, int64_t index, int32_t thread) {
  const piece *p = context;
  const int64_t row = index % p->row_blocks * p->block_rows, column = index / p->row_blocks * p->block_columns;
  p->backend->product_block(p->product, p->left + row / p->backend->product_tile_rows * p->left_panel,
                            p->right + column / p->backend->product_tile_columns * p->right_panel, p->row + row,
                            smaller(p->block_rows, p->rows - row), p->column + column,
                            smaller(p->block_columns, p->columns - column), mt_team_own(p->team, thread));
}

static void each(const piece *p, bool alone, int64_t count, mt_team_work work) {
  piece copy = *p;
  if (alone)
    for (int64_t index = 0; index < count; index++) work(&copy, index, 0);
  else
    mt_team_run(p->team, count, work, &copy);
}

/* Smaller blocks where there would be too few to go round. */
static void choose_blocks(piece *p) {
  const int64_t wanted = mt_team_threads(p->team) == 1 ? 1 : 4 * mt_team_threads(p->team);
  p->block_rows = BLOCK_ROWS;
  p->block_columns = BLOCK_COLUMNS;
  while (parts(p->rows, p->block_rows) * parts(p->columns, p->block_columns) < wanted && p->block_columns > 64)
    p->block_columns /= 2;
  p->row_blocks = parts(p->rows, p->block_rows);
}

/* Floats of a packed factor's panel, and how many rows or columns fit a piece: whole blocks, one or more. */
static int64_t fitting(int64_t whole, int64_t block, int64_t tile, int64_t panel) {
  const int64_t most = PIECE_FLOATS / panel * tile / block * block;
  return smaller(whole, most < block ? block : most);
}

motet_status mt_matmul_run(const mt_tensor_backend *backend, mt_team *team, const mt_matmul *product,
                           motet_error *error) {
  if (product->m == 0 || product->n == 0) return MOTET_OK;
  const int64_t tile_rows = backend->product_tile_rows, tile_columns = backend->product_tile_columns;
  piece p = {.backend = backend, .team = team, .product = product};
  p.left_panel = backend->product_left_panel(product->k);
  p.right_panel = backend->product_right_panel(product->k);
  const int64_t rows = fitting(product->m, BLOCK_ROWS, tile_rows, p.left_panel);
  const int64_t columns = fitting(product->n, BLOCK_COLUMNS, tile_columns, p.right_panel);
  const int64_t left_floats = parts(rows, tile_rows) * p.left_panel;
  const int64_t right_floats = parts(columns, tile_columns) * p.right_panel;
  const size_t sums = (size_t)BLOCK_ROWS * (BLOCK_COLUMNS + 16) * sizeof(float);
  motet_status status = mt_team_reserve(team, (size_t)(left_floats + right_floats) * sizeof(float), sums, error);
  if (status != MOTET_OK) return status;
  p.left = mt_team_shared(team);
  p.right = p.left + left_floats;
  const bool alone = (double)product->m * (double)product->n * (double)product->k < SMALL_PRODUCT;
  const bool left_stays = rows == product->m; /* one piece has all rows: packed once */
  for (p.column = 0; p.column < product->n; p.column += columns) {
    p.columns = smaller(columns, product->n - p.column);
    for (p.row = 0; p.row < product->m; p.row += rows) {
      p.rows = smaller(rows, product->m - p.row);
      const bool packs_left = !left_stays || p.column == 0, packs_right = p.row == 0;
      p.left_tasks = packs_left ? parts(p.rows, PACK_ROWS) : 0;
      const int64_t right_tasks = packs_right ? parts(p.columns, PACK_COLUMNS) : 0;
      each(&p, alone, p.left_tasks + right_tasks, pack_both);
      choose_blocks(&p);
      each(&p, alone, p.row_blocks * parts(p.columns, p.block_columns), multiply);
    }
  }
  return MOTET_OK;
}
