/* Rule 2 for transfers: what is sent is there and is needed elsewhere. Rule 3 on one rank: posts and WAITs belong
 * together. The two ends are compared in verify_channels.c. */
#include "program/verify_walk.h"

#define STAGE(stage) MT_VERIFY_STAGE(walk->verifier, (stage))
#define NAME motet_instruction_name(instruction->kind)
#define REFUSE_CHANNEL(...)                                                                                        \
  mt_verify_refuse(walk->verifier, MT_RULE_CHANNELS, walk->rank, walk->position, instruction->microbatch,          \
                   __VA_ARGS__)

/* Where a buffer's data are made and where they are read. */
typedef struct route {
  int32_t edge, from; /* the edge and its producing stage */
  int32_t piece;      /* what of the microbatch's */
  bool gradient;
  int32_t source, destination; /* ranks */
  int32_t shift;               /* of its bits in the edge's flags */
} route;

static int32_t piece_of(const mt_verifier *verifier, const motet_buffer *buffer) {
  if (buffer->range == 0) return verifier->first_column[buffer->microbatch];
  return verifier->program->ranges[buffer->range].first_share + buffer->member;
}

/* Looks up between which ranks a buffer travels, and whether it must. */
static motet_status look_up_ranks(mt_walk *walk, const motet_instruction *instruction,
                                  mt_verify_transfer *transfer) {
  const mt_verifier *verifier = walk->verifier;
  const motet_buffer *buffer = &verifier->program->buffers[instruction->buffer];
  int32_t microbatch = buffer->microbatch;
  bool gradient = buffer->kind == MOTET_BUFFER_GRADIENT;
  const char *what = gradient ? "gradient" : "activation";
  if (!gradient && buffer->kind != MOTET_BUFFER_ACTIVATION)
    MT_WALK_REFUSE(walk, instruction->microbatch,
                   "%s of buffer %d, which is neither an activation nor its gradient", NAME, instruction->buffer);
  motet_program_edge edge = verifier->program->edges[buffer->edge];
  int32_t piece = piece_of(verifier, buffer);
  if (!mt_verify_flows(verifier, buffer->edge, piece))
    MT_WALK_REFUSE(walk, microbatch,
                   "%s of the %s from stage %d to %d for microbatch %d, which has no data for both: "
                   "nobody needs it",
                   NAME, what, edge.from, edge.to, microbatch);
  if (gradient && verifier->upstream[edge.from] == 0)
    MT_WALK_REFUSE(walk, microbatch, "%s of the gradient of %s: nothing at or before it trains, so nobody needs it",
                   NAME, STAGE(edge.from));
  int32_t from_rank = mt_verify_cell_at(verifier, edge.from, mt_verify_home(verifier, edge.from, piece))->rank;
  int32_t to_rank = mt_verify_cell_at(verifier, edge.to, mt_verify_home(verifier, edge.to, piece))->rank;
  if (from_rank == to_rank && instruction->peer != walk->rank)
    MT_WALK_REFUSE(walk, microbatch,
                   "%s of the %s from stage %d to %d, microbatch %d: both run on rank %d, so it must "
                   "not travel",
                   NAME, what, edge.from, edge.to, microbatch, from_rank);
  transfer->source = 1 + (gradient ? to_rank : from_rank);
  transfer->destination = 1 + (gradient ? from_rank : to_rank);
  return MOTET_OK;
}

static motet_status find_route(mt_walk *walk, const motet_instruction *instruction, route *found) {
  const mt_verifier *verifier = walk->verifier;
  const motet_buffer *buffer = &verifier->program->buffers[instruction->buffer];
  mt_verify_transfer *transfer = &verifier->transfers[instruction->buffer];
  if (transfer->source == 0) {
    motet_status status = look_up_ranks(walk, instruction, transfer);
    if (status != MOTET_OK) return status;
  }
  if (instruction->stage != buffer->stage || instruction->microbatch != buffer->microbatch ||
      instruction->range != buffer->range)
    MT_WALK_REFUSE(walk, instruction->microbatch,
                   "%s of stage %d, microbatch %d, range %d: its buffer is of stage %d, %d, %d", NAME,
                   instruction->stage, instruction->microbatch, instruction->range, buffer->stage,
                   buffer->microbatch, buffer->range);
  bool gradient = buffer->kind == MOTET_BUFFER_GRADIENT;
  *found = (route){.edge = buffer->edge,
                   .from = buffer->stage,
                   .piece = piece_of(verifier, buffer),
                   .gradient = gradient,
                   .source = transfer->source - 1,
                   .destination = transfer->destination - 1,
                   .shift = gradient ? MT_GRADIENT_SHIFT : 0};
  return MOTET_OK;
}

static mt_walk_channel *channel_to(mt_walk *walk, int32_t peer) {
  mt_walk_channel *channel = &walk->channels[peer];
  if (channel->rank != walk->rank + 1) *channel = (mt_walk_channel){.rank = walk->rank + 1};
  return channel;
}

/* The bytes must be those of the activation. */
static void check_bytes(mt_walk *walk, const motet_instruction *instruction) {
  const motet_program *p = walk->verifier->program;
  const motet_buffer *buffer = &p->buffers[instruction->buffer];
  int64_t bytes = buffer->bytes;
  int64_t right = mt_verify_bytes(&p->output_bytes, instruction->stage, piece_of(walk->verifier, buffer));
  if (bytes != right)
    REFUSE_CHANNEL("%s of %lld bytes: the output of %s has %lld for microbatch %d",
                   motet_instruction_name(instruction->kind), (long long)bytes, STAGE(instruction->stage),
                   (long long)right, instruction->microbatch);
}

/* What is wrong with both kinds of posts. False where the post must be passed over. */
static bool check_post(mt_walk *walk, const motet_instruction *instruction, int32_t peer, uint8_t posted,
                       const uint8_t *flags) {
  if (instruction->peer == walk->rank) {
    REFUSE_CHANNEL("%s with rank %d itself: what is here must not travel",
                   motet_instruction_name(instruction->kind), walk->rank);
    return false;
  }
  if ((*flags & posted) != 0) {
    REFUSE_CHANNEL(
        "%s of the same %s a second time: must be posted once", motet_instruction_name(instruction->kind),
        walk->verifier->program->buffers[instruction->buffer].kind == MOTET_BUFFER_GRADIENT ? "gradient"
                                                                                            : "activation");
    return false;
  }
  if (instruction->peer != peer)
    REFUSE_CHANNEL("%s with rank %d: the other end is rank %d", motet_instruction_name(instruction->kind),
                   instruction->peer, peer);
  check_bytes(walk, instruction);
  return true;
}

motet_status mt_walk_send(mt_walk *walk, const motet_instruction *instruction) {
  mt_verifier *verifier = walk->verifier;
  int32_t microbatch = instruction->microbatch;
  route r;
  motet_status status = find_route(walk, instruction, &r);
  if (status != MOTET_OK) return status;
  int32_t maker = r.gradient ? verifier->program->edges[r.edge].to : r.from;
  if (r.source != walk->rank)
    MT_WALK_REFUSE(walk, microbatch, "SEND from rank %d of what %s makes: must be sent by rank %d", walk->rank,
                   STAGE(maker), r.source);
  uint32_t done = r.gradient ? MT_GRADIENT_DONE : MT_FORWARD_DONE;
  if ((mt_verify_cell_at(verifier, maker, mt_verify_home(verifier, maker, r.piece))->flags & done) == 0)
    MT_WALK_REFUSE(walk, microbatch, "SEND of the %s that %s makes for microbatch %d: its %s must stand before",
                   r.gradient ? "gradient" : "activation", STAGE(maker), microbatch,
                   r.gradient ? "backward" : "FWD");
  uint8_t *flags = mt_verify_edge_at(verifier, r.edge, r.piece);
  uint8_t sent = (uint8_t)(MT_SENT << r.shift);
  if (!check_post(walk, instruction, r.destination, sent, flags)) return MOTET_OK;
  if (r.gradient && walk->first_reduce >= 0)
    mt_verify_refuse(
        verifier, MT_RULE_GRADIENTS, walk->rank, walk->first_reduce, -1,
        "the reduce stands ahead of the gradient SEND at instruction %d (stage %d, microbatch %d): must "
        "stand behind it",
        walk->position, instruction->stage, microbatch);
  *flags |= sent;
  mt_verify_transfer *transfer = &verifier->transfers[instruction->buffer];
  transfer->send_position = walk->position + 1;
  transfer->send_number = channel_to(walk, instruction->peer)->sends++;
  walk->open_posts++;
  return MOTET_OK;
}

motet_status mt_walk_recv(mt_walk *walk, const motet_instruction *instruction) {
  mt_verifier *verifier = walk->verifier;
  int32_t microbatch = instruction->microbatch;
  route r;
  motet_status status = find_route(walk, instruction, &r);
  if (status != MOTET_OK) return status;
  if (r.destination != walk->rank)
    MT_WALK_REFUSE(walk, microbatch, "RECV on rank %d of what %s reads: must be received by rank %d", walk->rank,
                   STAGE(r.gradient ? r.from : verifier->program->edges[r.edge].to), r.destination);
  uint8_t *flags = mt_verify_edge_at(verifier, r.edge, r.piece);
  uint8_t posted = (uint8_t)(MT_POSTED << r.shift);
  if (!check_post(walk, instruction, r.source, posted, flags)) return MOTET_OK;
  *flags |= posted;
  mt_verify_transfer *transfer = &verifier->transfers[instruction->buffer];
  transfer->recv_position = walk->position + 1;
  transfer->recv_number = channel_to(walk, instruction->peer)->receives++;
  walk->open_posts++;
  /* As its consumer gives it back: with the producer's size, whatever the buffer says. */
  mt_walk_take(walk, mt_verify_bytes(&verifier->program->output_bytes, r.from, r.piece));
  if (!r.gradient && mt_walk_replicated(verifier, r.from)) walk->live.features++;
  mt_walk_peak(walk);
  return MOTET_OK;
}

motet_status mt_walk_wait(mt_walk *walk, const motet_instruction *instruction) {
  mt_verifier *verifier = walk->verifier;
  bool receives = (instruction->flags & MOTET_FLAG_RECV) != 0;
  route r;
  motet_status status = find_route(walk, instruction, &r);
  if (status != MOTET_OK) return status;
  const mt_verify_transfer *transfer = &verifier->transfers[instruction->buffer];
  int32_t post = receives ? transfer->recv_position : transfer->send_position;
  if ((receives ? r.destination : r.source) != walk->rank || post == 0) {
    REFUSE_CHANNEL("WAIT for a %s that is not posted before it on rank %d", receives ? "RECV" : "SEND", walk->rank);
    return MOTET_OK;
  }
  uint8_t *flags = mt_verify_edge_at(verifier, r.edge, r.piece);
  uint8_t waited = (uint8_t)((receives ? MT_ARRIVED : MT_SEND_WAITED) << r.shift);
  if ((*flags & waited) != 0) {
    REFUSE_CHANNEL("WAIT for the %s at instruction %d a second time: must stand once", receives ? "RECV" : "SEND",
                   post - 1);
    return MOTET_OK;
  }
  if (instruction->peer != (receives ? r.source : r.destination))
    REFUSE_CHANNEL("WAIT for a transfer with rank %d: the %s at instruction %d is with rank %d", instruction->peer,
                   receives ? "RECV" : "SEND", post - 1, receives ? r.source : r.destination);
  *flags |= waited;
  walk->open_posts--;
  if (receives) return MOTET_OK;
  if (r.gradient) {
    mt_walk_give(walk, mt_verify_bytes(&verifier->program->output_bytes, r.from, r.piece));
  } else {
    mt_walk_release_output(walk, r.from, mt_verify_home(verifier, r.from, r.piece));
  }
  return MOTET_OK;
}

/* Names the first post that nobody waits for. */
void mt_walk_finish_transfers(mt_walk *walk) {
  if (walk->open_posts == 0) return;
  const mt_verifier *verifier = walk->verifier;
  const motet_program *p = verifier->program;
  const motet_instruction *list = p->instructions + p->rank_begin[walk->rank];
  for (int32_t i = 0; i < walk->position; i++) {
    if (list[i].kind != MOTET_SEND && list[i].kind != MOTET_RECV) continue;
    const motet_buffer *buffer = &p->buffers[list[i].buffer];
    unsigned waited = list[i].kind == MOTET_SEND ? MT_SEND_WAITED : MT_ARRIVED;
    if (buffer->kind == MOTET_BUFFER_GRADIENT) waited <<= MT_GRADIENT_SHIFT;
    if ((*mt_verify_edge_at(verifier, buffer->edge, piece_of(verifier, buffer)) & waited) != 0) continue;
    mt_verify_refuse(walk->verifier, MT_RULE_CHANNELS, walk->rank, i, list[i].microbatch,
                     "%s of stage %d, microbatch %d, has no WAIT: every post must be waited for",
                     motet_instruction_name(list[i].kind), list[i].stage, list[i].microbatch);
    return;
  }
}
