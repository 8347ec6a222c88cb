#include "base/array.h"
#include "base/text.h"
#include "tensor/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PIECE_FLOATS = 4096, HEADER_ALIGNMENT = 8 };

typedef struct extent {
  uint64_t end; /* bytes of data up to and with this entry */
  mt_dtype dtype;
} extent;

struct mt_safetensors_writer {
  char *path, *temporary;
  int descriptor;   /* -1 once closed */
  bool leftover;    /* the temporary file exists */
  uint64_t written; /* data bytes so far */
  int64_t count, current;
  extent extents[];
};

static motet_status system_error(motet_error *error, const char *what, const char *path) {
  motet_status status = mt_error_set(error, MOTET_ERROR_IO, "cannot %s %s: %s", what, path, strerror(errno));
  mt_error_place(error, path, 0);
  return status;
}

static motet_status write_all(mt_safetensors_writer *writer, const void *data, size_t bytes, motet_error *error) {
  const char *next = data;
  while (bytes > 0) {
    ssize_t put = write(writer->descriptor, next, bytes);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return system_error(error, "write", writer->temporary);
    next += put;
    bytes -= (size_t)put;
  }
  return MOTET_OK;
}

static bool entry_bytes(const mt_safetensors_entry *entry, uint64_t *bytes) {
  uint64_t product = mt_dtype_bytes(entry->dtype);
  if (entry->dims < 0 || entry->dims > MT_SAFETENSORS_MAX_DIMS) return false;
  for (int32_t i = 0; i < entry->dims; i++)
    if (entry->shape[i] < 0 || __builtin_mul_overflow(product, (uint64_t)entry->shape[i], &product)) return false;
  *bytes = product;
  return product <= INT64_MAX;
}

static json_t *entry_json(const mt_safetensors_entry *entry, uint64_t begin, uint64_t end) {
  json_t *shape = json_array();
  for (int32_t i = 0; i < entry->dims; i++) json_array_append_new(shape, json_integer(entry->shape[i]));
  return json_pack("{s:s, s:o, s:[I, I]}", "dtype", mt_dtype_name(entry->dtype), "shape", shape, "data_offsets",
                   (json_int_t)begin, (json_int_t)end);
}

static motet_status build_header(mt_safetensors_writer *writer, const mt_safetensors_entry *entries,
                                 motet_error *error, json_t *header) {
  uint64_t offset = 0;
  if (json_object_set_new(header, "__metadata__", json_pack("{s:s}", "format", "pt")) != 0)
    return mt_error_memory(error, 0, "a safetensors header");
  for (int64_t i = 0; i < writer->count; i++) {
    uint64_t bytes, end;
    if (!entry_bytes(&entries[i], &bytes) || __builtin_add_overflow(offset, bytes, &end) || end > INT64_MAX) {
      motet_status status =
          mt_error_set(error, MOTET_ERROR_LIMIT, "the shape of tensor %s cannot be stored", entries[i].name);
      mt_error_key(error, entries[i].name);
      return status;
    }
    if (json_object_get(header, entries[i].name) != NULL) {
      motet_status status = mt_error_set(error, MOTET_ERROR_ARGUMENT, "two tensors are called %s", entries[i].name);
      mt_error_key(error, entries[i].name);
      return status;
    }
    if (json_object_set_new(header, entries[i].name, entry_json(&entries[i], offset, end)) != 0) {
      motet_status status =
          mt_error_set(error, MOTET_ERROR_ARGUMENT, "the name of tensor %" PRId64 " is not UTF-8", i);
      return status;
    }
    offset = end;
    writer->extents[i] = (extent){.end = end, .dtype = entries[i].dtype};
  }
  return MOTET_OK;
}

static motet_status write_header(mt_safetensors_writer *writer, const mt_safetensors_entry *entries,
                                 motet_error *error) {
  json_t *header = json_object();
  if (header == NULL) return mt_error_memory(error, 0, "a safetensors header");
  motet_status status = build_header(writer, entries, error, header);
  char *text = status == MOTET_OK ? json_dumps(header, JSON_COMPACT) : NULL;
  json_decref(header);
  if (status != MOTET_OK) return status;
  if (text == NULL) return mt_error_memory(error, 0, "a safetensors header");
  /* Spaces behind the header, so that the data start at a multiple of eight bytes. */
  static const char spaces[HEADER_ALIGNMENT] = "        ";
  size_t length = strlen(text), padding = (HEADER_ALIGNMENT - length % HEADER_ALIGNMENT) % HEADER_ALIGNMENT;
  unsigned char prefix[8];
  for (int i = 0; i < 8; i++) prefix[i] = (unsigned char)((uint64_t)(length + padding) >> (8 * i));
  status = write_all(writer, prefix, sizeof prefix, error);
  if (status == MOTET_OK) status = write_all(writer, text, length, error);
  if (status == MOTET_OK) status = write_all(writer, spaces, padding, error);
  free(text);
  return status;
}

/* Entries without bytes are complete as soon as they are reached. */
static void advance(mt_safetensors_writer *writer) {
  while (writer->current < writer->count && writer->written == writer->extents[writer->current].end)
    writer->current++;
}

motet_status mt_safetensors_writer_create(const char *path, const mt_safetensors_entry *entries, int64_t count,
                                          motet_error *error, mt_safetensors_writer **writer) {
  *writer = NULL;
  size_t bytes;
  if (count < 0 || __builtin_mul_overflow((size_t)count, sizeof(extent), &bytes) ||
      __builtin_add_overflow(bytes, sizeof(mt_safetensors_writer), &bytes))
    return mt_error_set(error, MOTET_ERROR_LIMIT, "%" PRId64 " tensors in one file", count);
  mt_safetensors_writer *made = calloc(1, bytes);
  if (made == NULL) return mt_error_memory(error, bytes, path);
  made->descriptor = -1;
  made->count = count;
  mt_text temporary = {0};
  mt_text_append(&temporary, "%s.part", path);
  made->temporary = temporary.data;
  made->path = strdup(path);
  motet_status status = MOTET_OK;
  if (temporary.failed || made->path == NULL) {
    status = mt_error_memory(error, strlen(path), "a file name");
    goto fail;
  }
  made->descriptor = open(made->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (made->descriptor < 0) {
    status = system_error(error, "create", made->temporary);
    goto fail;
  }
  made->leftover = true;
  status = write_header(made, entries, error);
  if (status != MOTET_OK) goto fail;
  advance(made);
  *writer = made;
  return MOTET_OK;
fail:
  mt_error_place(error, path, 0);
  mt_safetensors_writer_destroy(made);
  return status;
}

motet_status mt_safetensors_writer_bytes(mt_safetensors_writer *writer, const void *data, size_t bytes,
                                         motet_error *error) {
  uint64_t total = writer->count == 0 ? 0 : writer->extents[writer->count - 1].end;
  if (bytes > total - writer->written) {
    motet_status status =
        mt_error_set(error, MOTET_ERROR_ARGUMENT, "%zu bytes more than the %" PRIu64 " that the tensors of %s take",
                     bytes - (size_t)(total - writer->written), total, writer->path);
    mt_error_place(error, writer->path, 0);
    return status;
  }
  motet_status status = write_all(writer, data, bytes, error);
  if (status != MOTET_OK) return status;
  writer->written += bytes;
  while (writer->current < writer->count && writer->written >= writer->extents[writer->current].end)
    writer->current++;
  return MOTET_OK;
}

motet_status mt_safetensors_writer_floats(mt_safetensors_writer *writer, const float *floats, int64_t count,
                                          motet_error *error) {
  if (count == 0) return MOTET_OK;
  const extent *place = writer->current < writer->count ? &writer->extents[writer->current] : NULL;
  if (count < 0 || place == NULL ||
      (uint64_t)count > (place->end - writer->written) / mt_dtype_bytes(place->dtype)) {
    motet_status status = mt_error_set(error, MOTET_ERROR_ARGUMENT,
                                       "%" PRId64 " elements run past the end of tensor %" PRId64 " of %s", count,
                                       writer->current, writer->path);
    mt_error_place(error, writer->path, 0);
    return status;
  }
  mt_dtype dtype = place->dtype;
  if (dtype == MT_DTYPE_F32)
    return mt_safetensors_writer_bytes(writer, floats, (size_t)count * sizeof *floats, error);
  unsigned char piece[PIECE_FLOATS * 2];
  while (count > 0) {
    size_t part = count < PIECE_FLOATS ? (size_t)count : PIECE_FLOATS;
    if (!mt_dtype_from_floats(dtype, floats, part, piece))
      return mt_error_set(error, MOTET_ERROR_UNSUPPORTED, "float32 values cannot be stored as %s",
                          mt_dtype_name(dtype));
    motet_status status = mt_safetensors_writer_bytes(writer, piece, part * mt_dtype_bytes(dtype), error);
    if (status != MOTET_OK) return status;
    floats += part;
    count -= (int64_t)part;
  }
  return MOTET_OK;
}

/* A rename is durable once the directory is synced. */
static bool sync_directory(const char *path) {
  const char *slash = strrchr(path, '/');
  char *directory = slash == NULL ? strdup(".") : strndup(path, slash == path ? 1 : (size_t)(slash - path));
  int descriptor = directory == NULL ? -1 : open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  free(directory);
  if (descriptor < 0) return false;
  bool good = fsync(descriptor) == 0;
  return close(descriptor) == 0 && good;
}

motet_status mt_safetensors_writer_finish(mt_safetensors_writer *writer, motet_error *error) {
  if (writer->current < writer->count) {
    motet_status status = mt_error_set(error, MOTET_ERROR_ARGUMENT,
                                       "%s is incomplete: tensor %" PRId64 " of %" PRId64 " ends at byte %" PRIu64
                                       ", %" PRIu64 " bytes were given",
                                       writer->path, writer->current, writer->count,
                                       writer->extents[writer->current].end, writer->written);
    mt_error_place(error, writer->path, 0);
    return status;
  }
  bool good = fsync(writer->descriptor) == 0;
  good = close(writer->descriptor) == 0 && good;
  writer->descriptor = -1;
  if (!good) return system_error(error, "write", writer->temporary);
  if (rename(writer->temporary, writer->path) != 0) return system_error(error, "rename into place", writer->path);
  writer->leftover = false;
  return sync_directory(writer->path) ? MOTET_OK : system_error(error, "sync the directory of", writer->path);
}

void mt_safetensors_writer_destroy(mt_safetensors_writer *writer) {
  if (writer == NULL) return;
  if (writer->descriptor >= 0) close(writer->descriptor);
  if (writer->leftover) unlink(writer->temporary);
  free(writer->temporary);
  free(writer->path);
  free(writer);
}

motet_status mt_safetensors_index_write(const char *path, const mt_safetensors_location *locations, int64_t count,
                                        uint64_t total_bytes, motet_error *error) {
  json_t *map = json_object(), *root = NULL;
  char *text = NULL;
  motet_status status = MOTET_OK;
  for (int64_t i = 0; i < count && status == MOTET_OK; i++) {
    const char *name = locations[i].name;
    if (json_object_get(map, name) != NULL) {
      status = mt_error_set(error, MOTET_ERROR_ARGUMENT, "two tensors are called %s", name);
      mt_error_key(error, name);
    } else if (json_object_set_new(map, name, json_string(locations[i].file)) != 0) {
      status = mt_error_memory(error, strlen(name), "a safetensors index");
    }
  }
  if (status == MOTET_OK) {
    root = json_pack("{s:{s:I}, s:O}", "metadata", "total_size", (json_int_t)total_bytes, "weight_map", map);
    text = root == NULL ? NULL : json_dumps(root, JSON_INDENT(2));
    status = text == NULL ? mt_error_memory(error, 0, "a safetensors index")
                          : mt_file_write(path, text, strlen(text), error);
  }
  free(text);
  json_decref(root);
  json_decref(map);
  return status;
}
