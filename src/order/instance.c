#include "order/instance.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct raw_arc {
  int32_t from, to, lag;
} raw_arc;

typedef struct builder {
  mt_arena *arena;
  const mt_instance_request *request;
  const mt_derivation *derivation;
  mt_instance *instance;
  int32_t *forward, *backward; /* [stages * M] nodes: forward; backward that yields the input gradient; or -1 */
  int32_t *carried;            /* [stages * M] rank on which the previous step left the feature, or -1 */
  raw_arc *arcs;
  int64_t arc_count, arc_capacity;
} builder;

/* A schedule may lose a little to rounding, a bound may not: times without a common unit are rounded down, to 2^-36
 * of the longest, or coarser where sums over all nodes and transfers would come near 2^62. */
static const double INEXACT_TICKS = 0x1p36, INEXACT_SUM = 0x1p60;
/* Shorter longest times than this count as this: nothing that is measured is. */
static const double LONGEST_LEAST = 1e-200;
/* A common unit is believed in when every time is a multiple of it to this relative precision. */
static const double UNIT_TOLERANCE = 1e-9;
static const double UNIT_SMALLEST = 0x1p-24; /* of the longest time */

static bool is_replicated(const mt_derivation *d, int32_t stage) {
  return d->regions[d->stages[stage].region].replicated;
}

static mt_cost_kind cost_kind(int event_kind) {
  switch (event_kind) {
  case MOTET_BWD: return MT_COST_BACKWARD;
  case MOTET_BWD_X: return MT_COST_BACKWARD_X;
  case MOTET_BWD_W: return MT_COST_BACKWARD_W;
  default: return MT_COST_FORWARD;
  }
}

static int64_t cell(const builder *b, int32_t stage, int32_t microbatch) {
  return (int64_t)stage * b->derivation->microbatches + microbatch;
}

static motet_status allocate_nodes(builder *b, motet_error *error) {
  const mt_derivation *d = b->derivation;
  mt_instance *instance = b->instance;
  int64_t cells = (int64_t)d->stage_count * d->microbatches;
  int64_t items = 0, most = d->body_begin[d->ranks];
  for (int32_t s = 0; s < d->stage_count; s++)
    for (int32_t m = 0; is_replicated(d, s) && m < d->microbatches; m++)
      if (mt_stage_active(d, s, m)) items++;
  most += 2 * items;
  if (most > INT32_MAX / 4)
    return mt_error_set(error, MOTET_ERROR_LIMIT,
                        "%lld events are more than an order can be found for (at most %d)", (long long)most,
                        INT32_MAX / 4);
  b->forward = MT_ARENA_NEW(b->arena, int32_t, cells);
  b->backward = MT_ARENA_NEW(b->arena, int32_t, cells);
  b->carried = MT_ARENA_NEW(b->arena, int32_t, cells);
  instance->body_begin = MT_ARENA_NEW(b->arena, int32_t, d->ranks + 1);
  instance->rank = MT_ARENA_NEW(b->arena, int32_t, most);
  instance->item_of = MT_ARENA_NEW(b->arena, int32_t, most);
  instance->event = MT_ARENA_NEW(b->arena, mt_event, most);
  instance->part_begin = MT_ARENA_NEW(b->arena, int32_t, most + 1);
  instance->parts = MT_ARENA_NEW(b->arena, int32_t, most);
  instance->length = MT_ARENA_NEW(b->arena, mt_ticks, most);
  instance->seconds = MT_ARENA_NEW(b->arena, double, most);
  instance->items = MT_ARENA_NEW(b->arena, mt_item, items);
  if (b->forward == NULL || b->backward == NULL || b->carried == NULL || instance->body_begin == NULL ||
      instance->rank == NULL || instance->item_of == NULL || instance->event == NULL ||
      instance->part_begin == NULL || instance->parts == NULL || instance->length == NULL ||
      instance->seconds == NULL || instance->items == NULL)
    return mt_error_memory(error, (unsigned long long)most * 40, "the order's events");
  memset(b->forward, 0xff, (size_t)cells * sizeof *b->forward);
  memset(b->backward, 0xff, (size_t)cells * sizeof *b->backward);
  memset(b->carried, 0xff, (size_t)cells * sizeof *b->carried);
  const mt_order_options *options = b->request->options;
  for (int32_t i = options != NULL && options->carried != NULL ? options->carried_count : 0; i-- > 0;)
    b->carried[cell(b, options->carried[i].stage, options->carried[i].microbatch)] = options->carried[i].rank;
  return MOTET_OK;
}

/* A new node, without microbatches. */
static int32_t add_node(builder *b, mt_event event, int32_t rank, int32_t item) {
  mt_instance *instance = b->instance;
  int32_t node = instance->node_count++;
  event.joined = false;
  instance->event[node] = event;
  instance->rank[node] = rank;
  instance->item_of[node] = item;
  instance->part_begin[node + 1] = instance->part_begin[node];
  return node;
}

/* One more microbatch of the newest node. */
static void add_part(builder *b, int32_t node, int32_t microbatch) {
  mt_instance *instance = b->instance;
  const mt_event *event = &instance->event[node];
  instance->parts[instance->part_begin[node + 1]++] = microbatch;
  if (event->next) return;
  if (event->kind == MOTET_FWD) b->forward[cell(b, event->stage, microbatch)] = node;
  if (event->kind == MOTET_BWD || event->kind == MOTET_BWD_X) b->backward[cell(b, event->stage, microbatch)] = node;
}

static void add_body(builder *b) {
  const mt_derivation *d = b->derivation;
  mt_instance *instance = b->instance;
  for (int32_t r = 0; r < d->ranks; r++) {
    instance->body_begin[r] = instance->node_count;
    for (int64_t i = d->body_begin[r]; i < d->body_begin[r + 1]; i++) {
      bool inside = i > d->body_begin[r] && d->body[i - 1].joined;
      int32_t node = inside ? instance->node_count - 1 : add_node(b, d->body[i], r, -1);
      add_part(b, node, d->body[i].microbatch);
    }
  }
  instance->body_begin[d->ranks] = instance->body_count = instance->node_count;
}

/* A free node of the newest item, for the microbatches before @p end that lie where its first does. */
static int32_t add_free(builder *b, const mt_item *item, mt_event event, int32_t end) {
  event.stage = item->stage;
  event.microbatch = item->microbatch;
  int32_t node = add_node(b, event, -1, b->instance->item_count);
  int32_t on = b->carried[cell(b, item->stage, item->microbatch)];
  for (int32_t m = item->microbatch; m < end; m++)
    if (mt_stage_active(b->derivation, item->stage, m) && b->carried[cell(b, item->stage, m)] == on)
      add_part(b, node, m);
  return node;
}

/* The item of what lies with @p microbatch of its run, which ends before @p end. */
static void add_item(builder *b, int32_t stage, int32_t microbatch, int32_t end, bool steady) {
  mt_instance *instance = b->instance;
  const mt_stage *info = &b->derivation->stages[stage];
  const mt_skeleton *skeleton = &b->derivation->regions[info->region].skeleton;
  bool relaxed = b->request->relaxed;
  int32_t on = b->carried[cell(b, stage, microbatch)];
  mt_item item = {.stage = stage,
                  .microbatch = microbatch,
                  .turn = microbatch / skeleton->batch,
                  .region = info->region,
                  .backward = -1,
                  .fixed_owner = -1,
                  .window_after = -1,
                  .carried = steady || on >= 0,
                  .prefix = skeleton->order == MT_ORDER_PREFIX && !relaxed,
                  .source = true};
  if (skeleton->owner == MT_OWNER_ROUND_ROBIN && !relaxed) item.fixed_owner = mt_instance_dealt(instance, &item, 0);
  if (on >= 0) item.fixed_owner = on;
  item.forward = item.maker = add_free(b, &item, (mt_event){.kind = MOTET_FWD}, end);
  if (steady) item.backward = item.maker = add_free(b, &item, (mt_event){.kind = MOTET_FWD, .next = true}, end);
  uint8_t backward = info->gate == MT_GATE_INPUT ? MOTET_BWD_X : MOTET_BWD;
  if (info->gate != MT_GATE_NONE) item.backward = add_free(b, &item, (mt_event){.kind = backward}, end);
  instance->items[instance->item_count++] = item;
}

/* Whether an active microbatch of the run from @p begin on is the first of those that lie where it does: carried on
 * one rank, or not carried. */
static bool is_first(const builder *b, int32_t stage, int32_t begin, int32_t microbatch) {
  int32_t on = b->carried[cell(b, stage, microbatch)];
  for (int32_t m = begin; m < microbatch; m++)
    if (mt_stage_active(b->derivation, stage, m) && b->carried[cell(b, stage, m)] == on) return false;
  return true;
}

static void add_items(builder *b, int32_t stage) {
  const mt_derivation *d = b->derivation;
  const mt_skeleton *skeleton = &d->regions[d->stages[stage].region].skeleton;
  int32_t steady = skeleton->order == MT_ORDER_AHEAD ? b->request->ahead : 0;
  for (int32_t m = 0; m < d->microbatches; m++) {
    int32_t begin = mt_stage_run(d, stage, m), left = d->microbatches - begin;
    if (!mt_stage_active(d, stage, m) || !is_first(b, stage, begin, m)) continue;
    add_item(b, stage, m, begin + (skeleton->batch < left ? skeleton->batch : left), steady-- > 0);
  }
}

static motet_status add_nodes(builder *b, motet_error *error) {
  const mt_derivation *d = b->derivation;
  motet_status status = allocate_nodes(b, error);
  if (status != MOTET_OK) return status;
  add_body(b);
  for (int32_t s = 0; s < d->stage_count; s++)
    if (is_replicated(d, s)) add_items(b, s);
  return MOTET_OK;
}

double mt_instance_event_seconds(const mt_instance_request *request, const mt_event *event) {
  double seconds = mt_cost_seconds(request->costs, cost_kind(event->kind), event->stage, event->microbatch);
  /* Computing again may overlap the wait for the gradient: no bound may count on it. */
  bool again = request->derivation->stages[event->stage].recompute && !request->relaxed;
  if (again && (event->kind == MOTET_BWD || event->kind == MOTET_BWD_X))
    seconds += mt_cost_seconds(request->costs, MT_COST_RECOMPUTE, event->stage, event->microbatch);
  return seconds;
}

static motet_status set_seconds(builder *b, motet_error *error) {
  mt_instance *instance = b->instance;
  for (int32_t node = 0; node < instance->node_count; node++) {
    if (mt_instance_holds(instance, node)) continue; /* done before the step */
    mt_event event = instance->event[node];
    for (int32_t i = instance->part_begin[node]; i < instance->part_begin[node + 1]; i++) {
      event.microbatch = instance->parts[i];
      double seconds = mt_instance_event_seconds(b->request, &event);
      if (!(seconds >= 0.0) || isinf(seconds))
        return mt_error_set(
            error, MOTET_ERROR_ARGUMENT,
            "the cost table gives %g seconds for %s of stage %d, microbatch %d; times are finite and "
            "not negative",
            seconds, event.kind == MOTET_FWD ? "a forward" : "a backward", event.stage, event.microbatch);
      instance->seconds[node] += seconds;
    }
  }
  return MOTET_OK;
}

static void add_arc(builder *b, int32_t from, int32_t to, int32_t lag) {
  if (from < 0 || to < 0) return;
  b->arcs[b->arc_count++] = (raw_arc){from, to, lag};
}

/* The lag of the data that @p stage puts out for @p microbatch. Equal neighbours share an entry. */
static int32_t add_lag(builder *b, int32_t stage, int32_t microbatch) {
  mt_instance *instance = b->instance;
  int64_t bytes = 0;
  const mt_order_options *options = b->request->options;
  if (options != NULL && options->output_bytes.values != NULL)
    bytes = options->output_bytes.values[stage * options->output_bytes.stage_stride +
                                         microbatch * options->output_bytes.microbatch_stride];
  const mt_links *links = &b->request->costs->links;
  mt_lag lag = {.near_seconds = mt_link_seconds(links->local, bytes),
                .far_seconds = mt_link_seconds(links->remote, bytes)};
  if (links->ranks_per_node <= 0) lag.far_seconds = lag.near_seconds;
  if (lag.near_seconds == 0.0 && lag.far_seconds == 0.0) return 0;
  const mt_lag *last = &instance->lags[instance->lag_count - 1];
  if (lag.near_seconds == last->near_seconds && lag.far_seconds == last->far_seconds)
    return instance->lag_count - 1;
  instance->lags[instance->lag_count] = lag;
  return instance->lag_count++;
}

/* The first forward of a stage's pipeline that microbatch @p microbatch belongs to. */
static int32_t first_forward(const builder *b, int32_t stage, int32_t microbatch) {
  int32_t first = -1, data = b->derivation->regions[b->derivation->stages[stage].region].data;
  for (int32_t m = microbatch % data; m < b->derivation->microbatches; m += data) {
    int32_t node = b->forward[cell(b, stage, m)];
    if (node >= 0 && (first < 0 || node < first)) first = node;
  }
  return first;
}

/* `prefix`: a consumer's first event waits for all outputs of the region that come to it. */
static void add_barriers(builder *b) {
  const mt_derivation *d = b->derivation;
  mt_instance *instance = b->instance;
  bool prefix = false, other = false;
  for (int32_t i = 0; i < instance->item_count; i++) {
    prefix = prefix || instance->items[i].prefix;
    other = other || (instance->items[i].source && !instance->items[i].prefix);
  }
  instance->barrier = prefix && !other;
  for (int32_t e = 0; instance->barrier && e < d->edge_count; e++) {
    if (!is_replicated(d, d->edges[e].from) || is_replicated(d, d->edges[e].to)) continue;
    int32_t from = d->edges[e].from, to = d->edges[e].to, data = d->regions[d->stages[to].region].data;
    for (int32_t lane = 0; lane < data && lane < d->microbatches; lane++) {
      int32_t consumer = first_forward(b, to, lane);
      for (int32_t m = lane; m < d->microbatches; m += data)
        if (mt_stage_active(d, from, m)) add_arc(b, b->forward[cell(b, from, m)], consumer, add_lag(b, from, m));
    }
  }
}

/* Whether a stage has work for one of an item's microbatches. */
static bool feeds(const builder *b, int32_t stage, const mt_item *item) {
  const mt_instance *instance = b->instance;
  for (int32_t i = instance->part_begin[item->forward]; i < instance->part_begin[item->forward + 1]; i++)
    if (mt_stage_active(b->derivation, stage, instance->parts[i])) return true;
  return false;
}

static motet_status add_arcs(builder *b, motet_error *error) {
  const mt_derivation *d = b->derivation;
  mt_instance *instance = b->instance;
  b->arc_capacity = (int64_t)d->edge_count * d->microbatches * 3 + instance->item_count;
  int64_t lag_capacity = (int64_t)d->edge_count * d->microbatches * 2 + 1;
  if (b->arc_capacity > INT32_MAX || lag_capacity > INT32_MAX)
    return mt_error_set(error, MOTET_ERROR_LIMIT, "%lld dependencies are more than an order can be found for",
                        (long long)b->arc_capacity);
  b->arcs = MT_ARENA_NEW(b->arena, raw_arc, b->arc_capacity);
  instance->lags = MT_ARENA_NEW(b->arena, mt_lag, lag_capacity);
  if (b->arcs == NULL || instance->lags == NULL)
    return mt_error_memory(error, (unsigned long long)b->arc_capacity * sizeof *b->arcs,
                           "the order's dependencies");
  instance->lag_count = 1;
  for (int32_t e = 0; e < d->edge_count; e++) {
    mt_edge edge = d->edges[e];
    for (int32_t m = 0; m < d->microbatches; m++) {
      if (!mt_stage_active(d, edge.from, m) || !mt_stage_active(d, edge.to, m)) continue;
      int32_t lag = add_lag(b, edge.from, m);
      add_arc(b, b->forward[cell(b, edge.from, m)], b->forward[cell(b, edge.to, m)], lag);
      if (edge.gradient) add_arc(b, b->backward[cell(b, edge.to, m)], b->backward[cell(b, edge.from, m)], lag);
    }
    if (is_replicated(d, edge.to))
      for (int32_t i = 0; i < instance->item_count; i++)
        if (instance->items[i].stage == edge.to && feeds(b, edge.from, &instance->items[i]))
          instance->items[i].source = instance->items[i].prefix = false;
  }
  for (int32_t i = 0; i < instance->item_count; i++)
    add_arc(b, instance->items[i].backward < 0 ? -1 : instance->items[i].forward, instance->items[i].backward, 0);
  add_barriers(b);
  return MOTET_OK;
}

/* Counting sort of the arcs by one end. */
static bool index_arcs(const builder *b, bool by_target, int32_t **begin, mt_arc **arcs) {
  int32_t nodes = b->instance->node_count;
  *begin = MT_ARENA_NEW(b->arena, int32_t, nodes + 1);
  *arcs = MT_ARENA_NEW(b->arena, mt_arc, b->arc_count);
  if (*begin == NULL || *arcs == NULL) return false;
  int32_t *count = *begin;
  for (int64_t i = 0; i < b->arc_count; i++) count[(by_target ? b->arcs[i].to : b->arcs[i].from)]++;
  int32_t sum = 0;
  for (int32_t node = 0; node <= nodes; node++) {
    int32_t own = count[node];
    count[node] = sum;
    sum += own;
  }
  for (int64_t i = 0; i < b->arc_count; i++) {
    raw_arc arc = b->arcs[i];
    (*arcs)[count[by_target ? arc.to : arc.from]++] = (mt_arc){by_target ? arc.from : arc.to, arc.lag};
  }
  memmove(count + 1, count, (size_t)nodes * sizeof *count);
  count[0] = 0;
  return true;
}

/* Euclid on numbers that are multiples of something up to rounding. */
static double common_unit(double a, double b, double tolerance) {
  while (b > tolerance) {
    double rest = fmod(a, b);
    if (b - rest < tolerance) rest = 0.0;
    a = b;
    b = rest;
  }
  return a;
}

typedef struct unit_search {
  double last, longest, unit;
} unit_search;

static void unit_see(unit_search *search, double value) {
  if (value == search->last || search->unit < search->longest * UNIT_SMALLEST) return;
  search->last = value;
  if (value > 0.0) search->unit = common_unit(value, search->unit, search->longest * UNIT_TOLERANCE);
}

static bool is_multiple(double value, double unit) {
  double quotient = value / unit;
  return fabs(quotient - nearbyint(quotient)) <= UNIT_TOLERANCE * (quotient + 1.0);
}

/* Finds the unit of time: the greatest that divides all times, or a tiny one when there is none. */
static void set_ticks(mt_instance *instance) {
  unit_search search = {.last = -1.0};
  for (int32_t i = 0; i < instance->node_count; i++) search.longest = fmax(search.longest, instance->seconds[i]);
  for (int32_t i = 1; i < instance->lag_count; i++)
    search.longest = fmax(search.longest, fmax(instance->lags[i].near_seconds, instance->lags[i].far_seconds));
  if (search.longest < LONGEST_LEAST) search.longest = LONGEST_LEAST;
  search.unit = search.longest;
  for (int32_t i = 0; i < instance->node_count; i++) unit_see(&search, instance->seconds[i]);
  for (int32_t i = 1; i < instance->lag_count; i++) {
    unit_see(&search, instance->lags[i].near_seconds);
    unit_see(&search, instance->lags[i].far_seconds);
  }
  instance->exact = search.unit >= search.longest * UNIT_SMALLEST;
  /* The longest time has the least relative error: take the unit from it. */
  if (instance->exact) search.unit = search.longest / nearbyint(search.longest / search.unit);
  for (int32_t i = 0; i < instance->node_count && instance->exact; i++)
    instance->exact = is_multiple(instance->seconds[i], search.unit);
  for (int32_t i = 1; i < instance->lag_count && instance->exact; i++)
    instance->exact = is_multiple(instance->lags[i].near_seconds, search.unit) &&
                      is_multiple(instance->lags[i].far_seconds, search.unit);
  double ticks = INEXACT_TICKS;
  while (ticks * instance->node_count > INEXACT_SUM) ticks /= 2;
  instance->unit = instance->exact ? search.unit : search.longest / ticks;
  double round = instance->exact ? 0.5 : 0.0;
  for (int32_t i = 0; i < instance->node_count; i++)
    instance->length[i] = (mt_ticks)floor(instance->seconds[i] / instance->unit + round);
  for (int32_t i = 1; i < instance->lag_count; i++) {
    mt_lag *lag = &instance->lags[i];
    lag->near = (mt_ticks)floor(lag->near_seconds / instance->unit + round);
    lag->far = (mt_ticks)floor(lag->far_seconds / instance->unit + round);
  }
}

static int compare_consumers(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

/* With features made and consumed in one and the same order, at most `window` are alive iff the k-th is not
 * ready before the (k - window)-th is consumed; of those made together the last counts. The next step's follow this
 * step's in that count. @p keys: [microbatches] */
static void set_window(builder *b, mt_item *items, int32_t count, int32_t window, int64_t *keys) {
  const mt_derivation *d = b->derivation;
  const mt_instance *instance = b->instance;
  int32_t consumer = -1, consumed = 0;
  for (int32_t e = 0; e < d->edge_count; e++)
    if (d->edges[e].from == items->stage && !is_replicated(d, d->edges[e].to)) consumer = d->edges[e].to;
  for (int32_t i = 0; i < count && consumer >= 0; i++) {
    int32_t made = items[i].forward;
    for (int32_t part = instance->part_begin[made]; part < instance->part_begin[made + 1]; part++) {
      int32_t node = b->forward[cell(b, consumer, instance->parts[part])];
      if (node >= 0) keys[consumed++] = ((int64_t)node << 32) | i;
    }
  }
  qsort(keys, (size_t)consumed, sizeof *keys, compare_consumers);
  for (int32_t k = 0; k < consumed; k++) {
    mt_item *item = &items[keys[k] & INT32_MAX];
    int64_t after = (int64_t)k - window + (item->maker != item->forward ? consumed : 0);
    if (after >= 0 && after < consumed) item->window_after = (int32_t)(keys[after] >> 32);
  }
}

static motet_status set_windows(builder *b, motet_error *error) {
  mt_instance *instance = b->instance;
  int64_t *keys = MT_ARENA_NEW(b->arena, int64_t, b->derivation->microbatches);
  if (keys == NULL) return mt_error_memory(error, 8u * (unsigned)b->derivation->microbatches, "the feature window");
  for (int32_t begin = 0, end; begin < instance->item_count; begin = end) {
    const mt_item *first = &instance->items[begin];
    int32_t window = b->derivation->regions[first->region].skeleton.window;
    for (end = begin; end < instance->item_count && instance->items[end].stage == first->stage;) end++;
    if (window > 0 && !first->prefix && !b->request->relaxed)
      set_window(b, &instance->items[begin], end - begin, window, keys);
  }
  return MOTET_OK;
}

motet_status mt_instance_build(mt_arena *arena, const mt_instance_request *request, motet_error *error,
                               mt_instance **result) {
  mt_instance *instance = MT_ARENA_NEW(arena, mt_instance, 1);
  if (instance == NULL) return mt_error_memory(error, sizeof *instance, "an ordering problem");
  instance->ranks = request->derivation->ranks;
  instance->owner_first = request->derivation->shared_first;
  instance->owner_count = request->derivation->shared_ranks;
  instance->ranks_per_node = request->costs->links.ranks_per_node;
  instance->first_rank = request->options != NULL ? request->options->first_rank : 0;
  builder b = {.arena = arena, .request = request, .derivation = request->derivation, .instance = instance};
  motet_status status = add_nodes(&b, error);
  if (status == MOTET_OK) status = set_seconds(&b, error);
  if (status == MOTET_OK) status = add_arcs(&b, error);
  if (status == MOTET_OK) status = set_windows(&b, error);
  if (status != MOTET_OK) return status;
  set_ticks(instance);
  if (!index_arcs(&b, true, &instance->pred_begin, &instance->pred) ||
      !index_arcs(&b, false, &instance->succ_begin, &instance->succ))
    return mt_error_memory(error, (unsigned long long)b.arc_count * sizeof(mt_arc), "the order's dependencies");
  *result = instance;
  return MOTET_OK;
}
