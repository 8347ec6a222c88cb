#include "report/run_step.h"

#include "base/text.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TIMES_FORMAT "motet-times-1"

static motet_status find_last(mt_arena *arena, const char *directory, motet_error *error, int64_t *step) {
  char *path = mt_arena_format(arena, "%s/timeline", directory);
  if (path == NULL) return mt_error_memory(error, strlen(directory), "a path");
  DIR *folder = opendir(path);
  if (folder == NULL) {
    motet_status status =
        mt_error_set(error, MOTET_ERROR_IO,
                     "cannot open the run's timelines: %s; a run's directory holds timeline/", strerror(errno));
    mt_error_place(error, path, 0);
    return status;
  }
  int64_t last = 0;
  for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
    if (strncmp(entry->d_name, "step-", 5) != 0) continue;
    char *end;
    errno = 0;
    long long number = strtoll(entry->d_name + 5, &end, 10);
    if (errno == 0 && end != entry->d_name + 5 && strcmp(end, ".times.json") == 0 && number > last) last = number;
  }
  closedir(folder);
  if (last == 0) {
    motet_status status =
        mt_error_set(error, MOTET_ERROR_IO, "no step of this run has a timeline (timeline/step-N.times.json)");
    mt_error_place(error, path, 0);
    return status;
  }
  *step = last;
  return MOTET_OK;
}

static motet_status refuse(motet_error *error, const char *path, const char *key, const char *what) {
  motet_status status = mt_error_set(error, MOTET_ERROR_PARSE, "%s", what);
  mt_error_place(error, path, 0);
  if (key != NULL) mt_error_key(error, key);
  return status;
}

static motet_status read_list(mt_arena *arena, const json_t *document, const char *key, int64_t count,
                              const char *path, motet_error *error, double **times) {
  const json_t *list = json_object_get(document, key);
  if (!json_is_array(list) || (int64_t)json_array_size(list) != count)
    return refuse(error, path, key, "a list with one number for each of the program's instructions was expected");
  double *values = MT_ARENA_NEW(arena, double, count);
  if (values == NULL) return mt_error_memory(error, (unsigned long long)count * sizeof *values, "times");
  for (int64_t i = 0; i < count; i++) {
    const json_t *value = json_array_get(list, (size_t)i);
    if (!json_is_number(value)) return refuse(error, path, key, "a list of numbers was expected");
    values[i] = json_number_value(value);
  }
  *times = values;
  return MOTET_OK;
}

static motet_status read_times(mt_arena *arena, const char *path, int64_t count, motet_error *error, double **start,
                               double **finish) {
  char *content;
  size_t bytes;
  motet_status status = mt_file_read(path, error, &content, &bytes);
  if (status != MOTET_OK) return status;
  json_error_t where;
  json_t *document = json_loadb(content, bytes, JSON_REJECT_DUPLICATES, &where);
  free(content);
  if (document == NULL) {
    status = mt_error_set(error, MOTET_ERROR_PARSE, "%s", where.text);
    mt_error_place(error, path, where.line);
    return status;
  }
  const char *format = json_string_value(json_object_get(document, "format"));
  if (format == NULL || strcmp(format, TIMES_FORMAT) != 0)
    status = refuse(error, path, "format", "\"" TIMES_FORMAT "\" was expected");
  if (status == MOTET_OK) status = read_list(arena, document, "start", count, path, error, start);
  if (status == MOTET_OK) status = read_list(arena, document, "finish", count, path, error, finish);
  json_decref(document);
  return status;
}

static char *value_text(mt_arena *arena, const json_t *value) {
  if (json_is_string(value)) return mt_arena_text(arena, json_string_value(value));
  if (json_is_integer(value)) return mt_arena_format(arena, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
  if (json_is_real(value)) return mt_arena_format(arena, "%.6g", json_real_value(value));
  return mt_arena_text(arena, "not known");
}

static motet_status keep_values(mt_arena *arena, json_t *line, motet_error *error, mt_run_step *run) {
  mt_run_value *values = MT_ARENA_NEW(arena, mt_run_value, json_object_size(line));
  if (values == NULL) return mt_error_memory(error, sizeof *values, "metrics");
  const char *key;
  json_t *value;
  int32_t count = 0;
  json_object_foreach(line, key, value) {
    values[count] = (mt_run_value){mt_arena_text(arena, key), value_text(arena, value)};
    if (values[count].name == NULL || values[count].value == NULL)
      return mt_error_memory(error, sizeof *values, "metrics");
    count++;
  }
  run->values = values;
  run->value_count = count;
  return MOTET_OK;
}

/* The step's line. A run without metrics still has its timeline, so their absence is no error. */
static motet_status read_metrics(mt_arena *arena, const char *directory, motet_error *error, mt_run_step *run) {
  char *path = mt_arena_format(arena, "%s/metrics.jsonl", directory), *content;
  size_t bytes;
  if (path == NULL) return mt_error_memory(error, strlen(directory), "a path");
  if (mt_file_read(path, NULL, &content, &bytes) != MOTET_OK) return MOTET_OK;
  motet_status status = MOTET_OK;
  for (const char *line = content, *end = NULL, *stop = content + bytes; line < stop && status == MOTET_OK;
       line = end + 1) {
    end = memchr(line, '\n', (size_t)(stop - line));
    if (end == NULL) end = stop;
    json_t *document = json_loadb(line, (size_t)(end - line), 0, NULL);
    const json_t *number = json_object_get(document, "step");
    if (json_is_integer(number) && json_integer_value(number) == run->step)
      status = keep_values(arena, document, error, run);
    json_decref(document);
  }
  free(content);
  return status;
}

motet_status mt_run_step_read(mt_arena *arena, const char *directory, int64_t step, motet_error *error,
                              mt_run_step *run) {
  *run = (mt_run_step){.step = step};
  motet_status status = step > 0 ? MOTET_OK : find_last(arena, directory, error, &run->step);
  if (status != MOTET_OK) return status;
  char *stem = mt_arena_format(arena, "%s/timeline/step-%" PRId64, directory, run->step);
  char *program = stem != NULL ? mt_arena_format(arena, "%s.program.json", stem) : NULL;
  char *times = stem != NULL ? mt_arena_format(arena, "%s.times.json", stem) : NULL;
  char *simulated = stem != NULL ? mt_arena_format(arena, "%s.simulated.json", stem) : NULL;
  if (program == NULL || times == NULL || simulated == NULL)
    return mt_error_memory(error, strlen(directory), "a path");
  status = motet_program_read(program, error, &run->program);
  if (status != MOTET_OK) return status;
  int64_t count = run->program->rank_begin[run->program->ranks];
  status = read_times(arena, times, count, error, &run->start, &run->finish);
  if (status == MOTET_OK) {
    status = read_times(arena, simulated, count, error, &run->simulated_start, &run->simulated_finish);
    if (status == MOTET_ERROR_IO) { /* runs need not keep them */
      motet_error_clear(error);
      status = MOTET_OK;
    }
  }
  if (status == MOTET_OK) status = read_metrics(arena, directory, error, run);
  if (status != MOTET_OK) {
    motet_program_destroy(run->program);
    run->program = NULL;
  }
  return status;
}
