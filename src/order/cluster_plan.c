#include "order/cluster_plan.h"

static motet_status weigh_host(const mt_cluster_setup *setup, motet_error *error, mt_cluster_plan *result) {
  double cap = setup->cluster.device.host_memory_bytes;
  for (int32_t r = 0; r < result->derivation->ranks; r++) {
    double bytes =
        mt_host_bytes_of(result->derivation, &result->tables.host, &result->plan.verification.memory[r], r);
    if (bytes > result->host_bytes) result->host_bytes = bytes;
    if (cap > 0 && bytes > cap) {
      motet_status status = mt_error_set(error, MOTET_ERROR_REFUSED,
                                         "%.1f GB of a device lie in host memory, and its share of that is %.1f GB",
                                         bytes / 1e9, cap / 1e9);
      mt_error_rule(error, "host_memory", r, -1, -1);
      return status;
    }
  }
  return MOTET_OK;
}

motet_status mt_cluster_plan_make(mt_arena *arena, const mt_cluster_setup *setup, motet_error *error,
                                  mt_cluster_plan *result) {
  *result = (mt_cluster_plan){0};
  mt_schedule *schedule;
  motet_status status = mt_schedule_parse(arena, setup->schedule, error, &schedule);
  if (status != MOTET_OK) {
    mt_cluster_job_place(setup->job, "schedule", error);
    mt_error_key(error, "schedule");
    return status;
  }
  uint64_t *present = MT_ARENA_NEW(arena, uint64_t, setup->microbatches);
  if (present == NULL) return mt_error_memory(error, (unsigned)setup->microbatches * sizeof *present, "a plan");
  for (int32_t m = 0; m < setup->microbatches; m++)
    present[m] = mt_forecast_present(setup->architecture, mt_cluster_extents(setup, m));
  const mt_derive_request request = {.model = setup->architecture->model,
                                     .schedule = schedule,
                                     .ranks = setup->parallel[0].pipeline,
                                     .microbatches = setup->microbatches,
                                     .present = present,
                                     .split = setup->split,
                                     .split_count = setup->split_count};
  status = mt_derive(arena, &request, error, &result->derivation);
  if (status == MOTET_OK)
    status = mt_forecast_tables_make(arena, result->derivation, &setup->forecast, setup->extents,
                                     setup->extents_count, error, &result->tables);
  if (status != MOTET_OK) return status;
  const mt_plan_replica replica = {
      .derivation = result->derivation, .costs = &result->tables.costs, .sizes = result->tables.sizes};
  const mt_plan_options options = {.simulate = {.timeline = true, .attribute = true}};
  result->schedule = result->derivation->text;
  status = mt_plan_make(arena, &replica, 1, &options, error, &result->plan);
  return status == MOTET_OK ? weigh_host(setup, error, result) : status;
}
