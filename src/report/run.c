#include "report/run.h"

#include "base/text.h"
#include "report/flops_file.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool is_directory(const char *path) {
  struct stat information;
  return stat(path, &information) == 0 && S_ISDIR(information.st_mode);
}

bool mt_run_is(const char *path) {
  mt_text inner = {0};
  mt_text_append(&inner, "%s/timeline", path);
  bool yes = !inner.failed && is_directory(path) && is_directory(inner.data);
  mt_text_free(&inner);
  return yes;
}

/* Whether a directory could be made at @p path: the one that it would be in is there. */
static bool has_parent(const char *path) {
  size_t end = strlen(path);
  while (end > 1 && path[end - 1] == '/') end--;
  while (end > 0 && path[end - 1] != '/') end--;
  mt_text parent = {0};
  mt_text_append(&parent, "%.*s", (int)end, path);
  bool yes = !parent.failed && is_directory(end > 0 ? parent.data : ".");
  mt_text_free(&parent);
  return yes;
}

motet_status mt_run_check(const char *path, bool waits, motet_error *error) {
  struct stat information;
  motet_status status = MOTET_OK;
  bool there = stat(path, &information) == 0;
  if (there ? !S_ISDIR(information.st_mode) : errno != ENOENT)
    status = mt_error_set(error, MOTET_ERROR_IO, "is no directory; a training run's output directory was expected");
  else if (!there && !waits)
    status = mt_error_set(error, MOTET_ERROR_IO,
                          "does not exist; shown once, as into a pipe, only a run that is there can be");
  else if (!there && !has_parent(path))
    status = mt_error_set(error, MOTET_ERROR_IO, "does not exist, and neither does the directory it would be in");
  if (status != MOTET_OK) mt_error_place(error, path, 0);
  return status;
}

/* The step of "step-12.times.json"; 0: another file. */
static int64_t step_of(const char *name) {
  char *end;
  if (strncmp(name, "step-", 5) != 0) return 0;
  long long step = strtoll(name + 5, &end, 10);
  return step > 0 && strcmp(end, ".times.json") == 0 ? step : 0;
}

/* The newest step that has a timeline, 0 where none has; the steps in words for messages. */
static motet_status list_steps(const char *folder, motet_error *error, int64_t *newest, mt_text *steps) {
  *newest = 0;
  DIR *directory = opendir(folder);
  if (directory == NULL) {
    motet_status status =
        mt_error_set(error, MOTET_ERROR_IO, "cannot list %s: %s; a run's directory has timelines there", folder,
                     strerror(errno));
    mt_error_place(error, folder, 0);
    return status;
  }
  for (const struct dirent *entry; (entry = readdir(directory)) != NULL;) {
    int64_t step = step_of(entry->d_name);
    if (step == 0) continue;
    mt_text_append(steps, "%s%" PRId64, steps->length > 0 ? ", " : "", step);
    if (step > *newest) *newest = step;
  }
  closedir(directory);
  return MOTET_OK;
}

int64_t mt_run_newest(const char *path) {
  mt_text folder = {0}, steps = {0};
  int64_t newest = 0;
  mt_text_append(&folder, "%s/timeline", path);
  if (!folder.failed) (void)list_steps(folder.data, NULL, &newest, &steps);
  mt_text_free(&folder);
  mt_text_free(&steps);
  return newest;
}

static motet_status take_times(mt_arena *arena, const json_t *root, const char *key, int64_t count,
                               const char *path, motet_error *error, double **times) {
  const json_t *list = json_object_get(root, key);
  motet_status status = MOTET_OK;
  if (!json_is_array(list) || json_array_size(list) != (size_t)count)
    status = mt_error_set(error, MOTET_ERROR_PARSE,
                          "%s: '%s' must be a list of %" PRId64 " times, one an instruction", path, key, count);
  *times = status == MOTET_OK ? MT_ARENA_NEW(arena, double, count) : NULL;
  if (status == MOTET_OK && *times == NULL)
    return mt_error_memory(error, (unsigned long long)count * sizeof(double), "a timeline");
  for (int64_t i = 0; i < count && status == MOTET_OK; i++) {
    const json_t *value = json_array_get(list, (size_t)i);
    (*times)[i] = json_number_value(value);
    if (!json_is_number(value) || !isfinite((*times)[i]))
      status = mt_error_set(error, MOTET_ERROR_PARSE, "%s: entry %" PRId64 " of '%s' is not a time", path, i, key);
  }
  if (status != MOTET_OK) {
    mt_error_place(error, path, 0);
    mt_error_key(error, key);
  }
  return status;
}

static motet_status read_times(mt_arena *arena, const char *path, int64_t count, motet_error *error, double **start,
                               double **finish) {
  json_error_t fault;
  json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &fault);
  if (root == NULL) {
    motet_status status = mt_error_set(error, MOTET_ERROR_PARSE, "%s: %s", path, fault.text);
    mt_error_place(error, path, fault.line);
    return status;
  }
  motet_status status = take_times(arena, root, "start", count, path, error, start);
  if (status == MOTET_OK) status = take_times(arena, root, "finish", count, path, error, finish);
  for (int64_t i = 0; i < count && status == MOTET_OK; i++)
    if ((*finish)[i] < (*start)[i]) {
      status = mt_error_set(error, MOTET_ERROR_PARSE, "%s: instruction %" PRId64 " ends before it begins", path, i);
      mt_error_place(error, path, 0);
    }
  json_decref(root);
  return status;
}

motet_status mt_run_timeline_read(mt_arena *arena, const char *path, int64_t step, motet_error *error,
                                  mt_run_timeline *timeline) {
  *timeline = (mt_run_timeline){0};
  const char *folder = mt_arena_format(arena, "%s/timeline", path);
  if (folder == NULL) return mt_error_memory(error, strlen(path), "a path");
  mt_text steps = {0};
  int64_t newest;
  motet_status status = list_steps(folder, error, &newest, &steps);
  if (status == MOTET_OK && newest == 0)
    status = mt_error_set(error, MOTET_ERROR_IO, "%s has no timeline of a step yet", folder);
  timeline->step = step > 0 ? step : newest;
  const char *program = mt_arena_format(arena, "%s/step-%" PRId64 ".program.json", folder, timeline->step);
  const char *times = mt_arena_format(arena, "%s/step-%" PRId64 ".times.json", folder, timeline->step);
  const char *flops = mt_arena_format(arena, "%s/step-%" PRId64 ".flops.json", folder, timeline->step);
  const char *simulated = mt_arena_format(arena, "%s/step-%" PRId64 ".simulated.json", folder, timeline->step);
  if (status == MOTET_OK && (program == NULL || times == NULL || simulated == NULL || flops == NULL))
    status = mt_error_memory(error, strlen(path), "a path");
  struct stat information;
  if (status == MOTET_OK && stat(times, &information) != 0)
    status = mt_error_set(error, MOTET_ERROR_IO, "step %" PRId64 " of %s has no timeline; steps that have one: %s",
                          timeline->step, path, steps.data);
  mt_text_free(&steps);
  if (status == MOTET_OK) status = motet_program_read(program, error, &timeline->program);
  int64_t count = status == MOTET_OK ? timeline->program->rank_begin[timeline->program->ranks] : 0;
  if (status == MOTET_OK) status = read_times(arena, times, count, error, &timeline->start, &timeline->finish);
  if (status == MOTET_OK && stat(simulated, &information) == 0)
    status = read_times(arena, simulated, count, error, &timeline->simulated_start, &timeline->simulated_finish);
  if (status == MOTET_OK && stat(flops, &information) == 0)
    status = mt_flops_read(arena, flops, timeline->program, error, &timeline->flops);
  if (status != MOTET_OK) {
    motet_program_destroy(timeline->program);
    timeline->program = NULL;
  }
  return status;
}
