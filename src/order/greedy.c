/* Deadline-aware construction: time goes forward over all ranks at once; a rank that stands still takes the
 * free task with the earliest deadline that still lets its next body node start in time for the target. */
#include "order/search.h"

#include <stdlib.h>
#include <string.h>

enum { NONE = -1 };
static const mt_ticks FOREVER = INT64_MAX / 2;

/* Released tasks by deadline, then number. List r < P holds what rank r owns, list P what any rank may take. */
typedef struct task_list {
  int32_t first, last;
} task_list;

struct mt_greedy {
  const mt_instance *instance;
  const mt_windows *windows;
  mt_greedy_rule rule;
  task_list *lists;      /* [P + 1] */
  int32_t *list_next;    /* [nodes] */
  int32_t *by_due;       /* [items] items in order of their forwards' deadlines */
  int32_t *owner;        /* [items] */
  int32_t *missing;      /* [nodes] predecessors that have no start yet */
  mt_ticks *start;       /* [nodes] or NONE */
  mt_ticks *free_at;     /* [P] end of the rank's last task */
  int32_t *next;         /* [P] next body node */
  int32_t *chain;        /* [nodes] next task in the rank's sequence */
  int32_t *first, *last; /* [P] ends of the chains */
  bool late;             /* something starts too late for the target */
  int32_t placed;
  bool carried;          /* some item is */
  int32_t open;          /* free tasks without a start */
  mt_ticks *wake;        /* [P] when the rank decides next; the heap's key */
  int32_t *heap, *place; /* [P] ranks by (wake, rank); where a rank stands in it, or NONE: asleep */
  int32_t heap_count;
};

typedef struct by_due_key {
  mt_ticks behind;
  int32_t item;
} by_due_key;

static int compare_due(const void *a, const void *b) {
  const by_due_key *x = a, *y = b;
  if (x->behind != y->behind) return x->behind > y->behind ? -1 : 1;
  return (x->item > y->item) - (x->item < y->item);
}

mt_greedy *mt_greedy_create(mt_arena *arena, const mt_instance *instance, const mt_windows *windows) {
  mt_greedy *g = MT_ARENA_NEW(arena, mt_greedy, 1);
  if (g == NULL) return NULL;
  int32_t nodes = instance->node_count, ranks = instance->ranks, items = instance->item_count;
  *g = (mt_greedy){.instance = instance,
                   .windows = windows,
                   .lists = MT_ARENA_NEW(arena, task_list, ranks + 1),
                   .list_next = MT_ARENA_NEW(arena, int32_t, nodes),
                   .by_due = MT_ARENA_NEW(arena, int32_t, items),
                   .owner = MT_ARENA_NEW(arena, int32_t, items),
                   .missing = MT_ARENA_NEW(arena, int32_t, nodes),
                   .start = MT_ARENA_NEW(arena, mt_ticks, nodes),
                   .free_at = MT_ARENA_NEW(arena, mt_ticks, ranks),
                   .next = MT_ARENA_NEW(arena, int32_t, ranks),
                   .chain = MT_ARENA_NEW(arena, int32_t, nodes),
                   .first = MT_ARENA_NEW(arena, int32_t, ranks),
                   .last = MT_ARENA_NEW(arena, int32_t, ranks),
                   .wake = MT_ARENA_NEW(arena, mt_ticks, ranks),
                   .heap = MT_ARENA_NEW(arena, int32_t, ranks),
                   .place = MT_ARENA_NEW(arena, int32_t, ranks)};
  if (g->lists == NULL || g->list_next == NULL || g->by_due == NULL || g->owner == NULL || g->missing == NULL ||
      g->start == NULL || g->free_at == NULL || g->next == NULL || g->chain == NULL || g->first == NULL ||
      g->last == NULL || g->wake == NULL || g->heap == NULL || g->place == NULL)
    return NULL;
  by_due_key *keys = MT_ARENA_NEW(arena, by_due_key, items);
  if (keys == NULL) return NULL;
  for (int32_t i = 0; i < items; i++) {
    int32_t node = instance->items[i].forward;
    keys[i] = (by_due_key){windows->tail[node] - instance->length[node], i};
  }
  qsort(keys, (size_t)items, sizeof *keys, compare_due);
  for (int32_t i = 0; i < items; i++) g->by_due[i] = keys[i].item;
  return g;
}

/* ---- the ranks that will decide, earliest first ---- */

static bool earlier(const mt_greedy *g, int32_t a, int32_t b) {
  return g->wake[a] != g->wake[b] ? g->wake[a] < g->wake[b] : a < b;
}

static void heap_put(mt_greedy *g, int32_t at, int32_t rank) {
  g->heap[at] = rank;
  g->place[rank] = at;
}

static void heap_up(mt_greedy *g, int32_t at) {
  int32_t rank = g->heap[at];
  while (at > 0 && earlier(g, rank, g->heap[(at - 1) / 2])) {
    heap_put(g, at, g->heap[(at - 1) / 2]);
    at = (at - 1) / 2;
  }
  heap_put(g, at, rank);
}

static int32_t heap_take(mt_greedy *g) {
  int32_t top = g->heap[0], moved = g->heap[--g->heap_count], at = 0;
  g->place[top] = NONE;
  if (g->heap_count == 0) return top;
  for (int32_t child; (child = 2 * at + 1) < g->heap_count; at = child) {
    if (child + 1 < g->heap_count && earlier(g, g->heap[child + 1], g->heap[child])) child++;
    if (!earlier(g, g->heap[child], moved)) break;
    heap_put(g, at, g->heap[child]);
  }
  heap_put(g, at, moved);
  return top;
}

/* Lets @p rank decide at @p time at the latest. */
static void wake_rank(mt_greedy *g, int32_t rank, mt_ticks time) {
  if (time < g->free_at[rank]) time = g->free_at[rank];
  if (g->place[rank] == NONE) {
    g->wake[rank] = time;
    g->heap[g->heap_count] = rank;
    heap_up(g, g->heap_count++);
  } else if (time < g->wake[rank]) {
    g->wake[rank] = time;
    heap_up(g, g->place[rank]);
  }
}

/* ---- released tasks ---- */

/* By the time at which they must end; features so stand in the order of their consumption. */
static bool sooner(const mt_greedy *g, int32_t a, int32_t b) {
  mt_ticks x = g->windows->tail[a] - g->instance->length[a], y = g->windows->tail[b] - g->instance->length[b];
  return x != y ? x > y : a < b;
}

static void list_insert(mt_greedy *g, task_list *list, int32_t task) {
  int32_t previous = NONE, at = list->first;
  if (list->last != NONE && sooner(g, list->last, task)) {
    previous = list->last;
    at = NONE;
  }
  for (; at != NONE && sooner(g, at, task); at = g->list_next[at]) previous = at;
  g->list_next[task] = at;
  if (previous == NONE)
    list->first = task;
  else
    g->list_next[previous] = task;
  if (at == NONE) list->last = task;
}

static void list_remove(mt_greedy *g, task_list *list, int32_t previous, int32_t task) {
  if (previous == NONE)
    list->first = g->list_next[task];
  else
    g->list_next[previous] = g->list_next[task];
  if (list->last == task) list->last = previous;
}

/* When the inputs of @p node, all of which have their starts, are on @p rank. */
static mt_ticks release(const mt_greedy *g, int32_t node, int32_t rank) {
  const mt_instance *instance = g->instance;
  mt_ticks ready = 0;
  for (int32_t i = instance->pred_begin[node]; i < instance->pred_begin[node + 1]; i++) {
    mt_arc arc = instance->pred[i];
    int32_t item = instance->item_of[arc.node];
    int32_t from = item < 0 ? instance->rank[arc.node] : g->owner[item];
    mt_ticks arrival = g->start[arc.node] + instance->length[arc.node];
    if (from != NONE) arrival += mt_instance_lag(instance, arc.lag, from, rank); /* else a carried feature */
    if (arrival > ready) ready = arrival;
  }
  return ready;
}

static bool stands_first(const mt_greedy *g, const mt_item *item, int32_t node) {
  return item->source && node == item->forward && (g->rule.prefix || item->prefix);
}

static void announce(mt_greedy *g, int32_t task) {
  const mt_item *item = &g->instance->items[g->instance->item_of[task]];
  int32_t owner = g->owner[g->instance->item_of[task]];
  list_insert(g, &g->lists[owner == NONE ? g->instance->ranks : owner], task);
  if (item->source && task == item->forward) return; /* there from the begin */
  int32_t first = owner == NONE ? g->instance->owner_first : owner;
  int32_t count = owner == NONE ? g->instance->owner_count : 1;
  for (int32_t r = first; r < first + count; r++) wake_rank(g, r, release(g, task, r));
}

/* ---- placing ---- */

static void place_node(mt_greedy *g, int32_t node, int32_t rank, mt_ticks start) {
  const mt_instance *instance = g->instance;
  if (start > g->rule.target - g->windows->tail[node]) g->late = true;
  g->placed++;
  g->start[node] = start;
  g->free_at[rank] = start + instance->length[node];
  if (g->last[rank] == NONE)
    g->first[rank] = node;
  else
    g->chain[g->last[rank]] = node;
  g->last[rank] = node;
  g->chain[node] = NONE;
  if (node < instance->body_count) {
    g->next[rank]++;
  } else {
    g->owner[instance->item_of[node]] = rank;
    g->open--;
  }
  for (int32_t i = instance->succ_begin[node]; i < instance->succ_begin[node + 1]; i++) {
    int32_t to = instance->succ[i].node;
    if (--g->missing[to] > 0) continue;
    if (to >= instance->body_count)
      announce(g, to);
    else if (g->next[instance->rank[to]] == to && instance->rank[to] != rank)
      wake_rank(g, instance->rank[to], release(g, to, instance->rank[to]));
  }
  wake_rank(g, rank, g->free_at[rank]);
}

/* Whether the forward's end keeps the window. A rank that had waited would start it earlier when the sequence
 * is run, so a windowed forward may only follow its rank's last task directly. */
static bool window_allows(const mt_greedy *g, const mt_item *item, int32_t node, int32_t rank, mt_ticks time) {
  if (node != item->maker || item->window_after < 0) return true;
  mt_ticks consumed = g->start[item->window_after];
  if (consumed < 0 || time != g->free_at[rank]) return false;
  return consumed + g->instance->length[item->window_after] <= time + g->instance->length[node];
}

/* A rank at the moment of its decision. */
typedef struct moment {
  int32_t rank, body; /* its next body node, or NONE */
  mt_ticks time;
  mt_ticks ready;    /* when the body node's inputs are there, if that is known */
  mt_ticks limit[2]; /* latest end of a forward that needs nothing; of any other task */
  mt_ticks later;    /* when the next of the tasks looked at is released */
} moment;

static bool may_start(const mt_greedy *g, const moment *now, const mt_item *item, int32_t task) {
  bool opening = item->source && task == item->forward;
  if (now->time + g->instance->length[task] > now->limit[opening ? 0 : 1]) return false;
  if (!opening && now->body != NONE && (item->prefix || (g->rule.patient && now->ready <= now->time))) return false;
  return window_allows(g, item, task, now->rank, now->time);
}

/* The first task of the list that may start now. */
static int32_t list_find(const mt_greedy *g, const task_list *list, moment *now, int32_t *before) {
  const mt_instance *instance = g->instance;
  int32_t looked = 0;
  *before = NONE;
  for (int32_t task = list->first; task != NONE && looked < g->rule.scan; task = g->list_next[task], looked++) {
    const mt_item *item = &instance->items[instance->item_of[task]];
    mt_ticks from = release(g, task, now->rank);
    if (from > now->time) {
      if (from < now->later) now->later = from;
    } else if (may_start(g, now, item, task)) {
      return task;
    }
    *before = task;
  }
  return NONE;
}

/* Takes from the rank's own list and the common one what has the earlier deadline. */
static bool place_free(mt_greedy *g, moment *now) {
  task_list *own = &g->lists[now->rank], *common = &g->lists[g->instance->ranks];
  int32_t before_own, before_common = NONE;
  int32_t a = list_find(g, own, now, &before_own);
  bool may_own = mt_instance_may_own(g->instance, now->rank);
  int32_t b = may_own ? list_find(g, common, now, &before_common) : NONE;
  if (a == NONE && b == NONE) return false;
  bool take_own = b == NONE || (a != NONE && sooner(g, a, b));
  list_remove(g, take_own ? own : common, take_own ? before_own : before_common, take_own ? a : b);
  place_node(g, take_own ? a : b, now->rank, now->time);
  return true;
}

static void decide(mt_greedy *g, int32_t rank) {
  const mt_instance *instance = g->instance;
  moment now = {.rank = rank,
                .body = g->next[rank] < instance->body_begin[rank + 1] ? g->next[rank] : NONE,
                .time = g->wake[rank],
                .ready = FOREVER,
                .limit = {FOREVER, FOREVER},
                .later = FOREVER};
  if (now.time < g->free_at[rank]) {
    wake_rank(g, rank, g->free_at[rank]);
    return;
  }
  if (now.body != NONE) {
    now.limit[0] = g->rule.encode_target - g->windows->tail[now.body];
    now.limit[1] = g->rule.target - g->windows->tail[now.body];
    if (g->missing[now.body] == 0) now.ready = release(g, now.body, rank);
  }
  if (place_free(g, &now)) return;
  if (now.ready <= now.time)
    place_node(g, now.body, rank, now.time);
  else if (now.ready < FOREVER || now.later < FOREVER)
    wake_rank(g, rank, now.ready < now.later ? now.ready : now.later);
}

/* Everything waits for a free task that fits nowhere: the most urgent one is placed where it ends first. */
static void force(mt_greedy *g) {
  const mt_instance *instance = g->instance;
  int32_t best = NONE, best_list = NONE;
  for (int32_t l = 0; l <= instance->ranks; l++) {
    int32_t task = g->lists[l].first;
    while (task != NONE && instance->items[instance->item_of[task]].prefix) task = g->list_next[task];
    if (task != NONE && (best == NONE || sooner(g, task, best))) {
      best = task;
      best_list = l;
    }
  }
  const mt_item *item = &instance->items[instance->item_of[best]];
  int32_t rank = NONE;
  bool rank_allowed = false;
  mt_ticks rank_start = 0;
  for (int32_t r = 0; r < instance->ranks; r++) {
    if (best_list == instance->ranks ? !mt_instance_may_own(instance, r) : r != best_list) continue;
    mt_ticks start = release(g, best, r);
    if (start < g->free_at[r]) start = g->free_at[r];
    bool allowed = window_allows(g, item, best, r, start);
    if (rank != NONE && (allowed == rank_allowed ? start >= rank_start : rank_allowed)) continue;
    rank = r;
    rank_allowed = allowed;
    rank_start = start;
  }
  int32_t previous = NONE;
  for (int32_t task = g->lists[best_list].first; task != best; task = g->list_next[task]) previous = task;
  list_remove(g, &g->lists[best_list], previous, best);
  place_node(g, best, rank, rank_start);
}

static void reset(mt_greedy *g, const mt_greedy_rule *rule, const int32_t *owner) {
  const mt_instance *instance = g->instance;
  g->rule = *rule;
  g->carried = g->late = false;
  g->placed = 0;
  g->open = instance->node_count - instance->body_count;
  g->heap_count = 0;
  for (int32_t l = 0; l <= instance->ranks; l++) g->lists[l] = (task_list){NONE, NONE};
  for (int32_t r = 0; r < instance->ranks; r++) {
    g->free_at[r] = 0;
    g->next[r] = instance->body_begin[r];
    g->first[r] = g->last[r] = g->place[r] = NONE;
  }
  memset(g->start, 0xff, (size_t)instance->node_count * sizeof *g->start);
  memcpy(g->owner, owner, (size_t)instance->item_count * sizeof *owner);
  for (int32_t node = 0; node < instance->node_count; node++)
    g->missing[node] = instance->pred_begin[node + 1] - instance->pred_begin[node];
}

/* The plan's sequences: what was placed, then what is left of the bodies. */
static void write_plan(const mt_greedy *g, mt_candidate *plan) {
  const mt_instance *instance = g->instance;
  int32_t at = 0;
  for (int32_t r = 0; r < instance->ranks; r++) {
    plan->begin[r] = at;
    for (int32_t i = 0; g->carried && i < instance->item_count; i++)
      if (instance->items[i].carried && g->owner[i] == r) plan->sequence[at++] = instance->items[i].forward;
    for (int32_t node = g->first[r]; node != NONE; node = g->chain[node]) plan->sequence[at++] = node;
    for (int32_t node = g->next[r]; node < instance->body_begin[r + 1]; node++) plan->sequence[at++] = node;
  }
  plan->begin[instance->ranks] = at;
  for (int32_t node = instance->body_count; node < instance->node_count; node++)
    plan->rank[node] = g->owner[instance->item_of[node]];
}

/* A carried item's feature: there from the begin, its place in the plan is its owner's front. */
static void find_done(mt_greedy *g, const mt_item *item) {
  const mt_instance *instance = g->instance;
  g->carried = true;
  g->start[item->forward] = 0;
  g->open--;
  for (int32_t i = instance->succ_begin[item->forward]; i < instance->succ_begin[item->forward + 1]; i++) {
    int32_t to = instance->succ[i].node;
    if (--g->missing[to] == 0 && to >= instance->body_count) announce(g, to);
  }
}

bool mt_greedy_run(mt_greedy *g, const mt_greedy_rule *rule, const int32_t *owner, mt_timeline *timeline,
                   mt_candidate *plan, int64_t *work) {
  const mt_instance *instance = g->instance;
  reset(g, rule, owner);
  for (int32_t i = 0; i < instance->item_count; i++)
    if (instance->items[i].carried) find_done(g, &instance->items[i]);
  for (int32_t i = 0; i < instance->item_count; i++) {
    const mt_item *item = &instance->items[i];
    if (!item->carried && stands_first(g, item, item->forward))
      place_node(g, item->forward, g->owner[i], g->free_at[g->owner[i]]);
  }
  for (int32_t i = 0; i < instance->item_count; i++) {
    const mt_item *item = &instance->items[g->by_due[i]];
    if (item->source && g->start[item->forward] < 0) announce(g, item->forward);
  }
  for (int32_t r = 0; r < instance->ranks; r++) wake_rank(g, r, 0);
  while (g->open > 0 && !(rule->strict && g->late)) {
    if (g->heap_count > 0)
      decide(g, heap_take(g));
    else
      force(g);
  }
  *work -= g->placed + instance->node_count / 8;
  if (g->open > 0) return false;
  write_plan(g, plan);
  return mt_timeline_run(timeline, instance, plan);
}
