#include "order/order.h"
#include "order/bound.h"
#include "order/repair.h"
#include "order/search.h"

#include <string.h>

typedef struct maker {
  mt_arena *arena;
  const mt_instance *instance;
  mt_windows windows;
  mt_ticks bound;
  mt_timeline *timeline;
  mt_greedy *greedy;
  mt_plan *best, *trial;
  int32_t *owner;
  bool found;
  bool fill; /* some region may fill idle time */
} maker;

static void keep_better(maker *k) {
  if (!mt_timeline_keeps_windows(k->timeline, k->instance)) return;
  if (k->found && k->trial->makespan >= k->best->makespan) return;
  mt_plan_copy(k->instance, k->best, k->trial);
  k->found = true;
}

static mt_ticks try_greedy(maker *k, mt_ticks target, int32_t scan, bool prefix) {
  mt_greedy_rule rule = {.target = target, .scan = scan, .prefix = prefix};
  mt_greedy_run(k->greedy, &rule, k->owner, k->timeline, k->trial);
  keep_better(k);
  return k->trial->makespan;
}

static bool owners_free(maker *k) {
  for (int32_t i = 0; i < k->instance->item_count; i++) k->owner[i] = k->instance->items[i].fixed_owner;
  return true;
}

/* The plans that no answer may be slower than. */
static bool baselines(maker *k) {
  const mt_instance *instance = k->instance;
  if (!mt_owners_balance(k->arena, instance, k->owner)) return false;
  try_greedy(k, k->windows.critical, 1, true);
  if (!k->fill) return true; /* `prefix` is asked for, not undercut */
  for (int32_t i = 0; i < instance->item_count; i++) {
    int32_t fixed = instance->items[i].fixed_owner;
    k->owner[i] = fixed >= 0 ? fixed : instance->items[i].microbatch % instance->ranks;
  }
  try_greedy(k, k->windows.critical, 1, true);
  if (mt_plan_inline(k->arena, instance, k->timeline, k->trial)) keep_better(k);
  return true;
}

static void construct(maker *k) {
  static const int32_t scans[] = {1, 32};
  owners_free(k);
  for (size_t s = 0; s < sizeof scans / sizeof *scans; s++) {
    mt_ticks low = k->windows.critical, high = k->best->makespan;
    mt_ticks target = low;
    for (int32_t round = 0; round < 24 && low < high; round++) {
      mt_ticks reached = try_greedy(k, target, scans[s], false);
      if (reached <= target)
        high = target;
      else
        low = target + 1;
      if (k->best->makespan < high) high = k->best->makespan;
      target = low + (high - low) / 2;
    }
  }
}

/* Work of the default effort, in node visits (some tens of nanoseconds each), and of a second. */
static const int64_t WORK_DEFAULT = 8000000, WORK_BOUND = 8000000;
static const double WORK_A_SECOND = 3e7;
enum { NODES_SEARCHED = 1 << 14 }; /* larger instances are searched only on demand */

static int64_t work_allowed(const maker *k, const mt_order_options *options) {
  double seconds = options != NULL ? options->search_seconds : 0.0;
  if (seconds < 0.0) return 0;
  if (seconds > 0.0) return seconds < 1e9 ? (int64_t)(seconds * WORK_A_SECOND) : INT64_MAX / 2;
  return k->instance->node_count <= NODES_SEARCHED ? WORK_DEFAULT : 0;
}

static bool try_repair(maker *k, mt_repair *repair, mt_ticks target, int64_t share, int64_t *work) {
  int64_t left = share < *work ? share : *work, before = left;
  mt_greedy_rule rule = {.target = target, .scan = 32};
  mt_greedy_run(k->greedy, &rule, k->owner, k->timeline, k->trial);
  keep_better(k);
  if (k->best->makespan <= target) return true;
  bool found = mt_repair_run(repair, target, k->trial, &left, k->trial);
  *work -= before - left;
  if (!found || !mt_timeline_run(k->timeline, k->instance, k->trial)) return false;
  keep_better(k);
  return k->best->makespan <= target;
}

/* Aims at the bound, then halves the gap, then spends what is left on the next better makespan. */
static bool improve(maker *k, int64_t work) {
  const mt_instance *instance = k->instance;
  if (k->best->makespan <= k->bound || work <= 0) return true;
  for (int32_t i = 0; i < instance->item_count; i++)
    if (instance->items[i].window_after >= 0) return true;
  mt_repair *repair = mt_repair_create(k->arena, instance, &k->windows);
  if (repair == NULL) return false;
  /* Without a common unit a plan better by less than a millionth is not worth a round. */
  mt_ticks step = instance->exact ? 1 : k->best->makespan / 1000000 + 1;
  mt_ticks low = k->bound, target = low;
  int64_t share = work / 4;
  for (; low < k->best->makespan && work > 0; target = low + (k->best->makespan - low) / 2) {
    if (low + step >= k->best->makespan && target > k->bound) break;
    if (!try_repair(k, repair, target, share, &work)) low = target + step;
    share = work / 4;
  }
  while (work > 0 && k->best->makespan - step >= k->bound)
    if (!try_repair(k, repair, k->best->makespan - step, work, &work)) break;
  return true;
}

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

static motet_status write_order(maker *k, motet_error *error, mt_order_result *result) {
  const mt_instance *instance = k->instance;
  mt_order *order = &result->order;
  int32_t nodes = instance->node_count;
  double *start = MT_ARENA_NEW(k->arena, double, nodes);
  *order = (mt_order){.begin = MT_ARENA_NEW(k->arena, int64_t, instance->ranks + 1),
                      .events = MT_ARENA_NEW(k->arena, mt_event, nodes),
                      .start = MT_ARENA_NEW(k->arena, double, nodes),
                      .barrier = instance->barrier};
  if (start == NULL || order->begin == NULL || order->events == NULL || order->start == NULL)
    return mt_error_memory(error, (unsigned long long)nodes * 32, "an order");
  mt_timeline_run(k->timeline, instance, k->best);
  result->makespan = mt_timeline_seconds(k->timeline, instance, k->best, start);
  for (int32_t r = 0; r <= instance->ranks; r++) order->begin[r] = k->best->begin[r];
  for (int32_t i = 0; i < nodes; i++) {
    int32_t node = k->best->sequence[i];
    order->events[i] = instance->event[node];
    order->start[i] = start[node];
  }
  result->bound = (double)k->bound * instance->unit;
  if (result->bound > result->makespan) result->bound = result->makespan;
  return MOTET_OK;
}

motet_status mt_order_make(mt_arena *arena, const mt_derivation *derivation, const mt_cost_table *costs,
                           const mt_order_options *options, motet_error *error, mt_order_result *result) {
  maker k = {.arena = arena};
  mt_instance *instance;
  motet_status status = check_ahead(derivation, error);
  if (status == MOTET_OK) status = mt_instance_build(arena, derivation, costs, options, error, &instance);
  if (status == MOTET_OK) status = mt_windows_build(arena, instance, error, &k.windows);
  if (status != MOTET_OK) return status;
  k.instance = instance;
  k.timeline = mt_timeline_create(arena, instance);
  k.greedy = mt_greedy_create(arena, instance, &k.windows);
  k.best = mt_plan_create(arena, instance);
  k.trial = mt_plan_create(arena, instance);
  k.owner = MT_ARENA_NEW(arena, int32_t, instance->item_count);
  if (k.timeline == NULL || k.greedy == NULL || k.best == NULL || k.trial == NULL || k.owner == NULL)
    return mt_error_memory(error, (unsigned long long)instance->node_count * 64, "the order search");
  for (int32_t i = 0; i < instance->item_count; i++) k.fill = k.fill || !instance->items[i].prefix;
  if (!baselines(&k)) return mt_error_memory(error, (unsigned long long)instance->node_count * 16, "owner maps");
  k.bound = k.windows.critical;
  if (k.fill) {
    construct(&k);
    int64_t work = WORK_BOUND;
    if (!mt_bound_find(arena, instance, &k.windows, k.best->makespan, &work, &k.bound))
      return mt_error_memory(error, (unsigned long long)instance->node_count * 32, "a lower bound");
    if (!improve(&k, work_allowed(&k, options)))
      return mt_error_memory(error, (unsigned long long)instance->node_count * 64, "the order search");
  }
  return write_order(&k, error, result);
}
