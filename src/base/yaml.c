#include "base/yaml.h"

#include <string.h>

enum { DEPTH_MOST = 256 };

/* The line of the first bracket that is open too deep, counted also in texts and comments; 0: none is. */
static int too_deep(const char *yaml, size_t bytes) {
  int depth = 0, line = 1;
  for (size_t i = 0; i < bytes; i++) {
    if (yaml[i] == '\n') line++;
    if (yaml[i] == '[' || yaml[i] == '{') depth++;
    if ((yaml[i] == ']' || yaml[i] == '}') && depth > 0) depth--;
    if (depth > DEPTH_MOST) return line;
  }
  return 0;
}

static motet_status failure(const yaml_parser_t *parser, const char *name, motet_error *error) {
  if (parser->error == YAML_MEMORY_ERROR) return mt_error_memory(error, 0, "a file's reader");
  /* libyaml's words for a ': ' inside of a text that has no quotes, as every schedule with names has. */
  bool colon = parser->problem != NULL && strncmp(parser->problem, "mapping values", 14) == 0;
  mt_error_set(error, MOTET_ERROR_PARSE, "this is not YAML: %s%s",
               parser->problem != NULL ? parser->problem : "it cannot be read",
               colon ? " (a text with ': ' in it needs quotes)" : "");
  mt_error_place(error, name, (int)parser->problem_mark.line + 1);
  return MOTET_ERROR_PARSE;
}

/* Nothing may stand behind the document. */
static motet_status check_end(yaml_parser_t *parser, const char *name, motet_error *error) {
  yaml_document_t second;
  if (!yaml_parser_load(parser, &second)) return failure(parser, name, error);
  const yaml_node_t *more = yaml_document_get_root_node(&second);
  motet_status status = MOTET_OK;
  if (more != NULL) {
    status = mt_error_set(error, MOTET_ERROR_PARSE, "the file is one document; a second one begins here");
    mt_error_place(error, name, (int)more->start_mark.line + 1);
  }
  yaml_document_delete(&second);
  return status;
}

motet_status mt_yaml_load(const char *yaml, size_t bytes, const char *name, motet_error *error,
                          yaml_document_t *document) {
  yaml_parser_t parser;
  int deep = too_deep(yaml, bytes);
  if (deep > 0) {
    mt_error_set(error, MOTET_ERROR_PARSE, "more than %d brackets are open here", DEPTH_MOST);
    mt_error_place(error, name, deep);
    return MOTET_ERROR_PARSE;
  }
  if (!yaml_parser_initialize(&parser)) return mt_error_memory(error, sizeof parser, "a file's reader");
  yaml_parser_set_input_string(&parser, (const unsigned char *)yaml, bytes);
  motet_status status = MOTET_OK;
  if (!yaml_parser_load(&parser, document)) {
    status = failure(&parser, name, error);
  } else if (yaml_document_get_root_node(document) != NULL) {
    status = check_end(&parser, name, error);
    if (status != MOTET_OK) yaml_document_delete(document);
  }
  yaml_parser_delete(&parser);
  return status;
}

bool mt_yaml_is_null(const char *text) {
  static const char *const words[] = {"null", "~", "Null", "NULL"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (strcmp(text, words[i]) == 0) return true;
  return false;
}
