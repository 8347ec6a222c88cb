/** @file
 * Which context ranks compute which samples of a microbatch together: a plane of ranks is cut anew for every
 * microbatch. The cut is made by a thread that plans ahead of the steps (motet/pack.h); every rank makes the same.
 */
#ifndef MT_TRAIN_GROUPING_H
#define MT_TRAIN_GROUPING_H

#include "data/dataset.h"
#include "motet/pack.h"
#include "train/costs.h"

typedef struct mt_grouping_options {
  const mt_internvl *config;
  const mt_layer_costs *costs;
  int32_t width;       /* ranks of a plane */
  int32_t pipeline;    /* planes that the decoder's layers are divided among */
  bool fixed;          /* every microbatch is one group of all ranks */
  int64_t rank_tokens; /* most tokens of a microbatch that a rank takes; 0: any */
  int32_t rows;        /* microbatches of a step */
  int32_t replicas;    /* planes that divide these among them, in order; 0: one */
} mt_grouping_options;

typedef struct mt_grouping mt_grouping;

/** Samples [segment_begin, segment_end) of a row, computed by these ranks of the plane together. */
typedef struct mt_row_group {
  int32_t segment_begin, segment_end;
  int32_t degree;
  const int32_t *ranks; /* [degree] ascending, below `width` */
} mt_row_group;

/** A row whose samples are ordered so that each group's stand together. */
typedef struct mt_grouped_row {
  mt_row row;
  int32_t group_count; /* of disjoint ranks; together they have all samples */
  const mt_row_group *groups;
} mt_grouped_row;

motet_status mt_grouping_create(const mt_grouping_options *options, motet_error *error, mt_grouping **grouping);
void mt_grouping_destroy(mt_grouping *grouping);

/** What a group costs by the layers' measured times: forward and backward of the decoder's layers on one plane. */
motet_pack_cost mt_grouping_cost(const mt_grouping_options *options);

/** Has the rows of a step planned in the background, in the order of submission; at most two steps are in flight.
 */
motet_status mt_grouping_submit(mt_grouping *grouping, const mt_row *rows, motet_error *error);

/**
 * The step submitted first, of which @p rows are the rows again. Waits for its plans if they are not ready.
 * @param grouped [rows of a step], in @p arena
 */
motet_status mt_grouping_take(mt_grouping *grouping, const mt_row *rows, mt_arena *arena, motet_error *error,
                              mt_grouped_row **grouped);

/** Seconds that mt_grouping_take() has waited for plans so far: what planning cost the steps. */
double mt_grouping_waited(const mt_grouping *grouping);

#endif
