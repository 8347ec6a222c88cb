#include "train/checkpoint_record.h"

#include "base/digest.h"
#include "tensor/safetensors.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_SIZE = 1024 };

/* A checkpoint of one part has no indexes. */
static const char *const small_files[] = {"trainer.json", "model.safetensors.index.json",
                                          "optimizer.safetensors.index.json"};
enum { SMALL_FILES = sizeof small_files / sizeof *small_files };

/** The path of a file in the checkpoint; callers have made sure that all of them fit. */
static void place(const char *directory, const char *name, char path[PATH_SIZE]) {
  snprintf(path, PATH_SIZE, "%s/%s", directory, name);
}

static motet_status damaged(motet_error *error, const char *file, const char *key) {
  mt_error_place(error, file, 0);
  if (key != NULL) mt_error_key(error, key);
  return MOTET_ERROR_PARSE;
}

static motet_status digest_file(const char *path, motet_error *error, char digest[MT_DIGEST_TEXT_SIZE]) {
  char *data;
  size_t bytes;
  motet_status status = mt_file_read(path, error, &data, &bytes);
  if (status != MOTET_OK) return status;
  mt_digest_print(mt_digest_of(data, bytes), digest);
  free(data);
  return MOTET_OK;
}

motet_status mt_checkpoint_record_write(const mt_weights_owners *owners, const double *sums, const char *directory,
                                        motet_error *error) {
  char path[PATH_SIZE], digest[MT_DIGEST_TEXT_SIZE];
  mt_text text = {0};
  motet_status status = MOTET_OK;
  const char *between = "";
  mt_text_append(&text, "{\n  \"format\": \"motet-checksums-1\",\n  \"files\": {");
  for (int i = 0; i < SMALL_FILES && status == MOTET_OK; i++) {
    place(directory, small_files[i], path);
    if (access(path, F_OK) != 0) continue;
    status = digest_file(path, error, digest);
    mt_text_append(&text, "%s\n    \"%s\": \"%s\"", between, small_files[i], digest);
    between = ",";
  }
  mt_text_append(&text, "\n  },\n  \"tensors\": {");
  if (status == MOTET_OK) status = mt_weights_sums_print(owners, sums, error, &text);
  mt_text_append(&text, "\n  }\n}\n");
  place(directory, "checksums.json", path);
  if (status == MOTET_OK)
    status = text.failed ? mt_error_memory(error, text.length, "the checkpoint's checksums")
                         : mt_file_write(path, text.data, text.length, error);
  mt_text_free(&text);
  return status;
}

static motet_status check_files(const json_t *record, const char *directory, motet_error *error) {
  const json_t *files = json_object_get(record, "files");
  for (int i = 0; i < SMALL_FILES; i++) {
    char path[PATH_SIZE], digest[MT_DIGEST_TEXT_SIZE];
    const char *wanted = json_string_value(json_object_get(files, small_files[i]));
    place(directory, small_files[i], path);
    if (wanted == NULL && access(path, F_OK) != 0) continue;
    motet_status status = digest_file(path, error, digest);
    if (status != MOTET_OK) return status;
    if (wanted != NULL && strcmp(wanted, digest) == 0) continue;
    mt_error_set(error, MOTET_ERROR_PARSE, "%s is damaged: its checksum is %s, checksums.json says %s", path,
                 digest, wanted != NULL ? wanted : "nothing of it");
    return damaged(error, path, NULL);
  }
  return MOTET_OK;
}

static motet_status check_tensor(const json_t *tensors, const mt_safetensor *tensor, motet_error *error) {
  char digest[MT_DIGEST_TEXT_SIZE];
  const char *wanted = json_string_value(json_object_get(tensors, tensor->name));
  mt_digest_print(mt_digest_of(tensor->data, tensor->bytes), digest);
  if (wanted != NULL && strcmp(wanted, digest) == 0) return MOTET_OK;
  mt_error_set(error, MOTET_ERROR_PARSE,
               "tensor %s in %s is damaged: the checksum of its bytes is %s, checksums.json says %s", tensor->name,
               tensor->file, digest, wanted != NULL ? wanted : "nothing of it");
  return damaged(error, tensor->file, tensor->name);
}

/** Part of the tensors of the weights or of the moments; @p count grows by all of them. */
static motet_status check_tensors(const json_t *record, const char *path, int32_t part, int32_t parts,
                                  motet_error *error, int64_t *count) {
  mt_safetensors *tensors;
  motet_status status = mt_safetensors_open(path, error, &tensors);
  if (status != MOTET_OK) return status;
  const json_t *sums = json_object_get(record, "tensors");
  *count += mt_safetensors_count(tensors);
  for (int64_t i = part; i < mt_safetensors_count(tensors) && status == MOTET_OK; i += parts)
    status = check_tensor(sums, mt_safetensors_at(tensors, i), error);
  mt_safetensors_close(tensors);
  return status;
}

static motet_status read_record(const char *path, motet_error *error, json_t **record) {
  char *text;
  size_t bytes;
  motet_status status = mt_file_read(path, error, &text, &bytes);
  if (status != MOTET_OK) return status;
  json_error_t problem;
  *record = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &problem);
  free(text);
  if (*record != NULL) return MOTET_OK;
  mt_error_set(error, MOTET_ERROR_PARSE, "%s is not JSON: %s", path, problem.text);
  return damaged(error, path, NULL);
}

motet_status mt_checkpoint_record_check(const char *directory, bool moments, int32_t part, int32_t parts,
                                        motet_error *error) {
  char path[PATH_SIZE];
  json_t *record;
  place(directory, "checksums.json", path);
  motet_status status = read_record(path, error, &record);
  if (status != MOTET_OK) return status;
  status = check_files(record, directory, error);
  int64_t count = 0, wanted = (int64_t)json_object_size(json_object_get(record, "tensors"));
  if (status == MOTET_OK) status = check_tensors(record, directory, part, parts, error, &count);
  place(directory, "optimizer.safetensors.index.json", path);
  if (access(path, F_OK) != 0) place(directory, "optimizer.safetensors", path);
  if (status == MOTET_OK && moments && access(path, F_OK) == 0)
    status = check_tensors(record, path, part, parts, error, &count);
  if (status == MOTET_OK && moments && count != wanted) {
    mt_error_set(error, MOTET_ERROR_PARSE,
                 "%s is damaged: its files hold %" PRId64 " tensors, its checksums.json has %" PRId64, directory,
                 count, wanted);
    status = damaged(error, directory, NULL);
  }
  json_decref(record);
  return status;
}
