#include "base/digest.h"
#include "program/check.h"
#include "program/columns.h"
#include "program/json.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>

/* A JSON text; false where it is not UTF-8, which JSON cannot say. */
static bool append_text(mt_text *text, const char *value) {
  json_t *string = json_string(value);
  char *written = string != NULL ? json_dumps(string, JSON_ENCODE_ANY) : NULL;
  if (written != NULL) mt_text_append(text, "%s", written);
  bool good = written != NULL;
  free(written);
  json_decref(string);
  return good;
}

/* The shortest of jansson's forms that reads back as the same number, whatever the locale. */
void mt_json_number_append(mt_text *text, double value) {
  json_t *number = json_real(value);
  char *written = number != NULL ? json_dumps(number, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17)) : NULL;
  if (written != NULL)
    mt_text_append(text, "%s", written);
  else
    text->failed = true;
  free(written);
  json_decref(number);
}

/* Rows of a table, one a line. */
static void row(mt_text *text, int64_t index) { mt_text_append(text, index == 0 ? "\n  " : ",\n  "); }

static bool append_statement(mt_text *text, const motet_program *program) {
  bool good = true;
  mt_text_append(text, "\"modules\": [");
  for (int32_t j = 0; j < program->module_count; j++) {
    row(text, j);
    mt_text_append(text, "{\"name\": ");
    good = append_text(text, program->modules[j].name) && good;
    mt_text_append(text, ", \"layers\": [%d, %d]}", program->modules[j].layer_begin, program->modules[j].layer_end);
  }
  mt_text_append(text, "],\n\"module_edges\": [");
  for (int32_t e = 0; e < program->module_edge_count; e++)
    mt_text_append(text, "%s[%d, %d]", e == 0 ? "" : ", ", program->module_edges[e].from,
                   program->module_edges[e].to);
  mt_text_append(text, "],\n\"trainable\": \"");
  for (int32_t layer = 0; layer < program->layer_count; layer++)
    mt_text_bytes(text, program->layer_trainable[layer] ? "1" : "0", 1);
  mt_text_append(text, "\",\n\"microbatches\": [");
  for (int32_t m = 0; m < program->microbatch_count; m++) {
    const motet_program_microbatch *microbatch = &program->microbatches[m];
    row(text, m);
    mt_text_append(text, "[%d, %d, \"%" PRIx64 "\", \"%" PRIx64 "\"]", microbatch->replica, microbatch->tokens,
                   microbatch->present, microbatch->cached);
  }
  mt_text_append(text, "],\n");
  return good;
}

static bool append_stages(mt_text *text, const motet_program *program) {
  bool good = true;
  mt_text_append(text, "\"regions\": [");
  for (int32_t r = 0; r < program->region_count; r++) {
    const motet_program_region *region = &program->regions[r];
    row(text, r);
    mt_text_append(text, "{\"name\": ");
    good = append_text(text, region->name) && good;
    mt_text_append(text, ", \"skeleton\": ");
    good = append_text(text, region->skeleton) && good;
    mt_text_append(text, ", \"replicated\": %s}", region->replicated ? "true" : "false");
  }
  mt_text_append(text, "],\n\"stages\": [");
  for (int32_t s = 0; s < program->stage_count; s++) {
    const motet_program_stage *stage = &program->stages[s];
    row(text, s);
    mt_text_append(text, "{\"region\": %d, \"slab\": %d, \"layers\": [%d, %d], \"group\": %d, \"inputs\": [",
                   stage->region, stage->slab, stage->layer_begin, stage->layer_end, stage->group);
    bool first = true;
    for (uint32_t bit = 1; bit <= MOTET_INPUT_LABELS; bit <<= 1) {
      if (!(stage->inputs & bit)) continue;
      mt_text_append(text, "%s\"%s\"", first ? "" : ", ", mt_input_name(bit));
      first = false;
    }
    mt_text_append(text, "], \"share\": ");
    mt_json_number_append(text, stage->share);
    mt_text_append(text, "}");
  }
  mt_text_append(text, "],\n");
  return good;
}

/* [0, -1], the whole; [begin, end, microbatch, [[tokens, features] of each share]]. */
static void append_range(mt_text *text, const motet_program *program, int32_t index) {
  const motet_range *range = &program->ranges[index];
  if (index > 0) row(text, index);
  mt_text_append(text, "[%d, %d", range->begin, range->end);
  if (index > 0) mt_text_append(text, ", %d, [", range->microbatch);
  for (int32_t i = 0; index > 0 && i < range->degree; i++)
    mt_text_append(text, "%s[%d, %d]", i == 0 ? "" : ", ", program->shares[range->first_share + i].tokens,
                   program->shares[range->first_share + i].features);
  mt_text_append(text, index > 0 ? "]]" : "]");
}

static void append_placement(mt_text *text, const motet_program *program) {
  mt_text_append(text, "\"edges\": [");
  for (int32_t e = 0; e < program->edge_count; e++)
    mt_text_append(text, "%s[%d, %d]", e == 0 ? "" : ", ", program->edges[e].from, program->edges[e].to);
  mt_text_append(text, "],\n\"ranges\": [");
  for (int32_t r = 0; r < program->range_count; r++) append_range(text, program, r);
  mt_text_append(text, "],\n\"groups\": [");
  for (int32_t g = 0; g < program->group_count; g++) {
    row(text, g);
    for (int32_t i = 0; i < program->groups[g].count; i++)
      mt_text_append(text, "%s%d", i == 0 ? "[" : ", ", program->group_ranks[program->groups[g].first + i]);
    mt_text_append(text, "]");
  }
  mt_text_append(text, "],\n\"ties\": [");
  for (int32_t t = 0; t < program->tie_count; t++)
    mt_text_append(text, "%s[%d, %d, %" PRId64 "]", t == 0 ? "" : ", ", program->ties[t].first_stage,
                   program->ties[t].second_stage, program->ties[t].bytes);
  mt_text_append(text, "],\n\"carried\": [");
  for (int32_t i = 0; i < program->carried_count; i++)
    mt_text_append(text, "%s[%d, %d, %d]", i == 0 ? "" : ", ", program->carried[i].stage,
                   program->carried[i].microbatch, program->carried[i].rank);
  mt_text_append(text, "],\n");
}

/* A stage whose microbatches are all alike has one number, others have one a microbatch. */
static void append_size_table(mt_text *text, const motet_program *program, const char *key,
                              const motet_size_table *table) {
  int32_t columns = mt_column_count(program);
  mt_text_append(text, "\"%s\": [", key);
  for (int32_t s = 0; s < program->stage_count; s++) {
    const int64_t *sizes = table->values != NULL ? &table->values[s * table->stage_stride] : NULL;
    int64_t stride = table->microbatch_stride;
    bool alike = true;
    for (int32_t m = 1; sizes != NULL && m < columns && alike; m++) alike = sizes[m * stride] == sizes[0];
    if (alike) {
      mt_text_append(text, "%s%" PRId64, s == 0 ? "" : ", ", sizes != NULL ? sizes[0] : 0);
      continue;
    }
    row(text, s);
    for (int32_t m = 0; m < columns; m++)
      mt_text_append(text, "%s%" PRId64, m == 0 ? "[" : ", ", sizes[m * stride]);
    mt_text_append(text, "]");
  }
  mt_text_append(text, "],\n");
}

static void append_sizes(mt_text *text, const motet_program *program) {
  mt_text_append(text, "\"memory_cap\": %" PRId64 ",\n\"static_bytes\": [", program->memory_cap);
  for (int32_t s = 0; s < program->stage_count; s++)
    mt_text_append(text, "%s%" PRId64, s == 0 ? "" : ", ",
                   program->static_bytes != NULL ? program->static_bytes[s] : 0);
  mt_text_append(text, "],\n");
  append_size_table(text, program, "saved_bytes", &program->saved_bytes);
  append_size_table(text, program, "output_bytes", &program->output_bytes);
}

static void append_lists(mt_text *text, const motet_program *program) {
  mt_text_append(text, "\"buffers\": [");
  for (int64_t b = 0; b < program->buffer_count; b++) {
    const motet_buffer *buffer = &program->buffers[b];
    row(text, b);
    mt_text_append(text, "[\"%s\", %d, %d, %d, %d, %" PRId64, mt_buffer_kind_name(buffer->kind), buffer->stage,
                   buffer->edge, buffer->microbatch, buffer->range, buffer->bytes);
    if (buffer->range > 0) mt_text_append(text, ", %d", buffer->member);
    mt_text_append(text, "]");
  }
  mt_text_append(text, "],\n\"lists\": [");
  for (int32_t rank = 0; rank < program->ranks; rank++) {
    mt_text_append(text, rank == 0 ? "\n [" : ",\n [");
    for (int64_t i = program->rank_begin[rank]; i < program->rank_begin[rank + 1]; i++) {
      row(text, i - program->rank_begin[rank]);
      mt_text_append(text, "\"");
      mt_instruction_append(text, program, &program->instructions[i]);
      mt_text_append(text, "\"");
    }
    mt_text_append(text, "]");
  }
  mt_text_append(text, "]\n}\n");
}

motet_status mt_program_print(const motet_program *program, const mt_program_times *times, motet_error *error,
                              mt_text *text) {
  motet_status status = mt_program_check(program, error);
  if (status != MOTET_OK) return mt_error_context(error, status, "a program that cannot be written");
  char digest[MT_DIGEST_TEXT_SIZE];
  mt_digest_print(motet_program_digest(program), digest);
  mt_text_append(text, "{\n\"format\": \"" MT_PROGRAM_FORMAT "\",\n\"version\": %d,\n\"digest\": \"%s\",\n",
                 MT_PROGRAM_VERSION, digest);
  mt_text_append(text, "\"schedule\": ");
  bool good = append_text(text, program->schedule);
  mt_text_append(text, ",\n\"ranks\": %d,\n\"replicas\": %d,\n", program->ranks, program->replicas);
  good = append_statement(text, program) && good;
  good = append_stages(text, program) && good;
  append_placement(text, program);
  append_sizes(text, program);
  if (times != NULL && times->known) mt_json_times_append(text, program, times);
  append_lists(text, program);
  if (!good)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT,
                        "a name of the program is not UTF-8, which is what a JSON file is written in");
  return text->failed ? mt_error_memory(error, text->length, "a program file") : MOTET_OK;
}

motet_status mt_program_write_timed(const motet_program *program, const mt_program_times *times, const char *path,
                                    motet_error *error) {
  mt_text text = {0};
  motet_status status = mt_program_print(program, times, error, &text);
  if (status == MOTET_OK) status = mt_file_write(path, text.data, text.length, error);
  mt_text_free(&text);
  return status;
}

motet_status motet_program_write(const motet_program *program, const char *path, motet_error *error) {
  return mt_program_write_timed(program, NULL, path, error);
}
