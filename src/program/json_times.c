/* The key `times` of a program file: what the plan was simulated with. */
#include "base/arena.h"
#include "program/columns.h"
#include "program/json.h"
#include "program/json_reader.h"

#include <math.h>

static const char *const kind_names[MT_COST_KINDS] = {"forward",   "backward", "backward_x", "backward_w",
                                                      "recompute", "load",     "offload"};
static const char *const times_keys[] = {"forward", "backward",  "backward_x", "backward_w", "recompute", "load",
                                         "offload", "optimizer", "links",      "bound",      "flops",     NULL};
static const char *const links_keys[] = {"ranks_per_node",
                                         "latency_seconds",
                                         "bytes_per_second",
                                         "remote_latency_seconds",
                                         "remote_bytes_per_second",
                                         "shared_nic",
                                         NULL};

/* ---- out ---- */

/* A stage whose columns are all alike has one number, others have one a column. */
static void append_values(mt_text *text, const motet_program *program, const char *key,
                          const mt_cost_values *values) {
  int32_t columns = values->microbatch_stride != 0 ? mt_column_count(program) : 1;
  mt_text_append(text, "  \"%s\": [", key);
  for (int32_t s = 0; s < program->stage_count; s++) {
    const double *row = &values->values[s * values->stage_stride];
    bool alike = true;
    for (int32_t m = 1; m < columns && alike; m++) alike = row[m * values->microbatch_stride] == row[0];
    mt_text_append(text, s == 0 ? "%s" : ", %s", alike ? "" : "[");
    for (int32_t m = 0; m < (alike ? 1 : columns); m++) {
      if (m > 0) mt_text_append(text, ", ");
      mt_json_number_append(text, row[m * values->microbatch_stride]);
    }
    if (!alike) mt_text_append(text, "]");
  }
  mt_text_append(text, "],\n");
}

static void append_links(mt_text *text, const mt_links *links) {
  const double numbers[] = {links->local.latency_seconds, links->local.bytes_per_second,
                            links->remote.latency_seconds, links->remote.bytes_per_second};
  mt_text_append(text, "  \"links\": {\"%s\": %d", links_keys[0], links->ranks_per_node);
  for (int i = 0; i < 4; i++) {
    mt_text_append(text, ", \"%s\": ", links_keys[i + 1]);
    mt_json_number_append(text, numbers[i]);
  }
  mt_text_append(text, ", \"%s\": %s}", links_keys[5], links->shared_nic ? "true" : "false");
}

void mt_json_times_append(mt_text *text, const motet_program *program, const mt_program_times *times) {
  mt_text_append(text, "\"times\": {\n");
  for (int kind = 0; kind < MT_COST_KINDS; kind++)
    if (times->costs.seconds[kind].values != NULL)
      append_values(text, program, kind_names[kind], &times->costs.seconds[kind]);
  if (times->costs.optimizer_seconds != NULL) {
    mt_cost_values optimizer = {times->costs.optimizer_seconds, 1, 0};
    append_values(text, program, "optimizer", &optimizer);
  }
  append_links(text, &times->costs.links);
  if (!isnan(times->bound)) {
    mt_text_append(text, ",\n  \"bound\": ");
    mt_json_number_append(text, times->bound);
  }
  if (times->flops != NULL) {
    mt_text_append(text, ",\n  \"flops\": {");
    mt_json_flops_append(text, times->flops);
    mt_text_append(text, "}");
  }
  mt_text_append(text, "},\n");
}

/* ---- in ---- */

static motet_status read_row(const mt_json_reader *this, const json_t *entry, const mt_cost_values *values,
                             const char *key, int32_t s) {
  int32_t columns = mt_column_count(this->program);
  char where[64];
  snprintf(where, sizeof where, "times.%s[%d]", key, s);
  bool several = json_is_array(entry);
  if (several && (values->microbatch_stride == 0 || json_array_size(entry) != (size_t)columns))
    return mt_reader_wrong(this, "must be a number or have one entry a microbatch, or a share where they are cut",
                           "%s", where);
  for (int32_t m = 0; m < (values->microbatch_stride != 0 ? columns : 1); m++) {
    motet_status status =
        mt_reader_seconds(this, several ? json_array_get(entry, (size_t)m) : entry,
                          &values->values[s * values->stage_stride + m * values->microbatch_stride], where);
    if (status != MOTET_OK) return status;
  }
  return MOTET_OK;
}

/* @p varies: stages may have a number for each column. Nothing where the key is not there. */
static motet_status read_values(const mt_json_reader *this, const json_t *object, const char *key, bool varies,
                                mt_cost_values *values) {
  const motet_program *program = this->program;
  const json_t *array = json_object_get(object, key);
  int32_t count = program->stage_count;
  if (array == NULL) return MOTET_OK;
  if (!json_is_array(array) || json_array_size(array) != (size_t)count)
    return mt_reader_wrong(this, "must be an array of one entry a stage", "times.%s", key);
  bool alike = true;
  for (int32_t s = 0; s < count; s++) alike = alike && !json_is_array(json_array_get(array, (size_t)s));
  alike = alike || !varies;
  int64_t columns = alike ? 1 : mt_column_count(program);
  if (!mt_reader_table_fits(this, count, columns))
    return mt_reader_wrong(this, "is a larger table than the rest of the file can need", "times.%s", key);
  *values =
      (mt_cost_values){.values = mt_arena_array(program->arena, (size_t)count, (size_t)columns * sizeof(double)),
                       .stage_stride = columns,
                       .microbatch_stride = alike ? 0 : 1};
  if (values->values == NULL) return mt_error_memory(this->error, (unsigned long long)columns * 8, key);
  for (int32_t s = 0; s < count; s++) {
    motet_status status = read_row(this, json_array_get(array, (size_t)s), values, key, s);
    if (status != MOTET_OK) return status;
  }
  return MOTET_OK;
}

static motet_status read_links(const mt_json_reader *this, const json_t *object, mt_links *links) {
  double *numbers[] = {&links->local.latency_seconds, &links->local.bytes_per_second,
                       &links->remote.latency_seconds, &links->remote.bytes_per_second};
  if (object == NULL) return MOTET_OK;
  if (!json_is_object(object)) return mt_reader_wrong(this, "must be an object", "times.links");
  motet_status status = mt_reader_check_keys(this, object, links_keys, "times.links.");
  int64_t ranks = 0;
  const json_t *value = json_object_get(object, links_keys[0]);
  if (status == MOTET_OK && value != NULL)
    status = mt_reader_integer(this, value, 0, INT32_MAX, &ranks, "times.links.ranks_per_node");
  links->ranks_per_node = (int32_t)ranks;
  for (int i = 0; status == MOTET_OK && i < 4; i++) {
    char where[64];
    snprintf(where, sizeof where, "times.links.%s", links_keys[i + 1]);
    value = json_object_get(object, links_keys[i + 1]);
    if (value != NULL) status = mt_reader_seconds(this, value, numbers[i], where);
  }
  value = json_object_get(object, links_keys[5]);
  if (status == MOTET_OK && value != NULL && !json_is_boolean(value))
    return mt_reader_wrong(this, "must be true or false", "times.links.%s", links_keys[5]);
  links->shared_nic = json_is_true(value);
  return status;
}

motet_status mt_reader_times(const mt_json_reader *this, mt_program_times *times) {
  const json_t *object = json_object_get(this->root, "times"), *bound = json_object_get(object, "bound");
  *times = (mt_program_times){.known = object != NULL, .bound = NAN};
  if (object == NULL) return MOTET_OK;
  if (!json_is_object(object)) return mt_reader_wrong(this, "must be an object", "times");
  motet_status status = mt_reader_check_keys(this, object, times_keys, "times.");
  for (int kind = 0; status == MOTET_OK && kind < MT_COST_KINDS; kind++)
    status = read_values(this, object, kind_names[kind], true, &times->costs.seconds[kind]);
  mt_cost_values optimizer = {0};
  if (status == MOTET_OK) status = read_values(this, object, "optimizer", false, &optimizer);
  times->costs.optimizer_seconds = optimizer.values;
  if (status == MOTET_OK) status = read_links(this, json_object_get(object, "links"), &times->costs.links);
  if (status == MOTET_OK && bound != NULL) status = mt_reader_seconds(this, bound, &times->bound, "times.bound");
  const json_t *flops = json_object_get(object, "flops");
  if (status == MOTET_OK && flops != NULL)
    status = mt_reader_flops(this, flops, this->program->arena, this->program, &times->flops);
  return status;
}
