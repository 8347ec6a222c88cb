/** @file
 * The planner of a training job: from the shapes of a step's microbatches to a proven program. A pure function of
 * its inputs, so that every rank makes the same program for itself.
 */
#ifndef MT_TRAIN_PLANNER_H
#define MT_TRAIN_PLANNER_H

#include "nn/batch.h"
#include "order/plan.h"
#include "tensor/backend.h"
#include "train/costs.h"

typedef struct mt_planner_options {
  const mt_internvl *config;
  const char *schedule;
  bool trainable[3]; /* vision, projector, llm */
  bool recompute[3]; /* modules whose saved activations are dropped and computed again for the backward */
  int32_t pipeline, replicas;
  int32_t context;      /* ranks of the plane that each pipeline rank is; 0 or 1: one */
  int32_t ulysses;      /* most ranks of a group that exchange heads; 0 or 1: none */
  int32_t microbatches; /* of one replica */
  const int64_t *split; /* layers of each stage of the sharded regions, or NULL */
  int32_t split_count;
  mt_layer_costs costs;
  mt_element element; /* of activations and their gradients */
  bool caches;        /* features of frozen image modules are cached */
  bool exact;         /* gradients are summed exactly: two doubles each, also on their way */
  int32_t decode_threads,
      decode_rows;       /* of a rank: that decode, and rows that they decode ahead; 0: as if decoded */
  double search_seconds; /* effort a step of the order's search; 0: greedy alone. By counted work, not by a clock */
} mt_planner_options;

typedef struct mt_planner mt_planner;

/** Derives once, without data: errors in schedule, cut and trainable modules show here. */
motet_status mt_planner_create(const mt_planner_options *options, motet_error *error, mt_planner **planner);
void mt_planner_destroy(mt_planner *planner);

/** The model with its trainable flags; lives as long as the planner. */
const mt_model *mt_planner_model(const mt_planner *planner);

/** What layers cost, as planning has it; lives as long as the planner. */
const mt_layer_costs *mt_planner_costs(const mt_planner *planner);

/** Which layers rank @p rank (of all replicas) holds: one flag a layer. */
void mt_planner_held(const mt_planner *planner, int32_t rank, bool *held);

/** The layers [0, n) whose output may be cached: whole image modules, frozen; 0 where the encoder trains. */
int32_t mt_planner_cached_layers(const mt_planner *planner);

/** Which layers train: one flag a layer. */
void mt_planner_trainable(const mt_planner *planner, bool *trainable);

typedef enum mt_planner_purpose {
  MT_PLANNER_TRAIN,
  MT_PLANNER_EVALUATE /* nothing trains: forward alone, and nothing runs ahead of its step */
} mt_planner_purpose;

/** Segments [segment_begin, segment_end) of a microbatch, computed by these context ranks together. */
typedef struct mt_planner_group {
  int32_t segment_begin, segment_end;
  int32_t degree;
  const int32_t *context_ranks; /* [degree] ascending */
} mt_planner_group;

/** What planning knows of a microbatch. */
typedef struct mt_planner_microbatch {
  mt_batch batch; /* shapes; with context parallelism also where image features stand */
  int32_t targets;
  double decode_seconds; /* of one thread, for its pictures; 0: not known */
  bool cached; /* the features behind mt_planner_cached_layers() are in a cache: nothing in front computes them */
  int32_t group_count; /* with context parallelism: of disjoint ranks; together they have all segments, in order */
  const mt_planner_group *groups;
} mt_planner_microbatch;

/**
 * Plans one step. The plan of a step that trains knows its operations (mt_plan.flops).
 * @param microbatches [replicas * microbatches]
 * @param carried outputs that the step before left (program's numbers of microbatches and ranks), for order `ahead`
 */
motet_status mt_planner_plan(const mt_planner *planner, mt_planner_purpose purpose,
                             const mt_planner_microbatch *microbatches, const motet_carried *carried,
                             int32_t carried_count, mt_arena *arena, motet_error *error, mt_plan *plan);

/** What the program leaves to the next step: the outputs of its FWDs that run ahead. Allocated from @p arena. */
motet_status mt_planner_carried(const motet_program *program, mt_arena *arena, motet_error *error,
                                motet_carried **carried, int32_t *carried_count);

#endif
