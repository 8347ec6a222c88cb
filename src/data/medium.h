/** @file Pictures and videos alike: what their headers say, and the tiles that they become. */
#ifndef MT_DATA_MEDIUM_H
#define MT_DATA_MEDIUM_H

#include "data/image.h"

/** A picture or a video before any pixel of it is decoded. */
typedef struct mt_medium_form {
  bool video;
  int32_t width, height;
  int32_t frames;   /* of the whole video */
  mt_tiling tiling; /* a video has one tile for each sampled frame */
} mt_medium_form;

/** Reads the header at @p path. @p config: as mt_tiling_share() gives it; @p video_frames: how many frames of a
 * video are sampled where it has as many. */
motet_status mt_medium_probe(const mt_internvl *config, const char *path, bool video, int32_t video_frames,
                             motet_error *error, mt_medium_form *form);

/** Decodes and cuts it. One that is no longer as @p form says is refused.
 * @param pixels (form->tiling.tiles, 3, image_size, image_size) */
motet_status mt_medium_load(const mt_internvl *config, const char *path, const mt_medium_form *form,
                            motet_error *error, float *pixels);

#endif
