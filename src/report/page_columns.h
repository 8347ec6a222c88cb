/** @file
 * Columns of whole numbers for the page: small differences in few bytes, compressed, as base64 text. docs/report.md
 * gives the form; src/report/web/data.js reads it.
 */
#ifndef MT_REPORT_PAGE_COLUMNS_H
#define MT_REPORT_PAGE_COLUMNS_H

#include "base/array.h"
#include "base/text.h"

#include <stdint.h>

/** Start with `mt_column column = {0}`; free with mt_column_free(). */
typedef struct mt_column {
  MT_ARRAY(uint8_t) bytes;
  int64_t before; /* the last value of mt_column_difference() */
  bool failed;    /* memory ran out; later appends do nothing */
} mt_column;

void mt_column_byte(mt_column *column, uint8_t value);

/** Seven bits a byte, the lowest first; the top bit says that more follow. */
void mt_column_unsigned(mt_column *column, uint64_t value);

/** The same of a number of either sign: 0, -1, 1, -2, ... are stored as 0, 1, 2, 3, ... */
void mt_column_signed(mt_column *column, int64_t value);

/** The signed difference to the value given before; the first one's to 0. */
void mt_column_difference(mt_column *column, int64_t value);

/** Appends bytes as base64 (RFC 4648, padded). */
void mt_column_base64(const uint8_t *bytes, size_t count, mt_text *out);

/** Appends the column, compressed (RFC 1950, zlib), as base64. When memory is out, @p out has failed. */
void mt_column_print(const mt_column *column, mt_text *out);

void mt_column_free(mt_column *column);

#endif
