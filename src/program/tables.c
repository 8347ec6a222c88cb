#include "program/tables.h"

#include "program/columns.h"
#include "program/pipeline.h"

#include <stddef.h>
#include <string.h>

bool mt_stage_trains(const motet_program *program, int32_t stage) {
  for (int32_t layer = program->stages[stage].layer_begin; layer < program->stages[stage].layer_end; layer++)
    if (program->layer_trainable[layer]) return true;
  return false;
}

static motet_status fill_statement(const mt_replica *replicas, motet_error *error, motet_program *program) {
  mt_arena *arena = program->arena;
  const mt_derivation *derivation = replicas[0].derivation;
  const mt_model *model = derivation->model;
  int64_t microbatches = (int64_t)derivation->microbatches * program->replicas;
  if (microbatches > INT32_MAX)
    return mt_error_set(error, MOTET_ERROR_LIMIT, "%lld microbatches are more than a program may have",
                        (long long)microbatches);
  program->module_count = model->module_count;
  program->module_edge_count = model->edge_count;
  program->layer_count = model->layer_count;
  program->microbatch_count = (int32_t)microbatches;
  program->modules = MT_ARENA_NEW(arena, motet_program_module, model->module_count);
  program->module_edges = MT_ARENA_NEW(arena, motet_module_edge, model->edge_count);
  program->layer_trainable = MT_ARENA_NEW(arena, uint8_t, model->layer_count);
  program->microbatches = MT_ARENA_NEW(arena, motet_program_microbatch, microbatches);
  if (program->modules == NULL || program->module_edges == NULL || program->layer_trainable == NULL ||
      program->microbatches == NULL)
    return mt_error_memory(error, (unsigned long long)microbatches * sizeof(motet_program_microbatch),
                           "a program's statement");
  for (int32_t j = 0; j < model->module_count; j++) {
    const mt_module *module = &model->modules[j];
    program->modules[j] = (motet_program_module){.name = mt_arena_text(arena, module->name),
                                                 .layer_begin = module->layer_begin,
                                                 .layer_end = module->layer_end};
    if (program->modules[j].name == NULL) return mt_error_memory(error, 64, "a module name");
  }
  for (int32_t e = 0; e < model->edge_count; e++)
    program->module_edges[e] = (motet_module_edge){.from = model->edges[e].from, .to = model->edges[e].to};
  for (int32_t layer = 0; layer < model->layer_count; layer++)
    program->layer_trainable[layer] = model->layers[layer].trainable;
  motet_program_microbatch *next = program->microbatches;
  for (int32_t k = 0; k < program->replicas; k++)
    for (int32_t m = 0; m < derivation->microbatches; m++)
      *next++ = (motet_program_microbatch){
          .replica = k,
          .tokens = replicas[k].sizes.tokens != NULL ? replicas[k].sizes.tokens[m] : 0,
          .present = replicas[k].derivation->present[m],
          .cached = replicas[k].derivation->cached[m],
      };
  return MOTET_OK;
}

/* The ranks, or planes of context ranks, that hold a stage in every replica, as a group at the end of the tables.
 */
static void add_group(const mt_derivation *derivation, int32_t stage, int32_t width, motet_program *program) {
  int64_t first = program->group_rank_count, used = first;
  const mt_region *region = &derivation->regions[derivation->stages[stage].region];
  bool everywhere = derivation->stages[stage].rank < 0;
  int32_t begin = everywhere ? region->first_rank : derivation->stages[stage].rank;
  int32_t end = region->first_rank + region->pipeline * region->data;
  for (int32_t k = 0; k < program->replicas; k++)
    for (int32_t rank = begin; rank < end; rank += everywhere ? 1 : region->pipeline)
      for (int32_t c = 0; c < width; c++) program->group_ranks[used++] = (k * derivation->ranks + rank) * width + c;
  program->groups[program->group_count++] = (motet_group){.first = first, .count = (int32_t)(used - first)};
  program->group_rank_count = used;
}

/* Group 0 is all ranks. Stages that the same ranks hold share a group: those whose microbatch 0 is one rank's, and
 * the replicated ones. */
static motet_status fill_groups(const mt_derivation *derivation, int32_t width, motet_error *error,
                                motet_program *program) {
  int32_t pipeline_ranks = derivation->ranks;
  int32_t *group_of = MT_ARENA_NEW(program->arena, int32_t, pipeline_ranks + 1); /* by rank + 1; 0: none yet */
  program->groups = MT_ARENA_NEW(program->arena, motet_group, pipeline_ranks + 2);
  program->group_ranks = MT_ARENA_NEW(program->arena, int32_t, 3 * (size_t)program->ranks);
  if (group_of == NULL || program->groups == NULL || program->group_ranks == NULL)
    return mt_error_memory(error, (unsigned long long)program->ranks * 12, "rank groups");
  for (int32_t r = 0; r < program->ranks; r++) program->group_ranks[r] = r;
  program->groups[0] = (motet_group){.first = 0, .count = program->ranks};
  program->group_count = 1;
  program->group_rank_count = program->ranks;
  for (int32_t s = 0; s < derivation->stage_count; s++) {
    const mt_stage *stage = &derivation->stages[s];
    const mt_region *region = &derivation->regions[stage->region];
    int32_t holders = stage->rank < 0 ? region->pipeline * region->data : region->data;
    if (holders == pipeline_ranks) continue;
    int32_t *group = &group_of[stage->rank + 1];
    if (*group == 0) {
      *group = program->group_count;
      add_group(derivation, s, width, program);
    }
    program->stages[s].group = *group;
  }
  return MOTET_OK;
}

static motet_status fill_placement(const mt_derivation *derivation, int32_t width, motet_error *error,
                                   motet_program *program) {
  mt_arena *arena = program->arena;
  program->region_count = derivation->region_count;
  program->stage_count = derivation->stage_count;
  program->edge_count = derivation->edge_count;
  program->range_count = 1;
  program->regions = MT_ARENA_NEW(arena, motet_program_region, derivation->region_count);
  program->stages = MT_ARENA_NEW(arena, motet_program_stage, derivation->stage_count);
  program->edges = MT_ARENA_NEW(arena, motet_program_edge, derivation->edge_count);
  program->ranges = MT_ARENA_NEW(arena, motet_range, 1);
  program->schedule = mt_arena_text(arena, derivation->text != NULL ? derivation->text : "");
  if (program->regions == NULL || program->stages == NULL || program->edges == NULL || program->ranges == NULL ||
      program->schedule == NULL)
    return mt_error_memory(error, (unsigned long long)derivation->stage_count * sizeof(motet_program_stage),
                           "a program's placement");
  program->ranges[0] = (motet_range){.begin = 0, .end = -1, .microbatch = -1};
  for (int32_t r = 0; r < derivation->region_count; r++) {
    const mt_region *region = &derivation->regions[r];
    program->regions[r] = (motet_program_region){.name = mt_arena_text(arena, region->name),
                                                 .skeleton = mt_skeleton_print(arena, &region->skeleton),
                                                 .replicated = region->replicated};
    if (program->regions[r].name == NULL || program->regions[r].skeleton == NULL)
      return mt_error_memory(error, 64, "a region name");
  }
  for (int32_t s = 0; s < derivation->stage_count; s++) {
    const mt_stage *stage = &derivation->stages[s];
    program->stages[s] = (motet_program_stage){.region = stage->region,
                                               .slab = stage->slab,
                                               .layer_begin = stage->layer_begin,
                                               .layer_end = stage->layer_end,
                                               .inputs = stage->inputs,
                                               .share = stage->share};
  }
  for (int32_t e = 0; e < derivation->edge_count; e++)
    program->edges[e] = (motet_program_edge){.from = derivation->edges[e].from, .to = derivation->edges[e].to};
  return fill_groups(derivation, width, error, program);
}

static int32_t stage_of_layer(const motet_program *program, int32_t layer) {
  for (int32_t s = 0; s < program->stage_count; s++)
    if (program->stages[s].layer_begin <= layer && layer < program->stages[s].layer_end) return s;
  return -1;
}

/* Tied embeddings: the trunk, the module that reads tokens, begins with the weight that the model ends with. */
static motet_status fill_ties(const mt_replica *replicas, motet_error *error, motet_program *program) {
  const mt_model *model = replicas[0].derivation->model;
  program->ties = MT_ARENA_NEW(program->arena, motet_tie, 1);
  if (program->ties == NULL) return mt_error_memory(error, sizeof(motet_tie), "a tie");
  if (!model->tied_embeddings) return MOTET_OK;
  int32_t trunk = model->module_count - 1;
  for (int32_t j = model->module_count - 1; j >= 0; j--)
    if (model->modules[j].inputs & MOTET_INPUT_TOKENS) trunk = j;
  int32_t first = stage_of_layer(program, model->modules[trunk].layer_begin);
  int32_t last = stage_of_layer(program, model->layer_count - 1);
  if (first < 0 || last < 0 || first == last) return MOTET_OK; /* one stage adds up on its own */
  program->ties[program->tie_count++] =
      (motet_tie){.first_stage = first, .second_stage = last, .bytes = replicas[0].sizes.tied_bytes};
  return MOTET_OK;
}

static motet_status fill_carried(const mt_replica *replicas, motet_error *error, motet_program *program) {
  const mt_derivation *derivation = replicas[0].derivation;
  int64_t total = 0;
  for (int32_t k = 0; k < program->replicas; k++) total += replicas[k].order->carried_count;
  if (total > INT32_MAX)
    return mt_error_set(error, MOTET_ERROR_LIMIT, "%lld carried outputs are too many", (long long)total);
  program->carried = MT_ARENA_NEW(program->arena, motet_carried, total);
  if (program->carried == NULL)
    return mt_error_memory(error, (unsigned long long)total * sizeof(motet_carried), "carried outputs");
  for (int32_t k = 0; k < program->replicas; k++)
    for (int32_t i = 0; i < replicas[k].order->carried_count; i++) {
      const motet_carried *carried = &replicas[k].order->carried[i];
      program->carried[program->carried_count++] =
          (motet_carried){.stage = carried->stage,
                          .microbatch = k * derivation->microbatches + carried->microbatch,
                          .rank = k * mt_replica_ranks(&replicas[0]) + carried->rank};
    }
  return MOTET_OK;
}

static bool tables_same(const motet_size_table *one, const motet_size_table *other) {
  return one->values == other->values && one->stage_stride == other->stage_stride &&
         one->microbatch_stride == other->microbatch_stride;
}

/* One value a stage where no column differs; else (stages, columns of all replicas). */
static motet_status fill_size_table(const mt_replica *replicas, size_t offset, motet_error *error,
                                    motet_program *program, motet_size_table *result) {
  int32_t stages = program->stage_count;
#define TABLE(k) ((const motet_size_table *)(const void *)((const char *)&replicas[k].sizes + offset))
  bool uniform = TABLE(0)->values == NULL || TABLE(0)->microbatch_stride == 0;
  for (int32_t k = 1; k < program->replicas; k++) uniform = uniform && tables_same(TABLE(0), TABLE(k));
  if (uniform && TABLE(0)->values == NULL) return MOTET_OK;
  int64_t columns = uniform ? 1 : mt_column_count(program), cells;
  if (__builtin_mul_overflow((int64_t)stages, columns, &cells))
    return mt_error_set(error, MOTET_ERROR_LIMIT, "a size table of %d stages is too large", stages);
  *result = (motet_size_table){.values = MT_ARENA_NEW(program->arena, int64_t, cells),
                               .stage_stride = columns,
                               .microbatch_stride = uniform ? 0 : 1};
  if (result->values == NULL)
    return mt_error_memory(error, (unsigned long long)cells * sizeof(int64_t), "a size table");
  for (int32_t s = 0; s < stages; s++) {
    int64_t *row = result->values + s * columns, filled = 0;
    for (int32_t k = 0; filled < columns; k++)
      for (int32_t c = 0; c < mt_replica_columns(&replicas[k]) && filled < columns; c++)
        row[filled++] = mt_size_at(TABLE(k), s, c);
  }
#undef TABLE
  return MOTET_OK;
}

static motet_status fill_sizes(const mt_replica *replicas, motet_error *error, motet_program *program) {
  const mt_sizes *sizes = &replicas[0].sizes;
  program->memory_cap = sizes->memory_cap;
  program->static_bytes = MT_ARENA_NEW(program->arena, int64_t, program->stage_count);
  if (program->static_bytes == NULL)
    return mt_error_memory(error, (unsigned long long)program->stage_count * sizeof(int64_t), "static sizes");
  if (sizes->static_bytes != NULL && program->stage_count > 0)
    memcpy(program->static_bytes, sizes->static_bytes, (size_t)program->stage_count * sizeof(int64_t));
  motet_status status =
      fill_size_table(replicas, offsetof(mt_sizes, saved_bytes), error, program, &program->saved_bytes);
  if (status != MOTET_OK) return status;
  return fill_size_table(replicas, offsetof(mt_sizes, output_bytes), error, program, &program->output_bytes);
}

motet_status mt_tables_fill(const mt_replica *replicas, mt_arena *scratch, motet_error *error,
                            motet_program *program, int32_t **range_groups) {
  int32_t width = mt_replica_width(&replicas[0]);
  motet_status status = fill_statement(replicas, error, program);
  if (status == MOTET_OK) status = fill_placement(replicas[0].derivation, width, error, program);
  *range_groups = NULL;
  if (status == MOTET_OK && replicas[0].spread != NULL)
    status = mt_tables_spread(replicas, scratch, error, program, range_groups);
  if (status == MOTET_OK) status = fill_ties(replicas, error, program);
  if (status == MOTET_OK) status = fill_carried(replicas, error, program);
  if (status == MOTET_OK) status = fill_sizes(replicas, error, program);
  return status;
}
