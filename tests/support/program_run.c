#include "program_machine.h"

static bundle copy_bundle(machine *m, const bundle *from) {
  bundle copy = {from->there, from->data, TAKE(m, value, m->L), TAKE(m, int32_t, m->L)};
  memcpy(copy.values, from->values, (size_t)m->L * sizeof(value));
  memcpy(copy.counts, from->counts, (size_t)m->L * sizeof(int32_t));
  return copy;
}

static bundle empty_bundle(machine *m) {
  return (bundle){true, false, TAKE(m, value, m->L), TAKE(m, int32_t, m->L)};
}

static bool here(machine *m, int32_t rank, const motet_instruction *i) {
  const motet_program *p = m->p;
  if (!has(p, p->stages[i->stage].group, rank))
    return wrong(m, "rank %d has no weights of stage %d", rank, i->stage);
  if (p->microbatches[i->microbatch].replica != rank / (p->ranks / p->replicas))
    return wrong(m, "microbatch %d is another replica's", i->microbatch);
  return true;
}

/* Everything that lies on the rank for (stage, microbatch): outputs of its sources, local or received. */
static void gather_inputs(machine *m, int32_t rank, int32_t stage, int32_t microbatch, bundle *all) {
  for (int32_t e = 0; e < m->E; e++) {
    if (m->p->edges[e].to != stage) continue;
    const bundle *sources[] = {&m->outputs[cell(m, rank, m->p->edges[e].from, microbatch)],
                               &m->arrived[link_at(m, rank, e, microbatch)]};
    for (int k = 0; k < 2; k++) {
      if (!sources[k]->there) continue;
      all->data = all->data || sources[k]->data;
      for (int32_t l = 0; l < m->L; l++) {
        if (sources[k]->values[l] != 0) all->values[l] = sources[k]->values[l];
      }
    }
  }
}

/* Whether the stage is the first or a later one of empty ones that no layer stands before. */
static bool begins_empty(const machine *m, int32_t stage) {
  const motet_program *p = m->p;
  if (p->stages[stage].layer_begin < p->stages[stage].layer_end) return false;
  for (int32_t e = 0; e < m->E; e++)
    if (p->edges[e].to == stage && !begins_empty(m, p->edges[e].from)) return false;
  return true;
}

/* A module that no module feeds begins with data, loaded by its stage or by an empty one before it. */
static bool needs_data(const machine *m, int32_t stage, int32_t layer) {
  const motet_program *p = m->p;
  bool before = false;
  if (p->stages[stage].inputs != 0 || layer != p->modules[m->layer_module[layer]].layer_begin) return false;
  for (int32_t i = 0; i < p->module_edge_count; i++) {
    if (p->module_edges[i].to == m->layer_module[layer]) return false;
  }
  for (int32_t e = 0; e < m->E; e++)
    before = before || (p->edges[e].to == stage && begins_empty(m, p->edges[e].from));
  return before;
}

static bool run_forward(machine *m, int32_t rank, const motet_instruction *i) {
  const motet_program *p = m->p;
  const motet_program_stage *stage = &p->stages[i->stage];
  bool next = (i->flags & MOTET_FLAG_NEXT) != 0, missing = false;
  int64_t c = cell(m, rank, i->stage, i->microbatch);
  if (!here(m, rank, i)) return false;
  if (stage->inputs != 0 && !(next ? m->next_loaded : m->loaded)[c]) return wrong(m, "data not loaded");
  if (next) {
    for (int32_t l = 0; l < stage->layer_end; l++) {
      if (l >= stage->layer_begin && p->layer_trainable[l]) return wrong(m, "ahead of an update");
    }
    return true;
  }
  bundle all = empty_bundle(m);
  gather_inputs(m, rank, i->stage, i->microbatch, &all);
  bundle out = empty_bundle(m);
  if (stage->layer_begin == stage->layer_end) {
    memcpy(out.values, all.values, (size_t)m->L * sizeof(value));
    out.data = all.data || stage->inputs != 0;
  }
  for (int32_t l = stage->layer_begin; l < stage->layer_end; l++) {
    if (!live(m, l, i->microbatch)) continue;
    value input = input_of(m, l, i->microbatch, all.values, &missing);
    missing = missing || (needs_data(m, i->stage, l) && !all.data);
    if (missing) return wrong(m, "layer %d, microbatch %d: input not there", l, i->microbatch);
    all.values[l] = out.values[l] = value_of(l, i->microbatch, input);
    m->forwards[(int64_t)i->microbatch * m->L + l]++;
  }
  m->outputs[c] = out;
  m->saved[c] = 1;
  for (int64_t j = p->rank_begin[rank]; j < p->rank_begin[rank + 1]; j++) {
    const motet_instruction *other = &p->instructions[j];
    bool same = other->stage == i->stage && other->microbatch == i->microbatch;
    if (other->kind == MOTET_RECOMPUTE && same) m->saved[c] = 2; /* dropped */
  }
  return true;
}

/* Gradients of all outputs that the stage's layers give out, from the edges. */
static void gather_gradients(machine *m, int32_t rank, int32_t stage, int32_t microbatch, bundle *all) {
  for (int32_t e = 0; e < m->E; e++) {
    if (m->p->edges[e].from != stage) continue;
    const bundle *sources[] = {&m->made[link_at(m, rank, e, microbatch)],
                               &m->returned[link_at(m, rank, e, microbatch)]};
    for (int k = 0; k < 2; k++) {
      if (!sources[k]->there) continue;
      for (int32_t l = 0; l < m->L; l++) {
        all->values[l] += sources[k]->values[l];
        all->counts[l] += sources[k]->counts[l];
      }
      break;
    }
  }
}

static bool gradient_of(machine *m, const motet_program_stage *stage, int32_t l, int32_t microbatch,
                        const bundle *all, value *stash, const value *outputs) {
  int32_t outside = 0, readers = 0;
  value sum = 0;
  for (int32_t to = l + 1; to < m->L; to++) {
    if (!feeds(m, l, to) || !live(m, to, microbatch)) continue;
    readers++;
    if (to >= stage->layer_begin && to < stage->layer_end) {
      sum += given_back(l, to, stash[to], outputs[to]);
    } else {
      outside++;
    }
  }
  if (all->counts[l] != outside) return wrong(m, "layer %d, microbatch %d: gradient not there", l, microbatch);
  stash[l] = readers == 0 ? mix3(99, (value)l, (value)microbatch) : sum + all->values[l];
  return true;
}

static bool run_backward_x(machine *m, int32_t rank, const motet_instruction *i) {
  const motet_program *p = m->p;
  const motet_program_stage *stage = &p->stages[i->stage];
  int64_t c = cell(m, rank, i->stage, i->microbatch);
  value *stash = m->stash + c * m->L;
  const value *outputs = m->outputs[c].values;
  bundle all = empty_bundle(m), back = empty_bundle(m);
  gather_gradients(m, rank, i->stage, i->microbatch, &all);
  if (stage->layer_begin == stage->layer_end) back = all;
  for (int32_t l = stage->layer_end - 1; l >= stage->layer_begin; l--) {
    if (!live(m, l, i->microbatch)) continue;
    if (!gradient_of(m, stage, l, i->microbatch, &all, stash, outputs)) return false;
    for (int32_t from = 0; from < l; from++) {
      if (!feeds(m, from, l) || !live(m, from, i->microbatch) ||
          (from >= stage->layer_begin && from < stage->layer_end))
        continue;
      back.values[from] += given_back(from, l, stash[l], outputs[l]);
      back.counts[from]++;
    }
  }
  /* To each source what is its own. */
  for (int32_t e = 0; e < m->E; e++) {
    if (p->edges[e].to != i->stage) continue;
    const bundle *local = &m->outputs[cell(m, rank, p->edges[e].from, i->microbatch)];
    const bundle *source = local->there ? local : &m->arrived[link_at(m, rank, e, i->microbatch)];
    bundle part = copy_bundle(m, &back);
    for (int32_t l = 0; l < m->L; l++) {
      if (source->there && source->values[l] != 0) continue;
      part.values[l] = 0;
      part.counts[l] = 0;
    }
    m->made[link_at(m, rank, e, i->microbatch)] = part;
  }
  m->x_done[c] = 1;
  return true;
}

static void run_backward_w(machine *m, int32_t rank, const motet_instruction *i) {
  const motet_program *p = m->p;
  const motet_program_stage *stage = &p->stages[i->stage];
  int64_t c = cell(m, rank, i->stage, i->microbatch);
  for (int32_t l = stage->layer_begin; l < stage->layer_end; l++) {
    if (!live(m, l, i->microbatch) || p->layer_trainable[l] == 0) continue;
    value part = contribution(l, i->microbatch, m->stash[c * m->L + l], m->outputs[c].values[l]);
    m->sums[(int64_t)rank * m->S + i->stage] += part;
    for (int32_t t = 0; t < p->tie_count; t++) {
      int32_t head = p->stages[p->ties[t].second_stage].layer_end - 1;
      if (head >= 0 && (l == head || l == p->modules[m->layer_module[head]].layer_begin))
        m->tied_sums[(int64_t)rank * (p->tie_count + 1) + t] += part;
    }
  }
}

static bool run_backward(machine *m, int32_t rank, const motet_instruction *i) {
  const motet_program *p = m->p;
  int64_t c = cell(m, rank, i->stage, i->microbatch);
  if (m->saved[c] != 1)
    return wrong(m, "stage %d, microbatch %d: saved activations not there", i->stage, i->microbatch);
  if (i->kind == MOTET_BWD_W && !m->x_done[c]) return wrong(m, "BWD_W ahead of BWD_X");
  if (i->kind != MOTET_BWD_W && m->x_done[c]) return wrong(m, "a second backward");
  if (i->kind != MOTET_BWD_W && !run_backward_x(m, rank, i)) return false;
  if (i->kind != MOTET_BWD_X) run_backward_w(m, rank, i);
  bool more = false; /* another half to come keeps the saved activations */
  for (int64_t j = m->position[rank] + 1; j < p->rank_begin[rank + 1] - p->rank_begin[rank]; j++) {
    const motet_instruction *other = &p->instructions[p->rank_begin[rank] + j];
    more = more || (other->kind == MOTET_BWD_W && i->kind == MOTET_BWD_X && other->stage == i->stage &&
                    other->microbatch == i->microbatch);
  }
  if (!more) m->saved[c] = 0;
  return true;
}

static bool run_saved(machine *m, int32_t rank, const motet_instruction *i) {
  uint8_t *saved = &m->saved[cell(m, rank, i->stage, i->microbatch)];
  static const struct {
    uint8_t from, to;
  } moves[MOTET_INSTRUCTION_KINDS] = {[MOTET_RECOMPUTE] = {2, 1}, [MOTET_OFFLOAD] = {1, 3}, [MOTET_FETCH] = {3, 1}};
  if (*saved != moves[i->kind].from) return wrong(m, "saved activations are elsewhere");
  *saved = moves[i->kind].to;
  return true;
}

static int64_t right_bytes(const machine *m, const motet_buffer *b) {
  const motet_size_table *sizes = &m->p->output_bytes;
  return sizes->values == NULL
             ? 0
             : sizes->values[b->stage * sizes->stage_stride + b->microbatch * sizes->microbatch_stride];
}

static bool run_post(machine *m, int32_t rank, const motet_instruction *i) {
  const motet_buffer *b = &m->p->buffers[i->buffer];
  post entry = {.buffer = i->buffer};
  if (i->peer == rank) return wrong(m, "a transfer with oneself");
  if (b->bytes != right_bytes(m, b)) return wrong(m, "a transfer of wrong size");
  if (i->kind == MOTET_RECV) {
    if (!MT_ARRAY_PUSH(&m->receives[i->peer * m->R + rank], entry)) abort();
    return true;
  }
  bool gradient = b->kind == MOTET_BUFFER_GRADIENT;
  const bundle *content = gradient ? &m->made[link_at(m, rank, b->edge, b->microbatch)]
                                   : &m->outputs[cell(m, rank, b->stage, b->microbatch)];
  if (!content->there) return wrong(m, "SEND of what is not there");
  entry.content = copy_bundle(m, content);
  if (!MT_ARRAY_PUSH(&m->sends[rank * m->R + i->peer], entry)) abort();
  return true;
}

/* 1: done, 0: must wait, -1: wrong. */
static int run_wait(machine *m, int32_t rank, const motet_instruction *i) {
  bool receives = (i->flags & MOTET_FLAG_RECV) != 0;
  posts *own = receives ? &m->receives[i->peer * m->R + rank] : &m->sends[rank * m->R + i->peer];
  posts *other = receives ? &m->sends[i->peer * m->R + rank] : &m->receives[rank * m->R + i->peer];
  size_t k = 0;
  while (k < own->count && (own->data[k].buffer != i->buffer || own->data[k].waited)) k++;
  if (k == own->count) return wrong(m, "WAIT for nothing") ? 1 : -1;
  if (k >= other->count) return 0;
  if (other->data[k].buffer != i->buffer) return wrong(m, "transfers cross on a channel") ? 1 : -1;
  own->data[k].waited = true;
  if (!receives) return 1;
  const motet_buffer *b = &m->p->buffers[i->buffer];
  bundle *target = b->kind == MOTET_BUFFER_GRADIENT ? &m->returned[link_at(m, rank, b->edge, b->microbatch)]
                                                    : &m->arrived[link_at(m, rank, b->edge, b->microbatch)];
  *target = other->data[k].content;
  return 1;
}

/* Behind the optimizer each member of a scattered stage's group has new weights in its own part alone. */
static bool finish_gather(machine *m, const motet_instruction *i) {
  const motet_program *p = m->p;
  const motet_buffer *b = &p->buffers[i->buffer];
  for (int32_t j = 0; j < p->groups[i->peer].count; j++) {
    int32_t rank = p->group_ranks[p->groups[i->peer].first + j];
    if (b->kind == MOTET_BUFFER_PARAMETER && m->optimizers[rank] > 0)
      m->scattered[(int64_t)rank * m->S + b->stage] = 0;
  }
  return true;
}

/* All members are there: what the collective does to the sums. */
static bool finish_collective(machine *m, const motet_instruction *i) {
  const motet_program *p = m->p;
  motet_group group = p->groups[i->peer];
  value sum = 0, *of = NULL;
  if (i->kind == MOTET_ALL_GATHER) return finish_gather(m, i);
  if (i->kind != MOTET_ALL_REDUCE && i->kind != MOTET_REDUCE_SCATTER) return true;
  const motet_buffer *b = &p->buffers[i->buffer];
  bool tied = b->kind == MOTET_BUFFER_TIED_GRADIENT;
  if (!tied && b->kind != MOTET_BUFFER_WEIGHT_GRADIENT) return true;
  if (tied && b->bytes != p->ties[b->edge].bytes) return wrong(m, "a reduce of wrong size");
  for (int round = 0; round < 2; round++) {
    for (int32_t j = 0; j < group.count; j++) {
      int32_t rank = p->group_ranks[group.first + j];
      of = tied ? &m->tied_sums[(int64_t)rank * (p->tie_count + 1) + b->edge]
                : &m->sums[(int64_t)rank * m->S + b->stage];
      if (round == 0) sum += *of;
      if (round == 1) *of = sum;
      if (round == 1 && !tied && i->kind == MOTET_REDUCE_SCATTER) m->scattered[(int64_t)rank * m->S + b->stage] = 1;
    }
  }
  return true;
}

static int run_collective(machine *m, int32_t rank, const motet_instruction *i) {
  const motet_program *p = m->p;
  int32_t group = i->peer;
  if (!has(p, group, rank)) return wrong(m, "not a member") ? 1 : -1;
  if (i->kind == MOTET_STEP_END && group != 0) return wrong(m, "an end of some ranks") ? 1 : -1;
  if (m->joined[rank] == m->position[rank]) return 0;
  if (m->arrivals[group] == 0) m->leader[group] = rank;
  int32_t leader = m->leader[group];
  const motet_instruction *first = &p->instructions[p->rank_begin[leader] + m->position[leader]];
  bool same = first->kind == i->kind && (i->kind == MOTET_STEP_END || first->buffer == i->buffer);
  if (!same) return wrong(m, "collectives differ") ? 1 : -1;
  m->joined[rank] = m->position[rank];
  if (++m->arrivals[group] < p->groups[group].count) return 0;
  m->arrivals[group] = 0;
  if (!finish_collective(m, i)) return -1;
  for (int32_t j = 0; j < p->groups[group].count; j++) {
    int32_t member = p->group_ranks[p->groups[group].first + j];
    if (member != rank) m->position[member]++;
    if (i->kind == MOTET_STEP_END) m->ended[member] = 1;
  }
  return 1;
}

static bool check_sums(machine *m, int32_t rank) {
  const motet_program *p = m->p;
  for (int32_t s = 0; s < m->S; s++) {
    if (m->ended[rank] && m->scattered[(int64_t)rank * m->S + s])
      return wrong(m, "rank %d: the new weights of stage %d are not gathered", rank, s);
    if (has(p, p->stages[s].group, rank) && m->sums[(int64_t)rank * m->S + s] != m->weights[s])
      return wrong(m, "rank %d: gradients of stage %d are not the sum", rank, s);
  }
  for (int32_t t = 0; t < p->tie_count; t++) {
    const motet_tie *tie = &p->ties[t];
    bool holder =
        has(p, p->stages[tie->first_stage].group, rank) || has(p, p->stages[tie->second_stage].group, rank);
    if (holder && tie->first_stage != tie->second_stage &&
        m->tied_sums[(int64_t)rank * (p->tie_count + 1) + t] != m->tied[t])
      return wrong(m, "rank %d: the shared gradient is not the sum", rank);
  }
  return true;
}

/* 1: passed, 0: must wait, -1: wrong. */
static int run_instruction(machine *m, int32_t rank, const motet_instruction *i) {
  if (m->ended[rank]) return wrong(m, "work behind the end") ? 1 : -1;
  switch (i->kind) {
  case MOTET_FWD: return run_forward(m, rank, i) ? 1 : -1;
  case MOTET_BWD:
  case MOTET_BWD_X:
  case MOTET_BWD_W: return run_backward(m, rank, i) ? 1 : -1;
  case MOTET_RECOMPUTE:
  case MOTET_OFFLOAD:
  case MOTET_FETCH: return run_saved(m, rank, i) ? 1 : -1;
  case MOTET_SEND:
  case MOTET_RECV: return run_post(m, rank, i) ? 1 : -1;
  case MOTET_WAIT: return run_wait(m, rank, i);
  case MOTET_LOAD:
    if (!here(m, rank, i)) return -1;
    ((i->flags & MOTET_FLAG_NEXT) != 0 ? m->next_loaded : m->loaded)[cell(m, rank, i->stage, i->microbatch)] = 1;
    return 1;
  case MOTET_OPTIM: m->optimizers[rank]++; return check_sums(m, rank) ? 1 : -1;
  default: return run_collective(m, rank, i);
  }
}

static bool is_joined(const motet_instruction *i) { return (i->flags & MOTET_FLAG_JOINED) != 0; }

/* The members of a run are of one kind, stage and step, whole, and the forward ran as they do. */
static bool check_run(machine *m, int32_t rank, const motet_instruction *run, int64_t count) {
  const motet_program *p = m->p;
  const motet_instruction *forward = NULL;
  int32_t forward_rank = 0;
  for (int64_t k = 1; k < count; k++) {
    if (run->kind > MOTET_RECOMPUTE || run[k].kind != run->kind || run[k].stage != run->stage ||
        run[k].range != 0 || run->range != 0 || ((run[k].flags ^ run->flags) & MOTET_FLAG_NEXT) != 0)
      return wrong(m, "rank %d: what is joined is not one computation", rank);
    for (int64_t j = 0; j < k; j++)
      if (run[j].microbatch == run[k].microbatch) return wrong(m, "a microbatch joined with itself");
  }
  if (run->kind == MOTET_FWD || run->kind > MOTET_RECOMPUTE) return true;
  for (int32_t r = 0; r < m->R; r++)
    for (int64_t i = p->rank_begin[r]; i < p->rank_begin[r + 1]; i++) {
      const motet_instruction *x = &p->instructions[i];
      if (x->kind != MOTET_FWD || x->stage != run->stage || x->microbatch != run->microbatch) continue;
      if ((x->flags & MOTET_FLAG_NEXT) != 0) continue;
      forward = x;
      forward_rank = r;
    }
  if (forward == NULL) return true; /* a backward without forward finds nothing saved */
  if (forward > p->instructions + p->rank_begin[forward_rank] && is_joined(forward - 1))
    return wrong(m, "a backward begins inside of its forward's run");
  for (int64_t k = 0; k < count; k++) {
    if (forward + k >= p->instructions + p->rank_begin[forward_rank + 1] ||
        forward[k].microbatch != run[k].microbatch || is_joined(&forward[k]) != is_joined(&run[k]))
      return wrong(m, "what went forward together does not go back together");
  }
  return true;
}

/* One step: an instruction, or a run of joined ones. 1: passed, 0: must wait, -1: wrong. */
static int run_step(machine *m, int32_t rank) {
  const motet_program *p = m->p;
  const motet_instruction *list = &p->instructions[p->rank_begin[rank]], *run = &list[m->position[rank]];
  int64_t length = p->rank_begin[rank + 1] - p->rank_begin[rank], left = length - m->position[rank], count = 1;
  while (count <= left && is_joined(&run[count - 1])) count++;
  if (count > left) return wrong(m, "rank %d: joined with nothing", rank) ? 1 : -1;
  for (int64_t k = 0; k < count; k++)
    if (!machine_check_instruction(m, &run[k])) return -1;
  if (!check_run(m, rank, run, count)) return -1;
  for (int64_t k = 0; k < count; k++) {
    int passed = run_instruction(m, rank, &run[k]);
    if (passed != 1) return passed;
    m->position[rank]++;
  }
  return 1;
}

static void run_all(machine *m) {
  const motet_program *p = m->p;
  for (bool moved = true; moved && !m->bad;) {
    moved = false;
    for (int32_t rank = 0; rank < m->R && !m->bad; rank++) {
      int64_t length = p->rank_begin[rank + 1] - p->rank_begin[rank];
      while (m->position[rank] < length) {
        if (run_step(m, rank) != 1) break;
        moved = true;
      }
    }
  }
}

/* ---- The end ---- */

static void check_posts(machine *m) {
  for (int32_t channel = 0; channel < m->R * m->R; channel++) {
    const posts *all[] = {&m->sends[channel], &m->receives[channel]};
    if (all[0]->count != all[1]->count) wrong(m, "unmatched transfers");
    for (int k = 0; k < 2; k++) {
      for (size_t i = 0; i < all[k]->count; i++) {
        if (!all[k]->data[i].waited) wrong(m, "a transfer that nobody waited for");
      }
    }
  }
}

/* Rule 7's order that no value shows: no gradient may still go out behind a reduce. */
static void check_reduces_last(machine *m) {
  const motet_program *p = m->p;
  for (int32_t rank = 0; rank < m->R; rank++) {
    bool reduced = false;
    for (int64_t i = p->rank_begin[rank]; i < p->rank_begin[rank + 1]; i++) {
      const motet_instruction *x = &p->instructions[i];
      reduced = reduced || x->kind == MOTET_ALL_REDUCE;
      if (reduced && x->kind == MOTET_SEND && p->buffers[x->buffer].kind == MOTET_BUFFER_GRADIENT)
        wrong(m, "a reduce ahead of a gradient");
    }
  }
}

static void check_end(machine *m) {
  const motet_program *p = m->p;
  for (int32_t rank = 0; rank < m->R; rank++) {
    if (m->position[rank] < p->rank_begin[rank + 1] - p->rank_begin[rank]) wrong(m, "rank %d hangs", rank);
    if (!m->ended[rank]) wrong(m, "rank %d does not end", rank);
    bool trains = false;
    for (int32_t l = 0; l < m->L; l++)
      trains = trains || (p->layer_trainable[l] != 0 && has(p, p->stages[m->layer_stage[l]].group, rank));
    if (trains && m->optimizers[rank] != 1) wrong(m, "rank %d: one OPTIM is needed", rank);
    if (m->optimizers[rank] > 1) wrong(m, "rank %d: a second OPTIM", rank);
    check_sums(m, rank);
  }
  for (int32_t i = 0; i < m->M; i++) {
    for (int32_t l = 0; l < m->L; l++) {
      if (m->forwards[(int64_t)i * m->L + l] != (live(m, l, i) ? 1 : 0)) wrong(m, "layer %d not computed once", l);
    }
  }
  check_posts(m);
  check_reduces_last(m);
  if (m->bad || p->memory_cap == 0) return;
  motet_rank_memory *memory = TAKE(m, motet_rank_memory, m->R);
  program_peaks(p, memory);
  for (int32_t rank = 0; rank < m->R; rank++) {
    if (memory[rank].peak_bytes > p->memory_cap) wrong(m, "rank %d is over the cap", rank);
  }
}

static void take_state(machine *m) {
  const motet_program *p = m->p;
  m->forward = TAKE(m, value, m->M * m->L);
  m->gradient = TAKE(m, value, m->M * m->L);
  m->weights = TAKE(m, value, m->S);
  m->tied = TAKE(m, value, p->tie_count);
  m->outputs = TAKE(m, bundle, m->R * m->S * m->M);
  m->arrived = TAKE(m, bundle, m->R * m->E * m->M);
  m->made = TAKE(m, bundle, m->R * m->E * m->M);
  m->returned = TAKE(m, bundle, m->R * m->E * m->M);
  m->stash = TAKE(m, value, m->R * m->S * m->M * m->L);
  m->saved = TAKE(m, uint8_t, m->R * m->S * m->M);
  m->loaded = TAKE(m, uint8_t, m->R * m->S * m->M);
  m->x_done = TAKE(m, uint8_t, m->R * m->S * m->M);
  m->next_loaded = TAKE(m, uint8_t, m->R * m->S * m->M);
  m->sums = TAKE(m, value, m->R * m->S);
  m->scattered = TAKE(m, uint8_t, m->R * m->S);
  m->tied_sums = TAKE(m, value, m->R * (p->tie_count + 1));
  m->forwards = TAKE(m, int32_t, m->M * m->L);
  m->sends = TAKE(m, posts, m->R * m->R);
  m->receives = TAKE(m, posts, m->R * m->R);
  m->position = TAKE(m, int64_t, m->R);
  m->optimizers = TAKE(m, int32_t, m->R);
  m->ended = TAKE(m, int32_t, m->R);
  m->arrivals = TAKE(m, int32_t, p->group_count);
  m->leader = TAKE(m, int32_t, p->group_count);
  m->joined = TAKE(m, int64_t, m->R);
  for (int32_t rank = 0; rank < m->R; rank++) m->joined[rank] = -1;
}

static void start_carried(machine *m) {
  const motet_program *p = m->p;
  for (int32_t k = 0; k < p->carried_count; k++) {
    motet_carried entry = p->carried[k];
    motet_instruction as = {.kind = MOTET_FWD, .stage = entry.stage, .microbatch = entry.microbatch};
    if (!here(m, entry.rank, &as)) return;
    bundle out = empty_bundle(m);
    for (int32_t l = p->stages[entry.stage].layer_begin; l < p->stages[entry.stage].layer_end; l++) {
      if (!live(m, l, entry.microbatch)) continue;
      out.values[l] = m->forward[(int64_t)entry.microbatch * m->L + l];
      m->forwards[(int64_t)entry.microbatch * m->L + l]++;
    }
    m->outputs[cell(m, entry.rank, entry.stage, entry.microbatch)] = out;
  }
}

bool program_runs(const motet_program *p, char reason[RUN_REASON_SIZE]) {
  machine m = {.p = p,
               .reason = reason,
               .L = p->layer_count,
               .S = p->stage_count,
               .M = p->microbatch_count,
               .E = p->edge_count,
               .R = p->ranks};
  reason[0] = '\0';
  if (machine_check_tables(&m)) {
    take_state(&m);
    machine_work_out(&m);
    start_carried(&m);
    run_all(&m);
    if (!m.bad) check_end(&m);
    for (int32_t i = 0; i < m.R * m.R; i++) {
      free(m.sends[i].data);
      free(m.receives[i].data);
    }
  }
  for (size_t i = 0; i < m.memory.count; i++) free(m.memory.data[i]);
  free(m.memory.data);
  return !m.bad;
}
