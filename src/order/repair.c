#include "order/repair.h"

#include <string.h>

enum {
  NONE = -1,
  SHAKES = 6,     /* random moves after an ejection */
  EJECT_MOST = 4, /* tasks ejected at once where one is not enough */
};

/* Local copy of one rank's sequence, for trying ejections. */
typedef struct lane {
  int32_t *node;
  mt_ticks *arrival; /* earliest start by other ranks' data */
  mt_ticks *due;     /* latest start by what other ranks need */
  int32_t count;
} lane;

/* A partial plan that keeps the target: start <= latest everywhere. Free tasks that are not placed count as if
 * each ran on a rank of its own. Sentinels nodes + r and nodes + P + r stand at the ends of rank r's list. */
struct mt_repair {
  const mt_instance *instance;
  const mt_windows *windows;
  mt_ticks target;
  int32_t *rank;           /* [nodes + 2P] NONE: not placed */
  int32_t *before, *after; /* [nodes + 2P] neighbours in the rank's sequence */
  mt_ticks *length;        /* [nodes + 2P] */
  mt_ticks *start, *latest;
  int32_t *queue; /* [nodes + 2P] ring of nodes whose neighbours must be looked at */
  bool *queued;
  int32_t queue_first, queue_count, size;
  int32_t *pool; /* [items] items with a part that is not placed */
  int32_t pool_count;
  bool *pooled; /* [items] */
  int64_t *penalty;
  lane lane;
  mt_random random;
  int64_t work;
};

mt_repair *mt_repair_create(mt_arena *arena, const mt_instance *instance, const mt_windows *windows) {
  mt_repair *s = MT_ARENA_NEW(arena, mt_repair, 1);
  if (s == NULL) return NULL;
  int32_t size = instance->node_count + 2 * instance->ranks, items = instance->item_count;
  *s = (mt_repair){.instance = instance,
                   .windows = windows,
                   .size = size,
                   .rank = MT_ARENA_NEW(arena, int32_t, size),
                   .before = MT_ARENA_NEW(arena, int32_t, size),
                   .after = MT_ARENA_NEW(arena, int32_t, size),
                   .length = MT_ARENA_NEW(arena, mt_ticks, size),
                   .start = MT_ARENA_NEW(arena, mt_ticks, size),
                   .latest = MT_ARENA_NEW(arena, mt_ticks, size),
                   .queue = MT_ARENA_NEW(arena, int32_t, size),
                   .queued = MT_ARENA_NEW(arena, bool, size),
                   .pool = MT_ARENA_NEW(arena, int32_t, items),
                   .pooled = MT_ARENA_NEW(arena, bool, items),
                   .penalty = MT_ARENA_NEW(arena, int64_t, items),
                   .lane = {.node = MT_ARENA_NEW(arena, int32_t, size),
                            .arrival = MT_ARENA_NEW(arena, mt_ticks, size),
                            .due = MT_ARENA_NEW(arena, mt_ticks, size)},
                   .random = mt_random_stream(1, "order.repair")};
  if (s->rank == NULL || s->before == NULL || s->after == NULL || s->length == NULL || s->start == NULL ||
      s->latest == NULL || s->queue == NULL || s->queued == NULL || s->pool == NULL || s->pooled == NULL ||
      s->penalty == NULL || s->lane.node == NULL || s->lane.arrival == NULL || s->lane.due == NULL)
    return NULL;
  return s;
}

/* ---- time windows under insertion and removal ---- */

static mt_ticks lag_between(const mt_repair *s, mt_arc arc, int32_t from, int32_t to) {
  if (arc.lag == 0 || s->rank[from] < 0 || s->rank[to] < 0) return 0;
  return mt_instance_lag(s->instance, arc.lag, s->rank[from], s->rank[to]);
}

static void push(mt_repair *s, int32_t node) {
  if (s->queued[node]) return;
  s->queued[node] = true;
  int32_t at = s->queue_first + s->queue_count++;
  s->queue[at >= s->size ? at - s->size : at] = node;
}

static int32_t pop(mt_repair *s) {
  int32_t node = s->queue[s->queue_first++];
  if (s->queue_first == s->size) s->queue_first = 0;
  s->queue_count--;
  s->queued[node] = false;
  s->work--;
  return node;
}

/* Earliest start by data from other nodes alone. */
static mt_ticks arrival_of(const mt_repair *s, int32_t node) {
  const mt_instance *instance = s->instance;
  mt_ticks ready = 0;
  if (node >= instance->node_count) return 0;
  for (int32_t i = instance->pred_begin[node]; i < instance->pred_begin[node + 1]; i++) {
    mt_arc arc = instance->pred[i];
    mt_ticks at = s->start[arc.node] + s->length[arc.node] + lag_between(s, arc, arc.node, node);
    if (at > ready) ready = at;
  }
  return ready;
}

/* Latest start by what data other nodes need alone. */
static mt_ticks due_of(const mt_repair *s, int32_t node) {
  const mt_instance *instance = s->instance;
  mt_ticks due = s->target - s->length[node];
  if (node >= instance->node_count) return due;
  for (int32_t i = instance->succ_begin[node]; i < instance->succ_begin[node + 1]; i++) {
    mt_arc arc = instance->succ[i];
    mt_ticks at = s->latest[arc.node] - s->length[node] - lag_between(s, arc, node, arc.node);
    if (at < due) due = at;
  }
  return due;
}

static mt_ticks end_of(const mt_repair *s, int32_t node) { return s->start[node] + s->length[node]; }

static void push_arcs(mt_repair *s, const int32_t *begin, const mt_arc *arcs, int32_t node) {
  for (int32_t i = begin[node]; i < begin[node + 1]; i++) push(s, arcs[i].node);
}

/* Recomputes starts behind what is queued until nothing changes. Bounded: stops, with the queue as it is, when a
 * start passes its latest: the target is not kept, or the sequences have closed a cycle. */
static bool settle_starts(mt_repair *s, bool bounded) {
  const mt_instance *instance = s->instance;
  while (s->queue_count > 0) {
    int32_t node = pop(s);
    mt_ticks ready = arrival_of(s, node);
    if (s->before[node] >= 0 && end_of(s, s->before[node]) > ready) ready = end_of(s, s->before[node]);
    if (ready == s->start[node]) continue;
    s->start[node] = ready;
    if (s->after[node] >= 0) push(s, s->after[node]);
    if (node < instance->node_count) push_arcs(s, instance->succ_begin, instance->succ, node);
    if (bounded && ready > s->latest[node]) return false;
  }
  return true;
}

static bool settle_latest(mt_repair *s, bool bounded) {
  const mt_instance *instance = s->instance;
  while (s->queue_count > 0) {
    int32_t node = pop(s);
    mt_ticks due = due_of(s, node);
    if (s->after[node] >= 0 && s->latest[s->after[node]] - s->length[node] < due)
      due = s->latest[s->after[node]] - s->length[node];
    if (due == s->latest[node]) continue;
    s->latest[node] = due;
    if (s->before[node] >= 0) push(s, s->before[node]);
    if (node < instance->node_count) push_arcs(s, instance->pred_begin, instance->pred, node);
    if (bounded && due < s->start[node]) return false;
  }
  return true;
}

static bool settle_both(mt_repair *s, int32_t task, int32_t before, int32_t after, bool bounded) {
  const mt_instance *instance = s->instance;
  push(s, task);
  push(s, after);
  push_arcs(s, instance->succ_begin, instance->succ, task);
  if (!settle_starts(s, bounded)) return false;
  push(s, task);
  push(s, before);
  push_arcs(s, instance->pred_begin, instance->pred, task);
  return settle_latest(s, bounded);
}

static void unlink_task(mt_repair *s, int32_t task) {
  int32_t before = s->before[task], after = s->after[task];
  s->after[before] = after;
  s->before[after] = before;
  s->rank[task] = s->before[task] = s->after[task] = NONE;
  /* What a failed insertion left in the queue belongs to one of the two passes; both may look at it. */
  int32_t left = s->queue_count;
  int32_t *copy = s->lane.node;
  for (int32_t i = 0; i < left; i++) copy[i] = s->queue[(s->queue_first + i) % s->size];
  settle_starts(s, false);
  for (int32_t i = 0; i < left; i++) push(s, copy[i]);
  settle_latest(s, false);
  settle_both(s, task, before, after, false);
}

/* Puts @p task behind @p before. False, with nothing changed, when that would break the target. */
static bool link_task(mt_repair *s, int32_t task, int32_t before) {
  int32_t after = s->after[before];
  s->rank[task] = s->rank[before];
  s->before[task] = before;
  s->after[task] = after;
  s->after[before] = s->before[after] = task;
  if (settle_both(s, task, before, after, true)) return true;
  unlink_task(s, task);
  return false;
}

/* ---- places ---- */

typedef struct spot {
  int32_t before; /* node to stand behind, or NONE */
  mt_ticks waste; /* idle time that becomes useless, as a measure of fit */
  int32_t seen;   /* spots looked at so far */
} spot;

static int32_t begin_of(const mt_repair *s, int32_t rank) { return s->instance->node_count + rank; }

static const mt_item *item_of(const mt_repair *s, int32_t task) {
  return &s->instance->items[s->instance->item_of[task]];
}

static bool is_free(const mt_repair *s, int32_t node) {
  return node >= s->instance->body_count && node < s->instance->node_count;
}

/* Adds the places on @p rank where @p task, not placed now, keeps the target. Tightest or random choice. */
static void scan_rank(mt_repair *s, int32_t task, int32_t rank, bool tightest, spot *chosen) {
  const mt_item *item = item_of(s, task);
  int32_t at = begin_of(s, rank), stop = NONE;
  if (task == item->backward && s->rank[item->forward] == rank) at = item->forward;
  if (task == item->forward && item->backward >= 0 && s->rank[item->backward] == rank) stop = item->backward;
  s->rank[task] = rank; /* for the lags */
  mt_ticks arrival = arrival_of(s, task), due = due_of(s, task), length = s->length[task];
  for (; s->after[at] >= 0 && at != stop; at = s->after[at]) {
    s->work--;
    mt_ticks end = end_of(s, at), begin = end > arrival ? end : arrival;
    if (begin > due) break;
    mt_ticks limit = s->latest[s->after[at]];
    if (begin + length > limit) continue;
    mt_ticks waste = begin - end + (limit < due + length ? limit : due + length) - begin - length;
    chosen->seen++;
    bool take = tightest ? chosen->before == NONE || waste < chosen->waste
                         : mt_random_below(&s->random, (uint64_t)chosen->seen) == 0;
    if (take) {
      chosen->before = at;
      chosen->waste = waste;
    }
  }
  s->rank[task] = NONE;
}

static bool may_own(const mt_repair *s, const mt_item *item, int32_t rank) {
  if (item->fixed_owner >= 0) return item->fixed_owner == rank;
  if (!mt_instance_may_own(s->instance, rank)) return false;
  if (item->backward < 0) return true;
  int32_t other = s->rank[item->forward] >= 0 ? s->rank[item->forward] : s->rank[item->backward];
  return other < 0 || other == rank;
}

static int32_t missing_part(const mt_repair *s, const mt_item *item) {
  if (s->rank[item->forward] < 0) return item->forward;
  return item->backward >= 0 && s->rank[item->backward] < 0 ? item->backward : NONE;
}

/* Ranks where the item's backward would fit as things are now are better places for its forward. */
static bool backward_fits(mt_repair *s, const mt_item *item, int32_t rank) {
  if (item->backward < 0) return true;
  spot any = {.before = NONE};
  scan_rank(s, item->backward, rank, true, &any);
  return any.before != NONE;
}

static bool insert_task(mt_repair *s, int32_t task) {
  const mt_item *item = item_of(s, task);
  bool tightest = mt_random_below(&s->random, 2) == 0;
  spot good = {.before = NONE}, poor = {.before = NONE};
  for (int32_t r = 0; r < s->instance->ranks; r++) {
    if (!may_own(s, item, r)) continue;
    bool fits = task == item->backward || backward_fits(s, item, r);
    scan_rank(s, task, r, tightest, fits ? &good : &poor);
  }
  if (good.before != NONE && link_task(s, task, good.before)) return true;
  return good.before == NONE && poor.before != NONE && link_task(s, task, poor.before);
}

/* Places what of the item is not placed. */
static bool insert_item(mt_repair *s, const mt_item *item) {
  for (int32_t task; (task = missing_part(s, item)) != NONE;)
    if (!insert_task(s, task)) return false;
  return true;
}

static void pool_item(mt_repair *s, int32_t item) {
  if (s->pooled[item]) return;
  s->pooled[item] = true;
  s->pool[s->pool_count++] = item;
}

/* Takes @p task out, and with a forward its backward: that may follow elsewhere. */
static void eject(mt_repair *s, int32_t task) {
  const mt_item *item = item_of(s, task);
  if (task == item->forward && item->backward >= 0 && s->rank[item->backward] >= 0) unlink_task(s, item->backward);
  unlink_task(s, task);
  pool_item(s, s->instance->item_of[task]);
}

/* ---- ejection ---- */

static void load_lane(mt_repair *s, int32_t rank) {
  lane *l = &s->lane;
  l->count = 0;
  for (int32_t node = begin_of(s, rank); node >= 0; node = s->after[node], l->count++) {
    l->node[l->count] = node;
    l->arrival[l->count] = arrival_of(s, node);
    l->due[l->count] = due_of(s, node);
    s->work--;
  }
}

/* Whether a task of @p length that may start in [arrival, due] fits on the lane when position @p out is left out.
 * Other ranks' nodes keep their times, which is on the safe side. */
static bool fits_without(mt_repair *s, int32_t out, mt_ticks arrival, mt_ticks due, mt_ticks length) {
  const lane *l = &s->lane;
  mt_ticks end = end_of(s, l->node[out - 1]);
  for (int32_t i = out + 1; i < l->count; i++) {
    s->work--;
    mt_ticks begin = end > arrival ? end : arrival;
    if (begin > due) break;
    if (begin + length <= s->latest[l->node[i]]) return true;
    mt_ticks start = end > l->arrival[i] ? end : l->arrival[i];
    if (start == s->start[l->node[i]]) break; /* from here on nothing has moved */
    end = start + s->length[l->node[i]];
  }
  mt_ticks latest = s->latest[l->node[out + 1]];
  for (int32_t i = out - 1; i >= 0; i--) {
    s->work--;
    mt_ticks begin = end_of(s, l->node[i]) > arrival ? end_of(s, l->node[i]) : arrival;
    if (begin <= due && begin + length <= latest) return true;
    mt_ticks last = latest - s->length[l->node[i]];
    if (last > l->due[i]) last = l->due[i];
    if (last == s->latest[l->node[i]] || last + s->length[l->node[i]] < arrival) break;
    latest = last;
  }
  return false;
}

typedef struct ejection {
  int32_t rank, task;
  int64_t penalty;
  int32_t seen;
} ejection;

static void find_ejections(mt_repair *s, int32_t task, int32_t rank, ejection *best) {
  int32_t own = s->instance->item_of[task];
  s->rank[task] = rank;
  mt_ticks arrival = arrival_of(s, task), due = due_of(s, task);
  s->rank[task] = NONE;
  load_lane(s, rank);
  for (int32_t i = 1; i + 1 < s->lane.count; i++) {
    int32_t out = s->lane.node[i];
    if (!is_free(s, out) || s->instance->item_of[out] == own) continue;
    int64_t penalty = s->penalty[s->instance->item_of[out]];
    if (best->task != NONE && penalty > best->penalty) continue;
    if (!fits_without(s, i, arrival, due, s->length[task])) continue;
    if (best->task == NONE || penalty < best->penalty) best->seen = 0;
    best->seen++;
    if (mt_random_below(&s->random, (uint64_t)best->seen) != 0) continue;
    *best = (ejection){rank, out, penalty, best->seen};
  }
}

/* One random free task of @p rank other than of item @p own, the less penalised of two draws; or NONE. */
static int32_t draw_task(mt_repair *s, int32_t rank, int32_t own) {
  int32_t first = NONE, seen = 0;
  for (int32_t node = s->after[begin_of(s, rank)]; s->after[node] >= 0; node = s->after[node]) {
    if (!is_free(s, node) || s->instance->item_of[node] == own) continue;
    if (mt_random_below(&s->random, (uint64_t)++seen) == 0) first = node;
  }
  return first;
}

/* Makes room for the missing part of an item that fits nowhere. */
static void make_room(mt_repair *s, int32_t item_number) {
  const mt_item *item = &s->instance->items[item_number];
  int32_t task = missing_part(s, item);
  ejection best = {.task = NONE};
  s->penalty[item_number]++;
  if (task == item->backward && mt_random_below(&s->random, 4) == 0) {
    unlink_task(s, item->forward); /* another owner may be better */
    task = item->forward;
  }
  for (int32_t r = 0; r < s->instance->ranks; r++)
    if (may_own(s, item, r)) find_ejections(s, task, r, &best);
  if (best.task != NONE) {
    eject(s, best.task);
    spot place = {.before = NONE};
    scan_rank(s, task, best.rank, mt_random_below(&s->random, 2) == 0, &place);
    if (place.before != NONE) link_task(s, task, place.before);
    return;
  }
  int32_t rank = (int32_t)mt_random_below(&s->random, (uint64_t)s->instance->ranks);
  for (int32_t r = 0; r < s->instance->ranks && !may_own(s, item, rank); r++)
    rank = (rank + 1) % s->instance->ranks;
  for (int32_t count = 0; count < EJECT_MOST; count++) {
    int32_t out = draw_task(s, rank, item_number);
    if (out == NONE) break;
    eject(s, out);
    spot place = {.before = NONE};
    scan_rank(s, task, rank, true, &place);
    if (place.before != NONE && link_task(s, task, place.before)) break;
  }
}

/* Moves random tasks to other places, so that the search does not go in circles. */
static void shake(mt_repair *s) {
  const mt_instance *instance = s->instance;
  for (int32_t i = 0; i < SHAKES; i++) {
    const mt_item *item = &instance->items[mt_random_below(&s->random, (uint64_t)instance->item_count)];
    bool both = item->backward >= 0 && s->rank[item->backward] >= 0;
    int32_t task = both && mt_random_below(&s->random, 2) == 0 ? item->backward : item->forward;
    if (s->rank[task] < 0) continue;
    int32_t before = s->before[task];
    unlink_task(s, task);
    spot place = {.before = NONE};
    for (int32_t r = 0; r < instance->ranks; r++)
      if (may_own(s, item, r)) scan_rank(s, task, r, false, &place);
    if (place.before == NONE || !link_task(s, task, place.before))
      if (!link_task(s, task, before)) pool_item(s, instance->item_of[task]);
  }
}

/* ---- the search ---- */

static void start_empty(mt_repair *s, const mt_windows *windows, mt_ticks target) {
  const mt_instance *instance = s->instance;
  int32_t nodes = instance->node_count, ranks = instance->ranks;
  s->target = target;
  s->pool_count = s->queue_first = s->queue_count = 0;
  memset(s->queued, 0, (size_t)s->size * sizeof *s->queued);
  memset(s->pooled, 0, (size_t)instance->item_count * sizeof *s->pooled);
  memset(s->penalty, 0, (size_t)instance->item_count * sizeof *s->penalty);
  memset(s->rank, 0xff, (size_t)s->size * sizeof *s->rank);
  memset(s->before, 0xff, (size_t)s->size * sizeof *s->before);
  memset(s->after, 0xff, (size_t)s->size * sizeof *s->after);
  memcpy(s->length, instance->length, (size_t)nodes * sizeof *s->length);
  for (int32_t node = 0; node < nodes; node++) {
    s->start[node] = windows->head[node];
    s->latest[node] = target - windows->tail[node];
  }
  for (int32_t r = 0; r < ranks; r++) {
    int32_t last = nodes + r, end = nodes + ranks + r;
    s->rank[last] = s->rank[end] = r;
    s->start[last] = 0;
    s->latest[last] = target;
    for (int32_t node = instance->body_begin[r]; node < instance->body_begin[r + 1]; node++) {
      s->rank[node] = r;
      s->before[node] = last;
      s->after[last] = node;
      last = node;
    }
    s->before[end] = last;
    s->after[last] = end;
    s->start[end] = end_of(s, last);
    s->latest[end] = target;
    int32_t first = s->after[nodes + r];
    if (first != end) s->latest[nodes + r] = s->latest[first];
  }
}

/* Takes from the seed, in its order, what keeps the target; the rest goes to the pool. */
static void follow(mt_repair *s, const mt_candidate *seed) {
  const mt_instance *instance = s->instance;
  for (int32_t r = 0; r < instance->ranks; r++) {
    int32_t last = begin_of(s, r);
    for (int32_t i = seed->begin[r]; i < seed->begin[r + 1]; i++) {
      int32_t node = seed->sequence[i];
      if (!is_free(s, node)) {
        last = node;
        continue;
      }
      const mt_item *item = item_of(s, node);
      if (node == item->backward && s->rank[item->forward] < 0) continue;
      mt_ticks end = end_of(s, last);
      s->rank[node] = r;
      mt_ticks arrival = arrival_of(s, node), due = due_of(s, node);
      s->rank[node] = NONE;
      mt_ticks begin = end > arrival ? end : arrival;
      if (begin > due || begin + s->length[node] > s->latest[s->after[last]]) continue;
      if (link_task(s, node, last)) last = node;
    }
  }
  for (int32_t i = instance->item_count; i-- > 0;)
    if (missing_part(s, &instance->items[i]) != NONE) pool_item(s, i);
}

static void write_plan(const mt_repair *s, mt_candidate *plan) {
  int32_t at = 0;
  for (int32_t r = 0; r < s->instance->ranks; r++) {
    plan->begin[r] = at;
    for (int32_t node = s->after[begin_of(s, r)]; s->after[node] >= 0; node = s->after[node]) {
      plan->sequence[at++] = node;
      plan->rank[node] = r;
    }
  }
  plan->begin[s->instance->ranks] = at;
}

bool mt_repair_run(mt_repair *s, mt_ticks target, const mt_candidate *seed, int64_t *work, mt_candidate *plan) {
  s->work = *work;
  start_empty(s, s->windows, target);
  follow(s, seed);
  while (s->pool_count > 0 && s->work > 0) {
    int32_t at = mt_random_below(&s->random, 8) == 0 ? (int32_t)mt_random_below(&s->random, (uint64_t)s->pool_count)
                                                     : s->pool_count - 1;
    int32_t item = s->pool[at];
    s->pool[at] = s->pool[--s->pool_count];
    s->pooled[item] = false;
    if (insert_item(s, &s->instance->items[item])) continue;
    make_room(s, item);
    if (missing_part(s, &s->instance->items[item]) != NONE) pool_item(s, item);
    shake(s);
  }
  *work = s->work;
  if (s->pool_count > 0) return false;
  write_plan(s, plan);
  return true;
}
