#include "data/webp.h"

#include <stdint.h>
#include <string.h>

/* Chunks are a name, a length and as many bytes, padded to an even number: RIFF(WEBP, VP8X, ..., ANMF(frame)). */
enum { CHUNK = 8, BEGIN = 12, EXTENDED = 10, FRAME = 16, MOVES = 0x02 };

static uint32_t little(const unsigned char *bytes, int count) {
  uint32_t value = 0;
  for (int i = count - 1; i >= 0; i--) value = value << 8 | bytes[i];
  return value;
}

bool mt_webp_moves(const unsigned char *data, size_t bytes) {
  return bytes >= BEGIN + CHUNK + EXTENDED && memcmp(data + BEGIN, "VP8X", 4) == 0 &&
         (data[BEGIN + CHUNK] & MOVES) != 0;
}

size_t mt_webp_still(const unsigned char *data, size_t bytes, unsigned char *still) {
  size_t place = BEGIN, length = 0;
  for (; place + CHUNK <= bytes; place += CHUNK + length + length % 2) {
    length = little(data + place + 4, 4);
    if (length > bytes - place - CHUNK) return 0;
    if (memcmp(data + place, "ANMF", 4) == 0) break;
  }
  if (place + CHUNK > bytes || length < FRAME) return 0;
  /* Three bytes each: left, top, width - 1, height - 1; the canvas has the last two behind its flags. */
  const unsigned char *frame = data + place + CHUNK, *canvas = data + BEGIN + CHUNK + 4;
  if (little(frame, 3) != 0 || little(frame + 3, 3) != 0 || memcmp(frame + 6, canvas, 6) != 0) return 0;
  size_t inner = length - FRAME, head = BEGIN + CHUNK + EXTENDED;
  memcpy(still, data, head);
  memcpy(still + head, frame + FRAME, inner);
  still[BEGIN + CHUNK] &= (unsigned char)~MOVES;
  for (int i = 0; i < 4; i++) still[4 + i] = (unsigned char)((head + inner - CHUNK) >> 8 * i);
  return head + inner;
}
