#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void motet_error_clear(motet_error *error) {
  if (error == NULL) return;
  memset(error, 0, sizeof *error);
  error->rank = -1;
  error->instruction = -1;
  error->microbatch = -1;
}

const char *motet_status_string(motet_status status) {
  switch (status) {
  case MOTET_OK: return "ok";
  case MOTET_ERROR_ARGUMENT: return "wrong argument";
  case MOTET_ERROR_PARSE: return "malformed input";
  case MOTET_ERROR_IO: return "input or output failed";
  case MOTET_ERROR_MEMORY: return "out of memory";
  case MOTET_ERROR_LIMIT: return "beyond a limit";
  case MOTET_ERROR_ILLEGAL: return "illegal plan";
  case MOTET_ERROR_REFUSED: return "program refused";
  case MOTET_ERROR_UNSUPPORTED: return "not supported";
  case MOTET_ERROR_FAILED: return "failed while running";
  case MOTET_ERROR_INTERRUPTED: return "interrupted";
  }
  return "unknown status";
}

motet_status mt_error_set(motet_error *error, motet_status status, const char *format, ...) {
  if (error == NULL) return status;
  motet_error_clear(error);
  error->status = status;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(error->text, sizeof error->text, format, arguments);
  va_end(arguments);
  return status;
}

motet_status mt_error_context(motet_error *error, motet_status status, const char *format, ...) {
  if (error == NULL) return status;
  char text[MOTET_ERROR_TEXT_SIZE];
  va_list arguments;
  va_start(arguments, format);
  int written = vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (written < 0) return status;
  /* What does not fit is cut at the end: the context says where, the text's beginning says what. */
  size_t length = strlen(text), room = sizeof text - 1 - length;
  const char *parts[] = {": ", error->text};
  for (int i = 0; i < 2; i++) {
    size_t part = strlen(parts[i]);
    if (part > room) part = room;
    memcpy(text + length, parts[i], part);
    length += part;
    room -= part;
  }
  text[length] = '\0';
  memcpy(error->text, text, length + 1);
  return status;
}

/* Keeps the end of what does not fit: the last part of a path tells most. */
static void copy_tail(char *target, size_t size, const char *source) {
  size_t length = strlen(source);
  if (length < size) {
    memcpy(target, source, length + 1);
    return;
  }
  memcpy(target, "...", 3);
  memcpy(target + 3, source + length - (size - 4), size - 4 + 1);
}

void mt_error_place(motet_error *error, const char *file, int line) {
  if (error == NULL) return;
  if (file != NULL) copy_tail(error->file, sizeof error->file, file);
  if (line > 0) error->line = line;
}

void mt_error_key(motet_error *error, const char *key) {
  if (error == NULL || key == NULL) return;
  copy_tail(error->key, sizeof error->key, key);
}

void mt_error_rule(motet_error *error, const char *rule, int rank, long long instruction, int microbatch) {
  if (error == NULL) return;
  snprintf(error->rule, sizeof error->rule, "%s", rule != NULL ? rule : "");
  error->rank = rank;
  error->instruction = instruction;
  error->microbatch = microbatch;
}

motet_status mt_error_system(motet_error *error, const char *what, const char *path) {
  motet_status status = mt_error_set(error, MOTET_ERROR_IO, "%s: %s", what, strerror(errno));
  mt_error_place(error, path, 0);
  return status;
}

motet_status mt_error_memory(motet_error *error, unsigned long long bytes, const char *purpose) {
  if (bytes == 0) return mt_error_set(error, MOTET_ERROR_MEMORY, "no memory for %s", purpose);
  return mt_error_set(error, MOTET_ERROR_MEMORY, "no memory for %s (%llu bytes)", purpose, bytes);
}
