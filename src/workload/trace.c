#include "workload/trace.h"

#include "base/array.h"
#include "base/text.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const int64_t TOKENS_MAX = (int64_t)1 << 40;

static motet_status bad_line(motet_error *error, const char *file, int32_t line, const char *key,
                             const char *what) {
  mt_error_set(error, MOTET_ERROR_PARSE, "%s%s%s", key, *key != '\0' ? ": " : "", what);
  mt_error_place(error, file, line);
  if (*key != '\0') mt_error_key(error, key);
  return MOTET_ERROR_PARSE;
}

static const char *unknown_key(json_t *object) {
  static const char *const known[] = {"id", "tokens", "area"};
  for (void *at = json_object_iter(object); at != NULL; at = json_object_iter_next(object, at)) {
    bool found = false;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
      found |= strcmp(json_object_iter_key(at), known[i]) == 0;
    if (!found) return json_object_iter_key(at);
  }
  return NULL;
}

static motet_status parse_item(json_t *object, mt_arena *arena, const char *file, int32_t line, motet_error *error,
                               mt_trace_item *item) {
  if (!json_is_object(object))
    return bad_line(error, file, line, "", "each line is an object {\"id\": \"a\", \"tokens\": 4096}");
  const char *unknown = unknown_key(object);
  if (unknown != NULL) return bad_line(error, file, line, unknown, "unknown key; known are id, tokens and area");
  const json_t *tokens = json_object_get(object, "tokens");
  if (!json_is_integer(tokens)) return bad_line(error, file, line, "tokens", "a whole number >= 1 belongs here");
  item->tokens = json_integer_value(tokens);
  if (item->tokens < 1) return bad_line(error, file, line, "tokens", "a sequence needs at least 1 token");
  if (item->tokens > TOKENS_MAX) return bad_line(error, file, line, "tokens", "at most 2^40 tokens can be planned");
  item->area = 0.5 * (double)item->tokens * (double)item->tokens;
  const json_t *area = json_object_get(object, "area");
  if (area != NULL) {
    item->area = json_number_value(area);
    if (!json_is_number(area) || !(item->area >= 0 && item->area <= (double)item->tokens * (double)item->tokens))
      return bad_line(error, file, line, "area", "a number from 0 to tokens^2 belongs here");
  }
  const json_t *id = json_object_get(object, "id");
  if (json_is_string(id) && json_string_length(id) > 0)
    item->id = mt_arena_text(arena, json_string_value(id));
  else if (json_is_integer(id))
    item->id = mt_arena_format(arena, "%lld", (long long)json_integer_value(id));
  else if (id == NULL)
    item->id = mt_arena_format(arena, "%d", line);
  else
    return bad_line(error, file, line, "id", "a text that is not empty belongs here");
  item->line = line;
  return item->id != NULL ? MOTET_OK : mt_error_memory(error, 0, "a trace");
}

static int by_id(const void *a, const void *b) {
  const mt_trace_item *x = a, *y = b;
  int order = strcmp(x->id, y->id);
  return order != 0 ? order : (x->line > y->line) - (x->line < y->line);
}

static motet_status refuse_twins(const mt_trace *trace, const char *file, motet_error *error) {
  mt_trace_item *sorted = MT_ARENA_NEW(trace->arena, mt_trace_item, trace->count);
  if (sorted == NULL) return mt_error_memory(error, (size_t)trace->count * sizeof *sorted, "a trace");
  memcpy(sorted, trace->items, (size_t)trace->count * sizeof *sorted);
  qsort(sorted, (size_t)trace->count, sizeof *sorted, by_id);
  for (int32_t i = 1; i < trace->count; i++) {
    if (strcmp(sorted[i - 1].id, sorted[i].id) != 0) continue;
    mt_error_set(error, MOTET_ERROR_PARSE, "id: '%.100s' stands at line %d already; ids name sequences",
                 sorted[i].id, sorted[i - 1].line);
    mt_error_place(error, file, sorted[i].line);
    mt_error_key(error, "id");
    return MOTET_ERROR_PARSE;
  }
  return MOTET_OK;
}

/* The text need not end in a zero byte. */
static bool is_blank(const char *text, size_t length) {
  for (size_t i = 0; i < length; i++)
    if (text[i] != ' ' && text[i] != '\t' && text[i] != '\r') return false;
  return true;
}

static motet_status parse_lines(const char *text, size_t bytes, const char *file, motet_error *error,
                                mt_trace *trace) {
  MT_ARRAY(mt_trace_item) items = {0};
  motet_status status = MOTET_OK;
  int32_t line = 0;
  for (const char *at = text, *end = text + bytes; at < end && status == MOTET_OK;) {
    const char *stop = memchr(at, '\n', (size_t)(end - at));
    if (stop == NULL) stop = end;
    line++;
    size_t length = (size_t)(stop - at);
    if (!is_blank(at, length)) {
      json_error_t problem;
      json_t *object = json_loadb(at, length, JSON_REJECT_DUPLICATES, &problem);
      mt_trace_item item;
      if (object == NULL)
        status = bad_line(error, file, line, "", problem.text);
      else
        status = parse_item(object, trace->arena, file, line, error, &item);
      if (status == MOTET_OK && (items.count >= INT32_MAX / 2 || !MT_ARRAY_PUSH(&items, item)))
        status = mt_error_memory(error, items.count * sizeof item, "a trace");
      json_decref(object);
    }
    at = stop < end ? stop + 1 : end;
  }
  if (status == MOTET_OK) {
    trace->items = MT_ARENA_NEW(trace->arena, mt_trace_item, items.count);
    if (trace->items == NULL)
      status = mt_error_memory(error, items.count * sizeof *trace->items, "a trace");
    else if (items.count > 0)
      memcpy(trace->items, items.data, items.count * sizeof *trace->items);
    trace->count = (int32_t)items.count;
  }
  free(items.data);
  return status;
}

motet_status mt_trace_parse(const char *text, size_t bytes, const char *file, motet_error *error, mt_trace *trace) {
  *trace = (mt_trace){.arena = mt_arena_create()};
  if (trace->arena == NULL) return mt_error_memory(error, 0, "a trace");
  motet_status status = parse_lines(text, bytes, file, error, trace);
  if (status == MOTET_OK && trace->count == 0) {
    status = mt_error_set(error, MOTET_ERROR_PARSE, "no sequences; a line for each belongs here");
    mt_error_place(error, file, 1);
  }
  if (status == MOTET_OK) status = refuse_twins(trace, file, error);
  if (status != MOTET_OK) mt_trace_destroy(trace);
  return status;
}

motet_status mt_trace_read(const char *path, motet_error *error, mt_trace *trace) {
  char *text;
  size_t bytes;
  *trace = (mt_trace){0};
  motet_status status = mt_file_read(path, error, &text, &bytes);
  if (status != MOTET_OK) return status;
  status = mt_trace_parse(text, bytes, path, error, trace);
  free(text);
  return status;
}

void mt_trace_destroy(mt_trace *trace) {
  mt_arena_destroy(trace->arena);
  *trace = (mt_trace){0};
}
