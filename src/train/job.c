#include "train/job.h"

#include "base/foreign_key.h"
#include "base/yaml.h"
#include "train/job_phases.h"

#include <stdlib.h>
#include <string.h>

enum { DEPTH_MOST = 2, NAME_SIZE = 128 };

typedef struct reader {
  const char *file;
  yaml_document_t document;
  bool *given; /* [mt_job_key_count] */
  mt_job *job;
} reader;

static motet_status place(const reader *state, const yaml_node_t *node, motet_error *error, motet_status status) {
  if (status != MOTET_OK) mt_error_place(error, state->file, (int)node->start_mark.line + 1);
  return status;
}

static bool key_exists(const char *name) { return mt_job_key_find(name) != NULL; }

/* Keys that only jobs for a cluster have. */
static bool is_of_clusters(const char *name) {
  static const char *const sections[] = {"cluster", "devices", "workload", "search"};
  for (size_t i = 0; i < sizeof sections / sizeof *sections; i++) {
    size_t length = strlen(sections[i]);
    if (strncmp(name, sections[i], length) == 0 && (name[length] == 0 || name[length] == '.')) return true;
  }
  return false;
}

static motet_status unknown_key(const char *name, motet_error *error) {
  const char *foreign = mt_foreign_key(name, key_exists), *nearest = mt_job_key_nearest(name);
  motet_status status;
  if (is_of_clusters(name))
    status = mt_error_set(
        error, MOTET_ERROR_PARSE,
        "'%s' is a key of jobs for a cluster, as in 'cluster: h100', which 'motet plan' and 'motet simulate' "
        "take",
        name);
  else if (foreign != NULL)
    status = mt_error_set(error, MOTET_ERROR_PARSE, "there is no key '%s'; here '%s' is for that: %s", name,
                          foreign, mt_job_key_find(foreign)->meaning);
  else if (nearest != NULL)
    status = mt_error_set(error, MOTET_ERROR_PARSE, "there is no key '%s'; did you mean '%s'?", name, nearest);
  else
    status = mt_error_set(error, MOTET_ERROR_PARSE, "there is no key '%s'; 'motet help job' lists the keys", name);
  mt_error_key(error, name);
  return status;
}

static motet_status read_mapping(reader *state, const yaml_node_t *node, const char *prefix, int depth,
                                 motet_error *error);

static motet_status read_pair(reader *state, const yaml_node_t *name_node, const yaml_node_t *value,
                              const char *prefix, int depth, motet_error *error) {
  char name[NAME_SIZE];
  if (name_node->type != YAML_SCALAR_NODE)
    return place(state, name_node, error,
                 mt_error_set(error, MOTET_ERROR_PARSE, "a key must be a word, not a list or mapping"));
  int length = snprintf(name, sizeof name, "%s%s%.100s", prefix, *prefix != 0 ? "." : "",
                        (const char *)name_node->data.scalar.value);
  const mt_job_key *key = length < NAME_SIZE ? mt_job_key_find(name) : NULL;
  if (key == NULL && mt_job_section_exists(name)) {
    if (value->type == YAML_MAPPING_NODE && depth < DEPTH_MOST)
      return read_mapping(state, value, name, depth + 1, error);
    motet_status status = mt_error_set(error, MOTET_ERROR_PARSE,
                                       "%s holds keys of its own and must be a mapping, as in '%s:' with "
                                       "indented lines behind it",
                                       name, name);
    mt_error_key(error, name);
    return place(state, value, error, status);
  }
  if (key == NULL) return place(state, name_node, error, unknown_key(name, error));
  bool *given = &state->given[key - mt_job_keys];
  if (*given) {
    mt_error_set(error, MOTET_ERROR_PARSE, "%s is given twice", name);
    mt_error_key(error, name);
    return place(state, name_node, error, MOTET_ERROR_PARSE);
  }
  if (value->type == YAML_SCALAR_NODE && value->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
      mt_yaml_is_null((const char *)value->data.scalar.value))
    return MOTET_OK; /* as if the key were not there */
  *given = true;
  return place(state, value, error, mt_job_key_read(key, &state->document, value, error, state->job));
}

static motet_status read_mapping(reader *state, const yaml_node_t *node, const char *prefix, int depth,
                                 motet_error *error) {
  for (const yaml_node_pair_t *pair = node->data.mapping.pairs.start; pair < node->data.mapping.pairs.top; pair++) {
    motet_status status = read_pair(state, yaml_document_get_node(&state->document, pair->key),
                                    yaml_document_get_node(&state->document, pair->value), prefix, depth, error);
    if (status != MOTET_OK) return status;
  }
  return MOTET_OK;
}

static motet_status read_document(reader *state, motet_error *error) {
  const yaml_node_t *root = yaml_document_get_root_node(&state->document);
  if (root == NULL || root->type != YAML_MAPPING_NODE) {
    mt_error_set(error, MOTET_ERROR_PARSE, "a job is a mapping of keys to values, as in 'output_dir: run'");
    mt_error_place(error, state->file, root != NULL ? (int)root->start_mark.line + 1 : 1);
    return MOTET_ERROR_PARSE;
  }
  return read_mapping(state, root, "", 1, error);
}

static motet_status read_yaml(reader *state, const char *yaml, size_t bytes, motet_error *error) {
  motet_status status = mt_yaml_load(yaml, bytes, state->file, error, &state->document);
  if (status != MOTET_OK) return status;
  status = read_document(state, error);
  yaml_document_delete(&state->document);
  return status;
}

/* `key=null` gives up what the file says: a key without a default has no value then, another one its default.
 * `key=` does the first alone. */
static motet_status read_override_value(const reader *state, const mt_job_key *key, const char *value,
                                        motet_error *error, bool *removed) {
  bool null = mt_yaml_is_null(value);
  *removed = null || *value == 0;
  if (*removed && mt_job_key_remove(key, state->job)) return MOTET_OK;
  return mt_job_key_read_text(key, null ? key->standard : value, error, state->job);
}

static motet_status read_override(reader *state, const char *word, motet_error *error) {
  const char *equals = strchr(word, '=');
  char name[NAME_SIZE];
  motet_status status;
  bool removed = false;
  if (equals == NULL || equals == word || (size_t)(equals - word) >= sizeof name) {
    status = mt_error_set(error, MOTET_ERROR_ARGUMENT, "'%.80s' must read key=value, as in train.steps=20", word);
  } else {
    memcpy(name, word, (size_t)(equals - word));
    name[equals - word] = 0;
    const mt_job_key *key = mt_job_key_find(name);
    status = key == NULL ? unknown_key(name, error) : read_override_value(state, key, equals + 1, error, &removed);
    if (status == MOTET_OK) state->given[key - mt_job_keys] = !removed;
  }
  if (status != MOTET_OK) mt_error_place(error, "command line", 0);
  return status;
}

static bool given(const reader *state, const char *name) {
  return state->given[mt_job_key_find(name) - mt_job_keys];
}

static motet_status wrong(const reader *state, const char *key, motet_error *error, const char *text) {
  motet_status status = mt_error_set(error, MOTET_ERROR_PARSE, "%s", text);
  mt_error_place(error, state->file, 0);
  mt_error_key(error, key);
  return status;
}

/** What concerns several keys at once. */
static motet_status check_together(const reader *state, motet_error *error) {
  mt_job *job = state->job;
  bool model = given(state, "model"), config = given(state, "config");
  if (model == config)
    return wrong(state, "model", error,
                 model ? "model and config exclude each other: give a model's directory, or a config.json with "
                         "'init: random'"
                       : "a job needs 'model' (a directory of weights), or 'config' (a config.json) with "
                         "'init: random'");
  if (config && job->init != MT_JOB_INIT_RANDOM)
    return wrong(state, "init", error, "a config brings no weights: with 'config', 'init' must be 'random'");
  if (config && job->data.tokenizer == NULL)
    return wrong(state, "data.tokenizer", error,
                 "without a model's directory, 'data.tokenizer' must name a tokenizer.json");
  if (job->train.betas.count != 2)
    return wrong(state, "train.betas", error, "train.betas must be two numbers, as in [0.9, 0.999]");
  if (job->parallel.context > 1 && job->deterministic == MT_JOB_DETERMINISTIC_EXACT)
    return wrong(
        state, "deterministic", error,
        "deterministic: exact sums up whole microbatches; where ranks share them (parallel.context above 1) "
        "it must be run");
  if (job->parallel.pipeline * job->parallel.data > 65536 / job->parallel.context)
    return wrong(state, "parallel.context", error,
                 "parallel.pipeline times parallel.data times parallel.context must be at most 65536 ranks");
  int64_t rows = job->train.microbatches * job->parallel.data;
  if (!given(state, "train.global_batch")) job->train.global_batch = rows;
  if (job->train.global_batch < rows)
    return wrong(state, "train.global_batch", error,
                 "train.global_batch must be at least parallel.data times train.microbatches: every microbatch "
                 "needs a sample");
  motet_status status = mt_job_phases_check(job, error);
  if (status != MOTET_OK && error != NULL) mt_error_place(error, state->file, 0);
  return status;
}

static motet_status read_all(reader *state, const char *yaml, size_t bytes, int override_count,
                             char *const *overrides, motet_error *error) {
  motet_status status = MOTET_OK;
  for (int32_t i = 0; i < mt_job_key_count && status == MOTET_OK; i++)
    if (mt_job_keys[i].standard != NULL)
      status = mt_job_key_read_text(&mt_job_keys[i], mt_job_keys[i].standard, error, state->job);
  if (status == MOTET_OK) status = read_yaml(state, yaml, bytes, error);
  for (int i = 0; i < override_count && status == MOTET_OK; i++) status = read_override(state, overrides[i], error);
  if (status != MOTET_OK) return status;
  for (int32_t i = 0; i < mt_job_key_count; i++) {
    const mt_job_key *key = &mt_job_keys[i];
    if (!key->required || state->given[i]) continue;
    char text[256];
    snprintf(text, sizeof text, "the key '%s' is missing: %s", key->name, key->meaning);
    return wrong(state, key->name, error, text);
  }
  return check_together(state, error);
}

motet_status mt_job_parse(const char *yaml, size_t bytes, const char *name, int override_count,
                          char *const *overrides, motet_error *error, mt_job **out) {
  mt_arena *arena = mt_arena_create();
  if (arena == NULL) return mt_error_memory(error, sizeof(mt_job), "the job");
  mt_job *job = MT_ARENA_NEW(arena, mt_job, 1);
  bool *keys_given = MT_ARENA_NEW(arena, bool, mt_job_key_count);
  motet_status status = MOTET_OK;
  if (job == NULL || keys_given == NULL) {
    status = mt_error_memory(error, sizeof *job, "the job");
  } else {
    job->arena = arena;
    reader state = {.file = name, .given = keys_given, .job = job};
    status = read_all(&state, yaml, bytes, override_count, overrides, error);
  }
  if (status != MOTET_OK) {
    mt_arena_destroy(arena);
    return status;
  }
  *out = job;
  return MOTET_OK;
}

motet_status mt_job_read(const char *path, int override_count, char *const *overrides, motet_error *error,
                         mt_job **job) {
  char *yaml;
  size_t bytes;
  motet_status status = mt_file_read(path, error, &yaml, &bytes);
  if (status != MOTET_OK) return status;
  status = mt_job_parse(yaml, bytes, path, override_count, overrides, error, job);
  free(yaml);
  return status;
}

void mt_job_destroy(mt_job *job) {
  if (job != NULL) mt_arena_destroy(job->arena);
}

void mt_job_print(const mt_job *job, mt_text *text) {
  char section[NAME_SIZE] = "";
  for (int32_t i = 0; i < mt_job_key_count; i++) {
    const mt_job_key *key = &mt_job_keys[i];
    mt_text value = {0};
    if (!mt_job_key_print(key, job, &value)) continue;
    const char *dot = strchr(key->name, '.');
    size_t length = dot != NULL ? (size_t)(dot - key->name) : 0;
    if (strlen(section) != length || strncmp(section, key->name, length) != 0) {
      memcpy(section, key->name, length);
      section[length] = 0;
      mt_text_append(text, "%s:\n", section);
    }
    mt_text_append(text, "%s%s: %s\n", dot != NULL ? "  " : "", dot != NULL ? dot + 1 : key->name,
                   value.data != NULL ? value.data : "");
    if (value.failed) text->failed = true;
    mt_text_free(&value);
  }
}
