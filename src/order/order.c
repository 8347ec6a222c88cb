#include "order/order.h"

#include "order/bound.h"
#include "order/open_body.h"
#include "order/open_bound.h"
#include "order/search.h"

#include <string.h>

/* A solved instance. Everything lives in one arena. */
typedef struct solution {
  mt_instance *instance;
  mt_timeline *timeline;
  mt_candidate *plan;
  mt_ticks bound; /* for the instance's owners and barriers */
} solution;

/* Node visits spent on the bound that is told, where it is not a by-product of the search. */
static const int64_t WORK_BOUND = 6000000;

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

static motet_status check_carried(const mt_derivation *d, const mt_order_options *options, motet_error *error) {
  for (int32_t i = 0; options != NULL && options->carried != NULL && i < options->carried_count; i++) {
    motet_carried carried = options->carried[i];
    bool known = carried.stage >= 0 && carried.stage < d->stage_count && carried.microbatch >= 0 &&
                 carried.microbatch < d->microbatches && carried.rank >= 0 && carried.rank < d->ranks;
    const mt_region *region = known ? &d->regions[d->stages[carried.stage].region] : NULL;
    if (known && region->replicated && region->skeleton.order == MT_ORDER_AHEAD &&
        mt_stage_active(d, carried.stage, carried.microbatch))
      continue;
    return mt_error_set(
        error, MOTET_ERROR_ARGUMENT,
        "carried feature %d (stage %d, microbatch %d, rank %d) is none of a region with order=ahead "
        "that has work for the microbatch",
        i, carried.stage, carried.microbatch, carried.rank);
  }
  return MOTET_OK;
}

static motet_status solve(mt_arena *arena, const mt_instance_request *request, double seconds, motet_error *error,
                          solution *s) {
  mt_windows windows;
  motet_status status = mt_instance_build(arena, request, error, &s->instance);
  if (status == MOTET_OK) status = mt_windows_build(arena, s->instance, error, &windows);
  if (status != MOTET_OK) return status;
  s->timeline = mt_timeline_create(arena, s->instance);
  if (s->timeline == NULL)
    return mt_error_memory(error, (unsigned long long)s->instance->node_count * 16, "a timeline");
  return mt_search_run(arena, s->instance, &windows, seconds, s->timeline, error, &s->plan, &s->bound);
}

/* ---- order `ahead` ---- */

/* How many runs of features may be carried: as many as the largest of the regions concerned has, within the
 * windows. */
static int32_t carried_most(const mt_derivation *d) {
  int32_t most = 0;
  for (int32_t s = 0; s < d->stage_count; s++) {
    const mt_region *region = &d->regions[d->stages[s].region];
    if (!region->replicated || region->skeleton.order != MT_ORDER_AHEAD) continue;
    int32_t runs = 0, window = region->skeleton.window / region->skeleton.batch;
    for (int32_t m = 0, last = -1; m < d->microbatches; m++) {
      int32_t run = mt_stage_run(d, s, m);
      if (run == last || !mt_stage_active(d, s, m)) continue;
      runs++;
      last = run;
    }
    if (window > 0 && window < runs) runs = window;
    if (runs > most) most = runs;
  }
  return most;
}

typedef struct ahead_search {
  mt_instance_request request;
  mt_arena *scratch;
  motet_error *error;
  double seconds; /* of search for one count */
  int32_t best;
  double best_makespan; /* seconds: instances of different counts may have different ticks */
} ahead_search;

static motet_status try_ahead(ahead_search *a, int32_t count) {
  solution s = {0};
  mt_arena_reset(a->scratch);
  a->request.ahead = count;
  motet_status status = solve(a->scratch, &a->request, a->seconds, a->error, &s);
  if (status != MOTET_OK || s.plan == NULL) return status;
  double makespan = (double)s.plan->makespan * s.instance->unit;
  if (a->best < 0 || makespan < a->best_makespan * (1.0 - 1e-12)) {
    a->best = count;
    a->best_makespan = makespan;
  }
  return MOTET_OK;
}

/* The count of carried features that a short search makes most of: a coarse grid, then its best point's
 * surroundings.
 */
static motet_status choose_ahead(const mt_instance_request *request, motet_error *error, int32_t *count) {
  enum { GRID = 8, SEARCHED_MOST = 1 << 13 };
  const mt_derivation *d = request->derivation;
  bool small = d->body_begin[d->ranks] < SEARCHED_MOST;
  ahead_search a = {.request = *request,
                    .scratch = mt_arena_create(),
                    .error = error,
                    .seconds = small ? 0.01 : -1.0,
                    .best = -1};
  if (a.scratch == NULL) return mt_error_memory(error, 0, "order ahead");
  int32_t low = 0, high = carried_most(d);
  motet_status status = try_ahead(&a, 0); /* is order `fill` */
  for (bool last = false; status == MOTET_OK && !last;) {
    int32_t step = (high - low) / GRID + 1;
    last = step == 1;
    for (int32_t c = low; status == MOTET_OK && c <= high; c += step)
      if (c > 0) status = try_ahead(&a, c);
    if (a.best < 0) break;
    low = a.best - step + 1 > 0 ? a.best - step + 1 : 0;
    if (a.best + step - 1 < high) high = a.best + step - 1;
  }
  mt_arena_destroy(a.scratch);
  *count = a.best > 0 ? a.best : 0;
  return status;
}

/* With the carried features given, the next step's first encodes go where the ranks wait for the last one's end. */
typedef struct tails {
  double *end;   /* [P] */
  int32_t *rank; /* [items] where the item's next forward goes, or -1; NULL: nowhere */
} tails;

static bool fill_tails(mt_arena *arena, const mt_instance_request *request, const solution *s, const double *start,
                       double makespan, tails *t) {
  const mt_instance *instance = s->instance;
  t->end = MT_ARENA_NEW(arena, double, instance->ranks);
  t->rank = MT_ARENA_NEW(arena, int32_t, instance->item_count);
  if (t->end == NULL || t->rank == NULL) return false;
  for (int32_t r = 0; r < instance->ranks; r++)
    if (s->plan->begin[r + 1] > s->plan->begin[r]) {
      int32_t last = s->plan->sequence[s->plan->begin[r + 1] - 1];
      t->end[r] = start[last] + instance->seconds[last];
    }
  int32_t placed = 0;
  bool open = true; /* in order of consumption: nothing overtakes what did not fit */
  for (int32_t i = 0; i < instance->item_count; i++) {
    const mt_item *item = &instance->items[i];
    const mt_skeleton *skeleton = &request->derivation->regions[item->region].skeleton;
    if (i == 0 || item->stage != item[-1].stage) placed = 0, open = true;
    t->rank[i] = -1;
    int32_t begin = instance->part_begin[item->forward], count = instance->part_begin[item->forward + 1] - begin;
    if (skeleton->order != MT_ORDER_AHEAD || !open || (skeleton->window > 0 && placed + count > skeleton->window))
      continue;
    double seconds = 0;
    for (int32_t k = 0; k < count; k++)
      seconds += mt_cost_seconds(request->costs, MT_COST_FORWARD, item->stage, instance->parts[begin + k]);
    for (int32_t r = 0; r < instance->ranks; r++) {
      if (!mt_instance_may_own(instance, r)) continue;
      if (skeleton->owner == MT_OWNER_ROUND_ROBIN && r != mt_instance_dealt(instance, item, 0)) continue;
      if (t->rank[i] < 0 || t->end[r] < t->end[t->rank[i]]) t->rank[i] = r;
    }
    if (t->end[t->rank[i]] + seconds > makespan) {
      t->rank[i] = -1;
      open = false;
      continue;
    }
    t->end[t->rank[i]] += seconds;
    placed += count;
  }
  return true;
}

/* ---- the answer ---- */

/* Carried features are there from the begin: their nodes go to the front, wherever the search left them. */
static bool bring_forward(mt_arena *arena, const solution *s) {
  const mt_instance *instance = s->instance;
  int32_t *sequence = MT_ARENA_NEW(arena, int32_t, instance->node_count);
  if (sequence == NULL) return false;
  int32_t at = 0;
  for (int32_t r = 0; r < instance->ranks; r++)
    for (int32_t pass = 0; pass < 2; pass++)
      for (int32_t i = s->plan->begin[r]; i < s->plan->begin[r + 1]; i++)
        if (mt_instance_holds(instance, s->plan->sequence[i]) == (pass == 0)) sequence[at++] = s->plan->sequence[i];
  memcpy(s->plan->sequence, sequence, (size_t)at * sizeof *sequence);
  return true;
}

/* A node's events, one a microbatch, from @p start on; returns their end. */
static double write_node(const mt_instance_request *request, const mt_instance *instance, int32_t node,
                         mt_event event, double start, mt_order *order, int64_t *at) {
  for (int32_t i = instance->part_begin[node], end = instance->part_begin[node + 1]; i < end; i++) {
    event.microbatch = instance->parts[i];
    event.joined = i + 1 < end;
    order->events[*at] = event;
    order->start[(*at)++] = start;
    start += mt_instance_event_seconds(request, &event);
  }
  return start;
}

static int64_t write_rank(const mt_instance_request *request, const solution *s, int32_t rank, const double *start,
                          const tails *t, mt_order *order, int64_t at) {
  const mt_instance *instance = s->instance;
  double end = 0.0;
  for (int32_t i = s->plan->begin[rank]; i < s->plan->begin[rank + 1]; i++) {
    int32_t node = s->plan->sequence[i];
    if (mt_instance_holds(instance, node)) continue;
    end = write_node(request, instance, node, instance->event[node], start[node], order, &at);
  }
  for (int32_t i = 0; t->rank != NULL && i < instance->item_count; i++) {
    if (t->rank[i] != rank) continue;
    const mt_item *item = &instance->items[i];
    mt_event event = {.kind = MOTET_FWD, .next = true, .stage = item->stage};
    end = write_node(request, instance, item->forward, event, end, order, &at);
  }
  return at;
}

static motet_status write_order(mt_arena *arena, const mt_instance_request *request, const solution *s,
                                motet_error *error, mt_order_result *result) {
  const mt_instance *instance = s->instance;
  const mt_order_options *options = request->options;
  int64_t parts = instance->part_begin[instance->node_count], most = 2 * parts; /* with the next step's */
  double *start = MT_ARENA_NEW(arena, double, instance->node_count);
  mt_order *order = &result->order;
  *order = (mt_order){.begin = MT_ARENA_NEW(arena, int64_t, instance->ranks + 1),
                      .events = MT_ARENA_NEW(arena, mt_event, most),
                      .start = MT_ARENA_NEW(arena, double, most),
                      .barrier = instance->barrier,
                      .carried = MT_ARENA_NEW(arena, motet_carried, parts)};
  if (start == NULL || order->begin == NULL || order->events == NULL || order->start == NULL ||
      order->carried == NULL || !bring_forward(arena, s))
    return mt_error_memory(error, (unsigned long long)most * 32, "an order");
  mt_timeline_run(s->timeline, instance, s->plan);
  result->makespan = mt_timeline_seconds(s->timeline, instance, s->plan, start);
  tails t = {0};
  if (options != NULL && options->carried != NULL && !fill_tails(arena, request, s, start, result->makespan, &t))
    return mt_error_memory(error, (unsigned long long)instance->item_count * 16, "the next step's encodes");
  int64_t at = 0;
  for (int32_t r = 0; r < instance->ranks; r++) {
    order->begin[r] = at;
    at = write_rank(request, s, r, start, &t, order, at);
  }
  order->begin[instance->ranks] = at;
  for (int32_t i = 0; i < instance->item_count; i++) {
    const mt_item *item = &instance->items[i];
    for (int32_t k = instance->part_begin[item->forward];
         item->carried && k < instance->part_begin[item->forward + 1]; k++)
      order->carried[order->carried_count++] = (motet_carried){
          .stage = item->stage, .microbatch = instance->parts[k], .rank = s->plan->rank[item->forward]};
  }
  return MOTET_OK;
}

/* The bound that is told holds for every order of the derivation's transposed work, whatever the skeletons' options
 * narrow it to. The search's own serves where they narrow nothing. */
static motet_status set_bound(mt_arena *arena, const mt_instance_request *request, const solution *s, bool steady,
                              motet_error *error, mt_order_result *result) {
  mt_ticks bound = s->bound;
  double unit = s->instance->unit;
  bool narrowed = steady;
  for (int32_t i = 0; i < request->derivation->stage_count; i++)
    narrowed = narrowed || request->derivation->stages[i].recompute;
  for (int32_t i = 0; i < s->instance->item_count; i++) {
    const mt_item *item = &s->instance->items[i];
    narrowed = narrowed || item->prefix || (item->fixed_owner >= 0 && !item->carried);
  }
  if (narrowed) {
    mt_instance_request any = *request;
    any.relaxed = true;
    any.ahead = steady ? request->derivation->microbatches : 0;
    mt_instance *instance;
    mt_windows windows;
    motet_status status = mt_instance_build(arena, &any, error, &instance);
    if (status == MOTET_OK) status = mt_windows_build(arena, instance, error, &windows);
    if (status != MOTET_OK) return status;
    unit = instance->unit;
    int64_t work = WORK_BOUND;
    if (!mt_bound_find(arena, instance, &windows, (mt_ticks)(result->makespan / unit) + 1, &work, &bound))
      return mt_error_memory(error, (unsigned long long)instance->node_count * 32, "a lower bound");
  }
  result->bound = (double)bound * unit;
  /* The body of an open one could have another order too. Its sums are not the plan's, to the last digits. */
  if (mt_body_is_open(request->derivation)) {
    motet_status status =
        mt_order_open_bound(arena, request->derivation, request->costs, request->options, error, &result->bound);
    if (status != MOTET_OK) return status;
    if (result->bound > result->makespan * (1.0 - 1e-12)) result->bound = result->makespan;
  }
  if (result->bound > result->makespan) result->bound = result->makespan;
  return MOTET_OK;
}

static motet_status make_order(mt_arena *arena, const mt_derivation *derivation, const mt_cost_table *costs,
                               const mt_order_options *options, bool quick, motet_error *error,
                               mt_order_result *result) {
  motet_status status = mt_order_body(arena, derivation, costs, options, quick, error, &derivation);
  if (status != MOTET_OK) return status;
  mt_instance_request request = {.derivation = derivation, .costs = costs, .options = options};
  solution s = {0};
  status = check_ahead(derivation, error);
  if (status == MOTET_OK) status = check_carried(derivation, options, error);
  bool steady = carried_most(derivation) > 0 && (options == NULL || options->carried == NULL);
  if (status == MOTET_OK && steady) status = choose_ahead(&request, error, &request.ahead);
  if (status == MOTET_OK)
    status = solve(arena, &request, options != NULL ? options->search_seconds : 0.0, error, &s);
  if (status == MOTET_OK && s.plan == NULL)
    status =
        mt_error_set(error, MOTET_ERROR_ILLEGAL,
                     "no order was found that keeps the feature windows with the given owners; accepted: a larger "
                     "window, or owner=balanced");
  if (status == MOTET_OK) status = write_order(arena, &request, &s, error, result);
  if (status == MOTET_OK) status = set_bound(arena, &request, &s, steady, error, result);
  return status;
}

/* Whether an open body is ordered by less than what it runs with: by averages of unlike microbatches, or without
 * the transposed work between its events. */
static bool is_approximate(const mt_derivation *d, const mt_cost_table *costs) {
  if (!mt_body_is_open(d)) return false;
  for (int32_t s = 0; s < d->stage_count; s++) {
    if (d->regions[d->stages[s].region].replicated) return true;
    for (int32_t m = 1; m < d->microbatches; m++)
      if (mt_cost_seconds(costs, MT_COST_FORWARD, s, m) != mt_cost_seconds(costs, MT_COST_FORWARD, s, 0))
        return true;
  }
  return false;
}

motet_status mt_order_make(mt_arena *arena, const mt_derivation *derivation, const mt_cost_table *costs,
                           const mt_order_options *options, motet_error *error, mt_order_result *result) {
  bool quick = options != NULL && options->search_seconds == MT_ORDER_QUICK;
  motet_status status = make_order(arena, derivation, costs, options, quick, error, result);
  if (status != MOTET_OK || quick || !is_approximate(derivation, costs)) return status;
  /* Then the better order of the body alone need not be the better one. */
  mt_order_result other;
  status = make_order(arena, derivation, costs, options, true, error, &other);
  if (status == MOTET_OK && other.makespan < result->makespan) *result = other;
  return status;
}
