/** @file Growing arrays: a pointer, a count and a capacity that the owner keeps, grown by one function. */
#ifndef MT_BASE_ARRAY_H
#define MT_BASE_ARRAY_H

#include <stdbool.h>
#include <stddef.h>

/**
 * Makes room for @p needed elements of @p size bytes in `*data`, at least doubling. The new part is not
 * initialised. Returns false, with everything unchanged, when memory is out or the size overflows.
 * The owner frees `*data` with free().
 */
bool mt_array_reserve(void **data, size_t *capacity, size_t needed, size_t size);

/** Declares the fields of a growing array of @p type: use as `MT_ARRAY(int) degrees;`. */
#define MT_ARRAY(type)                                                                                             \
  struct {                                                                                                         \
    type *data;                                                                                                    \
    size_t count;                                                                                                  \
    size_t capacity;                                                                                               \
  }

/** Appends a value (an expression or compound literal) to a MT_ARRAY; false when memory is out. */
#define MT_ARRAY_PUSH(array, ...)                                                                                  \
  (mt_array_reserve((void **)&(array)->data, &(array)->capacity, (array)->count + 1, sizeof *(array)->data) &&     \
   (((array)->data[(array)->count++] = (__VA_ARGS__)), true))

/** For qsort(): doubles from the least to the largest. */
int mt_compare_doubles(const void *left, const void *right);

/** Sorts @p values. The one in the middle, or the mean of the two there; 0 of none. */
double mt_median(double *values, size_t count);

#endif
