/* Lower bounds by refutation. For a makespan T every body node has a window [earliest, latest] for its start; when
 * the ranks' idle time between the windows cannot hold the free tasks, there is no plan of T. What holds for
 * tasks that must end before a body node starts holds, seen from the end, for tasks that follow one. */
#include "order/bound.h"

#include <stdlib.h>
#include <string.h>

enum {
  CLASSES_MOST = 6, /* size classes looked at */
  ROUNDS = 4,       /* of tightening windows by what the ranks can have finished */
  JOINT_MOST = 64,  /* items a rank in a joint table */
};
static const int64_t TABLE_MOST = 400000; /* cells of the exact tables for one T; beyond: areas alone */
static const mt_ticks NEVER = INT64_MAX / 4;

typedef struct side_task {
  mt_ticks due, length;
  int32_t node, gate, owner;
} side_task;

/* Half of the problem. Forward: tasks that need nothing, with the body nodes that wait for them (gates). Reversed:
 * tasks that nothing waits for, with the body nodes they follow; time is counted from T back. */
typedef struct side {
  bool reversed;
  int32_t count;
  side_task *tasks; /* [count] by due */
} side;

typedef struct prover {
  const mt_instance *instance;
  const mt_windows *windows;
  mt_ticks target;
  mt_ticks *earliest, *latest; /* [nodes] starts in any plan of the target */
  side sides[2];
  mt_ticks *body_work;                 /* [P] */
  mt_ticks *row;                       /* [most + 2] */
  mt_ticks *table;                     /* [(joint_most + 2)^2] */
  mt_ticks *complete;                  /* [as many as the ranks can hold at the upper bound] */
  mt_ticks *joint_due, *joint_release; /* [items] */
  int32_t *cursor;                     /* [P] */
  mt_ticks *passed;                    /* [P] */
  int32_t most, joint_most;
  bool pools_free, pools_fixed;
  mt_ticks classes[CLASSES_MOST];
  int32_t class_count;
  int64_t *work;
} prover;

static int compare_ticks(const void *a, const void *b) {
  mt_ticks x = *(const mt_ticks *)a, y = *(const mt_ticks *)b;
  return (x > y) - (x < y);
}

static int compare_tasks(const void *a, const void *b) {
  const side_task *x = a, *y = b;
  if (x->due != y->due) return x->due < y->due ? -1 : 1;
  return (x->node > y->node) - (x->node < y->node);
}

/* ---- a rank's body as a side sees it ---- */

static int32_t body_count(const prover *p, int32_t rank) {
  return p->instance->body_begin[rank + 1] - p->instance->body_begin[rank];
}

static int32_t body_node(const prover *p, const side *s, int32_t rank, int32_t i) {
  return s->reversed ? p->instance->body_begin[rank + 1] - 1 - i : p->instance->body_begin[rank] + i;
}

static mt_ticks side_earliest(const prover *p, const side *s, int32_t node) {
  return s->reversed ? p->target - p->latest[node] - p->instance->length[node] : p->earliest[node];
}

static mt_ticks side_latest(const prover *p, const side *s, int32_t node) {
  return s->reversed ? p->target - p->earliest[node] - p->instance->length[node] : p->latest[node];
}

/* ---- windows ---- */

static void open_windows(prover *p) {
  for (int32_t node = 0; node < p->instance->node_count; node++) {
    p->earliest[node] = p->windows->head[node];
    p->latest[node] = p->target - p->windows->tail[node];
  }
}

static mt_ticks arc_lag(const mt_instance *instance, mt_arc arc, int32_t from, int32_t to) {
  if (instance->rank[from] < 0 || instance->rank[to] < 0) return 0;
  return mt_instance_lag(instance, arc.lag, instance->rank[from], instance->rank[to]);
}

/* Passes tightened windows on along all dependencies. False: some window is empty. */
static bool spread_windows(prover *p) {
  const mt_instance *instance = p->instance;
  *p->work -= 2 * (int64_t)instance->node_count;
  for (int32_t k = 0; k < instance->node_count; k++) {
    int32_t node = p->windows->order[k];
    mt_ticks start = p->earliest[node];
    for (int32_t i = instance->pred_begin[node]; i < instance->pred_begin[node + 1]; i++) {
      mt_arc arc = instance->pred[i];
      mt_ticks at = p->earliest[arc.node] + instance->length[arc.node] + arc_lag(instance, arc, arc.node, node);
      if (at > start) start = at;
    }
    if (node < instance->body_count && node > instance->body_begin[instance->rank[node]] &&
        p->earliest[node - 1] + instance->length[node - 1] > start)
      start = p->earliest[node - 1] + instance->length[node - 1];
    p->earliest[node] = start;
  }
  for (int32_t k = instance->node_count; k-- > 0;) {
    int32_t node = p->windows->order[k];
    mt_ticks start = p->latest[node];
    for (int32_t i = instance->succ_begin[node]; i < instance->succ_begin[node + 1]; i++) {
      mt_arc arc = instance->succ[i];
      mt_ticks at = p->latest[arc.node] - instance->length[node] - arc_lag(instance, arc, node, arc.node);
      if (at < start) start = at;
    }
    if (node < instance->body_count && node + 1 < instance->body_begin[instance->rank[node] + 1] &&
        p->latest[node + 1] - instance->length[node] < start)
      start = p->latest[node + 1] - instance->length[node];
    p->latest[node] = start;
    if (start < p->earliest[node]) return false;
  }
  return true;
}

static void set_dues(prover *p, side *s) {
  for (int32_t i = 0; i < s->count; i++) s->tasks[i].due = side_latest(p, s, s->tasks[i].node) + s->tasks[i].length;
  qsort(s->tasks, (size_t)s->count, sizeof *s->tasks, compare_tasks);
}

/* ---- areas ---- */

/* Time before @p due that rank @p rank's body must leave free, at most: all but what its latest starts force into
 * it. Calls with ascending due continue from the rank's cursor. */
static mt_ticks free_before(prover *p, const side *s, int32_t rank, mt_ticks due) {
  int32_t count = body_count(p, rank), at = p->cursor[rank];
  while (at < count) {
    int32_t node = body_node(p, s, rank, at);
    if (side_latest(p, s, node) + p->instance->length[node] > due) break;
    p->passed[rank] += p->instance->length[node];
    at++;
  }
  p->cursor[rank] = at;
  mt_ticks forced = p->passed[rank];
  if (at < count) {
    mt_ticks inside = due - side_latest(p, s, body_node(p, s, rank, at));
    if (inside > 0) forced += inside;
  }
  return due - forced;
}

/* Whether the tasks of one pool (one owner's, or, with owner -1, those that any rank may take) overfill the idle
 * time before some due time, by area or by number of tasks of a class. */
static bool areas_refute(prover *p, const side *s, int32_t owner) {
  const int32_t first = owner < 0 ? 0 : owner, end = owner < 0 ? p->instance->ranks : owner + 1;
  mt_ticks area = 0;
  int32_t number[CLASSES_MOST] = {0};
  bool any = false;
  for (int32_t r = first; r < end; r++) p->cursor[r] = 0, p->passed[r] = 0;
  for (int32_t i = 0; i < s->count; i++) {
    const side_task *task = &s->tasks[i];
    if (task->owner == owner) {
      any = true;
      area += task->length;
      for (int32_t c = 0; c < p->class_count; c++) number[c] += task->length >= p->classes[c];
    }
    if (!any || (i + 1 < s->count && s->tasks[i + 1].due == task->due)) continue;
    mt_ticks room = 0, places[CLASSES_MOST] = {0};
    for (int32_t r = first; r < end; r++) {
      mt_ticks idle = free_before(p, s, r, task->due);
      if (idle <= 0) continue;
      room += idle;
      for (int32_t c = 0; c < p->class_count; c++) places[c] += idle / p->classes[c];
    }
    *p->work -= end - first;
    if (area > room) return true;
    for (int32_t c = 0; c < p->class_count; c++)
      if (number[c] > places[c]) return true;
  }
  return false;
}

/* All free work against all idle time. */
static bool total_refutes(const prover *p) {
  mt_ticks room = 0;
  for (int32_t r = 0; r < p->instance->ranks; r++) room += p->target - p->body_work[r];
  for (int32_t node = p->instance->body_count; node < p->instance->node_count; node++)
    room -= p->instance->length[node];
  return room < 0;
}

/* ---- exact tables: what one rank can hold, its body nodes anywhere in their windows ---- */

static int32_t tasks_most(const prover *p, int32_t rank, mt_ticks length) {
  mt_ticks most = (p->target - p->body_work[rank]) / length;
  return most < p->most ? (int32_t)most : p->most;
}

/* Appends to complete[] the earliest completions of a 1st, 2nd, ... task of @p length on the rank. */
static int32_t rank_completions(prover *p, const side *s, int32_t rank, mt_ticks length, int32_t found) {
  const mt_instance *instance = p->instance;
  int32_t count = body_count(p, rank), most = tasks_most(p, rank, length);
  mt_ticks *row = p->row, *complete = p->complete + found;
  for (int32_t a = 0; a <= most; a++) row[a] = NEVER;
  for (int32_t a = 0; a < most; a++) complete[a] = NEVER;
  row[0] = 0;
  for (int32_t i = 0; i <= count; i++) {
    int32_t node = i < count ? body_node(p, s, rank, i) : -1;
    mt_ticks limit = i < count ? side_latest(p, s, node) : p->target;
    for (int32_t a = 0; a < most; a++) {
      mt_ticks end = row[a] + length;
      if (end > limit) continue;
      if (end < row[a + 1]) row[a + 1] = end;
      if (end < complete[a]) complete[a] = end;
    }
    if (i == count) break;
    mt_ticks open = side_earliest(p, s, node);
    for (int32_t a = 0; a <= most; a++) {
      mt_ticks start = row[a] > open ? row[a] : open;
      row[a] = start > limit ? NEVER : start + instance->length[node];
    }
  }
  *p->work -= (int64_t)count * (most + 1);
  while (most > 0 && complete[most - 1] >= NEVER) most--;
  return found + most;
}

static int64_t table_cells(const prover *p, mt_ticks length) {
  int64_t cells = 0;
  for (int32_t r = 0; r < p->instance->ranks; r++)
    cells += (int64_t)body_count(p, r) * (tasks_most(p, r, length) + 1);
  return cells;
}

/* A gate cannot start before as many tasks are complete as it and the gates before it on its rank wait for. */
static void tighten_gates(prover *p, const side *s, int32_t owner, mt_ticks length, int32_t found) {
  for (int32_t i = 0; i < s->count; i++) {
    int32_t gate = s->tasks[i].gate, needed = 0;
    if (gate < 0 || s->tasks[i].owner != owner || s->tasks[i].length < length) continue;
    for (int32_t j = 0; j < s->count; j++) {
      int32_t other = s->tasks[j].gate;
      if (other < 0 || s->tasks[j].owner != owner || s->tasks[j].length < length) continue;
      if (p->instance->rank[other] != p->instance->rank[gate]) continue;
      needed += s->reversed ? other >= gate : other <= gate;
    }
    mt_ticks at = needed <= found ? p->complete[needed - 1] : NEVER;
    if (!s->reversed && at > p->earliest[gate]) p->earliest[gate] = at;
    mt_ticks latest = p->target - at - p->instance->length[gate];
    if (s->reversed && latest < p->latest[gate]) p->latest[gate] = latest;
  }
  *p->work -= (int64_t)s->count * s->count / 8;
}

/* The j-th task to be due cannot end before the j-th completion. */
static bool completions_refute(prover *p, const side *s, int32_t owner, mt_ticks length) {
  int32_t found = 0;
  for (int32_t r = 0; r < p->instance->ranks; r++)
    if (owner < 0 || r == owner) found = rank_completions(p, s, r, length, found);
  qsort(p->complete, (size_t)found, sizeof *p->complete, compare_ticks);
  int32_t number = 0;
  for (int32_t i = 0; i < s->count; i++) {
    if (s->tasks[i].owner != owner || s->tasks[i].length < length) continue;
    if (number >= found || p->complete[number] > s->tasks[i].due) return true;
    number++;
  }
  tighten_gates(p, s, owner, length, found);
  return false;
}

/* ---- exact tables with both halves: encodes before, backwards behind ---- */

/* Whether rank @p rank can hold @p k items: forwards of @p length, the j-th last of them ending by the j-th last
 * due time, backwards of @p back, the j-th not starting before the j-th release. */
static bool joint_holds(prover *p, int32_t rank, int32_t k, mt_ticks length, mt_ticks back, int32_t count) {
  const mt_instance *instance = p->instance;
  const mt_ticks *due = p->joint_due + count - k, *release = p->joint_release;
  mt_ticks *table = p->table;
  int32_t width = k + 1, nodes = body_count(p, rank);
  for (int32_t i = 0; i < width * width; i++) table[i] = NEVER;
  table[0] = 0;
  for (int32_t i = 0; i <= nodes; i++) {
    int32_t node = instance->body_begin[rank] + i;
    mt_ticks limit = i < nodes ? p->latest[node] : p->target;
    for (int32_t a = 0; a <= k; a++)
      for (int32_t c = 0; c <= a; c++) {
        mt_ticks now = table[a * width + c];
        if (now > limit) continue;
        if (a < k && now + length <= limit && now + length <= due[a] && now + length < table[(a + 1) * width + c])
          table[(a + 1) * width + c] = now + length;
        mt_ticks end = (c < k && now < release[c] ? release[c] : now) + back;
        if (c < a && end <= limit && end < table[a * width + c + 1]) table[a * width + c + 1] = end;
      }
    if (i == nodes) break;
    for (int32_t cell = 0; cell < width * width; cell++) {
      mt_ticks start = table[cell] > p->earliest[node] ? table[cell] : p->earliest[node];
      table[cell] = start > limit ? NEVER : start + instance->length[node];
    }
  }
  *p->work -= (int64_t)nodes * width * width / 2;
  return table[k * width + k] <= p->target;
}

static int32_t collect_dues(const prover *p, const side *s, int32_t owner, mt_ticks length, mt_ticks *due) {
  int32_t count = 0;
  for (int32_t i = 0; i < s->count; i++) {
    const mt_item *item = &p->instance->items[p->instance->item_of[s->tasks[i].node]];
    if (s->tasks[i].owner != owner || !item->source || item->backward < 0) continue;
    if (p->instance->length[item->forward] >= length) due[count++] = s->tasks[i].due;
  }
  return count;
}

/* The items that the ranks can hold are fewer than there are. */
static bool joint_refutes(prover *p, int32_t owner, mt_ticks length) {
  int32_t count = collect_dues(p, &p->sides[0], owner, length, p->joint_due);
  if (count == 0 || collect_dues(p, &p->sides[1], owner, length, p->joint_release) != count) return false;
  mt_ticks back = NEVER;
  for (int32_t i = 0; i < count / 2; i++) {
    mt_ticks swap = p->joint_release[i];
    p->joint_release[i] = p->joint_release[count - 1 - i];
    p->joint_release[count - 1 - i] = swap;
  }
  for (int32_t i = 0; i < count; i++) p->joint_release[i] = p->target - p->joint_release[i];
  for (int32_t i = 0; i < p->instance->item_count; i++) {
    const mt_item *item = &p->instance->items[i];
    if (item->source && item->backward >= 0 && p->instance->length[item->forward] >= length &&
        p->instance->length[item->backward] < back)
      back = p->instance->length[item->backward];
  }
  int32_t held = 0;
  for (int32_t r = 0; r < p->instance->ranks && held < count; r++) {
    if (owner >= 0 && r != owner) continue;
    mt_ticks most = (p->target - p->body_work[r]) / (length + back);
    int32_t k = most < count ? (int32_t)most : count;
    if (k > p->joint_most) return false; /* too large a table: leave it */
    while (k > 0 && !joint_holds(p, r, k, length, back, count)) k--;
    held += k;
  }
  return held < count;
}

/* ---- the whole test ---- */

static bool owner_refutes(prover *p, int32_t owner, bool tables) {
  for (int32_t k = 0; k < 2; k++) {
    if (areas_refute(p, &p->sides[k], owner)) return true;
    for (int32_t c = 0; c < p->class_count; c++)
      if (tables && table_cells(p, p->classes[c]) <= TABLE_MOST &&
          completions_refute(p, &p->sides[k], owner, p->classes[c]))
        return true;
  }
  return false;
}

static bool refutes(prover *p, mt_ticks target, bool tables) {
  p->target = target;
  if (total_refutes(p)) return true;
  open_windows(p);
  int32_t rounds = tables ? ROUNDS : 1;
  for (int32_t round = 0; round < rounds; round++) {
    for (int32_t k = 0; k < 2; k++) set_dues(p, &p->sides[k]);
    if (p->pools_free && owner_refutes(p, -1, tables)) return true;
    for (int32_t r = 0; p->pools_fixed && r < p->instance->ranks; r++)
      if (owner_refutes(p, r, tables)) return true;
    if (tables && !spread_windows(p)) return true;
  }
  if (!tables) return false;
  for (int32_t k = 0; k < 2; k++) set_dues(p, &p->sides[k]);
  for (int32_t c = 0; c < p->class_count; c++) {
    if (p->pools_free && joint_refutes(p, -1, p->classes[c])) return true;
    for (int32_t r = 0; p->pools_fixed && r < p->instance->ranks; r++)
      if (joint_refutes(p, r, p->classes[c])) return true;
  }
  return false;
}

/* A task belongs to a side when nothing but body nodes depends on its place there. */
static void add_task(prover *p, side *s, int32_t node) {
  const mt_instance *instance = p->instance;
  const mt_item *item = &instance->items[instance->item_of[node]];
  int32_t gate = -1;
  const int32_t *begin = s->reversed ? instance->pred_begin : instance->succ_begin;
  const mt_arc *arcs = s->reversed ? instance->pred : instance->succ;
  for (int32_t i = begin[node]; i < begin[node + 1]; i++) {
    int32_t other = arcs[i].node;
    if (other >= instance->body_count) continue;
    if (gate < 0 || (s->reversed ? other > gate : other < gate)) gate = other;
  }
  s->tasks[s->count++] =
      (side_task){.node = node, .length = instance->length[node], .gate = gate, .owner = item->fixed_owner};
}

static int compare_longer(const void *a, const void *b) { return compare_ticks(b, a); }

/* Sizes that split the tasks of both sides evenly by number; the smallest and the largest always. */
static bool choose_classes(mt_arena *arena, prover *p) {
  int32_t count = 0, all = p->sides[0].count + p->sides[1].count;
  mt_ticks *sizes = MT_ARENA_NEW(arena, mt_ticks, all);
  if (sizes == NULL) return false;
  for (int32_t k = 0; k < 2; k++)
    for (int32_t i = 0; i < p->sides[k].count; i++)
      if (p->sides[k].tasks[i].length > 0) sizes[count++] = p->sides[k].tasks[i].length;
  qsort(sizes, (size_t)count, sizeof *sizes, compare_longer);
  int32_t distinct = 0;
  for (int32_t i = 0; i < count; i++)
    if (distinct == 0 || sizes[i] != sizes[distinct - 1]) sizes[distinct++] = sizes[i];
  p->class_count = distinct < CLASSES_MOST ? distinct : CLASSES_MOST;
  for (int32_t c = 0; c < p->class_count; c++)
    p->classes[c] = sizes[p->class_count == 1 ? 0 : (int64_t)c * (distinct - 1) / (p->class_count - 1)];
  return true;
}

static bool prover_create(mt_arena *arena, prover *p, mt_ticks upper) {
  const mt_instance *instance = p->instance;
  int32_t nodes = instance->node_count, items = instance->item_count, ranks = instance->ranks;
  p->earliest = MT_ARENA_NEW(arena, mt_ticks, nodes);
  p->latest = MT_ARENA_NEW(arena, mt_ticks, nodes);
  p->body_work = MT_ARENA_NEW(arena, mt_ticks, ranks);
  p->cursor = MT_ARENA_NEW(arena, int32_t, ranks);
  p->passed = MT_ARENA_NEW(arena, mt_ticks, ranks);
  p->sides[0].tasks = MT_ARENA_NEW(arena, side_task, items);
  p->sides[1].tasks = MT_ARENA_NEW(arena, side_task, items);
  p->joint_due = MT_ARENA_NEW(arena, mt_ticks, items);
  p->joint_release = MT_ARENA_NEW(arena, mt_ticks, items);
  if (p->earliest == NULL || p->latest == NULL || p->body_work == NULL || p->cursor == NULL || p->passed == NULL ||
      p->sides[0].tasks == NULL || p->sides[1].tasks == NULL || p->joint_due == NULL || p->joint_release == NULL)
    return false;
  p->sides[1].reversed = true;
  for (int32_t r = 0; r < ranks; r++)
    for (int32_t node = instance->body_begin[r]; node < instance->body_begin[r + 1]; node++)
      p->body_work[r] += instance->length[node];
  for (int32_t i = 0; i < items; i++) {
    const mt_item *item = &instance->items[i];
    if (item->fixed_owner < 0)
      p->pools_free = true;
    else
      p->pools_fixed = true;
    if (item->source) add_task(p, &p->sides[0], item->forward);
    int32_t last = item->backward >= 0 ? item->backward : item->forward;
    if (last != item->forward && instance->succ_begin[last] == instance->succ_begin[last + 1])
      add_task(p, &p->sides[1], last);
  }
  if (!choose_classes(arena, p)) return false;
  p->most = items;
  p->target = upper;
  int64_t completions = 0;
  for (int32_t r = 0; r < ranks && p->class_count > 0; r++)
    completions += tasks_most(p, r, p->classes[p->class_count - 1]);
  p->joint_most = items < JOINT_MOST ? items : JOINT_MOST;
  p->row = MT_ARENA_NEW(arena, mt_ticks, items + 2);
  p->complete = MT_ARENA_NEW(arena, mt_ticks, completions + 1);
  p->table = MT_ARENA_NEW(arena, mt_ticks, (p->joint_most + 1) * (p->joint_most + 1));
  return p->row != NULL && p->complete != NULL && p->table != NULL;
}

bool mt_bound_find(mt_arena *arena, const mt_instance *instance, const mt_windows *windows, mt_ticks upper,
                   int64_t *work, mt_ticks *bound) {
  prover p = {.instance = instance, .windows = windows, .work = work};
  if (!prover_create(arena, &p, upper)) return false;
  mt_ticks low = windows->critical;
  /* The cheap tests first: they leave a short range to the tables. */
  for (int32_t tables = 0; tables < 2; tables++) {
    mt_ticks high = upper, grain = instance->exact ? 0 : upper / 10000000;
    if (tables == 1 && (p.class_count == 0 || table_cells(&p, p.classes[0]) > TABLE_MOST)) break;
    for (mt_ticks target = low; low + grain<high && * work> 0; target = low + (high - low) / 2) {
      if (refutes(&p, target, tables == 1))
        low = target + 1;
      else
        high = target;
    }
  }
  *bound = low;
  return true;
}
