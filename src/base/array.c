#include "base/array.h"

#include <stdint.h>
#include <stdlib.h>

bool mt_array_reserve(void **data, size_t *capacity, size_t needed, size_t size) {
  if (needed <= *capacity) return true;
  size_t wanted = *capacity < 8 ? 8 : *capacity;
  while (wanted < needed) {
    if (wanted > SIZE_MAX / 2) return false;
    wanted *= 2;
  }
  size_t bytes;
  if (__builtin_mul_overflow(wanted, size, &bytes)) return false;
  void *grown = realloc(*data, bytes);
  if (grown == NULL) return false;
  *data = grown;
  *capacity = wanted;
  return true;
}

int mt_compare_doubles(const void *left, const void *right) {
  const double a = *(const double *)left, b = *(const double *)right;
  return (a > b) - (a < b);
}

double mt_median(double *values, size_t count) {
  if (count == 0) return 0;
  qsort(values, count, sizeof *values, mt_compare_doubles);
  return count % 2 == 1 ? values[count / 2] : 0.5 * (values[count / 2 - 1] + values[count / 2]);
}
