/** @file
 * Derivation: from (model, schedule, cut, P, M) to regions, stages, edges with their seams, gates, each rank's
 * body sequence and the work that is free to move. Everything here follows from the layout functions; nothing
 * names a schedule. One derivation describes one pipeline (one data-parallel replica).
 */
#ifndef MT_ALGEBRA_DERIVE_H
#define MT_ALGEBRA_DERIVE_H

#include "algebra/schedule.h"
#include "model/model.h"

#include <stdbool.h>
#include <stdint.h>

/** What derive is asked for. Arrays belong to the caller and are not kept. */
typedef struct mt_derive_request {
  const mt_model *model;
  const mt_schedule *schedule;
  int32_t ranks;           /* P */
  int32_t microbatches;    /* M */
  const uint64_t *present; /* [M] modules that have data; NULL: all */
  const uint64_t *cached;  /* [M] modules whose output is cached; NULL: none */
  uint64_t recompute;      /* modules whose saved activations are dropped and computed again for the backward */
  const int32_t *split;    /* layers of each stage of the Sharded regions, in stage order, or NULL: even. A
                              stage's layers are those of its own region; inline layers ride along uncounted */
  int32_t split_count;
  int64_t body_work; /* effort for an open body's order before times are known, in visited events; 0: the usual. Who
                        orders it by times needs none: 1 */
} mt_derive_request;

/** Backward work of a stage, by its two gates (01-algebra, section 4). */
typedef enum mt_gate {
  MT_GATE_NONE = 0,    /* no gradient arrives */
  MT_GATE_WEIGHTS = 1, /* (0,1): weight gradients, nothing sent upstream */
  MT_GATE_INPUT = 2,   /* (1,0): frozen, passes the gradient on */
  MT_GATE_FULL = 3     /* (1,1) */
} mt_gate;

typedef struct mt_region {
  const char *name; /* module names joined by '+' */
  mt_skeleton skeleton;
  int32_t module_begin, module_end; /* contiguous modules */
  int32_t layer_begin, layer_end;
  int32_t slabs; /* 1 if replicated, 0 if inline, else P * virtual_stages */
  bool replicated;
  bool trainable; /* T: some layer of it */
  int32_t host;   /* inline: the stage it rides on; else -1 */
  /* Its ranks are first_rank .. first_rank + data * pipeline - 1; microbatch m is of the pipeline m mod data. */
  int32_t first_rank, pipeline, data;
} mt_region;

/** A part of a stage: layers of one region. Stages have several parts only where an inline region rides along. */
typedef struct mt_part {
  int32_t region;
  int32_t layer_begin, layer_end;
} mt_part;

typedef struct mt_stage {
  int32_t region; /* the region whose slab it is, never an inline one */
  int32_t slab;
  int32_t layer_begin, layer_end; /* with the inline layers */
  int32_t part_begin, part_end;   /* in parts[] */
  mt_gate gate;
  int32_t first_trainable; /* first layer of the stage at which its backward may stop: the first trainable layer
                              when the gate sends nothing upstream, else layer_begin; -1 with MT_GATE_NONE */
  uint32_t inputs;         /* MOTET_INPUT_* */
  uint64_t modules;        /* modules with layers in it; an empty stage has its region's */
  double share;            /* of a rank's share of the region */
  bool recompute;          /* it has a backward, and layers of a module that is to be recomputed */
  int32_t rank;            /* sharded: the rank of microbatch 0; replicated: -1 */
} mt_stage;

typedef enum mt_pattern {
  MT_PATTERN_IDENTITY,
  MT_PATTERN_SEND,
  MT_PATTERN_GATHER,
  MT_PATTERN_SCATTER,
  MT_PATTERN_ALL_TO_ALL
} mt_pattern;

typedef struct mt_edge {
  int32_t from, to;             /* stages, from < to */
  bool gradient;                /* a gradient comes back along it (gate 1) */
  mt_pattern forward, backward; /* computed from the join of the layouts, for display */
} mt_edge;

/** One compute event of a rank's sequence. */
typedef struct mt_event {
  uint8_t kind; /* motet_instruction_kind: FWD, BWD, BWD_X, BWD_W */
  bool next;    /* of the next step's microbatch (order `ahead`) */
  bool joined;  /* one computation with the event behind it */
  int32_t stage;
  int32_t microbatch;
} mt_event;

typedef struct mt_derivation {
  int32_t ranks, microbatches;
  int32_t shared_first, shared_ranks; /* the ranks that no region has for itself */
  const mt_model *model;
  const uint64_t *present, *cached; /* [M], never NULL */
  int32_t region_count, stage_count, part_count, edge_count;
  mt_region *regions;
  mt_stage *stages; /* in forward order: every edge goes up */
  mt_part *parts;
  mt_edge *edges;
  /* Body: events of the Sharded stages per rank, in order. body[body_begin[r] .. body_begin[r + 1]). */
  int64_t *body_begin;
  mt_event *body;
  char *text; /* the canonical schedule text after normalisation */
} mt_derivation;

/** Derives; everything is allocated from @p arena. MOTET_ERROR_ILLEGAL names region, rule and what would be
 * accepted. @p request->model must live as long as the derivation. */
motet_status mt_derive(mt_arena *arena, const mt_derive_request *request, motet_error *error,
                       mt_derivation **derivation);

/** Times by which a body is ordered where the skeleton leaves its order open, over the derivation's stages. */
typedef struct mt_body_times {
  const double *forward, *input, *weight; /* [stages] of one event; where the backward is not split, `input` is
                                             the whole backward's and `weight` is not read */
  double lag;                             /* of a transfer between neighbours */
  int64_t work;                           /* effort of the search, in visited events */
} mt_body_times;

/** Whether the body's order depends on times: that of mt_derive() is for equal ones. */
bool mt_body_is_open(const mt_derivation *derivation);

/** Whether a Sharded stage's backward is split. */
bool mt_body_is_split(const mt_derivation *derivation, int32_t stage);

/** Orders an open body by @p times: @p derivation gets a new body from @p arena. */
motet_status mt_body_order_by(mt_arena *arena, mt_derivation *derivation, const mt_body_times *times,
                              motet_error *error);

/** The rank that computes a Sharded stage for a microbatch; -1 where the stage is replicated. */
static inline int32_t mt_stage_rank(const mt_derivation *derivation, int32_t stage, int32_t microbatch) {
  const mt_stage *place = &derivation->stages[stage];
  const mt_region *region = &derivation->regions[place->region];
  return place->rank < 0 ? -1 : place->rank + microbatch % region->data * region->pipeline;
}

/** Microbatches that a stage computes together: `batch` of its region's pipeline, one after the other. The first of
 * the run that @p microbatch is in, whether or not it has work; the next is `data` further. */
static inline int32_t mt_stage_run(const mt_derivation *derivation, int32_t stage, int32_t microbatch) {
  const mt_region *region = &derivation->regions[derivation->stages[stage].region];
  return microbatch - microbatch / region->data % region->skeleton.batch * region->data;
}

/** Whether pipeline rank @p rank holds the stage's layers. */
bool mt_stage_held(const mt_derivation *derivation, int32_t stage, int32_t rank);

/** Whether stage @p stage has work for @p microbatch: one of its modules is present and not cached. */
bool mt_stage_active(const mt_derivation *derivation, int32_t stage, int32_t microbatch);

#endif
