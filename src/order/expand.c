#include "order/expand.h"

typedef struct expansion {
  const mt_plan_replica *replica;
  const mt_spread *spread;
  const mt_order *order;
  int32_t *encoder; /* [microbatches] the context rank that computes it in the replicated regions, or -1 */
  double *load;     /* (pipeline ranks, width) seconds of that */
} expansion;

static bool replicated(const expansion *this, const mt_event *event) {
  return this->replica->derivation->stages[event->stage].rank < 0;
}

static double seconds_of(const expansion *this, const mt_event *event) {
  mt_cost_kind kind = event->kind == MOTET_FWD     ? MT_COST_FORWARD
                      : event->kind == MOTET_BWD   ? MT_COST_BACKWARD
                      : event->kind == MOTET_BWD_X ? MT_COST_BACKWARD_X
                                                   : MT_COST_BACKWARD_W;
  return mt_cost_seconds(&this->replica->spread->costs, kind, event->stage, this->spread->begin[event->microbatch]);
}

/* All of a microbatch's work in replicated regions goes where its first goes: the least loaded of the plane. */
static void deal(expansion *this) {
  int32_t ranks = this->replica->derivation->ranks, width = this->spread->width;
  for (int32_t m = 0; m < this->replica->derivation->microbatches; m++) this->encoder[m] = -1;
  for (int32_t p = 0; p < ranks; p++)
    for (int64_t e = this->order->begin[p]; e < this->order->begin[p + 1]; e++) {
      const mt_event *event = &this->order->events[e];
      if (!replicated(this, event)) continue;
      bool inside = e > this->order->begin[p] && event[-1].joined;
      double *load = &this->load[(int64_t)p * width];
      int32_t *encoder = &this->encoder[event->microbatch];
      if (*encoder < 0 && inside) *encoder = this->encoder[event[-1].microbatch];
      if (*encoder < 0) {
        *encoder = 0;
        for (int32_t c = 1; c < width; c++)
          if (load[c] < load[*encoder]) *encoder = c;
      }
      load[*encoder] += seconds_of(this, event);
    }
}

static bool belongs(const expansion *this, const mt_event *event, int32_t context_rank) {
  if (replicated(this, event)) return this->encoder[event->microbatch] == context_rank;
  return this->spread->place[(int64_t)event->microbatch * this->spread->width + context_rank] >= 0;
}

static motet_status check(const mt_order *order, int32_t ranks, motet_error *error) {
  bool next = order->carried_count > 0;
  for (int64_t e = 0; e < order->begin[ranks]; e++) next = next || order->events[e].next;
  if (!next) return MOTET_OK;
  mt_error_set(error, MOTET_ERROR_ILLEGAL,
               "order=ahead is not there for context parallelism; accepted: order=fill, or context 1");
  mt_error_rule(error, "ahead", -1, -1, -1);
  return MOTET_ERROR_ILLEGAL;
}

motet_status mt_order_expand(mt_arena *arena, const mt_plan_replica *replica, motet_error *error, mt_order *order) {
  const mt_spread *spread = &replica->spread->spread;
  int32_t ranks = replica->derivation->ranks, width = spread->width;
  motet_status status = check(order, ranks, error);
  if (status != MOTET_OK) return status;
  mt_order old = *order;
  int64_t most = old.begin[ranks] * width;
  expansion this = {.replica = replica,
                    .spread = spread,
                    .order = &old,
                    .encoder = MT_ARENA_NEW(arena, int32_t, replica->derivation->microbatches),
                    .load = MT_ARENA_NEW(arena, double, (int64_t)ranks *width)};
  order->begin = MT_ARENA_NEW(arena, int64_t, (int64_t)ranks * width + 1);
  order->events = MT_ARENA_NEW(arena, mt_event, most);
  order->start = old.start != NULL ? MT_ARENA_NEW(arena, double, most) : NULL;
  if (this.encoder == NULL || this.load == NULL || order->begin == NULL || order->events == NULL ||
      (old.start != NULL && order->start == NULL))
    return mt_error_memory(error, (unsigned long long)most * sizeof(mt_event), "the orders of context ranks");
  deal(&this);
  int64_t count = 0;
  for (int32_t rank = 0; rank < ranks * width; rank++) {
    order->begin[rank] = count;
    for (int64_t e = old.begin[rank / width]; e < old.begin[rank / width + 1]; e++) {
      if (!belongs(&this, &old.events[e], rank % width)) continue;
      if (order->start != NULL) order->start[count] = old.start[e];
      order->events[count++] = old.events[e];
    }
  }
  order->begin[ranks * width] = count;
  return MOTET_OK;
}
