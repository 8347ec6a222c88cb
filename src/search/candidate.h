/** @file
 * Candidates: one choice for everything that a search leaves open. The space lists them with a lower bound each;
 * the evaluation makes a plan of one. See docs/search.md.
 */
#ifndef MT_SEARCH_CANDIDATE_H
#define MT_SEARCH_CANDIDATE_H

#include "algebra/schedule.h"
#include "base/text.h"
#include "cost/forecast.h"
#include "order/plan.h"
#include "search/batch.h"

typedef struct mt_search_candidate {
  int32_t tensor, ulysses, ring, expert; /* of the trunk */
  int32_t encoder_tensor; /* of the modules before it; the rest of a cell shares out their pictures */
  int32_t data, pipeline, chunks;
  mt_skeleton_kind trunk; /* skeleton of the pipeline */
  int32_t dedicated;      /* cells of the encoders' own in a replica; 0: none */
  int32_t microbatch;     /* samples */
  int32_t encoder_batch;  /* microbatches that transposed or dedicated encoders take at a time */
  int32_t microbatches;
  int32_t zero;
  int32_t shard_devices; /* that divide weights and gradients, states over all (layered); 0: all */
  mt_search_manner manner;
  double bound;                 /* seconds: no plan of it is faster */
  double estimate;              /* about what it may take: the bound and a pipeline's usual idle time */
  const int32_t *microbatch_of; /* [microbatches] of the replica that is planned, in the batch */
} mt_search_candidate;

/** What all candidates share. */
typedef struct mt_search_space {
  const mt_search_problem *problem;
  int32_t batch_count;
  mt_search_batch *batches;
  int32_t trunk;            /* module */
  bool chain;               /* the modules are one chain */
  bool *passes;             /* [layers] a gradient goes on to what stands in front of the layer */
  int32_t *first_trainable; /* [modules] layer at which a module's backward stops; its end: none */
  int32_t count;
  mt_search_candidate *candidates; /* by estimate, then as listed */
  double least_bytes;              /* of the lightest candidate that bounds on memory exclude; infinite: none */
  mt_search_candidate lightest;    /* that candidate */
  int64_t excluded;
} mt_search_space;

/** Lists candidates. Memory that weights and states, or one layer's activations, exceed excludes one at once. */
motet_status mt_search_space_make(mt_arena *arena, const mt_search_problem *problem,
                                  const mt_workload_samples *data, motet_error *error, mt_search_space *space);

/** The batch of so many samples a microbatch. */
mt_search_batch *mt_search_space_batch(const mt_search_space *space, int32_t samples);

/** Gives a candidate of another space of the same problem the microbatches of this one. */
motet_status mt_search_space_adopt(mt_arena *arena, const mt_search_space *space, mt_search_candidate *candidate,
                                   motet_error *error);

/** Whether a gradient reaches the layer. */
static inline bool mt_search_reached(const mt_search_space *space, int32_t layer) {
  return layer >= space->first_trainable[space->problem->architecture->model->layers[layer].module];
}

/** Cells of a replica. Where the modules are no chain, each one before the trunk has dedicated cells of its own. */
static inline int32_t mt_search_cells(const mt_search_space *space, const mt_search_candidate *candidate) {
  return candidate->pipeline + candidate->dedicated * (space->chain ? 1 : space->trunk);
}

/** How each module lies: [modules]. */
void mt_search_parallels(const mt_search_space *space, const mt_search_candidate *candidate,
                         mt_parallel *parallels);

/** Where the optimizer's states lie. */
void mt_search_place_optimizer(const mt_search_space *space, bool host, mt_parallel *parallels);

/** Whether the modules lie on separate cells or in front of the trunk: layers of [begin, end) that the pipeline
 * cuts.
 */
void mt_search_cut(const mt_search_space *space, const mt_search_candidate *candidate, int32_t *begin,
                   int32_t *end);

/** A finished plan of a candidate. */
typedef struct mt_search_plan {
  double seconds;          /* of the step */
  double memory_bytes;     /* of the device that needs most */
  int32_t memory_rank;     /* its cell */
  double exchange_seconds; /* exposed, of the busiest cell */
  int32_t *split;          /* layers of the trunk's stages */
  int32_t split_count;
  int32_t *stage_layers; /* [stage_count] of all stages that a job's parallel.split has */
  int32_t stage_count;
  int32_t *microbatch; /* [microbatches] in the batch, in the order in which they go */
  uint8_t *savings;    /* [layers] mt_saving */
  bool host_optimizer; /* the optimizer's states lie in host memory */
  double host_bytes;   /* in host memory, of the device that has most there */
  double state_bytes;  /* the optimizer's states of the device that needs most */
  mt_plan plan;        /* with @p keep: free with mt_plan_free(); lives in the arena */
  mt_derivation *derivation;
} mt_search_plan;

typedef struct mt_search_effort {
  double order_seconds; /* as mt_order_options' search_seconds */
  bool reordered;       /* unlike microbatches in the order that a climb finds */
  bool keep;            /* the plan, not only what it takes */
  double limit; /* seconds: a candidate whose stages, or any order of its work, take as long is not planned, its
                   seconds and bytes are infinite; 0: none */
} mt_search_effort;

/** Derives, lowers, proves and simulates a candidate on the replica with most to do. MOTET_ERROR_ILLEGAL where no
 * schedule of it is legal. */
motet_status mt_search_evaluate(mt_arena *arena, const mt_search_space *space, const mt_search_candidate *candidate,
                                const mt_search_effort *effort, motet_error *error, mt_search_plan *plan);

/** What a device must have; infinite where a host has not as much room as the plan asks of it. */
double mt_search_plan_bytes(const mt_search_problem *problem, const mt_search_plan *plan);

/** "tensor 2, pipeline 4, ..." */
void mt_search_candidate_text(const mt_search_candidate *candidate, mt_text *text);

/** The schedule of a candidate. */
char *mt_search_schedule(mt_arena *arena, const mt_search_space *space, const mt_search_candidate *candidate);

#endif
