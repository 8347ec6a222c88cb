/* Jobs of a search: YAML, one mapping with sections. Keys of a training job that mean nothing here are passed over,
 * so that one file can serve both. */
#include "search/problem.h"

#include "algebra/skeleton.h"
#include "base/foreign_key.h"
#include "base/text.h"
#include "base/yaml.h"
#include "cluster/quantity.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const mt_search_manner_names[MT_MANNERS] = {
    [MT_MANNER_CHAIN] = "chain",
    [MT_MANNER_INLINE] = "inline",
    [MT_MANNER_TRANSPOSE] = "transpose",
    [MT_MANNER_DEDICATE] = "dedicate",
};
/* Skeletons that a trunk may have. */
static const mt_skeleton_kind trunk_kinds[] = {MT_SKELETON_1F1B, MT_SKELETON_ZB1P,     MT_SKELETON_ZB2P,
                                               MT_SKELETON_FOLD, MT_SKELETON_ZBV,      MT_SKELETON_VHALF,
                                               MT_SKELETON_VMIN, MT_SKELETON_DUALPIPEV};
enum { TRUNKS = sizeof trunk_kinds / sizeof *trunk_kinds };
static const char *const saving_names[MT_SEARCH_SAVINGS] = {"recompute", "offload", "optimizer"};

typedef enum key_kind {
  KEY_TEXT,
  KEY_WHOLE,
  KEY_RANGE,
  KEY_NAMES,
  KEY_QUANTITY,
  KEY_SECONDS,
  KEY_PICTURES
} key_kind;

/* What a job says before it is looked up: texts, as they stand. */
typedef struct values {
  const char *model, *config, *preset, *trace, *distribution, *memory;
  int64_t devices, tokens, seed, global_batch;
  int64_t pictures[3];
  double time_limit;
  int32_t trainable_count, placement_count, trunk_count, saving_count;
  const char *trainable[MT_SEARCH_CHOICES], *placements[MT_SEARCH_CHOICES], *trunks[MT_SEARCH_CHOICES],
      *savings[MT_SEARCH_CHOICES];
  mt_search_range tensor, context, pipeline, expert, microbatch, encoder_batch, zero, shard_devices, chunks;
} values;

typedef struct key {
  const char *name;
  key_kind kind;
  size_t offset, count; /* count: of names */
  int64_t least, most;
} key;

#define AT(field) offsetof(values, field)
static const key keys[] = {
    {"model", KEY_TEXT, AT(model), 0, 0, 0},
    {"config", KEY_TEXT, AT(config), 0, 0, 0},
    {"trainable", KEY_NAMES, AT(trainable), AT(trainable_count), 0, 0},
    {"cluster", KEY_TEXT, AT(preset), 0, 0, 0},
    {"cluster.preset", KEY_TEXT, AT(preset), 0, 0, 0},
    {"cluster.devices", KEY_WHOLE, AT(devices), 0, 1, 1 << 20},
    {"devices", KEY_WHOLE, AT(devices), 0, 1, 1 << 20},
    {"memory", KEY_QUANTITY, AT(memory), 0, 0, 0},
    {"workload.trace", KEY_TEXT, AT(trace), 0, 0, 0},
    {"workload.distribution", KEY_TEXT, AT(distribution), 0, 0, 0},
    {"workload.tokens", KEY_WHOLE, AT(tokens), 0, 1, 1 << 26},
    {"workload.images", KEY_PICTURES, AT(pictures), 0, 0, 0},
    {"workload.seed", KEY_WHOLE, AT(seed), 0, 0, INT64_MAX / 2},
    {"train.global_batch", KEY_WHOLE, AT(global_batch), 0, 1, 1 << 20},
    {"search.tensor", KEY_RANGE, AT(tensor), 0, 1, 1024},
    {"search.context", KEY_RANGE, AT(context), 0, 1, 1024},
    {"search.pipeline", KEY_RANGE, AT(pipeline), 0, 1, 1024},
    {"search.expert", KEY_RANGE, AT(expert), 0, 1, 1024},
    {"search.microbatch", KEY_RANGE, AT(microbatch), 0, 1, 65536},
    {"search.zero", KEY_RANGE, AT(zero), 0, 0, 3},
    {"search.encoder_batch", KEY_RANGE, AT(encoder_batch), 0, 1, MT_SEARCH_ENCODER_BATCH},
    {"search.shard_devices", KEY_RANGE, AT(shard_devices), 0, 0, 1 << 20},
    {"search.virtual", KEY_RANGE, AT(chunks), 0, 1, 64},
    {"search.placement", KEY_NAMES, AT(placements), AT(placement_count), 0, 0},
    {"search.trunk", KEY_NAMES, AT(trunks), AT(trunk_count), 0, 0},
    {"search.saving", KEY_NAMES, AT(savings), AT(saving_count), 0, 0},
    {"search.time_limit", KEY_SECONDS, AT(time_limit), 0, 0, 0},
};
enum { KEYS = sizeof keys / sizeof *keys };

/* Sections and keys of training jobs. */
static const char *const passed_over[] = {"data.",      "train.", "parallel.", "memory.",       "workload.samples",
                                          "output_dir", "init",   "schedule",  "deterministic", "profile",
                                          "optimizer."};

static const char command_line[] = "command line";

typedef struct reader {
  const char *file;
  motet_error *error;
  mt_arena *arena;
  values *values;
  int line[KEYS];       /* where a key stands; 0: not given */
  bool from_word[KEYS]; /* given on the command line, which has no lines */
} reader;

static motet_status fail(reader *r, int line, const char *name, motet_status status) {
  bool from_word = r->file == command_line;
  for (int i = 0; i < KEYS && name != NULL; i++) from_word |= r->from_word[i] && strcmp(keys[i].name, name) == 0;
  mt_error_place(r->error, from_word ? command_line : r->file, from_word ? 0 : line);
  mt_error_key(r->error, name);
  return status;
}

static motet_status bad_value(reader *r, int line, const key *k, const char *text, const char *wanted) {
  return fail(r, line, k->name,
              mt_error_set(r->error, MOTET_ERROR_PARSE, "%s is '%.60s', and must be %s", k->name, text, wanted));
}

static bool read_whole(const char *text, int64_t least, int64_t most, int64_t *value) {
  char *end;
  errno = 0;
  long long number = strtoll(text, &end, 10);
  if (end == text || *end != '\0' || errno != 0 || number < least || number > most) return false;
  *value = number;
  return true;
}

static motet_status read_pictures(reader *r, int line, const key *k, const char *text) {
  int64_t *numbers = (int64_t *)(void *)((char *)r->values + k->offset);
  const char *at = text;
  for (int i = 0; i < 3; i++) {
    char *end;
    numbers[i] = *at >= '0' && *at <= '9' ? strtoll(at, &end, 10) : -1;
    if (numbers[i] < (i > 0) || numbers[i] > 65536 || *end != (i == 2 ? '\0' : 'x'))
      return bad_value(r, line, k, text, "pictures of a sample as NUMBERxHEIGHTxWIDTH, as in 2x448x448");
    at = end + 1;
  }
  return MOTET_OK;
}

static motet_status read_scalar(reader *r, int line, const key *k, const char *text) {
  char *field = (char *)r->values + k->offset;
  char wanted[96];
  int64_t number;
  double quantity;
  switch (k->kind) {
  case KEY_TEXT:
  case KEY_QUANTITY: {
    if (*text == '\0') return bad_value(r, line, k, text, "a text");
    if (k->kind == KEY_QUANTITY && mt_quantity_parse(text, MT_QUANTITY_BYTES, r->error, &quantity) != MOTET_OK)
      return fail(r, line, k->name, mt_error_context(r->error, r->error->status, "%s", k->name));
    const char *copy = mt_arena_text(r->arena, text);
    if (copy == NULL) return mt_error_memory(r->error, strlen(text), "a job");
    memcpy(field, &copy, sizeof copy);
    return MOTET_OK;
  }
  case KEY_SECONDS:
    if (mt_quantity_parse(text, MT_QUANTITY_SECONDS, r->error, &quantity) != MOTET_OK)
      return fail(r, line, k->name, mt_error_context(r->error, r->error->status, "%s", k->name));
    if (!(quantity > 0)) return bad_value(r, line, k, text, "a time above zero; without the key there is no limit");
    memcpy(field, &quantity, sizeof quantity);
    return MOTET_OK;
  case KEY_WHOLE:
    snprintf(wanted, sizeof wanted, "a whole number from %lld to %lld", (long long)k->least, (long long)k->most);
    if (!read_whole(text, k->least, k->most, &number)) return bad_value(r, line, k, text, wanted);
    memcpy(field, &number, sizeof number);
    return MOTET_OK;
  case KEY_PICTURES: return read_pictures(r, line, k, text);
  case KEY_RANGE: {
    mt_search_range *range = (mt_search_range *)(void *)field;
    snprintf(wanted, sizeof wanted, "whole numbers from %lld to %lld, at most %d of them", (long long)k->least,
             (long long)k->most, MT_SEARCH_CHOICES);
    if (range->count == MT_SEARCH_CHOICES || !read_whole(text, k->least, k->most, &number))
      return bad_value(r, line, k, text, wanted);
    range->values[range->count++] = (int32_t)number;
    return MOTET_OK;
  }
  case KEY_NAMES: {
    int32_t *count = (int32_t *)(void *)((char *)r->values + k->count);
    if (*count == MT_SEARCH_CHOICES) return bad_value(r, line, k, text, "a list of at most 16 names");
    const char *copy = mt_arena_text(r->arena, text);
    if (copy == NULL) return mt_error_memory(r->error, strlen(text), "a job");
    memcpy(field + (size_t)(*count)++ * sizeof copy, &copy, sizeof copy);
    return MOTET_OK;
  }
  }
  return MOTET_OK;
}

static bool is_list(const key *k) { return k->kind == KEY_RANGE || k->kind == KEY_NAMES; }

static bool key_exists(const char *name) {
  for (int i = 0; i < KEYS; i++)
    if (strcmp(keys[i].name, name) == 0) return true;
  return false;
}

static motet_status unknown(reader *r, int line, const char *name) {
  const char *foreign = mt_foreign_key(name, key_exists);
  /* Training's keys are passed over unread; what no key of its is called, but ours elsewhere, is not. */
  bool mistaken = foreign != NULL && strncmp(name, "train.", 6) == 0;
  for (size_t i = 0; i < sizeof passed_over / sizeof *passed_over && !mistaken; i++) {
    size_t length = strlen(passed_over[i]);
    bool section = passed_over[i][length - 1] == '.';
    if (section ? strncmp(name, passed_over[i], length) == 0 : strcmp(name, passed_over[i]) == 0) return MOTET_OK;
  }
  if (foreign != NULL)
    return fail(r, line, name,
                mt_error_set(r->error, MOTET_ERROR_PARSE, "there is no key '%.60s'; in a search '%s' is for that",
                             name, foreign));
  mt_text known = {0};
  for (int i = 0; i < KEYS; i++) mt_text_append(&known, "%s%s", i > 0 ? ", " : "", keys[i].name);
  motet_status status =
      mt_error_set(r->error, MOTET_ERROR_PARSE, "there is no key '%.60s'; keys of a search are %s", name,
                   known.data != NULL ? known.data : "");
  mt_text_free(&known);
  return fail(r, line, name, status);
}

static motet_status read_node(reader *r, yaml_document_t *document, const char *name, const yaml_node_t *node) {
  int line = (int)node->start_mark.line + 1, found = 0;
  while (found < KEYS && strcmp(keys[found].name, name) != 0) found++;
  if (found == KEYS) return unknown(r, line, name);
  const key *k = &keys[found];
  if (r->line[found] > 0)
    return fail(r, line, name, mt_error_set(r->error, MOTET_ERROR_PARSE, "%s is given twice", name));
  r->line[found] = line > 0 ? line : 1;
  if (node->type == YAML_SCALAR_NODE) return read_scalar(r, line, k, (const char *)node->data.scalar.value);
  if (node->type != YAML_SEQUENCE_NODE || !is_list(k))
    return fail(r, line, name,
                mt_error_set(r->error, MOTET_ERROR_PARSE, "%s is one value%s", name,
                             is_list(k) ? " or a list" : ", no list or mapping"));
  for (yaml_node_item_t *item = node->data.sequence.items.start; item < node->data.sequence.items.top; item++) {
    const yaml_node_t *entry = yaml_document_get_node(document, *item);
    const char *text =
        entry != NULL && entry->type == YAML_SCALAR_NODE ? (const char *)entry->data.scalar.value : "";
    motet_status status = read_scalar(r, line, k, text);
    if (status != MOTET_OK) return status;
  }
  return MOTET_OK;
}

/* The mapping of a section, or the document's. */
static motet_status read_mapping(reader *r, yaml_document_t *document, const char *section,
                                 const yaml_node_t *mapping) {
  for (yaml_node_pair_t *pair = mapping->data.mapping.pairs.start; pair < mapping->data.mapping.pairs.top; pair++) {
    const yaml_node_t *name = yaml_document_get_node(document, pair->key);
    const yaml_node_t *node = yaml_document_get_node(document, pair->value);
    const char *word = name != NULL && name->type == YAML_SCALAR_NODE ? (const char *)name->data.scalar.value : "";
    char full[160];
    snprintf(full, sizeof full, "%s%s%.120s", section, *section != '\0' ? "." : "", word);
    if (node == NULL) continue;
    bool nested = node->type == YAML_MAPPING_NODE && *section == '\0';
    motet_status status = nested ? read_mapping(r, document, full, node) : read_node(r, document, full, node);
    if (status != MOTET_OK) return status;
  }
  return MOTET_OK;
}

static motet_status read_yaml(reader *r, const char *yaml, size_t bytes) {
  yaml_document_t document;
  motet_status status = mt_yaml_load(yaml, bytes, r->file, r->error, &document);
  if (status != MOTET_OK && r->file == command_line && r->error != NULL) r->error->line = 0;
  if (status != MOTET_OK) return status;
  const yaml_node_t *root = yaml_document_get_root_node(&document);
  status = root != NULL && root->type == YAML_MAPPING_NODE
               ? read_mapping(r, &document, "", root)
               : fail(r, 1, NULL,
                      mt_error_set(r->error, MOTET_ERROR_PARSE,
                                   "a job is a mapping of keys to values, as in 'config: config.json'"));
  yaml_document_delete(&document);
  return status;
}

/* key=value over the file's; values are YAML themselves, for lists. */
static motet_status read_override(reader *r, const char *word) {
  const char *equals = strchr(word, '=');
  if (equals == NULL) return mt_error_set(r->error, MOTET_ERROR_ARGUMENT, "'%.60s' is no key=value", word);
  char name[160];
  snprintf(name, sizeof name, "%.*s", (int)(equals - word < 150 ? equals - word : 150), word);
  for (int i = 0; i < KEYS; i++) {
    if (strcmp(keys[i].name, name) != 0) continue;
    r->line[i] = 0;
    r->from_word[i] = true;
    if (is_list(&keys[i])) {
      size_t at = keys[i].kind == KEY_RANGE ? keys[i].offset + offsetof(mt_search_range, count) : keys[i].count;
      memset((char *)r->values + at, 0, sizeof(int32_t));
    }
  }
  mt_text text = {0};
  mt_text_append(&text, "\"%s\": %s\n", name, equals + 1);
  motet_status status = text.failed ? mt_error_memory(r->error, strlen(word), "a job") : MOTET_OK;
  const char *file = r->file;
  r->file = command_line;
  if (status == MOTET_OK) status = read_yaml(r, text.data, text.length);
  r->file = file;
  mt_text_free(&text);
  return status;
}

/* ---- from values to a problem ---- */

static int line_of(const reader *r, const char *name) {
  for (int i = 0; i < KEYS; i++)
    if (strcmp(keys[i].name, name) == 0) return r->line[i];
  return 0;
}

static motet_status missing(reader *r, const char *name, const char *example) {
  return fail(r, 0, name, mt_error_set(r->error, MOTET_ERROR_PARSE, "the job lacks %s, as in '%s'", name, example));
}

static motet_status set_model(reader *r, mt_search_problem *problem) {
  const values *v = r->values;
  problem->model_path = v->config != NULL ? v->config : v->model;
  if (problem->model_path == NULL) return missing(r, "model", "model: a/directory/with/config.json");
  motet_status status = mt_architecture_read(problem->arena, problem->model_path, r->error, &problem->architecture);
  if (status != MOTET_OK) return status;
  mt_model *model = problem->architecture->model;
  if (r->values->trainable_count == 0) return MOTET_OK;
  for (int32_t l = 0; l < model->layer_count; l++) model->layers[l].trainable = false;
  for (int32_t i = 0; i < v->trainable_count; i++) {
    int32_t j = 0;
    while (j < model->module_count && strcmp(model->modules[j].name, v->trainable[i]) != 0) j++;
    if (j == model->module_count)
      return fail(r, line_of(r, "trainable"), "trainable",
                  mt_error_set(r->error, MOTET_ERROR_PARSE,
                               "the model has no module '%.60s'; 'motet model %s' lists them", v->trainable[i],
                               problem->model_path));
    for (int32_t l = model->modules[j].layer_begin; l < model->modules[j].layer_end; l++)
      model->layers[l].trainable = true;
  }
  return MOTET_OK;
}

/* A preset, or a file by a path or by its ending. */
static motet_status set_cluster(reader *r, mt_search_problem *problem) {
  const values *v = r->values;
  if (v->preset == NULL) return missing(r, "cluster", "cluster: h100");
  problem->cluster_name = v->preset;
  const char *named = line_of(r, "cluster") > 0 ? "cluster" : "cluster.preset";
  const char *counted = line_of(r, "devices") > 0 ? "devices" : "cluster.devices";
  size_t length = strlen(v->preset);
  bool file = strchr(v->preset, '/') != NULL || (length > 5 && strcmp(v->preset + length - 5, ".yaml") == 0);
  motet_status status;
  if (file) {
    status = mt_cluster_read(v->preset, r->error, &problem->cluster);
    if (status != MOTET_OK) return status;
    if (v->devices > 0) status = mt_cluster_resize(&problem->cluster, (int32_t)v->devices, r->error);
    if (status != MOTET_OK) return fail(r, line_of(r, counted), counted, status);
  } else {
    if (v->devices == 0) return missing(r, "devices", "devices: 64");
    status = mt_cluster_preset(v->preset, (int32_t)v->devices, r->error, &problem->cluster);
    if (status != MOTET_OK) return fail(r, line_of(r, named), named, status);
  }
  problem->memory_bytes = problem->cluster.device.memory_bytes;
  return v->memory == NULL ? MOTET_OK
                           : mt_quantity_parse(v->memory, MT_QUANTITY_BYTES, r->error, &problem->memory_bytes);
}

static motet_status set_workload(reader *r, mt_search_problem *problem) {
  const values *v = r->values;
  const mt_architecture *architecture = problem->architecture;
  if ((v->trace != NULL) + (v->distribution != NULL) + (v->tokens > 0) > 1)
    return fail(
        r, line_of(r, v->trace != NULL ? "workload.trace" : "workload.distribution"), "workload",
        mt_error_set(r->error, MOTET_ERROR_PARSE,
                     "workload: trace, distribution and tokens exclude each other; each says how long samples "
                     "are"));
  if (v->global_batch == 0) return missing(r, "train.global_batch", "train: {global_batch: 256}");
  problem->global_batch = (int32_t)v->global_batch;
  problem->trace = v->trace;
  problem->distribution = v->distribution;
  problem->tokens = v->tokens > 0 ? v->tokens : architecture->usual_tokens;
  problem->seed = v->seed;
  problem->picture = architecture->usual_picture;
  problem->picture_count = architecture->reads_pictures && v->trace == NULL ? 1 : 0;
  if (line_of(r, "workload.images") > 0) {
    problem->picture = (mt_picture){1, (int32_t)v->pictures[1], (int32_t)v->pictures[2]};
    problem->picture_count = (int32_t)v->pictures[0];
  }
  motet_status status =
      v->trace != NULL ? mt_workload_samples_read(problem->arena, v->trace, r->error, &problem->pool) : MOTET_OK;
  if (status == MOTET_OK)
    status = mt_search_data_draw(problem, problem->seed, problem->arena, r->error, &problem->data);
  if (status != MOTET_OK && v->distribution != NULL)
    return fail(r, line_of(r, "workload.distribution"), "workload.distribution", status);
  return status;
}

static motet_status set_names(reader *r, const char *key_name, const char *const *given, int32_t count,
                              const char *const *known, int32_t known_count, bool *chosen) {
  for (int32_t n = 0; n < known_count; n++) chosen[n] = count == 0;
  for (int32_t i = 0; i < count; i++) {
    int32_t n = 0;
    while (n < known_count && strcmp(known[n], given[i]) != 0) n++;
    if (n == known_count) {
      mt_text list = {0};
      for (int32_t k = 0; k < known_count; k++) mt_text_append(&list, "%s%s", k > 0 ? ", " : "", known[k]);
      motet_status status = mt_error_set(r->error, MOTET_ERROR_PARSE, "%s has '%.60s'; known are %s", key_name,
                                         given[i], list.data != NULL ? list.data : "");
      mt_text_free(&list);
      return fail(r, line_of(r, key_name), key_name, status);
    }
    chosen[n] = true;
  }
  return MOTET_OK;
}

static motet_status make(reader *r, mt_search_problem *problem) {
  const values *v = r->values;
  motet_status status = set_model(r, problem);
  if (status == MOTET_OK) status = set_cluster(r, problem);
  if (status == MOTET_OK) status = set_workload(r, problem);
  if (status == MOTET_OK)
    status = set_names(r, "search.placement", v->placements, v->placement_count, mt_search_manner_names, MT_MANNERS,
                       problem->manners);
  const char *names[TRUNKS];
  bool chosen[TRUNKS];
  for (int t = 0; t < TRUNKS; t++) names[t] = mt_skeleton_rows[trunk_kinds[t]].name;
  if (status == MOTET_OK) status = set_names(r, "search.trunk", v->trunks, v->trunk_count, names, TRUNKS, chosen);
  for (int t = 0; t < TRUNKS && status == MOTET_OK; t++) problem->trunks[trunk_kinds[t]] = chosen[t];
  /* "none" is what is left when nothing else is named. */
  if (status == MOTET_OK && !(v->saving_count == 1 && strcmp(v->savings[0], "none") == 0))
    status = set_names(r, "search.saving", v->savings, v->saving_count, saving_names, MT_SEARCH_SAVINGS,
                       problem->savings);
  problem->tensor = v->tensor;
  problem->context = v->context;
  problem->pipeline = v->pipeline;
  problem->expert = v->expert;
  problem->microbatch = v->microbatch;
  problem->zero = v->zero;
  problem->encoder_batch = v->encoder_batch;
  problem->shard_devices = v->shard_devices;
  problem->chunks = v->chunks;
  problem->time_limit = v->time_limit;
  return status;
}

motet_status mt_search_problem_parse(const char *yaml, size_t bytes, const char *name, int override_count,
                                     char *const *overrides, motet_error *error, mt_search_problem **result) {
  *result = NULL;
  mt_arena *arena = mt_arena_create();
  mt_search_problem *problem = arena != NULL ? MT_ARENA_NEW(arena, mt_search_problem, 1) : NULL;
  values *v = problem != NULL ? MT_ARENA_NEW(arena, values, 1) : NULL;
  if (v == NULL) {
    mt_arena_destroy(arena);
    return mt_error_memory(error, sizeof *problem, "a job");
  }
  problem->arena = arena;
  reader r = {.file = name, .error = error, .arena = arena, .values = v};
  motet_status status = read_yaml(&r, yaml, bytes);
  for (int i = 0; i < override_count && status == MOTET_OK; i++) status = read_override(&r, overrides[i]);
  if (status == MOTET_OK) status = make(&r, problem);
  if (status != MOTET_OK) {
    if (error != NULL && error->file[0] == '\0') mt_error_place(error, name, 0);
    mt_arena_destroy(arena);
    return status;
  }
  *result = problem;
  return MOTET_OK;
}

motet_status mt_search_problem_read(const char *path, int override_count, char *const *overrides,
                                    motet_error *error, mt_search_problem **problem) {
  char *yaml;
  size_t bytes;
  *problem = NULL;
  motet_status status = mt_file_read(path, error, &yaml, &bytes);
  if (status != MOTET_OK) return status;
  status = mt_search_problem_parse(yaml, bytes, path, override_count, overrides, error, problem);
  free(yaml);
  return status;
}

void mt_search_problem_destroy(mt_search_problem *problem) {
  if (problem != NULL) mt_arena_destroy(problem->arena);
}
