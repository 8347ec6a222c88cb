#include "sim/engine.h"
#include "base/text.h"

#include <inttypes.h>
#include <stdlib.h>

/* A transfer that waits for its turn on a node's NIC. */
typedef struct queued {
  double ready;
  int64_t send; /* breaks ties: position of the SEND in the flat array */
  int64_t transfer;
} queued;

/* A group's collective under way, or compute that it shares. */
typedef struct gathering {
  int32_t arrived;
  int32_t kind;
  int64_t first, last; /* arriving instructions */
  int64_t bytes;
  double together;
  double seconds; /* of shared compute: the slowest member's */
  int32_t last_rank;
} gathering;

typedef struct engine {
  const mt_sim_costs *costs;
  const motet_program *program;
  const mt_links *links;
  mt_features *features;
  mt_trace *trace;
  motet_error *error;
  int64_t *place; /* [ranks] next instruction, index in the flat array */
  double *clock;  /* [ranks] time that the rank has reached */
  int32_t
      *runnable; /* stack of ranks that can go on: the rank set going last runs first, while its data are near */
  int32_t runnable_count;
  gathering *gatherings;    /* [groups] */
  bool shared;              /* transfers between nodes pass through NICs */
  double *nic_out, *nic_in; /* [nodes] when the NIC is free again */
  MT_ARRAY(queued) heap;
} engine;

typedef enum outcome { GO_ON, STAND, FAIL } outcome;

static void make_runnable(engine *e, int32_t rank) { e->runnable[e->runnable_count++] = rank; }

static bool queued_before(const queued *a, const queued *b) {
  if (a->ready < b->ready || a->ready > b->ready) return a->ready < b->ready;
  return a->send < b->send;
}

static bool heap_push(engine *e, queued entry) {
  if (!MT_ARRAY_PUSH(&e->heap, entry)) return false;
  size_t child = e->heap.count - 1;
  while (child > 0 && queued_before(&entry, &e->heap.data[(child - 1) / 2])) {
    e->heap.data[child] = e->heap.data[(child - 1) / 2];
    child = (child - 1) / 2;
  }
  e->heap.data[child] = entry;
  return true;
}

static queued heap_pop(engine *e) {
  queued top = e->heap.data[0], entry = e->heap.data[--e->heap.count];
  size_t hole = 0, child;
  while ((child = 2 * hole + 1) < e->heap.count) {
    if (child + 1 < e->heap.count && queued_before(&e->heap.data[child + 1], &e->heap.data[child])) child++;
    if (!queued_before(&e->heap.data[child], &entry)) break;
    e->heap.data[hole] = e->heap.data[child];
    hole = child;
  }
  e->heap.data[hole] = entry;
  return top;
}

/* The buffer's first transfer between these ranks that has all flags of `with` and none of `without`; -1: none. */
static int64_t find_transfer(const engine *e, int32_t buffer, int32_t source, int32_t destination, uint32_t with,
                             uint32_t without) {
  int64_t at = buffer;
  for (;;) {
    const mt_transfer *transfer = mt_trace_transfer(e->trace, at);
    if (transfer->flags == 0) return -1;
    if (transfer->source == source && transfer->destination == destination &&
        (transfer->flags & (with | without)) == with)
      return at;
    if (transfer->next == 0) return -1;
    at = transfer->next;
  }
}

static int64_t add_transfer(engine *e, int32_t buffer, int32_t source, int32_t destination) {
  int64_t at = buffer;
  mt_transfer fresh = {.source = source, .destination = destination};
  if (mt_trace_transfer(e->trace, at)->flags != 0) {
    int64_t last = at;
    while (mt_trace_transfer(e->trace, last)->next != 0) last = mt_trace_transfer(e->trace, last)->next;
    at = e->trace->buffer_count + (int64_t)e->trace->more.count;
    if (at > INT32_MAX || !MT_ARRAY_PUSH(&e->trace->more, fresh)) return -1;
    mt_trace_transfer(e->trace, last)->next = (int32_t)at;
    return at;
  }
  *mt_trace_transfer(e->trace, at) = fresh;
  return at;
}

static void finish_transfer(engine *e, mt_transfer *transfer, double start, double seconds) {
  transfer->start = start;
  transfer->finish = start + seconds;
  transfer->flags |= MT_TRANSFER_DONE;
  if (transfer->flags & MT_TRANSFER_SENDER_STANDS) make_runnable(e, transfer->source);
  if (transfer->flags & MT_TRANSFER_RECEIVER_STANDS) make_runnable(e, transfer->destination);
}

static double link_seconds(const engine *e, const mt_transfer *transfer) {
  int64_t bytes = mt_sim_buffer_bytes(e->program, &e->program->instructions[transfer->send]);
  return mt_sim_transfer_seconds(e->links, transfer->source, transfer->destination, bytes);
}

static outcome out_of_memory(engine *e) {
  mt_error_memory(e->error, sizeof(mt_transfer), "transfers");
  return FAIL;
}

/* SEND or RECV at `now`: a transfer whose two ends are posted is ready. */
static outcome post(engine *e, int32_t rank, int64_t place, double now) {
  const motet_instruction *instruction = &e->program->instructions[place];
  bool send = instruction->kind == MOTET_SEND;
  int32_t source = send ? rank : instruction->peer, destination = send ? instruction->peer : rank;
  uint32_t mine = send ? MT_TRANSFER_SENT : MT_TRANSFER_RECEIVED;
  int64_t at = find_transfer(e, instruction->buffer, source, destination, 0, mine);
  if (at < 0) at = add_transfer(e, instruction->buffer, source, destination);
  if (at < 0) return out_of_memory(e);
  mt_transfer *transfer = mt_trace_transfer(e->trace, at);
  transfer->flags |= mine;
  if (send) {
    transfer->send = place;
    transfer->send_seconds = now;
  } else {
    transfer->receive = place;
    transfer->receive_seconds = now;
  }
  if (e->trace->link != NULL) e->trace->link[place] = (int32_t)at;
  if ((transfer->flags & (MT_TRANSFER_SENT | MT_TRANSFER_RECEIVED)) != (MT_TRANSFER_SENT | MT_TRANSFER_RECEIVED))
    return GO_ON;
  double ready =
      transfer->send_seconds > transfer->receive_seconds ? transfer->send_seconds : transfer->receive_seconds;
  if (e->shared && !mt_links_same_node(e->links, source, destination))
    return heap_push(e, (queued){ready, transfer->send, at}) ? GO_ON : out_of_memory(e);
  finish_transfer(e, transfer, ready, link_seconds(e, transfer));
  return GO_ON;
}

/* WAIT: the rank goes on at `*now` once the transfer is done. */
static outcome wait_transfer(engine *e, int32_t rank, int64_t place, double *now) {
  const motet_instruction *instruction = &e->program->instructions[place];
  bool receive = (instruction->flags & MOTET_FLAG_RECV) != 0;
  int32_t source = receive ? instruction->peer : rank, destination = receive ? rank : instruction->peer;
  uint32_t posted = receive ? MT_TRANSFER_RECEIVED : MT_TRANSFER_SENT;
  uint32_t waited = receive ? MT_TRANSFER_RECEIVE_WAITED : MT_TRANSFER_SEND_WAITED;
  int64_t at = find_transfer(e, instruction->buffer, source, destination, posted, waited);
  if (at < 0) {
    long long index = place - e->program->rank_begin[rank];
    mt_error_set(e->error, MOTET_ERROR_FAILED,
                 "rank %d waits at instruction %lld for a %s of buffer %d %s rank %d that it has not posted; a %s "
                 "must stand before its WAIT",
                 rank, index, receive ? "receive" : "send", instruction->buffer, receive ? "from" : "to",
                 instruction->peer, receive ? "RECV" : "SEND");
    mt_error_rule(e->error, "channels", rank, index, instruction->microbatch);
    return FAIL;
  }
  mt_transfer *transfer = mt_trace_transfer(e->trace, at);
  if (e->trace->link != NULL) e->trace->link[place] = (int32_t)at;
  if (!(transfer->flags & MT_TRANSFER_DONE)) {
    transfer->flags |= receive ? MT_TRANSFER_RECEIVER_STANDS : MT_TRANSFER_SENDER_STANDS;
    return STAND;
  }
  transfer->flags |= waited;
  if (transfer->finish > *now) *now = transfer->finish;
  return GO_ON;
}

static outcome collective_error(engine *e, int32_t rank, int64_t place, const char *what) {
  const motet_instruction *instruction = &e->program->instructions[place];
  long long index = place - e->program->rank_begin[rank];
  mt_error_set(e->error, MOTET_ERROR_FAILED, "rank %d, instruction %lld: %s of group %d %s", rank, index,
               motet_instruction_name(instruction->kind), instruction->peer, what);
  mt_error_rule(e->error, "collectives", rank, index, instruction->microbatch);
  return FAIL;
}

static void account(mt_rank_trace *rank, bool body, double start, double finish, double seconds) {
  rank->busy += seconds;
  if (!body) return;
  if (rank->body_count++ == 0) rank->body_first = start;
  rank->body_last = finish;
  rank->body += seconds;
}

static bool is_body(const motet_program *program, const motet_instruction *instruction) {
  return instruction->kind != MOTET_OPTIM &&
         !program->regions[program->stages[instruction->stage].region].replicated;
}

/* A member arrives; the last one sets all others going. Shared compute keeps all members busy from when they are
 * together until its slowest member is through. */
static outcome meet(engine *e, int32_t rank, int64_t place, double *start, double *now) {
  const motet_program *program = e->program;
  const motet_instruction *instruction = &program->instructions[place];
  if (mt_group_place(program, instruction->peer, rank) < 0)
    return collective_error(e, rank, place, "does not have this rank as a member");
  gathering *here = &e->gatherings[instruction->peer];
  bool shared = !mt_sim_is_collective(instruction->kind);
  int64_t bytes = instruction->kind == MOTET_STEP_END ? 0 : mt_sim_buffer_bytes(program, instruction);
  double seconds = shared ? mt_sim_seconds(e->costs, rank, instruction) : 0.0;
  if (here->arrived == 0) {
    here->kind = instruction->kind;
    here->first = here->last = place;
    here->bytes = bytes;
    here->together = *now;
    here->seconds = seconds;
    here->last_rank = rank;
  } else {
    const motet_instruction *first = &program->instructions[here->first];
    if (instruction->kind != here->kind || instruction->stage != first->stage || instruction->range != first->range)
      return collective_error(e, rank, place,
                              "meets another collective of the group's other members; all members "
                              "must issue the same collectives in the same order");
    if (bytes > here->bytes) here->bytes = bytes;
    if (seconds > here->seconds) here->seconds = seconds;
    /* Among members that arrive at one time the first in the flat array is called the last to arrive, whatever
     * the order in which this engine ran them. */
    if (*now > here->together || (!(*now < here->together) && place < here->last)) {
      here->together = *now;
      here->last = place;
      here->last_rank = rank;
    }
  }
  if (e->trace->start != NULL) e->trace->start[place] = *now;
  if (++here->arrived < program->groups[instruction->peer].count) return STAND;

  seconds = shared ? here->seconds
                   : mt_sim_collective_seconds(e->links, program, instruction->peer, here->kind, here->bytes);
  double finish = here->together + seconds;
  mt_meeting meeting = {.last = here->last,
                        .together = here->together,
                        .finish = finish,
                        .group = instruction->peer,
                        .last_rank = here->last_rank};
  if (e->trace->link != NULL && !MT_ARRAY_PUSH(&e->trace->meetings, meeting)) return out_of_memory(e);
  const motet_group *group = &program->groups[instruction->peer];
  for (int32_t i = 0; i < group->count; i++) {
    int32_t member = program->group_ranks[group->first + i];
    if (e->trace->link != NULL) {
      e->trace->link[e->place[member]] = (int32_t)(e->trace->meetings.count - 1);
      e->trace->finish[e->place[member]] = finish;
      if (shared) e->trace->start[e->place[member]] = here->together;
    }
    if (shared) account(&e->trace->ranks[member], is_body(program, instruction), here->together, finish, seconds);
    if (member == rank) continue;
    e->clock[member] = finish;
    e->place[member]++;
    e->trace->events++;
    make_runnable(e, member);
  }
  if (shared && instruction->kind == MOTET_FWD) mt_features_forward(e->features, instruction, finish);
  if (shared) *start = here->together;
  here->arrived = 0;
  *now = finish;
  return GO_ON;
}

/* Runs one rank until it stands or is through. */
static outcome run_rank(engine *e, int32_t rank) {
  const motet_program *program = e->program;
  mt_trace *trace = e->trace;
  mt_rank_trace *mine = &trace->ranks[rank];
  double now = e->clock[rank];
  int64_t place = e->place[rank], first = place, end = program->rank_begin[rank + 1];
  outcome result = GO_ON;
  for (; place < end; place++) {
    const motet_instruction *instruction = &program->instructions[place];
    double start = now;
    e->place[rank] = place;
    if (instruction->kind == MOTET_WAIT) {
      result = wait_transfer(e, rank, place, &now);
    } else if (instruction->kind == MOTET_SEND || instruction->kind == MOTET_RECV) {
      result = post(e, rank, place, now);
    } else if (mt_sim_is_collective(instruction->kind) || mt_is_shared(program, instruction)) {
      result = meet(e, rank, place, &start, &now);
    } else {
      double seconds = mt_sim_seconds(e->costs, rank, instruction);
      now += seconds;
      if (mt_sim_is_compute(instruction->kind)) {
        account(mine, is_body(program, instruction), start, now, seconds);
        if (instruction->kind == MOTET_FWD) mt_features_forward(e->features, instruction, now);
      }
    }
    if (result != GO_ON) break;
    if (trace->start != NULL) {
      trace->start[place] = start;
      trace->finish[place] = now;
    }
  }
  e->place[rank] = place;
  e->clock[rank] = now;
  mine->end = now;
  trace->events += place - first;
  return result;
}

/* Transfers between nodes take the NICs in the order in which they became ready. When every rank stands, all that
 * is posted later is posted no earlier than the end of the first transfer here, so that its turn has come. */
static void take_link(engine *e) {
  queued entry = heap_pop(e);
  mt_transfer *transfer = mt_trace_transfer(e->trace, entry.transfer);
  int32_t source = transfer->source / e->links->ranks_per_node;
  int32_t destination = transfer->destination / e->links->ranks_per_node;
  double start = entry.ready;
  if (e->nic_out[source] > start) start = e->nic_out[source];
  if (e->nic_in[destination] > start) start = e->nic_in[destination];
  finish_transfer(e, transfer, start, link_seconds(e, transfer));
  e->nic_out[source] = e->nic_in[destination] = transfer->finish;
}

static void describe_standing(const engine *e, int32_t rank, mt_text *text) {
  const motet_instruction *instruction = &e->program->instructions[e->place[rank]];
  mt_text_append(text, "%srank %d at instruction %" PRId64, text->length > 0 ? "; " : "", rank,
                 e->place[rank] - e->program->rank_begin[rank]);
  if (instruction->kind != MOTET_WAIT) {
    mt_text_append(text, " (%s) for the other members of group %d", motet_instruction_name(instruction->kind),
                   instruction->peer);
    return;
  }
  bool receive = (instruction->flags & MOTET_FLAG_RECV) != 0;
  const motet_buffer *buffer = &e->program->buffers[instruction->buffer];
  mt_text_append(text, " for rank %d to %s the %s of stage %d, microbatch %d", instruction->peer,
                 receive ? "send" : "receive", buffer->kind == MOTET_BUFFER_GRADIENT ? "gradient" : "output",
                 instruction->stage, instruction->microbatch);
}

static motet_status hang(engine *e) {
  mt_text text = {0};
  int32_t first = -1, standing = 0;
  for (int32_t rank = 0; rank < e->program->ranks; rank++) {
    if (e->place[rank] == e->program->rank_begin[rank + 1]) continue;
    if (first < 0) first = rank;
    if (standing++ < 8) describe_standing(e, rank, &text);
  }
  if (standing > 8) mt_text_append(&text, "; and %d more", standing - 8);
  const motet_instruction *instruction = &e->program->instructions[e->place[first]];
  motet_status status =
      mt_error_set(e->error, MOTET_ERROR_FAILED, "the program hangs: %d of %d ranks wait for one another: %s",
                   standing, e->program->ranks, text.data != NULL ? text.data : "");
  mt_error_rule(e->error, "progress", first, e->place[first] - e->program->rank_begin[first],
                instruction->microbatch);
  mt_text_free(&text);
  return status;
}

static motet_status prepare(mt_arena *arena, engine *e, bool keep) {
  const motet_program *program = e->program;
  mt_trace *trace = e->trace;
  size_t ranks = (size_t)program->ranks, count = (size_t)program->rank_begin[ranks];
  trace->buffer_count = program->buffer_count;
  if (program->buffer_count > INT32_MAX)
    return mt_error_set(e->error, MOTET_ERROR_LIMIT, "%" PRId64 " buffers are more than a simulation can follow",
                        program->buffer_count);
  trace->ranks = MT_ARENA_NEW(arena, mt_rank_trace, ranks);
  trace->transfers = MT_ARENA_NEW(arena, mt_transfer, trace->buffer_count);
  e->place = MT_ARENA_NEW(arena, int64_t, ranks);
  e->clock = MT_ARENA_NEW(arena, double, ranks);
  e->runnable = MT_ARENA_NEW(arena, int32_t, ranks);
  e->gatherings = MT_ARENA_NEW(arena, gathering, program->group_count);
  bool failed = trace->ranks == NULL || trace->transfers == NULL || e->place == NULL || e->clock == NULL ||
                e->runnable == NULL || e->gatherings == NULL;
  if (keep) {
    trace->start = MT_ARENA_NEW(arena, double, count);
    trace->finish = MT_ARENA_NEW(arena, double, count);
    trace->link = MT_ARENA_NEW(arena, int32_t, count);
    failed = failed || trace->start == NULL || trace->finish == NULL || trace->link == NULL;
    for (size_t i = 0; !failed && i < count; i++) trace->link[i] = -1;
  }
  e->shared = e->links->shared_nic && e->links->ranks_per_node > 0;
  if (e->shared) {
    size_t nodes = (ranks - 1) / (size_t)e->links->ranks_per_node + 1;
    e->nic_out = MT_ARENA_NEW(arena, double, nodes);
    e->nic_in = MT_ARENA_NEW(arena, double, nodes);
    failed = failed || e->nic_out == NULL || e->nic_in == NULL;
  }
  if (failed)
    return mt_error_memory(e->error, (unsigned long long)trace->buffer_count * sizeof(mt_transfer), "simulation");
  for (int32_t rank = program->ranks; rank-- > 0;) {
    e->place[rank] = program->rank_begin[rank];
    make_runnable(e, rank);
  }
  return MOTET_OK;
}

motet_status mt_engine_run(mt_arena *arena, const mt_sim_costs *costs, bool keep, mt_features *features,
                           motet_error *error, mt_trace *trace) {
  *trace = (mt_trace){0};
  motet_error unheard; /* the status is wanted even where the text is not */
  if (error == NULL) error = &unheard;
  engine e = {.costs = costs,
              .program = costs->program,
              .links = &costs->table->links,
              .features = features,
              .trace = trace,
              .error = error};
  motet_status status = prepare(arena, &e, keep);
  if (status != MOTET_OK) return status;
  int32_t through = 0;
  for (;;) {
    while (e.runnable_count > 0) {
      int32_t rank = e.runnable[--e.runnable_count];
      outcome result = run_rank(&e, rank);
      through += result == GO_ON;
      if (result == FAIL) {
        status = error->status;
        goto done;
      }
    }
    if (e.heap.count == 0) break;
    take_link(&e);
  }
  if (through < e.program->ranks) {
    status = hang(&e);
    goto done;
  }
  for (int32_t rank = 0; rank < e.program->ranks; rank++)
    if (trace->ranks[rank].end > trace->makespan) trace->makespan = trace->ranks[rank].end;
done:
  free(e.heap.data);
  return status;
}

void mt_trace_release(mt_trace *trace) {
  free(trace->more.data);
  free(trace->meetings.data);
  *trace = (mt_trace){0};
}
