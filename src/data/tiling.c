/* InternVL's dynamic tiles: the grid whose aspect ratio is closest to the picture's, the picture stretched to it.
 */
#include "data/image.h"

#include <math.h>
#include <stdlib.h>

static const float MEAN[3] = {0.485f, 0.456f, 0.406f}, DEVIATION[3] = {0.229f, 0.224f, 0.225f};

mt_tiling mt_tiling_choose(const mt_internvl *config, int32_t width, int32_t height) {
  mt_tiling best = {1, 1, 1};
  double aspect = (double)width / height, area = (double)width * height, best_difference = INFINITY;
  double tile_area = (double)config->vision.image_size * config->vision.image_size;
  /* Grids in order of their tiles, then of their columns. Of equally close ones the later, larger, is taken while
     the picture covers more than half of it. */
  for (int32_t tiles = config->min_tiles; tiles <= config->max_tiles; tiles++) {
    for (int32_t columns = 1; columns <= tiles; columns++) {
      if (tiles % columns != 0) continue;
      int32_t rows = tiles / columns;
      double difference = fabs(aspect - (double)columns / rows);
      if (difference < best_difference ||
          (difference == best_difference && area > 0.5 * tile_area * columns * rows)) {
        best_difference = difference;
        best = (mt_tiling){columns, rows, tiles};
      }
    }
  }
  if (config->use_thumbnail && best.tiles > 1) best.tiles++;
  return best;
}

mt_internvl mt_tiling_share(const mt_internvl *config, size_t images) {
  mt_internvl shared = *config;
  if (images > 1) {
    shared.max_tiles = (int32_t)((size_t)config->max_tiles / images);
    if (shared.max_tiles < 1) shared.max_tiles = 1;
    if (shared.min_tiles > shared.max_tiles) shared.min_tiles = shared.max_tiles;
  }
  return shared;
}

/* Copies the square at (x, y) of (.., width, 3) to (3, size, size), normalised. */
static void normalize_tile(const unsigned char *rgb, int32_t width, int32_t x, int32_t y, int32_t size,
                           float *pixels) {
  for (int c = 0; c < 3; c++)
    for (int32_t row = 0; row < size; row++) {
      const unsigned char *from = rgb + ((size_t)(y + row) * (size_t)width + (size_t)x) * 3 + c;
      for (int32_t column = 0; column < size; column++, from += 3)
        *pixels++ = ((float)*from / 255.0f - MEAN[c]) / DEVIATION[c];
    }
}

motet_status mt_image_tiles(const mt_internvl *config, const mt_image *image, const mt_tiling *tiling,
                            motet_error *error, float *pixels) {
  int32_t size = config->vision.image_size;
  int32_t width = tiling->columns * size, height = tiling->rows * size;
  unsigned char *resized = malloc((size_t)width * (size_t)height * 3);
  if (resized == NULL) return mt_error_memory(error, (size_t)width * (size_t)height * 3, "a resized picture");
  motet_status status = mt_image_resize(image->rgb, image->width, image->height, width, height, error, resized);
  size_t tile_floats = (size_t)size * (size_t)size * 3;
  if (status == MOTET_OK)
    for (int32_t row = 0; row < tiling->rows; row++)
      for (int32_t column = 0; column < tiling->columns; column++, pixels += tile_floats)
        normalize_tile(resized, width, column * size, row * size, size, pixels);
  if (status == MOTET_OK && tiling->tiles > tiling->columns * tiling->rows) {
    status = mt_image_resize(image->rgb, image->width, image->height, size, size, error, resized);
    if (status == MOTET_OK) normalize_tile(resized, size, 0, 0, size, pixels);
  }
  free(resized);
  return status;
}
