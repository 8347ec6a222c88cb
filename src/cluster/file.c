/* Cluster files: YAML mappings read through tables of keys. */
#include "base/text.h"
#include "base/yaml.h"
#include "cluster/cluster.h"
#include "cluster/quantity.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_SIZE = MOTET_ERROR_KEY_SIZE, DEVICES_MAX = 10000000 };

typedef struct reader {
  const char *file;
  motet_error *error;
  yaml_document_t document;
} reader;

/* A key of a mapping: where its value goes, and what no real one exceeds. */
typedef struct row {
  const char *key;
  mt_quantity kind;
  size_t offset;
  double least, most;
  bool required, whole, text;
} row;

#define AT(type, field) offsetof(type, field)

static const row device_rows[] = {
    {"name", MT_QUANTITY_NUMBER, AT(mt_device, name), 0, 0, true, false, true},
    {"bfloat16", MT_QUANTITY_FLOPS, AT(mt_device, bfloat16_flops), 1e6, 1e18, true, false, false},
    {"float16", MT_QUANTITY_FLOPS, AT(mt_device, float16_flops), 1e6, 1e18, false, false, false},
    {"float32", MT_QUANTITY_FLOPS, AT(mt_device, float32_flops), 1e6, 1e18, false, false, false},
    {"float8", MT_QUANTITY_FLOPS, AT(mt_device, float8_flops), 1e6, 1e18, false, false, false},
    {"memory", MT_QUANTITY_BYTES, AT(mt_device, memory_bytes), 1e6, 1e15, true, false, false},
    {"memory_bandwidth", MT_QUANTITY_BYTES_A_SECOND, AT(mt_device, memory_bytes_per_second), 1e6, 1e15, true, false,
     false},
    {"host_bandwidth", MT_QUANTITY_BYTES_A_SECOND, AT(mt_device, host_bytes_per_second), 1e6, 1e15, false, false,
     false},
    {"host_memory", MT_QUANTITY_BYTES, AT(mt_device, host_memory_bytes), 1e6, 1e15, false, false, false},
    {"matmul_efficiency", MT_QUANTITY_NUMBER, AT(mt_device, matmul_efficiency), 0.001, 1, false, false, false},
    {"matmul_half_width", MT_QUANTITY_NUMBER, AT(mt_device, matmul_half_width), 0, 4096, false, false, false},
    {"compute_units", MT_QUANTITY_NUMBER, AT(mt_device, compute_units), 0, 65536, false, false, false},
    {"collective_units", MT_QUANTITY_NUMBER, AT(mt_device, collective_units), 0, 65536, false, false, false},
    {"matmul_depth", MT_QUANTITY_NUMBER, AT(mt_device, matmul_depth), 0, 65536, false, false, false},
    {"layer_host_time", MT_QUANTITY_SECONDS, AT(mt_device, layer_host_seconds), 0, 10, false, false, false},
    {"attention_efficiency", MT_QUANTITY_NUMBER, AT(mt_device, attention_efficiency), 0.001, 1, false, false,
     false},
    {"memory_efficiency", MT_QUANTITY_NUMBER, AT(mt_device, memory_efficiency), 0.001, 1, false, false, false},
    {"host_efficiency", MT_QUANTITY_NUMBER, AT(mt_device, host_efficiency), 0.001, 1, false, false, false},
    {.key = NULL},
};

typedef struct level_file {
  mt_level level;
  double devices; /* as read */
} level_file;

static const row level_rows[] = {
    {"name", MT_QUANTITY_NUMBER, AT(level_file, level.name), 0, 0, true, false, true},
    {"devices", MT_QUANTITY_NUMBER, AT(level_file, devices), 1, DEVICES_MAX, true, true, false},
    {"bandwidth_per_direction", MT_QUANTITY_BYTES_A_SECOND, AT(level_file, level.link.bytes_per_second), 1e3, 1e14,
     true, false, false},
    {"latency", MT_QUANTITY_SECONDS, AT(level_file, level.link.latency_seconds), 0, 10, true, false, false},
    {"efficiency", MT_QUANTITY_NUMBER, AT(level_file, level.efficiency), 0.001, 1, false, false, false},
    {"peers", MT_QUANTITY_NUMBER, AT(level_file, level.peers), 0, DEVICES_MAX, false, true, false},
    {.key = NULL},
};

static motet_status fail(reader *state, const yaml_node_t *node, const char *key, motet_status status) {
  mt_error_place(state->error, state->file, (int)node->start_mark.line + 1);
  mt_error_key(state->error, key);
  return status;
}

static const char *scalar(const yaml_node_t *node) {
  return node->type == YAML_SCALAR_NODE ? (const char *)node->data.scalar.value : NULL;
}

static const row *find_row(const row *rows, const char *key) {
  for (const row *r = rows; r->key != NULL; r++)
    if (strcmp(r->key, key) == 0) return r;
  return NULL;
}

static motet_status unknown_key(reader *state, const yaml_node_t *node, const row *rows, const char *key,
                                const char *path) {
  mt_text known = {0};
  for (const row *r = rows; r->key != NULL; r++) mt_text_append(&known, "%s%s", r > rows ? ", " : "", r->key);
  const char *hint = strcmp(key, "bandwidth") == 0
                         ? "; data sheets often add both directions up: state bandwidth_per_direction"
                         : "";
  motet_status status = mt_error_set(state->error, MOTET_ERROR_PARSE, "there is no key '%.60s' here; keys are %s%s",
                                     key, known.data != NULL ? known.data : "", hint);
  mt_text_free(&known);
  return fail(state, node, path, status);
}

static motet_status read_value(reader *state, const yaml_node_t *node, const row *r, const char *path,
                               void *target) {
  const char *text = scalar(node);
  char *field = (char *)target + r->offset;
  double value;
  if (text == NULL)
    return fail(
        state, node, path,
        mt_error_set(state->error, MOTET_ERROR_PARSE, "%s must be one value, not a list or mapping", r->key));
  if (r->text) {
    if (text[0] == '\0' || strlen(text) >= MT_CLUSTER_NAME_SIZE)
      return fail(state, node, path,
                  mt_error_set(state->error, MOTET_ERROR_PARSE, "%s must have 1 to %d characters", r->key,
                               MT_CLUSTER_NAME_SIZE - 1));
    memcpy(field, text, strlen(text) + 1);
    return MOTET_OK;
  }
  motet_status status = mt_quantity_parse(text, r->kind, state->error, &value);
  if (status != MOTET_OK) {
    mt_error_context(state->error, status, "%s", r->key);
    return fail(state, node, path, status);
  }
  if (value < r->least || value > r->most || (r->whole && value != (double)(int64_t)value))
    return fail(state, node, path,
                mt_error_set(state->error, MOTET_ERROR_PARSE, "%s: %.60s is not believable; %s%g to %g belong here",
                             r->key, text, r->whole ? "whole numbers from " : "", r->least, r->most));
  memcpy(field, &value, sizeof value);
  return MOTET_OK;
}

static void join(const char *prefix, const char *key, char path[KEY_SIZE]) {
  snprintf(path, KEY_SIZE, "%s%s%.60s", prefix, prefix[0] != '\0' ? "." : "", key);
}

/* @p given: what an earlier preset has already filled is not required. */
static motet_status read_mapping(reader *state, const yaml_node_t *node, const row *rows, const char *prefix,
                                 bool given, void *target) {
  char path[KEY_SIZE];
  uint32_t seen = 0;
  if (node->type != YAML_MAPPING_NODE)
    return fail(state, node, prefix,
                mt_error_set(state->error, MOTET_ERROR_PARSE, "%s must be a mapping of keys to values", prefix));
  for (const yaml_node_pair_t *pair = node->data.mapping.pairs.start; pair < node->data.mapping.pairs.top; pair++) {
    const yaml_node_t *name = yaml_document_get_node(&state->document, pair->key);
    const char *key = scalar(name);
    if (key == NULL)
      return fail(state, name, prefix, mt_error_set(state->error, MOTET_ERROR_PARSE, "a key must be a word"));
    const row *r = find_row(rows, key);
    join(prefix, key, path);
    if (r == NULL) return unknown_key(state, name, rows, key, path);
    if (seen & 1u << (r - rows))
      return fail(state, name, path, mt_error_set(state->error, MOTET_ERROR_PARSE, "%s is given twice", key));
    seen |= 1u << (r - rows);
    motet_status status = read_value(state, yaml_document_get_node(&state->document, pair->value), r, path, target);
    if (status != MOTET_OK) return status;
  }
  for (const row *r = rows; r->key != NULL && !given; r++) {
    if (!r->required || seen & 1u << (r - rows)) continue;
    join(prefix, r->key, path);
    return fail(state, node, path, mt_error_set(state->error, MOTET_ERROR_PARSE, "the key %s is missing", r->key));
  }
  return MOTET_OK;
}

static motet_status read_levels(reader *state, const yaml_node_t *node, mt_cluster *cluster) {
  if (node->type != YAML_SEQUENCE_NODE)
    return fail(state, node, "levels",
                mt_error_set(state->error, MOTET_ERROR_PARSE, "levels must be a list, from the innermost out"));
  cluster->level_count = 0;
  cluster->fast_level = 0;
  for (const yaml_node_item_t *item = node->data.sequence.items.start; item < node->data.sequence.items.top;
       item++) {
    const yaml_node_t *entry = yaml_document_get_node(&state->document, *item);
    char prefix[32];
    level_file read = {0};
    if (cluster->level_count == MT_CLUSTER_LEVELS)
      return fail(state, entry, "levels",
                  mt_error_set(state->error, MOTET_ERROR_LIMIT, "more than %d levels", MT_CLUSTER_LEVELS));
    snprintf(prefix, sizeof prefix, "levels.%d", cluster->level_count);
    motet_status status = read_mapping(state, entry, level_rows, prefix, false, &read);
    if (status != MOTET_OK) return status;
    read.level.devices = (int32_t)read.devices;
    cluster->levels[cluster->level_count++] = read.level;
  }
  /* The fast domain is all but the outermost, unless the file names another. */
  if (cluster->level_count > 1) cluster->fast_level = cluster->level_count - 2;
  if (cluster->level_count > 0) cluster->devices = cluster->levels[cluster->level_count - 1].devices;
  return MOTET_OK;
}

static const yaml_node_t *value_of(reader *state, const yaml_node_t *root, const char *key) {
  for (const yaml_node_pair_t *pair = root->data.mapping.pairs.start; pair < root->data.mapping.pairs.top; pair++) {
    const char *name = scalar(yaml_document_get_node(&state->document, pair->key));
    if (name != NULL && strcmp(name, key) == 0) return yaml_document_get_node(&state->document, pair->value);
  }
  return NULL;
}

static motet_status check_top(reader *state, const yaml_node_t *root) {
  static const row top[] = {{.key = "preset"}, {.key = "name"},       {.key = "devices"}, {.key = "device"},
                            {.key = "levels"}, {.key = "fast_level"}, {.key = NULL}};
  for (const yaml_node_pair_t *pair = root->data.mapping.pairs.start; pair < root->data.mapping.pairs.top; pair++) {
    const yaml_node_t *name = yaml_document_get_node(&state->document, pair->key);
    const char *key = scalar(name);
    if (key == NULL || find_row(top, key) == NULL)
      return unknown_key(state, name, top, key != NULL ? key : "?", key != NULL ? key : "");
    for (const yaml_node_pair_t *other = root->data.mapping.pairs.start; other < pair; other++) {
      const char *earlier = scalar(yaml_document_get_node(&state->document, other->key));
      if (earlier != NULL && strcmp(earlier, key) == 0)
        return fail(state, name, key, mt_error_set(state->error, MOTET_ERROR_PARSE, "%s is given twice", key));
    }
  }
  return MOTET_OK;
}

static motet_status read_number(reader *state, const yaml_node_t *root, const char *key, double most,
                                double *value) {
  const row one = {key, MT_QUANTITY_NUMBER, 0, 1, most, false, true, false};
  const yaml_node_t *node = value_of(state, root, key);
  return node != NULL ? read_value(state, node, &one, key, value) : MOTET_OK;
}

static motet_status read_preset(reader *state, const yaml_node_t *root, double devices, mt_cluster *cluster) {
  const yaml_node_t *node = value_of(state, root, "preset");
  const char *name = node != NULL ? scalar(node) : NULL;
  if (node == NULL) return MOTET_OK;
  if (devices == 0)
    return fail(state, node, "devices",
                mt_error_set(state->error, MOTET_ERROR_PARSE, "a preset needs 'devices', how many there are"));
  motet_status status = mt_cluster_preset(name != NULL ? name : "", (int32_t)devices, state->error, cluster);
  if (status != MOTET_OK) return fail(state, node, "preset", status);
  return MOTET_OK;
}

static motet_status read_fast_level(reader *state, const yaml_node_t *root, mt_cluster *cluster) {
  const yaml_node_t *node = value_of(state, root, "fast_level");
  const char *name = node != NULL ? scalar(node) : NULL;
  if (node == NULL) return MOTET_OK;
  for (int32_t l = 0; l < cluster->level_count; l++)
    if (name != NULL && strcmp(name, cluster->levels[l].name) == 0) {
      cluster->fast_level = l;
      return MOTET_OK;
    }
  return fail(
      state, node, "fast_level",
      mt_error_set(state->error, MOTET_ERROR_PARSE, "no level has the name '%.60s'", name != NULL ? name : ""));
}

static motet_status read_root(reader *state, const yaml_node_t *root, mt_cluster *cluster) {
  static const row name_row = {"name", MT_QUANTITY_NUMBER, AT(mt_cluster, name), 0, 0, false, false, true};
  double devices = 0;
  motet_status status = check_top(state, root);
  if (status == MOTET_OK) status = read_number(state, root, "devices", DEVICES_MAX, &devices);
  if (status == MOTET_OK) status = read_preset(state, root, devices, cluster);
  if (status != MOTET_OK) return status;
  bool preset = cluster->level_count > 0;
  const yaml_node_t *name = value_of(state, root, "name"), *device = value_of(state, root, "device");
  const yaml_node_t *levels = value_of(state, root, "levels");
  if (!preset && (device == NULL || levels == NULL))
    return fail(state, root, device == NULL ? "device" : "levels",
                mt_error_set(state->error, MOTET_ERROR_PARSE,
                             "a cluster needs 'device' and 'levels', or 'preset' and 'devices'; presets are %s",
                             mt_cluster_presets()));
  if (name != NULL) status = read_value(state, name, &name_row, "name", cluster);
  if (status == MOTET_OK && device != NULL)
    status = read_mapping(state, device, device_rows, "device", preset, &cluster->device);
  const mt_device *read = &cluster->device;
  if (status == MOTET_OK && read->compute_units > 0 && read->collective_units >= read->compute_units)
    return fail(state, device, "device.collective_units",
                mt_error_set(state->error, MOTET_ERROR_PARSE,
                             "collectives take %g compute units of a device that has %g; some must be left",
                             read->collective_units, read->compute_units));
  if (status == MOTET_OK && levels != NULL) status = read_levels(state, levels, cluster);
  if (status == MOTET_OK) status = read_fast_level(state, root, cluster);
  if (status == MOTET_OK && levels != NULL && devices > 0) cluster->devices = (int32_t)devices;
  if (status == MOTET_OK) {
    status = mt_cluster_check(cluster, state->error);
    if (status != MOTET_OK) return fail(state, levels != NULL ? levels : root, "levels", status);
  }
  return status;
}

motet_status mt_cluster_parse(const char *yaml, size_t bytes, const char *name, motet_error *error,
                              mt_cluster *cluster) {
  reader state = {.file = name, .error = error};
  *cluster = (mt_cluster){.name = "cluster",
                          .device = {.matmul_efficiency = 0.8,
                                     .attention_efficiency = 0.6,
                                     .memory_efficiency = 0.8,
                                     .host_efficiency = 0.78,
                                     .matmul_half_width = 64}};
  motet_status status = mt_yaml_load(yaml, bytes, name, error, &state.document);
  if (status != MOTET_OK) return status;
  const yaml_node_t *root = yaml_document_get_root_node(&state.document);
  if (root == NULL || root->type != YAML_MAPPING_NODE) {
    status =
        mt_error_set(error, MOTET_ERROR_PARSE, "a cluster is a mapping of keys to values, as in 'preset: h100'");
    mt_error_place(error, name, 1);
  } else {
    status = read_root(&state, root, cluster);
  }
  yaml_document_delete(&state.document);
  return status;
}

motet_status mt_cluster_read(const char *path, motet_error *error, mt_cluster *cluster) {
  char *yaml;
  size_t bytes;
  motet_status status = mt_file_read(path, error, &yaml, &bytes);
  if (status != MOTET_OK) return status;
  status = mt_cluster_parse(yaml, bytes, path, error, cluster);
  free(yaml);
  return status;
}
