/** @file A decoded frame as FFmpeg has it, and the picture it becomes. Shared by pictures and videos. */
#ifndef MT_DATA_FRAME_H
#define MT_DATA_FRAME_H

#include "data/image.h"

struct AVFrame;

/** The frame as RGB, transparency on white. Colours are those of the frame's own matrix and range; without them
 * ITU-R BT.601, as JPEG and WebP have it. @p frame may be replaced by another of the same content. */
motet_status mt_frame_image(struct AVFrame **frame, const char *name, motet_error *error, mt_image *image);

/** The error of a file that is damaged; @p reason: FFmpeg's code, or 0. */
motet_status mt_frame_damaged(motet_error *error, const char *name, int reason);

#endif
