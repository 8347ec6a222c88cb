#include "data/medium.h"

#include "data/video.h"

#include <inttypes.h>

motet_status mt_medium_probe(const mt_internvl *config, const char *path, bool video, int32_t video_frames,
                             motet_error *error, mt_medium_form *form) {
  *form = (mt_medium_form){.video = video};
  if (!video) {
    motet_status status = mt_image_probe(path, error, &form->width, &form->height);
    if (status == MOTET_OK) form->tiling = mt_tiling_choose(config, form->width, form->height);
    return status;
  }
  mt_video known;
  motet_status status = mt_video_probe(path, error, &known);
  if (status != MOTET_OK) return status;
  form->width = known.width;
  form->height = known.height;
  form->frames = known.frames;
  form->tiling = (mt_tiling){1, 1, known.frames < video_frames ? known.frames : video_frames};
  return MOTET_OK;
}

static motet_status load_image(const mt_internvl *config, const char *path, const mt_medium_form *form,
                               motet_error *error, float *pixels) {
  mt_image image;
  motet_status status = mt_image_read(path, error, &image);
  if (status != MOTET_OK) return status;
  if (image.width == form->width && image.height == form->height) {
    status = mt_image_tiles(config, &image, &form->tiling, error, pixels);
  } else {
    status = mt_error_set(error, MOTET_ERROR_FAILED,
                          "%s changed since the data set was opened: %" PRId32 " x %" PRId32
                          " pixels, then %" PRId32 " x %" PRId32,
                          path, image.width, image.height, form->width, form->height);
    mt_error_place(error, path, 0);
  }
  mt_image_free(&image);
  return status;
}

typedef struct tile_writer {
  const mt_internvl *config;
  float *pixels;
} tile_writer;

static motet_status write_tile(void *context, int32_t part, const mt_image *image, motet_error *error) {
  const tile_writer *writer = context;
  const mt_tiling one = {1, 1, 1};
  const int64_t side = writer->config->vision.image_size;
  return mt_image_tiles(writer->config, image, &one, error, writer->pixels + part * 3 * side * side);
}

static motet_status load_video(const mt_internvl *config, const char *path, const mt_medium_form *form,
                               motet_error *error, float *pixels) {
  mt_video now;
  motet_status status = mt_video_probe(path, error, &now);
  if (status != MOTET_OK) return status;
  if (now.frames != form->frames) {
    status = mt_error_set(error, MOTET_ERROR_FAILED,
                          "%s changed since the data set was opened: %" PRId32 " frames, then %" PRId32, path,
                          now.frames, form->frames);
    mt_error_place(error, path, 0);
    return status;
  }
  tile_writer writer = {config, pixels};
  return mt_video_read(path, form->frames, form->tiling.tiles, write_tile, &writer, error);
}

motet_status mt_medium_load(const mt_internvl *config, const char *path, const mt_medium_form *form,
                            motet_error *error, float *pixels) {
  return form->video ? load_video(config, path, form, error, pixels)
                     : load_image(config, path, form, error, pixels);
}
