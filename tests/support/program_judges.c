/* Hangs and memory of programs, each by the plainest means. */
#include "program_run.h"

#include <stdlib.h>
#include <string.h>

typedef struct hang_machine {
  const motet_program *p;
  bool blocking;
  int32_t capacity;
  int64_t *position;
  int64_t *joined;     /* by rank: position of the collective that it stands in, or -1 */
  int32_t *sent, *got; /* by channel, source * ranks + destination: posts passed */
} hang_machine;

static const motet_instruction *current(const hang_machine *m, int32_t rank) {
  int64_t i = m->p->rank_begin[rank] + m->position[rank];
  return i < m->p->rank_begin[rank + 1] ? &m->p->instructions[i] : NULL;
}

/* How many posts of this kind and channel stand before the one of @p buffer on @p rank's list. */
static int32_t number_of(const motet_program *p, int32_t rank, int kind, int32_t buffer, int32_t peer) {
  int32_t number = 0;
  for (int64_t i = p->rank_begin[rank]; i < p->rank_begin[rank + 1]; i++) {
    const motet_instruction *x = &p->instructions[i];
    if (x->kind != kind || x->peer != peer) continue;
    if (x->buffer == buffer) break;
    number++;
  }
  return number;
}

/* Whether @p rank may pass @p x now. Collectives are passed by all members together. */
static bool may_pass(hang_machine *m, int32_t rank, const motet_instruction *x) {
  const motet_program *p = m->p;
  int32_t out = rank * p->ranks + x->peer, in = x->peer * p->ranks + rank;
  const motet_instruction *other = x->kind == MOTET_SEND || x->kind == MOTET_RECV ? current(m, x->peer) : NULL;
  if (x->kind == MOTET_WAIT && !m->blocking) {
    if ((x->flags & MOTET_FLAG_RECV) != 0) return m->sent[in] > number_of(p, rank, MOTET_RECV, x->buffer, x->peer);
    return m->got[out] > number_of(p, rank, MOTET_SEND, x->buffer, x->peer);
  }
  if (x->kind == MOTET_SEND && m->blocking) {
    if (m->sent[out] - m->got[out] < m->capacity) return true;
    bool meets =
        m->got[out] > m->sent[out] || (other != NULL && other->kind == MOTET_RECV && other->buffer == x->buffer);
    return meets;
  }
  if (x->kind == MOTET_RECV && m->blocking)
    return m->sent[in] > m->got[in] || (other != NULL && other->kind == MOTET_SEND && other->buffer == x->buffer);
  return true;
}

static bool is_collective(const motet_instruction *x) {
  return (x->kind >= MOTET_REDUCE && x->kind <= MOTET_ALL_REDUCE) || x->kind == MOTET_STEP_END;
}

static bool join(hang_machine *m, int32_t rank, int32_t group) {
  const motet_program *p = m->p;
  m->joined[rank] = m->position[rank];
  for (int pass = 0; pass < 2; pass++) {
    for (int32_t j = 0; j < p->groups[group].count; j++) {
      int32_t member = p->group_ranks[p->groups[group].first + j];
      const motet_instruction *x = current(m, member);
      if (pass == 1) m->position[member]++;
      if (pass == 0 &&
          (x == NULL || !is_collective(x) || x->peer != group || m->joined[member] != m->position[member]))
        return false;
    }
  }
  return true;
}

bool program_hangs(const motet_program *p, bool blocking, int32_t capacity) {
  size_t ranks = (size_t)p->ranks;
  hang_machine m = {.p = p, .blocking = blocking, .capacity = capacity};
  m.position = calloc(ranks, sizeof *m.position);
  m.joined = calloc(ranks, sizeof *m.joined);
  m.sent = calloc(ranks * ranks, sizeof *m.sent);
  m.got = calloc(ranks * ranks, sizeof *m.got);
  for (size_t i = 0; i < ranks; i++) m.joined[i] = -1;
  for (bool moved = true; moved;) {
    moved = false;
    for (int32_t rank = 0; rank < p->ranks; rank++) {
      const motet_instruction *x = current(&m, rank);
      if (x == NULL) continue;
      if (is_collective(x)) {
        moved = (m.joined[rank] != m.position[rank] && join(&m, rank, x->peer)) || moved;
        continue;
      }
      if (!may_pass(&m, rank, x)) continue;
      if (x->kind == MOTET_SEND) m.sent[rank * p->ranks + x->peer]++;
      if (x->kind == MOTET_RECV) m.got[x->peer * p->ranks + rank]++;
      m.position[rank]++;
      moved = true;
    }
  }
  bool hangs = false;
  for (int32_t rank = 0; rank < p->ranks; rank++) hangs = hangs || current(&m, rank) != NULL;
  free(m.position);
  free(m.joined);
  free(m.sent);
  free(m.got);
  return hangs;
}

/* ---- Memory ---- */

typedef struct ledger {
  const motet_program *p;
  int32_t rank;
  int64_t length;
  int64_t *bytes; /* [length] held at each instruction */
  double *held;   /* activations */
  int32_t *features;
} ledger;

static int64_t value_at(const motet_size_table *table, int32_t stage, int32_t microbatch) {
  return table->values == NULL ? 0
                               : table->values[stage * table->stage_stride + microbatch * table->microbatch_stride];
}

/* First (or last) place in the rank's list of an instruction; -1. Transfers are looked up by edge and direction. */
static int64_t find(const ledger *l, int kind, int32_t stage, int32_t microbatch) {
  for (int64_t i = 0; i < l->length; i++) {
    const motet_instruction *x = &l->p->instructions[l->p->rank_begin[l->rank] + i];
    if (x->kind == kind && x->stage == stage && x->microbatch == microbatch && (x->flags & MOTET_FLAG_NEXT) == 0)
      return i;
  }
  return -1;
}

static int64_t find_transfer(const ledger *l, int kind, bool receives, int32_t edge, int32_t microbatch,
                             int buffer_kind) {
  for (int64_t i = 0; i < l->length; i++) {
    const motet_instruction *x = &l->p->instructions[l->p->rank_begin[l->rank] + i];
    if (x->kind != kind || x->microbatch != microbatch) continue;
    if (kind == MOTET_WAIT && ((x->flags & MOTET_FLAG_RECV) != 0) != receives) continue;
    if (l->p->buffers[x->buffer].edge == edge && l->p->buffers[x->buffer].kind == buffer_kind) return i;
  }
  return -1;
}

static int64_t later(int64_t a, int64_t b) { return a > b ? a : b; }

/* Joined instructions are one computation, from the first one's begin to the last one's end. */
static void hold(ledger *l, int64_t from, int64_t to, int64_t bytes, double share, int32_t features) {
  const motet_instruction *list = &l->p->instructions[l->p->rank_begin[l->rank]];
  while (from > 0 && (list[from - 1].flags & MOTET_FLAG_JOINED) != 0) from--;
  while (to >= 0 && to + 1 < l->length && (list[to].flags & MOTET_FLAG_JOINED) != 0) to++;
  for (int64_t i = later(from, 0); i <= to && i < l->length; i++) {
    l->bytes[i] += bytes;
    l->held[i] += share;
    l->features[i] += features;
  }
}

static int64_t backward_of(const ledger *l, int32_t stage, int32_t microbatch) {
  return later(find(l, MOTET_BWD, stage, microbatch), find(l, MOTET_BWD_X, stage, microbatch));
}

static void hold_saved(ledger *l, int32_t stage, int32_t microbatch) {
  const motet_program *p = l->p;
  double share = p->regions[p->stages[stage].region].replicated ? 0 : p->stages[stage].share;
  int64_t bytes = value_at(&p->saved_bytes, stage, microbatch);
  int64_t forward = find(l, MOTET_FWD, stage, microbatch), again = find(l, MOTET_RECOMPUTE, stage, microbatch);
  int64_t out = find(l, MOTET_OFFLOAD, stage, microbatch), back = find(l, MOTET_FETCH, stage, microbatch);
  int64_t end = later(backward_of(l, stage, microbatch), find(l, MOTET_BWD_W, stage, microbatch));
  if (forward < 0) return;
  if (end < 0) end = forward;
  if (again >= 0) {
    hold(l, forward, forward, bytes, share, 0);
    hold(l, again, end, bytes, share, 0);
  } else if (out >= 0) {
    hold(l, forward, out, bytes, share, 0);
    hold(l, back, end, bytes, share, 0);
  } else {
    hold(l, forward, end, bytes, share, 0);
  }
}

static bool is_carried(const ledger *l, int32_t stage, int32_t microbatch) {
  for (int32_t i = 0; i < l->p->carried_count; i++) {
    const motet_carried *c = &l->p->carried[i];
    if (c->stage == stage && c->microbatch == microbatch && c->rank == l->rank) return true;
  }
  return false;
}

static int64_t reader_of(const ledger *l, int32_t stage, int32_t microbatch) {
  return later(find(l, MOTET_FWD, stage, microbatch), find(l, MOTET_RECOMPUTE, stage, microbatch));
}

static void hold_values(ledger *l, int32_t stage, int32_t microbatch) {
  const motet_program *p = l->p;
  int64_t bytes = value_at(&p->output_bytes, stage, microbatch), end = -1;
  int64_t begin = is_carried(l, stage, microbatch) ? 0 : find(l, MOTET_FWD, stage, microbatch);
  int32_t feature = p->regions[p->stages[stage].region].replicated ? 1 : 0;
  for (int32_t e = 0; e < p->edge_count; e++) {
    motet_program_edge edge = p->edges[e];
    if (edge.from != stage) continue;
    int64_t posted = find_transfer(l, MOTET_RECV, true, e, microbatch, MOTET_BUFFER_ACTIVATION);
    if (posted >= 0) hold(l, posted, reader_of(l, edge.to, microbatch), bytes, 0, feature);
    if (begin >= 0) {
      end = later(end, reader_of(l, edge.to, microbatch));
      end = later(end, find_transfer(l, MOTET_WAIT, false, e, microbatch, MOTET_BUFFER_ACTIVATION));
    }
    /* The gradient that comes back along the edge: received, or made here. */
    int64_t returned = find_transfer(l, MOTET_RECV, true, e, microbatch, MOTET_BUFFER_GRADIENT);
    int64_t made = backward_of(l, edge.to, microbatch), read = backward_of(l, stage, microbatch);
    int64_t left = find_transfer(l, MOTET_WAIT, false, e, microbatch, MOTET_BUFFER_GRADIENT);
    if (returned >= 0) hold(l, returned, read, bytes, 0, 0);
    if (made >= 0 && (left >= 0 || read >= 0)) hold(l, made, later(left, read), bytes, 0, 0);
  }
  if (begin >= 0 && end >= 0) hold(l, begin, end, bytes, 0, feature);
}

static void hold_next(ledger *l) {
  const motet_program *p = l->p;
  for (int64_t i = 0; i < l->length; i++) {
    const motet_instruction *x = &p->instructions[p->rank_begin[l->rank] + i];
    if (x->kind != MOTET_FWD || (x->flags & MOTET_FLAG_NEXT) == 0) continue;
    int32_t feature = p->regions[p->stages[x->stage].region].replicated ? 1 : 0;
    hold(l, i, l->length, value_at(&p->output_bytes, x->stage, x->microbatch), 0, feature);
    hold(l, i, i, value_at(&p->saved_bytes, x->stage, x->microbatch), 0, 0);
  }
}

void program_peaks(const motet_program *p, motet_rank_memory *memory) {
  for (int32_t rank = 0; rank < p->ranks; rank++) {
    ledger l = {.p = p, .rank = rank, .length = p->rank_begin[rank + 1] - p->rank_begin[rank]};
    l.bytes = calloc((size_t)l.length + 1, sizeof *l.bytes);
    l.held = calloc((size_t)l.length + 1, sizeof *l.held);
    l.features = calloc((size_t)l.length + 1, sizeof *l.features);
    for (int32_t s = 0; s < p->stage_count; s++) {
      for (int32_t j = 0; j < p->groups[p->stages[s].group].count; j++) {
        if (p->group_ranks[p->groups[p->stages[s].group].first + j] == rank)
          hold(&l, 0, l.length, p->static_bytes[s], 0, 0);
      }
      for (int32_t m = 0; m < p->microbatch_count; m++) {
        hold_saved(&l, s, m);
        hold_values(&l, s, m);
      }
    }
    hold_next(&l);
    memory[rank] = (motet_rank_memory){.peak_instruction = l.length > 0 ? 0 : -1};
    for (int64_t i = 0; i < l.length; i++) {
      if (l.bytes[i] > memory[rank].peak_bytes) {
        memory[rank].peak_bytes = l.bytes[i];
        memory[rank].peak_instruction = i;
      }
      if (l.held[i] > memory[rank].peak_activations) memory[rank].peak_activations = l.held[i];
      if (l.features[i] > memory[rank].peak_features) memory[rank].peak_features = l.features[i];
    }
    free(l.bytes);
    free(l.held);
    free(l.features);
  }
}
