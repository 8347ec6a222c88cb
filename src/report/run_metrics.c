#include "report/run_metrics.h"

#include "base/text.h"
#include "report/words.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static bool ends_with(const char *key, const char *end) {
  size_t length = strlen(key), behind = strlen(end);
  return length > behind && strcmp(key + length - behind, end) == 0;
}

/* Sizes, times and shares read better in words than as they stand. */
static char *quantity_text(mt_arena *arena, const char *key, double value) {
  mt_text text = {0};
  if (ends_with(key, "_bytes") && value >= 0 && value < 9e18) {
    mt_words_bytes(&text, (int64_t)value);
  } else if (ends_with(key, "_seconds")) {
    mt_words_unit unit = mt_words_time_unit(value);
    mt_words_number(&text, value * unit.per_second, 6);
    mt_text_append(&text, " %s", unit.name);
  } else if (ends_with(key, "_share") || strcmp(key, "mfu") == 0) {
    mt_text_append(&text, "%.1f%%", 100 * value);
  } else {
    mt_text_append(&text, "%.6g", value);
  }
  char *words = text.failed ? NULL : mt_arena_text(arena, text.data);
  mt_text_free(&text);
  return words;
}

static char *value_text(mt_arena *arena, const char *key, const json_t *value) {
  if (json_is_string(value)) return mt_arena_text(arena, json_string_value(value));
  if (json_is_number(value) && (json_is_real(value) || ends_with(key, "_bytes")))
    return quantity_text(arena, key, json_number_value(value));
  if (json_is_integer(value)) return mt_arena_format(arena, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
  return mt_arena_text(arena, "not known");
}

static motet_status keep_values(mt_arena *arena, json_t *line, motet_error *error, mt_run_metrics *metrics) {
  mt_run_value *values = MT_ARENA_NEW(arena, mt_run_value, json_object_size(line));
  if (values == NULL) return mt_error_memory(error, sizeof *values, "metrics");
  const char *key;
  json_t *value;
  int32_t count = 0;
  json_object_foreach(line, key, value) {
    values[count] = (mt_run_value){mt_arena_text(arena, key), value_text(arena, key, value)};
    if (values[count].name == NULL || values[count].value == NULL)
      return mt_error_memory(error, sizeof *values, "metrics");
    count++;
  }
  metrics->values = values;
  metrics->value_count = count;
  return MOTET_OK;
}

motet_status mt_run_metrics_read(mt_arena *arena, const char *directory, int64_t step, motet_error *error,
                                 mt_run_metrics *metrics) {
  *metrics = (mt_run_metrics){0};
  char *path = mt_arena_format(arena, "%s/metrics.jsonl", directory), *content;
  size_t bytes;
  if (path == NULL) return mt_error_memory(error, strlen(directory), "a path");
  if (mt_file_read(path, NULL, &content, &bytes) != MOTET_OK) return MOTET_OK;
  motet_status status = MOTET_OK;
  for (const char *line = content, *end = NULL, *stop = content + bytes; line < stop && status == MOTET_OK;
       line = end + 1) {
    end = memchr(line, '\n', (size_t)(stop - line));
    if (end == NULL) end = stop;
    json_t *document = json_loadb(line, (size_t)(end - line), 0, NULL);
    const json_t *number = json_object_get(document, "step");
    if (json_is_integer(number) && json_integer_value(number) == step)
      status = keep_values(arena, document, error, metrics);
    json_decref(document);
  }
  free(content);
  return status;
}
