#include "train/costs.h"

#include "base/text.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double OPERATIONS_PER_SECOND = MT_OPERATIONS_PER_MICROSECOND * 1e6;

static const char *const kind_names[MT_LAYER_KINDS] = {
    [MT_INTERNVL_VISION_EMBED] = "vision_embedding", [MT_INTERNVL_VISION_BLOCK] = "vision_block",
    [MT_INTERNVL_PROJECTOR] = "projector",           [MT_INTERNVL_TOKEN_EMBED] = "token_embedding",
    [MT_INTERNVL_DECODER_BLOCK] = "decoder_block",   [MT_INTERNVL_HEAD] = "head",
};
static const char *const pass_names[MT_PASSES] = {"forward", "backward", "backward_x", "backward_w"};
static const char *const feature_names[MT_COST_FEATURES] = {"fixed", "token", "tile", "area", "target"};

void mt_cost_features(const mt_batch *batch, int32_t targets, double features[MT_COST_FEATURES]) {
  double area = 0;
  for (int32_t s = 0; s < batch->segments; s++) {
    double tokens = batch->segment_begin[s + 1] - batch->segment_begin[s];
    area += tokens * tokens;
  }
  features[MT_COST_FIXED] = 1;
  features[MT_COST_TOKENS] = batch->tokens;
  features[MT_COST_TILES] = batch->tiles;
  features[MT_COST_AREA] = area;
  features[MT_COST_TARGETS] = targets;
}

double mt_layer_seconds(const mt_layer_costs *costs, mt_internvl_kind kind, mt_layer_pass pass,
                        const double features[MT_COST_FEATURES]) {
  double seconds = 0;
  for (int i = 0; i < MT_COST_FEATURES; i++) seconds += costs->seconds[kind][pass][i] * features[i];
  return seconds;
}

mt_layer_operations mt_layer_operations_of(const mt_internvl *config, mt_internvl_kind kind,
                                           const double features[MT_COST_FEATURES]) {
  const mt_internvl_vision *vision = &config->vision;
  const mt_internvl_decoder *decoder = &config->decoder;
  double tiles = features[MT_COST_TILES], tokens = features[MT_COST_TOKENS];
  double patches = pow((double)(vision->image_size / vision->patch_size), 2), rows = patches + 1;
  double hidden = vision->hidden, width = decoder->hidden;
  double shuffled = hidden / ((double)config->downsample_ratio * (double)config->downsample_ratio);
  double heads = (double)decoder->heads * decoder->head_dim;
  double key_values = (double)decoder->kv_heads * decoder->head_dim, products;
  switch (kind) {
  case MT_INTERNVL_VISION_EMBED:
    products = 2 * tiles * patches * hidden * vision->channels * vision->patch_size * vision->patch_size;
    return (mt_layer_operations){.linear = products, .entry = products};
  case MT_INTERNVL_VISION_BLOCK:
    return (mt_layer_operations){.linear = tiles * rows * (8 * hidden * hidden + 4 * hidden * vision->intermediate),
                                 .entry = tiles * rows * 6 * hidden * hidden,
                                 .attention = tiles * 4 * rows * rows * hidden};
  case MT_INTERNVL_PROJECTOR:
    products = 2 * tiles * config->tokens_per_tile * width;
    return (mt_layer_operations){.linear = products * (shuffled + width), .entry = products * shuffled};
  case MT_INTERNVL_DECODER_BLOCK:
    return (mt_layer_operations){.linear = tokens * width *
                                           (4 * heads + 4 * key_values + 6 * (double)decoder->intermediate),
                                 .entry = tokens * width * (2 * heads + 4 * key_values),
                                 .attention = features[MT_COST_AREA] * 2 * heads}; /* causal: half of 4 */
  case MT_INTERNVL_HEAD:
    return (mt_layer_operations){.linear = features[MT_COST_TARGETS] * 2 * width * decoder->vocabulary};
  default: return (mt_layer_operations){0}; /* an embedding looks up */
  }
}

/* Every feature's part by itself: operations are linear in them. A backward of weights alone takes the gradients
 * inside of the layer too, but that of its input. */
static void set_operations(const mt_internvl *config, mt_internvl_kind kind, mt_layer_costs *costs) {
  for (int feature = MT_COST_TOKENS; feature < MT_COST_FEATURES; feature++) {
    double features[MT_COST_FEATURES] = {0};
    features[feature] = 1;
    mt_layer_operations of = mt_layer_operations_of(config, kind, features);
    const double passes[MT_PASSES] = {
        [MT_PASS_FORWARD] = of.linear + of.attention,
        [MT_PASS_BACKWARD] = 2 * of.linear + 2 * of.attention,
        [MT_PASS_BACKWARD_X] = of.linear + 2 * of.attention,
        [MT_PASS_BACKWARD_W] = 2 * of.linear - of.entry + 2 * of.attention,
    };
    for (int pass = 0; pass < MT_PASSES; pass++)
      costs->seconds[kind][pass][feature] = passes[pass] / OPERATIONS_PER_SECOND;
  }
}

void mt_layer_costs_from_operations(const mt_internvl *config, mt_layer_costs *costs) {
  *costs = (mt_layer_costs){.link = {.latency_seconds = 5e-6, .bytes_per_second = 5e9}};
  for (int kind = MT_INTERNVL_VISION_EMBED; kind < MT_LAYER_KINDS; kind++)
    set_operations(config, (mt_internvl_kind)kind, costs);
  for (int pass = 0; pass < MT_PASSES; pass++) /* looking up moves a row */
    costs->seconds[MT_INTERNVL_TOKEN_EMBED][pass][MT_COST_TOKENS] =
        2.0 * config->decoder.hidden / OPERATIONS_PER_SECOND;
  costs->optimizer_seconds_per_parameter = 12 / OPERATIONS_PER_SECOND;
}

static motet_status missing(const char *path, const char *key, motet_error *error) {
  motet_status status = mt_error_set(
      error, MOTET_ERROR_PARSE, "the profile has no '%s' that is a number >= 0; `motet profile` writes it", key);
  mt_error_place(error, path, 0);
  mt_error_key(error, key);
  return status;
}

static bool read_number(const json_t *object, const char *key, double *number) {
  const json_t *value = json_object_get(object, key);
  if (!json_is_number(value)) return false;
  *number = json_number_value(value);
  return isfinite(*number) && *number >= 0;
}

static motet_status read_kind(const json_t *kinds, int kind, const char *path, motet_error *error,
                              mt_layer_costs *costs) {
  const json_t *passes = json_object_get(kinds, kind_names[kind]);
  for (int pass = 0; pass < MT_PASSES; pass++) {
    const json_t *features = json_object_get(passes, pass_names[pass]);
    for (int i = 0; i < MT_COST_FEATURES; i++) {
      char key[64];
      snprintf(key, sizeof key, "kinds.%s.%s.%s", kind_names[kind], pass_names[pass], feature_names[i]);
      if (!read_number(features, feature_names[i], &costs->seconds[kind][pass][i]))
        return missing(path, key, error);
    }
  }
  return MOTET_OK;
}

/** Profiles of before decoding was measured have none. */
static motet_status read_decode(const json_t *decode, const char *path, motet_error *error, mt_layer_costs *costs) {
  double spare;
  if (decode == NULL) return MOTET_OK;
  if (!read_number(decode, "medium", &costs->decode.medium_seconds)) return missing(path, "decode.medium", error);
  if (!read_number(decode, "pixel", &costs->decode.pixel_seconds)) return missing(path, "decode.pixel", error);
  if (!read_number(decode, "tile", &costs->decode.tile_seconds)) return missing(path, "decode.tile", error);
  if (!read_number(decode, "spare_processors", &spare) || spare > INT32_MAX)
    return missing(path, "decode.spare_processors", error);
  costs->spare_processors = (int32_t)spare;
  costs->decode.measured = true;
  return MOTET_OK;
}

motet_status mt_layer_costs_read(const char *path, motet_error *error, mt_layer_costs *costs) {
  char *text;
  size_t bytes;
  motet_status status = mt_file_read(path, error, &text, &bytes);
  if (status != MOTET_OK) return status;
  json_error_t problem;
  json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &problem);
  free(text);
  if (root == NULL) {
    mt_error_set(error, MOTET_ERROR_PARSE, "this is not JSON: %s", problem.text);
    mt_error_place(error, path, problem.line);
    return MOTET_ERROR_PARSE;
  }
  *costs = (mt_layer_costs){.measured = true};
  costs->peak_operations_per_second = json_number_value(json_object_get(root, "peak_operations_per_second"));
  const json_t *link = json_object_get(root, "link"), *kinds = json_object_get(root, "kinds");
  if (!read_number(root, "optimizer_seconds_per_parameter", &costs->optimizer_seconds_per_parameter))
    status = missing(path, "optimizer_seconds_per_parameter", error);
  else if (!read_number(link, "latency_seconds", &costs->link.latency_seconds))
    status = missing(path, "link.latency_seconds", error);
  else if (!read_number(link, "bytes_per_second", &costs->link.bytes_per_second))
    status = missing(path, "link.bytes_per_second", error);
  if (status == MOTET_OK) status = read_decode(json_object_get(root, "decode"), path, error, costs);
  for (int kind = MT_INTERNVL_VISION_EMBED; kind < MT_LAYER_KINDS && status == MOTET_OK; kind++)
    status = read_kind(kinds, kind, path, error, costs);
  json_decref(root);
  return status;
}

motet_status mt_layer_costs_write(const mt_layer_costs *costs, const char *path, motet_error *error) {
  mt_text text = {0};
  mt_text_append(&text, "{\n  \"format\": \"motet-profile-1\",\n  \"optimizer_seconds_per_parameter\": %.9g,\n",
                 costs->optimizer_seconds_per_parameter);
  mt_text_append(&text, "  \"peak_operations_per_second\": %.9g,\n", costs->peak_operations_per_second);
  mt_text_append(&text, "  \"link\": {\"latency_seconds\": %.9g, \"bytes_per_second\": %.9g},\n",
                 costs->link.latency_seconds, costs->link.bytes_per_second);
  if (costs->decode.measured)
    mt_text_append(&text,
                   "  \"decode\": {\"medium\": %.9g, \"pixel\": %.9g, \"tile\": %.9g, \"spare_processors\": %d},\n",
                   costs->decode.medium_seconds, costs->decode.pixel_seconds, costs->decode.tile_seconds,
                   (int)costs->spare_processors);
  mt_text_append(&text, "  \"kinds\": {");
  for (int kind = MT_INTERNVL_VISION_EMBED; kind < MT_LAYER_KINDS; kind++) {
    mt_text_append(&text, "%s\n    \"%s\": {", kind > MT_INTERNVL_VISION_EMBED ? "," : "", kind_names[kind]);
    for (int pass = 0; pass < MT_PASSES; pass++) {
      mt_text_append(&text, "%s\n      \"%s\": {", pass > 0 ? "," : "", pass_names[pass]);
      for (int i = 0; i < MT_COST_FEATURES; i++)
        mt_text_append(&text, "%s\"%s\": %.9g", i > 0 ? ", " : "", feature_names[i], costs->seconds[kind][pass][i]);
      mt_text_append(&text, "}");
    }
    mt_text_append(&text, "\n    }");
  }
  mt_text_append(&text, "\n  }\n}\n");
  motet_status status = text.failed ? mt_error_memory(error, text.length, "the profile")
                                    : mt_file_write(path, text.data, text.length, error);
  mt_text_free(&text);
  return status;
}
