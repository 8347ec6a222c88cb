#include "report/run_document.h"

#include "report/history.h"
#include "report/run.h"
#include "report/run_failure.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TAIL = 1 << 16 /* bytes of a file's end, more than any line has */ };

/* The last whole line that is an object, as a value; null where there is none. */
static json_t *last_line(const char *path) {
  char *tail = malloc(TAIL + 1);
  FILE *file = tail != NULL ? fopen(path, "rb") : NULL;
  size_t length = 0;
  if (file != NULL && (fseek(file, -(long)TAIL, SEEK_END) == 0 || fseek(file, 0, SEEK_SET) == 0))
    length = fread(tail, 1, TAIL, file);
  if (file != NULL) fclose(file);
  while (length > 0 && tail[length - 1] != '\n') length--; /* the rest is being written */
  json_t *value = NULL;
  while (length > 0 && !json_is_object(value)) {
    size_t end = --length;
    while (length > 0 && tail[length - 1] != '\n') length--;
    json_decref(value);
    value = json_loadb(tail + length, end - length, JSON_REJECT_DUPLICATES, NULL);
  }
  free(tail);
  if (json_is_object(value)) return value;
  json_decref(value);
  return json_null();
}

static json_t *evaluations_of(const mt_history *history) {
  json_t *list = json_array();
  for (size_t i = 0; i < history->evaluations.count; i++)
    json_array_append_new(list, json_pack("{s:I, s:f}", "step", (json_int_t)history->evaluations.data[i].step,
                                          "loss", history->evaluations.data[i].loss));
  return list;
}

/* Text from outside may hold any bytes; JSON may not. */
static json_t *text_or_null(const char *text) {
  json_t *value = text != NULL ? json_string(text) : json_null();
  return value != NULL ? value : json_string("a text that is not UTF-8");
}

static json_t *describe(const char *directory, const mt_history *history, const char *failure,
                        const char *metrics) {
  int64_t newest = mt_run_newest(directory);
  json_t *document = json_object();
  json_object_set_new(document, "run", text_or_null(directory));
  json_object_set_new(document, "planned_steps",
                      history->planned_steps > 0 ? json_integer(history->planned_steps) : json_null());
  json_object_set_new(document, "finished", json_boolean(mt_history_is_finished(history)));
  json_object_set_new(document, "failure", text_or_null(failure));
  json_object_set_new(document, "timeline_step", newest > 0 ? json_integer(newest) : json_null());
  json_object_set_new(document, "last_step", last_line(metrics));
  json_object_set_new(document, "evaluations", evaluations_of(history));
  return document;
}

motet_status mt_run_document(const char *directory, motet_error *error, mt_text *text) {
  mt_history history = {0};
  const char *failure = NULL;
  mt_arena *arena = mt_arena_create();
  char *metrics = arena != NULL ? mt_arena_format(arena, "%s/metrics.jsonl", directory) : NULL;
  motet_status status = metrics != NULL ? mt_history_update(&history, directory, NULL, error)
                                        : mt_error_memory(error, strlen(directory), "a run's document");
  if (status == MOTET_OK) status = mt_run_failure_read(arena, directory, error, &failure);
  if (status == MOTET_OK) {
    json_t *document = describe(directory, &history, failure, metrics);
    char *dump = json_dumps(document, JSON_INDENT(1) | JSON_REAL_PRECISION(15));
    if (dump != NULL)
      mt_text_append(text, "%s\n", dump);
    else
      status = mt_error_memory(error, 0, "a run's document");
    free(dump);
    json_decref(document);
  }
  mt_history_free(&history);
  mt_arena_destroy(arena);
  return status;
}
