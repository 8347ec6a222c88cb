/** @file
 * Configuration files in JSON, read key by key. The first error stays: readers ask for all they need and look at
 * the status once. Keys are paths ("vision_config.hidden_size"); null counts as absent, as it does in published
 * configs.
 */
#ifndef MT_MODEL_JSON_H
#define MT_MODEL_JSON_H

#include "base/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct mt_json {
  char *file;
  char *text;
  json_t *root;
  motet_error *error; /* may be NULL */
  motet_status status;
} mt_json;

/** Reads @p path, or @p name in it if it is a directory. The top must be an object without duplicate keys. */
motet_status mt_json_open(const char *path, const char *name, motet_error *error, mt_json *json);

/** The same from memory; @p name stands for the file in errors. */
motet_status mt_json_parse(const void *data, size_t bytes, const char *name, motet_error *error, mt_json *json);

/** Frees what a successful open or parse made; after a failed one there is nothing to free. */
void mt_json_close(mt_json *json);

/** Records an error at @p key with its line in the file, unless there is one already. */
motet_status mt_json_fail(mt_json *json, motet_status status, const char *key, const char *format, ...)
    MT_PRINTF(4, 5);

/** The value at @p key, or NULL if it is absent or null. */
const json_t *mt_json_find(const mt_json *json, const char *key);

/* Each reads a value that must lie in [minimum, maximum] or be one of its type; the plain form fails if it is
 * absent, the `_or` form gives @p fallback then. After an error they give the minimum, false or "". */
int64_t mt_json_integer(mt_json *json, const char *key, int64_t minimum, int64_t maximum);
int64_t mt_json_integer_or(mt_json *json, const char *key, int64_t minimum, int64_t maximum, int64_t fallback);
double mt_json_number_or(mt_json *json, const char *key, double minimum, double maximum, double fallback);
bool mt_json_boolean_or(mt_json *json, const char *key, bool fallback);
/** The text belongs to @p json. */
const char *mt_json_text_or(mt_json *json, const char *key, const char *fallback);

#endif
