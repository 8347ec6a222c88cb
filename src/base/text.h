/** @file Growing text and whole-file reading and writing. */
#ifndef MT_BASE_TEXT_H
#define MT_BASE_TEXT_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** A growing, zero-terminated text. Start with `mt_text text = {0}`; free with mt_text_free(). */
typedef struct mt_text {
  char *data; /* NULL while empty */
  size_t length;
  size_t capacity;
  bool failed; /* an append ran out of memory; later appends do nothing */
} mt_text;

void mt_text_append(mt_text *text, const char *format, ...) MT_PRINTF(2, 3);
void mt_text_bytes(mt_text *text, const char *bytes, size_t count);
void mt_text_free(mt_text *text);

/** A number with its noun: "1 rank", "3 ranks", "2 microbatches". Lives as long as the expression that it is in. */
typedef struct mt_count_words {
  char text[64];
} mt_count_words;

/** @p noun in the singular, which an s or, behind a hiss, es makes many. */
mt_count_words mt_counted(int64_t count, const char *noun);

/** Reads a whole file; a zero byte is put behind the content. The caller frees `*data` with free(). */
motet_status mt_file_read(const char *path, motet_error *error, char **data, size_t *bytes);

/** Makes the directory unless it is there. */
motet_status mt_directory_make(const char *path, motet_error *error);

/** Writes beside @p path, syncs and renames, so that @p path holds the old or the new content, never a part. */
motet_status mt_file_write(const char *path, const void *data, size_t bytes, motet_error *error);

#endif
