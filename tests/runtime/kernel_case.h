/** @file What the tests of kernels share: tables, random numbers, elements, comparison. */
#ifndef MT_TESTS_KERNEL_CASE_H
#define MT_TESTS_KERNEL_CASE_H

#include "base/random.h"
#include "tensor/backend.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const mt_tensor_backend *backends[8];
static int backend_count;

#define FOR_BACKENDS for (int backend = 0; backend < backend_count; backend++)
#define BACKEND backends[backend]

static inline float *fresh(const char *name, int64_t count) {
  float *data = malloc((size_t)(count > 0 ? count : 1) * sizeof *data);
  assert_non_null(data);
  mt_random random = mt_random_stream(7, name);
  for (int64_t i = 0; i < count; i++) data[i] = (float)mt_random_normal(&random);
  return data;
}

static inline double *zeros(int64_t count) {
  double *data = calloc((size_t)count, sizeof *data);
  assert_non_null(data);
  return data;
}

/* Largest difference over the largest value expected. */
static inline void close_to(const mt_tensor_backend *backend, const char *what, const float *found,
                            const double *wanted, int64_t count, double tolerance) {
  double most = 0, largest = 1e-30;
  for (int64_t i = 0; i < count; i++) {
    const double off = fabs((double)found[i] - wanted[i]);
    most = off > most || isnan(off) ? off : most;
    largest = fabs(wanted[i]) > largest ? fabs(wanted[i]) : largest;
  }
  if (!(most <= tolerance * largest)) fail_msg("%s of %s is off by %g of %g", what, backend->name, most, largest);
}

/* The elements that @p count floats become, and back: bfloat16 tables get their own arrays. */
static inline void *elements_of(const mt_tensor_backend *backend, const float *floats, int64_t count) {
  void *elements = malloc((size_t)(count > 0 ? count : 1) * mt_element_bytes(backend->element));
  assert_non_null(elements);
  backend->add_floats(count, floats, NULL, elements);
  return elements;
}

static inline void floats_of(const mt_tensor_backend *backend, const void *elements, int64_t count, float *floats) {
  backend->to_floats(count, elements, floats);
}

/* Numbers that every table stores exactly. */
static inline void round_to_bfloat16(float *floats, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    uint32_t bits;
    memcpy(&bits, &floats[i], sizeof bits);
    bits &= 0xffff0000U;
    memcpy(&floats[i], &bits, sizeof bits);
  }
}

/* Rounds an array to what the backend can store, so that a reference starts from the same numbers. */
static inline void round_floats(const mt_tensor_backend *backend, float *floats, int64_t count) {
  void *elements = elements_of(backend, floats, count);
  floats_of(backend, elements, count, floats);
  free(elements);
}

/* A stored result of bfloat16 is off by half a unit of its 8 bits. */
static inline double tolerance_of(const mt_tensor_backend *backend, double tolerance) {
  return backend->element == MT_ELEMENT_BFLOAT16 ? tolerance + 0x1p-8 : tolerance;
}

#endif
