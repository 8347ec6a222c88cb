#include "cost/product.h"

#include <math.h>

enum { VALUE_BYTES = 2 };

/* Tiles as libraries cut the result, and what each reaches of the largest's rate: a smaller tile reads its two
 * operands more often for as many operations. The rates are round figures, not fitted. */
static const struct tile {
  double rows, columns, rate;
} tiles[] = {{128, 256, 1},   {256, 128, 1},   {128, 128, 0.92}, {64, 256, 0.85},
             {256, 64, 0.85}, {64, 128, 0.75}, {128, 64, 0.75},  {64, 64, 0.6}};
enum { TILES = sizeof tiles / sizeof *tiles };

/* Every unit computes whole tiles, one after the other; the last wave may leave most of them without one. The best
 * tile is taken, as a library's heuristics would. */
static double tiled_seconds(const mt_device *device, const mt_product_shape *shape, double peak) {
  double unit_flops = peak * device->matmul_efficiency / device->compute_units;
  /* Starting and ending a tile takes its time at any peak: more of a depth that passes faster. */
  double ends = device->matmul_depth * peak / device->bfloat16_flops;
  double best = INFINITY;
  for (int t = 0; t < TILES; t++) {
    double count = ceil(shape->rows / tiles[t].rows) * ceil(shape->columns / tiles[t].columns) * shape->copies;
    double flops = 2 * tiles[t].rows * tiles[t].columns * (shape->depth + ends);
    double seconds = ceil(count / device->compute_units) * flops / (unit_flops * tiles[t].rate);
    if (seconds < best) best = seconds;
  }
  return best;
}

double mt_product_seconds(const mt_device *device, const mt_product_shape *shape) {
  if (shape->rows <= 0 || shape->columns <= 0 || shape->depth <= 0 || shape->copies <= 0) return 0;
  double peak = shape->float8 ? device->float8_flops : device->bfloat16_flops;
  double operands = (shape->float8 ? 1 : VALUE_BYTES) * shape->depth * (shape->rows + shape->columns);
  double moved = shape->copies * (operands + VALUE_BYTES * shape->rows * shape->columns);
  double memory = moved / (device->memory_bytes_per_second * device->memory_efficiency);
  double seconds;
  if (device->compute_units > 0) {
    seconds = tiled_seconds(device, shape, peak);
  } else {
    double width = fmin(fmin(shape->rows, shape->columns), shape->depth);
    double efficiency = device->matmul_efficiency * width / (width + device->matmul_half_width);
    seconds = 2 * shape->rows * shape->columns * shape->depth * shape->copies / (peak * efficiency);
  }
  return fmax(seconds, memory);
}
