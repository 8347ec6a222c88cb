/* Whether the stage edges say what the modules say: the data that must flow from stage to stage, no more, no less.
 * Stages without layers pass their input on, so that a flow may lead through several of them. */
#include "program/verify.h"

#include <stdlib.h>

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
 * the module edges; those inside one stage left out. */
typedef struct flows {
  mt_verify_lists by_stage; /* index in the arrays */
  int32_t *to;              /* consuming stage */
  uint64_t *ends;           /* the modules of the two layers */
  int32_t count;
} flows;

/* Visits every flow: counts it, or lists it. */
static void visit_flows(const mt_verifier *verifier, flows *all, bool list) {
  const motet_program *p = verifier->program;
  const int32_t *stage = verifier->layer_stage;
  all->count = 0;
  for (int32_t i = 0; i < p->module_count + p->module_edge_count; i++) {
    bool inside = i < p->module_count;
    const motet_module_edge *edge = inside ? NULL : &p->module_edges[i - p->module_count];
    int32_t from = inside ? p->modules[i].layer_begin : p->modules[edge->from].layer_end - 1;
    int32_t count = inside ? p->modules[i].layer_end - 1 - from : 1;
    for (int32_t j = from; j < from + count; j++) {
      int32_t to = inside ? j + 1 : p->modules[edge->to].layer_begin;
      if (stage[j] == stage[to]) continue;
      if (list) {
        all->to[all->count] = stage[to];
        all->ends[all->count] = inside ? UINT64_C(1) << i : UINT64_C(1) << edge->from | UINT64_C(1) << edge->to;
        mt_verify_lists_add(&all->by_stage, stage[j], all->count);
      } else {
        mt_verify_lists_count(&all->by_stage, stage[j]);
      }
      all->count++;
    }
  }
}

static motet_status list_flows(mt_verifier *verifier, flows *all) {
  int32_t stages = verifier->program->stage_count;
  if (mt_verify_lists_start(verifier, &all->by_stage, stages) != MOTET_OK) return MOTET_ERROR_MEMORY;
  visit_flows(verifier, all, false);
  all->to = mt_verify_array(verifier, (size_t)all->count, sizeof *all->to);
  all->ends = mt_verify_array(verifier, (size_t)all->count, sizeof *all->ends);
  if (all->to == NULL || all->ends == NULL || mt_verify_lists_room(verifier, &all->by_stage, stages) != MOTET_OK)
    return MOTET_ERROR_MEMORY;
  visit_flows(verifier, all, true);
  return MOTET_OK;
}

/* What passes an empty stage. */
typedef struct passage {
  int32_t stage;
  uint64_t ends;
} passage;

typedef struct search {
  mt_verifier *verifier;
  flows flows;
  int32_t *wanted;                 /* [stages] source + 1 where the source's output must arrive */
  int32_t *reached;                /* [stages] source + 1 where it does, ... */
  int32_t *before;                 /* ... and from which stage */
  int32_t *stack;                  /* [stages] */
  int32_t *visited, visited_count; /* [stages] all that it reaches */
  MT_ARRAY(passage) passages;
} search;

/* Follows the edges out of @p source through empty stages. */
static motet_status follow_flows(search *s, int32_t source) {
  mt_verifier *verifier = s->verifier;
  const motet_program *p = verifier->program;
  bool from_empty = mt_verify_empty(verifier, source);
  int32_t depth = 0;
  s->visited_count = 0;
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
      s->before[to] = from;
      s->visited[s->visited_count++] = to;
      if (mt_verify_empty(verifier, to)) {
        s->stack[depth++] = to;
      } else if (s->wanted[to] != source + 1 && !from_empty) {
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

/* Notes on all empty stages between @p source and @p end, both left out where they have layers, what passes. */
static motet_status note_passage(search *s, int32_t source, int32_t end, uint64_t ends) {
  for (int32_t stage = end;; stage = s->before[stage]) {
    passage entry = {stage, ends};
    if (mt_verify_empty(s->verifier, stage) && !MT_ARRAY_PUSH(&s->passages, entry))
      return mt_error_memory(s->verifier->error, s->passages.count * sizeof entry, "stages without layers");
    if (stage == source) return MOTET_OK;
  }
}

static uint64_t module_of_layer(const mt_verifier *verifier, int32_t layer) {
  int32_t module = 0;
  while (verifier->program->modules[module].layer_end <= layer) module++;
  return UINT64_C(1) << module;
}

/* The flows out of a stage with layers: each arrives. What ends in an empty stage passes it all the same: the
 * region's last slab may be one. */
static motet_status judge_flows(search *s, int32_t source) {
  mt_verifier *verifier = s->verifier;
  const motet_program *p = verifier->program;
  const int64_t *begin = &s->flows.by_stage.begin[source];
  for (int64_t i = begin[0]; i < begin[1]; i++) s->wanted[s->flows.to[s->flows.by_stage.items[i]]] = source + 1;
  motet_status status = follow_flows(s, source);
  for (int64_t i = begin[0]; i < begin[1] && status == MOTET_OK; i++) {
    int32_t flow = s->flows.by_stage.items[i], to = s->flows.to[flow];
    if (s->reached[to] != source + 1)
      return mt_verify_refuse_entry(verifier, MT_RULE_COMPLETENESS, "stages", to,
                                    "needs the output of stage %d, and no edge brings it", source);
    status = note_passage(s, source, to, s->flows.ends[flow]);
  }
  for (int32_t i = 0; i < s->visited_count && status == MOTET_OK; i++) {
    int32_t end = s->visited[i];
    bool last = verifier->out_edges.begin[end] == verifier->out_edges.begin[end + 1];
    if (last && mt_verify_empty(verifier, end))
      status = note_passage(s, source, end, module_of_layer(verifier, p->stages[source].layer_end - 1));
  }
  return status;
}

/* An empty stage that nothing feeds passes on the data that it loads. */
static motet_status judge_empty_source(search *s, int32_t source) {
  mt_verifier *verifier = s->verifier;
  const motet_program *p = verifier->program;
  if (verifier->in_edges.begin[source] != verifier->in_edges.begin[source + 1]) return MOTET_OK;
  motet_status status = follow_flows(s, source);
  for (int32_t i = 0; i < s->visited_count && status == MOTET_OK; i++) {
    int32_t end = s->visited[i];
    if (!mt_verify_empty(verifier, end))
      status = note_passage(s, source, end, module_of_layer(verifier, p->stages[end].layer_begin));
  }
  return status;
}

static motet_status list_passages(search *s) {
  mt_verifier *verifier = s->verifier;
  int32_t stages = verifier->program->stage_count, count = (int32_t)s->passages.count;
  verifier->passed = mt_verify_array(verifier, (size_t)count, sizeof *verifier->passed);
  if (verifier->passed == NULL || mt_verify_lists_start(verifier, &verifier->passes, stages) != MOTET_OK)
    return MOTET_ERROR_MEMORY;
  for (int32_t i = 0; i < count; i++) mt_verify_lists_count(&verifier->passes, s->passages.data[i].stage);
  if (mt_verify_lists_room(verifier, &verifier->passes, stages) != MOTET_OK) return MOTET_ERROR_MEMORY;
  for (int32_t i = 0; i < count; i++) {
    verifier->passed[i] = s->passages.data[i].ends;
    mt_verify_lists_add(&verifier->passes, s->passages.data[i].stage, i);
  }
  return MOTET_OK;
}

static motet_status compare_flows(mt_verifier *verifier) {
  int32_t stages = verifier->program->stage_count;
  search s = {.verifier = verifier};
  int32_t **arrays[] = {&s.wanted, &s.reached, &s.before, &s.stack, &s.visited};
  for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) {
    *arrays[i] = mt_verify_array(verifier, (size_t)stages + 1, sizeof **arrays[i]);
    if (*arrays[i] == NULL) return MOTET_ERROR_MEMORY;
  }
  motet_status status = list_flows(verifier, &s.flows);
  for (int32_t source = 0; source < stages && status == MOTET_OK; source++)
    status = mt_verify_empty(verifier, source) ? judge_empty_source(&s, source) : judge_flows(&s, source);
  if (status == MOTET_OK) status = list_passages(&s);
  free(s.passages.data);
  return status;
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
    if (!mt_verify_empty(verifier, i)) continue;
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
