/** @file
 * Pictures: PNG, JPEG, WebP, GIF (its first frame) and BMP, and InternVL's dynamic tiles.
 *
 * The kind is told by the content, not by the name. Transparency is composited on white.
 */
#ifndef MT_DATA_IMAGE_H
#define MT_DATA_IMAGE_H

#include "base/error.h"
#include "model/internvl.h"

#include <stdint.h>

/** 8-bit RGB, (height, width, 3), without padding; freed by mt_image_free(). */
typedef struct mt_image {
  int32_t width, height;
  unsigned char *rgb;
} mt_image;

/** Width and height from the file's header, without decoding. */
motet_status mt_image_probe(const char *path, motet_error *error, int32_t *width, int32_t *height);

/** Decodes a picture. Unreadable, unknown, damaged or truncated ones are refused with file and reason. */
motet_status mt_image_read(const char *path, motet_error *error, mt_image *image);

/** As mt_image_read(), from memory; @p name stands for the file in errors. */
motet_status mt_image_decode(const void *data, size_t bytes, const char *name, motet_error *error, mt_image *image);

void mt_image_free(mt_image *image);

/** How a picture is cut: columns * rows tiles, row by row, and behind them perhaps a thumbnail of the whole. */
typedef struct mt_tiling {
  int32_t columns, rows;
  int32_t tiles; /* thumbnail included */
} mt_tiling;

/** The tiling of a picture of this size (InternVL 1.5, arXiv 2404.16821, section 3.3, and its published code). */
mt_tiling mt_tiling_choose(const mt_internvl *config, int32_t width, int32_t height);

/** The config for one of @p images pictures in a conversation, which share the tiles out as in InternVL's training.
 */
mt_internvl mt_tiling_share(const mt_internvl *config, size_t images);

/**
 * Bicubic resize with antialiasing, in the 8-bit fixed-point arithmetic of Pillow's Image.resize: the same bytes.
 * @param source (height, width, 3)  @param target (target_height, target_width, 3)
 */
motet_status mt_image_resize(const unsigned char *source, int32_t width, int32_t height, int32_t target_width,
                             int32_t target_height, motet_error *error, unsigned char *target);

/** Cuts @p image and normalises it by ImageNet's mean and deviation.
 * @param pixels (tiling->tiles, 3, image_size, image_size) */
motet_status mt_image_tiles(const mt_internvl *config, const mt_image *image, const mt_tiling *tiling,
                            motet_error *error, float *pixels);

#endif
