#include "base/digest.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

/* The state is XXH3's own; the struct is only ever seen through this file. */

mt_digest *mt_digest_create(void) {
  XXH3_state_t *state = XXH3_createState();
  if (state != NULL) XXH3_64bits_reset(state);
  return (mt_digest *)state;
}

void mt_digest_destroy(mt_digest *digest) {
  if (digest != NULL) XXH3_freeState((XXH3_state_t *)digest);
}

void mt_digest_bytes(mt_digest *digest, const void *data, size_t bytes) {
  if (bytes > 0) XXH3_64bits_update((XXH3_state_t *)digest, data, bytes);
}

void mt_digest_integer(mt_digest *digest, int64_t value) {
  unsigned char little[8];
  uint64_t bits = (uint64_t)value;
  for (int i = 0; i < 8; i++) little[i] = (unsigned char)(bits >> (8 * i));
  mt_digest_bytes(digest, little, sizeof little);
}

void mt_digest_number(mt_digest *digest, double value) {
  int64_t bits;
  if (value == 0.0) value = 0.0; /* -0.0 and 0.0 are one number */
  memcpy(&bits, &value, sizeof bits);
  mt_digest_integer(digest, bits);
}

void mt_digest_text(mt_digest *digest, const char *text) {
  size_t length = strlen(text);
  mt_digest_integer(digest, (int64_t)length);
  mt_digest_bytes(digest, text, length);
}

uint64_t mt_digest_value(const mt_digest *digest) { return XXH3_64bits_digest((const XXH3_state_t *)digest); }

uint64_t mt_digest_of(const void *data, size_t bytes) { return XXH3_64bits(data, bytes); }

void mt_digest_wide(const void *data, size_t bytes, uint64_t digest[2]) {
  XXH128_hash_t hash = XXH3_128bits(data, bytes);
  digest[0] = hash.high64;
  digest[1] = hash.low64;
}

void mt_digest_print(uint64_t value, char text[MT_DIGEST_TEXT_SIZE]) {
  snprintf(text, MT_DIGEST_TEXT_SIZE, "%016" PRIx64, value);
}
