#include "order/search.h"

static mt_ticks shortest_lag(const mt_instance *instance, mt_arc arc, int32_t from, int32_t to) {
  if (instance->rank[from] < 0 || instance->rank[to] < 0) return 0;
  return mt_instance_lag(instance, arc.lag, instance->rank[from], instance->rank[to]);
}

/* The body node right before @p node on its rank, or -1. */
static int32_t body_before(const mt_instance *instance, int32_t node) {
  if (node >= instance->body_count || node == instance->body_begin[instance->rank[node]]) return -1;
  return node - 1;
}

static int32_t body_after(const mt_instance *instance, int32_t node) {
  if (node >= instance->body_count || node + 1 == instance->body_begin[instance->rank[node] + 1]) return -1;
  return node + 1;
}

motet_status mt_windows_build(mt_arena *arena, const mt_instance *instance, motet_error *error,
                              mt_windows *windows) {
  int32_t nodes = instance->node_count, placed = 0;
  windows->head = MT_ARENA_NEW(arena, mt_ticks, nodes);
  windows->tail = MT_ARENA_NEW(arena, mt_ticks, nodes);
  windows->order = MT_ARENA_NEW(arena, int32_t, nodes);
  int32_t *missing = MT_ARENA_NEW(arena, int32_t, nodes);
  if (windows->head == NULL || windows->tail == NULL || windows->order == NULL || missing == NULL)
    return mt_error_memory(error, (unsigned long long)nodes * 24, "the order's time windows");
  for (int32_t node = 0; node < nodes; node++) {
    missing[node] = instance->pred_begin[node + 1] - instance->pred_begin[node];
    if (body_before(instance, node) >= 0) missing[node]++;
    if (missing[node] == 0) windows->order[placed++] = node;
  }
  for (int32_t done = 0; done < placed; done++) {
    int32_t node = windows->order[done];
    mt_ticks end = windows->head[node] + instance->length[node];
    for (int32_t i = instance->succ_begin[node]; i < instance->succ_begin[node + 1]; i++) {
      mt_arc arc = instance->succ[i];
      mt_ticks arrival = end + shortest_lag(instance, arc, node, arc.node);
      if (arrival > windows->head[arc.node]) windows->head[arc.node] = arrival;
      if (--missing[arc.node] == 0) windows->order[placed++] = arc.node;
    }
    int32_t after = body_after(instance, node);
    if (after < 0) continue;
    if (end > windows->head[after]) windows->head[after] = end;
    if (--missing[after] == 0) windows->order[placed++] = after;
  }
  if (placed != nodes)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT,
                        "the body's events wait for one another in a cycle: only %d of %d can run in their order",
                        placed, nodes);
  windows->critical = 0;
  for (int32_t done = nodes; done-- > 0;) {
    int32_t node = windows->order[done];
    mt_ticks behind = 0;
    for (int32_t i = instance->succ_begin[node]; i < instance->succ_begin[node + 1]; i++) {
      mt_arc arc = instance->succ[i];
      mt_ticks way = windows->tail[arc.node] + shortest_lag(instance, arc, node, arc.node);
      if (way > behind) behind = way;
    }
    int32_t after = body_after(instance, node);
    if (after >= 0 && windows->tail[after] > behind) behind = windows->tail[after];
    windows->tail[node] = behind + instance->length[node];
    if (windows->head[node] + windows->tail[node] > windows->critical)
      windows->critical = windows->head[node] + windows->tail[node];
  }
  return MOTET_OK;
}
