#include "data/image.h"

#include "base/text.h"
#include "data/chroma.h"
#include "data/image_header.h"

#include <errno.h>
#include <fcntl.h>
#include <libavcodec/avcodec.h>
#include <libavutil/imgutils.h>
#include <libavutil/pixdesc.h>
#include <libswscale/swscale.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const enum AVCodecID CODECS[] = {
    [MT_IMAGE_PNG] = AV_CODEC_ID_PNG, [MT_IMAGE_JPEG] = AV_CODEC_ID_MJPEG, [MT_IMAGE_WEBP] = AV_CODEC_ID_WEBP,
    [MT_IMAGE_GIF] = AV_CODEC_ID_GIF, [MT_IMAGE_BMP] = AV_CODEC_ID_BMP,
};

static size_t read_descriptor(void *context, uint64_t offset, void *target, size_t bytes) {
  ssize_t got = pread(*(int *)context, target, bytes, (off_t)offset);
  return got < 0 ? 0 : (size_t)got;
}

typedef struct memory {
  const unsigned char *data;
  size_t bytes;
} memory;

static size_t read_memory(void *context, uint64_t offset, void *target, size_t bytes) {
  const memory *from = context;
  if (offset >= from->bytes) return 0;
  size_t rest = from->bytes - (size_t)offset;
  if (bytes > rest) bytes = rest;
  memcpy(target, from->data + offset, bytes);
  return bytes;
}

motet_status mt_image_probe(const char *path, motet_error *error, int32_t *width, int32_t *height) {
  int descriptor = open(path, O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    motet_status status = mt_error_set(error, MOTET_ERROR_IO, "cannot open %s: %s", path, strerror(errno));
    mt_error_place(error, path, 0);
    return status;
  }
  mt_image_header header;
  motet_status status = mt_image_header_read(read_descriptor, &descriptor, path, error, &header);
  close(descriptor);
  if (status != MOTET_OK) return status;
  *width = header.width;
  *height = header.height;
  return MOTET_OK;
}

static motet_status damaged(motet_error *error, const char *name, int reason) {
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

/* Decodes the first frame of the file that lies in `packet`. */
static motet_status decode_frame(const mt_image_header *header, const AVPacket *packet, const char *name,
                                 motet_error *error, AVFrame *frame) {
  const AVCodec *codec = avcodec_find_decoder(CODECS[header->kind]);
  if (codec == NULL) return mt_error_set(error, MOTET_ERROR_UNSUPPORTED, "this FFmpeg has no decoder for %s", name);
  AVCodecContext *context = avcodec_alloc_context3(codec);
  if (context == NULL) return no_memory(error, name, sizeof *context);
  context->thread_count = 1;
  context->err_recognition = AV_EF_CRCCHECK | AV_EF_BITSTREAM | AV_EF_BUFFER | AV_EF_EXPLODE;
  int result = avcodec_open2(context, codec, NULL);
  if (result >= 0) result = avcodec_send_packet(context, packet);
  if (result >= 0) result = avcodec_send_packet(context, NULL);
  if (result >= 0) result = avcodec_receive_frame(context, frame);
  avcodec_free_context(&context);
  if (result < 0) return damaged(error, name, result);
  if (frame->decode_error_flags != 0 || (frame->flags & AV_FRAME_FLAG_CORRUPT) != 0)
    return damaged(error, name, AVERROR_INVALIDDATA);
  if (frame->width != header->width || frame->height != header->height) {
    motet_status status =
        mt_error_set(error, MOTET_ERROR_PARSE, "%s: its header says %d x %d pixels, its picture has %d x %d", name,
                     header->width, header->height, frame->width, frame->height);
    mt_error_place(error, name, 0);
    return status;
  }
  return MOTET_OK;
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

/* The frame as 8-bit RGBA rows without padding. Colours of JPEG and WebP follow ITU-R BT.601, as their formats say.
 */
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
  uint8_t *planes[4] = {rgba, NULL, NULL, NULL};
  int strides[4] = {4 * frame->width, 0, 0, 0};
  int rows =
      sws_scale(context, (const uint8_t *const *)frame->data, frame->linesize, 0, frame->height, planes, strides);
  sws_freeContext(context);
  return rows == frame->height ? MOTET_OK : damaged(error, name, AVERROR_INVALIDDATA);
}

/* Puts RGBA on white. */
static void composite(const unsigned char *rgba, size_t pixels, unsigned char *rgb) {
  for (size_t i = 0; i < pixels; i++) {
    unsigned alpha = rgba[4 * i + 3];
    for (size_t c = 0; c < 3; c++)
      rgb[3 * i + c] = (unsigned char)((rgba[4 * i + c] * alpha + 255 * (255 - alpha) + 127) / 255);
  }
}

/* A copy with the padding that decoders read behind the end. */
static motet_status make_packet(const void *data, size_t bytes, const char *name, motet_error *error,
                                AVPacket **packet) {
  *packet = av_packet_alloc();
  if (*packet == NULL || bytes > INT32_MAX - AV_INPUT_BUFFER_PADDING_SIZE ||
      av_new_packet(*packet, (int)bytes) < 0) {
    av_packet_free(packet);
    return no_memory(error, name, bytes);
  }
  memcpy((*packet)->data, data, bytes);
  return MOTET_OK;
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

motet_status mt_image_decode(const void *data, size_t bytes, const char *name, motet_error *error,
                             mt_image *image) {
  *image = (mt_image){0};
  memory from = {data, bytes};
  mt_image_header header;
  motet_status status = mt_image_header_read(read_memory, &from, name, error, &header);
  if (status != MOTET_OK) return status;
  /* Some decoders fill what is missing and call it good. */
  if (!mt_image_is_whole(&header, data, bytes)) return damaged(error, name, AVERROR_EOF);
  /* FFmpeg writes to standard error unless told not to, once for the process. */
  av_log_set_level(AV_LOG_QUIET);
  AVPacket *packet = NULL;
  AVFrame *frame = av_frame_alloc();
  status = frame == NULL ? no_memory(error, name, sizeof *frame) : make_packet(data, bytes, name, error, &packet);
  if (status == MOTET_OK) status = decode_frame(&header, packet, name, error, frame);
  if (status == MOTET_OK) status = enlarge_colours(name, error, &frame);
  if (status == MOTET_OK) status = convert(frame, name, error, image);
  av_packet_free(&packet);
  av_frame_free(&frame);
  return status;
}

motet_status mt_image_read(const char *path, motet_error *error, mt_image *image) {
  *image = (mt_image){0};
  char *data;
  size_t bytes;
  motet_status status = mt_file_read(path, error, &data, &bytes);
  if (status != MOTET_OK) return status;
  status = mt_image_decode(data, bytes, path, error, image);
  free(data);
  return status;
}

void mt_image_free(mt_image *image) {
  free(image->rgb);
  *image = (mt_image){0};
}
