#include "data/unicode.h"

#include <utf8proc.h>

size_t mt_unicode_next(const unsigned char *text, size_t bytes, int32_t *character) {
  if (bytes == 0) return 0;
  if (text[0] < 0x80) {
    *character = text[0];
    return 1;
  }
  utf8proc_ssize_t length = utf8proc_iterate(text, bytes < 4 ? (utf8proc_ssize_t)bytes : 4, character);
  return length > 0 ? (size_t)length : 0;
}

size_t mt_unicode_valid(const void *text, size_t bytes) {
  const unsigned char *next = text;
  size_t place = 0, length;
  int32_t character;
  while (place < bytes && (length = mt_unicode_next(next + place, bytes - place, &character)) > 0) place += length;
  return place;
}

/* How many bytes, at least one, begin a character that is not completed. */
static size_t maximal_subpart(const unsigned char *text, size_t bytes) {
  unsigned char lead = text[0];
  size_t wanted = lead >= 0xc2 && lead <= 0xdf   ? 2
                  : lead >= 0xe0 && lead <= 0xef ? 3
                  : lead >= 0xf0 && lead <= 0xf4 ? 4
                                                 : 1;
  size_t length = 1;
  while (length < wanted && length < bytes) {
    unsigned char low = 0x80, high = 0xbf;
    if (length == 1) {
      if (lead == 0xe0) low = 0xa0;
      if (lead == 0xed) high = 0x9f;
      if (lead == 0xf0) low = 0x90;
      if (lead == 0xf4) high = 0x8f;
    }
    if (text[length] < low || text[length] > high) break;
    length++;
  }
  return length;
}

void mt_unicode_append_lossy(mt_text *text, const void *bytes, size_t count) {
  const unsigned char *next = bytes;
  while (count > 0) {
    size_t valid = mt_unicode_valid(next, count);
    if (valid > 0) mt_text_bytes(text, (const char *)next, valid);
    next += valid;
    count -= valid;
    if (count == 0) break;
    mt_text_bytes(text, "\xef\xbf\xbd", 3);
    size_t skipped = maximal_subpart(next, count);
    next += skipped;
    count -= skipped;
  }
}

bool mt_unicode_is_space(int32_t character) {
  switch (character) {
  case 0x20:
  case 0x85:
  case 0xa0:
  case 0x1680:
  case 0x2028:
  case 0x2029:
  case 0x202f:
  case 0x205f:
  case 0x3000: return true;
  default: return (character >= 0x09 && character <= 0x0d) || (character >= 0x2000 && character <= 0x200a);
  }
}

bool mt_unicode_is_word(int32_t character) {
  if (character == 0x200c || character == 0x200d) return true;   /* Join_Control */
  if ((character >= 0x24b6 && character <= 0x24e9)) return true; /* circled letters are Alphabetic */
  if ((character >= 0x1f130 && character <= 0x1f149) || (character >= 0x1f150 && character <= 0x1f169) ||
      (character >= 0x1f170 && character <= 0x1f189))
    return true;
  switch (utf8proc_category(character)) {
  case UTF8PROC_CATEGORY_LU:
  case UTF8PROC_CATEGORY_LL:
  case UTF8PROC_CATEGORY_LT:
  case UTF8PROC_CATEGORY_LM:
  case UTF8PROC_CATEGORY_LO:
  case UTF8PROC_CATEGORY_MN:
  case UTF8PROC_CATEGORY_MC:
  case UTF8PROC_CATEGORY_ME:
  case UTF8PROC_CATEGORY_ND:
  case UTF8PROC_CATEGORY_NL:
  case UTF8PROC_CATEGORY_PC: return true;
  default: return false;
  }
}

static bool stands_for_itself(int32_t character) {
  return (character >= 0x21 && character <= 0x7e) || (character >= 0xa1 && character <= 0xac) ||
         (character >= 0xae && character <= 0xff);
}

/* The byte that is written as U+0100 + index: the index-th byte that does not stand for itself. */
static int32_t shifted_byte(int32_t index) {
  static const struct { int32_t first, count; } runs[] = {{0x00, 0x21}, {0x7f, 0x22}, {0xad, 1}};
  for (int i = 0; i < 3; i++) {
    if (index < runs[i].count) return runs[i].first + index;
    index -= runs[i].count;
  }
  return -1;
}

ptrdiff_t mt_unicode_bytes_of_token(const char *token, size_t bytes, unsigned char *target) {
  const unsigned char *next = (const unsigned char *)token;
  ptrdiff_t count = 0;
  while (bytes > 0) {
    int32_t character;
    size_t length = mt_unicode_next(next, bytes, &character);
    if (length == 0) return -1;
    int32_t byte = stands_for_itself(character) ? character
                   : character >= 0x100         ? shifted_byte(character - 0x100)
                                                : -1;
    if (byte < 0) return -1;
    target[count++] = (unsigned char)byte;
    next += length;
    bytes -= length;
  }
  return count;
}
