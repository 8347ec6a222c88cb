#include "train/job_phases.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

const char *const mt_job_modules[MT_JOB_MODULES] = {"vision", "projector", "llm"};

/** The keys that a phase may give, by their name in it and in the job. */
static const struct {
  const char *name, *key;
} phase_keys[] = {
    {"trainable", "trainable"},
    {"schedule", "schedule"},
    {"learning_rate", "train.learning_rate"},
    {"warmup_steps", "train.warmup_steps"},
    {"decay", "train.decay"},
    {"weight_decay", "train.weight_decay"},
    {"clip_norm", "train.clip_norm"},
};
enum { PHASE_KEYS = sizeof phase_keys / sizeof *phase_keys };

struct mt_job_phase {
  int64_t until; /* the step that ends it; INT64_MAX: the job's last */
  bool given[PHASE_KEYS];
  mt_job values; /* of the keys that are given */
};

static motet_status MT_PRINTF(2, 3) refuse(motet_error *error, const char *format, ...) {
  char text[320];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  motet_status status = mt_error_set(error, MOTET_ERROR_PARSE, "%s", text);
  mt_error_key(error, "phases");
  return status;
}

static const char *text_of(yaml_document_t *document, int node) {
  const yaml_node_t *scalar = yaml_document_get_node(document, node);
  return scalar != NULL && scalar->type == YAML_SCALAR_NODE ? (const char *)scalar->data.scalar.value : NULL;
}

static bool whole_number(const char *text, int64_t *value) {
  char *end;
  if (text == NULL || *text < '0' || *text > '9') return false;
  double number = strtod(text, &end);
  *value = number <= 1e12 ? (int64_t)number : 0;
  return *end == 0 && number >= 1 && number <= 1e12 && (double)*value == number;
}

static motet_status read_phase_value(yaml_document_t *document, const yaml_node_pair_t *pair, int32_t number,
                                     motet_error *error, mt_job_phase *phase) {
  const char *name = text_of(document, pair->key);
  if (name != NULL && strcmp(name, "until") == 0) {
    if (phase->until == 0 && whole_number(text_of(document, pair->value), &phase->until)) return MOTET_OK;
    return refuse(error, "phase %d: until must be a step of the run, a whole number from 1, given once",
                  (int)number + 1);
  }
  for (int i = 0; name != NULL && i < PHASE_KEYS; i++) {
    if (strcmp(phase_keys[i].name, name) != 0) continue;
    if (phase->given[i]) return refuse(error, "phase %d gives %s twice", (int)number + 1, name);
    phase->given[i] = true;
    const yaml_node_t *value = yaml_document_get_node(document, pair->value);
    motet_status status =
        mt_job_key_read(mt_job_key_find(phase_keys[i].key), document, value, error, &phase->values);
    return status == MOTET_OK ? status : mt_error_context(error, status, "phase %d", (int)number + 1);
  }
  return refuse(
      error,
      "phase %d has the key '%.40s'; a phase takes until, trainable, schedule, learning_rate, warmup_steps, "
      "decay, weight_decay and clip_norm",
      (int)number + 1, name != NULL ? name : "(a list or mapping)");
}

motet_status mt_job_phases_read(const mt_job_key *key, yaml_document_t *document, const yaml_node_t *node,
                                motet_error *error, mt_job *job) {
  (void)key;
  if (node->type != YAML_SEQUENCE_NODE)
    return refuse(error, "phases must be a list, as in [{until: 100, trainable: [projector]}, {trainable: all}]");
  const yaml_node_item_t *items = node->data.sequence.items.start;
  size_t count = (size_t)(node->data.sequence.items.top - items);
  mt_job_phase *phases = MT_ARENA_NEW(job->arena, mt_job_phase, count);
  if (phases == NULL) return mt_error_memory(error, count * sizeof *phases, "the job's phases");
  for (size_t i = 0; i < count; i++) {
    const yaml_node_t *item = yaml_document_get_node(document, items[i]);
    if (item == NULL || item->type != YAML_MAPPING_NODE)
      return refuse(error, "phase %zu must be a mapping, as in {until: 100, trainable: [projector]}", i + 1);
    phases[i].values.arena = job->arena;
    for (const yaml_node_pair_t *pair = item->data.mapping.pairs.start; pair < item->data.mapping.pairs.top;
         pair++) {
      motet_status status = read_phase_value(document, pair, (int32_t)i, error, &phases[i]);
      if (status != MOTET_OK) return status;
    }
    if (phases[i].until == 0) phases[i].until = INT64_MAX;
    if (phases[i].until == INT64_MAX && i + 1 < count)
      return refuse(error, "phase %zu needs 'until', the step that ends it: only the last one runs to the end",
                    i + 1);
    if (i > 0 && phases[i].until <= phases[i - 1].until)
      return refuse(error, "phase %zu ends at step %" PRId64 ", which is not behind the end of the one before it",
                    i + 1, phases[i].until);
  }
  job->phases = phases;
  job->phase_count = (int32_t)count;
  return MOTET_OK;
}

bool mt_job_phases_print(const mt_job *job, mt_text *text) {
  if (job->phase_count == 0) return false;
  mt_text_append(text, "[");
  for (int32_t i = 0; i < job->phase_count; i++) {
    const mt_job_phase *phase = &job->phases[i];
    const char *between = "";
    mt_text_append(text, "%s{", i > 0 ? ", " : "");
    if (phase->until < INT64_MAX) {
      mt_text_append(text, "until: %" PRId64, phase->until);
      between = ", ";
    }
    for (int k = 0; k < PHASE_KEYS; k++) {
      if (!phase->given[k]) continue;
      mt_text_append(text, "%s%s: ", between, phase_keys[k].name);
      mt_job_key_print(mt_job_key_find(phase_keys[k].key), &phase->values, text);
      between = ", ";
    }
    mt_text_append(text, "}");
  }
  mt_text_append(text, "]");
  return true;
}

int32_t mt_job_phase_at(const mt_job *job, int64_t step, mt_job *view, int64_t *begin, int64_t *end) {
  *view = *job;
  *begin = 0;
  *end = job->train.steps;
  view->phase_count = 0;
  if (job->phase_count == 0) return 0;
  int32_t number = 0;
  while (number + 1 < job->phase_count && job->phases[number].until <= step) number++;
  const mt_job_phase *phase = &job->phases[number];
  if (number > 0) *begin = job->phases[number - 1].until;
  if (phase->until < *end) *end = phase->until;
  for (int k = 0; k < PHASE_KEYS; k++) {
    if (!phase->given[k]) continue;
    const mt_job_key *key = mt_job_key_find(phase_keys[k].key);
    memcpy((char *)view + key->offset, (const char *)&phase->values + key->offset, mt_job_key_bytes(key));
  }
  return number;
}

motet_status mt_job_rates_read(const mt_job_key *key, yaml_document_t *document, const yaml_node_t *node,
                               motet_error *error, mt_job_rates *rates) {
  *rates = (mt_job_rates){.standard = NAN, .modules = {NAN, NAN, NAN}};
  if (node->type != YAML_MAPPING_NODE) return mt_job_key_number(key, document, node, error, &rates->standard);
  for (const yaml_node_pair_t *pair = node->data.mapping.pairs.start; pair < node->data.mapping.pairs.top; pair++) {
    const char *name = text_of(document, pair->key);
    double *rate = name != NULL && strcmp(name, "default") == 0 ? &rates->standard : NULL;
    for (int j = 0; name != NULL && j < MT_JOB_MODULES; j++)
      if (strcmp(mt_job_modules[j], name) == 0) rate = &rates->modules[j];
    if (rate == NULL || !isnan(*rate)) {
      motet_status status =
          mt_error_set(error, MOTET_ERROR_PARSE,
                       "%s names '%.40s'%s; it gives a number to each of vision, projector, llm, and "
                       "to 'default' for those it does not name",
                       key->name, name != NULL ? name : "(a list or mapping)", rate != NULL ? " twice" : "");
      mt_error_key(error, key->name);
      return status;
    }
    motet_status status =
        mt_job_key_number(key, document, yaml_document_get_node(document, pair->value), error, rate);
    if (status != MOTET_OK) return status;
  }
  return MOTET_OK;
}

double mt_job_rate(const mt_job *job, int32_t module) {
  double own = job->train.learning_rate.modules[module];
  return isnan(own) ? job->train.learning_rate.standard : own;
}

bool mt_job_trains(const mt_job *job, int32_t module) {
  for (int32_t i = 0; i < job->trainable.count; i++)
    if (strcmp(job->trainable.values[i], mt_job_modules[module]) == 0) return true;
  return false;
}

motet_status mt_job_phases_check(const mt_job *job, motet_error *error) {
  int64_t steps = job->train.steps;
  if (job->phase_count > 0 && job->phases[job->phase_count - 1].until < steps)
    return refuse(error,
                  "the last phase ends at step %" PRId64 " and the run at %" PRId64
                  ": leave its 'until' away, or add a phase",
                  job->phases[job->phase_count - 1].until, steps);
  for (int32_t i = 0; i == 0 || i < job->phase_count; i++) {
    mt_job view;
    int64_t begin, end;
    mt_job_phase_at(job, i > 0 ? job->phases[i - 1].until : 0, &view, &begin, &end);
    for (int32_t j = 0; j < MT_JOB_MODULES; j++) {
      if (!mt_job_trains(&view, j) || !isnan(mt_job_rate(&view, j))) continue;
      motet_status status =
          mt_error_set(error, MOTET_ERROR_PARSE,
                       "train.learning_rate has no number for %s, which trains%s: name it, or add 'default'",
                       mt_job_modules[j], job->phase_count > 0 ? " in one of the phases" : "");
      mt_error_key(error, "train.learning_rate");
      return status;
    }
  }
  return MOTET_OK;
}
