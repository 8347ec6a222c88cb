/* Where receives are posted and where senders wait.
 *
 * Receives: as far ahead of use as asked for, and never behind a receive that the same sender sends later; so that
 * each channel's receives are posted in the order of its sends.
 *
 * Senders: a SEND is complete once its RECV is posted, which happens before the consumer runs. A sender's wait
 * before event w therefore adds the dependency "consumer before w" at most. It can neither stall nor close a cycle
 * where the plan's own timeline has the consumer before w (every dependency then leads forward in that time),
 * where w follows from the consumer anyhow, or where nothing follows w (the end of the list). */
#include "program/pipeline.h"

#include <math.h>

enum { CAUSAL_STEPS_MAX = 1 << 27 };

static int32_t begin_slot(const mt_lowering *lowering, int32_t rank) {
  return (int32_t)lowering->order->begin[rank] + rank;
}

static int32_t end_slot(const mt_lowering *lowering, int32_t rank) {
  return (int32_t)lowering->order->begin[rank + 1] + rank;
}

static motet_status place_receives(mt_lowering *lowering, motet_error *error) {
  int32_t ranks = lowering->derivation->ranks;
  /* [P] earliest slot of the channel (sender, rank) so far, while walking one sender's transfers backwards. */
  int32_t *earliest = MT_ARENA_NEW(lowering->arena, int32_t, ranks);
  int32_t *seen_sender = MT_ARENA_NEW(lowering->arena, int32_t, ranks);
  if (earliest == NULL || seen_sender == NULL)
    return mt_error_memory(error, (unsigned long long)ranks * 8, "the channels");
  for (int32_t rank = 0; rank < ranks; rank++) seen_sender[rank] = -1;
  for (int32_t t = lowering->transfer_count - 1; t >= 0; t--) {
    mt_transfer *transfer = &lowering->transfers[t];
    int32_t receiver = transfer->receiver;
    int32_t first = begin_slot(lowering, receiver);
    int32_t slot = mt_event_slot(lowering, transfer->wait_event);
    slot = slot - first > lowering->options.receive_ahead ? slot - lowering->options.receive_ahead : first;
    if (seen_sender[receiver] == transfer->sender && earliest[receiver] < slot) slot = earliest[receiver];
    seen_sender[receiver] = transfer->sender;
    earliest[receiver] = slot;
    transfer->post_slot = slot;
  }
  return MOTET_OK;
}

/* Whether the start times are a timeline: they never lead backwards along a list or a transfer. */
static bool is_timeline(const mt_lowering *lowering) {
  const mt_order *order = lowering->order;
  if (order->start == NULL) return false;
  for (int32_t rank = 0; rank < lowering->derivation->ranks; rank++)
    for (int64_t e = order->begin[rank]; e < order->begin[rank + 1]; e++) {
      if (!isfinite(order->start[e])) return false;
      if (e > order->begin[rank] && order->start[e] < order->start[e - 1]) return false;
    }
  for (int32_t t = 0; t < lowering->transfer_count; t++) {
    const mt_transfer *transfer = &lowering->transfers[t];
    if (transfer->producer >= 0 && order->start[transfer->producer] > order->start[transfer->wait_event])
      return false;
  }
  return true;
}

/* The slot of the sender's first event behind the producer with `values[event] >= bound`, or its last slot. The
 * values never fall along a list. */
static int32_t first_reaching(const mt_lowering *lowering, const mt_transfer *transfer, const double *values,
                              double bound) {
  const int64_t *begin = &lowering->order->begin[transfer->sender];
  int64_t low = transfer->producer < 0 ? begin[0] : transfer->producer + 1, high = begin[1];
  while (low < high) {
    int64_t middle = low + (high - low) / 2;
    if (values[middle] >= bound)
      high = middle;
    else
      low = middle + 1;
  }
  return (int32_t)low + transfer->sender;
}

/* The receiver's next event has begun, and begun later than the consumer: the consumer is over, with one more
 * compute as a margin against a real run that is a little off the timeline. */
static void place_waits_by_time(mt_lowering *lowering) {
  const mt_order *order = lowering->order;
  for (int32_t t = 0; t < lowering->transfer_count; t++) {
    mt_transfer *transfer = &lowering->transfers[t];
    int32_t after = transfer->consumer + 1, end = (int32_t)order->begin[transfer->receiver + 1];
    while (after < end && order->start[after] <= order->start[transfer->consumer]) after++;
    transfer->wait_slot = end_slot(lowering, transfer->sender);
    if (after < end) transfer->wait_slot = first_reaching(lowering, transfer, order->start, order->start[after]);
  }
}

/* For each event, the last event of one rank that must have run before it (or is it). */
static void last_known(const mt_lowering *lowering, int32_t rank, double *known) {
  const mt_order *order = lowering->order;
  for (int32_t i = 0; i < lowering->event_count; i++) {
    int32_t event = lowering->topological[i], own = lowering->event_rank[event];
    double last = -1;
    if (own == rank) {
      known[event] = event;
      continue;
    }
    if (event > order->begin[own]) last = known[event - 1];
    for (int32_t a = lowering->arrival_begin[event]; a < lowering->arrival_begin[event + 1]; a++) {
      int32_t producer = lowering->transfers[lowering->arrivals[a]].producer;
      if (producer >= 0 && known[producer] > last) last = known[producer];
    }
    known[event] = last;
  }
}

static motet_status place_waits_by_cause(mt_lowering *lowering, motet_error *error) {
  int32_t ranks = lowering->derivation->ranks;
  double *known = MT_ARENA_NEW(lowering->arena, double, lowering->event_count);
  int32_t *receiver_begin = MT_ARENA_NEW(lowering->arena, int32_t, ranks + 2);
  int32_t *by_receiver = MT_ARENA_NEW(lowering->arena, int32_t, lowering->transfer_count);
  if (known == NULL || receiver_begin == NULL || by_receiver == NULL)
    return mt_error_memory(error, (unsigned long long)lowering->event_count * 8, "what events imply");
  for (int32_t t = 0; t < lowering->transfer_count; t++) receiver_begin[lowering->transfers[t].receiver + 2]++;
  for (int32_t rank = 0; rank < ranks; rank++) receiver_begin[rank + 2] += receiver_begin[rank + 1];
  for (int32_t t = 0; t < lowering->transfer_count; t++)
    by_receiver[receiver_begin[lowering->transfers[t].receiver + 1]++] = t;
  for (int32_t rank = 0; rank < ranks; rank++) {
    if (receiver_begin[rank] == receiver_begin[rank + 1]) continue;
    last_known(lowering, rank, known);
    for (int32_t i = receiver_begin[rank]; i < receiver_begin[rank + 1]; i++) {
      mt_transfer *transfer = &lowering->transfers[by_receiver[i]];
      transfer->wait_slot = first_reaching(lowering, transfer, known, transfer->consumer);
    }
  }
  return MOTET_OK;
}

motet_status mt_lowering_place(mt_lowering *lowering, motet_error *error) {
  motet_status status = place_receives(lowering, error);
  if (status != MOTET_OK) return status;
  if (lowering->runs && is_timeline(lowering)) {
    place_waits_by_time(lowering);
    return MOTET_OK;
  }
  /* What events imply takes events x ranks steps; an order too large for that waits at the end. */
  if (lowering->runs && (int64_t)lowering->event_count * lowering->derivation->ranks <= CAUSAL_STEPS_MAX)
    return place_waits_by_cause(lowering, error);
  for (int32_t t = 0; t < lowering->transfer_count; t++)
    lowering->transfers[t].wait_slot = end_slot(lowering, lowering->transfers[t].sender);
  return MOTET_OK;
}
