/** @file
 * libxsmm's products of small blocks of bfloat16. The library writes code for each shape that it is asked for,
 * once, and keeps it for the process; any number of threads may ask.
 */
#ifndef MT_TENSOR_XSMM_H
#define MT_TENSOR_XSMM_H

#include <stdbool.h>
#include <stdint.h>

enum { MT_XSMM_COLUMNS = 64 };

/** c (rows, MT_XSMM_COLUMNS) = left (rows, depth) right, or c += that; depth and left_stride are even. */
typedef struct mt_xsmm_block {
  int64_t rows, depth;
  const uint16_t *left;
  const uint16_t *right; /* (depth / 2, MT_XSMM_COLUMNS, 2): neighbours along the depth side by side */
  float *c;
  int64_t left_stride, c_stride;
  bool accumulate;
} mt_xsmm_block;

/** Whether this processor multiplies bfloat16 and the library knows how. */
bool mt_xsmm_multiplies(void);

/** False: the library has no code for the block, for want of memory. */
bool mt_xsmm_multiply(const mt_xsmm_block *block);

#endif
