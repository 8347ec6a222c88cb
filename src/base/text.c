#include "base/text.h"

#include "base/array.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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

motet_status mt_file_read(const char *path, motet_error *error, char **data, size_t *bytes) {
  *data = NULL;
  *bytes = 0;
  FILE *file = fopen(path, "rb");
  struct stat information;
  motet_status status = MOTET_OK;
  if (file == NULL) {
    status = mt_error_set(error, MOTET_ERROR_IO, "cannot open %s: %s", path, strerror(errno));
    mt_error_place(error, path, 0);
    return status;
  }
  if (fstat(fileno(file), &information) == 0 && S_ISDIR(information.st_mode)) {
    status = mt_error_set(error, MOTET_ERROR_IO, "%s is a directory; a file was expected", path);
    goto done;
  }
  mt_text text = {0};
  for (;;) {
    if (!reserve(&text, 1 << 16)) {
      status = mt_error_memory(error, text.length, path);
      break;
    }
    size_t got = fread(text.data + text.length, 1, text.capacity - text.length - 1, file);
    text.length += got;
    text.data[text.length] = '\0';
    if (got == 0) break;
  }
  if (status == MOTET_OK && ferror(file))
    status = mt_error_set(error, MOTET_ERROR_IO, "cannot read %s: %s", path, strerror(errno));
  if (status == MOTET_OK) {
    *data = text.data;
    *bytes = text.length;
  } else {
    mt_text_free(&text);
  }
done:
  if (status != MOTET_OK) mt_error_place(error, path, 0);
  fclose(file);
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
