/** @file Enlarging the halved colour planes of JPEG and WebP pictures. */
#ifndef MT_DATA_CHROMA_H
#define MT_DATA_CHROMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * Doubles a plane in width and, if @p tall, in height by the triangle filter between pixel centres: each new value
 * is 3/4 of its own and 1/4 of the neighbouring old one, a direction; edges repeat. With libjpeg's rounding.
 * @param source ((height + 1) / 2 or height, (width + 1) / 2), rows @p source_stride apart
 * @param target (height, width), rows @p target_stride apart
 */
void mt_chroma_enlarge(const uint8_t *source, ptrdiff_t source_stride, int32_t width, int32_t height, bool tall,
                       uint8_t *target, ptrdiff_t target_stride);

#endif
