/** @file Element types as safetensors files name them, and conversion between their bytes and float32. */
#ifndef MT_TENSOR_DTYPE_H
#define MT_TENSOR_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum mt_dtype {
  MT_DTYPE_BOOL,
  MT_DTYPE_U8,
  MT_DTYPE_I8,
  MT_DTYPE_F8_E4M3,
  MT_DTYPE_F8_E5M2,
  MT_DTYPE_I16,
  MT_DTYPE_U16,
  MT_DTYPE_F16,
  MT_DTYPE_BF16,
  MT_DTYPE_I32,
  MT_DTYPE_U32,
  MT_DTYPE_F32,
  MT_DTYPE_I64,
  MT_DTYPE_U64,
  MT_DTYPE_F64,
  MT_DTYPE_COUNT
} mt_dtype;

/** "F32", "BF16", ... */
const char *mt_dtype_name(mt_dtype dtype);

/** Bytes of one element. */
size_t mt_dtype_bytes(mt_dtype dtype);

/** The type that safetensors calls @p name; false when there is none here. */
bool mt_dtype_parse(const char *name, mt_dtype *dtype);

/**
 * Converts @p count elements of F16, BF16, F32 or F64 to float32. @p data may be unaligned. Halves convert
 * exactly; F64 rounds to nearest. False, with nothing written, for the other types.
 */
bool mt_dtype_to_floats(mt_dtype dtype, const void *data, size_t count, float *floats);

/**
 * Converts @p count float32 to F16, BF16 (round to nearest, ties to even; NaN stays NaN; beyond the range gives
 * infinity) or F32. False, with nothing written, for the other types.
 */
bool mt_dtype_from_floats(mt_dtype dtype, const float *floats, size_t count, void *data);

#endif
