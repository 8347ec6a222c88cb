#include "order/search.h"

#include "order/bound.h"
#include "order/repair.h"

#include <string.h>

/* Effort, in node visits of some nanoseconds each. */
static const int64_t WORK_DEFAULT = 60000000, WORK_BOUND = 6000000, WORK_GREEDY = 450000;
static const double WORK_A_SECOND = 1e8;
enum { QUICK_PART = 30 };
enum { NODES_SEARCHED = 1 << 14 }; /* larger instances are repaired on demand only */

/* How the idle time beyond the critical path is shared out: encodes may use `eighths` of it. */
typedef struct variant {
  int32_t eighths, scan;
  bool patient;
} variant;

static const variant VARIANTS[] = {{2, 1, true},  {1, 1, true},   {4, 1, true},  {8, 1, true},
                                   {8, 1, false}, {8, 32, false}, {2, 32, true}, {8, 32, true}};
enum { VARIANT_COUNT = sizeof VARIANTS / sizeof *VARIANTS, PLAIN = 4 };

typedef struct maker {
  mt_arena *arena;
  const mt_instance *instance;
  const mt_windows *windows;
  mt_timeline *timeline;
  mt_greedy *greedy;
  mt_candidate *best, *trial;
  int32_t *owner, *balanced; /* [items] of the plan at hand; evenly dealt */
  bool found;
  bool backwards; /* some item has one */
  bool uneven;    /* forwards take different times */
  mt_ticks bound;
  int64_t greedy_work;
} maker;

static void keep_better(maker *k) {
  if (!mt_timeline_keeps_windows(k->timeline, k->instance)) return;
  if (k->found && k->trial->makespan >= k->best->makespan) return;
  mt_candidate_copy(k->instance, k->best, k->trial);
  k->found = true;
}

static bool reached(const maker *k, mt_ticks target) { return k->found && k->best->makespan <= target; }

static void run_greedy(maker *k, const mt_greedy_rule *rule) {
  if (mt_greedy_run(k->greedy, rule, k->owner, k->timeline, k->trial, &k->greedy_work)) keep_better(k);
}

static void run_variant(maker *k, mt_ticks target, const variant *v) {
  mt_ticks beyond = target - k->windows->critical;
  run_greedy(k, &(mt_greedy_rule){.target = target,
                                  .encode_target =
                                      k->windows->critical + beyond / 8 * v->eighths + beyond % 8 * v->eighths / 8,
                                  .scan = v->scan,
                                  .patient = v->patient,
                                  .strict = !k->backwards}); /* backwards are late at the very end only */
}

/* Nobody's yet, but for those that stand before the body: what is placed first has an owner. */
static void owners_free(maker *k) {
  for (int32_t i = 0; i < k->instance->item_count; i++)
    k->owner[i] = k->instance->items[i].prefix ? k->balanced[i] : k->instance->items[i].fixed_owner;
}

/* The plans that no answer may be slower than: everything before the body, with either owner map; everything at its
 * consumer. */
static bool run_baselines(maker *k, bool fill) {
  const mt_instance *instance = k->instance;
  const mt_greedy_rule prefix = {
      .target = k->windows->critical, .encode_target = k->windows->critical, .scan = 1, .prefix = true};
  if (!mt_owners_balance(k->arena, instance, k->balanced)) return false;
  memcpy(k->owner, k->balanced, (size_t)instance->item_count * sizeof *k->owner);
  run_greedy(k, &prefix);
  if (!fill) return true; /* `prefix` is asked for, not undercut */
  for (int32_t i = 0; i < instance->item_count; i++) {
    int32_t fixed = instance->items[i].fixed_owner;
    k->owner[i] = fixed >= 0 ? fixed : mt_instance_dealt(instance, &instance->items[i], 0);
  }
  run_greedy(k, &prefix);
  if (mt_candidate_inline(k->arena, instance, k->timeline, k->trial)) keep_better(k);
  owners_free(k);
  return true;
}

/* Whether the variant can make a difference: patience and shares are about backwards, looking further about sizes.
 */
static bool differs(const maker *k, const variant *v) {
  return (k->backwards || !v->patient) && (k->uneven || v->scan == 1);
}

/* Halves the range between the bound and the best plan, each target tried with every way of sharing idle time. */
static void run_variants(maker *k) {
  mt_ticks low = k->bound, target = low;
  while (low < k->best->makespan && k->greedy_work > 0) {
    for (int32_t v = 0; v < VARIANT_COUNT && !reached(k, target) && k->greedy_work > 0; v++)
      if (differs(k, &VARIANTS[v]) && !(v == PLAIN && target == k->windows->critical))
        run_variant(k, target, &VARIANTS[v]);
    if (!reached(k, target)) low = target + 1;
    target = low + (k->best->makespan - low) / 2;
  }
}

static bool has_window(const maker *k) {
  for (int32_t i = 0; i < k->instance->item_count; i++)
    if (k->instance->items[i].window_after >= 0) return true;
  return false;
}

/* With a window, whoever ends a task when a feature is consumed would take the next encode: mostly the consumer's
 * own rank. Owner maps given beforehand spread the work; random changes improve them. */
static void run_owner_maps(maker *k, int64_t work) {
  const mt_instance *instance = k->instance;
  mt_random random = mt_random_stream(1, "order.owners");
  int32_t ranks = instance->owner_count, items = instance->item_count;
  mt_ticks current = INT64_MAX;
  for (int32_t turn = 0; turn < ranks; turn++) {
    for (int32_t i = 0; i < items; i++)
      if (instance->items[i].fixed_owner < 0) k->owner[i] = mt_instance_dealt(instance, &instance->items[i], turn);
    mt_ticks before = k->best->makespan;
    for (mt_ticks low = k->bound, high = before; low < high;) {
      mt_ticks target = low + (high - low) / 2;
      run_variant(k, target, &VARIANTS[PLAIN]);
      if (reached(k, target))
        high = target;
      else
        low = target + 1;
    }
  }
  for (int32_t i = 0; i < items; i++) k->owner[i] = k->best->rank[instance->items[i].forward];
  current = k->best->makespan;
  while (work > 0 && !reached(k, k->bound)) {
    int32_t a = (int32_t)mt_random_below(&random, (uint64_t)items);
    int32_t b = (int32_t)mt_random_below(&random, (uint64_t)items);
    if (instance->items[a].fixed_owner >= 0 || instance->items[b].fixed_owner >= 0) {
      work -= 8;
      continue;
    }
    int32_t owner_a = k->owner[a], owner_b = k->owner[b];
    if (mt_random_below(&random, 2) == 0)
      k->owner[b] = owner_a, k->owner[a] = owner_b;
    else
      k->owner[a] = instance->owner_first + (int32_t)mt_random_below(&random, (uint64_t)ranks);
    mt_ticks target = current - 1; /* or anything that is better yet: it moves the encodes' limits */
    target -= (mt_ticks)mt_random_below(&random, (uint64_t)(current - k->bound));
    const mt_greedy_rule rule = {.target = target, .encode_target = target, .scan = 1, .patient = k->backwards};
    if (mt_greedy_run(k->greedy, &rule, k->owner, k->timeline, k->trial, &work) && k->trial->makespan <= current) {
      current = k->trial->makespan;
      keep_better(k);
    } else {
      k->owner[a] = owner_a;
      k->owner[b] = owner_b;
    }
  }
}

static bool try_repair(maker *k, mt_repair *repair, mt_ticks target, int64_t share, int64_t *work) {
  int64_t left = share < *work ? share : *work, before = left;
  bool found = mt_repair_run(repair, target, k->best, &left, k->trial);
  *work -= before - left;
  if (found && mt_timeline_run(k->timeline, k->instance, k->trial)) keep_better(k);
  return reached(k, target);
}

/* Far from the bound the gap is halved, each target with a part of the effort. Near it the bound is often out of
 * reach, and what is left of the effort goes into one small step after the other. */
static bool run_repair(maker *k, int64_t work) {
  enum { NEAR = 4, PART = 6 };
  const mt_instance *instance = k->instance;
  if (reached(k, k->bound) || work <= 0) return true;
  if (has_window(k)) {
    run_owner_maps(k, work / 8); /* placing a node costs more than a visit */
    return true;
  }
  mt_repair *repair = mt_repair_create(k->arena, instance, k->windows);
  if (repair == NULL) return false;
  mt_ticks step = instance->exact ? 1 : k->best->makespan / 1024 + 1;
  for (mt_ticks low = k->bound; !reached(k, k->bound) && work > 0;) {
    mt_ticks gap = k->best->makespan - low, target = k->best->makespan - step;
    if (!instance->exact && target < k->bound) break; /* a thousandth is not worth the effort */
    bool near = gap <= NEAR * step;
    if (!near) target = low + gap / 2;
    if (target < k->bound) target = k->bound;
    if (try_repair(k, repair, target, near ? work : work / PART, &work)) continue;
    if (near) break;
    low = target + 1;
  }
  return true;
}

static int64_t repair_work(const maker *k, double seconds) {
  if (seconds < 0.0) return 0;
  if (seconds > 0.0) return seconds < 1e9 ? (int64_t)(seconds * WORK_A_SECOND) : INT64_MAX / 2;
  return k->instance->node_count <= NODES_SEARCHED ? WORK_DEFAULT : 0;
}

static bool search(maker *k, double seconds, bool fill) {
  owners_free(k);
  if (!fill) return run_baselines(k, false);
  run_greedy(k, &(mt_greedy_rule){.target = k->bound, .encode_target = k->bound, .scan = 1});
  if (reached(k, k->bound)) return true; /* the critical path: nothing is faster */
  if (!run_baselines(k, true)) return false;
  bool quick = seconds <= MT_ORDER_QUICK;
  int64_t work = quick ? 0 : WORK_BOUND;
  if (quick) k->greedy_work /= QUICK_PART;
  if (!mt_bound_find(k->arena, k->instance, k->windows, k->best->makespan, &work, &k->bound)) return false;
  run_variants(k);
  return run_repair(k, repair_work(k, seconds));
}

/* No plan without idle waits takes longer than everything one after the other. */
static mt_ticks serial_makespan(const mt_instance *instance) {
  mt_ticks sum = 0;
  for (int32_t node = 0; node < instance->node_count; node++) sum += instance->length[node];
  for (int32_t node = 0; node < instance->node_count; node++)
    for (int32_t i = instance->pred_begin[node]; i < instance->pred_begin[node + 1]; i++) {
      const mt_lag *lag = &instance->lags[instance->pred[i].lag];
      sum += lag->near > lag->far ? lag->near : lag->far;
    }
  return sum;
}

motet_status mt_search_run(mt_arena *arena, const mt_instance *instance, const mt_windows *windows, double seconds,
                           mt_timeline *timeline, motet_error *error, mt_candidate **plan, mt_ticks *bound) {
  maker k = {.arena = arena,
             .instance = instance,
             .windows = windows,
             .timeline = timeline,
             .greedy = mt_greedy_create(arena, instance, windows),
             .best = mt_candidate_create(arena, instance),
             .trial = mt_candidate_create(arena, instance),
             .owner = MT_ARENA_NEW(arena, int32_t, instance->item_count),
             .balanced = MT_ARENA_NEW(arena, int32_t, instance->item_count),
             .bound = windows->critical,
             .greedy_work = WORK_GREEDY};
  bool memory = k.greedy != NULL && k.best != NULL && k.trial != NULL && k.owner != NULL && k.balanced != NULL,
       fill = false;
  for (int32_t i = 0; i < instance->item_count; i++) {
    fill = fill || !instance->items[i].prefix;
    k.backwards = k.backwards || instance->items[i].backward >= 0;
    k.uneven = k.uneven || instance->length[instance->items[i].maker] != instance->length[instance->items->maker];
  }
  if (memory) k.best->makespan = serial_makespan(instance);
  if (!memory || !search(&k, seconds, fill))
    return mt_error_memory(error, (unsigned long long)instance->node_count * 64, "the search for an order");
  *bound = k.bound;
  *plan = k.found ? k.best : NULL;
  return MOTET_OK;
}
