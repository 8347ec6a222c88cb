#include "program_machine.h"

/* ---- Tables: what cannot even be looked up ---- */

static bool check_entries(machine *m) {
  const motet_program *p = m->p;
  int32_t next = 0;
  for (int32_t i = 0; i < p->module_count; i++) {
    if (p->modules[i].layer_begin != next || p->modules[i].layer_end <= next)
      return wrong(m, "modules do not tile");
    next = p->modules[i].layer_end;
  }
  if (next != p->layer_count) return wrong(m, "modules do not tile");
  for (int32_t i = 0; i < p->module_edge_count; i++) {
    if (!inside(p->module_edges[i].from, p->module_edges[i].to) || !inside(p->module_edges[i].to, p->module_count))
      return wrong(m, "a module edge leads nowhere");
  }
  for (int32_t i = 0; i < p->microbatch_count; i++) {
    if (!inside(p->microbatches[i].replica, p->replicas)) return wrong(m, "no such replica");
  }
  for (int32_t i = 0; i < p->group_count; i++) {
    motet_group group = p->groups[i];
    if (group.count < 1 || group.first < 0 || group.first + group.count > p->group_rank_count)
      return wrong(m, "broken group");
    for (int32_t j = 0; j < group.count; j++) {
      int32_t rank = p->group_ranks[group.first + j];
      if (!inside(rank, p->ranks)) return wrong(m, "a group with no rank");
      for (int32_t k = 0; k < j; k++) {
        if (p->group_ranks[group.first + k] == rank) return wrong(m, "a group with a rank twice");
      }
    }
  }
  if (p->groups[0].count != p->ranks) return wrong(m, "group 0 lacks ranks");
  for (int32_t i = 0; i < p->stage_count; i++) {
    const motet_program_stage *stage = &p->stages[i];
    if (!inside(stage->region, p->region_count) || !inside(stage->group, p->group_count) ||
        stage->layer_begin < 0 || stage->layer_begin > stage->layer_end || stage->layer_end > p->layer_count)
      return wrong(m, "broken stage");
  }
  for (int32_t i = 0; i < p->edge_count; i++) {
    if (!inside(p->edges[i].from, p->edges[i].to) || !inside(p->edges[i].to, p->stage_count))
      return wrong(m, "an edge leads nowhere");
  }
  for (int32_t i = 0; i < p->tie_count; i++) {
    if (!inside(p->ties[i].first_stage, p->stage_count) || !inside(p->ties[i].second_stage, p->stage_count))
      return wrong(m, "a tie holds nothing");
  }
  for (int32_t i = 0; i < p->carried_count; i++) {
    if (!inside(p->carried[i].stage, p->stage_count) || !inside(p->carried[i].microbatch, p->microbatch_count) ||
        !inside(p->carried[i].rank, p->ranks))
      return wrong(m, "carried nowhere");
  }
  return true;
}

bool machine_check_instruction(machine *m, const motet_instruction *i) {
  const motet_program *p = m->p;
  bool transfer = i->kind >= MOTET_SEND && i->kind <= MOTET_WAIT;
  bool collective = (i->kind >= MOTET_REDUCE && i->kind <= MOTET_ALL_REDUCE) || i->kind == MOTET_STEP_END;
  bool compute = i->kind <= MOTET_RECOMPUTE || (i->kind >= MOTET_OFFLOAD && i->kind <= MOTET_LOAD);
  if (i->kind >= MOTET_INSTRUCTION_KINDS) return wrong(m, "no such kind");
  if ((compute || transfer) && (!inside(i->stage, m->S) || !inside(i->microbatch, m->M)))
    return wrong(m, "no such stage or microbatch");
  if (transfer && !inside(i->peer, m->R)) return wrong(m, "no such peer");
  if (collective && !inside(i->peer, p->group_count)) return wrong(m, "no such group");
  if (!transfer && (!collective || i->kind == MOTET_STEP_END)) return true;
  if (!inside(i->buffer, p->buffer_count)) return wrong(m, "no such buffer");
  const motet_buffer *b = &p->buffers[i->buffer];
  bool travels = b->kind == MOTET_BUFFER_ACTIVATION || b->kind == MOTET_BUFFER_GRADIENT;
  if (transfer && (!travels || !inside(b->edge, m->E) || !inside(b->microbatch, m->M)))
    return wrong(m, "a transfer of nothing");
  if (transfer && (b->microbatch != i->microbatch || i->stage != p->edges[b->edge].from || b->stage != i->stage))
    return wrong(m, "a transfer that contradicts its buffer");
  if (collective && travels) return wrong(m, "a collective of activations");
  if (collective && b->kind == MOTET_BUFFER_TIED_GRADIENT ? !inside(b->edge, p->tie_count)
                                                          : collective && !inside(b->stage, m->S))
    return wrong(m, "a collective of nothing");
  return true;
}

/* Layers to modules and stages; every layer must be in one stage. */
static bool place_layers(machine *m) {
  const motet_program *p = m->p;
  m->layer_module = TAKE(m, int32_t, m->L);
  m->layer_stage = TAKE(m, int32_t, m->L);
  for (int32_t i = 0; i < p->module_count; i++) {
    for (int32_t l = p->modules[i].layer_begin; l < p->modules[i].layer_end; l++) m->layer_module[l] = i;
  }
  for (int32_t l = 0; l < m->L; l++) {
    int32_t holders = 0;
    for (int32_t s = 0; s < m->S; s++) {
      if (l < p->stages[s].layer_begin || l >= p->stages[s].layer_end) continue;
      m->layer_stage[l] = s;
      holders++;
    }
    if (holders != 1) return wrong(m, "layer %d is in %d stages", l, holders);
  }
  return true;
}

bool machine_check_tables(machine *m) { return check_entries(m) && place_layers(m); }

/* ---- What must come out ---- */

void machine_work_out(machine *m) {
  const motet_program *p = m->p;
  for (int32_t microbatch = 0; microbatch < m->M; microbatch++) {
    value *forward = m->forward + (int64_t)microbatch * m->L, *gradient = m->gradient + (int64_t)microbatch * m->L;
    bool missing = false;
    for (int32_t l = 0; l < m->L; l++) {
      if (live(m, l, microbatch))
        forward[l] = value_of(l, microbatch, input_of(m, l, microbatch, forward, &missing));
    }
    for (int32_t l = m->L - 1; l >= 0; l--) {
      if (!live(m, l, microbatch)) continue;
      bool last = true;
      for (int32_t to = l + 1; to < m->L; to++) {
        if (!feeds(m, l, to) || !live(m, to, microbatch)) continue;
        last = false;
        gradient[l] += given_back(l, to, gradient[to], forward[to]);
      }
      if (last) gradient[l] = mix3(99, (value)l, (value)microbatch);
      if (p->layer_trainable[l] == 0) continue;
      value part = contribution(l, microbatch, gradient[l], forward[l]);
      if (m->layer_stage[l] >= 0) m->weights[m->layer_stage[l]] += part;
      for (int32_t t = 0; t < p->tie_count; t++) {
        int32_t head = p->stages[p->ties[t].second_stage].layer_end - 1;
        if (head >= 0 && (l == head || l == p->modules[m->layer_module[head]].layer_begin)) m->tied[t] += part;
      }
    }
  }
}
