#include "data/frame.h"

#include "data/chroma.h"

#include <libavutil/frame.h>
#include <libavutil/imgutils.h>
#include <libavutil/pixdesc.h>
#include <libswscale/swscale.h>
#include <stdlib.h>
#include <string.h>

motet_status mt_frame_damaged(motet_error *error, const char *name, int reason) {
  char text[AV_ERROR_MAX_STRING_SIZE] = "no picture in it";
  if (reason < 0) av_strerror(reason, text, sizeof text);
  motet_status status = mt_error_set(error, MOTET_ERROR_PARSE, "%s is damaged or truncated: %s", name, text);
  mt_error_place(error, name, 0);
  return status;
}

static motet_status no_memory(motet_error *error, const char *name, size_t bytes) {
  motet_status status = mt_error_memory(error, bytes, name);
  mt_error_place(error, name, 0);
  return status;
}

/* Formats with halved colour planes, and the full ones they are brought to. */
static const struct {
  enum AVPixelFormat halved, full;
  bool tall; /* halved in height too */
} HALVED[] = {
    {AV_PIX_FMT_YUVJ420P, AV_PIX_FMT_YUVJ444P, true}, {AV_PIX_FMT_YUV420P, AV_PIX_FMT_YUV444P, true},
    {AV_PIX_FMT_YUVA420P, AV_PIX_FMT_YUVA444P, true}, {AV_PIX_FMT_YUVJ422P, AV_PIX_FMT_YUVJ444P, false},
    {AV_PIX_FMT_YUV422P, AV_PIX_FMT_YUV444P, false},
};

/* Replaces a frame with halved colour planes by one with full ones. FFmpeg's own scaler enlarges by other weights
 * than the libraries that other trainers read JPEG and WebP with. */
static motet_status enlarge_colours(const char *name, motet_error *error, AVFrame **frame) {
  const AVFrame *from = *frame;
  size_t kind = 0, kinds = sizeof HALVED / sizeof *HALVED;
  while (kind < kinds && (enum AVPixelFormat)from->format != HALVED[kind].halved) kind++;
  if (kind == kinds) return MOTET_OK;
  AVFrame *full = av_frame_alloc();
  if (full == NULL) return no_memory(error, name, sizeof *full);
  full->format = HALVED[kind].full;
  full->width = from->width;
  full->height = from->height;
  full->colorspace = from->colorspace;
  full->color_range = from->color_range;
  if (av_frame_get_buffer(full, 0) < 0) {
    av_frame_free(&full);
    return no_memory(error, name, (size_t)from->width * (size_t)from->height * 4);
  }
  for (int plane = 0; plane < 4 && full->data[plane] != NULL; plane++) {
    if (plane == 1 || plane == 2)
      mt_chroma_enlarge(from->data[plane], from->linesize[plane], from->width, from->height, HALVED[kind].tall,
                        full->data[plane], full->linesize[plane]);
    else
      av_image_copy_plane(full->data[plane], full->linesize[plane], from->data[plane], from->linesize[plane],
                          from->width, from->height);
  }
  av_frame_free(frame);
  *frame = full;
  return MOTET_OK;
}

/* Matrix and range as the frame says. For RGB there is nothing to set, which the call then says. */
static void set_colours(struct SwsContext *context, const AVFrame *frame) {
  const AVPixFmtDescriptor *format = av_pix_fmt_desc_get(frame->format);
  if (format == NULL || (format->flags & AV_PIX_FMT_FLAG_RGB) != 0) return;
  bool whole = frame->color_range == AVCOL_RANGE_JPEG || strncmp(format->name, "yuvj", 4) == 0;
  bool known = frame->colorspace == AVCOL_SPC_BT709 || frame->colorspace == AVCOL_SPC_SMPTE240M ||
               frame->colorspace == AVCOL_SPC_BT2020_NCL || frame->colorspace == AVCOL_SPC_FCC;
  const int *own = sws_getCoefficients(known ? (int)frame->colorspace : SWS_CS_ITU601);
  (void)sws_setColorspaceDetails(context, own, whole, sws_getCoefficients(SWS_CS_DEFAULT), 1, 0, 1 << 16, 1 << 16);
}

/* The frame as 8-bit RGBA rows without padding. */
static motet_status to_rgba(const AVFrame *frame, const char *name, motet_error *error, unsigned char *rgba) {
  struct SwsContext *context =
      sws_getContext(frame->width, frame->height, frame->format, frame->width, frame->height, AV_PIX_FMT_RGBA,
                     SWS_BILINEAR | SWS_FULL_CHR_H_INT | SWS_FULL_CHR_H_INP | SWS_ACCURATE_RND, NULL, NULL, NULL);
  if (context == NULL) {
    const char *format = av_get_pix_fmt_name(frame->format);
    motet_status status = mt_error_set(error, MOTET_ERROR_UNSUPPORTED, "%s: pixel format %s is not supported", name,
                                       format == NULL ? "(unknown)" : format);
    mt_error_place(error, name, 0);
    return status;
  }
  set_colours(context, frame);
  uint8_t *planes[4] = {rgba, NULL, NULL, NULL};
  int strides[4] = {4 * frame->width, 0, 0, 0};
  int rows =
      sws_scale(context, (const uint8_t *const *)frame->data, frame->linesize, 0, frame->height, planes, strides);
  sws_freeContext(context);
  return rows == frame->height ? MOTET_OK : mt_frame_damaged(error, name, AVERROR_INVALIDDATA);
}

/* Puts RGBA on white. */
static void composite(const unsigned char *rgba, size_t pixels, unsigned char *rgb) {
  for (size_t i = 0; i < pixels; i++) {
    unsigned alpha = rgba[4 * i + 3];
    for (size_t c = 0; c < 3; c++)
      rgb[3 * i + c] = (unsigned char)((rgba[4 * i + c] * alpha + 255 * (255 - alpha) + 127) / 255);
  }
}

static motet_status convert(const AVFrame *frame, const char *name, motet_error *error, mt_image *image) {
  size_t pixels = (size_t)frame->width * (size_t)frame->height;
  unsigned char *rgba = av_malloc(4 * pixels + 64), *rgb = malloc(3 * pixels);
  motet_status status =
      rgba == NULL || rgb == NULL ? no_memory(error, name, 7 * pixels) : to_rgba(frame, name, error, rgba);
  if (status == MOTET_OK) {
    composite(rgba, pixels, rgb);
    *image = (mt_image){.width = frame->width, .height = frame->height, .rgb = rgb};
    rgb = NULL;
  }
  free(rgb);
  av_free(rgba);
  return status;
}

motet_status mt_frame_image(AVFrame **frame, const char *name, motet_error *error, mt_image *image) {
  motet_status status = enlarge_colours(name, error, frame);
  return status == MOTET_OK ? convert(*frame, name, error, image) : status;
}
