/** @file Words and numbers as the reports print them. */
#ifndef MT_REPORT_WORDS_H
#define MT_REPORT_WORDS_H

#include "base/text.h"
#include "motet/program.h"

#include <stdint.h>

/** "FWD of llm.3, microbatch 5": what the instruction at @p place of the flat array does. */
void mt_words_instruction(mt_text *text, const motet_program *program, int64_t place);

/** "llm.3": region and slab of a stage; a replicated region's one slab has no number. */
void mt_words_stage(mt_text *text, const motet_program *program, int32_t stage);

/** "stage imbalance": a key's words. */
void mt_words_key(mt_text *text, const char *key);

/** "1.5 GiB", "320 B". */
void mt_words_bytes(mt_text *text, int64_t bytes);

/** "1.5 TFLOP": floating-point operations, in powers of 1000. */
void mt_words_flops(mt_text *text, double flops);

/** A unit in which times up to @p largest read well, and how many of it a second has. */
typedef struct mt_words_unit {
  const char *name; /* "s", "ms", "us" */
  double per_second;
} mt_words_unit;

mt_words_unit mt_words_time_unit(double largest);

/** The number with at most @p digits significant digits (of which a zero before the point takes one), without an
 * exponent where it reads well, no trailing zeros. */
void mt_words_number(mt_text *text, double value, int digits);

/** Columns that a UTF-8 text takes, one a code point: the reports use no wide characters of their own. */
int mt_words_columns(const char *text);

/** Appends spaces until @p text has @p columns columns behind position @p from. */
void mt_words_pad(mt_text *text, size_t from, int columns);

#endif
