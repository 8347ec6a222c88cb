#include "report/flops_file.h"

#include "base/text.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const part_names[MT_FLOPS_PARTS] = {"forward", "input_gradient", "weight_gradient"};

motet_status mt_flops_write(const mt_flops *flops, const char *path, motet_error *error) {
  mt_text text = {0};
  mt_text_append(&text, "{\"format\": \"motet-flops-1\", \"peak_per_second\": %.9g, \"pieces\": [", flops->peak);
  for (int32_t i = 0; i < flops->piece_count; i++) {
    const mt_flops_piece *piece = &flops->pieces[i];
    mt_text_append(&text, "%s\n{\"stage\": %d, \"module\": %d", i > 0 ? "," : "", piece->stage, piece->module);
    for (int part = 0; part < MT_FLOPS_PARTS; part++) {
      mt_text_append(&text, ", \"%s\": [", part_names[part]);
      for (int32_t m = 0; m < flops->microbatch_count; m++)
        mt_text_append(&text, "%s%.17g", m > 0 ? ", " : "", piece->parts[part][m]);
      mt_text_append(&text, "]");
    }
    mt_text_append(&text, "}");
  }
  mt_text_append(&text, "]}\n");
  motet_status status = text.failed ? mt_error_memory(error, text.length, "a step's operations")
                                    : mt_file_write(path, text.data, text.length, error);
  mt_text_free(&text);
  return status;
}

static motet_status wrong(const char *path, const char *key, motet_error *error, const char *text) {
  motet_status status = mt_error_set(error, MOTET_ERROR_PARSE, "%s: %s", key, text);
  mt_error_place(error, path, 0);
  mt_error_key(error, key);
  return status;
}

static bool read_number(const json_t *value, double *number) {
  *number = json_number_value(value);
  return json_is_number(value) && isfinite(*number) && *number >= 0;
}

static bool read_index(const json_t *value, int32_t count, int32_t *index) {
  if (!json_is_integer(value) || json_integer_value(value) < 0 || json_integer_value(value) >= count) return false;
  *index = (int32_t)json_integer_value(value);
  return true;
}

static motet_status read_piece(mt_arena *arena, const json_t *entry, const motet_program *program, const char *path,
                               motet_error *error, mt_flops_piece *piece) {
  int32_t count = program->microbatch_count;
  if (!read_index(json_object_get(entry, "stage"), program->stage_count, &piece->stage))
    return wrong(path, "stage", error, "must be a stage of the step's program");
  if (!read_index(json_object_get(entry, "module"), program->module_count, &piece->module))
    return wrong(path, "module", error, "must be a module of the step's program");
  for (int part = 0; part < MT_FLOPS_PARTS; part++) {
    const json_t *list = json_object_get(entry, part_names[part]);
    if (json_array_size(list) != (size_t)count)
      return wrong(path, part_names[part], error, "must be a list of numbers, one for each microbatch");
    piece->parts[part] = MT_ARENA_NEW(arena, double, count);
    if (piece->parts[part] == NULL) return mt_error_memory(error, (unsigned)count, "a step's operations");
    for (int32_t m = 0; m < count; m++)
      if (!read_number(json_array_get(list, (size_t)m), &piece->parts[part][m]))
        return wrong(path, part_names[part], error, "must be a list of numbers >= 0");
  }
  return MOTET_OK;
}

motet_status mt_flops_read(mt_arena *arena, const char *path, const motet_program *program, motet_error *error,
                           const mt_flops **out) {
  json_error_t fault;
  json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &fault);
  if (root == NULL) {
    motet_status status = mt_error_set(error, MOTET_ERROR_PARSE, "%s", fault.text);
    mt_error_place(error, path, fault.line);
    return status;
  }
  const json_t *pieces = json_object_get(root, "pieces");
  size_t count = json_array_size(pieces);
  mt_flops *flops = MT_ARENA_NEW(arena, mt_flops, 1);
  motet_status status = MOTET_OK;
  if (!json_is_array(pieces) || count > INT32_MAX)
    status = wrong(path, "pieces", error, "must be a list, an entry for each stage and module");
  else if (flops == NULL || (flops->pieces = MT_ARENA_NEW(arena, mt_flops_piece, count)) == NULL)
    status = mt_error_memory(error, count * sizeof *flops->pieces, "a step's operations");
  else if (!read_number(json_object_get(root, "peak_per_second"), &flops->peak))
    status = wrong(path, "peak_per_second", error, "must be a number >= 0");
  if (status == MOTET_OK) {
    flops->microbatch_count = program->microbatch_count;
    for (size_t i = 0; status == MOTET_OK && i < count; i++)
      status = read_piece(arena, json_array_get(pieces, i), program, path, error, &flops->pieces[i]);
    flops->piece_count = (int32_t)count;
  }
  json_decref(root);
  if (status == MOTET_OK) *out = flops;
  return status;
}
