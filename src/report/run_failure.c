#include "report/run_failure.h"

#include "base/text.h"
#include "report/chrome_trace.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#define FILE_NAME "failure.json"

void mt_run_failure_write(const char *directory, const motet_error *failure) {
  mt_text path = {0}, text = {0};
  mt_text_append(&path, "%s/" FILE_NAME, directory);
  mt_text_append(&text, "{\"message\": ");
  mt_report_json_string(&text, failure->text);
  if (failure->rank >= 0) mt_text_append(&text, ", \"rank\": %d", failure->rank);
  if (failure->instruction >= 0) mt_text_append(&text, ", \"instruction\": %lld", failure->instruction);
  if (failure->microbatch >= 0) mt_text_append(&text, ", \"microbatch\": %d", failure->microbatch);
  mt_text_append(&text, "}\n");
  if (!path.failed && !text.failed) (void)mt_file_write(path.data, text.data, text.length, NULL);
  mt_text_free(&path);
  mt_text_free(&text);
}

void mt_run_failure_forget(const char *directory) {
  mt_text path = {0};
  mt_text_append(&path, "%s/" FILE_NAME, directory);
  if (!path.failed) remove(path.data);
  mt_text_free(&path);
}

motet_status mt_run_failure_read(mt_arena *arena, const char *directory, motet_error *error, const char **failure) {
  static const char *const places[] = {"rank", "instruction", "microbatch"};
  char *path = mt_arena_format(arena, "%s/" FILE_NAME, directory), *content;
  size_t bytes;
  *failure = NULL;
  if (path == NULL) return mt_error_memory(error, sizeof FILE_NAME, "a path");
  if (mt_file_read(path, NULL, &content, &bytes) != MOTET_OK) return MOTET_OK;
  json_t *document = json_loadb(content, bytes, 0, NULL);
  free(content);
  const char *message = json_string_value(json_object_get(document, "message"));
  motet_status status = MOTET_OK;
  if (message == NULL) {
    status = mt_error_set(error, MOTET_ERROR_PARSE, "a JSON object with a message was expected");
    mt_error_place(error, path, 0);
  } else {
    mt_text text = {0};
    mt_text_append(&text, "This run failed: ");
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
      const json_t *place = json_object_get(document, places[i]);
      if (json_is_integer(place))
        mt_text_append(&text, "%s %" JSON_INTEGER_FORMAT ": ", places[i], json_integer_value(place));
    }
    mt_text_append(&text, "%s", message);
    *failure = text.failed ? NULL : mt_arena_text(arena, text.data);
    if (*failure == NULL) status = mt_error_memory(error, text.length, "a failure");
    mt_text_free(&text);
  }
  json_decref(document);
  return status;
}
