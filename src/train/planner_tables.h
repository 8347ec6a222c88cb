/** @file
 * What a step's stages cost and take: tables over (stage, column) for the order, the simulation and the verifier. A
 * column is a microbatch, or a share of one. Internal to the planner's files.
 */
#ifndef MT_TRAIN_PLANNER_TABLES_H
#define MT_TRAIN_PLANNER_TABLES_H

#include "order/plan.h"
#include "train/costs.h"
#include "train/planner.h"

/** What is known of a column. */
typedef struct mt_planner_column {
  const mt_batch *batch;
  const mt_batch *images; /* what layers of the image modules run on, where that is another batch; else NULL */
  double features[MT_COST_FEATURES];
  int32_t done_layers; /* layers [0, n) whose output is cached: they cost nothing */
  double
      exchange_seconds; /* messages of one decoder block's forward: hidden behind attention as far as that goes */
} mt_planner_column;

typedef struct mt_planner_tables {
  const mt_internvl *config;
  const mt_model *model;
  const bool *trainable; /* [layers] */
  bool exact;            /* gradients are summed exactly */
  mt_element element;    /* of activations */
  const mt_derivation *derivation;
  const mt_layer_costs *costs;
  mt_arena *arena;
  int32_t columns;
  const mt_planner_column *column; /* [columns] */
} mt_planner_tables;

motet_status mt_planner_tables_costs(const mt_planner_tables *tables, motet_error *error, mt_cost_table *costs);

/** All but the tokens. */
motet_status mt_planner_tables_sizes(const mt_planner_tables *tables, motet_error *error, mt_sizes *sizes);

/** The columns of whole microbatches. */
motet_status mt_planner_whole_columns(mt_arena *arena, const mt_planner_microbatch *microbatches, int32_t count,
                                      motet_error *error, mt_planner_column **columns);

bool mt_planner_is_image_layer(mt_internvl_kind kind);

#endif
