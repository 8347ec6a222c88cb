#include "tensor/dtype.h"

#include <string.h>

static const struct {
  const char *name;
  size_t bytes;
} TYPES[MT_DTYPE_COUNT] = {
    [MT_DTYPE_BOOL] = {"BOOL", 1},       [MT_DTYPE_U8] = {"U8", 1},           [MT_DTYPE_I8] = {"I8", 1},
    [MT_DTYPE_F8_E4M3] = {"F8_E4M3", 1}, [MT_DTYPE_F8_E5M2] = {"F8_E5M2", 1}, [MT_DTYPE_I16] = {"I16", 2},
    [MT_DTYPE_U16] = {"U16", 2},         [MT_DTYPE_F16] = {"F16", 2},         [MT_DTYPE_BF16] = {"BF16", 2},
    [MT_DTYPE_I32] = {"I32", 4},         [MT_DTYPE_U32] = {"U32", 4},         [MT_DTYPE_F32] = {"F32", 4},
    [MT_DTYPE_I64] = {"I64", 8},         [MT_DTYPE_U64] = {"U64", 8},         [MT_DTYPE_F64] = {"F64", 8},
};

const char *mt_dtype_name(mt_dtype dtype) { return TYPES[dtype].name; }

size_t mt_dtype_bytes(mt_dtype dtype) { return TYPES[dtype].bytes; }

bool mt_dtype_parse(const char *name, mt_dtype *dtype) {
  for (int i = 0; i < MT_DTYPE_COUNT; i++)
    if (strcmp(TYPES[i].name, name) == 0) {
      *dtype = (mt_dtype)i;
      return true;
    }
  return false;
}

static float float_of_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static uint32_t bits_of_float(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static float float_of_half(uint16_t half) {
  uint32_t sign = (uint32_t)(half & 0x8000u) << 16, exponent = half >> 10 & 31u, fraction = half & 0x3ffu;
  if (exponent == 31) return float_of_bits(sign | 0x7f800000u | fraction << 13);
  /* Subnormal halves are fraction * 2^-24, which float32 holds exactly. */
  if (exponent == 0) return float_of_bits(sign | bits_of_float((float)fraction * 0x1p-24f));
  return float_of_bits(sign | (exponent + 112) << 23 | fraction << 13);
}

static uint16_t half_of_float(float value) {
  uint32_t bits = bits_of_float(value), magnitude = bits & 0x7fffffffu;
  uint16_t sign = (uint16_t)(bits >> 16 & 0x8000u);
  if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
  if (magnitude >= 0x47800000u) return (uint16_t)(sign | 0x7c00u); /* 65536 and more */
  if (magnitude < 0x38800000u) {
    /* Below the smallest normal half: adding 0.5 leaves the fraction in units of 2^-24, rounded to even by the
       addition itself. */
    uint32_t rounded = bits_of_float(float_of_bits(magnitude) + 0.5f) - bits_of_float(0.5f);
    return (uint16_t)(sign | rounded);
  }
  uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u);
  return (uint16_t)(sign | ((rounded >> 13) - (112u << 10))); /* a carry out of the range gives infinity */
}

static uint16_t brain_of_float(float value) {
  uint32_t bits = bits_of_float(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(bits >> 16 | 0x40u);
  return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

bool mt_dtype_to_floats(mt_dtype dtype, const void *data, size_t count, float *floats) {
  const unsigned char *bytes = data;
  switch (dtype) {
  case MT_DTYPE_F32:
    if (count > 0) memcpy(floats, data, count * sizeof *floats);
    return true;
  case MT_DTYPE_BF16:
    for (size_t i = 0; i < count; i++) {
      uint16_t element;
      memcpy(&element, bytes + 2 * i, 2);
      floats[i] = float_of_bits((uint32_t)element << 16);
    }
    return true;
  case MT_DTYPE_F16:
    for (size_t i = 0; i < count; i++) {
      uint16_t element;
      memcpy(&element, bytes + 2 * i, 2);
      floats[i] = float_of_half(element);
    }
    return true;
  case MT_DTYPE_F64:
    for (size_t i = 0; i < count; i++) {
      double element;
      memcpy(&element, bytes + 8 * i, 8);
      floats[i] = (float)element;
    }
    return true;
  default: return false;
  }
}

bool mt_dtype_from_floats(mt_dtype dtype, const float *floats, size_t count, void *data) {
  unsigned char *bytes = data;
  switch (dtype) {
  case MT_DTYPE_F32:
    if (count > 0) memcpy(data, floats, count * sizeof *floats);
    return true;
  case MT_DTYPE_BF16:
  case MT_DTYPE_F16:
    for (size_t i = 0; i < count; i++) {
      uint16_t element = dtype == MT_DTYPE_BF16 ? brain_of_float(floats[i]) : half_of_float(floats[i]);
      memcpy(bytes + 2 * i, &element, 2);
    }
    return true;
  default: return false;
  }
}
