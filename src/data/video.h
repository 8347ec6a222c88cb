/** @file
 * Videos: MP4 and QuickTime, Matroska and WebM, AVI, and moving GIF, told by their content. Their number of frames
 * is known without decoding; of the frames a few are decoded, evenly spread.
 */
#ifndef MT_DATA_VIDEO_H
#define MT_DATA_VIDEO_H

#include "data/image.h"

typedef struct mt_video {
  int32_t width, height;
  int32_t frames;
} mt_video;

/** Size and number of frames. Of MP4 and QuickTime the index is read, of other files all packets are counted; no
 * pixel is decoded. */
motet_status mt_video_probe(const char *path, motet_error *error, mt_video *video);

/**
 * The frame that stands for part @p part of @p parts equal parts of a video: the one in its middle, as InternVL's
 * processor samples. @p parts is at most the video's frames.
 */
int32_t mt_video_frame_of(int32_t frames, int32_t part, int32_t parts);

/** Gets frame @p part of the sampled ones; another status than MOTET_OK ends the reading. The image is the caller's
 * of mt_video_read(). */
typedef motet_status mt_video_consumer(void *context, int32_t part, const mt_image *image, motet_error *error);

/** Decodes @p parts frames of a video of @p frames, in their order. A video that ends early or is damaged is
 * refused with the frame. */
motet_status mt_video_read(const char *path, int32_t frames, int32_t parts, mt_video_consumer *consumer,
                           void *context, motet_error *error);

/** Both from memory; @p name stands for the file in errors. */
motet_status mt_video_probe_memory(const void *data, size_t bytes, const char *name, motet_error *error,
                                   mt_video *video);
motet_status mt_video_read_memory(const void *data, size_t bytes, const char *name, int32_t frames, int32_t parts,
                                  mt_video_consumer *consumer, void *context, motet_error *error);

#endif
