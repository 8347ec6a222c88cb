#include "base/text.h"

#include "base/array.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static bool reserve(mt_text *text, size_t more) {
  size_t needed;
  if (text->failed || __builtin_add_overflow(text->length, more + 1, &needed) ||
      !mt_array_reserve((void **)&text->data, &text->capacity, needed, 1)) {
    text->failed = true;
    return false;
  }
  return true;
}

void mt_text_bytes(mt_text *text, const char *bytes, size_t count) {
  if (!reserve(text, count)) return;
  memcpy(text->data + text->length, bytes, count);
  text->length += count;
  text->data[text->length] = '\0';
}

void mt_text_append(mt_text *text, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  va_list again;
  va_copy(again, arguments);
  int length = vsnprintf(NULL, 0, format, arguments);
  va_end(arguments);
  if (length >= 0 && reserve(text, (size_t)length)) {
    vsnprintf(text->data + text->length, (size_t)length + 1, format, again);
    text->length += (size_t)length;
  }
  va_end(again);
}

void mt_text_free(mt_text *text) {
  free(text->data);
  *text = (mt_text){0};
}

mt_count_words mt_counted(int64_t count, const char *noun) {
  mt_count_words words;
  size_t length = strlen(noun);
  bool hisses = length > 1 && (noun[length - 1] == 's' || noun[length - 1] == 'x' ||
                               (noun[length - 1] == 'h' && (noun[length - 2] == 'c' || noun[length - 2] == 's')));
  snprintf(words.text, sizeof words.text, "%" PRId64 " %s%s", count, noun, count == 1 ? "" : hisses ? "es" : "s");
  return words;
}

/* What is no plain file may have no end, and a pipe perhaps no writer. */
static const struct timespec PIPE_LOOK = {0, 10 * 1000 * 1000};
enum { PIPE_LOOKS = 100, PLAIN_MOST = 1 << 26 };

/* As read(), but waits on a pipe: for data and, if @p begun is false, some time for a writer. */
static ssize_t read_some(int descriptor, char *data, size_t bytes, bool begun) {
  for (int looks = 0;;) {
    ssize_t got = read(descriptor, data, bytes);
    if (got > 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return got;
    if (got == 0 && (begun || looks++ == PIPE_LOOKS)) return 0;
    struct pollfd pipe = {.fd = descriptor, .events = POLLIN};
    if (got < 0 && errno == EAGAIN) begun = poll(&pipe, 1, -1) > 0;
    if (got == 0) nanosleep(&PIPE_LOOK, NULL);
  }
}

static motet_status read_open(int descriptor, const char *path, motet_error *error, mt_text *text) {
  struct stat information;
  if (fstat(descriptor, &information) != 0) return mt_error_system(error, "cannot be read", path);
  if (S_ISDIR(information.st_mode))
    return mt_error_set(error, MOTET_ERROR_IO, "%s is a directory; a file was expected", path);
  bool plain = S_ISREG(information.st_mode), pipe = S_ISFIFO(information.st_mode);
  for (;;) {
    if (!reserve(text, 1 << 16)) return mt_error_memory(error, text->length, path);
    ssize_t got = read_some(descriptor, text->data + text->length, text->capacity - text->length - 1,
                            !pipe || text->length > 0);
    if (got < 0) return mt_error_set(error, MOTET_ERROR_IO, "cannot read %s: %s", path, strerror(errno));
    if (got == 0 && pipe && text->length == 0)
      return mt_error_set(error, MOTET_ERROR_IO, "%s is a pipe that nobody writes into", path);
    text->length += (size_t)got;
    text->data[text->length] = '\0';
    if (got == 0) return MOTET_OK;
    if (!plain && text->length > PLAIN_MOST)
      return mt_error_set(error, MOTET_ERROR_LIMIT, "%s is no plain file and has more than %d bytes", path,
                          PLAIN_MOST);
  }
}

motet_status mt_file_read(const char *path, motet_error *error, char **data, size_t *bytes) {
  *data = NULL;
  *bytes = 0;
  int descriptor = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  mt_text text = {0};
  motet_status status = descriptor >= 0
                            ? read_open(descriptor, path, error, &text)
                            : mt_error_set(error, MOTET_ERROR_IO, "cannot open %s: %s", path, strerror(errno));
  if (descriptor >= 0) close(descriptor);
  if (status == MOTET_OK) {
    *data = text.data;
    *bytes = text.length;
  } else {
    mt_text_free(&text);
    mt_error_place(error, path, 0);
  }
  return status;
}

static bool write_all(int descriptor, const char *data, size_t bytes) {
  while (bytes > 0) {
    ssize_t written = write(descriptor, data, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    data += written;
    bytes -= (size_t)written;
  }
  return true;
}

motet_status mt_file_write(const char *path, const void *data, size_t bytes, motet_error *error) {
  mt_text temporary = {0};
  mt_text_append(&temporary, "%s.part", path);
  if (temporary.failed) return mt_error_memory(error, strlen(path), "a file name");
  motet_status status = MOTET_OK;
  int descriptor = open(temporary.data, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  bool good = descriptor >= 0 && write_all(descriptor, data, bytes) && fsync(descriptor) == 0;
  if (!good) {
    status = mt_error_set(error, MOTET_ERROR_IO, "cannot write %s: %s", temporary.data, strerror(errno));
    mt_error_place(error, path, 0);
  }
  if (descriptor >= 0 && close(descriptor) != 0 && good) {
    good = false;
    status = mt_error_set(error, MOTET_ERROR_IO, "cannot write %s: %s", temporary.data, strerror(errno));
  }
  if (good && rename(temporary.data, path) != 0) {
    good = false;
    status =
        mt_error_set(error, MOTET_ERROR_IO, "cannot rename %s to %s: %s", temporary.data, path, strerror(errno));
  }
  if (!good && descriptor >= 0) unlink(temporary.data);
  mt_text_free(&temporary);
  return status;
}

motet_status mt_directory_make(const char *path, motet_error *error) {
  if (mkdir(path, 0777) == 0 || errno == EEXIST) return MOTET_OK;
  return mt_error_system(error, "the directory cannot be made", path);
}
