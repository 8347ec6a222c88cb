/** @file Placing the free nodes of an instance: what the construction, the improvement and the bounds share. */
#ifndef MT_ORDER_SEARCH_H
#define MT_ORDER_SEARCH_H

#include "order/instance.h"

/**
 * Longest paths without the free nodes' own sequences: head[v] is a lower bound on v's start in any plan,
 * tail[v] on the time from v's start to the end of everything. A transfer from or to a free node counts as the
 * shortest it can be.
 */
typedef struct mt_windows {
  mt_ticks *head, *tail; /* [nodes] */
  mt_ticks critical;     /* max head + tail: a lower bound on the makespan */
  int32_t *order;        /* [nodes] topological */
} mt_windows;

/** MOTET_ERROR_ARGUMENT when the body waits for itself. */
motet_status mt_windows_build(mt_arena *arena, const mt_instance *instance, motet_error *error,
                              mt_windows *windows);

/** How mt_greedy_run() places. */
typedef struct mt_greedy_rule {
  mt_ticks target;        /* makespan aimed at: body nodes may start as late as it allows */
  mt_ticks encode_target; /* the same for forwards that need nothing: what they leave is for the others */
  int32_t scan;           /* how far behind the earliest deadline a task that fits is looked for, >= 1 */
  bool prefix;            /* all forwards that need nothing stand before the body */
  bool patient;           /* a task that nothing waits for does not delay a body node that is ready */
  bool strict;            /* give up where the target is missed */
} mt_greedy_rule;

typedef struct mt_greedy mt_greedy;

mt_greedy *mt_greedy_create(mt_arena *arena, const mt_instance *instance, const mt_windows *windows);

/**
 * One pass in time over all ranks. @p owner: [items] rank, or -1: whichever rank has time first. @p work is lowered
 * by the nodes placed. The plan is complete and free of cycles; its makespan is set by @p timeline, which holds its
 * starts. False when a strict rule's target was missed; there is no plan then.
 */
bool mt_greedy_run(mt_greedy *greedy, const mt_greedy_rule *rule, const int32_t *owner, mt_timeline *timeline,
                   mt_candidate *plan, int64_t *work);

/** Items on the rank of their consumer, right before it, their backwards right behind the gradient's source: no
 * slower than the encoder inside that stage. */
bool mt_candidate_inline(mt_arena *arena, const mt_instance *instance, mt_timeline *timeline, mt_candidate *plan);

/** Longest first to the least loaded rank; items with a fixed owner go there. */
bool mt_owners_balance(mt_arena *arena, const mt_instance *instance, int32_t *owner);

/** The whole search. @p plan: the best plan found, or NULL where none keeps the windows; @p bound: no plan with the
 * instance's owners is below it. @p seconds as in mt_order_options. */
motet_status mt_search_run(mt_arena *arena, const mt_instance *instance, const mt_windows *windows, double seconds,
                           mt_timeline *timeline, motet_error *error, mt_candidate **plan, mt_ticks *bound);

#endif
