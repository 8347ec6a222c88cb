/** @file
 * Moving WebP pictures: their first frame as a still picture. FFmpeg decodes still ones alone.
 */
#ifndef MT_DATA_WEBP_H
#define MT_DATA_WEBP_H

#include <stdbool.h>
#include <stddef.h>

/** Whether the WebP file in memory says that it moves. */
bool mt_webp_moves(const unsigned char *data, size_t bytes);

/**
 * Writes the first frame of a moving WebP as a file of its own to @p still, which has room for @p bytes.
 * @return its length; 0 where the file is damaged, or the frame does not cover the whole picture.
 */
size_t mt_webp_still(const unsigned char *data, size_t bytes, unsigned char *still);

#endif
