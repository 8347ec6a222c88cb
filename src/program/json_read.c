/* Program JSON, in. Types and counts are checked while reading, ranges at the end by mt_program_check(), which
 * names places by the same key paths. */
#include "base/arena.h"
#include "base/digest.h"
#include "program/check.h"
#include "program/columns.h"
#include "program/json.h"
#include "program/json_reader.h"

#include <stdlib.h>
#include <string.h>

static const char *const root_keys[] = {"format",       "version", "digest",       "schedule",     "ranks",
                                        "replicas",     "modules", "module_edges", "trainable",    "microbatches",
                                        "regions",      "stages",  "edges",        "ranges",       "groups",
                                        "ties",         "carried", "memory_cap",   "static_bytes", "saved_bytes",
                                        "output_bytes", "times",   "buffers",      "lists",        NULL};

static motet_status read_text(const mt_json_reader *this, const json_t *value, const char **result,
                              const char *where) {
  if (!json_is_string(value)) return mt_reader_wrong(this, "must be a text", "%s", where);
  *result = mt_arena_text(this->program->arena, json_string_value(value));
  return *result != NULL ? MOTET_OK : mt_error_memory(this->error, json_string_length(value), where);
}

/* A root key that holds an array; its length must fit in 31 bits. */
static motet_status root_array(const mt_json_reader *this, const char *key, const json_t **array, int32_t *count) {
  *array = json_object_get(this->root, key);
  if (!json_is_array(*array)) return mt_reader_wrong(this, "must be there and be an array", "%s", key);
  if (json_array_size(*array) > INT32_MAX) return mt_reader_wrong(this, "has too many entries", "%s", key);
  *count = (int32_t)json_array_size(*array);
  return MOTET_OK;
}

/* A table whose rows are `width` 32-bit integers, into `rows` of such records. */
static motet_status read_rows(const mt_json_reader *this, const char *key, int32_t width, int32_t *count,
                              int32_t **rows) {
  const json_t *array;
  motet_status status = root_array(this, key, &array, count);
  if (status != MOTET_OK) return status;
  *rows = mt_arena_array(this->program->arena, (size_t)*count, (size_t)width * sizeof **rows);
  if (*rows == NULL) return mt_error_memory(this->error, (unsigned long long)*count * 4, key);
  for (int32_t i = 0; i < *count; i++) {
    const json_t *entry = json_array_get(array, (size_t)i);
    if (!json_is_array(entry) || json_array_size(entry) != (size_t)width)
      return mt_reader_wrong(this, width == 2 ? "must be an array of 2 integers" : "must be an array of 3 integers",
                             "%s[%d]", key, i);
    for (int32_t k = 0; k < width; k++) {
      char where[64];
      snprintf(where, sizeof where, "%s[%d][%d]", key, i, k);
      status = mt_reader_int32(this, json_array_get(entry, (size_t)k), &(*rows)[(int64_t)i * width + k], where);
      if (status != MOTET_OK) return status;
    }
  }
  return MOTET_OK;
}

#define READ_ROWS(this, key, width, count, field)                                                                  \
  read_rows(this, key, width, &(this)->program->count, (int32_t **)(void *)&(this)->program->field)

static motet_status read_pair(const mt_json_reader *this, const json_t *value, int32_t *first, int32_t *second,
                              const char *where) {
  if (!json_is_array(value) || json_array_size(value) != 2)
    return mt_reader_wrong(this, "must be an array of 2 integers", "%s", where);
  motet_status status = mt_reader_int32(this, json_array_get(value, 0), first, where);
  return status != MOTET_OK ? status : mt_reader_int32(this, json_array_get(value, 1), second, where);
}

static motet_status read_modules(const mt_json_reader *this) {
  static const char *const keys[] = {"name", "layers", NULL};
  motet_program *program = this->program;
  const json_t *array;
  motet_status status = root_array(this, "modules", &array, &program->module_count);
  if (status != MOTET_OK) return status;
  program->modules = MT_ARENA_NEW(program->arena, motet_program_module, program->module_count);
  if (program->modules == NULL) return mt_error_memory(this->error, json_array_size(array), "modules");
  for (int32_t j = 0; status == MOTET_OK && j < program->module_count; j++) {
    motet_program_module *module = &program->modules[j];
    const json_t *entry = json_array_get(array, (size_t)j);
    char where[64];
    snprintf(where, sizeof where, "modules[%d].", j);
    if (!json_is_object(entry)) return mt_reader_wrong(this, "must be an object", "modules[%d]", j);
    status = mt_reader_check_keys(this, entry, keys, where);
    snprintf(where, sizeof where, "modules[%d].name", j);
    if (status == MOTET_OK) status = read_text(this, json_object_get(entry, "name"), &module->name, where);
    snprintf(where, sizeof where, "modules[%d].layers", j);
    if (status == MOTET_OK)
      status = read_pair(this, json_object_get(entry, "layers"), &module->layer_begin, &module->layer_end, where);
  }
  return status;
}

static motet_status read_trainable(const mt_json_reader *this) {
  motet_program *program = this->program;
  const json_t *value = json_object_get(this->root, "trainable");
  if (!json_is_string(value)) return mt_reader_wrong(this, "must be a text of one 0 or 1 a layer", "trainable");
  size_t layers = json_string_length(value);
  if (layers > INT32_MAX) return mt_reader_wrong(this, "has too many layers", "trainable");
  program->layer_count = (int32_t)layers;
  program->layer_trainable = MT_ARENA_NEW(program->arena, uint8_t, layers);
  if (program->layer_trainable == NULL) return mt_error_memory(this->error, layers, "trainable flags");
  for (size_t layer = 0; layer < layers; layer++) {
    char flag = json_string_value(value)[layer];
    if (flag != '0' && flag != '1') return mt_reader_wrong(this, "must be 0 or 1", "trainable[%zu]", layer);
    program->layer_trainable[layer] = flag == '1';
  }
  return MOTET_OK;
}

/* A set of modules as a hexadecimal number: 64 bits do not fit a JSON integer everywhere. */
static motet_status read_mask(const mt_json_reader *this, const json_t *value, uint64_t *mask, const char *where) {
  const char *text = json_is_string(value) ? json_string_value(value) : "";
  size_t length = strlen(text);
  if (length == 0 || length > 16 || strspn(text, "0123456789abcdef") != length)
    return mt_reader_wrong(this, "must be a text of 1 to 16 hexadecimal digits, 0-9 and a-f", "%s", where);
  *mask = strtoull(text, NULL, 16);
  return MOTET_OK;
}

static motet_status read_microbatches(const mt_json_reader *this) {
  motet_program *program = this->program;
  const json_t *array;
  motet_status status = root_array(this, "microbatches", &array, &program->microbatch_count);
  if (status != MOTET_OK) return status;
  if (program->microbatch_count == 0) return mt_reader_wrong(this, "must have at least one entry", "microbatches");
  program->microbatches = MT_ARENA_NEW(program->arena, motet_program_microbatch, program->microbatch_count);
  if (program->microbatches == NULL) return mt_error_memory(this->error, json_array_size(array), "microbatches");
  for (int32_t m = 0; status == MOTET_OK && m < program->microbatch_count; m++) {
    motet_program_microbatch *microbatch = &program->microbatches[m];
    const json_t *entry = json_array_get(array, (size_t)m);
    char where[48];
    snprintf(where, sizeof where, "microbatches[%d]", m);
    if (!json_is_array(entry) || json_array_size(entry) != 4)
      return mt_reader_wrong(this, "must be [replica, tokens, present, cached]", "%s", where);
    status = mt_reader_int32(this, json_array_get(entry, 0), &microbatch->replica, where);
    if (status == MOTET_OK) status = mt_reader_int32(this, json_array_get(entry, 1), &microbatch->tokens, where);
    if (status == MOTET_OK) status = read_mask(this, json_array_get(entry, 2), &microbatch->present, where);
    if (status == MOTET_OK) status = read_mask(this, json_array_get(entry, 3), &microbatch->cached, where);
  }
  return status;
}

static motet_status read_regions(const mt_json_reader *this) {
  static const char *const keys[] = {"name", "skeleton", "replicated", NULL};
  motet_program *program = this->program;
  const json_t *array;
  motet_status status = root_array(this, "regions", &array, &program->region_count);
  if (status != MOTET_OK) return status;
  program->regions = MT_ARENA_NEW(program->arena, motet_program_region, program->region_count);
  if (program->regions == NULL) return mt_error_memory(this->error, json_array_size(array), "regions");
  for (int32_t r = 0; status == MOTET_OK && r < program->region_count; r++) {
    motet_program_region *region = &program->regions[r];
    const json_t *entry = json_array_get(array, (size_t)r), *replicated;
    char where[48];
    snprintf(where, sizeof where, "regions[%d].", r);
    if (!json_is_object(entry)) return mt_reader_wrong(this, "must be an object", "regions[%d]", r);
    status = mt_reader_check_keys(this, entry, keys, where);
    snprintf(where, sizeof where, "regions[%d].name", r);
    if (status == MOTET_OK) status = read_text(this, json_object_get(entry, "name"), &region->name, where);
    snprintf(where, sizeof where, "regions[%d].skeleton", r);
    if (status == MOTET_OK) status = read_text(this, json_object_get(entry, "skeleton"), &region->skeleton, where);
    replicated = json_object_get(entry, "replicated");
    if (status == MOTET_OK && !json_is_boolean(replicated))
      status = mt_reader_wrong(this, "must be true or false", "regions[%d].replicated", r);
    region->replicated = json_is_true(replicated);
  }
  return status;
}

static motet_status read_inputs(const mt_json_reader *this, const json_t *array, uint32_t *inputs, int32_t stage) {
  if (!json_is_array(array)) return mt_reader_wrong(this, "must be an array", "stages[%d].inputs", stage);
  for (size_t i = 0; i < json_array_size(array); i++) {
    const char *name = json_string_value(json_array_get(array, i));
    uint32_t bit = 1;
    while (bit <= MOTET_INPUT_LABELS && (name == NULL || strcmp(name, mt_input_name(bit)) != 0)) bit <<= 1;
    if (bit > MOTET_INPUT_LABELS || (*inputs & bit))
      return mt_reader_wrong(this, "must be pixels, tokens or labels, each at most once", "stages[%d].inputs[%zu]",
                             stage, i);
    *inputs |= bit;
  }
  return MOTET_OK;
}

static motet_status read_stage(const mt_json_reader *this, const json_t *entry, int32_t s) {
  static const char *const keys[] = {"region", "slab", "layers", "group", "inputs", "share", NULL};
  motet_program_stage *stage = &this->program->stages[s];
  char where[48];
  snprintf(where, sizeof where, "stages[%d]", s);
  if (!json_is_object(entry)) return mt_reader_wrong(this, "must be an object", "%s", where);
  snprintf(where, sizeof where, "stages[%d].", s);
  motet_status status = mt_reader_check_keys(this, entry, keys, where);
  snprintf(where, sizeof where, "stages[%d].region", s);
  if (status == MOTET_OK) status = mt_reader_int32(this, json_object_get(entry, "region"), &stage->region, where);
  snprintf(where, sizeof where, "stages[%d].slab", s);
  if (status == MOTET_OK) status = mt_reader_int32(this, json_object_get(entry, "slab"), &stage->slab, where);
  snprintf(where, sizeof where, "stages[%d].layers", s);
  if (status == MOTET_OK)
    status = read_pair(this, json_object_get(entry, "layers"), &stage->layer_begin, &stage->layer_end, where);
  snprintf(where, sizeof where, "stages[%d].group", s);
  if (status == MOTET_OK) status = mt_reader_int32(this, json_object_get(entry, "group"), &stage->group, where);
  if (status == MOTET_OK) status = read_inputs(this, json_object_get(entry, "inputs"), &stage->inputs, s);
  const json_t *share = json_object_get(entry, "share");
  if (status == MOTET_OK && !json_is_number(share))
    status = mt_reader_wrong(this, "must be a number", "stages[%d].share", s);
  stage->share = json_number_value(share);
  return status;
}

static motet_status read_stages(const mt_json_reader *this) {
  motet_program *program = this->program;
  const json_t *array;
  motet_status status = root_array(this, "stages", &array, &program->stage_count);
  if (status != MOTET_OK) return status;
  program->stages = MT_ARENA_NEW(program->arena, motet_program_stage, program->stage_count);
  if (program->stages == NULL) return mt_error_memory(this->error, json_array_size(array), "stages");
  for (int32_t s = 0; status == MOTET_OK && s < program->stage_count; s++)
    status = read_stage(this, json_array_get(array, (size_t)s), s);
  return status;
}

static motet_status read_groups(const mt_json_reader *this) {
  motet_program *program = this->program;
  const json_t *array;
  motet_status status = root_array(this, "groups", &array, &program->group_count);
  if (status != MOTET_OK) return status;
  size_t total = 0; /* bounded by the file's size */
  for (int32_t g = 0; g < program->group_count; g++) {
    const json_t *entry = json_array_get(array, (size_t)g);
    if (!json_is_array(entry) || json_array_size(entry) > INT32_MAX)
      return mt_reader_wrong(this, "must be an array of ranks", "groups[%d]", g);
    total += json_array_size(entry);
  }
  program->groups = MT_ARENA_NEW(program->arena, motet_group, program->group_count);
  program->group_ranks = MT_ARENA_NEW(program->arena, int32_t, total);
  if (program->groups == NULL || program->group_ranks == NULL) return mt_error_memory(this->error, total, "groups");
  program->group_rank_count = (int64_t)total;
  int64_t used = 0;
  for (int32_t g = 0; g < program->group_count; g++) {
    const json_t *entry = json_array_get(array, (size_t)g);
    program->groups[g] = (motet_group){.first = used, .count = (int32_t)json_array_size(entry)};
    for (int32_t i = 0; i < program->groups[g].count; i++) {
      char where[48];
      snprintf(where, sizeof where, "groups[%d][%d]", g, i);
      status = mt_reader_int32(this, json_array_get(entry, (size_t)i), &program->group_ranks[used++], where);
      if (status != MOTET_OK) return status;
    }
  }
  return MOTET_OK;
}

/* One row of the ranges; its shares go behind those that are there. */
static motet_status read_range(const mt_json_reader *this, const json_t *entry, int32_t r) {
  motet_program *program = this->program;
  motet_range *range = &program->ranges[r];
  const json_t *shares = json_array_get(entry, 3);
  char where[48];
  snprintf(where, sizeof where, "ranges[%d]", r);
  if (!json_is_array(entry) || json_array_size(entry) != (r == 0 ? 2 : 4) || (r > 0 && !json_is_array(shares)))
    return mt_reader_wrong(this,
                           r == 0 ? "must be [0, -1], the whole row"
                                  : "must be [begin, end, microbatch, [[tokens, features] of each share]]",
                           "%s", where);
  motet_status status = mt_reader_int32(this, json_array_get(entry, 0), &range->begin, where);
  if (status == MOTET_OK) status = mt_reader_int32(this, json_array_get(entry, 1), &range->end, where);
  if (r == 0 || status != MOTET_OK) return status;
  status = mt_reader_int32(this, json_array_get(entry, 2), &range->microbatch, where);
  range->first_share = program->share_count;
  range->degree = (int32_t)json_array_size(shares);
  for (int32_t i = 0; status == MOTET_OK && i < range->degree; i++) {
    motet_share *share = &program->shares[program->share_count++];
    snprintf(where, sizeof where, "ranges[%d][3][%d]", r, i);
    status = read_pair(this, json_array_get(shares, (size_t)i), &share->tokens, &share->features, where);
  }
  return status;
}

static motet_status read_ranges(const mt_json_reader *this) {
  motet_program *program = this->program;
  const json_t *array;
  motet_status status = root_array(this, "ranges", &array, &program->range_count);
  if (status != MOTET_OK) return status;
  size_t shares = 0;
  for (int32_t r = 1; r < program->range_count; r++)
    shares += json_array_size(json_array_get(json_array_get(array, (size_t)r), 3));
  if (shares > INT32_MAX) return mt_reader_wrong(this, "has too many shares", "ranges");
  program->ranges = MT_ARENA_NEW(program->arena, motet_range, program->range_count);
  program->shares = MT_ARENA_NEW(program->arena, motet_share, shares);
  if (program->ranges == NULL || program->shares == NULL) return mt_error_memory(this->error, shares * 8, "ranges");
  for (int32_t r = 0; status == MOTET_OK && r < program->range_count; r++)
    status = read_range(this, json_array_get(array, (size_t)r), r);
  return status;
}

static motet_status read_ties(const mt_json_reader *this) {
  motet_program *program = this->program;
  const json_t *array;
  motet_status status = root_array(this, "ties", &array, &program->tie_count);
  if (status != MOTET_OK) return status;
  program->ties = MT_ARENA_NEW(program->arena, motet_tie, program->tie_count);
  if (program->ties == NULL) return mt_error_memory(this->error, json_array_size(array), "ties");
  for (int32_t t = 0; status == MOTET_OK && t < program->tie_count; t++) {
    motet_tie *tie = &program->ties[t];
    const json_t *entry = json_array_get(array, (size_t)t);
    char where[32];
    snprintf(where, sizeof where, "ties[%d]", t);
    if (!json_is_array(entry) || json_array_size(entry) != 3)
      return mt_reader_wrong(this, "must be [first stage, second stage, bytes]", "%s", where);
    status = mt_reader_int32(this, json_array_get(entry, 0), &tie->first_stage, where);
    if (status == MOTET_OK) status = mt_reader_int32(this, json_array_get(entry, 1), &tie->second_stage, where);
    if (status == MOTET_OK)
      status = mt_reader_integer(this, json_array_get(entry, 2), 0, MT_PROGRAM_BYTES_MAX, &tie->bytes, where);
  }
  return status;
}

static motet_status read_static_bytes(const mt_json_reader *this) {
  motet_program *program = this->program;
  const json_t *array;
  int32_t count = 0;
  motet_status status = root_array(this, "static_bytes", &array, &count);
  if (status != MOTET_OK) return status;
  if (count != program->stage_count) return mt_reader_wrong(this, "must have one entry a stage", "static_bytes");
  program->static_bytes = MT_ARENA_NEW(program->arena, int64_t, count);
  if (program->static_bytes == NULL) return mt_error_memory(this->error, json_array_size(array), "static sizes");
  for (int32_t s = 0; status == MOTET_OK && s < count; s++) {
    char where[32];
    snprintf(where, sizeof where, "static_bytes[%d]", s);
    status = mt_reader_integer(this, json_array_get(array, (size_t)s), 0, MT_PROGRAM_BYTES_MAX,
                               &program->static_bytes[s], where);
  }
  return status;
}

static motet_status read_size_row(const mt_json_reader *this, const json_t *entry, const motet_size_table *table,
                                  int32_t s, const char *key) {
  int32_t columns = mt_column_count(this->program);
  bool several = json_is_array(entry);
  if (several && json_array_size(entry) != (size_t)columns)
    return mt_reader_wrong(this,
                           this->program->share_count > 0 ? "must be a number or have one entry a share"
                                                          : "must be a number or have one entry a microbatch",
                           "%s[%d]", key, s);
  for (int32_t m = 0; m < (table->microbatch_stride != 0 ? columns : 1); m++) {
    char where[64];
    snprintf(where, sizeof where, several ? "%s[%d][%d]" : "%s[%d]", key, s, m);
    motet_status status =
        mt_reader_integer(this, several ? json_array_get(entry, (size_t)m) : entry, 0, MT_PROGRAM_BYTES_MAX,
                          &table->values[s * table->stage_stride + m], where);
    if (status != MOTET_OK) return status;
  }
  return MOTET_OK;
}

static motet_status read_size_table(const mt_json_reader *this, const char *key, motet_size_table *table) {
  motet_program *program = this->program;
  const json_t *array;
  int32_t count = 0;
  motet_status status = root_array(this, key, &array, &count);
  if (status != MOTET_OK) return status;
  if (count != program->stage_count) return mt_reader_wrong(this, "must have one entry a stage", "%s", key);
  bool alike = true;
  for (int32_t s = 0; s < count; s++) alike = alike && !json_is_array(json_array_get(array, (size_t)s));
  int64_t columns = alike ? 1 : mt_column_count(program);
  if (!mt_reader_table_fits(this, count, columns))
    return mt_reader_wrong(this, "is a larger table than the rest of the file can need", "%s", key);
  *table = (motet_size_table){.values = mt_arena_array(program->arena, (size_t)count, (size_t)columns * 8),
                              .stage_stride = columns,
                              .microbatch_stride = alike ? 0 : 1};
  if (table->values == NULL) return mt_error_memory(this->error, (unsigned long long)columns * 8, key);
  for (int32_t s = 0; status == MOTET_OK && s < count; s++)
    status = read_size_row(this, json_array_get(array, (size_t)s), table, s, key);
  return status;
}

static motet_status read_buffers(const mt_json_reader *this) {
  motet_program *program = this->program;
  const json_t *array;
  int32_t count = 0;
  motet_status status = root_array(this, "buffers", &array, &count);
  if (status != MOTET_OK) return status;
  program->buffer_count = count;
  program->buffers = MT_ARENA_NEW(program->arena, motet_buffer, count);
  if (program->buffers == NULL) return mt_error_memory(this->error, json_array_size(array), "buffers");
  for (int32_t b = 0; status == MOTET_OK && b < count; b++) {
    motet_buffer *buffer = &program->buffers[b];
    const json_t *entry = json_array_get(array, (size_t)b);
    char where[32];
    snprintf(where, sizeof where, "buffers[%d]", b);
    size_t length = json_is_array(entry) ? json_array_size(entry) : 0;
    if (length != 6 && length != 7)
      return mt_reader_wrong(
          this, "must be [kind, stage, edge, microbatch, range, bytes], with a range also its member", "%s", where);
    const char *name = json_string_value(json_array_get(entry, 0));
    while (mt_buffer_kind_name(buffer->kind) != NULL &&
           (name == NULL || strcmp(name, mt_buffer_kind_name(buffer->kind)) != 0))
      buffer->kind++;
    if (mt_buffer_kind_name(buffer->kind) == NULL)
      return mt_reader_wrong(this, "is no kind of buffer", "buffers[%d][0]", b);
    int32_t *fields[] = {&buffer->stage, &buffer->edge, &buffer->microbatch, &buffer->range};
    for (size_t f = 0; status == MOTET_OK && f < 4; f++)
      status = mt_reader_int32(this, json_array_get(entry, f + 1), fields[f], where);
    if (status == MOTET_OK)
      status = mt_reader_integer(this, json_array_get(entry, 5), 0, MT_PROGRAM_BYTES_MAX, &buffer->bytes, where);
    if (status == MOTET_OK && length == 7)
      status = mt_reader_int32(this, json_array_get(entry, 6), &buffer->member, where);
  }
  return status;
}

static motet_status read_lists(const mt_json_reader *this) {
  motet_program *program = this->program;
  const json_t *array;
  int32_t count = 0;
  motet_status status = root_array(this, "lists", &array, &count);
  if (status != MOTET_OK) return status;
  if (count != program->ranks) return mt_reader_wrong(this, "must have one list a rank", "lists");
  size_t total = 0;
  for (int32_t rank = 0; rank < count; rank++) {
    if (!json_is_array(json_array_get(array, (size_t)rank)))
      return mt_reader_wrong(this, "must be an array", "lists[%d]", rank);
    total += json_array_size(json_array_get(array, (size_t)rank));
  }
  program->rank_begin = MT_ARENA_NEW(program->arena, int64_t, (size_t)count + 1);
  program->instructions = MT_ARENA_NEW(program->arena, motet_instruction, total);
  if (program->rank_begin == NULL || program->instructions == NULL)
    return mt_error_memory(this->error, total * sizeof(motet_instruction), "instructions");
  motet_instruction *next = program->instructions;
  for (int32_t rank = 0; rank < count; rank++) {
    const json_t *list = json_array_get(array, (size_t)rank);
    for (size_t i = 0; i < json_array_size(list); i++) {
      const char *text = json_string_value(json_array_get(list, i));
      const char *problem = text == NULL ? "an instruction is a text" : mt_instruction_parse(program, text, next++);
      if (problem == NULL) continue;
      mt_reader_wrong(this, "is not an instruction", "lists[%d][%zu]", rank, i);
      mt_error_context(this->error, MOTET_ERROR_PARSE, "\"%.60s\": %s", text != NULL ? text : "", problem);
      mt_error_rule(this->error, "", rank, (long long)i, -1);
      return MOTET_ERROR_PARSE;
    }
    program->rank_begin[rank + 1] = next - program->instructions;
  }
  return MOTET_OK;
}

static motet_status read_head(const mt_json_reader *this) {
  motet_program *program = this->program;
  const char *format = json_string_value(json_object_get(this->root, "format"));
  if (format == NULL || strcmp(format, MT_PROGRAM_FORMAT) != 0)
    return mt_reader_wrong(this, "must be \"" MT_PROGRAM_FORMAT "\"; this is no program file", "format");
  int64_t version = 0;
  motet_status status =
      mt_reader_integer(this, json_object_get(this->root, "version"), 1, INT32_MAX, &version, "version");
  if (status == MOTET_OK && version != MT_PROGRAM_VERSION)
    return mt_error_set(this->error, MOTET_ERROR_UNSUPPORTED,
                        "the file is of version %d of the program format; this Motet reads version %d",
                        (int)version, MT_PROGRAM_VERSION);
  if (status == MOTET_OK) status = mt_reader_check_keys(this, this->root, root_keys, "");
  if (status == MOTET_OK)
    status = read_text(this, json_object_get(this->root, "schedule"), &program->schedule, "schedule");
  if (status == MOTET_OK)
    status = mt_reader_int32(this, json_object_get(this->root, "ranks"), &program->ranks, "ranks");
  if (status == MOTET_OK)
    status = mt_reader_int32(this, json_object_get(this->root, "replicas"), &program->replicas, "replicas");
  if (status == MOTET_OK)
    status = mt_reader_integer(this, json_object_get(this->root, "memory_cap"), 0, MT_PROGRAM_BYTES_MAX,
                               &program->memory_cap, "memory_cap");
  return status;
}

static motet_status check_digest(const mt_json_reader *this) {
  const json_t *value = json_object_get(this->root, "digest");
  char digest[MT_DIGEST_TEXT_SIZE];
  if (value == NULL) return MOTET_OK;
  if (!json_is_string(value)) return mt_reader_wrong(this, "must be a text", "digest");
  mt_digest_print(motet_program_digest(this->program), digest);
  if (strcmp(digest, json_string_value(value)) == 0) return MOTET_OK;
  mt_error_set(this->error, MOTET_ERROR_PARSE,
               "the file says digest %.20s, but its content has %s: it was changed after it was written; take the "
               "digest key out to read an edited file",
               json_string_value(value), digest);
  mt_error_key(this->error, "digest");
  return MOTET_ERROR_PARSE;
}

static motet_status read_root(const mt_json_reader *this, mt_program_times *times) {
  motet_status status = read_head(this);
  if (status == MOTET_OK) status = read_modules(this);
  if (status == MOTET_OK) status = READ_ROWS(this, "module_edges", 2, module_edge_count, module_edges);
  if (status == MOTET_OK) status = read_trainable(this);
  if (status == MOTET_OK) status = read_microbatches(this);
  if (status == MOTET_OK) status = read_regions(this);
  if (status == MOTET_OK) status = read_stages(this);
  if (status == MOTET_OK) status = READ_ROWS(this, "edges", 2, edge_count, edges);
  if (status == MOTET_OK) status = read_ranges(this);
  if (status == MOTET_OK) status = read_groups(this);
  if (status == MOTET_OK) status = read_ties(this);
  if (status == MOTET_OK) status = READ_ROWS(this, "carried", 3, carried_count, carried);
  if (status == MOTET_OK) status = read_static_bytes(this);
  if (status == MOTET_OK) status = read_size_table(this, "saved_bytes", &this->program->saved_bytes);
  if (status == MOTET_OK) status = read_size_table(this, "output_bytes", &this->program->output_bytes);
  if (status == MOTET_OK) status = read_buffers(this);
  if (status == MOTET_OK) status = read_lists(this);
  if (status == MOTET_OK) status = mt_program_check(this->program, this->error);
  if (status == MOTET_OK) status = check_digest(this);
  if (status == MOTET_OK) status = mt_reader_times(this, times);
  return status;
}

static motet_status parse(const char *data, size_t bytes, motet_error *error, json_t **root) {
  json_error_t problem;
  *root = json_loadb(data, bytes, JSON_REJECT_DUPLICATES, &problem);
  if (json_is_object(*root)) return MOTET_OK;
  if (*root != NULL) {
    mt_error_set(error, MOTET_ERROR_PARSE, "a program file holds one JSON object");
    mt_error_place(error, NULL, 1);
  } else {
    mt_error_set(error, MOTET_ERROR_PARSE, "malformed JSON at line %d, column %d: %s", problem.line, problem.column,
                 problem.text);
    mt_error_place(error, NULL, problem.line);
  }
  json_decref(*root);
  *root = NULL;
  return MOTET_ERROR_PARSE;
}

motet_status mt_program_parse(const char *data, size_t bytes, const char *path, motet_error *error,
                              motet_program **result, mt_program_times *times) {
  mt_program_times unused;
  if (times == NULL) times = &unused;
  *times = (mt_program_times){0};
  *result = NULL;
  json_t *root = NULL;
  motet_status status = parse(data, bytes, error, &root);
  mt_arena *arena = mt_arena_create();
  motet_program *program = arena != NULL ? MT_ARENA_NEW(arena, motet_program, 1) : NULL;
  if (status == MOTET_OK && program == NULL) status = mt_error_memory(error, sizeof *program, "a program");
  if (status == MOTET_OK) {
    mt_json_reader this = {.error = error, .root = root, .program = program, .file_bytes = bytes};
    program->arena = arena;
    status = read_root(&this, times);
  }
  json_decref(root);
  if (status == MOTET_OK) {
    *result = program;
  } else {
    *times = (mt_program_times){0};
    mt_error_place(error, path, 0);
    mt_arena_destroy(arena);
  }
  return status;
}

motet_status motet_program_read(const char *path, motet_error *error, motet_program **program) {
  *program = NULL;
  char *data;
  size_t bytes;
  motet_status status = mt_file_read(path, error, &data, &bytes);
  if (status == MOTET_OK) status = mt_program_parse(data, bytes, path, error, program, NULL);
  free(data);
  return status;
}
