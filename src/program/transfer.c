/* Transfers of one pipeline: the join of each producer's rank with its consumer's, and whether the order runs. */
#include "program/pipeline.h"

static const char *event_name(const mt_lowering *lowering, int32_t event) {
  return motet_instruction_name(lowering->order->events[event].kind);
}

static motet_status illegal(motet_error *error, const mt_lowering *lowering, int32_t rank, int32_t event,
                            int32_t microbatch) {
  long long instruction = event >= 0 ? event - lowering->order->begin[rank] : -1;
  mt_error_rule(error, "order", rank, instruction, microbatch);
  return MOTET_ERROR_ILLEGAL;
}

static size_t cell(const mt_lowering *lowering, int32_t stage, int32_t column) {
  return (size_t)stage * (size_t)lowering->columns + (size_t)column;
}

static bool replicated(const mt_lowering *lowering, int32_t stage) {
  return lowering->derivation->stages[stage].rank < 0;
}

/* The first column of a microbatch. */
static int32_t first_column(const mt_lowering *lowering, int32_t microbatch) {
  return lowering->spread != NULL ? lowering->spread->begin[microbatch] : microbatch;
}

/* The columns of what flows between a stage, in @p column, and another: its own, or where it alone is replicated
 * all of its microbatch's. */
static int32_t flow_end(const mt_lowering *lowering, int32_t stage, int32_t other, int32_t microbatch,
                        int32_t column) {
  bool spreads = replicated(lowering, stage) && !replicated(lowering, other);
  return spreads ? first_column(lowering, microbatch + 1) : column + 1;
}

static motet_status index_event(mt_lowering *lowering, int32_t rank, int32_t event, motet_error *error) {
  const mt_derivation *derivation = lowering->derivation;
  const mt_event *this = &lowering->order->events[event];
  lowering->event_rank[event] = rank;
  if (this->kind > MOTET_BWD_W || this->stage < 0 || this->stage >= derivation->stage_count ||
      this->microbatch < 0 || this->microbatch >= derivation->microbatches) {
    mt_error_set(error, MOTET_ERROR_ARGUMENT,
                 "event %lld of rank %d (kind %d, stage %d, microbatch %d) is not a compute of the derivation's %d "
                 "stages and %d microbatches",
                 (long long)(event - lowering->order->begin[rank]), rank, this->kind, this->stage, this->microbatch,
                 derivation->stage_count, derivation->microbatches);
    illegal(error, lowering, rank, event, this->microbatch);
    return MOTET_ERROR_ARGUMENT;
  }
  int32_t column = mt_event_column(lowering, rank, this->stage, this->microbatch);
  if (column < 0) {
    mt_error_set(error, MOTET_ERROR_ILLEGAL,
                 "the order of rank %d has %s of stage %d, microbatch %d, of which it has no share", rank,
                 event_name(lowering, event), this->stage, this->microbatch);
    return illegal(error, lowering, rank, event, this->microbatch);
  }
  if (this->next || this->kind == MOTET_BWD_W) return MOTET_OK;
  size_t at = cell(lowering, this->stage, column);
  int32_t *place = this->kind == MOTET_FWD ? &lowering->forward[at] : &lowering->backward[at];
  int32_t home = mt_stage_rank(derivation, this->stage, this->microbatch);
  bool elsewhere =
      home >= 0 ? rank / lowering->width != home : this->kind != MOTET_FWD && lowering->owner[at] != rank;
  if (!lowering->options.lenient && (*place != MT_EVENT_NONE || elsewhere)) {
    mt_error_set(error, MOTET_ERROR_ILLEGAL, "the order of rank %d has %s of stage %d, microbatch %d %s", rank,
                 event_name(lowering, event), this->stage, this->microbatch,
                 elsewhere ? "which another rank computes" : "a second time");
    return illegal(error, lowering, rank, event, this->microbatch);
  }
  if (*place != MT_EVENT_NONE) return MOTET_OK;
  *place = event;
  if (this->kind == MOTET_FWD) lowering->owner[at] = rank;
  return MOTET_OK;
}

/* Finds the runs of joined events, and checks that each is one computation. */
static motet_status index_runs(mt_lowering *lowering, motet_error *error) {
  const mt_order *order = lowering->order;
  for (int32_t rank = 0; rank < lowering->ranks; rank++)
    for (int32_t e = (int32_t)order->begin[rank]; e < order->begin[rank + 1]; e++) {
      const mt_event *this = &order->events[e], *before = e > order->begin[rank] ? this - 1 : NULL;
      bool inside = before != NULL && before->joined;
      lowering->run_begin[e] = inside ? lowering->run_begin[e - 1] : e;
      bool last = e + 1 == order->begin[rank + 1];
      if (!(last && this->joined) &&
          (!inside || (before->kind == this->kind && before->stage == this->stage && before->next == this->next)))
        continue;
      mt_error_set(
          error, MOTET_ERROR_ARGUMENT,
          "event %lld of rank %d (kind %d, stage %d, microbatch %d) is joined with none of its kind and stage",
          (long long)(e - order->begin[rank]), rank, this->kind, this->stage, this->microbatch);
      illegal(error, lowering, rank, e, this->microbatch);
      return MOTET_ERROR_ARGUMENT;
    }
  return MOTET_OK;
}

/* Forward events first: a replicated stage's backward belongs where its forward ran. */
static motet_status index_events(mt_lowering *lowering, motet_error *error) {
  const mt_derivation *derivation = lowering->derivation;
  const mt_order *order = lowering->order;
  size_t cells = (size_t)derivation->stage_count * (size_t)lowering->columns;
  lowering->owner = MT_ARENA_NEW(lowering->arena, int32_t, cells);
  lowering->forward = MT_ARENA_NEW(lowering->arena, int32_t, cells);
  lowering->backward = MT_ARENA_NEW(lowering->arena, int32_t, cells);
  lowering->event_rank = MT_ARENA_NEW(lowering->arena, int32_t, lowering->event_count);
  lowering->run_begin = MT_ARENA_NEW(lowering->arena, int32_t, lowering->event_count);
  if (lowering->owner == NULL || lowering->forward == NULL || lowering->backward == NULL ||
      lowering->event_rank == NULL || lowering->run_begin == NULL)
    return mt_error_memory(error, cells * 12, "the events' places");
  motet_status runs = index_runs(lowering, error);
  if (runs != MOTET_OK) return runs;
  for (size_t i = 0; i < cells; i++)
    lowering->owner[i] = lowering->forward[i] = lowering->backward[i] = MT_EVENT_NONE;
  for (int32_t i = 0; i < order->carried_count; i++) {
    const motet_carried *carried = &order->carried[i];
    if (carried->stage < 0 || carried->stage >= derivation->stage_count || carried->microbatch < 0 ||
        carried->microbatch >= derivation->microbatches || carried->rank < 0 || carried->rank >= lowering->ranks)
      return mt_error_set(error, MOTET_ERROR_ARGUMENT,
                          "carried output %d (stage %d, microbatch %d, rank %d) is outside the derivation", i,
                          carried->stage, carried->microbatch, carried->rank);
    size_t at = cell(lowering, carried->stage, first_column(lowering, carried->microbatch));
    lowering->owner[at] = carried->rank;
    lowering->forward[at] = MT_EVENT_CARRIED;
  }
  for (int backward = 0; backward < 2; backward++)
    for (int32_t rank = 0; rank < lowering->ranks; rank++)
      for (int32_t e = (int32_t)order->begin[rank]; e < order->begin[rank + 1]; e++) {
        if ((order->events[e].kind != MOTET_FWD) != backward) continue;
        motet_status status = index_event(lowering, rank, e, error);
        if (status != MOTET_OK) return status;
      }
  return MOTET_OK;
}

static motet_status index_edges(mt_lowering *lowering, motet_error *error) {
  const mt_derivation *derivation = lowering->derivation;
  int32_t stages = derivation->stage_count, edges = derivation->edge_count;
  lowering->out_begin = MT_ARENA_NEW(lowering->arena, int32_t, stages + 2);
  lowering->in_begin = MT_ARENA_NEW(lowering->arena, int32_t, stages + 2);
  lowering->out_edges = MT_ARENA_NEW(lowering->arena, int32_t, edges);
  lowering->in_edges = MT_ARENA_NEW(lowering->arena, int32_t, edges);
  if (lowering->out_begin == NULL || lowering->in_begin == NULL || lowering->out_edges == NULL ||
      lowering->in_edges == NULL)
    return mt_error_memory(error, (unsigned long long)edges * 8, "the edges");
  /* Counts one place too high, so that filling leaves the begins in place. */
  for (int32_t e = 0; e < edges; e++) {
    lowering->out_begin[derivation->edges[e].from + 2]++;
    lowering->in_begin[derivation->edges[e].to + 2]++;
  }
  for (int32_t s = 0; s < stages; s++) {
    lowering->out_begin[s + 2] += lowering->out_begin[s + 1];
    lowering->in_begin[s + 2] += lowering->in_begin[s + 1];
  }
  for (int32_t e = 0; e < edges; e++) {
    lowering->out_edges[lowering->out_begin[derivation->edges[e].from + 1]++] = e;
    lowering->in_edges[lowering->in_begin[derivation->edges[e].to + 1]++] = e;
  }
  return MOTET_OK;
}

/* One edge and column in one direction: nothing, local, or a transfer. */
static motet_status join(mt_lowering *lowering, int32_t edge, int32_t microbatch, int32_t column, bool gradient,
                         motet_error *error) {
  const mt_derivation *derivation = lowering->derivation;
  const mt_edge *data = &derivation->edges[edge];
  if (!mt_stage_active(derivation, data->from, microbatch) || !mt_stage_active(derivation, data->to, microbatch))
    return MOTET_OK;
  /* A share without features reads nothing of what an encoder makes. */
  if (lowering->spread != NULL && replicated(lowering, data->from) && !replicated(lowering, data->to) &&
      lowering->spread->shares[column].features == 0)
    return MOTET_OK;
  int32_t source = gradient ? data->to : data->from, target = gradient ? data->from : data->to;
  int32_t first = first_column(lowering, microbatch);
  size_t source_cell = cell(lowering, source, replicated(lowering, source) ? first : column);
  size_t target_cell = cell(lowering, target, replicated(lowering, target) ? first : column);
  const int32_t *place = gradient ? lowering->backward : lowering->forward;
  int32_t producer = place[source_cell], consumer = place[target_cell];
  const char *what = gradient ? "backward" : "forward";
  if (producer == MT_EVENT_NONE || consumer < 0) {
    if (lowering->options.lenient || (consumer == MT_EVENT_CARRIED && producer == MT_EVENT_CARRIED))
      return MOTET_OK;
    mt_error_set(error, MOTET_ERROR_ILLEGAL, "no rank's order has the %s of stage %d, microbatch %d", what,
                 producer == MT_EVENT_NONE ? source : target, microbatch);
    mt_error_rule(error, "order", -1, -1, microbatch);
    return MOTET_ERROR_ILLEGAL;
  }
  int32_t sender = lowering->owner[source_cell];
  if (producer >= 0) sender = lowering->event_rank[producer];
  int32_t receiver = lowering->event_rank[consumer];
  if (sender == receiver) {
    if (producer < consumer || lowering->options.lenient) return MOTET_OK;
    mt_error_set(
        error, MOTET_ERROR_ILLEGAL,
        "the order of rank %d runs the %s of stage %d before that of stage %d, microbatch %d, whose result "
        "it needs",
        receiver, what, target, source, microbatch);
    return illegal(error, lowering, receiver, consumer, microbatch);
  }
  lowering->transfers[lowering->transfer_count++] = (mt_transfer){
      .edge = edge,
      .microbatch = microbatch,
      .column = column,
      .sender = sender,
      .receiver = receiver,
      .producer = producer >= 0 ? mt_event_run_last(lowering, producer) : -1,
      .consumer = consumer,
      .wait_event = lowering->run_begin[consumer],
      .gradient = gradient,
  };
  return MOTET_OK;
}

/* Outputs that lie ready at the step's begin leave first, in ascending order of microbatch and stage. */
static motet_status join_carried(mt_lowering *lowering, int32_t rank, motet_error *error) {
  const mt_derivation *derivation = lowering->derivation;
  const mt_order *order = lowering->order;
  bool any = false;
  for (int32_t i = 0; i < order->carried_count; i++) any |= order->carried[i].rank == rank;
  if (!any) return MOTET_OK;
  for (int32_t m = 0; m < derivation->microbatches; m++)
    for (int32_t s = 0; s < derivation->stage_count; s++) {
      int32_t first = first_column(lowering, m);
      size_t at = cell(lowering, s, first);
      if (lowering->forward[at] != MT_EVENT_CARRIED || lowering->owner[at] != rank) continue;
      for (int32_t i = lowering->out_begin[s]; i < lowering->out_begin[s + 1]; i++) {
        int32_t edge = lowering->out_edges[i], end = flow_end(lowering, s, derivation->edges[edge].to, m, first);
        for (int32_t column = first; column < end; column++) {
          motet_status status = join(lowering, edge, m, column, false, error);
          if (status != MOTET_OK) return status;
        }
      }
    }
  return MOTET_OK;
}

static motet_status join_event(mt_lowering *lowering, int32_t event, motet_error *error) {
  const mt_event *this = &lowering->order->events[event];
  if (this->next || this->kind == MOTET_BWD_W) return MOTET_OK;
  bool gradient = this->kind != MOTET_FWD;
  int32_t first = mt_event_column(lowering, lowering->event_rank[event], this->stage, this->microbatch);
  size_t at = cell(lowering, this->stage, first);
  if ((gradient ? lowering->backward : lowering->forward)[at] != event) return MOTET_OK;
  const int32_t *begin = gradient ? lowering->in_begin : lowering->out_begin;
  const int32_t *edges = gradient ? lowering->in_edges : lowering->out_edges;
  for (int32_t i = begin[this->stage]; i < begin[this->stage + 1]; i++) {
    const mt_edge *edge = &lowering->derivation->edges[edges[i]];
    if (gradient && !edge->gradient) continue;
    int32_t end = flow_end(lowering, this->stage, gradient ? edge->from : edge->to, this->microbatch, first);
    for (int32_t column = first; column < end; column++) {
      motet_status status = join(lowering, edges[i], this->microbatch, column, gradient, error);
      if (status != MOTET_OK) return status;
    }
  }
  return MOTET_OK;
}

/* Every event of every active (stage, microbatch) is in the order, so that walking the producers finds all. */
static motet_status check_complete(const mt_lowering *lowering, motet_error *error) {
  const mt_derivation *derivation = lowering->derivation;
  for (int32_t s = 0; s < derivation->stage_count; s++)
    for (int32_t column = 0, m = 0; column < lowering->columns; column++) {
      while (column >= first_column(lowering, m + 1)) m++;
      if (replicated(lowering, s) && column > first_column(lowering, m)) continue;
      size_t at = cell(lowering, s, column);
      bool forward = lowering->forward[at] == MT_EVENT_NONE;
      bool backward = derivation->stages[s].gate != MT_GATE_NONE && lowering->backward[at] == MT_EVENT_NONE;
      if (!mt_stage_active(derivation, s, m) || !(forward || backward)) continue;
      mt_error_set(error, MOTET_ERROR_ILLEGAL, "no rank's order has the %s of stage %d, microbatch %d",
                   forward ? "forward" : "backward", s, m);
      mt_error_rule(error, "order", -1, -1, m);
      return MOTET_ERROR_ILLEGAL;
    }
  return MOTET_OK;
}

static motet_status collect(mt_lowering *lowering, motet_error *error) {
  const mt_order *order = lowering->order;
  int64_t most = 0;
  for (int32_t e = 0; e < lowering->event_count; e++) {
    int32_t stage = order->events[e].stage, m = order->events[e].microbatch;
    const int32_t *begin = order->events[e].kind == MOTET_FWD ? lowering->out_begin : lowering->in_begin;
    int32_t pieces = replicated(lowering, stage) ? first_column(lowering, m + 1) - first_column(lowering, m) : 1;
    most += (int64_t)(begin[stage + 1] - begin[stage]) * pieces;
  }
  for (int32_t i = 0; i < order->carried_count; i++) {
    int32_t stage = order->carried[i].stage, m = order->carried[i].microbatch;
    most += (int64_t)(lowering->out_begin[stage + 1] - lowering->out_begin[stage]) *
            (first_column(lowering, m + 1) - first_column(lowering, m));
  }
  if (most > INT32_MAX / 4)
    return mt_error_set(error, MOTET_ERROR_LIMIT, "%lld transfers are more than a pipeline may have",
                        (long long)most);
  lowering->transfers = MT_ARENA_NEW(lowering->arena, mt_transfer, most);
  lowering->departure_begin = MT_ARENA_NEW(lowering->arena, int32_t, lowering->event_count + 1);
  if (lowering->transfers == NULL || lowering->departure_begin == NULL)
    return mt_error_memory(error, (unsigned long long)most * sizeof(mt_transfer), "transfers");
  for (int32_t rank = 0; rank < lowering->ranks; rank++) {
    motet_status status = join_carried(lowering, rank, error);
    for (int32_t e = (int32_t)order->begin[rank]; status == MOTET_OK && e < order->begin[rank + 1]; e++) {
      lowering->departure_begin[e] = lowering->transfer_count;
      if (order->events[e].joined) continue; /* what a run makes leaves it behind its last event */
      for (int32_t part = lowering->run_begin[e]; status == MOTET_OK && part <= e; part++)
        status = join_event(lowering, part, error);
    }
    if (status != MOTET_OK) return status;
  }
  lowering->departure_begin[lowering->event_count] = lowering->transfer_count;
  return MOTET_OK;
}

/* Where the first event of a stage on a rank is noted: by pipeline of its region and context rank. */
static size_t first_place(const mt_lowering *lowering, int32_t stage, int32_t rank, int32_t lanes) {
  const mt_stage *place = &lowering->derivation->stages[stage];
  int32_t width = lowering->width, pipeline = lowering->derivation->regions[place->region].pipeline;
  int32_t lane = (rank / width - place->rank) / pipeline;
  return ((size_t)stage * (size_t)lanes + (size_t)lane) * (size_t)width + (size_t)(rank % width);
}

/* `prefix`: what replicated stages send to a stage is waited for, all of it, before the stage's first event. */
static motet_status apply_barrier(mt_lowering *lowering, motet_error *error) {
  const mt_derivation *derivation = lowering->derivation;
  int32_t lanes = 1;
  for (int32_t r = 0; r < derivation->region_count; r++)
    if (derivation->regions[r].data > lanes) lanes = derivation->regions[r].data;
  size_t places = (size_t)derivation->stage_count * (size_t)lanes * (size_t)lowering->width;
  int32_t *first = MT_ARENA_NEW(lowering->arena, int32_t, places);
  if (first == NULL) return mt_error_memory(error, places * 4, "a barrier");
  for (size_t i = 0; i < places; i++) first[i] = MT_EVENT_NONE;
  for (int32_t e = 0; e < lowering->event_count; e++) {
    int32_t stage = lowering->order->events[e].stage;
    if (replicated(lowering, stage)) continue;
    size_t at = first_place(lowering, stage, lowering->event_rank[e], lanes);
    if (first[at] == MT_EVENT_NONE) first[at] = e;
  }
  for (int32_t t = 0; t < lowering->transfer_count; t++) {
    mt_transfer *transfer = &lowering->transfers[t];
    const mt_edge *edge = &derivation->edges[transfer->edge];
    bool features = replicated(lowering, edge->from) && !replicated(lowering, edge->to);
    if (!transfer->gradient && features)
      transfer->wait_event = first[first_place(lowering, edge->to, transfer->receiver, lanes)];
  }
  return MOTET_OK;
}

static motet_status index_arrivals(mt_lowering *lowering, motet_error *error) {
  lowering->arrival_begin = MT_ARENA_NEW(lowering->arena, int32_t, lowering->event_count + 2);
  lowering->arrivals = MT_ARENA_NEW(lowering->arena, int32_t, lowering->transfer_count);
  if (lowering->arrival_begin == NULL || lowering->arrivals == NULL)
    return mt_error_memory(error, (unsigned long long)lowering->transfer_count * 4, "the transfers' arrivals");
  for (int32_t t = 0; t < lowering->transfer_count; t++)
    lowering->arrival_begin[lowering->transfers[t].wait_event + 2]++;
  for (int32_t e = 0; e < lowering->event_count; e++)
    lowering->arrival_begin[e + 2] += lowering->arrival_begin[e + 1];
  for (int32_t t = 0; t < lowering->transfer_count; t++)
    lowering->arrivals[lowering->arrival_begin[lowering->transfers[t].wait_event + 1]++] = t;
  return MOTET_OK;
}

/* The machine that runs the lists: each rank goes on until it needs a transfer whose producer has not run. */
typedef struct machine {
  int32_t *next;    /* [P] event at which a rank stands */
  int32_t *arrived; /* [P] arrivals of that event seen so far, index in arrivals */
  int32_t *queue;   /* ring of ranks that may go on; each is in it at most once, so P places are enough */
  bool *waiting;    /* [P] not in the queue */
  int32_t head, queued;
} machine;

static void wake(machine *this, int32_t rank, int32_t ranks) {
  if (!this->waiting[rank]) return;
  this->waiting[rank] = false;
  this->queue[(this->head + this->queued++) % ranks] = rank;
}

static int32_t run_rank(mt_lowering *lowering, machine *this, int32_t rank, bool *sent, int32_t done) {
  int32_t ranks = lowering->ranks, end = (int32_t)lowering->order->begin[rank + 1];
  for (int32_t event = this->next[rank]; event < end; event = ++this->next[rank]) {
    int32_t arrival = this->arrived[rank];
    if (arrival < lowering->arrival_begin[event]) arrival = lowering->arrival_begin[event];
    while (arrival < lowering->arrival_begin[event + 1] && sent[lowering->arrivals[arrival]]) arrival++;
    this->arrived[rank] = arrival;
    if (arrival < lowering->arrival_begin[event + 1]) break;
    lowering->topological[done++] = event;
    for (int32_t t = lowering->departure_begin[event]; t < lowering->departure_begin[event + 1]; t++) {
      if (lowering->transfers[t].producer != event) break; /* the next rank's carried outputs */
      sent[t] = true;
      wake(this, lowering->transfers[t].receiver, ranks);
    }
  }
  return done;
}

static motet_status report_cycle(const mt_lowering *lowering, const machine *this, motet_error *error) {
  int32_t rank = 0;
  while (this->next[rank] == lowering->order->begin[rank + 1]) rank++;
  int32_t event = this->next[rank];
  int32_t missing = lowering->arrivals[this->arrived[rank]];
  const mt_transfer *transfer = &lowering->transfers[missing];
  int32_t other = this->next[transfer->sender];
  mt_error_set(error, MOTET_ERROR_ILLEGAL,
               "the order cannot run: rank %d stands before %s of stage %d, microbatch %d, and waits for %s of "
               "stage %d, microbatch %d, which rank %d runs behind %s of stage %d, microbatch %d",
               rank, event_name(lowering, event), lowering->order->events[event].stage,
               lowering->order->events[event].microbatch, event_name(lowering, transfer->producer),
               lowering->order->events[transfer->producer].stage, transfer->microbatch, transfer->sender,
               event_name(lowering, other), lowering->order->events[other].stage,
               lowering->order->events[other].microbatch);
  return illegal(error, lowering, rank, event, lowering->order->events[event].microbatch);
}

static motet_status run(mt_lowering *lowering, motet_error *error) {
  int32_t ranks = lowering->ranks, done = 0;
  machine this = {
      .next = MT_ARENA_NEW(lowering->arena, int32_t, ranks),
      .arrived = MT_ARENA_NEW(lowering->arena, int32_t, ranks),
      .queue = MT_ARENA_NEW(lowering->arena, int32_t, ranks),
      .waiting = MT_ARENA_NEW(lowering->arena, bool, ranks),
  };
  bool *sent = MT_ARENA_NEW(lowering->arena, bool, lowering->transfer_count);
  lowering->topological = MT_ARENA_NEW(lowering->arena, int32_t, lowering->event_count);
  if (this.next == NULL || this.arrived == NULL || this.queue == NULL || this.waiting == NULL || sent == NULL ||
      lowering->topological == NULL)
    return mt_error_memory(error, (unsigned long long)lowering->event_count * 4, "a trial run of the order");
  for (int32_t t = 0; t < lowering->transfer_count; t++) sent[t] = lowering->transfers[t].producer < 0;
  for (int32_t rank = 0; rank < ranks; rank++) {
    this.next[rank] = (int32_t)lowering->order->begin[rank];
    this.waiting[rank] = true;
    wake(&this, rank, ranks);
  }
  while (this.queued > 0) {
    int32_t rank = this.queue[this.head];
    this.head = (this.head + 1) % ranks;
    this.queued--;
    this.waiting[rank] = true;
    done = run_rank(lowering, &this, rank, sent, done);
  }
  lowering->runs = done == lowering->event_count;
  if (lowering->runs || lowering->options.lenient) return MOTET_OK;
  return report_cycle(lowering, &this, error);
}

motet_status mt_lowering_transfers(mt_lowering *lowering, motet_error *error) {
  motet_status status = index_edges(lowering, error);
  if (status == MOTET_OK) status = index_events(lowering, error);
  if (status == MOTET_OK && !lowering->options.lenient) status = check_complete(lowering, error);
  if (status == MOTET_OK) status = collect(lowering, error);
  if (status == MOTET_OK && lowering->order->barrier) status = apply_barrier(lowering, error);
  if (status == MOTET_OK) status = index_arrivals(lowering, error);
  if (status == MOTET_OK) status = run(lowering, error);
  return status;
}
