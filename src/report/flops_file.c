#include "report/flops_file.h"

#include "base/text.h"
#include "program/json.h"
#include "program/json_reader.h"

motet_status mt_flops_write(const mt_flops *flops, const char *path, motet_error *error) {
  mt_text text = {0};
  mt_text_append(&text, "{\"format\": \"motet-flops-1\", ");
  mt_json_flops_append(&text, flops);
  mt_text_append(&text, "}\n");
  motet_status status = text.failed ? mt_error_memory(error, text.length, "a step's operations")
                                    : mt_file_write(path, text.data, text.length, error);
  mt_text_free(&text);
  return status;
}

motet_status mt_flops_read(mt_arena *arena, const char *path, const motet_program *program, motet_error *error,
                           const mt_flops **flops) {
  json_error_t fault;
  json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &fault);
  if (root == NULL) {
    motet_status status = mt_error_set(error, MOTET_ERROR_PARSE, "%s", fault.text);
    mt_error_place(error, path, fault.line);
    return status;
  }
  mt_json_reader reader = {.error = error, .root = root};
  motet_status status = mt_reader_flops(&reader, root, arena, program, flops);
  if (status != MOTET_OK) mt_error_place(error, path, 0);
  json_decref(root);
  return status;
}
