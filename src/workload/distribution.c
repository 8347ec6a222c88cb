/* Named distributions of sequence lengths. Every quantity comes from a random stream of its own name, so that the
 * n-th sequence does not depend on how many are drawn. */
#include "base/random.h"
#include "workload/trace.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { BURST_BATCH = 128, BURST_RANK_TOKENS = 8192, TOKENS_PER_FRAME = 256 };

/* Inverse of a cumulative distribution, log-linear between its quantiles. */
typedef struct quantile {
  double share, value;
} quantile;

/* Text lengths of a wikipedia trace, tokens. */
static const quantile wikipedia_tokens[] = {
    {0, 39},      {0.01, 39},   {0.05, 67},    {0.10, 87},     {0.25, 146},      {0.50, 347}, {0.75, 862},
    {0.90, 2112}, {0.95, 3721}, {0.99, 10921}, {0.999, 37367}, {0.9999, 102060}, {1, 1823777}};

/* InternVid clip durations: share of clips in each range of seconds. */
typedef struct range {
  double share, low, high;
} range;
static const range internvid_seconds[] = {{0.25, 0, 2},    {0.317, 2, 5},   {0.174, 5, 10},  {0.132, 10, 20},
                                          {0.049, 20, 30}, {0.052, 30, 60}, {0.026, 60, 300}};

static double invert(const quantile *table, size_t rows, double share) {
  size_t i = 1;
  while (i + 1 < rows && table[i].share < share) i++;
  double part = (share - table[i - 1].share) / (table[i].share - table[i - 1].share);
  return exp(log(table[i - 1].value) + part * (log(table[i].value) - log(table[i - 1].value)));
}

typedef struct draw {
  mt_random lengths; /* stream "<name> lengths" */
  mt_random bursts;  /* stream "<name> bursts" */
  int64_t batch_tokens;
  int64_t burst; /* tokens of a burst's long sequence */
  bool in_burst;
  int64_t other; /* tokens of the others in a burst */
} draw;

static int64_t clamp(int64_t value, int64_t low, int64_t high) {
  return value < low ? low : value > high ? high : value;
}

/* Batches of 128: with probability 1/2 one long sequence first and the others so that the batch has N * 8192
 * tokens, clamped to [512, 4096]; else all uniform in [512, 4096]. */
static int64_t draw_burst(draw *from, int32_t index) {
  if (index % BURST_BATCH == 0) {
    from->in_burst = mt_random_unit(&from->bursts) < 0.5;
    from->other = clamp((from->batch_tokens - from->burst) / (BURST_BATCH - 1), 512, 4096);
    if (from->in_burst) return from->burst;
  }
  return from->in_burst ? from->other : 512 + (int64_t)mt_random_below(&from->lengths, 4096 - 512 + 1);
}

static int64_t tokens_of_seconds(double seconds) {
  int64_t frames = (int64_t)ceil(seconds); /* one frame a second */
  return TOKENS_PER_FRAME * (frames > 0 ? frames : 1);
}

static int64_t draw_internvid(draw *from, int32_t index) {
  (void)index;
  double share = mt_random_unit(&from->lengths);
  size_t rows = sizeof internvid_seconds / sizeof *internvid_seconds, i = 0;
  for (; i + 1 < rows && share >= internvid_seconds[i].share; i++) share -= internvid_seconds[i].share;
  double part = share / internvid_seconds[i].share;
  if (part > 1) part = 1; /* rounding */
  return tokens_of_seconds(internvid_seconds[i].low +
                           part * (internvid_seconds[i].high - internvid_seconds[i].low));
}

/* 10 to 30 s with mean 14.8 s: 10 + 20 u^p has mean 10 + 20 / (p + 1), so p = 20 / 4.8 - 1. */
static int64_t draw_msrvtt(draw *from, int32_t index) {
  (void)index;
  return tokens_of_seconds(10 + 20 * pow(mt_random_unit(&from->lengths), 20 / 4.8 - 1));
}

/* Lognormal, median 5 s, sigma 0.8, clipped to [2, 120] (inferred). */
static int64_t draw_openvid(draw *from, int32_t index) {
  (void)index;
  double seconds = 5 * exp(0.8 * mt_random_normal(&from->lengths));
  return tokens_of_seconds(seconds < 2 ? 2 : seconds > 120 ? 120 : seconds);
}

static int64_t draw_wikipedia(draw *from, int32_t index) {
  (void)index;
  return (int64_t)floor(
      invert(wikipedia_tokens, sizeof wikipedia_tokens / sizeof *wikipedia_tokens, mt_random_unit(&from->lengths)) +
      0.5);
}

typedef struct row {
  const char *name;
  int64_t (*draw)(draw *from, int32_t index);
  int64_t burst;
} row;

static const row rows[] = {{"burst-128k", draw_burst, 131072}, {"burst-192k", draw_burst, 196608},
                           {"burst-224k", draw_burst, 229376}, {"internvid", draw_internvid, 0},
                           {"msrvtt", draw_msrvtt, 0},         {"openvid", draw_openvid, 0},
                           {"wikipedia", draw_wikipedia, 0}};
enum { ROWS = sizeof rows / sizeof *rows, COUNT_DEFAULT = 512, COUNT_MAX = 10000000 };

motet_status mt_distribution_draw(const mt_distribution *distribution, motet_error *error, mt_trace *trace) {
  *trace = (mt_trace){0};
  const row *chosen = NULL;
  for (int i = 0; i < ROWS; i++)
    if (strcmp(rows[i].name, distribution->name) == 0) chosen = &rows[i];
  if (chosen == NULL)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT,
                        "there is no distribution '%s'; known are burst-128k, burst-192k, burst-224k, internvid, "
                        "msrvtt, openvid and wikipedia",
                        distribution->name);
  int32_t count = distribution->count > 0 ? distribution->count : COUNT_DEFAULT;
  if (count > COUNT_MAX)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT, "%d sequences; at most %d can be drawn", count, COUNT_MAX);
  trace->arena = mt_arena_create();
  trace->items = trace->arena != NULL ? MT_ARENA_NEW(trace->arena, mt_trace_item, count) : NULL;
  char lengths[64], bursts[64];
  snprintf(lengths, sizeof lengths, "%s lengths", chosen->name);
  snprintf(bursts, sizeof bursts, "%s bursts", chosen->name);
  draw from = {.lengths = mt_random_stream(distribution->seed, lengths),
               .bursts = mt_random_stream(distribution->seed, bursts),
               .batch_tokens = (int64_t)distribution->ranks * BURST_RANK_TOKENS,
               .burst = chosen->burst};
  int64_t most = distribution->memory_tokens * distribution->ranks;
  for (int32_t i = 0; trace->items != NULL && i < count; i++) {
    int64_t tokens = chosen->draw(&from, i);
    if (most > 0 && tokens > most) tokens = most;
    trace->items[i] = (mt_trace_item){.id = mt_arena_format(trace->arena, "%d", i),
                                      .tokens = tokens,
                                      .area = 0.5 * (double)tokens * (double)tokens};
    if (trace->items[i].id == NULL) break;
    trace->count = i + 1;
  }
  if (trace->count == count) return MOTET_OK;
  mt_trace_destroy(trace);
  return mt_error_memory(error, (size_t)count * sizeof(mt_trace_item), "a trace");
}
