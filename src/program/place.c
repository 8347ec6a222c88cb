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

/* What events imply through other ranks takes a walk over all events for each receiver; beyond this many steps in
 * all, senders wait at the end. */
enum { CAUSAL_STEPS_MAX = 1 << 26 };

static int32_t end_slot(const mt_lowering *lowering, int32_t rank) {
  return (int32_t)lowering->order->begin[rank + 1] + rank;
}

static motet_status place_receives(mt_lowering *lowering, motet_error *error) {
  int32_t ranks = lowering->ranks;
  /* [P] earliest slot of the channel (sender, rank) so far, while walking one sender's transfers backwards. */
  int32_t *earliest = MT_ARENA_NEW(lowering->arena, int32_t, ranks);
  int32_t *seen_sender = MT_ARENA_NEW(lowering->arena, int32_t, ranks);
  if (earliest == NULL || seen_sender == NULL)
    return mt_error_memory(error, (unsigned long long)ranks * 8, "the channels");
  for (int32_t rank = 0; rank < ranks; rank++) seen_sender[rank] = -1;
  for (int32_t t = lowering->transfer_count - 1; t >= 0; t--) {
    mt_transfer *transfer = &lowering->transfers[t];
    int32_t receiver = transfer->receiver;
    int32_t first = (int32_t)lowering->order->begin[receiver], ahead = lowering->options.receive_ahead;
    int32_t event = transfer->wait_event - first > ahead ? transfer->wait_event - ahead : first;
    int32_t slot = mt_event_slot(lowering, event);
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
  for (int32_t rank = 0; rank < lowering->ranks; rank++)
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

/* The slot of the sender's first event behind the producer, of those that begin a run, with `values[event] >=
 * bound`, or its last slot. The values never fall along a list. */
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
  while (low < begin[1] && lowering->run_begin[low] < low) low++;
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

/* What one sender has sent and not waited for, by receiver, and what it has heard from there since. */
typedef struct pending {
  int32_t *head, *tail; /* [P] transfers, -1: none */
  int32_t *next;        /* [transfers] */
  int32_t *heard;       /* [P] last event of that rank whose result has arrived; -1: none has */
} pending;

static void send_pending(const mt_lowering *lowering, pending *this, int32_t transfer) {
  int32_t receiver = lowering->transfers[transfer].receiver;
  this->next[transfer] = -1;
  if (this->head[receiver] < 0)
    this->head[receiver] = transfer;
  else
    this->next[this->tail[receiver]] = transfer;
  this->tail[receiver] = transfer;
}

/* What arrives before an event tells that the ranks it comes from have consumed what they ran earlier. */
static void hear(const mt_lowering *lowering, pending *this, int32_t event) {
  for (int32_t i = lowering->arrival_begin[event]; i < lowering->arrival_begin[event + 1]; i++) {
    const mt_transfer *arrival = &lowering->transfers[lowering->arrivals[i]];
    int32_t other = arrival->sender;
    if (arrival->producer > this->heard[other]) this->heard[other] = arrival->producer;
    for (int32_t t = this->head[other]; t >= 0; t = this->head[other]) {
      if (lowering->transfers[t].consumer > this->heard[other]) break;
      lowering->transfers[t].wait_slot = mt_event_slot(lowering, event);
      this->head[other] = this->next[t];
    }
  }
}

/* Waits before the first event whose own input comes from the receiver and was made there behind the consumer. What
 * the receiver never answers stays at slot -1 if nothing at all comes back from it, and else goes to the end. */
static motet_status place_waits_by_answer(mt_lowering *lowering, motet_error *error) {
  const mt_order *order = lowering->order;
  int32_t ranks = lowering->ranks;
  pending this = {.head = MT_ARENA_NEW(lowering->arena, int32_t, ranks),
                  .tail = MT_ARENA_NEW(lowering->arena, int32_t, ranks),
                  .next = MT_ARENA_NEW(lowering->arena, int32_t, lowering->transfer_count),
                  .heard = MT_ARENA_NEW(lowering->arena, int32_t, ranks)};
  if (this.head == NULL || this.tail == NULL || this.next == NULL || this.heard == NULL)
    return mt_error_memory(error, (unsigned long long)lowering->transfer_count * 4, "waits of senders");
  int32_t sent = 0; /* transfers stand in the order of their sending, each rank's carried ones first */
  for (int32_t rank = 0; rank < ranks; rank++) {
    for (int32_t other = 0; other < ranks; other++) this.head[other] = this.heard[other] = -1;
    for (int32_t e = (int32_t)order->begin[rank]; e <= order->begin[rank + 1]; e++) {
      if (e < order->begin[rank + 1]) hear(lowering, &this, e);
      for (; sent < lowering->transfer_count && lowering->transfers[sent].sender == rank &&
             lowering->transfers[sent].producer <= e;
           sent++)
        send_pending(lowering, &this, sent);
    }
    for (int32_t other = 0; other < ranks; other++)
      for (int32_t t = this.head[other]; t >= 0; t = this.next[t])
        lowering->transfers[t].wait_slot = this.heard[other] < 0 ? -1 : end_slot(lowering, rank);
  }
  return MOTET_OK;
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

/* The rest, by what reaches the sender through other ranks: features of frozen encoders, which nobody answers. */
static motet_status place_waits_by_cause(mt_lowering *lowering, motet_error *error) {
  motet_status status = place_waits_by_answer(lowering, error);
  if (status != MOTET_OK) return status;
  int32_t ranks = lowering->ranks;
  double *known = MT_ARENA_NEW(lowering->arena, double, lowering->event_count);
  bool *asked = MT_ARENA_NEW(lowering->arena, bool, ranks);
  if (known == NULL || asked == NULL)
    return mt_error_memory(error, (unsigned long long)lowering->event_count * 8, "what events imply");
  for (int32_t t = 0; t < lowering->transfer_count; t++)
    if (lowering->transfers[t].wait_slot < 0) asked[lowering->transfers[t].receiver] = true;
  int64_t steps = 0;
  for (int32_t rank = 0; rank < ranks; rank++) {
    if (!asked[rank]) continue;
    steps += lowering->event_count;
    bool cheap = steps <= CAUSAL_STEPS_MAX;
    if (cheap) last_known(lowering, rank, known);
    for (int32_t t = 0; t < lowering->transfer_count; t++) {
      mt_transfer *transfer = &lowering->transfers[t];
      if (transfer->receiver != rank || transfer->wait_slot >= 0) continue;
      transfer->wait_slot = cheap ? first_reaching(lowering, transfer, known, transfer->consumer)
                                  : end_slot(lowering, transfer->sender);
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
  if (lowering->runs) return place_waits_by_cause(lowering, error);
  for (int32_t t = 0; t < lowering->transfer_count; t++)
    lowering->transfers[t].wait_slot = end_slot(lowering, lowering->transfers[t].sender);
  return MOTET_OK;
}
