#include "report/tensorboard.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct mt_tensorboard {
  FILE *file;
  mt_text path;
};

/* Numbers of TensorFlow's event.proto and summary.proto. */
enum {
  EVENT_WALL_TIME = 1,
  EVENT_STEP = 2,
  EVENT_FILE_VERSION = 3,
  EVENT_SUMMARY = 5,
  EVENT_SESSION_LOG = 7,
  SESSION_LOG_STATUS = 1,
  SESSION_LOG_START = 1,
  SUMMARY_VALUE = 1,
  VALUE_TAG = 1,
  VALUE_SIMPLE = 2
};

enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5, MOST_FILES = 1000 };

uint32_t mt_crc32c(const void *data, size_t bytes) {
  const unsigned char *at = data;
  uint32_t crc = 0xffffffffu;
  for (size_t i = 0; i < bytes; i++) {
    crc ^= at[i];
    for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0); /* 0x1edc6f41, reflected */
  }
  return ~crc;
}

static void put_little(mt_text *out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; i++) {
    char byte = (char)(value >> 8 * i & 0xff);
    mt_text_bytes(out, &byte, 1);
  }
}

/* Checksums of data that hold checksums are turned and moved, as TFRecord asks for. */
static uint32_t masked(uint32_t crc) { return (crc >> 15 | crc << 17) + 0xa282ead8u; }

void mt_tensorboard_record(mt_text *out, const void *data, size_t bytes) {
  mt_text length = {0};
  put_little(&length, bytes, 8);
  if (length.failed) {
    out->failed = true;
    return;
  }
  mt_text_bytes(out, length.data, length.length);
  put_little(out, masked(mt_crc32c(length.data, length.length)), 4);
  mt_text_bytes(out, data, bytes);
  put_little(out, masked(mt_crc32c(data, bytes)), 4);
  mt_text_free(&length);
}

static void put_varint(mt_text *out, uint64_t value) {
  do {
    char byte = (char)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
    mt_text_bytes(out, &byte, 1);
    value >>= 7;
  } while (value > 0);
}

static void put_field(mt_text *out, int field, int wire) { put_varint(out, (uint64_t)(field << 3 | wire)); }

static void put_bytes(mt_text *out, int field, const char *bytes, size_t count) {
  put_field(out, field, WIRE_BYTES);
  put_varint(out, count);
  mt_text_bytes(out, count > 0 ? bytes : "", count);
}

static void put_head(mt_text *out, double wall_seconds, int64_t step) {
  uint64_t bits;
  memcpy(&bits, &wall_seconds, sizeof bits);
  put_field(out, EVENT_WALL_TIME, WIRE_64);
  put_little(out, bits, 8);
  put_field(out, EVENT_STEP, WIRE_VARINT);
  put_varint(out, (uint64_t)step);
}

void mt_tensorboard_event(mt_text *out, double wall_seconds, int64_t step, const mt_tensorboard_scalar *scalars,
                          int32_t count) {
  mt_text summary = {0};
  put_head(out, wall_seconds, step);
  for (int32_t i = 0; i < count; i++) {
    if (!isfinite(scalars[i].value)) continue;
    mt_text value = {0};
    float simple = (float)scalars[i].value;
    uint32_t bits;
    memcpy(&bits, &simple, sizeof bits);
    put_bytes(&value, VALUE_TAG, scalars[i].tag, strlen(scalars[i].tag));
    put_field(&value, VALUE_SIMPLE, WIRE_32);
    put_little(&value, bits, 4);
    put_bytes(&summary, SUMMARY_VALUE, value.data, value.length);
    out->failed = out->failed || value.failed;
    mt_text_free(&value);
  }
  put_bytes(out, EVENT_SUMMARY, summary.data, summary.length);
  out->failed = out->failed || summary.failed;
  mt_text_free(&summary);
}

static double now_seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static motet_status write_event(mt_tensorboard *board, const mt_text *event, motet_error *error) {
  mt_text record = {0};
  mt_tensorboard_record(&record, event->data != NULL ? event->data : "", event->length);
  motet_status status = MOTET_OK;
  if (event->failed || record.failed)
    status = mt_error_memory(error, event->length, "an event");
  else if (fwrite(record.data, 1, record.length, board->file) != record.length || fflush(board->file) != 0)
    status = mt_error_system(error, "an event cannot be written", board->path.data);
  mt_text_free(&record);
  return status;
}

/* events.out.tfevents.SECONDS.HOST.PROCESS.NUMBER: TensorBoard reads a directory's files in the order of their
 * names.
 */
static motet_status open_file(mt_tensorboard *board, const char *directory, motet_error *error) {
  char host[256] = "";
  if (gethostname(host, sizeof host - 1) != 0 || host[0] == '\0') strcpy(host, "localhost");
  int descriptor = -1;
  for (int number = 0; number < MOST_FILES && descriptor < 0; number++) {
    mt_text_free(&board->path);
    mt_text_append(&board->path, "%s/events.out.tfevents.%010" PRId64 ".%s.%d.%d", directory,
                   (int64_t)now_seconds(), host, (int)getpid(), number);
    if (board->path.failed) return mt_error_memory(error, strlen(directory), "a path");
    descriptor = open(board->path.data, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor < 0 && errno != EEXIST) break;
  }
  if (descriptor >= 0) board->file = fdopen(descriptor, "wb");
  if (board->file != NULL) return MOTET_OK;
  motet_status status = mt_error_system(error, "the event file cannot be made", board->path.data);
  if (descriptor >= 0) close(descriptor);
  return status;
}

/* The first event says the format's version; the second that steps begin, anew where others had been there. */
static motet_status write_begin(mt_tensorboard *board, int64_t last_step, motet_error *error) {
  static const char version[] = "brain.Event:2";
  static const char start[] = {SESSION_LOG_STATUS << 3 | WIRE_VARINT, SESSION_LOG_START};
  mt_text first = {0}, second = {0};
  put_head(&first, now_seconds(), 0);
  put_bytes(&first, EVENT_FILE_VERSION, version, sizeof version - 1);
  put_head(&second, now_seconds(), last_step + 1);
  put_bytes(&second, EVENT_SESSION_LOG, start, sizeof start);
  motet_status status = write_event(board, &first, error);
  if (status == MOTET_OK) status = write_event(board, &second, error);
  mt_text_free(&first);
  mt_text_free(&second);
  return status;
}

motet_status mt_tensorboard_open(const char *directory, int64_t last_step, motet_error *error,
                                 mt_tensorboard **out) {
  motet_status made = mt_directory_make(directory, error);
  if (made != MOTET_OK) return made;
  mt_tensorboard *board = calloc(1, sizeof *board);
  if (board == NULL) return mt_error_memory(error, sizeof *board, "an event file");
  motet_status status = open_file(board, directory, error);
  if (status == MOTET_OK) status = write_begin(board, last_step, error);
  if (status != MOTET_OK) {
    mt_tensorboard_close(board);
    return status;
  }
  *out = board;
  return MOTET_OK;
}

motet_status mt_tensorboard_add(mt_tensorboard *board, int64_t step, const mt_tensorboard_scalar *scalars,
                                int32_t count, motet_error *error) {
  mt_text event = {0};
  mt_tensorboard_event(&event, now_seconds(), step, scalars, count);
  motet_status status = write_event(board, &event, error);
  mt_text_free(&event);
  return status;
}

void mt_tensorboard_close(mt_tensorboard *board) {
  if (board == NULL) return;
  if (board->file != NULL) fclose(board->file);
  mt_text_free(&board->path);
  free(board);
}
