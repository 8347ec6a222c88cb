/** @file UTF-8 and the byte-level alphabet of GPT-2. */
#ifndef MT_DATA_UNICODE_H
#define MT_DATA_UNICODE_H

#include "base/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Decodes the character at @p text; returns its length in bytes, or 0 if no well-formed character starts there. */
size_t mt_unicode_next(const unsigned char *text, size_t bytes, int32_t *character);

/** The length of the well-formed UTF-8 prefix of @p text: @p bytes when all of it is. */
size_t mt_unicode_valid(const void *text, size_t bytes);

/** Appends @p bytes, each maximal ill-formed part replaced by U+FFFD (Unicode 15, section 3.9, as Rust and Python
 * do). */
void mt_unicode_append_lossy(mt_text *text, const void *bytes, size_t count);

/** Property White_Space. */
bool mt_unicode_is_space(int32_t character);

/** A letter, mark, digit, connector or joiner: what the regular expression \w matches. */
bool mt_unicode_is_word(int32_t character);

/**
 * Translates a token of a byte-level vocabulary to the bytes that it stands for: printable Latin-1 characters are
 * themselves, the 68 other bytes are the characters from U+0100 on, in order. @p target needs room for @p bytes.
 * Returns the number of bytes, or -1 if a character is outside the alphabet.
 */
ptrdiff_t mt_unicode_bytes_of_token(const char *token, size_t bytes, unsigned char *target);

#endif
