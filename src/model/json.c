#include "model/json.h"

#include "base/text.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PATH_PARTS_MAX = 8 };

motet_status mt_json_parse(const void *data, size_t bytes, const char *name, motet_error *error, mt_json *json) {
  *json = (mt_json){.error = error};
  mt_text file = {0}, text = {0};
  mt_text_append(&file, "%s", name);
  mt_text_bytes(&text, data, bytes);
  json->file = file.data;
  json->text = text.data;
  if (file.failed || text.failed) {
    json->status = mt_error_memory(error, bytes, "a configuration");
    goto fail;
  }
  json_error_t problem;
  json->root = json_loadb(data, bytes, JSON_REJECT_DUPLICATES, &problem);
  if (json->root == NULL) {
    json->status = mt_error_set(error, MOTET_ERROR_PARSE, "not well-formed JSON: %s", problem.text);
    mt_error_place(error, name, problem.line);
    goto fail;
  }
  if (!json_is_object(json->root)) {
    json->status = mt_error_set(error, MOTET_ERROR_PARSE, "the top of a configuration must be an object {...}");
    mt_error_place(error, name, 1);
    goto fail;
  }
  return MOTET_OK;
fail:
  mt_json_close(json);
  return json->status;
}

motet_status mt_json_open(const char *path, const char *name, motet_error *error, mt_json *json) {
  struct stat information;
  bool directory = stat(path, &information) == 0 && S_ISDIR(information.st_mode);
  mt_text file = {0};
  char *data = NULL;
  size_t bytes;
  mt_text_append(&file, directory ? "%s/%s" : "%s", path, name);
  motet_status status = file.failed ? mt_error_memory(error, strlen(path), "a file name")
                                    : mt_file_read(file.data, error, &data, &bytes);
  if (status == MOTET_OK) status = mt_json_parse(data, bytes, file.data, error, json);
  free(data);
  mt_text_free(&file);
  return status;
}

void mt_json_close(mt_json *json) {
  json_decref(json->root);
  free(json->text);
  free(json->file);
  json->root = NULL;
  json->text = json->file = NULL;
}

/* Length of the first part of a key path. */
static size_t part_length(const char *key) { return strcspn(key, "."); }

/*
 * Line of @p key in @p text, which is well formed; 0 if it is not there. `depth` counts open brackets, `matched`
 * the leading parts of the path whose objects are open: a key counts only where both agree.
 */
static int line_of(const char *text, const char *key) {
  const char *rest[PATH_PARTS_MAX + 1] = {key};
  int line = 1, depth = 0, matched = 0;
  bool value_matches = true; /* the next value is the object that the matched parts name */
  for (const char *at = text; *at != '\0'; at++) {
    if (*at == '\n') {
      line++;
    } else if (*at == '{' || *at == '[') {
      depth++;
      if (value_matches && *at == '{' && depth > 1) matched++;
      value_matches = false;
    } else if (*at == '}' || *at == ']') {
      if (matched == depth - 1 && matched > 0) matched--;
      depth--;
    } else if (*at == '"') {
      const char *begin = at + 1;
      for (at = begin; *at != '"'; at++)
        if (*at == '\\') at++;
      size_t length = (size_t)(at - begin);
      const char *behind = at + 1 + strspn(at + 1, " \t\r\n");
      value_matches = false;
      if (*behind != ':' || matched != depth - 1) continue;
      size_t wanted = part_length(rest[matched]);
      if (length != wanted || strncmp(begin, rest[matched], length) != 0) continue;
      if (rest[matched][wanted] == '\0') return line;
      if (matched + 1 >= PATH_PARTS_MAX) return 0;
      rest[matched + 1] = rest[matched] + wanted + 1;
      value_matches = true;
    } else if (*at == ',') {
      value_matches = false;
    }
  }
  return 0;
}

/* Line of the key, or of the nearest object around it that is there. */
static int nearest_line(const char *text, const char *key) {
  char path[MOTET_ERROR_KEY_SIZE];
  snprintf(path, sizeof path, "%s", key);
  for (;;) {
    int line = line_of(text, path);
    char *dot = strrchr(path, '.');
    if (line > 0 || dot == NULL) return line > 0 ? line : 1;
    *dot = '\0';
  }
}

motet_status mt_json_fail(mt_json *json, motet_status status, const char *key, const char *format, ...) {
  if (json->status != MOTET_OK) return json->status;
  char text[MOTET_ERROR_TEXT_SIZE - MOTET_ERROR_KEY_SIZE];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  json->status = mt_error_set(json->error, status, "%s: %s", key, text);
  mt_error_place(json->error, json->file, nearest_line(json->text, key));
  mt_error_key(json->error, key);
  return json->status;
}

const json_t *mt_json_find(const mt_json *json, const char *key) {
  const json_t *value = json->root;
  for (;;) {
    size_t length = part_length(key);
    value = json_object_getn(value, key, length);
    if (value == NULL || json_is_null(value)) return NULL;
    if (key[length] == '\0') return value;
    key += length + 1;
  }
}

static const char *type_name(const json_t *value) {
  static const char *const names[] = {"an object", "an array", "a text", "a whole number",
                                      "a number",  "true",     "false",  "null"};
  return names[json_typeof(value)];
}

int64_t mt_json_integer(mt_json *json, const char *key, int64_t minimum, int64_t maximum) {
  const json_t *value = mt_json_find(json, key);
  if (value == NULL) {
    mt_json_fail(json, MOTET_ERROR_PARSE, key, "missing; a whole number from %lld to %lld belongs here",
                 (long long)minimum, (long long)maximum);
    return minimum;
  }
  if (!json_is_integer(value)) {
    mt_json_fail(json, MOTET_ERROR_PARSE, key, "is %s; a whole number from %lld to %lld belongs here",
                 type_name(value), (long long)minimum, (long long)maximum);
    return minimum;
  }
  int64_t number = json_integer_value(value);
  if (number < minimum || number > maximum) {
    mt_json_fail(json, MOTET_ERROR_PARSE, key, "is %lld; a whole number from %lld to %lld belongs here",
                 (long long)number, (long long)minimum, (long long)maximum);
    return minimum;
  }
  return number;
}

int64_t mt_json_integer_or(mt_json *json, const char *key, int64_t minimum, int64_t maximum, int64_t fallback) {
  return mt_json_find(json, key) == NULL ? fallback : mt_json_integer(json, key, minimum, maximum);
}

double mt_json_number_or(mt_json *json, const char *key, double minimum, double maximum, double fallback) {
  const json_t *value = mt_json_find(json, key);
  if (value == NULL) return fallback;
  if (!json_is_number(value)) {
    mt_json_fail(json, MOTET_ERROR_PARSE, key, "is %s; a number from %g to %g belongs here", type_name(value),
                 minimum, maximum);
    return minimum;
  }
  double number = json_number_value(value);
  if (!(number >= minimum && number <= maximum)) {
    mt_json_fail(json, MOTET_ERROR_PARSE, key, "is %g; a number from %g to %g belongs here", number, minimum,
                 maximum);
    return minimum;
  }
  return number;
}

bool mt_json_boolean_or(mt_json *json, const char *key, bool fallback) {
  const json_t *value = mt_json_find(json, key);
  if (value == NULL) return fallback;
  if (!json_is_boolean(value))
    mt_json_fail(json, MOTET_ERROR_PARSE, key, "is %s; true or false belongs here", type_name(value));
  return json_is_true(value);
}

const char *mt_json_text_or(mt_json *json, const char *key, const char *fallback) {
  const json_t *value = mt_json_find(json, key);
  if (value == NULL) return fallback;
  if (!json_is_string(value)) {
    mt_json_fail(json, MOTET_ERROR_PARSE, key, "is %s; a text belongs here", type_name(value));
    return "";
  }
  return json_string_value(value);
}
