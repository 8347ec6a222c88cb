/** @file What the readers of a program file's parts share: where they read from, and how they say what is wrong. */
#ifndef MT_PROGRAM_JSON_READER_H
#define MT_PROGRAM_JSON_READER_H

#include "base/arena.h"
#include "base/error.h"
#include "motet/program.h"
#include "program/times.h"

#include <jansson.h>

typedef struct mt_json_reader {
  motet_error *error;
  const json_t *root;
  motet_program *program; /* what was read so far; NULL: it is not read from here */
  size_t file_bytes;
} mt_json_reader;

/** What is wrong at a key path, which is formatted. */
motet_status mt_reader_wrong(const mt_json_reader *this, const char *problem, const char *format, ...)
    MT_PRINTF(3, 4);

/** Every key of @p object must be among @p keys, which NULL ends; @p where stands before a key in messages. */
motet_status mt_reader_check_keys(const mt_json_reader *this, const json_t *object, const char *const *keys,
                                  const char *where);

motet_status mt_reader_integer(const mt_json_reader *this, const json_t *value, int64_t low, int64_t high,
                               int64_t *result, const char *where);
motet_status mt_reader_int32(const mt_json_reader *this, const json_t *value, int32_t *result, const char *where);

/** A finite number >= 0. */
motet_status mt_reader_seconds(const mt_json_reader *this, const json_t *value, double *result, const char *where);

/** Whether a table of @p rows times @p columns numbers belongs to a file of this size: a complete program's lists
 * are longer, so that no file makes its reader take more memory than a multiple of its own. */
bool mt_reader_table_fits(const mt_json_reader *this, int64_t rows, int64_t columns);

/** The key `times` of a checked program, into the program's arena; @p times->known is false where there is none. */
motet_status mt_reader_times(const mt_json_reader *this, mt_program_times *times);

/** {"peak_per_second": .., "pieces": [..]}: operations of a step of @p program, into @p arena. */
motet_status mt_reader_flops(const mt_json_reader *this, const json_t *value, mt_arena *arena,
                             const motet_program *program, const mt_flops **flops);

#endif
