#include "base/text.h"
#include "cli/cli.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int mt_cli_exit_code(motet_status status) {
  switch (status) {
  case MOTET_OK: return MT_EXIT_DONE;
  case MOTET_ERROR_ILLEGAL:
  case MOTET_ERROR_REFUSED: return MT_EXIT_NO;
  case MOTET_ERROR_ARGUMENT:
  case MOTET_ERROR_PARSE:
  case MOTET_ERROR_IO:
  case MOTET_ERROR_LIMIT:
  case MOTET_ERROR_UNSUPPORTED: return MT_EXIT_USAGE;
  case MOTET_ERROR_MEMORY:
  case MOTET_ERROR_FAILED: return MT_EXIT_FAILURE;
  case MOTET_ERROR_INTERRUPTED: return MT_EXIT_INTERRUPTED;
  }
  return MT_EXIT_FAILURE;
}

/* Text from outside may hold any bytes; JSON may not. */
static json_t *text_value(const char *text) {
  json_t *value = json_string(text);
  if (value != NULL) return value;
  mt_text safe = {0};
  for (const char *c = text; *c != '\0'; c++) mt_text_append(&safe, "%c", (unsigned char)*c < 128 ? *c : '?');
  value = json_string(safe.data != NULL ? safe.data : "");
  mt_text_free(&safe);
  return value;
}

static void print_json(const motet_error *error, int code) {
  json_t *document = json_object();
  if (code == MT_EXIT_NO) {
    json_object_set_new(document, "accepted", json_false());
    if (error->rule[0] != '\0') json_object_set_new(document, "rule", text_value(error->rule));
    json_object_set_new(document, "message", text_value(error->text));
  } else {
    json_object_set_new(document, "error", text_value(error->text));
  }
  if (error->file[0] != '\0') json_object_set_new(document, "file", text_value(error->file));
  if (error->line > 0) json_object_set_new(document, "line", json_integer(error->line));
  if (error->key[0] != '\0') json_object_set_new(document, "key", text_value(error->key));
  if (error->rank >= 0) json_object_set_new(document, "rank", json_integer(error->rank));
  if (error->instruction >= 0) json_object_set_new(document, "instruction", json_integer(error->instruction));
  if (error->microbatch >= 0) json_object_set_new(document, "microbatch", json_integer(error->microbatch));
  char *text = json_dumps(document, JSON_INDENT(1));
  if (text != NULL) printf("%s\n", text);
  free(text);
  json_decref(document);
}

/* Whether the text names the file already, as a word of its own. */
static bool mentions(const char *text, const char *file) {
  static const char before[] = " '\"(", after[] = " ':,\")";
  size_t length = strlen(file);
  for (const char *at = strstr(text, file); at != NULL; at = strstr(at + 1, file))
    if ((at == text || strchr(before, at[-1]) != NULL) && (at[length] == '\0' || strchr(after, at[length]) != NULL))
      return true;
  return false;
}

int mt_cli_fail(const motet_error *error, bool json) {
  int code = mt_cli_exit_code(error->status);
  if (json) {
    print_json(error, code);
    return code;
  }
  mt_text place = {0};
  bool named = error->file[0] != '\0' && mentions(error->text, error->file);
  if (error->file[0] != '\0' && !named) mt_text_append(&place, "%s: ", error->file);
  if (error->line > 0 && !(named && strstr(error->text, "line ") != NULL))
    mt_text_append(&place, "line %d: ", error->line);
  if (error->key[0] != '\0' && strstr(error->text, error->key) == NULL) mt_text_append(&place, "%s: ", error->key);
  if (error->rule[0] != '\0') mt_text_append(&place, "[%s] ", error->rule);
  if (error->rank >= 0) mt_text_append(&place, "rank %d: ", error->rank);
  if (error->instruction >= 0) mt_text_append(&place, "instruction %lld: ", error->instruction);
  if (error->microbatch >= 0) mt_text_append(&place, "microbatch %d: ", error->microbatch);
  fprintf(stderr, "motet: %s%s\n", place.data != NULL ? place.data : "", error->text);
  mt_text_free(&place);
  return code;
}

int mt_cli_usage(const mt_command *command, const motet_error *error, bool json) {
  int code = mt_cli_fail(error, json);
  if (!json) fprintf(stderr, "motet: see 'motet help %s'\n", command->name);
  return code;
}

int mt_cli_print(const char *text) {
  if (fputs(text, stdout) >= 0 && fflush(stdout) == 0) return MT_EXIT_DONE;
  fprintf(stderr, "motet: cannot write to standard output: %s\n", strerror(errno));
  return MT_EXIT_FAILURE;
}
