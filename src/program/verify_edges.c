/* Whether the stage edges say what the modules say: the data that must flow from stage to stage, no more, no less.
 * Stages without layers pass their input on, so that a flow may lead through several of them. */
#include "program/verify.h"

static motet_status list_edges(mt_verifier *verifier) {
  const motet_program *p = verifier->program;
  if (mt_verify_lists_start(verifier, &verifier->in_edges, p->stage_count) != MOTET_OK ||
      mt_verify_lists_start(verifier, &verifier->out_edges, p->stage_count) != MOTET_OK)
    return MOTET_ERROR_MEMORY;
  for (int32_t i = 0; i < p->edge_count; i++) {
    mt_verify_lists_count(&verifier->in_edges, p->edges[i].to);
    mt_verify_lists_count(&verifier->out_edges, p->edges[i].from);
  }
  if (mt_verify_lists_room(verifier, &verifier->in_edges, p->stage_count) != MOTET_OK ||
      mt_verify_lists_room(verifier, &verifier->out_edges, p->stage_count) != MOTET_OK)
    return MOTET_ERROR_MEMORY;
  for (int32_t i = 0; i < p->edge_count; i++) {
    mt_verify_lists_add(&verifier->in_edges, p->edges[i].to, i);
    mt_verify_lists_add(&verifier->out_edges, p->edges[i].from, i);
  }
  return MOTET_OK;
}

/* The flows that the statement asks for, by producing stage: from a layer to the next of its module, and along
 * the module edges; those inside one stage left out. A flow may be listed twice. */
static motet_status list_flows(mt_verifier *verifier, mt_verify_lists *flows) {
  const motet_program *p = verifier->program;
  const int32_t *stage = verifier->layer_stage;
  if (mt_verify_lists_start(verifier, flows, p->stage_count) != MOTET_OK) return MOTET_ERROR_MEMORY;
  for (int round = 0; round < 2; round++) {
    if (round == 1 && mt_verify_lists_room(verifier, flows, p->stage_count) != MOTET_OK) return MOTET_ERROR_MEMORY;
    for (int32_t i = 0; i < p->module_count + p->module_edge_count; i++) {
      bool inside = i < p->module_count;
      const motet_module_edge *edge = inside ? NULL : &p->module_edges[i - p->module_count];
      int32_t from = inside ? p->modules[i].layer_begin : p->modules[edge->from].layer_end - 1;
      int32_t count = inside ? p->modules[i].layer_end - 1 - from : 1;
      for (int32_t j = from; j < from + count; j++) {
        int32_t to = inside ? j + 1 : p->modules[edge->to].layer_begin;
        if (stage[j] == stage[to]) continue;
        if (round == 0) {
          mt_verify_lists_count(flows, stage[j]);
        } else {
          mt_verify_lists_add(flows, stage[j], stage[to]);
        }
      }
    }
  }
  return MOTET_OK;
}

typedef struct search {
  mt_verifier *verifier;
  int32_t *wanted;  /* [stages] source + 1 where the source's output must arrive */
  int32_t *reached; /* [stages] source + 1 where it does */
  int32_t *stack;   /* [stages] */
} search;

static bool is_empty(const motet_program_stage *stage) { return stage->layer_begin == stage->layer_end; }

/* Follows the edges out of @p source through empty stages. */
static motet_status follow_flows(search *s, int32_t source) {
  mt_verifier *verifier = s->verifier;
  const motet_program *p = verifier->program;
  int32_t depth = 0;
  s->stack[depth++] = source;
  while (depth > 0) {
    int32_t from = s->stack[--depth];
    for (int64_t i = verifier->out_edges.begin[from]; i < verifier->out_edges.begin[from + 1]; i++) {
      int32_t edge = verifier->out_edges.items[i], to = p->edges[edge].to;
      if (s->reached[to] == source + 1)
        return mt_verify_refuse_entry(verifier, MT_RULE_COMPLETENESS, "edges", edge,
                                      "the output of stage %d reaches stage %d twice: there must be one way",
                                      source, to);
      s->reached[to] = source + 1;
      if (is_empty(&p->stages[to])) {
        s->stack[depth++] = to;
      } else if (s->wanted[to] != source + 1) {
        return mt_verify_refuse_entry(
            verifier, MT_RULE_COMPLETENESS, "edges", edge,
            "brings the output of stage %d to stage %d, and no module edge or layer order "
            "asks for that",
            source, to);
      }
    }
  }
  return MOTET_OK;
}

static motet_status compare_flows(mt_verifier *verifier) {
  const motet_program *p = verifier->program;
  mt_verify_lists flows;
  search s = {.verifier = verifier};
  s.wanted = mt_verify_array(verifier, (size_t)p->stage_count, sizeof *s.wanted);
  s.reached = mt_verify_array(verifier, (size_t)p->stage_count, sizeof *s.reached);
  s.stack = mt_verify_array(verifier, (size_t)p->stage_count + 1, sizeof *s.stack);
  if (s.wanted == NULL || s.reached == NULL || s.stack == NULL || list_flows(verifier, &flows) != MOTET_OK)
    return MOTET_ERROR_MEMORY;
  for (int32_t source = 0; source < p->stage_count; source++) {
    if (is_empty(&p->stages[source])) continue;
    for (int64_t i = flows.begin[source]; i < flows.begin[source + 1]; i++) s.wanted[flows.items[i]] = source + 1;
    motet_status status = follow_flows(&s, source);
    if (status != MOTET_OK) return status;
    for (int64_t i = flows.begin[source]; i < flows.begin[source + 1]; i++) {
      int32_t to = flows.items[i];
      if (s.reached[to] != source + 1)
        return mt_verify_refuse_entry(verifier, MT_RULE_COMPLETENESS, "stages", to,
                                      "needs the output of stage %d, and no edge brings it", source);
    }
  }
  return MOTET_OK;
}

/* Stages without layers stand in the chain of their region's slabs. */
static motet_status check_empty_stages(mt_verifier *verifier) {
  const motet_program *p = verifier->program;
  int32_t *last_slab = mt_verify_array(verifier, (size_t)p->region_count, sizeof *last_slab);
  if (last_slab == NULL) return MOTET_ERROR_MEMORY;
  for (int32_t i = 0; i < p->stage_count; i++) {
    int32_t *last = &last_slab[p->stages[i].region];
    if (p->stages[i].slab > *last) *last = p->stages[i].slab;
  }
  for (int32_t i = 0; i < p->stage_count; i++) {
    const motet_program_stage *stage = &p->stages[i];
    if (!is_empty(stage)) continue;
    const int64_t *in = &verifier->in_edges.begin[i], *out = &verifier->out_edges.begin[i];
    const motet_program_stage *before =
        in[1] > in[0] ? &p->stages[p->edges[verifier->in_edges.items[in[0]]].from] : NULL;
    const motet_program_stage *after =
        out[1] > out[0] ? &p->stages[p->edges[verifier->out_edges.items[out[0]]].to] : NULL;
    bool chained = stage->slab == 0 ||
                   (in[1] - in[0] == 1 && before->region == stage->region && before->slab == stage->slab - 1);
    if (stage->slab < last_slab[stage->region])
      chained = chained && out[1] - out[0] == 1 && after->region == stage->region && after->slab == stage->slab + 1;
    if (!chained)
      return mt_verify_refuse_entry(verifier, MT_RULE_COMPLETENESS, "stages", i,
                                    "has no layers and must pass its input from slab %d of its region to slab %d",
                                    stage->slab - 1, stage->slab + 1);
    for (int64_t j = in[0]; j < in[1]; j++) {
      int32_t from = p->edges[verifier->in_edges.items[j]].from;
      if (p->stages[from].layer_end > stage->layer_begin)
        return mt_verify_refuse_entry(
            verifier, MT_RULE_COMPLETENESS, "stages", i,
            "has no layers, stands at layer %d and cannot get the output of stage %d, which "
            "ends at layer %d",
            stage->layer_begin, from, p->stages[from].layer_end);
    }
  }
  return MOTET_OK;
}

/* The gates: weight gradients where a layer trains, input gradients where one trains before the stage. Edges go
 * up, so that one sweep sees producers first. */
static void work_out_gates(mt_verifier *verifier) {
  const motet_program *p = verifier->program;
  for (int32_t i = 0; i < p->stage_count; i++) {
    bool before = false;
    for (int64_t j = verifier->in_edges.begin[i]; j < verifier->in_edges.begin[i + 1]; j++)
      before = before || verifier->upstream[p->edges[verifier->in_edges.items[j]].from] != 0;
    verifier->upstream[i] = before || verifier->trainable[i] != 0;
    verifier->asks[i] =
        (uint8_t)((verifier->trainable[i] != 0 ? MT_ASKS_WEIGHTS : 0) | (before ? MT_ASKS_INPUTS : 0));
  }
}

motet_status mt_verify_edges(mt_verifier *verifier) {
  motet_status status = list_edges(verifier);
  if (status == MOTET_OK) status = compare_flows(verifier);
  if (status == MOTET_OK) status = check_empty_stages(verifier);
  if (status == MOTET_OK) work_out_gates(verifier);
  return status;
}
