#include "order/order.h"
#include "order/search.h"

#include <string.h>

static motet_status check_ahead(const mt_derivation *derivation, motet_error *error) {
  for (int32_t s = 0; s < derivation->stage_count; s++) {
    const mt_region *region = &derivation->regions[derivation->stages[s].region];
    if (!region->replicated || region->skeleton.order != MT_ORDER_AHEAD) continue;
    if (derivation->stages[s].gate == MT_GATE_NONE) continue;
    mt_error_set(
        error, MOTET_ERROR_ILLEGAL,
        "region %s: order=ahead encodes with weights that this step still changes; accepted: order=fill, or a "
        "frozen region",
        region->name);
    mt_error_key(error, region->name);
    return MOTET_ERROR_ILLEGAL;
  }
  return MOTET_OK;
}

static motet_status write_order(mt_arena *arena, const mt_instance *instance, mt_timeline *timeline, mt_plan *plan,
                                motet_error *error, mt_order_result *result) {
  int32_t nodes = instance->node_count;
  double *start = MT_ARENA_NEW(arena, double, nodes);
  mt_order *order = &result->order;
  *order = (mt_order){.begin = MT_ARENA_NEW(arena, int64_t, instance->ranks + 1),
                      .events = MT_ARENA_NEW(arena, mt_event, nodes),
                      .start = MT_ARENA_NEW(arena, double, nodes),
                      .barrier = instance->barrier};
  if (start == NULL || order->begin == NULL || order->events == NULL || order->start == NULL)
    return mt_error_memory(error, (unsigned long long)nodes * 32, "an order");
  mt_timeline_run(timeline, instance, plan);
  result->makespan = mt_timeline_seconds(timeline, instance, plan, start);
  for (int32_t r = 0; r <= instance->ranks; r++) order->begin[r] = plan->begin[r];
  for (int32_t i = 0; i < nodes; i++) {
    int32_t node = plan->sequence[i];
    order->events[i] = instance->event[node];
    order->start[i] = start[node];
  }
  return MOTET_OK;
}

motet_status mt_order_make(mt_arena *arena, const mt_derivation *derivation, const mt_cost_table *costs,
                           const mt_order_options *options, motet_error *error, mt_order_result *result) {
  mt_instance *instance;
  mt_windows windows;
  motet_status status = check_ahead(derivation, error);
  if (status == MOTET_OK) status = mt_instance_build(arena, derivation, costs, options, error, &instance);
  if (status == MOTET_OK) status = mt_windows_build(arena, instance, error, &windows);
  if (status != MOTET_OK) return status;
  mt_timeline *timeline = mt_timeline_create(arena, instance);
  if (timeline == NULL) return mt_error_memory(error, (unsigned long long)instance->node_count * 16, "a timeline");
  mt_ticks bound;
  double seconds = options != NULL ? options->search_seconds : 0.0;
  mt_plan *plan = mt_search_run(arena, instance, &windows, seconds, timeline, &bound);
  if (plan == NULL)
    return mt_error_memory(error, (unsigned long long)instance->node_count * 64, "the search for an order");
  status = write_order(arena, instance, timeline, plan, error, result);
  if (status != MOTET_OK) return status;
  result->bound = (double)bound * instance->unit;
  if (result->bound > result->makespan) result->bound = result->makespan;
  return MOTET_OK;
}
