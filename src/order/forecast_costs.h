/** @file
 * Planning on forecasts: the tables that a derivation's stages are ordered, simulated and proven with, from a model
 * on a cluster. One rank of the derivation is one cell of devices (cost/parallel.h); bytes are those of a device.
 */
#ifndef MT_ORDER_FORECAST_COSTS_H
#define MT_ORDER_FORECAST_COSTS_H

#include "algebra/derive.h"
#include "cost/forecast.h"
#include "motet/program.h"
#include "program/lower.h"

/** A rank computes one thing at a time: of its stages the one that needs most while it computes, @p working
 * [stages], has it for all, in @p held [stages]. Replicated stages are on all ranks that hold them; others have
 * what they need beyond those. */
void mt_forecast_hold_working(const mt_derivation *derivation, const int64_t *working, int64_t *held);

/** What lies in host memory, in bytes of one device. */
typedef struct mt_host_bytes {
  int64_t *states;      /* [stages] of the optimizer, all the time */
  int64_t *activations; /* [stages] of one microbatch from its forward to its backward, the largest */
} mt_host_bytes;

typedef struct mt_forecast_tables {
  mt_cost_table costs;      /* a stage's optimizer seconds hold the exposed reductions over replicas too */
  mt_sizes sizes;           /* static bytes with a rank's working memory; no weight bytes: replicas are not in the
                               program, their reductions in optimizer seconds */
  mt_host_bytes host;       /* what lies in host memory */
  double *reduce_seconds;   /* [stages] over replicas, hidden or not */
  double *exchange_seconds; /* [stages] exposed communication inside the cell, of all microbatches */
} mt_forecast_tables;

/**
 * @param extents [microbatches * MT_EXTENTS] of each microbatch of one replica; microbatches that are alike may
 * share: @p extents_count 1 serves all
 * @p derivation must be of the forecast's model (its layers in the same numbers).
 */
motet_status mt_forecast_tables_make(mt_arena *arena, const mt_derivation *derivation, const mt_forecast *forecast,
                                     const double *extents, int32_t extents_count, motet_error *error,
                                     mt_forecast_tables *tables);

/** Shapes of a replica's microbatches. */
typedef struct mt_forecast_shapes {
  int32_t count;
  const double *extents; /* (count, MT_EXTENTS) */
  const int32_t *of;     /* [microbatches] the shape of each; NULL: each has its own, or all the only one */
} mt_forecast_shapes;

/** What a stage takes for each microbatch, alone or with those that its region computes together with it. @p
 * results: [microbatches]; zero where it has no work. */
motet_status mt_forecast_stage(mt_arena *arena, const mt_derivation *derivation, const mt_forecast *forecast,
                               int32_t stage, const mt_forecast_shapes *shapes, motet_error *error,
                               mt_span_forecast *results);

/** Of a rank, with as many microbatches at a time as its program's @p memory has. Features that a rank holds have
 * stages of encoders behind them, which count as often. */
double mt_host_bytes_of(const mt_derivation *derivation, const mt_host_bytes *host, const motet_rank_memory *memory,
                        int32_t rank);

/** Modules with rows in a microbatch of these extents: picture modules of one without pictures have none. */
uint64_t mt_forecast_present(const mt_architecture *architecture, const double *extents);

/** A stage as forecasts see it. */
mt_span mt_forecast_span_of(const mt_stage *stage);

#endif
