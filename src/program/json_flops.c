/* A step's operations as JSON, in plans' files and beside runs' timelines. */
#include "base/arena.h"
#include "program/json.h"
#include "program/json_reader.h"

const char *const mt_flops_part_names[MT_FLOPS_PARTS] = {"forward", "input_gradient", "weight_gradient"};

void mt_json_flops_append(mt_text *text, const mt_flops *flops) {
  mt_text_append(text, "\"peak_per_second\": ");
  mt_json_number_append(text, flops->peak);
  mt_text_append(text, ", \"pieces\": [");
  for (int32_t i = 0; i < flops->piece_count; i++) {
    const mt_flops_piece *piece = &flops->pieces[i];
    mt_text_append(text, "%s\n{\"stage\": %d, \"module\": %d", i > 0 ? "," : "", piece->stage, piece->module);
    for (int part = 0; part < MT_FLOPS_PARTS; part++) {
      mt_text_append(text, ", \"%s\": [", mt_flops_part_names[part]);
      for (int32_t m = 0; m < flops->microbatch_count; m++) {
        if (m > 0) mt_text_append(text, ", ");
        mt_json_number_append(text, piece->parts[part][m]);
      }
      mt_text_append(text, "]");
    }
    mt_text_append(text, "}");
  }
  mt_text_append(text, "]");
}

static motet_status read_piece(const mt_json_reader *this, const json_t *entry, mt_arena *arena,
                               const motet_program *program, int32_t i, mt_flops_piece *piece) {
  int32_t count = program->microbatch_count;
  int64_t stage = 0, module = 0;
  char where[64];
  snprintf(where, sizeof where, "pieces[%d].stage", i);
  motet_status status =
      mt_reader_integer(this, json_object_get(entry, "stage"), 0, program->stage_count - 1, &stage, where);
  snprintf(where, sizeof where, "pieces[%d].module", i);
  if (status == MOTET_OK)
    status =
        mt_reader_integer(this, json_object_get(entry, "module"), 0, program->module_count - 1, &module, where);
  piece->stage = (int32_t)stage;
  piece->module = (int32_t)module;
  for (int part = 0; status == MOTET_OK && part < MT_FLOPS_PARTS; part++) {
    const json_t *list = json_object_get(entry, mt_flops_part_names[part]);
    if (json_array_size(list) != (size_t)count)
      return mt_reader_wrong(this, "must be a list of numbers, one for each microbatch", "pieces[%d].%s", i,
                             mt_flops_part_names[part]);
    piece->parts[part] = MT_ARENA_NEW(arena, double, count);
    if (piece->parts[part] == NULL) return mt_error_memory(this->error, (unsigned)count, "a step's operations");
    snprintf(where, sizeof where, "pieces[%d].%s", i, mt_flops_part_names[part]);
    for (int32_t m = 0; status == MOTET_OK && m < count; m++)
      status = mt_reader_seconds(this, json_array_get(list, (size_t)m), &piece->parts[part][m], where);
  }
  return status;
}

motet_status mt_reader_flops(const mt_json_reader *this, const json_t *value, mt_arena *arena,
                             const motet_program *program, const mt_flops **out) {
  const json_t *pieces = json_object_get(value, "pieces");
  size_t count = json_array_size(pieces);
  if (!json_is_array(pieces) || count > INT32_MAX)
    return mt_reader_wrong(this, "must be a list, an entry for each stage and module", "pieces");
  mt_flops *flops = MT_ARENA_NEW(arena, mt_flops, 1);
  if (flops == NULL || (flops->pieces = MT_ARENA_NEW(arena, mt_flops_piece, count)) == NULL)
    return mt_error_memory(this->error, count * sizeof *flops->pieces, "a step's operations");
  motet_status status =
      mt_reader_seconds(this, json_object_get(value, "peak_per_second"), &flops->peak, "peak_per_second");
  flops->piece_count = (int32_t)count;
  flops->microbatch_count = program->microbatch_count;
  for (int32_t i = 0; status == MOTET_OK && i < flops->piece_count; i++)
    status = read_piece(this, json_array_get(pieces, (size_t)i), arena, program, i, &flops->pieces[i]);
  if (status == MOTET_OK) *out = flops;
  return status;
}
