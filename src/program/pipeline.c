#include "program/pipeline.h"

/* What stands in a slot, in this order; the slot's event, or joined events, and what they send follow. Receives are
 * posted first: nothing that blocks may stand in front of them. Senders' waits come last: by then the event's
 * inputs are there, so that the rank has reached the time at which the event starts. What a backward needs is
 * computed again while its gradient is on the way. */
enum {
  PART_CARRIED,
  PART_RECEIVE,
  PART_LOAD,
  PART_RECOMPUTE,
  PART_WAIT_RECEIVE,
  PART_WAIT_SEND,
  PART_EVENT,
  PART_SEND,
  PARTS
};

typedef struct writer {
  const mt_lowering *lowering;
  int32_t *place; /* [slots * PARTS + 1] counts, then the next free instruction of each part */
  motet_instruction *instructions;
} writer;

static const motet_instruction no_instruction = {.stage = -1, .microbatch = -1, .buffer = -1, .peer = -1};

static bool loads(const mt_lowering *lowering, const mt_event *event) {
  return event->kind == MOTET_FWD && lowering->derivation->stages[event->stage].inputs != 0;
}

static bool recomputes(const mt_lowering *lowering, const mt_event *event) {
  return (event->kind == MOTET_BWD || event->kind == MOTET_BWD_X) &&
         lowering->derivation->stages[event->stage].recompute;
}

static int32_t departure_slot(const mt_lowering *lowering, const mt_transfer *transfer, int *part) {
  *part = transfer->producer >= 0 ? PART_SEND : PART_CARRIED;
  if (transfer->producer >= 0) return mt_event_slot(lowering, transfer->producer);
  return (int32_t)lowering->order->begin[transfer->sender] + transfer->sender;
}

static void count_parts(writer *this) {
  const mt_lowering *lowering = this->lowering;
  for (int32_t e = 0; e < lowering->event_count; e++) {
    int32_t *parts = &this->place[(size_t)mt_event_slot(lowering, e) * PARTS];
    parts[PART_EVENT]++;
    parts[PART_LOAD] += loads(lowering, &lowering->order->events[e]);
    parts[PART_RECOMPUTE] += recomputes(lowering, &lowering->order->events[e]);
  }
  for (int32_t t = 0; t < lowering->transfer_count; t++) {
    const mt_transfer *transfer = &lowering->transfers[t];
    int part;
    int32_t departure = departure_slot(lowering, transfer, &part);
    this->place[(size_t)departure * PARTS + (size_t)part]++;
    this->place[(size_t)transfer->post_slot * PARTS + PART_RECEIVE]++;
    this->place[(size_t)transfer->wait_slot * PARTS + PART_WAIT_SEND]++;
    this->place[(size_t)mt_event_slot(lowering, transfer->wait_event) * PARTS + PART_WAIT_RECEIVE]++;
  }
}

static void put(writer *this, int32_t slot, int part, motet_instruction instruction) {
  this->instructions[this->place[(size_t)slot * PARTS + (size_t)part]++] = instruction;
}

/* The range of a column, from 1; 0 where the stage computes whole microbatches. */
static int32_t range_of(const mt_lowering *lowering, int32_t stage, int32_t column) {
  if (lowering->spread == NULL || lowering->derivation->stages[stage].rank < 0) return 0;
  return lowering->spread->shares[column].range + 1;
}

static void put_events(writer *this) {
  const mt_lowering *lowering = this->lowering;
  for (int32_t e = 0; e < lowering->event_count; e++) {
    const mt_event *event = &lowering->order->events[e];
    int32_t slot = mt_event_slot(lowering, e);
    motet_instruction instruction = no_instruction;
    instruction.kind = event->kind;
    instruction.flags = (event->next ? MOTET_FLAG_NEXT : 0) | (event->joined ? MOTET_FLAG_JOINED : 0);
    instruction.stage = event->stage;
    instruction.microbatch = event->microbatch;
    instruction.range =
        range_of(lowering, event->stage,
                 mt_event_column(lowering, lowering->event_rank[e], event->stage, event->microbatch));
    put(this, slot, PART_EVENT, instruction);
    if (recomputes(lowering, event)) {
      instruction.kind = MOTET_RECOMPUTE;
      put(this, slot, PART_RECOMPUTE, instruction);
    }
    if (!loads(lowering, event)) continue;
    instruction.kind = MOTET_LOAD;
    instruction.flags &= MOTET_FLAG_NEXT;
    put(this, slot, PART_LOAD, instruction);
  }
}

/* Transfers are walked in their senders' order, which therefore is each slot's order of posting. */
static void put_transfers(writer *this, motet_buffer *buffers) {
  const mt_lowering *lowering = this->lowering;
  for (int32_t t = 0; t < lowering->transfer_count; t++) {
    const mt_transfer *transfer = &lowering->transfers[t];
    const mt_edge *edge = &lowering->derivation->edges[transfer->edge];
    int32_t stage = edge->from, part;
    bool cut = lowering->spread != NULL && (lowering->derivation->stages[edge->from].rank >= 0 ||
                                            lowering->derivation->stages[edge->to].rank >= 0);
    buffers[t] = (motet_buffer){
        .kind = transfer->gradient ? MOTET_BUFFER_GRADIENT : MOTET_BUFFER_ACTIVATION,
        .stage = stage,
        .edge = transfer->edge,
        .microbatch = transfer->microbatch,
        .range = cut ? lowering->spread->shares[transfer->column].range + 1 : 0,
        .member = cut ? lowering->spread->shares[transfer->column].member : 0,
        .bytes = mt_size_at(&lowering->sizes->output_bytes, stage, transfer->column),
    };
    motet_instruction send = {.kind = MOTET_SEND,
                              .stage = stage,
                              .microbatch = transfer->microbatch,
                              .range = buffers[t].range,
                              .buffer = t,
                              .peer = transfer->receiver};
    motet_instruction receive = send;
    receive.kind = MOTET_RECV;
    receive.peer = transfer->sender;
    int32_t departure = departure_slot(lowering, transfer, &part);
    put(this, departure, part, send);
    put(this, transfer->post_slot, PART_RECEIVE, receive);
    send.kind = MOTET_WAIT;
    put(this, transfer->wait_slot, PART_WAIT_SEND, send);
    receive.kind = MOTET_WAIT;
    receive.flags = MOTET_FLAG_RECV;
    put(this, mt_event_slot(lowering, transfer->wait_event), PART_WAIT_RECEIVE, receive);
  }
}

static motet_status write_lists(mt_lowering *lowering, motet_error *error, mt_pipeline *pipeline) {
  int32_t ranks = lowering->ranks;
  size_t parts = ((size_t)lowering->event_count + (size_t)ranks) * PARTS;
  writer this = {.lowering = lowering, .place = MT_ARENA_NEW(lowering->arena, int32_t, parts + 1)};
  if ((int64_t)lowering->event_count * 3 + (int64_t)lowering->transfer_count * 4 > INT32_MAX)
    return mt_error_set(error, MOTET_ERROR_LIMIT, "%d events with %d transfers are too many for one pipeline",
                        lowering->event_count, lowering->transfer_count);
  pipeline->begin = MT_ARENA_NEW(lowering->arena, int64_t, ranks + 1);
  pipeline->buffers = MT_ARENA_NEW(lowering->arena, motet_buffer, lowering->transfer_count);
  pipeline->buffer_count = lowering->transfer_count;
  if (this.place == NULL || pipeline->begin == NULL || pipeline->buffers == NULL)
    return mt_error_memory(error, (unsigned long long)parts * 4, "instruction lists");
  count_parts(&this);
  int64_t total = 0;
  for (size_t i = 0; i <= parts; i++) {
    int32_t count = this.place[i];
    this.place[i] = (int32_t)total;
    total += count;
  }
  for (int32_t rank = 0; rank <= ranks; rank++) {
    size_t slot = (size_t)(lowering->order->begin[rank] + rank);
    pipeline->begin[rank] = this.place[slot * PARTS];
  }
  pipeline->instructions = MT_ARENA_NEW(lowering->arena, motet_instruction, total);
  if (pipeline->instructions == NULL)
    return mt_error_memory(error, (unsigned long long)total * sizeof(motet_instruction), "instructions");
  this.instructions = pipeline->instructions;
  put_events(&this);
  put_transfers(&this, pipeline->buffers);
  return MOTET_OK;
}

motet_status mt_pipeline_lower(mt_arena *arena, const mt_replica *replica, const mt_lower_options *options,
                               motet_error *error, mt_pipeline *pipeline) {
  const mt_derivation *derivation = replica->derivation;
  int32_t ranks = mt_replica_ranks(replica), columns = mt_replica_columns(replica);
  int64_t events = replica->order->begin[ranks];
  /* Each event makes a few instructions; all counts of a pipeline stay below 2^31. */
  int64_t cells;
  if (events > INT32_MAX / 32 || ranks > INT32_MAX / 32 ||
      __builtin_mul_overflow((int64_t)derivation->stage_count, columns, &cells) || cells > INT32_MAX)
    return mt_error_set(error, MOTET_ERROR_LIMIT,
                        "a pipeline of %d ranks, %d stages, %d microbatches and %lld events is too large", ranks,
                        derivation->stage_count, derivation->microbatches, (long long)events);
  mt_lowering lowering = {
      .arena = arena,
      .derivation = derivation,
      .order = replica->order,
      .sizes = &replica->sizes,
      .spread = replica->spread,
      .ranks = ranks,
      .width = mt_replica_width(replica),
      .columns = columns,
      .options = *options,
      .event_count = (int32_t)events,
  };
  motet_status status = mt_lowering_transfers(&lowering, error);
  if (status == MOTET_OK) status = mt_lowering_place(&lowering, error);
  if (status == MOTET_OK) status = write_lists(&lowering, error, pipeline);
  return status;
}
