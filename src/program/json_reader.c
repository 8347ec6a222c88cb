#include "program/json_reader.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

motet_status mt_reader_wrong(const mt_json_reader *this, const char *problem, const char *format, ...) {
  char key[MOTET_ERROR_KEY_SIZE];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(key, sizeof key, format, arguments);
  va_end(arguments);
  mt_error_set(this->error, MOTET_ERROR_PARSE, "%s %s", key, problem);
  mt_error_key(this->error, key);
  return MOTET_ERROR_PARSE;
}

motet_status mt_reader_check_keys(const mt_json_reader *this, const json_t *object, const char *const *keys,
                                  const char *where) {
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)(uintptr_t)object, key, value) {
    int i = 0;
    while (keys[i] != NULL && strcmp(keys[i], key) != 0) i++;
    if (keys[i] == NULL) return mt_reader_wrong(this, "is not a key of this format", "%s%.80s", where, key);
  }
  return MOTET_OK;
}

motet_status mt_reader_integer(const mt_json_reader *this, const json_t *value, int64_t low, int64_t high,
                               int64_t *result, const char *where) {
  if (!json_is_integer(value)) return mt_reader_wrong(this, "must be an integer", "%s", where);
  *result = json_integer_value(value);
  if (*result < low || *result > high) return mt_reader_wrong(this, "is an integer out of range", "%s", where);
  return MOTET_OK;
}

motet_status mt_reader_int32(const mt_json_reader *this, const json_t *value, int32_t *result, const char *where) {
  int64_t wide = 0;
  motet_status status = mt_reader_integer(this, value, INT32_MIN, INT32_MAX, &wide, where);
  *result = (int32_t)wide;
  return status;
}

motet_status mt_reader_seconds(const mt_json_reader *this, const json_t *value, double *result, const char *where) {
  *result = json_number_value(value);
  if (!json_is_number(value) || !isfinite(*result) || *result < 0)
    return mt_reader_wrong(this, "must be a finite number >= 0", "%s", where);
  return MOTET_OK;
}

bool mt_reader_table_fits(const mt_json_reader *this, int64_t rows, int64_t columns) {
  return columns <= 1 || (uint64_t)columns * (uint64_t)rows <= 64 * (uint64_t)this->file_bytes;
}
