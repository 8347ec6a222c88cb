#include "order/cluster_plan.h"

/* Modules with rows in the microbatch: picture modules of a microbatch without pictures have none. */
static uint64_t present_modules(const mt_cluster_setup *setup) {
  uint64_t present = 0;
  const mt_architecture *architecture = setup->architecture;
  const mt_model *model = architecture->model;
  for (int32_t j = 0; j < model->module_count; j++) {
    bool work = false;
    for (int32_t l = model->modules[j].layer_begin; l < model->modules[j].layer_end && !work; l++) {
      const mt_layer_design *design = &architecture->designs[model->layers[l].kind];
      for (int e = 0; e < MT_EXTENTS; e++)
        work = work ||
               (setup->extents[e] > 0 && (design->rates[e].forward_flops > 0 || design->rates[e].output_bytes > 0));
    }
    if (work) present |= UINT64_C(1) << j;
  }
  return present;
}

motet_status mt_cluster_plan_make(mt_arena *arena, const mt_cluster_setup *setup, motet_error *error,
                                  mt_cluster_plan *result) {
  *result = (mt_cluster_plan){0};
  mt_schedule *schedule;
  motet_status status = mt_schedule_parse(arena, setup->schedule, error, &schedule);
  if (status != MOTET_OK) {
    mt_error_key(error, "schedule");
    return status;
  }
  uint64_t *present = MT_ARENA_NEW(arena, uint64_t, setup->microbatches);
  if (present == NULL) return mt_error_memory(error, (unsigned)setup->microbatches * sizeof *present, "a plan");
  for (int32_t m = 0; m < setup->microbatches; m++) present[m] = present_modules(setup);
  const mt_derive_request request = {.model = setup->architecture->model,
                                     .schedule = schedule,
                                     .ranks = setup->parallel[0].pipeline,
                                     .microbatches = setup->microbatches,
                                     .present = present,
                                     .split = setup->split,
                                     .split_count = setup->split_count};
  status = mt_derive(arena, &request, error, &result->derivation);
  if (status == MOTET_OK)
    status = mt_forecast_tables_make(arena, result->derivation, &setup->forecast, setup->extents, 1, error,
                                     &result->tables);
  if (status != MOTET_OK) return status;
  const mt_plan_replica replica = {
      .derivation = result->derivation, .costs = &result->tables.costs, .sizes = result->tables.sizes};
  const mt_plan_options options = {.simulate = {.timeline = true, .attribute = true}};
  result->schedule = result->derivation->text;
  return mt_plan_make(arena, &replica, 1, &options, error, &result->plan);
}
