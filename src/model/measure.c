/* From the data of a microbatch to rows and areas: what each family's layers are charged by. */
#include "model/draft.h"

#include <math.h>

static double sum_text(const mt_shape *shape, double window, double *extents) {
  double tokens = 0;
  for (int32_t s = 0; s < shape->segment_count; s++) {
    double n = (double)shape->segments[s], filling = fmin(n, window);
    tokens += n;
    extents[MT_AREA_TEXT] += n * (n + 1) / 2;
    extents[MT_AREA_SLIDING] += filling * (filling + 1) / 2 + (n - filling) * window;
  }
  extents[MT_ROWS_TEXT] = tokens;
  return tokens;
}

motet_status mt_measure_text(const mt_architecture *architecture, const mt_shape *shape, motet_error *error,
                             double *extents) {
  (void)error;
  double tokens = sum_text(shape, (double)architecture->sliding_window, extents);
  for (int32_t m = 0; m < architecture->model->module_count; m++)
    if (architecture->facts[m].experts > 0)
      extents[MT_ROWS_ROUTED] = tokens * (double)architecture->facts[m].experts_per_token;
  return MOTET_OK;
}

static motet_status check_features(const double *extents, motet_error *error) {
  if (extents[MT_ROWS_FEATURES] > extents[MT_ROWS_TEXT])
    return mt_error_set(error, MOTET_ERROR_ARGUMENT,
                        "the pictures become %.0f tokens, but the text row has %.0f, theirs included",
                        extents[MT_ROWS_FEATURES], extents[MT_ROWS_TEXT]);
  return MOTET_OK;
}

/* InternVL's grid: of the grids with minimum to maximum tiles the one whose aspect ratio is closest; of equally
 * close ones the larger, while the picture covers more than half of it (arXiv 2404.16821, section 3.3). */
static int64_t grid_tiles(const mt_picture_rules *rules, mt_picture picture) {
  double aspect = (double)picture.width / picture.height, closest = INFINITY;
  double area = (double)picture.width * picture.height, tile = (double)rules->side * (double)rules->side;
  int64_t best = 1;
  for (int64_t tiles = rules->minimum_tiles; tiles <= rules->maximum_tiles; tiles++)
    for (int64_t columns = 1; columns <= tiles; columns++) {
      if (tiles % columns != 0) continue;
      double off = fabs(aspect - (double)(columns * columns) / (double)tiles);
      if (off < closest || (off == closest && area > 0.5 * tile * (double)tiles)) {
        closest = off;
        best = tiles;
      }
    }
  return best;
}

/* Idefics3: the longer side is scaled, both are rounded up to whole tiles (arXiv 2408.12637, section 2.2.3). */
static int64_t split_tiles(const mt_picture_rules *rules, mt_picture picture) {
  double longer = picture.width > picture.height ? picture.width : picture.height;
  double scale = (double)rules->longest / longer;
  int64_t columns = (int64_t)ceil(scale * picture.width / (double)rules->side - 1e-9);
  int64_t rows = (int64_t)ceil(scale * picture.height / (double)rules->side - 1e-9);
  return (columns > 1 ? columns : 1) * (rows > 1 ? rows : 1);
}

static int64_t picture_tiles(const mt_picture_rules *rules, mt_picture picture) {
  int64_t tiles = 1;
  if (picture.frames > 1) return picture.frames; /* of a clip each frame is one tile */
  if (rules->longest > 0)
    tiles = split_tiles(rules, picture);
  else if (rules->maximum_tiles > 1)
    tiles = grid_tiles(rules, picture);
  return tiles > 1 && rules->thumbnail ? tiles + 1 : tiles;
}

motet_status mt_measure_tiles(const mt_architecture *architecture, const mt_shape *shape, motet_error *error,
                              double *extents) {
  const mt_picture_rules *rules = &architecture->rules;
  motet_status status = mt_measure_text(architecture, shape, error, extents);
  double grid = (double)(rules->side / rules->patch), per_tile = grid * grid + (double)rules->extra_tokens;
  for (int32_t p = 0; p < shape->picture_count; p++) {
    double tiles = (double)picture_tiles(rules, shape->pictures[p]);
    extents[MT_ROWS_PATCHES] += tiles * per_tile;
    extents[MT_AREA_PICTURE] += tiles * per_tile * per_tile;
    extents[MT_ROWS_FEATURES] +=
        tiles * (grid * grid / (double)(rules->merge * rules->merge) + (double)rules->extra_features);
  }
  return status == MOTET_OK ? check_features(extents, error) : status;
}

/* Sides become multiples of `unit`, scaled so that the area stays within the processor's bounds. */
static void fit_sides(const mt_picture_rules *rules, mt_picture picture, double unit, double *height,
                      double *width) {
  double h = picture.height, w = picture.width;
  *height = fmax(unit, rint(h / unit) * unit);
  *width = fmax(unit, rint(w / unit) * unit);
  if (*height * *width > (double)rules->maximum_pixels) {
    double scale = sqrt(h * w / (double)rules->maximum_pixels);
    *height = fmax(unit, floor(h / scale / unit) * unit);
    *width = fmax(unit, floor(w / scale / unit) * unit);
  } else if (*height * *width < (double)rules->minimum_pixels) {
    double scale = sqrt((double)rules->minimum_pixels / (h * w));
    *height = ceil(h * scale / unit) * unit;
    *width = ceil(w * scale / unit) * unit;
  }
}

/* Pairs inside windows of `window` by `window` patches; those at the right and lower edges are what is left. */
static double window_area(double rows, double columns, double window) {
  double down = floor(rows / window), across = floor(columns / window);
  double below = rows - down * window, right = columns - across * window;
  double full = window * window, side = right * window, bottom = below * window, corner = below * right;
  return down * across * full * full + down * side * side + across * bottom * bottom + corner * corner;
}

motet_status mt_measure_patches(const mt_architecture *architecture, const mt_shape *shape, motet_error *error,
                                double *extents) {
  const mt_picture_rules *rules = &architecture->rules;
  motet_status status = mt_measure_text(architecture, shape, error, extents);
  double patch = (double)rules->patch, merge = (double)rules->merge;
  for (int32_t p = 0; p < shape->picture_count; p++) {
    double height, width;
    fit_sides(rules, shape->pictures[p], patch * merge, &height, &width);
    double rows = height / patch, columns = width / patch, patches = rows * columns;
    double frames = ceil(shape->pictures[p].frames / (double)rules->frame_patch);
    extents[MT_ROWS_PATCHES] += frames * patches;
    extents[MT_ROWS_FEATURES] += frames * patches / (merge * merge);
    extents[MT_AREA_PICTURE] += frames * patches * patches;
    if (rules->window > 0) extents[MT_AREA_WINDOW] += frames * window_area(rows, columns, (double)rules->window);
  }
  return status == MOTET_OK ? check_features(extents, error) : status;
}

/* Frames behind a causal compression: the first stays alone. */
static double latent_frames(double frames, double compression) {
  return compression > 0 ? floor((frames - 1) / compression) + 1 : frames;
}

/* A convolutional encoder's grids: half, quarter and eighth of the sides, half and quarter of the frames. */
static void add_grids(double frames, double height, double width, double *extents) {
  double half = latent_frames(frames, 2), quarter = latent_frames(frames, 4);
  double coarsest = ceil(height / 8) * ceil(width / 8);
  extents[MT_ROWS_GRID_1] += half * ceil(height / 2) * ceil(width / 2);
  extents[MT_ROWS_GRID_2] += half * ceil(height / 4) * ceil(width / 4);
  extents[MT_ROWS_GRID_3] += quarter * coarsest;
  extents[MT_AREA_GRID] += quarter * coarsest * coarsest;
}

motet_status mt_measure_latents(const mt_architecture *architecture, const mt_shape *shape, motet_error *error,
                                double *extents) {
  const mt_picture_rules *rules = &architecture->rules;
  if (shape->segment_count > 0 && shape->segment_count != shape->picture_count)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT, "%d captions for %d pictures or clips", shape->segment_count,
                        shape->picture_count);
  for (int32_t p = 0; p < shape->picture_count; p++) {
    mt_picture picture = shape->pictures[p];
    if (picture.frames > 1 && rules->frame_compression == 0)
      return mt_error_set(error, MOTET_ERROR_ARGUMENT, "%s makes pictures, not clips of %d frames",
                          architecture->title, picture.frames);
    double side = (double)(rules->compression * rules->patch);
    double frames = latent_frames(picture.frames, (double)rules->frame_compression);
    double latents =
        ceil(frames / (double)rules->frame_patch) * ceil(picture.height / side) * ceil(picture.width / side);
    double condition = (double)(shape->segment_count > 0 ? shape->segments[p] : rules->condition_tokens);
    extents[MT_ROWS_SAMPLES] += 1;
    extents[MT_ROWS_LATENT] += latents;
    extents[MT_ROWS_CONDITION] += condition;
    extents[MT_ROWS_JOINT] += latents + condition;
    extents[MT_AREA_LATENT] += latents * latents;
    extents[MT_AREA_CONDITION] += condition * condition;
    extents[MT_AREA_CROSS] += latents * condition;
    extents[MT_AREA_JOINT] += (latents + condition) * (latents + condition);
    double parts = (double)rules->sparse_parts;
    if (parts > 0) { /* padded to parts^2, split into as many rows as parts */
      double part = ceil(latents / (parts * parts)) * parts;
      extents[MT_AREA_SPARSE] += parts * part * part;
    }
    add_grids(picture.frames, picture.height, picture.width, extents);
  }
  return MOTET_OK;
}

motet_status mt_measure_pair(const mt_architecture *architecture, const mt_shape *shape, motet_error *error,
                             double *extents) {
  motet_status status = mt_measure_text(architecture, shape, error, extents);
  extents[MT_ROWS_CONDITION] = extents[MT_ROWS_TEXT];
  for (int32_t s = 0; s < shape->segment_count; s++) {
    double n = (double)shape->segments[s];
    extents[MT_AREA_CONDITION] += n * n;
    extents[MT_AREA_CROSS] += n * n;
  }
  return status;
}
