#include "data/image.h"

#include "base/text.h"
#include "data/frame.h"
#include "data/image_header.h"
#include "data/webp.h"

#include <errno.h>
#include <fcntl.h>
#include <libavcodec/avcodec.h>
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
  int descriptor = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
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
  if (result < 0) return mt_frame_damaged(error, name, result);
  if (frame->decode_error_flags != 0 || (frame->flags & AV_FRAME_FLAG_CORRUPT) != 0)
    return mt_frame_damaged(error, name, AVERROR_INVALIDDATA);
  if (frame->width != header->width || frame->height != header->height) {
    motet_status status =
        mt_error_set(error, MOTET_ERROR_PARSE, "%s: its header says %d x %d pixels, its picture has %d x %d", name,
                     header->width, header->height, frame->width, frame->height);
    mt_error_place(error, name, 0);
    return status;
  }
  return MOTET_OK;
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

/* The file, or of one that moves its first frame. */
static motet_status make_still(const mt_image_header *header, const void *data, size_t bytes, const char *name,
                               motet_error *error, AVPacket **packet) {
  motet_status status = make_packet(data, bytes, name, error, packet);
  if (status != MOTET_OK || header->kind != MT_IMAGE_WEBP || !mt_webp_moves(data, bytes)) return status;
  size_t length = mt_webp_still(data, bytes, (*packet)->data);
  if (length == 0) {
    status =
        mt_error_set(error, MOTET_ERROR_PARSE,
                     "%s is a moving WebP that is damaged, or whose first frame covers a part of it alone", name);
    mt_error_place(error, name, 0);
    return status;
  }
  av_shrink_packet(*packet, (int)length);
  return MOTET_OK;
}

motet_status mt_image_decode(const void *data, size_t bytes, const char *name, motet_error *error,
                             mt_image *image) {
  *image = (mt_image){0};
  memory from = {data, bytes};
  mt_image_header header;
  motet_status status = mt_image_header_read(read_memory, &from, name, error, &header);
  if (status != MOTET_OK) return status;
  /* Some decoders fill what is missing and call it good. */
  if (!mt_image_is_whole(&header, data, bytes)) return mt_frame_damaged(error, name, AVERROR_EOF);
  /* FFmpeg writes to standard error unless told not to, once for the process. */
  av_log_set_level(AV_LOG_QUIET);
  AVPacket *packet = NULL;
  AVFrame *frame = av_frame_alloc();
  status = frame == NULL ? no_memory(error, name, sizeof *frame)
                         : make_still(&header, data, bytes, name, error, &packet);
  if (status == MOTET_OK) status = decode_frame(&header, packet, name, error, frame);
  /* FFmpeg takes the spare byte of such pixels for transparency. */
  if (status == MOTET_OK && frame->format == AV_PIX_FMT_BGRA && mt_image_has_spare_bytes(&header, data, bytes))
    frame->format = AV_PIX_FMT_BGR0;
  if (status == MOTET_OK) status = mt_frame_image(&frame, name, error, image);
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
