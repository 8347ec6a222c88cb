#include "tensor/safetensors.h"

#include "base/arena.h"
#include "base/array.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* The limit that the format's own library sets on headers. */
enum { MAX_HEADER_BYTES = 100 * 1000 * 1000, LENGTH_BYTES = 8 };

typedef struct mapping {
  void *data;
  size_t bytes;
} mapping;

struct mt_safetensors {
  mt_arena *arena; /* names and paths */
  const char *path;
  MT_ARRAY(mapping) mappings;
  MT_ARRAY(mt_safetensor) tensors; /* by name once open */
};

static motet_status refuse(motet_error *error, const char *file, const char *tensor, motet_status status) {
  mt_error_place(error, file, 0);
  if (tensor != NULL) mt_error_key(error, tensor);
  return status;
}

/* malformed(error, file, tensor or NULL, format, ...) */
#define malformed(error, file, tensor, ...)                                                                        \
  refuse((error), (file), (tensor), mt_error_set((error), MOTET_ERROR_PARSE, __VA_ARGS__))

static int compare_names(const void *left, const void *right) {
  return strcmp(((const mt_safetensor *)left)->name, ((const mt_safetensor *)right)->name);
}

static int compare_places(const void *left, const void *right) {
  const mt_safetensor *a = *(const mt_safetensor *const *)left, *b = *(const mt_safetensor *const *)right;
  const unsigned char *start = a->data, *other = b->data;
  if (start != other) return start < other ? -1 : 1;
  if (a->bytes != b->bytes) return a->bytes < b->bytes ? -1 : 1;
  return strcmp(a->name, b->name);
}

static motet_status read_shape(const json_t *shape, const char *file, const char *name, motet_error *error,
                               mt_safetensor *tensor) {
  if (!json_is_array(shape))
    return malformed(error, file, name, "tensor %s in %s has no list \"shape\"", name, file);
  if (json_array_size(shape) > MT_SAFETENSORS_MAX_DIMS)
    return malformed(error, file, name, "tensor %s in %s has %zu dimensions; at most %d are supported", name, file,
                     json_array_size(shape), MT_SAFETENSORS_MAX_DIMS);
  tensor->dims = (int32_t)json_array_size(shape);
  tensor->count = 1;
  for (int32_t i = 0; i < tensor->dims; i++) {
    const json_t *extent = json_array_get(shape, (size_t)i);
    if (!json_is_integer(extent) || json_integer_value(extent) < 0)
      return malformed(error, file, name, "tensor %s in %s: dimension %" PRId32 " is not a count", name, file, i);
    tensor->shape[i] = json_integer_value(extent);
    if (__builtin_mul_overflow(tensor->count, tensor->shape[i], &tensor->count))
      return malformed(error, file, name, "tensor %s in %s: the shape's product overflows", name, file);
  }
  return MOTET_OK;
}

/* Reads one header entry; `body` is the data part of the file, of `body_bytes`. */
static motet_status read_entry(const json_t *entry, const char *file, const char *name, const unsigned char *body,
                               size_t body_bytes, motet_error *error, mt_safetensor *tensor) {
  const json_t *dtype = json_object_get(entry, "dtype"), *offsets = json_object_get(entry, "data_offsets");
  if (!json_is_string(dtype))
    return malformed(error, file, name, "tensor %s in %s has no text \"dtype\"", name, file);
  if (!mt_dtype_parse(json_string_value(dtype), &tensor->dtype)) {
    motet_status status = mt_error_set(error, MOTET_ERROR_UNSUPPORTED, "tensor %s in %s has the unknown dtype %s",
                                       name, file, json_string_value(dtype));
    return refuse(error, file, name, status);
  }
  motet_status status = read_shape(json_object_get(entry, "shape"), file, name, error, tensor);
  if (status != MOTET_OK) return status;
  const json_t *first = json_array_get(offsets, 0), *last = json_array_get(offsets, 1);
  if (json_array_size(offsets) != 2 || !json_is_integer(first) || !json_is_integer(last))
    return malformed(error, file, name, "tensor %s in %s: \"data_offsets\" is not a pair of numbers", name, file);
  json_int_t begin = json_integer_value(first), end = json_integer_value(last);
  if (begin < 0 || end < begin || (uintmax_t)end > body_bytes)
    return malformed(error, file, name,
                     "tensor %s in %s: data_offsets [%lld, %lld] do not lie in the file's %zu data bytes", name,
                     file, (long long)begin, (long long)end, body_bytes);
  int64_t wanted;
  if (__builtin_mul_overflow(tensor->count, (int64_t)mt_dtype_bytes(tensor->dtype), &wanted) ||
      wanted != end - begin)
    return malformed(error, file, name,
                     "tensor %s in %s: its shape asks for %" PRId64 " elements of %zu bytes, its data_offsets hold "
                     "%lld bytes",
                     name, file, tensor->count, mt_dtype_bytes(tensor->dtype), (long long)(end - begin));
  tensor->bytes = (size_t)wanted;
  tensor->data = body + begin;
  return MOTET_OK;
}

/* The data part must be covered from its first to its last byte, each byte once. */
static motet_status check_coverage(const mt_safetensor *tensors, size_t count, const char *file,
                                   const unsigned char *body, size_t body_bytes, motet_error *error) {
  const mt_safetensor **places = malloc((count + 1) * sizeof *places);
  if (places == NULL) return mt_error_memory(error, count * sizeof *places, "tensor places");
  for (size_t i = 0; i < count; i++) places[i] = &tensors[i];
  qsort(places, count, sizeof *places, compare_places);
  motet_status status = MOTET_OK;
  const unsigned char *expected = body;
  for (size_t i = 0; i < count && status == MOTET_OK; i++) {
    const unsigned char *begin = places[i]->data;
    const char *name = places[i]->name;
    if (begin < expected)
      status = malformed(error, file, name, "tensor %s in %s overlaps tensor %s", name, file, places[i - 1]->name);
    else if (begin > expected)
      status = malformed(error, file, name, "%s has a hole of %td bytes in front of tensor %s", file,
                         begin - expected, name);
    expected = begin + places[i]->bytes;
  }
  if (status == MOTET_OK && expected != body + body_bytes)
    status = malformed(error, file, NULL, "%s holds %zu data bytes, its header describes %td", file, body_bytes,
                       expected - body);
  free(places);
  return status;
}

static motet_status read_entries(mt_safetensors *tensors, const json_t *header, const char *file,
                                 const unsigned char *body, size_t body_bytes, motet_error *error) {
  size_t before = tensors->tensors.count;
  const char *key;
  json_t *entry;
  json_object_foreach((json_t *)header, key, entry) {
    if (strcmp(key, "__metadata__") == 0) {
      if (!json_is_object(entry))
        return malformed(error, file, key, "__metadata__ of %s is not an object of texts", file);
      continue;
    }
    mt_safetensor tensor = {.name = mt_arena_text(tensors->arena, key), .file = file};
    if (tensor.name == NULL) return mt_error_memory(error, strlen(key) + 1, "a tensor name");
    if (!json_is_object(entry)) return malformed(error, file, key, "tensor %s in %s is not an object", key, file);
    motet_status status = read_entry(entry, file, key, body, body_bytes, error, &tensor);
    if (status != MOTET_OK) return status;
    if (!MT_ARRAY_PUSH(&tensors->tensors, tensor)) return mt_error_memory(error, sizeof tensor, "tensor list");
  }
  size_t count = tensors->tensors.count - before;
  return check_coverage(count > 0 ? tensors->tensors.data + before : NULL, count, file, body, body_bytes, error);
}

/* Appends the tensors of one file that lies in memory; the names are unique within it. */
static motet_status read_file(mt_safetensors *tensors, const unsigned char *data, size_t bytes, const char *file,
                              motet_error *error) {
  if (bytes < LENGTH_BYTES)
    return malformed(error, file, NULL, "%s has %zu bytes; a safetensors file starts with 8 bytes of header length",
                     file, bytes);
  uint64_t length = 0;
  for (int i = LENGTH_BYTES - 1; i >= 0; i--) length = length << 8 | data[i];
  if (length > MAX_HEADER_BYTES)
    return malformed(error, file, NULL, "%s claims a header of %" PRIu64 " bytes; at most %d are allowed", file,
                     length, MAX_HEADER_BYTES);
  if (length > bytes - LENGTH_BYTES)
    return malformed(error, file, NULL, "%s is truncated: a header of %" PRIu64 " bytes in a file of %zu", file,
                     length, bytes);
  if (length == 0 || data[LENGTH_BYTES] != '{')
    return malformed(error, file, NULL, "the header of %s does not start with {", file);
  json_error_t where;
  json_t *header = json_loadb((const char *)data + LENGTH_BYTES, (size_t)length, JSON_REJECT_DUPLICATES, &where);
  if (header == NULL)
    return malformed(error, file, NULL, "the header of %s is not JSON: %s at byte %d", file, where.text,
                     where.position);
  motet_status status = json_is_object(header)
                            ? read_entries(tensors, header, file, data + LENGTH_BYTES + length,
                                           bytes - LENGTH_BYTES - (size_t)length, error)
                            : malformed(error, file, NULL, "the header of %s is not a JSON object", file);
  json_decref(header);
  return status;
}

static motet_status system_error(motet_error *error, const char *what, const char *path) {
  motet_status status = mt_error_set(error, MOTET_ERROR_IO, "cannot %s %s: %s", what, path, strerror(errno));
  mt_error_place(error, path, 0);
  return status;
}

static motet_status map_file(mt_safetensors *tensors, const char *file, motet_error *error) {
  int descriptor = open(file, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* a pipe is refused below, not waited for */
  if (descriptor < 0) return system_error(error, "open", file);
  motet_status status = MOTET_OK;
  struct stat information;
  if (fstat(descriptor, &information) != 0) {
    status = system_error(error, "read", file);
  } else if (!S_ISREG(information.st_mode) || information.st_size < LENGTH_BYTES) {
    status = malformed(error, file, NULL, "%s is not a safetensors file: it has no 8 bytes of header length", file);
  } else {
    mapping mapped = {.bytes = (size_t)information.st_size};
    mapped.data = mmap(NULL, mapped.bytes, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (mapped.data == MAP_FAILED) {
      status = system_error(error, "map", file);
    } else if (!MT_ARRAY_PUSH(&tensors->mappings, mapped)) {
      munmap(mapped.data, mapped.bytes);
      status = mt_error_memory(error, sizeof mapped, "the list of files");
    } else {
      status = read_file(tensors, mapped.data, mapped.bytes, file, error);
    }
  }
  close(descriptor);
  return status;
}

static const mt_safetensor *find_in(const mt_safetensor *tensors, size_t count, const char *name) {
  mt_safetensor key = {.name = name};
  return count == 0 ? NULL : bsearch(&key, tensors, count, sizeof key, compare_names);
}

static void sort_by_name(mt_safetensor *tensors, size_t count) {
  if (count > 1) qsort(tensors, count, sizeof *tensors, compare_names);
}

/* Opens the shard `name` beside the index and keeps of its tensors those which the index places there. */
static motet_status open_shard(mt_safetensors *tensors, const char *index, const char *name, const json_t *map,
                               motet_error *error) {
  if (name[0] == '\0' || strchr(name, '/') != NULL)
    return malformed(error, index, NULL, "%s names the file \"%s\"; a file beside the index was expected", index,
                     name);
  const char *slash = strrchr(index, '/');
  const char *file =
      mt_arena_format(tensors->arena, "%.*s%s", slash == NULL ? 0 : (int)(slash + 1 - index), index, name);
  if (file == NULL) return mt_error_memory(error, strlen(index) + strlen(name), "a file name");
  size_t before = tensors->tensors.count;
  motet_status status = map_file(tensors, file, error);
  if (status != MOTET_OK) return mt_error_context(error, status, "reading the files of %s", index);
  mt_safetensor *own = tensors->tensors.data + before;
  size_t count = tensors->tensors.count - before, kept = 0;
  sort_by_name(own, count);
  const char *key;
  json_t *place;
  json_object_foreach((json_t *)map, key, place) {
    if (strcmp(json_string_value(place), name) != 0) continue;
    if (find_in(own, count, key) == NULL)
      return malformed(error, file, key, "%s has no tensor %s, which %s places there", file, key, index);
  }
  for (size_t i = 0; i < count; i++) {
    const char *home = json_string_value(json_object_get(map, own[i].name));
    if (home != NULL && strcmp(home, name) == 0) own[kept++] = own[i];
  }
  tensors->tensors.count = before + kept;
  return MOTET_OK;
}

static motet_status read_index_map(mt_safetensors *tensors, const char *index, const json_t *map,
                                   motet_error *error) {
  if (!json_is_object(map)) return malformed(error, index, "weight_map", "%s has no object \"weight_map\"", index);
  json_t *opened = json_object();
  if (opened == NULL) return mt_error_memory(error, 0, "the list of files");
  motet_status status = MOTET_OK;
  const char *key;
  json_t *place;
  json_object_foreach((json_t *)map, key, place) if (!json_is_string(place)) {
    status = malformed(error, index, key, "%s: the place of tensor %s is not a file name", index, key);
    break;
  }
  if (status == MOTET_OK) json_object_foreach((json_t *)map, key, place) {
      const char *name = json_string_value(place);
      if (json_object_get(opened, name) != NULL) continue;
      status = open_shard(tensors, index, name, map, error);
      if (status == MOTET_OK && json_object_set_new(opened, name, json_true()) != 0)
        status = mt_error_memory(error, strlen(name), "the list of files");
      if (status != MOTET_OK) break;
    }
  json_decref(opened);
  return status;
}

static motet_status open_index(mt_safetensors *tensors, const char *index, motet_error *error) {
  char *text;
  size_t bytes;
  motet_status status = mt_file_read(index, error, &text, &bytes);
  if (status != MOTET_OK) return status;
  json_error_t where;
  json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &where);
  if (root == NULL) {
    status = malformed(error, index, NULL, "%s is not JSON: %s", index, where.text);
    mt_error_place(error, index, where.line);
  } else {
    status = read_index_map(tensors, index, json_object_get(root, "weight_map"), error);
  }
  json_decref(root);
  free(text);
  return status;
}

static bool ends_with(const char *text, const char *end) {
  size_t length = strlen(text), tail = strlen(end);
  return length >= tail && strcmp(text + length - tail, end) == 0;
}

static motet_status open_directory(mt_safetensors *tensors, const char *directory, motet_error *error) {
  const char *single = mt_arena_format(tensors->arena, "%s/model.safetensors", directory);
  const char *index = mt_arena_format(tensors->arena, "%s/model.safetensors.index.json", directory);
  if (single == NULL || index == NULL) return mt_error_memory(error, strlen(directory), "a file name");
  if (access(single, F_OK) == 0) return map_file(tensors, single, error);
  if (access(index, F_OK) == 0) return open_index(tensors, index, error);
  motet_status status = mt_error_set(
      error, MOTET_ERROR_IO, "%s holds neither model.safetensors nor model.safetensors.index.json", directory);
  mt_error_place(error, directory, 0);
  return status;
}

static motet_status create(const char *path, motet_error *error, mt_safetensors **tensors) {
  mt_safetensors *made = calloc(1, sizeof *made);
  if (made != NULL) made->arena = mt_arena_create();
  if (made != NULL && made->arena != NULL) made->path = mt_arena_text(made->arena, path);
  if (made == NULL || made->path == NULL) {
    mt_safetensors_close(made);
    return mt_error_memory(error, sizeof *made, path);
  }
  *tensors = made;
  return MOTET_OK;
}

/* Sorts by name, or closes the handle when reading failed. */
static motet_status conclude(mt_safetensors *made, motet_status status, mt_safetensors **tensors) {
  if (status != MOTET_OK) {
    mt_safetensors_close(made);
    return status;
  }
  sort_by_name(made->tensors.data, made->tensors.count);
  *tensors = made;
  return MOTET_OK;
}

motet_status mt_safetensors_open(const char *path, motet_error *error, mt_safetensors **tensors) {
  *tensors = NULL;
  struct stat information;
  if (stat(path, &information) != 0) return system_error(error, "open", path);
  mt_safetensors *made = NULL;
  motet_status status = create(path, error, &made);
  if (status != MOTET_OK) return status;
  if (S_ISDIR(information.st_mode))
    status = open_directory(made, path, error);
  else
    status = ends_with(path, ".json") ? open_index(made, made->path, error) : map_file(made, made->path, error);
  return conclude(made, status, tensors);
}

motet_status mt_safetensors_parse(const void *data, size_t bytes, const char *name, motet_error *error,
                                  mt_safetensors **tensors) {
  *tensors = NULL;
  mt_safetensors *made = NULL;
  motet_status status = create(name, error, &made);
  if (status != MOTET_OK) return status;
  return conclude(made, read_file(made, data, bytes, made->path, error), tensors);
}

void mt_safetensors_close(mt_safetensors *tensors) {
  if (tensors == NULL) return;
  for (size_t i = 0; i < tensors->mappings.count; i++)
    munmap(tensors->mappings.data[i].data, tensors->mappings.data[i].bytes);
  free(tensors->mappings.data);
  free(tensors->tensors.data);
  mt_arena_destroy(tensors->arena);
  free(tensors);
}

int64_t mt_safetensors_count(const mt_safetensors *tensors) { return (int64_t)tensors->tensors.count; }

const mt_safetensor *mt_safetensors_at(const mt_safetensors *tensors, int64_t index) {
  return &tensors->tensors.data[index];
}

const mt_safetensor *mt_safetensors_find(const mt_safetensors *tensors, const char *name) {
  return find_in(tensors->tensors.data, tensors->tensors.count, name);
}

static void print_shape(mt_text *text, int32_t dims, const int64_t *shape) {
  mt_text_append(text, "(");
  for (int32_t i = 0; i < dims; i++) mt_text_append(text, i == 0 ? "%" PRId64 : ", %" PRId64, shape[i]);
  mt_text_append(text, ")");
}

motet_status mt_safetensors_require(const mt_safetensors *tensors, const char *name, int32_t dims,
                                    const int64_t *shape, motet_error *error, const mt_safetensor **tensor) {
  *tensor = NULL;
  const mt_safetensor *found = mt_safetensors_find(tensors, name);
  if (found == NULL) return malformed(error, tensors->path, name, "%s has no tensor %s", tensors->path, name);
  bool same = found->dims == dims;
  for (int32_t i = 0; same && i < dims; i++) same = found->shape[i] == shape[i];
  if (same) {
    *tensor = found;
    return MOTET_OK;
  }
  mt_text is = {0}, wanted = {0};
  print_shape(&is, found->dims, found->shape);
  print_shape(&wanted, dims, shape);
  motet_status status = malformed(error, found->file, name, "tensor %s in %s has the shape %s, the model needs %s",
                                  name, found->file, is.failed ? "?" : is.data, wanted.failed ? "?" : wanted.data);
  mt_text_free(&is);
  mt_text_free(&wanted);
  return status;
}

motet_status mt_safetensor_floats(const mt_safetensor *tensor, int64_t first, int64_t count, motet_error *error,
                                  float *floats) {
  if (first < 0 || count < 0 || first > tensor->count || count > tensor->count - first)
    return refuse(error, tensor->file, tensor->name,
                  mt_error_set(error, MOTET_ERROR_ARGUMENT,
                               "elements %" PRId64 " to %" PRId64 " of tensor %s, which has %" PRId64, first,
                               first + count, tensor->name, tensor->count));
  const unsigned char *data = (const unsigned char *)tensor->data + (size_t)first * mt_dtype_bytes(tensor->dtype);
  if (mt_dtype_to_floats(tensor->dtype, data, (size_t)count, floats)) return MOTET_OK;
  return refuse(error, tensor->file, tensor->name,
                mt_error_set(error, MOTET_ERROR_UNSUPPORTED,
                             "tensor %s in %s is of type %s; F32, F16, BF16 or F64 was expected", tensor->name,
                             tensor->file, mt_dtype_name(tensor->dtype)));
}
