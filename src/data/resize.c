/* Separable bicubic resize with antialiasing: when shrinking, the filter widens by the scale. Two passes, columns
 * first, each in integers with 22 fraction bits and rounded to 8 bits, which is what Pillow computes (its
 * ImagingResample; the kernel is Keys' with a = -0.5). */
#include "data/image.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FRACTION_BITS = 32 - 8 - 2, BLOCK_ROWS = 32 };

/* Whole numbers come out alike on every processor, on those with wide registers sooner. The choice is made before
 * the thread sanitizer is ready for it. */
#if defined(__x86_64__) && defined(__has_attribute) && !defined(__SANITIZE_THREAD__)
#if __has_attribute(target_clones)
#define VECTORIZED __attribute__((target_clones("avx512f", "avx2", "default")))
#endif
#endif
#ifndef VECTORIZED
#define VECTORIZED
#endif

/* For each target place the first source place, how many there are and their weights. */
typedef struct filter {
  int32_t *first, *count; /* [target] */
  int32_t *weights;       /* [target][width] */
  int32_t width;
} filter;

/* Keys, "Cubic convolution interpolation for digital image processing", 1981, with a = -0.5. */
static double cubic(double x) {
  const double a = -0.5;
  x = fabs(x);
  if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
  if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * a;
  return 0.0;
}

static void filter_free(filter *kernel) {
  free(kernel->first);
  free(kernel->count);
  free(kernel->weights);
}

static bool filter_make(filter *kernel, int32_t source, int32_t target) {
  double scale = (double)source / target, stretch = scale < 1.0 ? 1.0 : scale, support = 2.0 * stretch;
  kernel->width = (int32_t)ceil(support) * 2 + 1;
  kernel->first = malloc((size_t)target * sizeof *kernel->first);
  kernel->count = malloc((size_t)target * sizeof *kernel->count);
  kernel->weights = calloc((size_t)target * (size_t)kernel->width, sizeof *kernel->weights);
  double *exact = malloc((size_t)kernel->width * sizeof *exact);
  bool good = kernel->first != NULL && kernel->count != NULL && kernel->weights != NULL && exact != NULL;
  for (int32_t t = 0; t < target && good; t++) {
    double center = (t + 0.5) * scale, sum = 0;
    int32_t begin = (int32_t)fmax(0, trunc(center - support + 0.5)),
            end = (int32_t)fmin(source, trunc(center + support + 0.5));
    for (int32_t s = begin; s < end; s++) {
      exact[s - begin] = cubic((s - center + 0.5) * (1.0 / stretch));
      sum += exact[s - begin];
    }
    for (int32_t i = 0; i < end - begin; i++) {
      double weight = sum == 0 ? exact[i] : exact[i] / sum;
      kernel->weights[(size_t)t * (size_t)kernel->width + (size_t)i] =
          (int32_t)(weight * (1 << FRACTION_BITS) + (weight < 0 ? -0.5 : 0.5));
    }
    kernel->first[t] = begin;
    kernel->count[t] = end - begin;
  }
  free(exact);
  return good;
}

/* Weights add to one and no positive part of them exceeds 1.6, so that 32 bits hold the sums. */
static unsigned char clip(int32_t sum) {
  int32_t value = sum >> FRACTION_BITS;
  return (unsigned char)(value < 0 ? 0 : value > 255 ? 255 : value);
}

/* (source, line) to (target, line), line by line: `sums` holds one line. */
VECTORIZED static void resize_lines(const filter *kernel, const unsigned char *source, size_t line, int32_t targets,
                                    int32_t *sums, unsigned char *target) {
  for (int32_t t = 0; t < targets; t++) {
    const int32_t *weights = kernel->weights + (size_t)t * (size_t)kernel->width;
    for (size_t i = 0; i < line; i++) sums[i] = 1 << (FRACTION_BITS - 1);
    for (int32_t k = 0; k < kernel->count[t]; k++) {
      const unsigned char *from = source + ((size_t)kernel->first[t] + (size_t)k) * line;
      for (size_t i = 0; i < line; i++) sums[i] += from[i] * weights[k];
    }
    for (size_t i = 0; i < line; i++) *target++ = clip(sums[i]);
  }
}

/* (rows, columns, 3) to (columns, 3, BLOCK_ROWS) or back, of up to BLOCK_ROWS rows. */
static void turn_block(const unsigned char *from, int32_t columns, int32_t rows, bool back, unsigned char *to) {
  const size_t line = (size_t)columns * 3;
  for (size_t i = 0; i < line; i++)
    for (size_t y = 0; y < (size_t)rows; y++) {
      const size_t flat = y * line + i, turned = i * BLOCK_ROWS + y;
      to[back ? flat : turned] = from[back ? turned : flat];
    }
}

/* (rows, source, 3) to (rows, target, 3): columns of a block of rows are lines once it is turned. */
static bool resize_columns(const filter *kernel, const unsigned char *source, int32_t width, int32_t rows,
                           int32_t target_width, unsigned char *target) {
  const size_t line = 3 * BLOCK_ROWS;
  unsigned char *turned = calloc((size_t)width + (size_t)target_width, line), *resized = NULL;
  int32_t sums[3 * BLOCK_ROWS];
  if (turned == NULL) return false;
  resized = turned + (size_t)width * line;
  for (int32_t y = 0; y < rows; y += BLOCK_ROWS) {
    const int32_t count = rows - y < BLOCK_ROWS ? rows - y : BLOCK_ROWS;
    turn_block(source + (size_t)y * (size_t)width * 3, width, count, false, turned);
    resize_lines(kernel, turned, line, target_width, sums, resized);
    turn_block(resized, target_width, count, true, target + (size_t)y * (size_t)target_width * 3);
  }
  free(turned);
  return true;
}

motet_status mt_image_resize(const unsigned char *source, int32_t width, int32_t height, int32_t target_width,
                             int32_t target_height, motet_error *error, unsigned char *target) {
  if (width < 1 || height < 1 || target_width < 1 || target_height < 1)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT, "cannot resize %d x %d pixels to %d x %d", width, height,
                        target_width, target_height);
  filter columns = {0}, rows = {0};
  size_t between_bytes = (size_t)target_width * (size_t)height * 3;
  unsigned char *between = NULL;
  int32_t *sums = NULL;
  motet_status status = MOTET_OK;
  const unsigned char *from = source;
  if (width != target_width) {
    between = malloc(between_bytes);
    if (between == NULL || !filter_make(&columns, width, target_width) ||
        !resize_columns(&columns, source, width, height, target_width, between))
      goto fail;
    from = between;
  }
  if (height != target_height) {
    sums = malloc((size_t)target_width * 3 * sizeof *sums);
    if (sums == NULL || !filter_make(&rows, height, target_height)) goto fail;
    resize_lines(&rows, from, (size_t)target_width * 3, target_height, sums, target);
  } else {
    memcpy(target, from, between_bytes);
  }
  goto done;
fail:
  status = mt_error_memory(error, between_bytes, "resizing a picture");
done:
  filter_free(&columns);
  filter_free(&rows);
  free(sums);
  free(between);
  return status;
}
