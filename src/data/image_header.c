#include "data/image_header.h"

#include <inttypes.h>
#include <string.h>

enum { HEAD_BYTES = 32, MAX_EXTENT = 65535, MAX_PIXELS = 1 << 28, MAX_SEGMENTS = 4096 };

/* JPEG markers (ITU-T T.81, table B.1). */
enum { SOI = 0xd8, EOI = 0xd9, SOS = 0xda, TEM = 0x01, RST0 = 0xd0, RST7 = 0xd7 };

typedef struct source {
  mt_image_reader *read;
  void *context;
  unsigned char head[HEAD_BYTES];
  size_t head_bytes;
} source;

static uint32_t little(const unsigned char *bytes, int count) {
  uint32_t value = 0;
  for (int i = count - 1; i >= 0; i--) value = value << 8 | bytes[i];
  return value;
}

static uint32_t big(const unsigned char *bytes, int count) {
  uint32_t value = 0;
  for (int i = 0; i < count; i++) value = value << 8 | bytes[i];
  return value;
}

/* Each gives width and height, or false if the header is cut short or is not what it seems. */
typedef int size_reader(const source *from, uint32_t *width, uint32_t *height);

static int png_size(const source *from, uint32_t *width, uint32_t *height) {
  if (from->head_bytes < 24 || memcmp(from->head + 12, "IHDR", 4) != 0) return 0;
  *width = big(from->head + 16, 4);
  *height = big(from->head + 20, 4);
  return 1;
}

/* Frame headers are C0 to CF without DHT, JPG and DAC. */
static int is_frame(unsigned char marker) {
  return marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc;
}

static int jpeg_size(const source *from, uint32_t *width, uint32_t *height) {
  uint64_t offset = 2;
  for (int i = 0; i < MAX_SEGMENTS; i++) {
    unsigned char segment[9];
    size_t got = from->read(from->context, offset, segment, sizeof segment);
    if (got < 4 || segment[0] != 0xff) return 0;
    if (segment[1] == 0xff) { /* fill bytes may stand before a marker */
      offset++;
      continue;
    }
    if (segment[1] == TEM || (segment[1] >= RST0 && segment[1] <= SOI)) {
      offset += 2;
      continue;
    }
    if (is_frame(segment[1])) {
      if (got < 9) return 0;
      *height = big(segment + 5, 2);
      *width = big(segment + 7, 2);
      return 1;
    }
    uint32_t length = big(segment + 2, 2);
    if (segment[1] == SOS || segment[1] == EOI || length < 2) return 0;
    offset += 2 + (uint64_t)length;
  }
  return 0;
}

static int webp_size(const source *from, uint32_t *width, uint32_t *height) {
  const unsigned char *head = from->head;
  if (from->head_bytes < 30) return 0;
  if (memcmp(head + 12, "VP8X", 4) == 0) {
    *width = little(head + 24, 3) + 1;
    *height = little(head + 27, 3) + 1;
    return 1;
  }
  if (memcmp(head + 12, "VP8 ", 4) == 0 && head[23] == 0x9d && head[24] == 0x01 && head[25] == 0x2a) {
    *width = little(head + 26, 2) & 0x3fff;
    *height = little(head + 28, 2) & 0x3fff;
    return 1;
  }
  if (memcmp(head + 12, "VP8L", 4) == 0 && head[20] == 0x2f) {
    uint32_t bits = little(head + 21, 4);
    *width = (bits & 0x3fff) + 1;
    *height = (bits >> 14 & 0x3fff) + 1;
    return 1;
  }
  return 0;
}

static int gif_size(const source *from, uint32_t *width, uint32_t *height) {
  if (from->head_bytes < 10) return 0;
  *width = little(from->head + 6, 2);
  *height = little(from->head + 8, 2);
  return 1;
}

static int bmp_size(const source *from, uint32_t *width, uint32_t *height) {
  if (from->head_bytes < 26) return 0;
  if (little(from->head + 14, 4) == 12) { /* the oldest form has 16-bit sizes */
    *width = little(from->head + 18, 2);
    *height = little(from->head + 20, 2);
    return 1;
  }
  *width = little(from->head + 18, 4);
  int32_t rows;
  memcpy(&rows, &(uint32_t){little(from->head + 22, 4)}, sizeof rows);
  *height = rows < 0 ? 0u - (uint32_t)rows : (uint32_t)rows; /* negative: from the top down */
  return 1;
}

static const struct {
  mt_image_kind kind;
  const char *name;
  size_t offset; /* of the second signature */
  const char *first, *second;
  size_t first_bytes, second_bytes;
  size_reader *size;
} KINDS[] = {
    {MT_IMAGE_PNG, "PNG", 0, "\x89PNG\r\n\x1a\n", "", 8, 0, png_size},
    {MT_IMAGE_JPEG, "JPEG", 0, "\xff\xd8\xff", "", 3, 0, jpeg_size},
    {MT_IMAGE_WEBP, "WebP", 8, "RIFF", "WEBP", 4, 4, webp_size},
    {MT_IMAGE_GIF, "GIF", 0, "GIF8", "", 4, 0, gif_size},
    {MT_IMAGE_BMP, "BMP", 0, "BM", "", 2, 0, bmp_size},
};

static motet_status at_file(motet_error *error, const char *name, motet_status status) {
  mt_error_place(error, name, 0);
  return status;
}

motet_status mt_image_header_read(mt_image_reader *read, void *context, const char *name, motet_error *error,
                                  mt_image_header *header) {
  source from = {.read = read, .context = context};
  from.head_bytes = read(context, 0, from.head, HEAD_BYTES);
  for (size_t i = 0; i < sizeof KINDS / sizeof *KINDS; i++) {
    if (from.head_bytes < KINDS[i].first_bytes || from.head_bytes < KINDS[i].offset + KINDS[i].second_bytes ||
        memcmp(from.head, KINDS[i].first, KINDS[i].first_bytes) != 0 ||
        memcmp(from.head + KINDS[i].offset, KINDS[i].second, KINDS[i].second_bytes) != 0)
      continue;
    uint32_t width, height;
    if (!KINDS[i].size(&from, &width, &height))
      return at_file(
          error, name,
          mt_error_set(error, MOTET_ERROR_PARSE, "%s: its %s header is damaged or cut short", name, KINDS[i].name));
    if (width == 0 || height == 0)
      return at_file(error, name,
                     mt_error_set(error, MOTET_ERROR_PARSE, "%s: a %s of %" PRIu32 " x %" PRIu32 " pixels", name,
                                  KINDS[i].name, width, height));
    if (width > MAX_EXTENT || height > MAX_EXTENT || (uint64_t)width * height > MAX_PIXELS)
      return at_file(error, name,
                     mt_error_set(error, MOTET_ERROR_LIMIT,
                                  "%s: %" PRIu32 " x %" PRIu32
                                  " pixels are too many; at most %d in all and %d a side are read",
                                  name, width, height, MAX_PIXELS, MAX_EXTENT));
    *header = (mt_image_header){KINDS[i].kind, (int32_t)width, (int32_t)height};
    return MOTET_OK;
  }
  return at_file(error, name,
                 mt_error_set(error, MOTET_ERROR_PARSE, "%s is no PNG, JPEG, WebP, GIF or BMP file", name));
}

static bool jpeg_is_whole(const unsigned char *data, size_t bytes) {
  /* Up to the first scan by segments: an embedded thumbnail has an end marker of its own. In the coded data behind
     it 0xff is always followed by 0x00 or a marker. */
  size_t place = 2;
  while (place + 4 <= bytes && data[place] == 0xff && data[place + 1] != SOS) {
    if (data[place + 1] == 0xff)
      place++;
    else if (data[place + 1] == TEM || (data[place + 1] >= RST0 && data[place + 1] <= SOI))
      place += 2;
    else
      place += 2 + (size_t)big(data + place + 2, 2);
  }
  for (; place + 1 < bytes; place++)
    if (data[place] == 0xff && data[place + 1] == EOI) return true;
  return false;
}

/* Skips a chain of sub-blocks, each with its length in front, up to and with the empty one; 0 if it is cut short.
 */
static size_t skip_blocks(const unsigned char *data, size_t bytes, size_t place) {
  while (place < bytes && data[place] != 0) place += 1 + (size_t)data[place];
  return place < bytes ? place + 1 : 0;
}

static size_t color_table_bytes(unsigned char flags) { return flags & 0x80 ? (size_t)3 << ((flags & 7) + 1) : 0; }

static bool gif_is_whole(const unsigned char *data, size_t bytes) {
  if (bytes < 13) return false;
  size_t place = 13 + color_table_bytes(data[10]);
  while (place + 10 < bytes) {
    if (data[place] == 0x21) { /* an extension: label, sub-blocks */
      place = skip_blocks(data, bytes, place + 2);
      if (place == 0) return false;
      continue;
    }
    /* An image: nine bytes of place and flags, perhaps colours, the code size, sub-blocks. */
    return data[place] == 0x2c && skip_blocks(data, bytes, place + 11 + color_table_bytes(data[place + 9])) > 0;
  }
  return false;
}

static bool bmp_is_whole(const mt_image_header *header, const unsigned char *data, size_t bytes) {
  if (bytes < 34) return false;
  bool old = little(data + 14, 4) == 12;
  uint64_t bits = little(data + (old ? 24 : 28), 2), begin = little(data + 10, 4);
  if (!old && little(data + 30, 4) != 0 && little(data + 30, 4) != 3) return true; /* compressed: sizes vary */
  uint64_t row = ((uint64_t)header->width * bits + 31) / 32 * 4;
  return begin + row * (uint64_t)header->height <= bytes;
}

bool mt_image_is_whole(const mt_image_header *header, const unsigned char *data, size_t bytes) {
  switch (header->kind) {
  case MT_IMAGE_JPEG: return jpeg_is_whole(data, bytes);
  case MT_IMAGE_GIF: return gif_is_whole(data, bytes);
  case MT_IMAGE_BMP: return bmp_is_whole(header, data, bytes);
  default: return true;
  }
}

bool mt_image_has_spare_bytes(const mt_image_header *header, const unsigned char *data, size_t bytes) {
  return header->kind == MT_IMAGE_BMP && bytes >= 34 && little(data + 30, 4) == 0;
}
