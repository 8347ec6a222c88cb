#include "report/run_metrics.h"

#include "base/text.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static char *value_text(mt_arena *arena, const json_t *value) {
  if (json_is_string(value)) return mt_arena_text(arena, json_string_value(value));
  if (json_is_integer(value)) return mt_arena_format(arena, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
  if (json_is_real(value)) return mt_arena_format(arena, "%.6g", json_real_value(value));
  return mt_arena_text(arena, "not known");
}

static motet_status keep_values(mt_arena *arena, json_t *line, motet_error *error, mt_run_metrics *metrics) {
  mt_run_value *values = MT_ARENA_NEW(arena, mt_run_value, json_object_size(line));
  if (values == NULL) return mt_error_memory(error, sizeof *values, "metrics");
  const char *key;
  json_t *value;
  int32_t count = 0;
  json_object_foreach(line, key, value) {
    values[count] = (mt_run_value){mt_arena_text(arena, key), value_text(arena, value)};
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
