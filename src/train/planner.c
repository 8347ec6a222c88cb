#include "train/planner.h"

#include "train/input.h"
#include "train/planner_context.h"
#include "train/planner_tables.h"

#include <stdlib.h>
#include <string.h>

typedef struct purpose {
  mt_model *model;
  mt_schedule *schedule;
} purpose;

struct mt_planner {
  mt_planner_options options;
  int32_t width; /* context ranks */
  mt_internvl config;
  mt_arena *arena;
  purpose purposes[2];
  bool *trainable, *frozen; /* [layers] */
  int32_t *split;
  mt_derivation *derivation; /* of a step in which every microbatch has every module */
};

static motet_status derive(const mt_planner *planner, mt_planner_purpose which, const uint64_t *present,
                           const uint64_t *cached, mt_arena *arena, motet_error *error,
                           mt_derivation **derivation) {
  const purpose *this = &planner->purposes[which];
  uint64_t recompute = 0;
  for (int32_t j = 0; j < 3; j++) recompute |= (uint64_t)planner->options.recompute[j] << j;
  mt_derive_request request = {.model = this->model,
                               .schedule = this->schedule,
                               .ranks = planner->options.pipeline,
                               .microbatches = planner->options.microbatches,
                               .present = present,
                               .cached = cached,
                               .recompute = recompute,
                               .split = planner->split,
                               .split_count = planner->options.split_count};
  return mt_derive(arena, &request, error, derivation);
}

static motet_status make_purpose(mt_planner *planner, mt_planner_purpose which, motet_error *error) {
  static const bool nothing[3] = {false, false, false};
  purpose *this = &planner->purposes[which];
  const bool *trainable = which == MT_PLANNER_TRAIN ? planner->options.trainable : nothing;
  motet_status status = mt_internvl_model(planner->arena, &planner->config, trainable, error, &this->model);
  if (status == MOTET_OK)
    status = mt_schedule_parse(planner->arena, planner->options.schedule, error, &this->schedule);
  if (status != MOTET_OK) return status;
  for (int32_t t = 0; which == MT_PLANNER_EVALUATE && t < this->schedule->term_count; t++) {
    mt_skeleton *skeleton = &this->schedule->terms[t].skeleton;
    if (skeleton->order == MT_ORDER_AHEAD) skeleton->order = MT_ORDER_FILL;
  }
  return MOTET_OK;
}

/** What a cache of features cannot go together with. */
static motet_status check_cache(const mt_planner *planner, motet_error *error) {
  const mt_schedule *schedule = planner->purposes[MT_PLANNER_TRAIN].schedule;
  bool ahead = false;
  for (int32_t t = 0; t < schedule->term_count; t++)
    ahead = ahead || schedule->terms[t].skeleton.order == MT_ORDER_AHEAD;
  if (!planner->options.caches || (planner->width == 1 && !ahead)) return MOTET_OK;
  motet_status status =
      planner->width > 1
          ? mt_error_set(error, MOTET_ERROR_ILLEGAL,
                         "data.feature_cache and parallel.context exclude each other: cached features are read "
                         "whole; accepted: parallel.context 1, or no cache")
          : mt_error_set(error, MOTET_ERROR_ILLEGAL,
                         "order=ahead computes the next step's features in this one's idle time, which "
                         "data.feature_cache reads instead; accepted: order=fill, or no cache");
  mt_error_rule(error, "feature_cache", -1, -1, -1);
  return status;
}

/** A share of a cut microbatch is computed by itself. */
static motet_status check_batches(const mt_planner *planner, motet_error *error) {
  const mt_schedule *schedule = planner->purposes[MT_PLANNER_TRAIN].schedule;
  for (int32_t t = 0; t < schedule->term_count && planner->width > 1; t++) {
    const mt_skeleton *skeleton = &schedule->terms[t].skeleton;
    if (skeleton->kind != MT_SKELETON_TRANSPOSE && skeleton->batch > 1)
      return mt_error_set(
          error, MOTET_ERROR_UNSUPPORTED,
          "with parallel.context %d ranks share each microbatch of the trunk, which cannot take %d of "
          "them at a time; accepted: batch=1 there, any batch in transposed regions",
          (int)planner->width, (int)skeleton->batch);
  }
  return MOTET_OK;
}

static motet_status fill(mt_planner *planner, motet_error *error) {
  const mt_planner_options *options = &planner->options;
  motet_status status = make_purpose(planner, MT_PLANNER_TRAIN, error);
  if (status == MOTET_OK) status = make_purpose(planner, MT_PLANNER_EVALUATE, error);
  if (status != MOTET_OK) return status;
  const mt_model *model = planner->purposes[MT_PLANNER_TRAIN].model;
  planner->trainable = MT_ARENA_NEW(planner->arena, bool, model->layer_count);
  planner->frozen = MT_ARENA_NEW(planner->arena, bool, model->layer_count);
  planner->split = options->split_count > 0 ? MT_ARENA_NEW(planner->arena, int32_t, options->split_count) : NULL;
  if (planner->trainable == NULL || planner->frozen == NULL || (options->split_count > 0 && planner->split == NULL))
    return mt_error_memory(error, (unsigned)model->layer_count, "the planner");
  for (int32_t layer = 0; layer < model->layer_count; layer++)
    planner->trainable[layer] = model->layers[layer].trainable;
  for (int32_t i = 0; i < options->split_count; i++) planner->split[i] = (int32_t)options->split[i];
  status = check_cache(planner, error);
  if (status == MOTET_OK) status = check_batches(planner, error);
  if (status != MOTET_OK) return status;
  return derive(planner, MT_PLANNER_TRAIN, NULL, NULL, planner->arena, error, &planner->derivation);
}

motet_status mt_planner_create(const mt_planner_options *options, motet_error *error, mt_planner **out) {
  mt_planner *planner = calloc(1, sizeof *planner);
  if (planner == NULL) return mt_error_memory(error, sizeof *planner, "the planner");
  planner->options = *options;
  planner->width = options->context > 1 ? options->context : 1;
  planner->config = *options->config;
  planner->arena = mt_arena_create();
  motet_status status = planner->arena == NULL ? mt_error_memory(error, sizeof *planner, "the planner") : MOTET_OK;
  if (status == MOTET_OK) status = fill(planner, error);
  if (status != MOTET_OK) {
    mt_planner_destroy(planner);
    return status;
  }
  *out = planner;
  return MOTET_OK;
}

void mt_planner_destroy(mt_planner *planner) {
  if (planner == NULL) return;
  mt_arena_destroy(planner->arena);
  free(planner);
}

const mt_model *mt_planner_model(const mt_planner *planner) { return planner->purposes[MT_PLANNER_TRAIN].model; }

const mt_layer_costs *mt_planner_costs(const mt_planner *planner) { return &planner->options.costs; }

void mt_planner_held(const mt_planner *planner, int32_t rank, bool *held) {
  const mt_derivation *derivation = planner->derivation;
  memset(held, 0, (size_t)mt_planner_model(planner)->layer_count * sizeof *held);
  for (int32_t s = 0; s < derivation->stage_count; s++) {
    const mt_stage *stage = &derivation->stages[s];
    if (!mt_stage_held(derivation, s, rank / planner->width % planner->options.pipeline)) continue;
    for (int32_t layer = stage->layer_begin; layer < stage->layer_end; layer++) held[layer] = true;
  }
}

/** The modules [0, n) that are frozen and see pictures alone. */
static int32_t cached_modules(const mt_planner *planner) {
  const mt_model *model = mt_planner_model(planner);
  int32_t modules = 0;
  while (modules < model->module_count && !planner->options.trainable[modules] &&
         mt_planner_is_image_layer((mt_internvl_kind)model->layers[model->modules[modules].layer_begin].kind))
    modules++;
  return modules;
}

int32_t mt_planner_cached_layers(const mt_planner *planner) {
  int32_t modules = cached_modules(planner);
  return modules > 0 ? mt_planner_model(planner)->modules[modules - 1].layer_end : 0;
}

void mt_planner_trainable(const mt_planner *planner, bool *trainable) {
  memcpy(trainable, planner->trainable, (size_t)mt_planner_model(planner)->layer_count * sizeof *trainable);
}

static motet_status make_replica(const mt_planner *planner, mt_planner_purpose which,
                                 const mt_planner_microbatch *microbatches, mt_arena *arena, motet_error *error,
                                 mt_plan_replica *part) {
  int32_t count = planner->options.microbatches;
  uint64_t *present = MT_ARENA_NEW(arena, uint64_t, count), *cached = MT_ARENA_NEW(arena, uint64_t, count);
  mt_cost_table *costs = MT_ARENA_NEW(arena, mt_cost_table, 1);
  if (present == NULL || cached == NULL || costs == NULL)
    return mt_error_memory(error, (unsigned)count, "a step's plan");
  const mt_model *model = planner->purposes[which].model;
  uint64_t all = 0, images = 0;
  for (int32_t j = 0; j < model->module_count; j++) {
    all |= UINT64_C(1) << j;
    if (mt_planner_is_image_layer((mt_internvl_kind)model->layers[model->modules[j].layer_begin].kind))
      images |= UINT64_C(1) << j;
  }
  for (int32_t m = 0; m < count; m++) {
    present[m] = microbatches[m].batch.tiles > 0 ? all : all & ~images;
    if (microbatches[m].cached) cached[m] = present[m] & ((UINT64_C(1) << cached_modules(planner)) - 1);
  }
  mt_derivation *derivation;
  motet_status status = derive(planner, which, present, cached, arena, error, &derivation);
  if (status != MOTET_OK) return status;
  mt_planner_column *columns;
  int32_t *tokens = MT_ARENA_NEW(arena, int32_t, count);
  if (tokens == NULL) return mt_error_memory(error, (unsigned)count, "a step's plan");
  for (int32_t m = 0; m < count; m++) tokens[m] = microbatches[m].batch.tokens;
  status = mt_planner_whole_columns(arena, microbatches, count, error, &columns);
  if (status != MOTET_OK) return status;
  for (int32_t m = 0; m < count; m++)
    columns[m].done_layers = microbatches[m].cached ? mt_planner_cached_layers(planner) : 0;
  mt_planner_tables tables = {.config = &planner->config,
                              .model = model,
                              .trainable = which == MT_PLANNER_TRAIN ? planner->trainable : planner->frozen,
                              .exact = planner->options.exact,
                              .element = planner->options.element,
                              .derivation = derivation,
                              .costs = &planner->options.costs,
                              .arena = arena,
                              .columns = count,
                              .column = columns};
  *part = (mt_plan_replica){.derivation = derivation, .costs = costs};
  status = mt_planner_tables_costs(&tables, error, costs);
  if (status == MOTET_OK) status = mt_planner_tables_sizes(&tables, error, &part->sizes);
  part->sizes.tokens = tokens;
  if (status == MOTET_OK && planner->width > 1)
    status =
        mt_planner_context(&tables, microbatches, planner->width, planner->options.ulysses, error, part, costs);
  return status;
}

/** The replica's part of what the step before left, in its own numbers, without what turns out to have no data. */
static motet_status make_carried(const mt_planner *planner, int32_t replica_number,
                                 const mt_planner_microbatch *microbatches, const motet_carried *carried,
                                 int32_t carried_count, mt_arena *arena, motet_error *error,
                                 mt_plan_replica *part) {
  if (carried == NULL) return MOTET_OK;
  motet_carried *list = MT_ARENA_NEW(arena, motet_carried, carried_count);
  if (list == NULL) return mt_error_memory(error, (unsigned)carried_count, "carried outputs");
  part->carried = list;
  int32_t count = planner->options.microbatches;
  for (int32_t i = 0; i < carried_count; i++) {
    int32_t microbatch = carried[i].microbatch - replica_number * count;
    if (microbatch < 0 || microbatch >= count || microbatches[microbatch].batch.tiles == 0) continue;
    list[part->carried_count++] =
        (motet_carried){carried[i].stage, microbatch,
                        carried[i].rank - replica_number * planner->options.pipeline * planner->width};
  }
  return MOTET_OK;
}

/** A stage's operations in the layers [begin, end): backward as far as the stage's gate lets it run. */
static void add_operations(const mt_planner *planner, const mt_stage *stage, int32_t begin, int32_t end,
                           const double features[MT_COST_FEATURES], double parts[MT_FLOPS_PARTS]) {
  bool sends = stage->gate == MT_GATE_INPUT || stage->gate == MT_GATE_FULL;
  for (int32_t layer = begin; layer < end; layer++) {
    mt_internvl_kind kind = (mt_internvl_kind)mt_planner_model(planner)->layers[layer].kind;
    mt_layer_operations of = mt_layer_operations_of(&planner->config, kind, features);
    parts[MT_FLOPS_FORWARD] += of.linear + of.attention;
    if (stage->gate == MT_GATE_NONE || layer < stage->first_trainable) continue;
    bool passes_on = sends || layer > stage->first_trainable;
    parts[MT_FLOPS_INPUT] += of.linear - (passes_on ? 0 : of.entry) + 2 * of.attention;
    if (planner->trainable[layer]) parts[MT_FLOPS_WEIGHT] += of.linear;
  }
}

static motet_status make_piece(const mt_planner *planner, const mt_stage *stage, const mt_module *module,
                               const mt_planner_microbatch *microbatches, mt_arena *arena, motet_error *error,
                               mt_flops_piece *piece) {
  int32_t count = planner->options.replicas * planner->options.microbatches;
  int32_t begin = stage->layer_begin > module->layer_begin ? stage->layer_begin : module->layer_begin;
  int32_t end = stage->layer_end < module->layer_end ? stage->layer_end : module->layer_end;
  for (int part = 0; part < MT_FLOPS_PARTS; part++) {
    piece->parts[part] = MT_ARENA_NEW(arena, double, count);
    if (piece->parts[part] == NULL) return mt_error_memory(error, (unsigned)count, "a step's operations");
  }
  for (int32_t m = 0; m < count; m++) {
    double features[MT_COST_FEATURES], parts[MT_FLOPS_PARTS] = {0};
    mt_cost_features(&microbatches[m].batch, microbatches[m].targets, features);
    int32_t done = microbatches[m].cached ? mt_planner_cached_layers(planner) : 0;
    add_operations(planner, stage, begin > done ? begin : done, end, features, parts);
    for (int part = 0; part < MT_FLOPS_PARTS; part++) piece->parts[part][m] = parts[part];
  }
  return MOTET_OK;
}

static motet_status make_flops(const mt_planner *planner, const mt_planner_microbatch *microbatches,
                               mt_arena *arena, motet_error *error, const mt_flops **out) {
  const mt_model *model = mt_planner_model(planner);
  const mt_derivation *derivation = planner->derivation;
  mt_flops *flops = MT_ARENA_NEW(arena, mt_flops, 1);
  mt_flops_piece *pieces =
      MT_ARENA_NEW(arena, mt_flops_piece, (int64_t)derivation->stage_count * model->module_count);
  if (flops == NULL || pieces == NULL)
    return mt_error_memory(error, (unsigned)derivation->stage_count, "a step's operations");
  *flops = (mt_flops){.peak = planner->options.costs.peak_operations_per_second,
                      .pieces = pieces,
                      .microbatch_count = planner->options.replicas * planner->options.microbatches};
  motet_status status = MOTET_OK;
  for (int32_t s = 0; s < derivation->stage_count; s++)
    for (int32_t j = 0; status == MOTET_OK && j < model->module_count; j++) {
      const mt_stage *stage = &derivation->stages[s];
      const mt_module *module = &model->modules[j];
      if (stage->layer_begin >= module->layer_end || stage->layer_end <= module->layer_begin) continue;
      mt_flops_piece *piece = &pieces[flops->piece_count++];
      *piece = (mt_flops_piece){.stage = s, .module = j};
      status = make_piece(planner, stage, module, microbatches, arena, error, piece);
    }
  *out = flops;
  return status;
}

/** With what ranks wait for pictures that are still being decoded. */
static motet_status forecast_input(const mt_planner *planner, const mt_planner_microbatch *microbatches,
                                   const mt_simulate_options *simulate, mt_arena *arena, motet_error *error,
                                   mt_plan *plan) {
  const int32_t count = planner->options.replicas * planner->options.microbatches;
  double *seconds = MT_ARENA_NEW(arena, double, count), all = 0;
  if (seconds == NULL) return mt_error_memory(error, (unsigned)count, "a step's pictures");
  for (int32_t m = 0; m < count; m++) {
    seconds[m] = microbatches[m].cached ? 0 : microbatches[m].decode_seconds;
    all += seconds[m];
  }
  if (all <= 0 || planner->options.decode_threads < 1) return MOTET_OK;
  const mt_input_options options = {.seconds = seconds,
                                    .threads = planner->options.decode_threads,
                                    .spare_processors = planner->options.costs.spare_processors,
                                    .capacity = planner->options.decode_rows};
  return mt_input_forecast(arena, &options, simulate, error, plan);
}

motet_status mt_planner_plan(const mt_planner *planner, mt_planner_purpose which,
                             const mt_planner_microbatch *microbatches, const motet_carried *carried,
                             int32_t carried_count, mt_arena *arena, motet_error *error, mt_plan *plan) {
  int32_t replicas = planner->options.replicas;
  mt_plan_replica *parts = MT_ARENA_NEW(arena, mt_plan_replica, replicas);
  if (parts == NULL) return mt_error_memory(error, (unsigned)replicas, "a step's plan");
  motet_status status = MOTET_OK;
  for (int32_t d = 0; d < replicas && status == MOTET_OK; d++) {
    const mt_planner_microbatch *own = microbatches + (int64_t)d * planner->options.microbatches;
    status = make_replica(planner, which, own, arena, error, &parts[d]);
    if (status == MOTET_OK) status = make_carried(planner, d, own, carried, carried_count, arena, error, &parts[d]);
  }
  if (status != MOTET_OK) return status;
  double effort = planner->options.search_seconds;
  mt_plan_options options = {.order = {.search_seconds = effort > 0 ? effort : -1},
                             .simulate = {.timeline = true, .attribute = true}};
  status = mt_plan_make(arena, parts, replicas, &options, error, plan);
  if (status != MOTET_OK || which != MT_PLANNER_TRAIN) return status;
  status = forecast_input(planner, microbatches, &options.simulate, arena, error, plan);
  if (status == MOTET_OK) status = make_flops(planner, microbatches, arena, error, &plan->flops);
  if (status != MOTET_OK) mt_plan_free(plan);
  return status;
}

motet_status mt_planner_carried(const motet_program *program, mt_arena *arena, motet_error *error,
                                motet_carried **carried, int32_t *carried_count) {
  int32_t count = 0;
  motet_carried *list =
      MT_ARENA_NEW(arena, motet_carried, program->microbatch_count * (int64_t)program->stage_count);
  if (list == NULL) return mt_error_memory(error, (unsigned)program->microbatch_count, "carried outputs");
  for (int32_t rank = 0; rank < program->ranks; rank++)
    for (int64_t i = program->rank_begin[rank]; i < program->rank_begin[rank + 1]; i++) {
      const motet_instruction *instruction = &program->instructions[i];
      if (instruction->kind == MOTET_FWD && (instruction->flags & MOTET_FLAG_NEXT) != 0)
        list[count++] = (motet_carried){instruction->stage, instruction->microbatch, rank};
    }
  *carried = list;
  *carried_count = count;
  return MOTET_OK;
}
