#include "report/page_columns.h"

#include <stdlib.h>
#include <zlib.h>

void mt_column_byte(mt_column *column, uint8_t value) {
  if (!column->failed && !MT_ARRAY_PUSH(&column->bytes, value)) column->failed = true;
}

void mt_column_unsigned(mt_column *column, uint64_t value) {
  for (; value >= 0x80; value >>= 7) mt_column_byte(column, (uint8_t)(0x80 | (value & 0x7f)));
  mt_column_byte(column, (uint8_t)value);
}

void mt_column_signed(mt_column *column, int64_t value) {
  uint64_t doubled = (uint64_t)value << 1;
  mt_column_unsigned(column, value < 0 ? ~doubled : doubled);
}

void mt_column_difference(mt_column *column, int64_t value) {
  mt_column_signed(column, value - column->before);
  column->before = value;
}

void mt_column_base64(const uint8_t *bytes, size_t count, mt_text *out) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  enum { BLOCK = 1024 }; /* groups written at once */
  char block[4 * BLOCK];
  size_t filled = 0;
  for (size_t i = 0; i < count; i += 3) {
    size_t left = count - i;
    uint32_t group = (uint32_t)bytes[i] << 16 | (left > 1 ? (uint32_t)bytes[i + 1] << 8 : 0) |
                     (left > 2 ? (uint32_t)bytes[i + 2] : 0);
    block[filled++] = digits[group >> 18];
    block[filled++] = digits[group >> 12 & 63];
    block[filled++] = left > 1 ? digits[group >> 6 & 63] : '=';
    block[filled++] = left > 2 ? digits[group & 63] : '=';
    if (filled < sizeof block && left > 3) continue;
    mt_text_bytes(out, block, filled);
    filled = 0;
  }
}

void mt_column_print(const mt_column *column, mt_text *out) {
  static const uint8_t nothing = 0; /* zlib takes no NULL */
  const uint8_t *bytes = column->bytes.count > 0 ? column->bytes.data : &nothing;
  uLongf size = compressBound((uLong)column->bytes.count);
  uint8_t *small = malloc(size);
  if (small == NULL || compress(small, &size, bytes, (uLong)column->bytes.count) != Z_OK)
    out->failed = true;
  else
    mt_column_base64(small, size, out);
  free(small);
}

void mt_column_free(mt_column *column) {
  free(column->bytes.data);
  *column = (mt_column){0};
}
