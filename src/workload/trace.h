/** @file Traces: sequences with a length and an area, from JSON lines or from a named distribution. */
#ifndef MT_WORKLOAD_TRACE_H
#define MT_WORKLOAD_TRACE_H

#include "base/arena.h"
#include "base/error.h"

#include <stdint.h>

typedef struct mt_trace_item {
  const char *id; /* unique in its trace */
  int64_t tokens;
  double area;  /* query-key pairs kept by the mask; causal: tokens^2 / 2 */
  int32_t line; /* in the file, from 1; 0 for drawn ones */
} mt_trace_item;

typedef struct mt_trace {
  mt_arena *arena; /* owns the items and their texts */
  mt_trace_item *items;
  int32_t count;
} mt_trace;

/**
 * Parses JSON lines `{"id": "a", "tokens": 131072, "area": 8.59e9}`; `id` (default: the line's number) and `area`
 * (default: causal) may be left out, empty lines are skipped. Errors name the line.
 * @param file for messages
 */
motet_status mt_trace_parse(const char *text, size_t bytes, const char *file, motet_error *error, mt_trace *trace);
motet_status mt_trace_read(const char *path, motet_error *error, mt_trace *trace);
void mt_trace_destroy(mt_trace *trace);

/** What a distribution is told. */
typedef struct mt_distribution {
  const char *name; /* burst-128k, burst-192k, internvid, msrvtt, openvid, wikipedia */
  int32_t count;    /* sequences drawn; 0: the distribution's own */
  uint64_t seed;
  int32_t ranks;         /* N of the burst batches and of the clamp */
  int64_t memory_tokens; /* of a rank: what no sequence may exceed on all ranks together */
} mt_distribution;

/** Draws a trace. MOTET_ERROR_ARGUMENT for an unknown name, with the known ones. */
motet_status mt_distribution_draw(const mt_distribution *distribution, motet_error *error, mt_trace *trace);

#endif
