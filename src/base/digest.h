/** @file
 * Digests: XXH3 over a canonical byte form. Numbers go in as little-endian fixed-width values, never as
 * structs with padding, so that every compiler and rank computes the same digest.
 */
#ifndef MT_BASE_DIGEST_H
#define MT_BASE_DIGEST_H

#include <stddef.h>
#include <stdint.h>

typedef struct mt_digest mt_digest;

enum { MT_DIGEST_TEXT_SIZE = 17 };

mt_digest *mt_digest_create(void);
void mt_digest_destroy(mt_digest *digest);

void mt_digest_bytes(mt_digest *digest, const void *data, size_t bytes);
void mt_digest_integer(mt_digest *digest, int64_t value);
void mt_digest_number(mt_digest *digest, double value);
/** Length first, then the characters, so that adjacent texts cannot run together. */
void mt_digest_text(mt_digest *digest, const char *text);

uint64_t mt_digest_value(const mt_digest *digest);

/** One-shot form. */
uint64_t mt_digest_of(const void *data, size_t bytes);

/** 128 bits, for names that must never meet. */
void mt_digest_wide(const void *data, size_t bytes, uint64_t digest[2]);

/** 16 lower-case hexadecimal digits and a terminating zero. */
void mt_digest_print(uint64_t value, char text[MT_DIGEST_TEXT_SIZE]);

#endif
