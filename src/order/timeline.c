#include "order/instance.h"

#include <string.h>

mt_candidate *mt_candidate_create(mt_arena *arena, const mt_instance *instance) {
  mt_candidate *plan = MT_ARENA_NEW(arena, mt_candidate, 1);
  if (plan == NULL) return NULL;
  plan->rank = MT_ARENA_NEW(arena, int32_t, instance->node_count);
  plan->begin = MT_ARENA_NEW(arena, int32_t, instance->ranks + 1);
  plan->sequence = MT_ARENA_NEW(arena, int32_t, instance->node_count);
  if (plan->rank == NULL || plan->begin == NULL || plan->sequence == NULL) return NULL;
  memcpy(plan->rank, instance->rank, (size_t)instance->node_count * sizeof *plan->rank);
  return plan;
}

void mt_candidate_copy(const mt_instance *instance, mt_candidate *target, const mt_candidate *source) {
  memcpy(target->rank, source->rank, (size_t)instance->node_count * sizeof *target->rank);
  memcpy(target->begin, source->begin, (size_t)(instance->ranks + 1) * sizeof *target->begin);
  memcpy(target->sequence, source->sequence, (size_t)instance->node_count * sizeof *target->sequence);
  target->makespan = source->makespan;
}

mt_timeline *mt_timeline_create(mt_arena *arena, const mt_instance *instance) {
  mt_timeline *timeline = MT_ARENA_NEW(arena, mt_timeline, 1);
  if (timeline == NULL) return NULL;
  timeline->start = MT_ARENA_NEW(arena, mt_ticks, instance->node_count);
  timeline->order = MT_ARENA_NEW(arena, int32_t, instance->node_count);
  timeline->cursor = MT_ARENA_NEW(arena, int32_t, instance->ranks);
  timeline->waiting = MT_ARENA_NEW(arena, int32_t, instance->node_count);
  timeline->chain = MT_ARENA_NEW(arena, int32_t, instance->ranks);
  timeline->stack = MT_ARENA_NEW(arena, int32_t, instance->ranks);
  if (timeline->start == NULL || timeline->order == NULL || timeline->cursor == NULL || timeline->waiting == NULL ||
      timeline->chain == NULL || timeline->stack == NULL)
    return NULL;
  return timeline;
}

/* Start of @p node behind @p ready, or -1 with *missing set when a predecessor has no start yet. */
static mt_ticks earliest_start(const mt_timeline *timeline, const mt_instance *instance, const mt_candidate *plan,
                               int32_t node, mt_ticks ready, int32_t *missing) {
  for (int32_t i = instance->pred_begin[node]; i < instance->pred_begin[node + 1]; i++) {
    mt_arc arc = instance->pred[i];
    mt_ticks start = timeline->start[arc.node];
    if (start < 0) {
      *missing = arc.node;
      return -1;
    }
    mt_ticks arrival = start + instance->length[arc.node] +
                       mt_instance_lag(instance, arc.lag, plan->rank[arc.node], plan->rank[node]);
    if (arrival > ready) ready = arrival;
  }
  return ready;
}

bool mt_timeline_run(mt_timeline *timeline, const mt_instance *instance, mt_candidate *plan) {
  const int32_t ranks = instance->ranks;
  memset(timeline->start, 0xff, (size_t)instance->node_count * sizeof *timeline->start);
  memset(timeline->waiting, 0xff, (size_t)instance->node_count * sizeof *timeline->waiting);
  int32_t depth = 0, placed = 0;
  for (int32_t r = ranks; r-- > 0;) {
    timeline->cursor[r] = plan->begin[r];
    timeline->stack[depth++] = r;
  }
  mt_ticks makespan = 0;
  while (depth > 0) {
    int32_t rank = timeline->stack[--depth];
    int32_t at = timeline->cursor[rank], end = plan->begin[rank + 1];
    mt_ticks ready = 0;
    if (at > plan->begin[rank]) {
      int32_t before = plan->sequence[at - 1];
      ready = timeline->start[before] + instance->length[before];
    }
    for (; at < end; at++) {
      int32_t node = plan->sequence[at], missing = -1;
      mt_ticks start = earliest_start(timeline, instance, plan, node, ready, &missing);
      if (start < 0) {
        timeline->chain[rank] = timeline->waiting[missing];
        timeline->waiting[missing] = rank;
        break;
      }
      timeline->start[node] = start;
      timeline->order[placed++] = node;
      ready = start + instance->length[node];
      for (int32_t waiter = timeline->waiting[node]; waiter >= 0; waiter = timeline->chain[waiter])
        timeline->stack[depth++] = waiter;
    }
    timeline->cursor[rank] = at;
    if (ready > makespan) makespan = ready;
  }
  timeline->scheduled = placed;
  plan->makespan = makespan;
  return placed == instance->node_count;
}

double mt_timeline_seconds(const mt_timeline *timeline, const mt_instance *instance, const mt_candidate *plan,
                           double *start) {
  double makespan = 0.0;
  /* The rank's previous node is known by the sequence; walk the topological order with a cursor a rank. */
  for (int32_t r = 0; r < instance->ranks; r++) timeline->cursor[r] = plan->begin[r];
  for (int32_t i = 0; i < timeline->scheduled; i++) {
    int32_t node = timeline->order[i], rank = plan->rank[node];
    int32_t at = timeline->cursor[rank]++;
    double ready = 0.0;
    if (at > plan->begin[rank]) {
      int32_t before = plan->sequence[at - 1];
      ready = start[before] + instance->seconds[before];
    }
    for (int32_t k = instance->pred_begin[node]; k < instance->pred_begin[node + 1]; k++) {
      mt_arc arc = instance->pred[k];
      int32_t from = plan->rank[arc.node];
      double arrival = start[arc.node] + instance->seconds[arc.node];
      if (from != rank && arc.lag != 0)
        arrival += mt_instance_same_node(instance, from, rank) ? instance->lags[arc.lag].near_seconds
                                                               : instance->lags[arc.lag].far_seconds;
      if (arrival > ready) ready = arrival;
    }
    start[node] = ready;
    if (ready + instance->seconds[node] > makespan) makespan = ready + instance->seconds[node];
  }
  return makespan;
}

bool mt_timeline_keeps_windows(const mt_timeline *timeline, const mt_instance *instance) {
  for (int32_t i = 0; i < instance->item_count; i++) {
    const mt_item *item = &instance->items[i];
    if (item->window_after < 0) continue;
    mt_ticks end = timeline->start[item->maker] + instance->length[item->maker];
    if (end < timeline->start[item->window_after] + instance->length[item->window_after]) return false;
  }
  return true;
}
