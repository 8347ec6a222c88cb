#include "pack/cost.h"

#include "base/error.h"
#include "model/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double NUMBER_MAX = 1e30;

static double bandwidth_at(const motet_pack_cost *cost, int32_t degree) {
  for (int32_t i = 0; i < cost->bandwidth_count; i++)
    if (cost->bandwidth_degree[i] >= degree || i + 1 == cost->bandwidth_count)
      return cost->bandwidth_bytes_per_second[i];
  return INFINITY;
}

static mt_pack_row row_of(const motet_pack_cost *cost, int32_t degree) {
  double d = degree;
  mt_pack_row row = {.degree = degree,
                     .fixed = cost->fixed_seconds,
                     .linear = cost->linear_seconds_per_token / d,
                     .attention = cost->attention_seconds_per_area / d};
  if (degree == 1) return row;
  double ring = cost->ring_bytes_per_token * (d - 1) / (d * bandwidth_at(cost, degree));
  double latency = cost->latency_seconds_per_hop * (d - 1);
  if (cost->no_overlap) {
    row.linear += ring;
    row.fixed += latency;
  } else {
    row.ring = ring;
    row.latency = latency;
  }
  return row;
}

double motet_pack_seconds(const motet_pack_cost *cost, int64_t tokens, double area, int32_t degree) {
  if (tokens <= 0 || degree <= 0) return 0;
  mt_pack_row row = row_of(cost, degree);
  return mt_pack_row_seconds(&row, tokens, area);
}

static motet_status check_coefficient(double value, const char *name, motet_error *error) {
  if (value >= 0 && value <= NUMBER_MAX) return MOTET_OK;
  mt_error_set(error, MOTET_ERROR_ARGUMENT, "%s is %g; a number from 0 to %g belongs there", name, value,
               NUMBER_MAX);
  mt_error_key(error, name);
  return MOTET_ERROR_ARGUMENT;
}

static motet_status check(const motet_pack_cost *cost, motet_error *error) {
  motet_status status = check_coefficient(cost->attention_seconds_per_area, "attn_s_per_area", error);
  if (status == MOTET_OK) status = check_coefficient(cost->linear_seconds_per_token, "linear_s_per_token", error);
  if (status == MOTET_OK) status = check_coefficient(cost->fixed_seconds, "fixed_s", error);
  if (status == MOTET_OK) status = check_coefficient(cost->ring_bytes_per_token, "ring_bytes_per_token", error);
  if (status == MOTET_OK) status = check_coefficient(cost->latency_seconds_per_hop, "latency_s_per_hop", error);
  if (status != MOTET_OK) return status;
  if (cost->bandwidth_count < 0 || cost->bandwidth_count > MOTET_PACK_BANDWIDTHS_MAX)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT, "%d bandwidths; at most %d are taken", cost->bandwidth_count,
                        MOTET_PACK_BANDWIDTHS_MAX);
  for (int32_t i = 0; i < cost->bandwidth_count; i++) {
    int32_t before = i > 0 ? cost->bandwidth_degree[i - 1] : 0;
    double bandwidth = cost->bandwidth_bytes_per_second[i];
    if (cost->bandwidth_degree[i] <= before || !(bandwidth > 0 && bandwidth <= NUMBER_MAX))
      return mt_error_set(error, MOTET_ERROR_ARGUMENT,
                          "bandwidth %g at degree %d: degrees ascend from 1 and bandwidths are positive", bandwidth,
                          cost->bandwidth_degree[i]);
  }
  return MOTET_OK;
}

motet_status mt_pack_table_build(mt_arena *arena, const motet_pack_cost *cost, const int32_t *degrees,
                                 int32_t degree_count, int32_t ranks, motet_error *error, mt_pack_table *table) {
  motet_status status = check(cost, error);
  if (status != MOTET_OK) return status;
  mt_pack_row *rows = MT_ARENA_NEW(arena, mt_pack_row, ranks);
  int32_t *index_at_most = MT_ARENA_NEW(arena, int32_t, ranks + 1);
  if (rows == NULL || index_at_most == NULL)
    return mt_error_memory(error, (unsigned long long)ranks * sizeof *rows, "the cost table");
  int32_t count = 0;
  for (int32_t i = 0; i < (degrees != NULL ? degree_count : ranks); i++) {
    int32_t degree = degrees != NULL ? degrees[i] : i + 1;
    if (degree < 1 || (i > 0 && degrees != NULL && degree <= degrees[i - 1]))
      return mt_error_set(error, MOTET_ERROR_ARGUMENT, "allowed degrees must ascend from 1; %d does not", degree);
    if (degree <= ranks) rows[count++] = row_of(cost, degree);
  }
  if (count == 0)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT, "no allowed degree is at most the %d ranks", ranks);
  int32_t row = -1;
  for (int32_t d = 0; d <= ranks; d++) {
    while (row + 1 < count && rows[row + 1].degree <= d) row++;
    index_at_most[d] = row;
  }
  *table = (mt_pack_table){.fixed = cost->fixed_seconds,
                           .linear = cost->linear_seconds_per_token,
                           .attention = cost->attention_seconds_per_area,
                           .count = count,
                           .rows = rows,
                           .index_at_most = index_at_most};
  return MOTET_OK;
}

/* One entry of "bandwidth_bytes_per_s"; entries may stand in any order. */
static void add_bandwidth(mt_json *json, const char *name, const json_t *value, motet_pack_cost *cost) {
  static const char key[] = "bandwidth_bytes_per_s";
  char *end;
  long degree = strtol(name, &end, 10);
  double bandwidth = json_number_value(value);
  if (end == name || *end != '\0' || degree < 1 || degree > MOTET_PACK_RANKS_MAX) {
    mt_json_fail(json, MOTET_ERROR_PARSE, key, "'%s' is no degree; whole numbers from 1 to %d name the entries",
                 name, MOTET_PACK_RANKS_MAX);
    return;
  }
  if (!json_is_number(value) || !(bandwidth > 0 && bandwidth <= NUMBER_MAX)) {
    mt_json_fail(json, MOTET_ERROR_PARSE, key, "at degree %ld: a positive number belongs here", degree);
    return;
  }
  if (cost->bandwidth_count == MOTET_PACK_BANDWIDTHS_MAX) {
    mt_json_fail(json, MOTET_ERROR_LIMIT, key, "at most %d entries are taken", MOTET_PACK_BANDWIDTHS_MAX);
    return;
  }
  int32_t at = cost->bandwidth_count++;
  for (; at > 0 && cost->bandwidth_degree[at - 1] >= degree; at--) {
    if (cost->bandwidth_degree[at - 1] == degree) {
      mt_json_fail(json, MOTET_ERROR_PARSE, key, "degree %ld stands there twice", degree);
      return;
    }
    cost->bandwidth_degree[at] = cost->bandwidth_degree[at - 1];
    cost->bandwidth_bytes_per_second[at] = cost->bandwidth_bytes_per_second[at - 1];
  }
  cost->bandwidth_degree[at] = (int32_t)degree;
  cost->bandwidth_bytes_per_second[at] = bandwidth;
}

static void refuse_unknown_keys(mt_json *json) {
  static const char *const known[] = {"attn_s_per_area",      "linear_s_per_token", "fixed_s",
                                      "ring_bytes_per_token", "latency_s_per_hop",  "overlap",
                                      "bandwidth_bytes_per_s"};
  void *place;
  for (place = json_object_iter(json->root); place != NULL; place = json_object_iter_next(json->root, place)) {
    const char *name = json_object_iter_key(place);
    bool found = false;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) found |= strcmp(name, known[i]) == 0;
    if (!found)
      mt_json_fail(json, MOTET_ERROR_PARSE, name,
                   "unknown key; known are attn_s_per_area, linear_s_per_token, fixed_s, ring_bytes_per_token, "
                   "bandwidth_bytes_per_s, latency_s_per_hop, overlap");
  }
}

static double required(mt_json *json, const char *key) {
  if (mt_json_find(json, key) == NULL)
    mt_json_fail(json, MOTET_ERROR_PARSE, key, "missing; a number >= 0 belongs here");
  return mt_json_number_or(json, key, 0, NUMBER_MAX, 0);
}

motet_status motet_pack_cost_read(const char *path, motet_error *error, motet_pack_cost *cost) {
  mt_json json;
  *cost = (motet_pack_cost){0};
  motet_status status = mt_json_open(path, "cost.json", error, &json);
  if (status != MOTET_OK) return status;
  refuse_unknown_keys(&json);
  cost->attention_seconds_per_area = required(&json, "attn_s_per_area");
  cost->linear_seconds_per_token = required(&json, "linear_s_per_token");
  cost->fixed_seconds = mt_json_number_or(&json, "fixed_s", 0, NUMBER_MAX, 0);
  cost->ring_bytes_per_token = mt_json_number_or(&json, "ring_bytes_per_token", 0, NUMBER_MAX, 0);
  cost->latency_seconds_per_hop = mt_json_number_or(&json, "latency_s_per_hop", 0, NUMBER_MAX, 0);
  cost->no_overlap = !mt_json_boolean_or(&json, "overlap", true);
  json_t *bandwidth = json_object_get(json.root, "bandwidth_bytes_per_s");
  if (bandwidth != NULL && !json_is_object(bandwidth) && !json_is_null(bandwidth)) {
    mt_json_fail(&json, MOTET_ERROR_PARSE, "bandwidth_bytes_per_s",
                 "an object {\"degree\": bytes per second} belongs here");
  } else if (json_is_object(bandwidth)) {
    const char *name;
    json_t *value;
    json_object_foreach(bandwidth, name, value) add_bandwidth(&json, name, value, cost);
  }
  if (cost->ring_bytes_per_token > 0 && cost->bandwidth_count == 0)
    mt_json_fail(&json, MOTET_ERROR_PARSE, "bandwidth_bytes_per_s",
                 "missing or empty; with ring_bytes_per_token > 0 at least one degree's bandwidth belongs here");
  status = json.status;
  mt_json_close(&json);
  return status;
}
