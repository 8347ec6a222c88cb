#include "train/feature_cache.h"

#include "base/array.h"
#include "base/digest.h"
#include "base/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { KEY_NUMBERS = 10, HEADER_NUMBERS = KEY_NUMBERS + 2, FORMAT_VERSION = 1, PATH_SIZE = 1024 };

static const char magic[16] = "motet-features\n";

/** A medium's bytes as they were when last looked at. */
typedef struct content {
  bool known;
  int64_t bytes, seconds, nanoseconds;
  uint64_t inode;
  uint64_t digest[2];
} content;

struct mt_feature_cache {
  mt_feature_cache_options options;
  char directory[PATH_SIZE / 2];
  content *contents; /* [media of the data set] */
  char *buffer;      /* for one file */
  size_t capacity;
};

/** A file of the cache. */
typedef struct entry {
  uint64_t key[KEY_NUMBERS];
  char path[PATH_SIZE];
  int64_t bytes; /* of the features */
} entry;

static motet_status make_directory(const char *path, motet_error *error) {
  if (mkdir(path, 0777) == 0 || errno == EEXIST) return MOTET_OK;
  return mt_error_system(error, "the directory of cached features cannot be made", path);
}

motet_status mt_feature_cache_create(const mt_feature_cache_options *options, motet_error *error,
                                     mt_feature_cache **result) {
  mt_feature_cache *cache = calloc(1, sizeof *cache);
  if (cache == NULL) return mt_error_memory(error, sizeof *cache, "the feature cache");
  cache->options = *options;
  motet_status status = MOTET_OK;
  if (snprintf(cache->directory, sizeof cache->directory, "%s", options->directory) >= (int)sizeof cache->directory)
    status = mt_error_set(error, MOTET_ERROR_LIMIT, "data.feature_cache is longer than %zu characters",
                          sizeof cache->directory - 1);
  cache->contents = calloc((size_t)mt_dataset_medium_count(options->dataset) + 1, sizeof *cache->contents);
  if (status == MOTET_OK && cache->contents == NULL)
    status = mt_error_memory(error, sizeof *cache->contents, "the feature cache");
  if (status == MOTET_OK) status = make_directory(cache->directory, error);
  if (status != MOTET_OK) {
    mt_feature_cache_destroy(cache);
    return status;
  }
  *result = cache;
  return MOTET_OK;
}

void mt_feature_cache_destroy(mt_feature_cache *cache) {
  if (cache == NULL) return;
  free(cache->contents);
  free(cache->buffer);
  free(cache);
}

/** Digests the medium's file, unless it is the one that was digested before. */
static motet_status look_at(mt_feature_cache *cache, const mt_dataset_medium_view *medium, motet_error *error,
                            const content **result) {
  content *known = &cache->contents[medium->number];
  struct stat now;
  if (stat(medium->path, &now) != 0) return mt_error_system(error, "the picture cannot be read", medium->path);
  content fresh = {.known = true,
                   .bytes = now.st_size,
                   .seconds = now.st_mtim.tv_sec,
                   .nanoseconds = now.st_mtim.tv_nsec,
                   .inode = now.st_ino};
  *result = known;
  if (known->known && known->bytes == fresh.bytes && known->seconds == fresh.seconds &&
      known->nanoseconds == fresh.nanoseconds && known->inode == fresh.inode)
    return MOTET_OK;
  char *data;
  size_t bytes;
  motet_status status = mt_file_read(medium->path, error, &data, &bytes);
  if (status != MOTET_OK) return status;
  mt_digest_wide(data, bytes, fresh.digest);
  free(data);
  *known = fresh;
  return MOTET_OK;
}

static motet_status find_entry(mt_feature_cache *cache, const mt_dataset_medium_view *medium, motet_error *error,
                               entry *found) {
  const content *bytes = NULL;
  motet_status status = look_at(cache, medium, error, &bytes);
  if (status != MOTET_OK) return status;
  const mt_medium_form *form = medium->form;
  const uint64_t key[KEY_NUMBERS] = {FORMAT_VERSION,
                                     cache->options.encoder,
                                     bytes->digest[0],
                                     bytes->digest[1],
                                     (uint64_t)bytes->bytes,
                                     form->video ? 1 : 0,
                                     (uint64_t)(uint32_t)form->width << 32 | (uint32_t)form->height,
                                     (uint64_t)(uint32_t)form->tiling.columns << 32 | (uint32_t)form->tiling.rows,
                                     (uint64_t)form->tiling.tiles,
                                     (uint64_t)cache->options.tile_bytes};
  uint64_t name[2];
  mt_digest_wide(key, sizeof key, name);
  memcpy(found->key, key, sizeof key);
  found->bytes = form->tiling.tiles * cache->options.tile_bytes;
  snprintf(found->path, sizeof found->path, "%s/%02x/%016" PRIx64 "%016" PRIx64, cache->directory,
           (unsigned)(name[0] >> 56), name[0], name[1]);
  return MOTET_OK;
}

static motet_status reserve(mt_feature_cache *cache, size_t bytes, motet_error *error) {
  if (cache->capacity >= bytes) return MOTET_OK;
  free(cache->buffer);
  cache->capacity = 0;
  cache->buffer = malloc(bytes);
  if (cache->buffer == NULL) return mt_error_memory(error, bytes, "cached features");
  cache->capacity = bytes;
  return MOTET_OK;
}

/** Reads the file into the buffer; @p good: it is there, is what its name says, and is whole. */
static motet_status read_entry(mt_feature_cache *cache, const entry *wanted, motet_error *error, bool *good) {
  uint64_t header[HEADER_NUMBERS];
  char first[sizeof magic];
  *good = false;
  FILE *file = fopen(wanted->path, "rbe");
  if (file == NULL)
    return errno == ENOENT ? MOTET_OK : mt_error_system(error, "cached features cannot be read", wanted->path);
  motet_status status = reserve(cache, (size_t)wanted->bytes + 1, error);
  if (status == MOTET_OK && fread(first, sizeof first, 1, file) == 1 &&
      fread(header, sizeof header, 1, file) == 1 &&
      fread(cache->buffer, 1, (size_t)wanted->bytes + 1, file) == (size_t)wanted->bytes)
    *good = memcmp(first, magic, sizeof magic) == 0 && memcmp(header, wanted->key, sizeof wanted->key) == 0 &&
            header[KEY_NUMBERS] == (uint64_t)wanted->bytes &&
            header[KEY_NUMBERS + 1] == mt_digest_of(cache->buffer, (size_t)wanted->bytes);
  fclose(file);
  return status;
}

/** Walks the media of a row; stops at an error or where @p visit says so. */
typedef struct walk {
  mt_feature_cache *cache;
  char *features; /* of the medium that is visited */
  bool all;
} walk;

typedef motet_status visit(walk *this, const entry *at, const mt_dataset_medium_view *medium, motet_error *error);

static motet_status walk_row(walk *this, const mt_row *row, visit *each, motet_error *error) {
  const mt_dataset *dataset = this->cache->options.dataset;
  this->all = true;
  for (int32_t s = 0; s < row->samples && this->all; s++) {
    const mt_sample *sample = mt_dataset_sample(dataset, row->sample[s]);
    int32_t count = sample->images + sample->videos;
    for (int32_t i = 0; i < count && this->all; i++) {
      mt_dataset_medium_view medium = mt_dataset_medium_at(dataset, row->sample[s], i);
      entry at;
      motet_status status = find_entry(this->cache, &medium, error, &at);
      if (status == MOTET_OK) status = each(this, &at, &medium, error);
      if (status != MOTET_OK) return status;
      if (this->features != NULL) this->features += at.bytes;
    }
  }
  return MOTET_OK;
}

static motet_status visit_check(walk *this, const entry *at, const mt_dataset_medium_view *medium,
                                motet_error *error) {
  (void)medium;
  return read_entry(this->cache, at, error, &this->all);
}

motet_status mt_feature_cache_has(mt_feature_cache *cache, const mt_row *row, motet_error *error, bool *has) {
  walk this = {.cache = cache};
  motet_status status = walk_row(&this, row, visit_check, error);
  *has = this.all;
  return status;
}

static motet_status visit_read(walk *this, const entry *at, const mt_dataset_medium_view *medium,
                               motet_error *error) {
  bool good;
  motet_status status = read_entry(this->cache, at, error, &good);
  if (status == MOTET_OK && !good) {
    status = mt_error_set(error, MOTET_ERROR_FAILED,
                          "the cached features of %s were there when the step was planned and are gone or damaged "
                          "now; start again, and they are computed again",
                          medium->path);
    mt_error_place(error, at->path, 0);
  }
  if (status == MOTET_OK) memcpy(this->features, this->cache->buffer, (size_t)at->bytes);
  return status;
}

motet_status mt_feature_cache_read(mt_feature_cache *cache, const mt_row *row, motet_error *error, void *features) {
  walk this = {.cache = cache, .features = features};
  return walk_row(&this, row, visit_read, error);
}

static motet_status write_entry(const entry *at, const void *features, motet_error *error) {
  char directory[PATH_SIZE], temporary[PATH_SIZE + 48];
  snprintf(directory, sizeof directory, "%.*s", (int)(strrchr(at->path, '/') - at->path), at->path);
  motet_status status = make_directory(directory, error);
  if (status != MOTET_OK) return status;
  uint64_t header[HEADER_NUMBERS];
  memcpy(header, at->key, sizeof at->key);
  header[KEY_NUMBERS] = (uint64_t)at->bytes;
  header[KEY_NUMBERS + 1] = mt_digest_of(features, (size_t)at->bytes);
  /* No other process has this name; what a killed one leaves behind is never read. */
  snprintf(temporary, sizeof temporary, "%s.%ld.partial", at->path, (long)getpid());
  FILE *file = fopen(temporary, "wbe");
  if (file == NULL) return mt_error_system(error, "features cannot be cached", temporary);
  bool good = fwrite(magic, sizeof magic, 1, file) == 1 && fwrite(header, sizeof header, 1, file) == 1 &&
              fwrite(features, 1, (size_t)at->bytes, file) == (size_t)at->bytes;
  int reason = errno;
  good = fclose(file) == 0 && good;
  if (good && rename(temporary, at->path) == 0) return MOTET_OK;
  errno = good ? errno : reason;
  status = mt_error_system(error, "features cannot be cached", at->path);
  unlink(temporary);
  return status;
}

static motet_status visit_write(walk *this, const entry *at, const mt_dataset_medium_view *medium,
                                motet_error *error) {
  (void)medium;
  bool good;
  motet_status status = read_entry(this->cache, at, error, &good);
  return status == MOTET_OK && !good ? write_entry(at, this->features, error) : status;
}

motet_status mt_feature_cache_write(mt_feature_cache *cache, const mt_row *row, const void *features,
                                    motet_error *error) {
  walk this = {.cache = cache, .features = (char *)(uintptr_t)features};
  return walk_row(&this, row, visit_write, error);
}
