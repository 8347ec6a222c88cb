#include "train/checkpoint.h"

#include "base/array.h"
#include "base/digest.h"
#include "base/text.h"
#include "tensor/safetensors.h"
#include "train/checkpoint_record.h"
#include "train/job.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_SIZE = 1024 };

/** A path that fits, or an error. */
static motet_status MT_PRINTF(3, 4) compose(char path[PATH_SIZE], motet_error *error, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(path, PATH_SIZE, format, arguments);
  va_end(arguments);
  if (length >= 0 && length < PATH_SIZE) return MOTET_OK;
  return mt_error_set(error, MOTET_ERROR_LIMIT, "a checkpoint's path is longer than %d characters", PATH_SIZE - 1);
}

static motet_status sync_directory(const char *path, motet_error *error) {
  int directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  bool good = directory >= 0 && fsync(directory) == 0;
  motet_status status = good ? MOTET_OK : mt_error_system(error, "the directory cannot be synced", path);
  if (directory >= 0) close(directory);
  return status;
}

/** Removes a directory of plain files; what is not there is no error. A link to one stays, with all that it leads
 * to: that is somebody else's. */
static void remove_directory(const char *path) {
  const int opened = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  DIR *directory = opened >= 0 ? fdopendir(opened) : NULL;
  if (directory == NULL) {
    if (opened >= 0) close(opened);
    return;
  }
  for (struct dirent *entry = readdir(directory); entry != NULL; entry = readdir(directory)) {
    char file[PATH_SIZE];
    if (compose(file, NULL, "%s/%s", path, entry->d_name) == MOTET_OK) unlink(file);
  }
  closedir(directory);
  rmdir(path);
}

/** Step of a checkpoint directory's name, -1 for other names. */
static int64_t step_of(const char *name) {
  if (strncmp(name, "step-", 5) != 0 || name[5] < '0' || name[5] > '9') return -1;
  char *end;
  errno = 0;
  long long step = strtoll(name + 5, &end, 10);
  return *end == 0 && errno == 0 ? step : -1;
}

typedef MT_ARRAY(int64_t) step_array;

static int newest_first(const void *left, const void *right) {
  int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
  return (a < b) - (a > b);
}

/** The steps that have a checkpoint, newest first. */
static motet_status list_steps(const char *checkpoints, motet_error *error, step_array *steps) {
  DIR *directory = opendir(checkpoints);
  if (directory == NULL)
    return errno == ENOENT ? MOTET_OK : mt_error_system(error, "the directory cannot be read", checkpoints);
  bool good = true;
  for (struct dirent *entry = readdir(directory); entry != NULL && good; entry = readdir(directory)) {
    int64_t step = step_of(entry->d_name);
    if (step >= 0) good = MT_ARRAY_PUSH(steps, step);
  }
  closedir(directory);
  if (!good) return mt_error_memory(error, steps->count * sizeof(int64_t), "the list of checkpoints");
  if (steps->count > 1) qsort(steps->data, steps->count, sizeof *steps->data, newest_first);
  return MOTET_OK;
}

static motet_status copy_file(const char *from, const char *directory, const char *name, motet_error *error) {
  char *data, to[PATH_SIZE];
  size_t bytes;
  motet_status status = mt_file_read(from, error, &data, &bytes);
  if (status != MOTET_OK) return status;
  status = compose(to, error, "%s/%s", directory, name);
  if (status == MOTET_OK) status = mt_file_write(to, data, bytes, error);
  free(data);
  return status;
}

static motet_status write_state(const mt_checkpoint_state *state, const char *directory, motet_error *error) {
  char path[PATH_SIZE], digest[MT_DIGEST_TEXT_SIZE];
  mt_digest_print(state->data_digest, digest);
  motet_status status = compose(path, error, "%s/trainer.json", directory);
  if (status != MOTET_OK) return status;
  mt_text text = {0};
  mt_text_append(&text,
                 "{\"format\": \"" MT_CHECKPOINT_FORMAT "\", \"step\": %" PRId64 ", \"seed\": %" PRId64
                 ", \"global_batch\": %" PRId64 ", \"rows\": %" PRId64
                 ", \"data_digest\": \"%s\", \"moments_from\": {",
                 state->step, state->seed, state->global_batch, state->rows, digest);
  const char *between = "";
  for (int j = 0; j < MT_NETWORK_MODULES; j++) {
    if (state->moments_from[j] < 0) continue;
    mt_text_append(&text, "%s\"%s\": %" PRId64, between, mt_job_modules[j], state->moments_from[j]);
    between = ", ";
  }
  mt_text_append(&text, "}}\n");
  status = text.failed ? mt_error_memory(error, text.length, "the trainer's state")
                       : mt_file_write(path, text.data, text.length, error);
  mt_text_free(&text);
  return status;
}

/** Keeps the newest of the run up to @p newest, which is whole. Later ones were passed over or left behind by who
 * went on from an earlier step: they push nothing out. */
static motet_status prune(const char *checkpoints, int64_t newest, int64_t keep, motet_error *error) {
  step_array steps = {0};
  motet_status status = list_steps(checkpoints, error, &steps);
  int64_t kept = 0;
  for (size_t i = 0; i < steps.count && status == MOTET_OK; i++) {
    char path[PATH_SIZE];
    if (steps.data[i] > newest || kept++ < keep) continue;
    status = compose(path, error, "%s/step-%" PRId64, checkpoints, steps.data[i]);
    if (status == MOTET_OK) remove_directory(path);
  }
  free(steps.data);
  return status;
}

/** What rank 0 does before the others write. */
static motet_status begin(const mt_checkpoint_writer *writer, const char *checkpoints, const char *temporary,
                          motet_error *error) {
  motet_status status = mt_directory_make(writer->output_dir, error);
  if (status == MOTET_OK) status = mt_directory_make(checkpoints, error);
  if (status != MOTET_OK) return status;
  remove_directory(temporary);
  status = mt_directory_make(temporary, error);
  if (status == MOTET_OK) status = copy_file(writer->config_path, temporary, "config.json", error);
  return status == MOTET_OK ? copy_file(writer->tokenizer_path, temporary, "tokenizer.json", error) : status;
}

/** What rank 0 does once all parts are there. */
static motet_status finish(const mt_checkpoint_writer *writer, const mt_checkpoint_state *state, const double *sums,
                           const char *checkpoints, const char *temporary, motet_error *error) {
  char final[PATH_SIZE];
  motet_status status = compose(final, error, "%s/step-%" PRId64, checkpoints, state->step);
  if (status == MOTET_OK) status = mt_weights_index(&writer->owners, temporary, error);
  if (status == MOTET_OK) status = write_state(state, temporary, error);
  if (status == MOTET_OK) status = mt_checkpoint_record_write(&writer->owners, sums, temporary, error);
  if (status == MOTET_OK) status = sync_directory(temporary, error);
  if (status != MOTET_OK) return status;
  remove_directory(final); /* the same step again, after a resume from an older one */
  if (rename(temporary, final) != 0) {
    char what[160];
    snprintf(what, sizeof what,
             "the checkpoint, which lies whole beside it as .step-%" PRId64
             ".partial, cannot be renamed into place",
             state->step);
    return mt_error_system(error, what, final);
  }
  status = sync_directory(checkpoints, error);
  return status == MOTET_OK ? prune(checkpoints, state->step, writer->keep, error) : status;
}

motet_status mt_checkpoint_save(const mt_checkpoint_writer *writer, const mt_checkpoint_state *state,
                                motet_error *error) {
  char checkpoints[PATH_SIZE], temporary[PATH_SIZE + 64];
  int32_t rank = writer->transport->rank;
  if (snprintf(checkpoints, sizeof checkpoints, "%s/checkpoints", writer->output_dir) >=
      (int)sizeof checkpoints - 64)
    return mt_error_set(error, MOTET_ERROR_LIMIT, "output_dir is too long a path");
  snprintf(temporary, sizeof temporary, "%s/.step-%" PRId64 ".partial", checkpoints, state->step);
  const int64_t sum_count = mt_weights_sum_count(&writer->owners);
  mt_collective_scratch scratch = {0};
  double *sums = calloc((size_t)sum_count, sizeof *sums);
  if (sums == NULL) return mt_error_memory(error, (size_t)sum_count * sizeof *sums, "the checkpoint's checksums");
  motet_status status = rank == 0 ? begin(writer, checkpoints, temporary, error) : MOTET_OK;
  if (status == MOTET_OK) status = mt_barrier(writer->transport, &writer->everyone, error);
  if (status == MOTET_OK) status = mt_weights_save(writer->network, &writer->owners, rank, temporary, error, sums);
  if (status == MOTET_OK) status = mt_moments_save(writer->network, &writer->owners, rank, temporary, error, sums);
  /* Nobody has the sum before all have written. */
  if (status == MOTET_OK)
    status = mt_all_reduce_doubles(writer->transport, &writer->everyone, sums, (size_t)sum_count, &scratch, error);
  if (status == MOTET_OK && rank == 0) status = finish(writer, state, sums, checkpoints, temporary, error);
  if (status == MOTET_OK) status = mt_barrier(writer->transport, &writer->everyone, error);
  mt_collective_scratch_free(&scratch);
  free(sums);
  return status;
}

static motet_status read_whole_number(const json_t *root, const char *path, const char *key, motet_error *error,
                                      int64_t *number) {
  const json_t *value = json_object_get(root, key);
  if (json_is_integer(value) && json_integer_value(value) >= 0) {
    *number = json_integer_value(value);
    return MOTET_OK;
  }
  mt_error_set(error, MOTET_ERROR_PARSE, "the trainer's state has no '%s' that is a whole number >= 0", key);
  mt_error_place(error, path, 0);
  mt_error_key(error, key);
  return MOTET_ERROR_PARSE;
}

motet_status mt_checkpoint_read_state(const char *directory, motet_error *error, mt_checkpoint_state *state) {
  char path[PATH_SIZE], *text;
  size_t bytes;
  motet_status status = compose(path, error, "%s/trainer.json", directory);
  if (status == MOTET_OK) status = mt_file_read(path, error, &text, &bytes);
  if (status != MOTET_OK) return status;
  json_error_t problem;
  json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &problem);
  free(text);
  if (root == NULL) {
    mt_error_set(error, MOTET_ERROR_PARSE, "this is not JSON: %s", problem.text);
    mt_error_place(error, path, problem.line);
    return MOTET_ERROR_PARSE;
  }
  *state = (mt_checkpoint_state){0};
  status = read_whole_number(root, path, "step", error, &state->step);
  if (status == MOTET_OK) status = read_whole_number(root, path, "seed", error, &state->seed);
  if (status == MOTET_OK) status = read_whole_number(root, path, "global_batch", error, &state->global_batch);
  if (status == MOTET_OK) status = read_whole_number(root, path, "rows", error, &state->rows);
  const char *digest = json_string_value(json_object_get(root, "data_digest"));
  if (digest != NULL) state->data_digest = strtoull(digest, NULL, 16);
  const char *format = json_string_value(json_object_get(root, "format"));
  state->has_record = format != NULL && strcmp(format, MT_CHECKPOINT_FORMAT) == 0;
  /* A checkpoint that does not say so has moments of all that trained, from the first step. */
  const json_t *moments = json_object_get(root, "moments_from");
  for (int j = 0; j < MT_NETWORK_MODULES; j++) {
    const json_t *from = json_object_get(moments, mt_job_modules[j]);
    bool good = json_is_integer(from) && json_integer_value(from) >= 0 && json_integer_value(from) <= state->step;
    state->moments_from[j] = moments == NULL ? 0 : good ? json_integer_value(from) : -1;
  }
  json_decref(root);
  return status;
}

/** Whether the headers and sizes of the file, or of all that an index names, are in order. */
static motet_status check_headers(const char *path, motet_error *error) {
  mt_safetensors *tensors = NULL;
  motet_status status = mt_safetensors_open(path, error, &tensors);
  if (status == MOTET_OK) mt_safetensors_close(tensors);
  return status;
}

motet_status mt_checkpoint_check(const char *directory, bool moments, int32_t part, int32_t parts,
                                 motet_error *error) {
  char path[PATH_SIZE];
  mt_checkpoint_state state;
  motet_status status = compose(path, error, "%s/optimizer.safetensors.index.json", directory);
  if (status == MOTET_OK) status = mt_checkpoint_read_state(directory, error, &state);
  if (status != MOTET_OK) return status;
  /* Users may edit the config, and it has no sum; without one nothing can be made of the weights. */
  char config[PATH_SIZE];
  status = compose(config, error, "%s/config.json", directory);
  if (status == MOTET_OK && access(config, R_OK) != 0)
    status = mt_error_system(error, "the model's config cannot be read", config);
  if (status != MOTET_OK) return status;
  /* A changed name of the format must not pass for a checkpoint without a record. */
  char record[PATH_SIZE];
  status = compose(record, error, "%s/checksums.json", directory);
  if (status == MOTET_OK && (state.has_record || access(record, F_OK) == 0))
    return mt_checkpoint_record_check(directory, moments, part, parts, error);
  if (status == MOTET_OK) status = check_headers(directory, error);
  if (access(path, F_OK) != 0) snprintf(path, sizeof path, "%s/optimizer.safetensors", directory);
  /* Where nothing trains there is none. */
  return status == MOTET_OK && moments && access(path, F_OK) == 0 ? check_headers(path, error) : status;
}

motet_status mt_checkpoint_newest(const char *output_dir, int64_t before, mt_arena *arena, motet_error *error,
                                  const char **path, int64_t *step) {
  *path = NULL;
  const char *checkpoints = mt_arena_format(arena, "%s/checkpoints", output_dir);
  if (checkpoints == NULL) return mt_error_memory(error, strlen(output_dir), "a path");
  step_array steps = {0};
  motet_status status = list_steps(checkpoints, error, &steps);
  for (size_t i = 0; i < steps.count && status == MOTET_OK && *path == NULL; i++) {
    if (steps.data[i] >= before) continue;
    *step = steps.data[i];
    *path = mt_arena_format(arena, "%s/step-%" PRId64, checkpoints, *step);
    if (*path == NULL) status = mt_error_memory(error, strlen(output_dir), "a path");
  }
  free(steps.data);
  return status;
}

motet_status mt_checkpoint_load(mt_network *network, const mt_internvl *config, const mt_checkpoint_state *state,
                                const char *path, motet_error *error) {
  bool modules[MT_NETWORK_MODULES];
  for (int j = 0; j < MT_NETWORK_MODULES; j++) modules[j] = state->moments_from[j] >= 0;
  motet_status status = mt_weights_load(network, path, error);
  return status == MOTET_OK ? mt_moments_load(network, config, modules, path, error) : status;
}
