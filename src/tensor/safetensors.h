/** @file
 * safetensors files: an 8-byte little-endian header length, a JSON header, and the tensors' bytes without holes.
 * Files are mapped, not read: a tensor costs memory only where it is touched. A file that is cut short by another
 * process while it is open faults like any mapped file.
 */
#ifndef MT_TENSOR_SAFETENSORS_H
#define MT_TENSOR_SAFETENSORS_H

#include "base/error.h"
#include "tensor/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MT_SAFETENSORS_MAX_DIMS = 8 };

/** A tensor in an open set of files; lives until mt_safetensors_close(). */
typedef struct mt_safetensor {
  const char *name;
  const char *file; /* path of the file that holds it */
  mt_dtype dtype;
  int32_t dims;
  int64_t shape[MT_SAFETENSORS_MAX_DIMS];
  int64_t count; /* elements */
  size_t bytes;
  const void *data; /* row-major, little-endian, perhaps unaligned: read by memcpy or the conversions */
} mt_safetensor;

typedef struct mt_safetensors mt_safetensors;

/**
 * Opens @p path: a .safetensors file, an index (`*.index.json`), or a directory that holds `model.safetensors` or
 * `model.safetensors.index.json`. Everything about the headers is checked here: lengths, offsets (in range, no
 * overlap, no hole), shape times element size against bytes, duplicate names; and that an index names tensors which
 * their files hold. Errors name file and tensor (`error.key`). Reading from several threads is safe.
 */
motet_status mt_safetensors_open(const char *path, motet_error *error, mt_safetensors **tensors);

/** Reads a header and tensors from memory, which must outlive the handle; @p name stands for the file in errors. */
motet_status mt_safetensors_parse(const void *data, size_t bytes, const char *name, motet_error *error,
                                  mt_safetensors **tensors);

void mt_safetensors_close(mt_safetensors *tensors);

int64_t mt_safetensors_count(const mt_safetensors *tensors);

/** Tensor @p index in order of names (bytewise). */
const mt_safetensor *mt_safetensors_at(const mt_safetensors *tensors, int64_t index);

/** The tensor called @p name, or NULL. */
const mt_safetensor *mt_safetensors_find(const mt_safetensors *tensors, const char *name);

/** As mt_safetensors_find(), but a missing tensor or another shape is an error that names file, tensor and both
 * shapes. */
motet_status mt_safetensors_require(const mt_safetensors *tensors, const char *name, int32_t dims,
                                    const int64_t *shape, motet_error *error, const mt_safetensor **tensor);

/** Copies elements [first, first + count) of an F16, BF16, F32 or F64 tensor as float32 to @p floats. */
motet_status mt_safetensor_floats(const mt_safetensor *tensor, int64_t first, int64_t count, motet_error *error,
                                  float *floats);

/** What a file to be written will hold. */
typedef struct mt_safetensors_entry {
  const char *name;
  mt_dtype dtype;
  int32_t dims;
  const int64_t *shape;
} mt_safetensors_entry;

typedef struct mt_safetensors_writer mt_safetensors_writer;

/**
 * Starts a file that will hold @p entries, with metadata {"format": "pt"}. It is written under a temporary name
 * beside @p path; @p path itself appears, whole and synced, with mt_safetensors_writer_finish(). Data follow in the
 * order of the entries, in pieces of any size, so that a model needs no second copy in memory. Where element sizes
 * differ, put the larger first: readers then find every tensor aligned.
 */
motet_status mt_safetensors_writer_create(const char *path, const mt_safetensors_entry *entries, int64_t count,
                                          motet_error *error, mt_safetensors_writer **writer);

/** The next bytes, in the entries' own types. */
motet_status mt_safetensors_writer_bytes(mt_safetensors_writer *writer, const void *data, size_t bytes,
                                         motet_error *error);

/** The next @p count elements, converted to the type of the entry they fall into (F32, BF16 or F16); they must not
 * run past that entry's end. */
motet_status mt_safetensors_writer_floats(mt_safetensors_writer *writer, const float *floats, int64_t count,
                                          motet_error *error);

/** Checks that all entries were written, syncs, and renames into place. The writer is still to be destroyed. */
motet_status mt_safetensors_writer_finish(mt_safetensors_writer *writer, motet_error *error);

/** Releases the writer; an unfinished file is removed. NULL is allowed. */
void mt_safetensors_writer_destroy(mt_safetensors_writer *writer);

/** A tensor's place in a sharded model. */
typedef struct mt_safetensors_location {
  const char *name;
  const char *file; /* file name without directory */
} mt_safetensors_location;

/** Writes an index (`model.safetensors.index.json`) of @p count tensors with @p total_bytes of data in all. */
motet_status mt_safetensors_index_write(const char *path, const mt_safetensors_location *locations, int64_t count,
                                        uint64_t total_bytes, motet_error *error);

#endif
