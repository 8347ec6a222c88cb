#include "report/history.h"

#include "base/text.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

enum { PACE_STEPS = 10 }; /* the remaining time follows the mean of so many */

static const char *const keys[MT_HISTORY_VALUES] = {
    [MT_HISTORY_LOSS] = "loss",
    [MT_HISTORY_LEARNING_RATE] = "learning_rate",
    [MT_HISTORY_GRADIENT_NORM] = "gradient_norm",
    [MT_HISTORY_TOKENS] = "tokens",
    [MT_HISTORY_STEP_SECONDS] = "step_seconds",
    [MT_HISTORY_MAKESPAN_SECONDS] = "makespan_seconds",
    [MT_HISTORY_SIMULATED_SECONDS] = "simulated_seconds",
    [MT_HISTORY_MFU] = "mfu",
    [MT_HISTORY_IDLE_SHARE] = "idle_share",
    [MT_HISTORY_MEMORY_BYTES] = "memory_bytes",
};

const char *mt_history_key(mt_history_value value) { return keys[value]; }

static double number_of(const json_t *line, const char *key) {
  const json_t *value = json_object_get(line, key);
  return json_is_number(value) ? json_number_value(value) : NAN;
}

/* Takes one whole line; false when memory is out. */
static bool take_step(mt_history *history, const json_t *line, int64_t number) {
  size_t before = history->steps.count;
  while (history->steps.count > 0 && history->steps.data[history->steps.count - 1].step >= number)
    history->steps.count--;
  history->rewinds += history->steps.count < before;
  mt_history_step step = {.step = number};
  for (int value = 0; value < MT_HISTORY_VALUES; value++) step.values[value] = number_of(line, keys[value]);
  return MT_ARRAY_PUSH(&history->steps, step);
}

static bool take_evaluation(mt_history *history, const json_t *line, int64_t number) {
  size_t before = history->evaluations.count;
  while (history->evaluations.count > 0 && history->evaluations.data[history->evaluations.count - 1].step >= number)
    history->evaluations.count--;
  history->rewinds += history->evaluations.count < before;
  return MT_ARRAY_PUSH(&history->evaluations,
                       (mt_history_evaluation){.step = number, .loss = number_of(line, "eval_loss")});
}

typedef bool take_line(mt_history *history, const json_t *line, int64_t number);

/* Takes the whole lines of @p bytes and moves the place behind them. */
static bool take_lines(mt_history *history, take_line *take, const char *content, size_t bytes,
                       mt_history_place *place) {
  const char *line = content, *end;
  bool good = true;
  for (; good && (end = memchr(line, '\n', bytes - (size_t)(line - content))) != NULL; line = end + 1) {
    json_t *record = json_loadb(line, (size_t)(end - line), 0, NULL);
    const json_t *step = json_object_get(record, "step");
    if (json_is_integer(step) && json_integer_value(step) > 0)
      good = take(history, record, json_integer_value(step));
    else if (end > line)
      history->spoilt_lines++;
    json_decref(record);
  }
  size_t taken = (size_t)(line - content), fresh = taken < MT_HISTORY_MARK ? taken : MT_HISTORY_MARK;
  memmove(place->mark, place->mark + fresh, MT_HISTORY_MARK - fresh);
  memcpy(place->mark + MT_HISTORY_MARK - fresh, content + taken - fresh, fresh);
  place->offset += (int64_t)taken;
  return good;
}

/* Whether the file still has what was read before its place. */
static bool is_same(FILE *file, const mt_history_place *place) {
  char found[MT_HISTORY_MARK];
  size_t length = place->offset < MT_HISTORY_MARK ? (size_t)place->offset : MT_HISTORY_MARK;
  return fseeko(file, (off_t)place->offset - (off_t)length, SEEK_SET) == 0 &&
         fread(found, 1, length, file) == length &&
         memcmp(found, place->mark + MT_HISTORY_MARK - length, length) == 0;
}

static motet_status read_rest(FILE *file, const char *path, motet_error *error, mt_text *rest) {
  char block[65536];
  for (size_t count; (count = fread(block, 1, sizeof block, file)) > 0;) mt_text_bytes(rest, block, count);
  if (ferror(file)) return mt_error_system(error, "cannot be read", path);
  return rest->failed ? mt_error_memory(error, rest->length, "metrics") : MOTET_OK;
}

/* The list that a file's lines fill is empty again. */
static void forget(mt_history *history, size_t *count, mt_history_place *place, bool *changed) {
  *changed = *changed || *count > 0;
  history->rewinds += *count > 0;
  *count = 0;
  *place = (mt_history_place){0};
}

/* @p count: of the list that the file's lines fill. */
static motet_status update_file(mt_history *history, const char *path, take_line *take, size_t *count,
                                mt_history_place *place, bool *changed, motet_error *error) {
  FILE *file = fopen(path, "rbe");
  if (file == NULL) {
    if (errno != ENOENT && errno != ENOTDIR) return mt_error_system(error, "cannot be read", path);
    forget(history, count, place, changed);
    return MOTET_OK;
  }
  mt_text rest = {0};
  if (!is_same(file, place)) {
    forget(history, count, place, changed);
    rewind(file);
  }
  motet_status status = read_rest(file, path, error, &rest);
  int64_t before = place->offset;
  if (status == MOTET_OK && rest.length > 0 && !take_lines(history, take, rest.data, rest.length, place))
    status = mt_error_memory(error, rest.length, "metrics");
  *changed = *changed || place->offset != before;
  mt_text_free(&rest);
  fclose(file);
  return status;
}

static const yaml_node_t *find(yaml_document_t *document, const yaml_node_t *mapping, const char *key) {
  if (mapping == NULL || mapping->type != YAML_MAPPING_NODE) return NULL;
  for (const yaml_node_pair_t *pair = mapping->data.mapping.pairs.start; pair < mapping->data.mapping.pairs.top;
       pair++) {
    const yaml_node_t *name = yaml_document_get_node(document, pair->key);
    if (name != NULL && name->type == YAML_SCALAR_NODE && strcmp((const char *)name->data.scalar.value, key) == 0)
      return yaml_document_get_node(document, pair->value);
  }
  return NULL;
}

/* The job's train.steps; 0 where the file does not say. */
static int64_t read_planned_steps(const char *path) {
  FILE *file = fopen(path, "rbe");
  yaml_parser_t parser;
  yaml_document_t document;
  int64_t steps = 0;
  if (file == NULL) return 0;
  if (yaml_parser_initialize(&parser)) {
    yaml_parser_set_input_file(&parser, file);
    if (yaml_parser_load(&parser, &document)) {
      const yaml_node_t *train = find(&document, yaml_document_get_root_node(&document), "train");
      const yaml_node_t *value = find(&document, train, "steps");
      if (value != NULL && value->type == YAML_SCALAR_NODE)
        steps = strtoll((const char *)value->data.scalar.value, NULL, 10);
      yaml_document_delete(&document);
    }
    yaml_parser_delete(&parser);
  }
  fclose(file);
  return steps > 0 ? steps : 0;
}

motet_status mt_history_update(mt_history *history, const char *directory, bool *changed, motet_error *error) {
  mt_text metrics = {0}, evaluation = {0}, job = {0};
  bool any = false;
  mt_text_append(&metrics, "%s/metrics.jsonl", directory);
  mt_text_append(&evaluation, "%s/evaluation.jsonl", directory);
  mt_text_append(&job, "%s/job.yaml", directory);
  motet_status status = metrics.failed || evaluation.failed || job.failed
                            ? mt_error_memory(error, strlen(directory), "paths")
                            : MOTET_OK;
  if (status == MOTET_OK)
    status =
        update_file(history, metrics.data, take_step, &history->steps.count, &history->metrics_place, &any, error);
  if (status == MOTET_OK)
    status = update_file(history, evaluation.data, take_evaluation, &history->evaluations.count,
                         &history->evaluation_place, &any, error);
  if (status == MOTET_OK) {
    int64_t planned = read_planned_steps(job.data);
    any = any || planned != history->planned_steps;
    history->planned_steps = planned;
  }
  mt_text_free(&metrics);
  mt_text_free(&evaluation);
  mt_text_free(&job);
  if (changed != NULL) *changed = any;
  return status;
}

void mt_history_free(mt_history *history) {
  free(history->steps.data);
  free(history->evaluations.data);
  *history = (mt_history){0};
}

bool mt_history_is_finished(const mt_history *history) {
  return history->planned_steps > 0 && history->steps.count > 0 &&
         history->steps.data[history->steps.count - 1].step >= history->planned_steps;
}

double mt_history_throughput(const mt_history_step *step) {
  double seconds = step->values[MT_HISTORY_STEP_SECONDS];
  return seconds > 0 ? step->values[MT_HISTORY_TOKENS] / seconds : NAN;
}

double mt_history_remaining_seconds(const mt_history *history) {
  size_t count = history->steps.count, from = count > PACE_STEPS ? count - PACE_STEPS : 0;
  if (history->planned_steps == 0 || count == 0) return NAN;
  double sum = 0;
  int64_t known = 0, left = history->planned_steps - history->steps.data[count - 1].step;
  for (size_t i = from; i < count; i++) {
    double seconds = history->steps.data[i].values[MT_HISTORY_STEP_SECONDS];
    if (!isfinite(seconds)) continue;
    sum += seconds;
    known++;
  }
  return known > 0 ? (left > 0 ? (double)left : 0) * sum / (double)known : NAN;
}
