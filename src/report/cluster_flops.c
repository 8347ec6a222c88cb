#include "report/cluster_flops.h"

/* What attention's backward computes again to save memory: beyond two operations to the forward's one, area by
 * area. */
static double repeated(const mt_architecture *architecture, int32_t layer, const double *extents) {
  const mt_layer_design *design = &architecture->designs[architecture->model->layers[layer].kind];
  double operations = 0;
  for (int e = MT_AREA_TEXT; e < MT_EXTENTS; e++)
    operations += extents[e] * (design->rates[e].input_flops - 2 * design->rates[e].forward_flops);
  return operations;
}

/* A stage's operations in the layers [begin, end) for one microbatch: backward as far as its gate lets it run. */
static void add_operations(const mt_cluster_setup *setup, const mt_stage *stage, int32_t begin, int32_t end,
                           const double *extents, double parts[MT_FLOPS_PARTS]) {
  const mt_architecture *architecture = setup->architecture;
  bool sends = stage->gate == MT_GATE_INPUT || stage->gate == MT_GATE_FULL;
  for (int32_t layer = begin; layer < end; layer++) {
    mt_layer_cost cost;
    mt_architecture_cost(architecture, layer, extents, 1, &cost);
    parts[MT_FLOPS_FORWARD] += cost.forward_flops;
    if (stage->gate == MT_GATE_NONE || layer < stage->first_trainable) continue;
    if (sends || layer > stage->first_trainable)
      parts[MT_FLOPS_INPUT] += cost.input_flops - repeated(architecture, layer, extents);
    if (architecture->model->layers[layer].trainable) parts[MT_FLOPS_WEIGHT] += cost.weight_flops;
  }
}

static motet_status make_piece(mt_arena *arena, const mt_cluster_setup *setup, const mt_stage *stage,
                               const mt_module *module, motet_error *error, mt_flops_piece *piece) {
  int32_t begin = stage->layer_begin > module->layer_begin ? stage->layer_begin : module->layer_begin;
  int32_t end = stage->layer_end < module->layer_end ? stage->layer_end : module->layer_end;
  for (int part = 0; part < MT_FLOPS_PARTS; part++) {
    piece->parts[part] = MT_ARENA_NEW(arena, double, setup->microbatches);
    if (piece->parts[part] == NULL)
      return mt_error_memory(error, (unsigned)setup->microbatches * sizeof(double), "a step's operations");
  }
  for (int32_t m = 0; m < setup->microbatches; m++) {
    double parts[MT_FLOPS_PARTS] = {0};
    add_operations(setup, stage, begin, end, mt_cluster_extents(setup, m), parts);
    for (int part = 0; part < MT_FLOPS_PARTS; part++) piece->parts[part][m] = parts[part];
  }
  return MOTET_OK;
}

motet_status mt_cluster_flops_make(mt_arena *arena, const mt_cluster_setup *setup, const mt_derivation *derivation,
                                   motet_error *error, mt_flops **flops) {
  const mt_model *model = setup->architecture->model;
  const mt_parallel *parallel = &setup->parallel[mt_architecture_trunk(setup->architecture)];
  const mt_device *device = &setup->cluster.device;
  int64_t most = (int64_t)derivation->stage_count * model->module_count;
  mt_flops *made = MT_ARENA_NEW(arena, mt_flops, 1);
  mt_flops_piece *pieces = MT_ARENA_NEW(arena, mt_flops_piece, most);
  if (made == NULL || pieces == NULL)
    return mt_error_memory(error, (unsigned long long)most * sizeof *pieces, "a step's operations");
  *made = (mt_flops){.peak = mt_parallel_cell(parallel) * (parallel->float8 && device->float8_flops > 0
                                                               ? device->float8_flops
                                                               : device->bfloat16_flops),
                     .pieces = pieces,
                     .microbatch_count = setup->microbatches};
  for (int32_t s = 0; s < derivation->stage_count; s++)
    for (int32_t j = 0; j < model->module_count; j++) {
      const mt_stage *stage = &derivation->stages[s];
      const mt_module *module = &model->modules[j];
      if (stage->layer_begin >= module->layer_end || stage->layer_end <= module->layer_begin) continue;
      mt_flops_piece *piece = &pieces[made->piece_count++];
      *piece = (mt_flops_piece){.stage = s, .module = j};
      motet_status status = make_piece(arena, setup, stage, module, error, piece);
      if (status != MOTET_OK) return status;
    }
  *flops = made;
  return MOTET_OK;
}
