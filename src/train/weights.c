#include "train/weights.h"

#include "base/array.h"
#include "base/digest.h"
#include "tensor/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_SIZE = 1024, MOMENT_NAME_SIZE = 128, CACHED_FLOATS = 1 << 16 };

/** A family of files: the weights, or the optimizer's moments. */
typedef struct family {
  const char *stem;
  bool moments;
} family;

static const family weights_family = {.stem = "model"}, moments_family = {.stem = "optimizer", .moments = true};
static const char *const moment_prefixes[2] = {"first.", "second."};

/** Blocks of rows that files have in an order of their own; 1 where all follow as in memory. */
static int64_t block_count(const mt_internvl_grouping *grouping) {
  return grouping->groups == 0 ? 1 : grouping->groups * ((int64_t)grouping->queries + 2);
}

static motet_status load_tensor(const mt_safetensors *tensors, const mt_parameter *parameter, const char *name,
                                float *values, motet_error *error) {
  const mt_safetensor *tensor;
  motet_status status = mt_safetensors_require(tensors, name, parameter->dims, parameter->shape, error, &tensor);
  const mt_internvl_grouping *grouping = &parameter->grouping;
  const int64_t blocks = block_count(grouping), floats = parameter->count / blocks;
  for (int64_t b = 0; b < blocks && status == MOTET_OK; b++)
    status = mt_safetensor_floats(tensor, b * floats, floats, error,
                                  values + (blocks == 1 ? 0 : mt_internvl_memory_block(grouping, b)) * floats);
  return status;
}

motet_status mt_weights_load(mt_network *network, const char *path, motet_error *error) {
  mt_safetensors *tensors;
  motet_status status = mt_safetensors_open(path, error, &tensors);
  if (status != MOTET_OK) return status;
  for (int32_t i = 0; i < mt_network_parameter_count(network) && status == MOTET_OK; i++) {
    const mt_parameter *parameter = mt_network_parameter(network, i);
    bool by_alias = parameter->alias != NULL && mt_safetensors_find(tensors, parameter->name) == NULL &&
                    mt_safetensors_find(tensors, parameter->alias) != NULL;
    status =
        load_tensor(tensors, parameter, by_alias ? parameter->alias : parameter->name, parameter->value, error);
  }
  mt_safetensors_close(tensors);
  return status;
}

/** Whether the checkpoint has the parameter's moments. */
static bool has_moments(const mt_internvl *config, const bool *modules, const mt_parameter *parameter) {
  return parameter->trainable && modules[mt_network_module(config, parameter->layer)];
}

motet_status mt_moments_load(mt_network *network, const mt_internvl *config, const bool *modules, const char *path,
                             motet_error *error) {
  bool any = false;
  for (int32_t i = 0; i < mt_network_parameter_count(network); i++)
    any |= has_moments(config, modules, mt_network_parameter(network, i));
  if (!any) return MOTET_OK;
  char file[PATH_SIZE];
  snprintf(file, sizeof file, "%s/optimizer.safetensors.index.json", path);
  if (access(file, F_OK) != 0) snprintf(file, sizeof file, "%s/optimizer.safetensors", path);
  mt_safetensors *tensors;
  motet_status status = mt_safetensors_open(file, error, &tensors);
  if (status != MOTET_OK) return status;
  for (int32_t i = 0; i < mt_network_parameter_count(network) && status == MOTET_OK; i++) {
    const mt_parameter *parameter = mt_network_parameter(network, i);
    if (!has_moments(config, modules, parameter)) continue;
    float *moments[2];
    mt_network_moments(network, i, &moments[0], &moments[1]);
    for (int k = 0; k < 2 && status == MOTET_OK; k++) {
      char name[MOMENT_NAME_SIZE];
      snprintf(name, sizeof name, "%s%s", moment_prefixes[k], parameter->name);
      status = load_tensor(tensors, parameter, name, moments[k], error);
    }
  }
  mt_safetensors_close(tensors);
  return status;
}

/** Whether the family has something of this layer. */
static bool covers(const mt_weights_owners *owners, const family *which, int32_t layer) {
  return !which->moments || owners->trainable[layer];
}

/** Number of the rank among those that write a part, and how many there are; -1 for a rank that writes none. */
static int32_t part_of(const mt_weights_owners *owners, const family *which, int32_t rank, int32_t *parts) {
  int32_t own = -1, count = 0, last = -1;
  /* Ascending by rank: repeatedly the smallest owner beyond the last one. */
  for (;;) {
    int32_t next = INT32_MAX;
    for (int32_t layer = 0; layer < owners->layers; layer++)
      if (covers(owners, which, layer) && owners->layer_rank[layer] > last && owners->layer_rank[layer] < next)
        next = owners->layer_rank[layer];
    if (next == INT32_MAX) break;
    if (next == rank) own = count;
    count++;
    last = next;
  }
  *parts = count;
  return own;
}

static void part_name(const family *which, int32_t part, int32_t parts, char *name, size_t size) {
  if (parts == 1)
    snprintf(name, size, "%s.safetensors", which->stem);
  else
    snprintf(name, size, "%s-%05d-of-%05d.safetensors", which->stem, (int)part + 1, (int)parts);
}

/** The tied head's copy is the embedding's: only that is written. */
static bool is_copy(const mt_weights_owners *owners, const mt_parameter *parameter) {
  return owners->config->decoder.tied_embeddings && parameter->layer == owners->layers - 1 && parameter->dims == 2;
}

/** A tensor's name and the file that it stands in. */
typedef struct location_text {
  char name[MOMENT_NAME_SIZE];
  char file[64];
} location_text;

typedef MT_ARRAY(location_text) location_array;

/** The family's tensors, layer by layer, and their bytes; the same list on all ranks. */
static motet_status list_tensors(const mt_weights_owners *owners, const family *which, motet_error *error,
                                 location_array *texts, uint64_t *bytes) {
  bool good = true;
  for (int32_t layer = 0; layer < owners->layers && good; layer++) {
    if (!covers(owners, which, layer)) continue;
    mt_internvl_weight weights[MT_INTERNVL_WEIGHTS_MAX];
    int32_t count = mt_internvl_weights(owners->config, layer, weights), parts;
    int32_t part = part_of(owners, which, owners->layer_rank[layer], &parts);
    for (int32_t w = 0; w < count; w++)
      for (int k = 0; k < (which->moments ? 2 : 1) && good; k++) {
        location_text text;
        snprintf(text.name, sizeof text.name, "%s%.96s", which->moments ? moment_prefixes[k] : "", weights[w].name);
        part_name(which, part, parts, text.file, sizeof text.file);
        *bytes += (uint64_t)weights[w].count * sizeof(float);
        good = MT_ARRAY_PUSH(texts, text);
      }
  }
  return good ? MOTET_OK : mt_error_memory(error, (texts->count + 1) * sizeof *texts->data, "the list of tensors");
}

typedef struct piece {
  mt_safetensors_entry entry;
  const float *values;
  int64_t count;
  const mt_internvl_grouping *grouping;
  char name[MOMENT_NAME_SIZE];
  uint64_t sum; /* once it is written */
} piece;

typedef MT_ARRAY(piece) piece_array;

static bool add_piece(piece_array *pieces, const mt_parameter *parameter, const char *prefix, const float *values) {
  piece made = {.entry = {.dtype = MT_DTYPE_F32, .dims = parameter->dims, .shape = parameter->shape},
                .values = values,
                .count = parameter->count,
                .grouping = &parameter->grouping};
  snprintf(made.name, sizeof made.name, "%s%s", prefix, parameter->name);
  return MT_ARRAY_PUSH(pieces, made);
}

static motet_status collect(mt_network *network, const mt_weights_owners *owners, const family *which, int32_t rank,
                            motet_error *error, piece_array *pieces) {
  bool good = true;
  for (int32_t i = 0; i < mt_network_parameter_count(network) && good; i++) {
    const mt_parameter *parameter = mt_network_parameter(network, i);
    if (owners->layer_rank[parameter->layer] != rank || is_copy(owners, parameter)) continue;
    if (!which->moments) {
      good = add_piece(pieces, parameter, "", parameter->value);
    } else if (parameter->trainable) {
      float *moments[2];
      mt_network_moments(network, i, &moments[0], &moments[1]);
      for (int k = 0; k < 2 && good; k++) good = add_piece(pieces, parameter, moment_prefixes[k], moments[k]);
    }
  }
  return good ? MOTET_OK : mt_error_memory(error, (pieces->count + 1) * sizeof(piece), "the list of tensors");
}

/** Values go into checksum and file in turn, so few that the file's copy finds them in the cache. */
static motet_status write_values(mt_safetensors_writer *writer, mt_digest *digest, const float *values,
                                 int64_t count, motet_error *error) {
  motet_status status = MOTET_OK;
  for (int64_t i = 0; i < count && status == MOTET_OK; i += CACHED_FLOATS) {
    const int64_t some = count - i < CACHED_FLOATS ? count - i : CACHED_FLOATS;
    mt_digest_bytes(digest, values + i, (size_t)some * sizeof *values);
    status = mt_safetensors_writer_floats(writer, values + i, some, error);
  }
  return status;
}

/** Writes the piece; @p sum: of the bytes as they go into the file, which are those in memory. */
static motet_status write_piece(mt_safetensors_writer *writer, const piece *written, motet_error *error,
                                uint64_t *sum) {
  const int64_t blocks = block_count(written->grouping), floats = written->count / blocks;
  mt_digest *digest = mt_digest_create();
  if (digest == NULL) return mt_error_memory(error, 0, "a checksum");
  motet_status status = MOTET_OK;
  for (int64_t b = 0; b < blocks && status == MOTET_OK; b++) {
    const int64_t from = blocks == 1 ? 0 : mt_internvl_memory_block(written->grouping, b);
    status = write_values(writer, digest, written->values + from * floats, floats, error);
  }
  *sum = mt_digest_value(digest);
  mt_digest_destroy(digest);
  return status;
}

static motet_status write_pieces(piece_array *pieces, const char *path, motet_error *error) {
  mt_safetensors_entry *entries = calloc(pieces->count + 1, sizeof *entries);
  if (entries == NULL) return mt_error_memory(error, pieces->count * sizeof *entries, "the list of tensors");
  for (size_t i = 0; i < pieces->count; i++) {
    entries[i] = pieces->data[i].entry;
    entries[i].name = pieces->data[i].name;
  }
  mt_safetensors_writer *writer = NULL;
  motet_status status = mt_safetensors_writer_create(path, entries, (int64_t)pieces->count, error, &writer);
  for (size_t i = 0; i < pieces->count && status == MOTET_OK; i++)
    status = write_piece(writer, &pieces->data[i], error, &pieces->data[i].sum);
  if (status == MOTET_OK) status = mt_safetensors_writer_finish(writer, error);
  mt_safetensors_writer_destroy(writer);
  free(entries);
  return status;
}

static int64_t tensor_count(const mt_weights_owners *owners, const family *which) {
  int64_t count = 0;
  mt_internvl_weight weights[MT_INTERNVL_WEIGHTS_MAX];
  for (int32_t layer = 0; layer < owners->layers; layer++)
    if (covers(owners, which, layer))
      count += (which->moments ? 2 : 1) * (int64_t)mt_internvl_weights(owners->config, layer, weights);
  return count;
}

int64_t mt_weights_sum_count(const mt_weights_owners *owners) {
  return 2 * (tensor_count(owners, &weights_family) + tensor_count(owners, &moments_family));
}

/** The pieces' checksums at the places of their names. Both lists go layer by layer: the search goes on from where
 * the last name stood. */
static motet_status note_sums(const mt_weights_owners *owners, const family *which, const piece_array *pieces,
                              motet_error *error, double *sums) {
  location_array texts = {0};
  uint64_t bytes = 0;
  motet_status status = list_tensors(owners, which, error, &texts, &bytes);
  double *own = sums + (which->moments ? 2 * tensor_count(owners, &weights_family) : 0);
  size_t place = 0;
  for (size_t i = 0; i < pieces->count && status == MOTET_OK; i++) {
    size_t tried = 0;
    while (tried < texts.count && strcmp(texts.data[place].name, pieces->data[i].name) != 0)
      place = (place + 1) % texts.count, tried++;
    if (tried == texts.count)
      status = mt_error_set(error, MOTET_ERROR_FAILED, "tensor %s is in no list of the model's weights",
                            pieces->data[i].name);
    else
      own[2 * place] = (double)(uint32_t)pieces->data[i].sum,
              own[2 * place + 1] = (double)(pieces->data[i].sum >> 32); /* halves are exact as doubles */
  }
  free(texts.data);
  return status;
}

static motet_status save(mt_network *network, const mt_weights_owners *owners, const family *which, int32_t rank,
                         const char *directory, motet_error *error, double *sums) {
  int32_t parts, part = part_of(owners, which, rank, &parts);
  if (part < 0) return MOTET_OK;
  char name[64], path[PATH_SIZE];
  part_name(which, part, parts, name, sizeof name);
  snprintf(path, sizeof path, "%s/%s", directory, name);
  piece_array pieces = {0};
  motet_status status = collect(network, owners, which, rank, error, &pieces);
  if (status == MOTET_OK) status = write_pieces(&pieces, path, error);
  if (status == MOTET_OK && sums != NULL) status = note_sums(owners, which, &pieces, error, sums);
  free(pieces.data);
  return status;
}

motet_status mt_weights_save(mt_network *network, const mt_weights_owners *owners, int32_t rank, const char *path,
                             motet_error *error, double *sums) {
  return save(network, owners, &weights_family, rank, path, error, sums);
}

motet_status mt_moments_save(mt_network *network, const mt_weights_owners *owners, int32_t rank, const char *path,
                             motet_error *error, double *sums) {
  return save(network, owners, &moments_family, rank, path, error, sums);
}

motet_status mt_weights_sums_print(const mt_weights_owners *owners, const double *sums, motet_error *error,
                                   mt_text *text) {
  const char *between = "";
  motet_status status = MOTET_OK;
  for (int f = 0; f < 2 && status == MOTET_OK; f++) {
    location_array texts = {0};
    uint64_t bytes = 0;
    status = list_tensors(owners, f == 0 ? &weights_family : &moments_family, error, &texts, &bytes);
    for (size_t i = 0; i < texts.count && status == MOTET_OK; i++, sums += 2, between = ",") {
      char sum[MT_DIGEST_TEXT_SIZE];
      mt_digest_print((uint64_t)sums[0] | (uint64_t)sums[1] << 32, sum);
      mt_text_append(text, "%s\n    \"%s\": \"%s\"", between, texts.data[i].name, sum);
    }
    free(texts.data);
  }
  return status;
}

static motet_status write_index(const mt_weights_owners *owners, const family *which, const char *directory,
                                motet_error *error) {
  int32_t parts;
  part_of(owners, which, -1, &parts);
  if (parts < 2) return MOTET_OK;
  location_array texts = {0};
  uint64_t bytes = 0;
  mt_safetensors_location *locations = NULL;
  motet_status status = list_tensors(owners, which, error, &texts, &bytes);
  if (status == MOTET_OK) {
    locations = calloc(texts.count + 1, sizeof *locations);
    if (locations == NULL) status = mt_error_memory(error, texts.count * sizeof *locations, "the index of tensors");
  }
  if (status == MOTET_OK) {
    char path[PATH_SIZE];
    for (size_t i = 0; i < texts.count; i++)
      locations[i] = (mt_safetensors_location){.name = texts.data[i].name, .file = texts.data[i].file};
    snprintf(path, sizeof path, "%s/%s.safetensors.index.json", directory, which->stem);
    status = mt_safetensors_index_write(path, locations, (int64_t)texts.count, bytes, error);
  }
  free(locations);
  free(texts.data);
  return status;
}

motet_status mt_weights_index(const mt_weights_owners *owners, const char *path, motet_error *error) {
  motet_status status = write_index(owners, &weights_family, path, error);
  return status == MOTET_OK ? write_index(owners, &moments_family, path, error) : status;
}
