/** @file
 * Plans on unit costs: from a schedule's text to a program that is proven and simulated. The handle owns all it
 * hands out; two plans in two threads do not meet.
 */
#ifndef MOTET_PLAN_H
#define MOTET_PLAN_H

#include "motet/program.h"
#include "motet/status.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What is planned. Zero-filled fields take the defaults in brackets; texts and arrays stay the caller's. */
typedef struct motet_plan_options {
  const char *schedule;  /**< "<vision: transpose, llm: 1f1b>" */
  const char *unit;      /**< "vision: f=1; llm: f=1, b=2", seconds: a rank's share for a Sharded region, per
                              microbatch for a Replicated or inline one */
  int32_t ranks;         /**< P of one pipeline */
  int32_t microbatches;  /**< M of one pipeline */
  int32_t replicas;      /**< data-parallel pipelines [1] */
  const char *trainable; /**< comma-separated modules [those with backward times] */
  const double *encode; /**< [encode_count] forward seconds of the Replicated (or inline) modules, repeated over the
                             microbatches; 0: the microbatch has no data for them */
  int32_t encode_count;
  const int32_t *split; /**< [split_count] layers of each stage of the Sharded regions [even] */
  int32_t split_count;
  double alpha_seconds;         /**< latency of a transfer */
  double beta_bytes_per_second; /**< bandwidth [unlimited] */
  int64_t bytes;                /**< size of an activation and of its gradient */
  int64_t memory_cap_bytes;     /**< per rank [none] */
  const char *layout; /**< Megatron-LM pipeline layout, "Et*3|(tt|)*29,m|L", in place of schedule and split;
                           `unit` then gives the times of one layer of each kind (docs/megatron.md) */
} motet_plan_options;

/** Idle rank-seconds by cause (docs/simulation.md); together they are all idle time. */
typedef struct motet_idle {
  double warm_up, cool_down, stage_imbalance, microbatch_variance, communication, data_parallel_wait, input_stall;
} motet_idle;

/** What came of it. Arrays belong to the plan. */
typedef struct motet_plan_result {
  const char *schedule;         /**< canonical text */
  const motet_program *program; /**< proven by motet_verify() */
  double makespan;              /**< seconds */
  double bound;                 /**< proven: no order of the transposed work is faster */
  double idle_share;            /**< idle / (ranks * makespan) */
  double bubble_whole, bubble_stage;
  motet_idle idle;
  int32_t peak_features;
  const motet_rank_memory *memory; /**< [ranks * replicas] */
  const double *start, *finish;    /**< seconds, per instruction of the program's flat array */
} motet_plan_result;

typedef struct motet_plan motet_plan;

/** Derives, orders, lowers, proves and simulates. MOTET_ERROR_ILLEGAL for a schedule that breaks a rule, named in
 * @p error. @p plan is NULL on failure; release it with motet_plan_destroy(). */
motet_status motet_plan_create(const motet_plan_options *options, motet_error *error, motet_plan **plan);

void motet_plan_destroy(motet_plan *plan);

const motet_plan_result *motet_plan_get(const motet_plan *plan);

#ifdef __cplusplus
}
#endif

#endif
