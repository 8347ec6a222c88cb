/* The three gates of trainability (docs/algebra.md). They read the layers' flags and the stage graph, never the
 * schedule. */
#include "algebra/build.h"

/* The first trainable layer in [begin, end), or -1. */
static int32_t first_trainable(const mt_model *model, int32_t begin, int32_t end) {
  for (int32_t l = begin; l < end; l++)
    if (model->layers[l].trainable) return l;
  return -1;
}

void mt_build_gates(mt_derivation *d) {
  for (int32_t r = 0; r < d->region_count; r++)
    d->regions[r].trainable = first_trainable(d->model, d->regions[r].layer_begin, d->regions[r].layer_end) >= 0;
  /* Edges go up and are sorted by `from`: when the first edge out of a stage is reached, all edges into that stage
   * have been. Until the last loop, gate's bits hold "trains itself" (WEIGHTS) and "something above trains"
   * (INPUT), and their union says whether a gradient comes. */
  for (int32_t s = 0; s < d->stage_count; s++) {
    mt_stage *stage = &d->stages[s];
    stage->first_trainable = first_trainable(d->model, stage->layer_begin, stage->layer_end);
    stage->gate = stage->first_trainable >= 0 ? MT_GATE_WEIGHTS : MT_GATE_NONE;
  }
  for (int32_t e = 0; e < d->edge_count; e++) {
    mt_edge *edge = &d->edges[e];
    edge->gradient = d->stages[edge->from].gate != MT_GATE_NONE;
    if (edge->gradient) d->stages[edge->to].gate = (mt_gate)(d->stages[edge->to].gate | MT_GATE_INPUT);
  }
  for (int32_t s = 0; s < d->stage_count; s++)
    if ((d->stages[s].gate & MT_GATE_INPUT) != 0) d->stages[s].first_trainable = d->stages[s].layer_begin;
}
