/** @file Kinds of picture files and their headers. */
#ifndef MT_DATA_IMAGE_HEADER_H
#define MT_DATA_IMAGE_HEADER_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum mt_image_kind {
  MT_IMAGE_PNG = 1,
  MT_IMAGE_JPEG,
  MT_IMAGE_WEBP,
  MT_IMAGE_GIF,
  MT_IMAGE_BMP
} mt_image_kind;

typedef struct mt_image_header {
  mt_image_kind kind;
  int32_t width, height; /* 1 to 65535 each, at most 2^28 pixels together */
} mt_image_header;

/**
 * Reads kind and size. @p read copies @p bytes at @p offset of the file to @p target and returns how many there
 * were. A JPEG's size may stand behind other segments, which are skipped, not read. @p name stands in errors.
 */
typedef size_t mt_image_reader(void *context, uint64_t offset, void *target, size_t bytes);
motet_status mt_image_header_read(mt_image_reader *read, void *context, const char *name, motet_error *error,
                                  mt_image_header *header);

/** Whether a JPEG in memory runs to its end marker, a GIF to the end of its first picture, a BMP to its last row;
 * the decoders find out about the other kinds. */
bool mt_image_is_whole(const mt_image_header *header, const unsigned char *data, size_t bytes);

/** Whether the fourth byte of a picture with four a pixel means nothing: an uncompressed BMP's. */
bool mt_image_has_spare_bytes(const mt_image_header *header, const unsigned char *data, size_t bytes);

#endif
