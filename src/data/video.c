#include "data/video.h"

#include "data/frame.h"

#include <errno.h>
#include <fcntl.h>
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BUFFER_BYTES = 1 << 16, MAX_EXTENT = 65535, MAX_PIXELS = 1 << 28, MAX_FRAMES = 1 << 26 };

/* What is read, and by what: a file from the internet should not reach every decoder that FFmpeg ever had, nor name
 * other files. */
static const char FORMATS[] = "mov,matroska,avi,gif";
static const char CODECS[] = "h264,hevc,mpeg4,vp8,vp9,libdav1d,mjpeg,gif,png,ffv1,mpeg2video,rawvideo";

/* The bytes of a video: a file, or memory. */
typedef struct source {
  int descriptor; /* -1: memory */
  const unsigned char *data;
  int64_t bytes, place;
} source;

/* A video that is being read. */
typedef struct reader {
  const char *name;
  source from;
  AVIOContext *io;
  AVFormatContext *format;
  AVStream *stream;
  AVCodecContext *decoder;
  AVPacket *packet;
  AVFrame *frame;
} reader;

static motet_status at_file(const reader *this, motet_error *error, motet_status status) {
  mt_error_place(error, this->name, 0);
  return status;
}

static motet_status no_memory(const reader *this, motet_error *error) {
  return at_file(this, error, mt_error_memory(error, 0, this->name));
}

static int read_bytes(void *context, uint8_t *target, int bytes) {
  source *from = context;
  int64_t rest = from->bytes - from->place;
  if (rest <= 0) return AVERROR_EOF;
  if (bytes > rest) bytes = (int)rest;
  if (from->descriptor < 0) {
    memcpy(target, from->data + from->place, (size_t)bytes);
  } else {
    ssize_t got;
    do got = pread(from->descriptor, target, (size_t)bytes, (off_t)from->place);
    while (got < 0 && errno == EINTR);
    if (got <= 0) return got < 0 ? AVERROR(errno) : AVERROR_EOF;
    bytes = (int)got;
  }
  from->place += bytes;
  return bytes;
}

static int64_t seek_bytes(void *context, int64_t offset, int whence) {
  source *from = context;
  if (whence == AVSEEK_SIZE) return from->bytes;
  whence &= ~AVSEEK_FORCE;
  int64_t base = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? from->place : from->bytes;
  if (__builtin_add_overflow(base, offset, &base) || base < 0) return AVERROR(EINVAL);
  from->place = base;
  return base;
}

/* Files that a file names stay closed. */
static int refuse_open(AVFormatContext *format, AVIOContext **io, const char *url, int flags,
                       AVDictionary **options) {
  (void)format, (void)io, (void)url, (void)flags, (void)options;
  return AVERROR(EPERM);
}

static void reader_close(reader *this) {
  av_packet_free(&this->packet);
  av_frame_free(&this->frame);
  avcodec_free_context(&this->decoder);
  avformat_close_input(&this->format);
  if (this->io != NULL) av_freep(&this->io->buffer);
  avio_context_free(&this->io);
}

static int open_format(reader *this) {
  unsigned char *buffer = av_malloc(BUFFER_BYTES);
  this->io = buffer == NULL
                 ? NULL
                 : avio_alloc_context(buffer, BUFFER_BYTES, 0, &this->from, read_bytes, NULL, seek_bytes);
  if (this->io == NULL) {
    av_free(buffer);
    return AVERROR(ENOMEM);
  }
  this->format = avformat_alloc_context();
  AVDictionary *options = NULL;
  int result = this->format == NULL ? AVERROR(ENOMEM) : 0;
  if (result >= 0) result = av_dict_set(&options, "format_whitelist", FORMATS, 0);
  if (result >= 0) result = av_dict_set(&options, "codec_whitelist", CODECS, 0);
  /* Edit lists cut single frames away; without them there are as many as the index says. */
  if (result >= 0) result = av_dict_set(&options, "ignore_editlist", "1", 0);
  if (result >= 0) {
    this->format->pb = this->io;
    this->format->flags |= AVFMT_FLAG_CUSTOM_IO;
    this->format->io_open = refuse_open;
    result = avformat_open_input(&this->format, NULL, NULL, &options); /* frees the context where it fails */
  }
  av_dict_free(&options);
  return result;
}

/* The first stream of moving pictures: not a cover. Packets of others are passed over. */
static motet_status find_stream(reader *this, motet_error *error) {
  for (unsigned s = 0; s < this->format->nb_streams; s++) {
    AVStream *stream = this->format->streams[s];
    bool moving = stream->codecpar->codec_type == AVMEDIA_TYPE_VIDEO &&
                  (stream->disposition & AV_DISPOSITION_ATTACHED_PIC) == 0;
    if (moving && this->stream == NULL)
      this->stream = stream;
    else
      stream->discard = AVDISCARD_ALL;
  }
  if (this->stream == NULL)
    return at_file(this, error, mt_error_set(error, MOTET_ERROR_PARSE, "%s has no video stream", this->name));
  const AVCodecParameters *sizes = this->stream->codecpar;
  if (sizes->width < 1 || sizes->height < 1)
    return at_file(this, error,
                   mt_error_set(error, MOTET_ERROR_PARSE, "%s: a video of %d x %d pixels", this->name, sizes->width,
                                sizes->height));
  if (sizes->width > MAX_EXTENT || sizes->height > MAX_EXTENT || (int64_t)sizes->width * sizes->height > MAX_PIXELS)
    return at_file(this, error,
                   mt_error_set(error, MOTET_ERROR_LIMIT,
                                "%s: %d x %d pixels are too many; at most %d in all and %d a side are read",
                                this->name, sizes->width, sizes->height, MAX_PIXELS, MAX_EXTENT));
  return MOTET_OK;
}

/* Opens what `from` of `this` says. */
static motet_status reader_open(reader *this, motet_error *error) {
  /* FFmpeg writes to standard error unless told not to, once for the process. */
  av_log_set_level(AV_LOG_QUIET);
  if (this->from.bytes == 0)
    return at_file(this, error, mt_error_set(error, MOTET_ERROR_PARSE, "%s is empty", this->name));
  int result = open_format(this);
  if (result == AVERROR(ENOMEM)) return no_memory(this, error);
  if (result < 0) {
    char text[AV_ERROR_MAX_STRING_SIZE];
    av_strerror(result, text, sizeof text);
    return at_file(this, error,
                   mt_error_set(error, MOTET_ERROR_PARSE,
                                "%s is damaged, or no MP4, QuickTime, Matroska, WebM, AVI or GIF file: %s",
                                this->name, text));
  }
  this->packet = av_packet_alloc();
  this->frame = av_frame_alloc();
  if (this->packet == NULL || this->frame == NULL) return no_memory(this, error);
  return find_stream(this, error);
}

static motet_status find_decoder(const reader *this, motet_error *error, const AVCodec **codec) {
  *codec = avcodec_find_decoder(this->stream->codecpar->codec_id);
  if (*codec != NULL && strstr(CODECS, (*codec)->name) != NULL) return MOTET_OK;
  return at_file(this, error,
                 mt_error_set(error, MOTET_ERROR_UNSUPPORTED, "%s: videos of kind %s are not read; of %s are",
                              this->name, avcodec_get_name(this->stream->codecpar->codec_id), CODECS));
}

static motet_status count_packets(reader *this, motet_error *error, int64_t *frames) {
  int result;
  while ((result = av_read_frame(this->format, this->packet)) >= 0 && *frames < MAX_FRAMES) {
    *frames += this->packet->stream_index == this->stream->index && this->packet->size > 0;
    av_packet_unref(this->packet);
  }
  return result >= 0 || result == AVERROR_EOF ? MOTET_OK : mt_frame_damaged(error, this->name, result);
}

static motet_status probe(reader *this, motet_error *error, mt_video *video) {
  motet_status status = reader_open(this, error);
  if (status != MOTET_OK) return status;
  const AVCodec *codec;
  status = find_decoder(this, error, &codec);
  if (status != MOTET_OK) return status;
  /* The index of a file in fragments says that there are none. */
  int64_t frames = strstr(this->format->iformat->name, "mov") != NULL ? this->stream->nb_frames : 0;
  if (frames == 0) status = count_packets(this, error, &frames);
  if (status != MOTET_OK) return status;
  if (frames < 1)
    return at_file(this, error, mt_error_set(error, MOTET_ERROR_PARSE, "%s has no frames", this->name));
  if (frames >= MAX_FRAMES)
    return at_file(this, error,
                   mt_error_set(error, MOTET_ERROR_LIMIT, "%s has %lld frames; at most %d are read", this->name,
                                (long long)frames, MAX_FRAMES - 1));
  *video = (mt_video){
      .width = this->stream->codecpar->width, .height = this->stream->codecpar->height, .frames = (int32_t)frames};
  return MOTET_OK;
}

int32_t mt_video_frame_of(int32_t frames, int32_t part, int32_t parts) {
  return (int32_t)((int64_t)frames * (2 * (int64_t)part + 1) / (2 * (int64_t)parts));
}

/* ---- decoding ---- */

/* Which frames are wanted, and who gets them. */
typedef struct selection {
  int32_t frames, parts, part; /* `part`: the next */
  int64_t decoded;
  mt_video_consumer *consumer;
  void *context;
} selection;

static motet_status open_decoder(reader *this, motet_error *error) {
  const AVCodec *codec;
  motet_status status = find_decoder(this, error, &codec);
  if (status != MOTET_OK) return status;
  this->decoder = avcodec_alloc_context3(codec);
  if (this->decoder == NULL) return no_memory(this, error);
  int result = avcodec_parameters_to_context(this->decoder, this->stream->codecpar);
  this->decoder->thread_count = 1;
  this->decoder->max_pixels = MAX_PIXELS;
  this->decoder->err_recognition = AV_EF_CRCCHECK;
  if (result >= 0) result = avcodec_open2(this->decoder, codec, NULL);
  return result >= 0 ? MOTET_OK : mt_frame_damaged(error, this->name, result);
}

static motet_status damaged_frame(const reader *this, const selection *wanted, motet_error *error, int reason) {
  motet_status status = mt_frame_damaged(error, this->name, reason);
  return mt_error_context(error, status, "frame %lld of %d", (long long)wanted->decoded + 1, (int)wanted->frames);
}

/* Takes what the decoder has ready; `*ended`: it has no more, ever. */
static motet_status take_frames(reader *this, selection *wanted, motet_error *error, bool *ended) {
  while (wanted->part < wanted->parts) {
    int result = avcodec_receive_frame(this->decoder, this->frame);
    if (result == AVERROR_EOF) *ended = true;
    if (result == AVERROR(EAGAIN) || result == AVERROR_EOF) return MOTET_OK;
    if (result < 0) return damaged_frame(this, wanted, error, result);
    motet_status status = MOTET_OK;
    while (status == MOTET_OK && wanted->part < wanted->parts &&
           wanted->decoded == mt_video_frame_of(wanted->frames, wanted->part, wanted->parts)) {
      if (this->frame->decode_error_flags != 0 || (this->frame->flags & AV_FRAME_FLAG_CORRUPT) != 0)
        return damaged_frame(this, wanted, error, AVERROR_INVALIDDATA);
      mt_image image;
      status = mt_frame_image(&this->frame, this->name, error, &image);
      if (status != MOTET_OK) return status;
      status = wanted->consumer(wanted->context, wanted->part++, &image, error);
      mt_image_free(&image);
    }
    if (status != MOTET_OK) return status;
    wanted->decoded++;
    av_frame_unref(this->frame);
  }
  return MOTET_OK;
}

static motet_status decode(reader *this, selection *wanted, motet_error *error) {
  bool draining = false, ended = false;
  while (wanted->part < wanted->parts && !ended) {
    int result = draining ? AVERROR_EOF : av_read_frame(this->format, this->packet);
    if (result < 0 && result != AVERROR_EOF) return damaged_frame(this, wanted, error, result);
    bool own = result >= 0 && this->packet->stream_index == this->stream->index;
    if (own || (result < 0 && !draining)) {
      int sent = avcodec_send_packet(this->decoder, own ? this->packet : NULL);
      if (sent < 0 && sent != AVERROR_EOF) {
        av_packet_unref(this->packet);
        return damaged_frame(this, wanted, error, sent);
      }
    }
    draining = draining || result < 0;
    if (result >= 0) av_packet_unref(this->packet);
    motet_status status = take_frames(this, wanted, error, &ended);
    if (status != MOTET_OK) return status;
  }
  if (wanted->part == wanted->parts) return MOTET_OK;
  return at_file(this, error,
                 mt_error_set(error, MOTET_ERROR_PARSE,
                              "%s is damaged or truncated: it ends behind %lld of %d frames", this->name,
                              (long long)wanted->decoded, (int)wanted->frames));
}

static motet_status read_frames(reader *this, selection *wanted, motet_error *error) {
  if (wanted->parts < 1 || wanted->parts > wanted->frames)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT, "%d frames of a video that has %d", (int)wanted->parts,
                        (int)wanted->frames);
  motet_status status = reader_open(this, error);
  if (status == MOTET_OK) status = open_decoder(this, error);
  return status == MOTET_OK ? decode(this, wanted, error) : status;
}

/* ---- files and memory ---- */

static motet_status open_file(const char *path, motet_error *error, reader *this) {
  *this = (reader){.name = path, .from = {.descriptor = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC)}};
  struct stat information;
  if (this->from.descriptor < 0 || fstat(this->from.descriptor, &information) != 0)
    return at_file(this, error, mt_error_set(error, MOTET_ERROR_IO, "cannot open %s: %s", path, strerror(errno)));
  if (!S_ISREG(information.st_mode))
    return at_file(this, error, mt_error_set(error, MOTET_ERROR_IO, "%s is no file", path));
  this->from.bytes = (int64_t)information.st_size;
  return MOTET_OK;
}

static void close_file(reader *this) {
  reader_close(this);
  if (this->from.descriptor >= 0) close(this->from.descriptor);
}

motet_status mt_video_probe(const char *path, motet_error *error, mt_video *video) {
  reader this;
  motet_status status = open_file(path, error, &this);
  if (status == MOTET_OK) status = probe(&this, error, video);
  close_file(&this);
  return status;
}

motet_status mt_video_read(const char *path, int32_t frames, int32_t parts, mt_video_consumer *consumer,
                           void *context, motet_error *error) {
  reader this;
  selection wanted = {.frames = frames, .parts = parts, .consumer = consumer, .context = context};
  motet_status status = open_file(path, error, &this);
  if (status == MOTET_OK) status = read_frames(&this, &wanted, error);
  close_file(&this);
  return status;
}

static reader from_memory(const void *data, size_t bytes, const char *name) {
  return (reader){.name = name, .from = {.descriptor = -1, .data = data, .bytes = (int64_t)bytes}};
}

motet_status mt_video_probe_memory(const void *data, size_t bytes, const char *name, motet_error *error,
                                   mt_video *video) {
  reader this = from_memory(data, bytes, name);
  motet_status status = probe(&this, error, video);
  reader_close(&this);
  return status;
}

motet_status mt_video_read_memory(const void *data, size_t bytes, const char *name, int32_t frames, int32_t parts,
                                  mt_video_consumer *consumer, void *context, motet_error *error) {
  reader this = from_memory(data, bytes, name);
  selection wanted = {.frames = frames, .parts = parts, .consumer = consumer, .context = context};
  motet_status status = read_frames(&this, &wanted, error);
  reader_close(&this);
  return status;
}
