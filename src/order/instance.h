/** @file
 * The ordering problem by itself: body nodes in fixed per-rank sequences, free nodes (the transposed regions'
 * work) that may go to any rank and place, dependencies between them. Times are whole ticks, so that sums are
 * exact and ties are ties. See docs/order.md.
 */
#ifndef MT_ORDER_INSTANCE_H
#define MT_ORDER_INSTANCE_H

#include "order/order.h"

typedef int64_t mt_ticks;

/** One end of a dependency as its other end sees it. */
typedef struct mt_arc {
  int32_t node;
  int32_t lag; /* in lags[]; 0: none */
} mt_arc;

/** Time of a transfer, by where its ends are; between places on one rank it is nothing. */
typedef struct mt_lag {
  mt_ticks near, far; /* inside a node of the cluster, between nodes */
  double near_seconds, far_seconds;
} mt_lag;

/**
 * The transposed work of one (replicated stage, run of microbatches): its nodes share an owner.
 *
 * Order `ahead`: a carried item's feature lies on its owner from the begin. Its forward is then a node that takes
 * no time and is not part of the order; in the steady state its second node, `backward`, is the forward of the
 * next step's microbatch.
 */
typedef struct mt_item {
  int32_t stage, microbatch; /* the first of the run */
  int32_t turn;              /* in which runs are dealt out */
  int32_t region;
  int32_t forward;      /* node */
  int32_t backward;     /* node, or -1 */
  int32_t fixed_owner;  /* rank, or -1: free */
  int32_t maker;        /* node whose end makes the feature alive: the last of its nodes that is a forward */
  int32_t window_after; /* body node; the maker must not end before it does: keeps the window; -1: none */
  bool carried;
  bool prefix; /* its forward stands before the owner's body, its backward behind it */
  bool source; /* its forward needs nothing */
} mt_item;

typedef struct mt_instance {
  int32_t ranks;
  int32_t owner_first, owner_count; /* the ranks that may own items: all but dedicated ones */
  int32_t body_count, node_count;   /* free nodes are body_count .. node_count - 1 */
  int32_t item_count;
  int32_t *body_begin; /* [P + 1] nodes body_begin[r] .. body_begin[r + 1] - 1 are rank r's, in order */
  int32_t *rank;       /* [nodes] of body nodes; -1: free */
  int32_t *item_of;    /* [nodes] -1: body */
  mt_event *event;     /* [nodes] of the node's first microbatch */
  int32_t *part_begin; /* [nodes + 1] a node's microbatches: parts[part_begin[node] .. part_begin[node + 1]) */
  int32_t *parts;
  mt_ticks *length;                 /* [nodes] */
  double *seconds;                  /* [nodes] */
  int32_t *pred_begin, *succ_begin; /* [nodes + 1] */
  mt_arc *pred, *succ;
  mt_lag *lags;
  int32_t lag_count;
  mt_item *items; /* [items] by stage, then first microbatch */
  double unit;    /* seconds a tick */
  bool exact;     /* every time is a whole number of ticks; else rounded down */
  bool barrier;
  int32_t ranks_per_node, first_rank;
} mt_instance;

/** Sequences over the whole instance: a solution. */
typedef struct mt_candidate {
  int32_t *rank;     /* [nodes] with the owners' ranks for free nodes */
  int32_t *begin;    /* [P + 1] */
  int32_t *sequence; /* [nodes] rank by rank */
  mt_ticks makespan;
} mt_candidate;

/** Room for evaluating plans of an instance. */
typedef struct mt_timeline {
  mt_ticks *start;   /* [nodes] */
  int32_t *order;    /* [nodes] topological */
  int32_t *cursor;   /* [P] */
  int32_t *waiting;  /* [nodes] first rank that waits for this node, or -1 */
  int32_t *chain;    /* [P] next rank that waits for the same node */
  int32_t *stack;    /* [P] */
  int32_t scheduled; /* nodes placed by the last evaluation: all of them unless the plan has a cycle */
} mt_timeline;

static inline bool mt_instance_may_own(const mt_instance *instance, int32_t rank) {
  return rank >= instance->owner_first && rank < instance->owner_first + instance->owner_count;
}

/** The owner of an item where they are dealt round robin, @p further ranks on. */
static inline int32_t mt_instance_dealt(const mt_instance *instance, const mt_item *item, int32_t further) {
  return instance->owner_first + (item->turn + further) % instance->owner_count;
}

static inline bool mt_instance_same_node(const mt_instance *instance, int32_t a, int32_t b) {
  int32_t per_node = instance->ranks_per_node;
  return per_node <= 0 || (a + instance->first_rank) / per_node == (b + instance->first_rank) / per_node;
}

static inline mt_ticks mt_instance_lag(const mt_instance *instance, int32_t lag, int32_t from, int32_t to) {
  if (lag == 0 || from == to) return 0;
  const mt_lag *entry = &instance->lags[lag];
  return mt_instance_same_node(instance, from, to) ? entry->near : entry->far;
}

/** What an instance is built for. */
typedef struct mt_instance_request {
  const mt_derivation *derivation;
  const mt_cost_table *costs;
  const mt_order_options *options; /* or NULL */
  int32_t ahead;                   /* steady state of order `ahead`: how many of a region's features are carried */
  bool relaxed;                    /* whatever the skeletons say: any owner, no barrier, no prefix, no window */
} mt_instance_request;

motet_status mt_instance_build(mt_arena *arena, const mt_instance_request *request, motet_error *error,
                               mt_instance **instance);

/** Seconds of one microbatch's part of a node. */
double mt_instance_event_seconds(const mt_instance_request *request, const mt_event *event);

/** Whether @p node is the forward of a carried item: no event. */
static inline bool mt_instance_holds(const mt_instance *instance, int32_t node) {
  int32_t item = instance->item_of[node];
  return item >= 0 && instance->items[item].carried && instance->items[item].forward == node;
}

/** NULL when memory is out. */
mt_candidate *mt_candidate_create(mt_arena *arena, const mt_instance *instance);
void mt_candidate_copy(const mt_instance *instance, mt_candidate *target, const mt_candidate *source);
mt_timeline *mt_timeline_create(mt_arena *arena, const mt_instance *instance);

/** Earliest starts in the given sequences: fills start, order and plan->makespan. False when they wait for one
 * another in a cycle. */
bool mt_timeline_run(mt_timeline *timeline, const mt_instance *instance, mt_candidate *plan);

/** The same in seconds, along the order of the last mt_timeline_run(); returns the makespan. */
double mt_timeline_seconds(const mt_timeline *timeline, const mt_instance *instance, const mt_candidate *plan,
                           double *start);

/** Whether the features of every windowed region stay within its window on the timeline last run. */
bool mt_timeline_keeps_windows(const mt_timeline *timeline, const mt_instance *instance);

#endif
