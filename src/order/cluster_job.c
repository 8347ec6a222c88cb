#include "order/cluster_job.h"

#include "base/foreign_key.h"
#include "base/text.h"
#include "base/yaml.h"
#include "cluster/quantity.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

typedef enum key_kind { KEY_TEXT, KEY_NUMBER, KEY_REAL, KEY_BYTES, KEY_CHOICE, KEY_LIST, KEY_PASSED } key_kind;

/* A key, dotted where it lies in a mapping. KEY_PASSED: training's or searching's alone; with its whole mapping
 * where it ends with a dot. */
typedef struct key_row {
  const char *name;
  key_kind kind;
  size_t offset;
  double least, most;
  const char *choices; /* separated by '|' */
} key_row;

#define AT(field) offsetof(mt_cluster_job, field)
#define DEGREE(name, field)                                                                                        \
  { name, KEY_NUMBER, AT(field), 1, 1e6, NULL }

static const key_row keys[] = {
    {"model", KEY_TEXT, AT(model), 0, 0, NULL},
    {"config", KEY_TEXT, AT(config), 0, 0, NULL},
    {"cluster", KEY_TEXT, AT(cluster), 0, 0, NULL},
    {"cluster.preset", KEY_TEXT, AT(cluster), 0, 0, NULL},
    {"cluster.devices", KEY_NUMBER, AT(devices), 1, 1e7, NULL},
    {"devices", KEY_NUMBER, AT(devices), 1, 1e7, NULL},
    {"cluster.file", KEY_TEXT, AT(cluster_file), 0, 0, NULL},
    {"cluster.memory", KEY_BYTES, AT(memory), 1e6, 1e15, NULL},
    {"schedule", KEY_TEXT, AT(schedule), 0, 0, NULL},
    {"trainable", KEY_LIST, AT(trainable), 0, 0, NULL},
    DEGREE("parallel.tensor", tensor),
    DEGREE("parallel.encoder_tensor", encoder_tensor),
    DEGREE("parallel.context", context),
    DEGREE("parallel.ulysses", ulysses),
    DEGREE("parallel.ring", ring),
    DEGREE("parallel.data", data),
    DEGREE("parallel.pipeline", pipeline),
    DEGREE("parallel.expert", expert),
    {"parallel.zero", KEY_NUMBER, AT(zero), 0, 3, NULL},
    DEGREE("parallel.shard_group", shard_group),
    {"parallel.optimizer", KEY_CHOICE, AT(optimizer), 0, 0, "device|host"},
    {"parallel.layered", KEY_CHOICE, AT(layered), 0, 0, "false|true"},
    {"parallel.sequence", KEY_CHOICE, AT(sequence), 0, 0, "false|true"},
    {"parallel.tensor_overlap", KEY_CHOICE, AT(tensor_overlap), 0, 0, "false|true"},
    {"parallel.overlap", KEY_CHOICE, AT(overlap), 0, 0, "false|true"},
    {"parallel.recompute", KEY_CHOICE, AT(recompute), 0, 0, "none|selective|full|offload"},
    {"parallel.recompute_layers", KEY_LIST, AT(recompute_layers), 0, 0, NULL},
    {"parallel.offload_layers", KEY_LIST, AT(offload_layers), 0, 0, NULL},
    {"parallel.attention", KEY_CHOICE, AT(attention), 0, 0, "fused|stored"},
    {"parallel.gradients", KEY_CHOICE, AT(gradients), 0, 0, "bfloat16|float32"},
    {"parallel.precision", KEY_CHOICE, AT(precision), 0, 0, "bfloat16|float8"},
    {"parallel.dispatch", KEY_CHOICE, AT(dispatch), 0, 0, "once|copies"},
    {"parallel.routed_devices", KEY_REAL, AT(routed_devices), 1, 4096, NULL},
    {"parallel.routed_nodes", KEY_REAL, AT(routed_nodes), 1, 4096, NULL},
    {"parallel.element_wise", KEY_CHOICE, AT(element_wise), 0, 0, "fused|eager"},
    {"parallel.split", KEY_LIST, AT(split), 0, 0, NULL},
    {"workload.tokens", KEY_NUMBER, AT(tokens), 0, 1e9, NULL},
    {"workload.samples", KEY_NUMBER, AT(samples), 1, 4096, NULL},
    {"workload.images", KEY_TEXT, AT(images), 0, 0, NULL},
    {"workload.video", KEY_TEXT, AT(video), 0, 0, NULL},
    {"workload.trace", KEY_TEXT, AT(trace), 0, 0, NULL},
    {"train.microbatches", KEY_NUMBER, AT(microbatches), 1, 100000, NULL},
    {"train.global_batch", KEY_NUMBER, AT(global_batch), 1, 1e9, NULL},
    {"train.", KEY_PASSED, 0, 0, 0, NULL},
    {"data.", KEY_PASSED, 0, 0, 0, NULL},
    {"memory.", KEY_PASSED, 0, 0, 0, NULL},
    {"optimizer.", KEY_PASSED, 0, 0, 0, NULL},
    {"search.", KEY_PASSED, 0, 0, 0, NULL},
    {"init", KEY_PASSED, 0, 0, 0, NULL},
    {"profile", KEY_PASSED, 0, 0, 0, NULL},
    {"deterministic", KEY_PASSED, 0, 0, 0, NULL},
    {"output_dir", KEY_PASSED, 0, 0, 0, NULL},
};
enum { KEYS = sizeof keys / sizeof *keys, LIST_MAX = 4096, BY_WORD = -1 };
static const char command_line[] = "command line";

typedef struct reader {
  mt_arena *arena;
  const char *name;
  motet_error *error;
  mt_cluster_job *job;
  yaml_document_t *document;
  int *lines; /* [KEYS] 0: not given; BY_WORD: on the command line */
} reader;

static motet_status refuse(const reader *state, int line, const char *key, motet_status status) {
  mt_error_place(state->error, state->name, state->name == command_line ? 0 : line);
  mt_error_key(state->error, key);
  return status;
}

/* The row of a key, or the passed-over mapping that it lies in. */
static int find_key(const char *name) {
  for (int k = 0; k < KEYS; k++)
    if (strcmp(keys[k].name, name) == 0) return k;
  for (int k = 0; k < KEYS; k++) {
    size_t length = strlen(keys[k].name);
    if (keys[k].kind == KEY_PASSED && keys[k].name[length - 1] == '.' && strncmp(keys[k].name, name, length) == 0)
      return k;
  }
  return -1;
}

static bool key_exists(const char *name) {
  int found = find_key(name);
  return found >= 0 && keys[found].kind != KEY_PASSED;
}

/* Training's keys are passed over unread; what no key of its is called, but ours elsewhere, is not. */
static bool is_mistaken(const char *key) {
  return strncmp(key, "train.", 6) == 0 && mt_foreign_key(key, key_exists) != NULL;
}

static motet_status unknown(const reader *state, int line, const char *key) {
  const char *foreign = mt_foreign_key(key, key_exists);
  if (foreign != NULL)
    return refuse(state, line, key,
                  mt_error_set(state->error, MOTET_ERROR_PARSE,
                               "there is no key '%.60s'; in a job for a cluster '%s' is for that", key, foreign));
  mt_text known = {0};
  for (int k = 0; k < KEYS; k++)
    if (keys[k].kind != KEY_PASSED) mt_text_append(&known, "%s%s", k > 0 ? ", " : "", keys[k].name);
  motet_status status =
      mt_error_set(state->error, MOTET_ERROR_PARSE, "there is no key '%.60s' in a job for a cluster; keys are %s",
                   key, known.data != NULL ? known.data : "");
  mt_text_free(&known);
  return refuse(state, line, key, status);
}

static bool is_choice(const char *choices, const char *text) {
  size_t length = strlen(text);
  for (const char *at = choices; at != NULL; at = strchr(at, '|') != NULL ? strchr(at, '|') + 1 : NULL)
    if (length > 0 && strcspn(at, "|") == length && strncmp(at, text, length) == 0) return true;
  return false;
}

static motet_status read_text(reader *state, int k, int line, const char *text) {
  const key_row *key = &keys[k];
  void *field = (char *)state->job + key->offset;
  double value = 0;
  motet_status status = MOTET_OK;
  if (key->kind == KEY_PASSED) return MOTET_OK;
  if (key->kind == KEY_LIST)
    return refuse(state, line, key->name,
                  mt_error_set(state->error, MOTET_ERROR_PARSE, "%s must be a list", key->name));
  if (key->kind == KEY_TEXT || key->kind == KEY_CHOICE) {
    if (key->kind == KEY_CHOICE && !is_choice(key->choices, text))
      return refuse(state, line, key->name,
                    mt_error_set(state->error, MOTET_ERROR_PARSE, "%s is '%.60s', and must be one of %s", key->name,
                                 text, key->choices));
    const char *copy = mt_arena_text(state->arena, text);
    if (copy == NULL) return mt_error_memory(state->error, strlen(text), "a job");
    if (*copy == '\0')
      return refuse(state, line, key->name,
                    mt_error_set(state->error, MOTET_ERROR_PARSE, "%s has no value", key->name));
    memcpy(field, &copy, sizeof copy);
    return MOTET_OK;
  }
  status = mt_quantity_parse(text, key->kind == KEY_BYTES ? MT_QUANTITY_BYTES : MT_QUANTITY_NUMBER, state->error,
                             &value);
  if (status == MOTET_OK &&
      (value < key->least || value > key->most || (key->kind == KEY_NUMBER && value != (double)(int64_t)value)))
    status =
        mt_error_set(state->error, MOTET_ERROR_PARSE, "%s is %.60s, and must be %s from %g to %g", key->name, text,
                     key->kind == KEY_NUMBER ? "a whole number"
                     : key->kind == KEY_REAL ? "a number"
                                             : "bytes",
                     key->least, key->most);
  if (status != MOTET_OK) return refuse(state, line, key->name, status);
  memcpy(field, &value, sizeof value);
  return MOTET_OK;
}

static motet_status read_list(reader *state, int k, const yaml_node_t *node) {
  const key_row *key = &keys[k];
  int line = (int)node->start_mark.line + 1;
  if (key->kind == KEY_PASSED) return MOTET_OK;
  if (key->kind != KEY_LIST)
    return refuse(state, line, key->name,
                  mt_error_set(state->error, MOTET_ERROR_PARSE, "%s must be one value, not a list", key->name));
  const yaml_node_item_t *items = node->data.sequence.items.start;
  int64_t count = node->data.sequence.items.top - items;
  const char **values = count <= LIST_MAX ? MT_ARENA_NEW(state->arena, const char *, count + 1) : NULL;
  if (count > LIST_MAX)
    return refuse(
        state, line, key->name,
        mt_error_set(state->error, MOTET_ERROR_LIMIT, "%s has more than %d entries", key->name, LIST_MAX));
  if (values == NULL) return mt_error_memory(state->error, (unsigned long long)count * sizeof *values, "a job");
  for (int64_t i = 0; i < count; i++) {
    const yaml_node_t *item = yaml_document_get_node(state->document, items[i]);
    if (item == NULL || item->type != YAML_SCALAR_NODE)
      return refuse(state, line, key->name,
                    mt_error_set(state->error, MOTET_ERROR_PARSE, "%s: entry %lld must be one value", key->name,
                                 (long long)i + 1));
    values[i] = mt_arena_text(state->arena, (const char *)item->data.scalar.value);
    if (values[i] == NULL) return mt_error_memory(state->error, sizeof *values, "a job");
  }
  *(mt_cluster_job_list *)(void *)((char *)state->job + key->offset) =
      (mt_cluster_job_list){(int32_t)count, values};
  return MOTET_OK;
}

static motet_status read_node(reader *state, const char *key, const yaml_node_t *name, const yaml_node_t *node) {
  int k = find_key(key), line = (int)name->start_mark.line + 1;
  if (k < 0 || is_mistaken(key)) return unknown(state, line, key);
  if (state->lines[k] != 0 && keys[k].kind != KEY_PASSED)
    return refuse(state, line, key, mt_error_set(state->error, MOTET_ERROR_PARSE, "%s is given twice", key));
  bool plain = node->type == YAML_SCALAR_NODE && node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
  if (plain && mt_yaml_is_null((const char *)node->data.scalar.value))
    return MOTET_OK; /* as if the key were not there */
  state->lines[k] = line;
  if (node->type == YAML_SEQUENCE_NODE) return read_list(state, k, node);
  if (node->type == YAML_SCALAR_NODE) return read_text(state, k, line, (const char *)node->data.scalar.value);
  if (keys[k].kind == KEY_PASSED) return MOTET_OK;
  return refuse(state, line, key,
                mt_error_set(state->error, MOTET_ERROR_PARSE, "%s must be one value, not a mapping", key));
}

static const char *word(const yaml_node_t *node) {
  return node != NULL && node->type == YAML_SCALAR_NODE ? (const char *)node->data.scalar.value : NULL;
}

/* Mappings one level deep, as job files have them. */
static motet_status read_mapping(reader *state, const yaml_node_t *root) {
  motet_status status = MOTET_OK;
  for (const yaml_node_pair_t *pair = root->data.mapping.pairs.start;
       pair < root->data.mapping.pairs.top && status == MOTET_OK; pair++) {
    const yaml_node_t *name = yaml_document_get_node(state->document, pair->key);
    const yaml_node_t *value = yaml_document_get_node(state->document, pair->value);
    const char *key = word(name);
    if (key == NULL || value == NULL)
      return refuse(state, (int)root->start_mark.line + 1, "",
                    mt_error_set(state->error, MOTET_ERROR_PARSE, "a key must be a word"));
    int known = find_key(key);
    if (value->type != YAML_MAPPING_NODE || (known >= 0 && keys[known].kind == KEY_PASSED)) {
      status = read_node(state, key, name, value);
      continue;
    }
    for (const yaml_node_pair_t *inner = value->data.mapping.pairs.start;
         inner < value->data.mapping.pairs.top && status == MOTET_OK; inner++) {
      char path[MOTET_ERROR_KEY_SIZE];
      const yaml_node_t *inner_name = yaml_document_get_node(state->document, inner->key);
      const yaml_node_t *inner_value = yaml_document_get_node(state->document, inner->value);
      const char *inner_key = word(inner_name);
      snprintf(path, sizeof path, "%.60s.%.60s", key, inner_key != NULL ? inner_key : "?");
      status = inner_key != NULL && inner_value != NULL
                   ? read_node(state, path, inner_name, inner_value)
                   : refuse(state, (int)value->start_mark.line + 1, key,
                            mt_error_set(state->error, MOTET_ERROR_PARSE, "a key must be a word"));
    }
  }
  return status;
}

static motet_status read_document(reader *state, const char *yaml, size_t bytes, bool value_alone, int k) {
  yaml_document_t document;
  motet_status status = mt_yaml_load(yaml, bytes, state->name, state->error, &document);
  if (status != MOTET_OK) return status;
  const yaml_node_t *root = yaml_document_get_root_node(&document);
  state->document = &document;
  if (value_alone && root != NULL && root->type == YAML_SEQUENCE_NODE)
    status = read_list(state, k, root);
  else if (value_alone || root == NULL || root->type != YAML_MAPPING_NODE)
    status = refuse(state, 1, value_alone ? keys[k].name : "",
                    mt_error_set(state->error, MOTET_ERROR_PARSE, "a %s belongs here",
                                 value_alone ? "list" : "mapping of keys to values"));
  else
    status = read_mapping(state, root);
  yaml_document_delete(&document);
  return status;
}

/* What keys that are not given stand at. */
static mt_cluster_job standard_job(const char *path) {
  return (mt_cluster_job){.path = path,
                          .trainable = {.count = -1},
                          .tensor = 1,
                          .context = 1,
                          .data = 1,
                          .pipeline = 1,
                          .expert = 1,
                          .tokens = -1,
                          .samples = 1};
}

/* `key=value` words; a list is written as in the file, and null gives up what the file says. */
static motet_status read_override(reader *state, const char *words) {
  const char *equals = strchr(words, '=');
  char key[MOTET_ERROR_KEY_SIZE];
  if (equals == NULL || equals == words || (size_t)(equals - words) >= sizeof key)
    return mt_error_set(state->error, MOTET_ERROR_ARGUMENT, "'%.80s': key=value belongs here", words);
  snprintf(key, sizeof key, "%.*s", (int)(equals - words), words);
  int k = find_key(key);
  state->name = command_line;
  if (k < 0 || is_mistaken(key)) return unknown(state, 0, key);
  state->lines[k] = BY_WORD;
  if (mt_yaml_is_null(equals + 1)) {
    const mt_cluster_job standard = standard_job(state->job->path);
    size_t size = keys[k].kind == KEY_PASSED                                ? 0
                  : keys[k].kind == KEY_LIST                                ? sizeof(mt_cluster_job_list)
                  : keys[k].kind == KEY_NUMBER || keys[k].kind == KEY_BYTES ? sizeof(double)
                                                                            : sizeof(const char *);
    memcpy((char *)state->job + keys[k].offset, (const char *)&standard + keys[k].offset, size);
    return MOTET_OK;
  }
  if (keys[k].kind == KEY_LIST) return read_document(state, equals + 1, strlen(equals + 1), true, k);
  return read_text(state, k, 0, equals + 1);
}

motet_status mt_cluster_job_parse(mt_arena *arena, const char *yaml, size_t bytes, const char *name,
                                  int override_count, char *const *overrides, motet_error *error,
                                  mt_cluster_job *job) {
  reader state = {
      .arena = arena, .name = name, .error = error, .job = job, .lines = MT_ARENA_NEW(arena, int, KEYS)};
  if (state.lines == NULL) return mt_error_memory(error, KEYS * sizeof(int), "a job");
  *job = standard_job(name);
  job->lines = state.lines;
  motet_status status = read_document(&state, yaml, bytes, false, 0);
  for (int i = 0; i < override_count && status == MOTET_OK; i++) status = read_override(&state, overrides[i]);
  if (status != MOTET_OK) return status;
  if (job->cluster == NULL) job->cluster = job->cluster_file;
  if (job->cluster == NULL || (job->model == NULL && job->config == NULL)) {
    const char *missing = job->cluster == NULL ? "cluster" : "model";
    status = mt_error_set(error, MOTET_ERROR_PARSE, "the key %s is missing", missing);
    state.name = name;
    return refuse(&state, 0, missing, status);
  }
  return MOTET_OK;
}

void mt_cluster_job_place(const mt_cluster_job *job, const char *key, motet_error *error) {
  if (error == NULL || error->file[0] != '\0') return;
  int k = find_key(key), line = k >= 0 ? job->lines[k] : 0;
  mt_error_place(error, line == BY_WORD ? command_line : job->path, line > 0 ? line : 0);
}

motet_status mt_cluster_job_read(mt_arena *arena, const char *path, int override_count, char *const *overrides,
                                 motet_error *error, mt_cluster_job *job) {
  char *text;
  size_t bytes;
  motet_status status = mt_file_read(path, error, &text, &bytes);
  if (status != MOTET_OK) return status;
  status = mt_cluster_job_parse(arena, text, bytes, path, override_count, overrides, error, job);
  free(text);
  return status;
}

bool mt_cluster_job_is(const char *path, int override_count, char *const *overrides) {
  char *text;
  size_t bytes;
  for (int i = 0; i < override_count; i++)
    if (strncmp(overrides[i], "cluster=", 8) == 0) return true;
  if (mt_file_read(path, NULL, &text, &bytes) != MOTET_OK) return false;
  yaml_document_t document;
  bool found = false;
  if (mt_yaml_load(text, bytes, path, NULL, &document) == MOTET_OK) {
    const yaml_node_t *root = yaml_document_get_root_node(&document);
    if (root != NULL && root->type == YAML_MAPPING_NODE)
      for (const yaml_node_pair_t *pair = root->data.mapping.pairs.start; pair < root->data.mapping.pairs.top;
           pair++) {
        const char *key = word(yaml_document_get_node(&document, pair->key));
        found = found || (key != NULL && strcmp(key, "cluster") == 0);
      }
    yaml_document_delete(&document);
  }
  free(text);
  return found;
}
