/** @file
 * Flexible context parallelism: cuts the ranks of the (data x context) plane into groups, anew for every
 * microbatch. A long sequence gets a wide ring, short ones are packed on few ranks (docs/pack.md).
 *
 * A ::motet_packer is made once from the cluster, the cost and the limits, and plans batch after batch: once it has
 * seen its largest batch it allocates no more. A packer serves one thread at a time; two packers do not meet.
 * Everything is deterministic: packers that plan the same batches in the same order make the same plans, with the
 * same digests, on every rank, compiler and machine. (Groups and times depend on the batch alone; the ranks that a
 * group gets also on which rank sets earlier plans made.)
 */
#ifndef MOTET_PACK_H
#define MOTET_PACK_H

#include "motet/status.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { MOTET_PACK_BANDWIDTHS_MAX = 64, MOTET_PACK_RANKS_MAX = 65536 };

/** One sequence: a row that attends within itself, or a packed row with the sum of its segments' areas. */
typedef struct motet_pack_sequence {
  int64_t tokens; /**< > 0 */
  double area;    /**< query-key pairs that its mask keeps; causal: tokens^2 / 2 */
} motet_pack_sequence;

static inline double motet_pack_causal_area(int64_t tokens) { return 0.5 * (double)tokens * (double)tokens; }

/**
 * Seconds of a group of degree d that holds `tokens` and `area`:
 *
 *     fixed + linear * tokens / d + max(attention * area / d, ring)
 *     ring = ring_bytes * tokens * (d - 1) / (d * bandwidth(d)) + latency * (d - 1)      for d > 1, else 0
 *
 * With `no_overlap` the maximum is a sum. At a degree that is not listed the bandwidth is that of the next higher
 * listed one, beyond the last that of the last. Without any listed bandwidth only the latency counts.
 */
typedef struct motet_pack_cost {
  double attention_seconds_per_area;
  double linear_seconds_per_token;
  double fixed_seconds;
  double ring_bytes_per_token;
  double latency_seconds_per_hop;
  bool no_overlap;
  int32_t bandwidth_count;
  int32_t bandwidth_degree[MOTET_PACK_BANDWIDTHS_MAX]; /**< ascending */
  double bandwidth_bytes_per_second[MOTET_PACK_BANDWIDTHS_MAX];
} motet_pack_cost;

/** Reads a cost file (docs/pack.md). Names the key and line of what is missing, unknown or out of range. */
motet_status motet_pack_cost_read(const char *path, motet_error *error, motet_pack_cost *cost);

/** Seconds of a group by the formula above; 0 for no tokens. */
double motet_pack_seconds(const motet_pack_cost *cost, int64_t tokens, double area, int32_t degree);

typedef enum motet_pack_planner {
  MOTET_PACK_BEST,        /**< search on the makespan; never slower than MOTET_PACK_BFD_DP */
  MOTET_PACK_BFD_DP,      /**< as published (arXiv 2602.21788): best fit decreasing, dynamic program, round robin */
  MOTET_PACK_STATIC,      /**< every group of one degree */
  MOTET_PACK_POW2_GREEDY, /**< least power of two per sequence, least loaded ranks */
  MOTET_PACK_LPT          /**< least degrees, longest first on the least loaded group, slack to the slowest */
} motet_pack_planner;

typedef enum motet_pack_scope {
  MOTET_PACK_MICROBATCH, /**< a barrier behind every microbatch */
  MOTET_PACK_GLOBAL      /**< the whole batch on a timeline of the ranks, without barriers */
} motet_pack_scope;

typedef enum motet_pack_batch {
  MOTET_PACK_ALL,   /**< everything is one microbatch; what does not fit is deferred */
  MOTET_PACK_FIXED, /**< `batch_size` sequences a microbatch, in order */
  MOTET_PACK_AUTO   /**< as many microbatches as memory asks for, composed by the planner */
} motet_pack_batch;

/** Why a plan's search ended. */
typedef enum motet_pack_stop {
  MOTET_PACK_STOP_BOUND,         /**< the value reaches the lower bound: nothing is faster */
  MOTET_PACK_STOP_EXHAUSTED,     /**< every grouping was looked at: nothing is faster */
  MOTET_PACK_STOP_LOCAL_OPTIMUM, /**< no move, swap, merge, split or change of degrees helps */
  MOTET_PACK_STOP_WORK,          /**< the counted work of `deadline_ms` is used up */
  MOTET_PACK_STOP_BASELINE       /**< a planner that does not search */
} motet_pack_stop;

const char *motet_pack_stop_name(motet_pack_stop stop);
const char *motet_pack_planner_name(motet_pack_planner planner);

/** What a packer is told. Zero-filled fields take the defaults in brackets. */
typedef struct motet_pack_options {
  int32_t ranks;         /**< N, required */
  int64_t memory_tokens; /**< tokens that a rank's memory takes, required: a group holds at most d times these */
  motet_pack_cost cost;
  const int32_t *degrees; /**< [degree_count] allowed, ascending; copied [all up to N] */
  int32_t degree_count;
  int32_t ranks_per_node; /**< [all ranks are one node] */
  int32_t group_budget;   /**< most distinct rank sets of two ranks or more, over the packer's life [no limit] */
  motet_pack_planner planner;
  int32_t static_degree; /**< of MOTET_PACK_STATIC */
  motet_pack_scope scope;
  motet_pack_batch batch;
  int32_t batch_size; /**< of MOTET_PACK_FIXED */
  double deadline_ms; /**< the search's effort, turned into counted work: never a clock
                                [1, or 1 per 512 sequences if that is more] */
} motet_pack_options;

typedef struct motet_pack_group {
  int32_t microbatch;
  int32_t degree;
  int64_t rank_first;     /**< its ranks, ascending: plan->ranks[rank_first .. rank_first + degree) */
  int64_t sequence_first; /**< its sequences, ascending: plan->sequences[sequence_first .. + sequence_count) */
  int32_t sequence_count;
  int64_t cumulative_first; /**< local cumulative lengths of its sequences, padding included:
                                 plan->cumulative[cumulative_first .. + sequence_count], the first 0 */
  int64_t tokens;
  double area;
  double start; /**< 0 under barriers: seconds after the microbatch's begin */
  double seconds;
} motet_pack_group;

typedef struct motet_pack_microbatch {
  int64_t group_first, group_count;
  double value, lower_bound;
} motet_pack_microbatch;

/**
 * What one rank does with one sequence of a group. The sequence is padded to `2 * degree * chunk` tokens; rank r of
 * the group owns chunks r and 2 * degree - 1 - r, so that a causal mask costs every rank the same.
 */
typedef struct motet_pack_slice {
  int32_t sequence;
  int32_t chunk;       /**< tokens of a chunk, padding included */
  int64_t first_begin; /**< first token of chunk r */
  int64_t second_begin;
  int32_t first_tokens, second_tokens; /**< those that exist; the rest of the chunk is padding */
} motet_pack_slice;

/** The slices of one (group, rank of it): slices[slice_first .. slice_first + the group's sequence_count). */
typedef struct motet_pack_part {
  int64_t group;
  int32_t rank;     /**< global number */
  int32_t position; /**< r, its place in the ring */
  int64_t slice_first;
  int64_t loss_numerator; /**< tokens that exist here; over all parts they add up to plan->loss_denominator */
} motet_pack_part;

/** A plan; it belongs to the packer and lives until its next plan. */
typedef struct motet_pack_plan {
  motet_pack_planner planner;
  motet_pack_stop stop;
  double value;       /**< seconds: sum over microbatches, or the last rank's end in the global scope */
  double lower_bound; /**< proven: no plan of these sequences under these limits takes less */
  uint64_t digest;
  int64_t microbatch_count, group_count, deferred_count, part_count;
  const motet_pack_microbatch *microbatches;
  const motet_pack_group *groups; /**< by microbatch, then by first rank (and start) */
  const int32_t *ranks;
  const int32_t *sequences;     /**< indices of the caller's array */
  const int32_t *deferred;      /**< sequences that no microbatch had room for, ascending */
  const motet_pack_part *parts; /**< by group, then position */
  const motet_pack_slice *slices;
  const int64_t *cumulative;     /**< see motet_pack_group.cumulative_first */
  int64_t loss_denominator;      /**< tokens planned; a token's loss weight is 1 / this, as without groups */
  int32_t distinct_groups;       /**< distinct rank sets of two ranks or more in this plan */
  double seconds_lost_to_budget; /**< value minus what it was before the group budget bent it */
} motet_pack_plan;

typedef struct motet_packer motet_packer;

/** @p options are copied. MOTET_ERROR_ARGUMENT names what makes no sense. NULL on failure. */
motet_status motet_packer_create(const motet_pack_options *options, motet_error *error, motet_packer **packer);
void motet_packer_destroy(motet_packer *packer);

/** Tokens of the longest sequence that fits at all. */
int64_t motet_packer_longest(const motet_packer *packer);

/**
 * Plans @p sequences, from grouping to slice tables. MOTET_ERROR_ARGUMENT for a sequence without tokens,
 * MOTET_ERROR_ILLEGAL where one fits no allowed group (the text says what would fit).
 */
motet_status motet_packer_plan(motet_packer *packer, const motet_pack_sequence *sequences, int32_t count,
                               motet_error *error, const motet_pack_plan **plan);

/** Life-long statistics of the packer's rank sets. */
typedef struct motet_pack_pool {
  int64_t made;                 /**< distinct rank sets of two ranks or more so far */
  int64_t hits;                 /**< uses of a set that was there already */
  double seconds_lost, seconds; /**< plan time lost to the budget, of all plan time */
} motet_pack_pool;

void motet_packer_pool(const motet_packer *packer, motet_pack_pool *pool);

/** The @p index-th rank set made (0 <= index < made), ascending: what to set up before the first step. Returns its
 * degree; @p ranks (at least that many entries, or NULL) receives them. */
int32_t motet_packer_pool_set(const motet_packer *packer, int64_t index, int32_t *ranks);

/**
 * Planning ahead on a thread of its own. Batches are planned in the order given; with @p look_ahead batches in
 * flight motet_pack_service_submit() refuses more (MOTET_ERROR_LIMIT). motet_pack_service_take() hands out the next
 * batch's plan. If it is not ready and @p wait is false, @p fresh is false and the plan is the last good one, or
 * NULL before there was any: a miss is never an error, and the batch stays next. A plan that was refused is an
 * error. The handed-out plan lives until the next take.
 */
typedef struct motet_pack_service motet_pack_service;

motet_status motet_pack_service_create(const motet_pack_options *options, int32_t look_ahead, motet_error *error,
                                       motet_pack_service **service);
void motet_pack_service_destroy(motet_pack_service *service);
motet_status motet_pack_service_submit(motet_pack_service *service, const motet_pack_sequence *sequences,
                                       int32_t count, motet_error *error);
motet_status motet_pack_service_take(motet_pack_service *service, bool wait, motet_error *error, bool *fresh,
                                     const motet_pack_plan **plan);

#ifdef __cplusplus
}
#endif

#endif
