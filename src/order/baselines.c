/* Plans that need no search: they are what the search must not be worse than. */
#include "order/search.h"

#include <stdlib.h>
#include <string.h>

typedef struct load_key {
  mt_ticks length;
  int32_t item;
} load_key;

static int compare_longest(const void *a, const void *b) {
  const load_key *x = a, *y = b;
  if (x->length != y->length) return x->length > y->length ? -1 : 1;
  return (x->item > y->item) - (x->item < y->item);
}

bool mt_owners_balance(mt_arena *arena, const mt_instance *instance, int32_t *owner) {
  load_key *keys = MT_ARENA_NEW(arena, load_key, instance->item_count);
  mt_ticks *load = MT_ARENA_NEW(arena, mt_ticks, instance->ranks);
  if (keys == NULL || load == NULL) return false;
  for (int32_t i = 0; i < instance->item_count; i++)
    keys[i] = (load_key){instance->length[instance->items[i].maker], i};
  qsort(keys, (size_t)instance->item_count, sizeof *keys, compare_longest);
  for (int32_t k = 0; k < instance->item_count; k++) {
    int32_t item = keys[k].item, rank = instance->items[item].fixed_owner;
    for (int32_t r = 0; r < instance->ranks && instance->items[item].fixed_owner < 0; r++)
      if (mt_instance_may_own(instance, r) && (rank < 0 || load[r] < load[rank])) rank = r;
    owner[item] = rank;
    load[rank] += keys[k].length;
  }
  return true;
}

/* Where a node goes in the inline plan: before (2k) or behind (2k + 1) body node k. */
static int64_t inline_place(const mt_instance *instance, int32_t node) {
  int32_t before = -1, behind = -1;
  for (int32_t i = instance->succ_begin[node]; i < instance->succ_begin[node + 1]; i++) {
    int32_t to = instance->succ[i].node;
    if (to < instance->body_count && (before < 0 || to < before)) before = to;
  }
  if (before >= 0) return 2 * (int64_t)before;
  for (int32_t i = instance->pred_begin[node]; i < instance->pred_begin[node + 1]; i++) {
    int32_t from = instance->pred[i].node;
    if (from < instance->body_count && from > behind) behind = from;
  }
  return behind < 0 ? -1 : 2 * (int64_t)behind + 1;
}

typedef struct inline_key {
  int64_t place;
  int32_t node;
} inline_key;

static int compare_place(const void *a, const void *b) {
  const inline_key *x = a, *y = b;
  if (x->place != y->place) return x->place < y->place ? -1 : 1;
  return (x->node > y->node) - (x->node < y->node);
}

bool mt_candidate_inline(mt_arena *arena, const mt_instance *instance, mt_timeline *timeline, mt_candidate *plan) {
  int32_t count = 0;
  inline_key *keys = MT_ARENA_NEW(arena, inline_key, instance->node_count);
  if (keys == NULL) return false;
  for (int32_t i = 0; i < instance->item_count; i++) {
    const mt_item *item = &instance->items[i];
    int64_t place = inline_place(instance, item->forward);
    if (place < 0) place = 2 * (int64_t)instance->body_count; /* feeds nothing: behind the last rank's body */
    int64_t place_back = item->backward < 0 ? place : inline_place(instance, item->backward);
    if (place_back < place) place_back = place;
    keys[count++] = (inline_key){place, item->forward};
    if (item->backward >= 0) keys[count++] = (inline_key){place_back, item->backward};
  }
  qsort(keys, (size_t)count, sizeof *keys, compare_place);
  int32_t at = 0, key = 0;
  for (int32_t r = 0; r < instance->ranks; r++) {
    plan->begin[r] = at;
    int32_t end = instance->body_begin[r + 1];
    for (int32_t node = instance->body_begin[r]; node <= end; node++) {
      for (; key < count && keys[key].place <= 2 * (int64_t)node + (node < end ? 0 : -1); key++) {
        plan->sequence[at++] = keys[key].node;
        plan->rank[keys[key].node] = r;
      }
      if (node < end) plan->sequence[at++] = node;
    }
  }
  for (; key < count; key++) {
    plan->sequence[at++] = keys[key].node;
    plan->rank[keys[key].node] = instance->ranks - 1;
  }
  plan->begin[instance->ranks] = at;
  /* Forward and backward of an item must be on one rank; and the plan must run. */
  for (int32_t i = 0; i < instance->item_count; i++) {
    const mt_item *item = &instance->items[i];
    if (item->backward >= 0 && plan->rank[item->forward] != plan->rank[item->backward]) return false;
    if (item->fixed_owner >= 0 && plan->rank[item->forward] != item->fixed_owner) return false;
    if (!mt_instance_may_own(instance, plan->rank[item->forward])) return false;
  }
  return mt_timeline_run(timeline, instance, plan);
}
