/* From judged regions to slabs, stages, parts and edges. */
#include "algebra/build.h"
#include "algebra/seam.h"

#include <stdlib.h>

enum { STAGES_MAX = 1 << 24 };

/* L layers over S stages: every stage L / S, and one more for L mod S of them. The extra layers go to stages
 * 1, 2, ... because the first and the last stage often have more to do already (embedding, head); stage 0 takes
 * part only where all but the last have one. With fewer layers than stages the first L stages have one each. */
static void split_evenly(int32_t layers, int32_t stages, int32_t *split) {
  int32_t each = layers / stages, rest = layers % stages;
  int32_t first = each > 0 && rest <= stages - 2 ? 1 : 0;
  for (int32_t s = 0; s < stages; s++) split[s] = each + (s >= first && s < first + rest ? 1 : 0);
}

/* What flows into the region passes its first stage whether or not the riders have data, so that stage must be more
 * than its riders. */
static motet_status judge_first_stage(mt_build *build, int32_t r, int32_t layers) {
  const mt_derivation *d = build->result;
  for (int32_t rider = 0; rider < d->region_count && layers == 0; rider++)
    if (build->host_region[rider] == r && !build->host_left[rider])
      return mt_build_refuse(build, "split", d->regions[r].name,
                             "split: stage 0 of region %s has no layer of its own, but region %s rides on it; "
                             "accepted: 1 layer or more there",
                             d->regions[r].name, d->regions[rider].name);
  return MOTET_OK;
}

static motet_status split_region(mt_build *build, int32_t r, int32_t at) {
  const mt_derive_request *request = build->request;
  const mt_region *region = &build->result->regions[r];
  int32_t layers = region->layer_end - region->layer_begin;
  if (request->split == NULL) {
    split_evenly(layers, region->slabs, &build->split[at]);
    return MOTET_OK;
  }
  int64_t sum = 0;
  for (int32_t s = 0; s < region->slabs; s++) {
    int32_t count = request->split[at + s];
    if (count < 0)
      return mt_build_refuse(build, "split", region->name,
                             "split: stage %d of region %s has %d layers; accepted: 0 or more", s, region->name,
                             count);
    build->split[at + s] = count;
    sum += count;
  }
  if (sum != layers)
    return mt_build_refuse(build, "split", region->name,
                           "split: the stages of region %s have %lld layers together, the region has %d; accepted: "
                           "%d numbers with the sum %d",
                           region->name, (long long)sum, layers, region->slabs, layers);
  return judge_first_stage(build, r, build->split[at]);
}

/* Slabs, layouts and first stages of all regions; counts stages and the Sharded ones among them. */
static motet_status lay_out(mt_build *build, int32_t *sharded_stages) {
  mt_derivation *d = build->result;
  int64_t stages = 0, sharded = 0;
  for (int32_t r = 0; r < d->region_count; r++) {
    mt_region *region = &d->regions[r];
    const mt_skeleton_row *row = mt_region_row(region);
    region->replicated = row->placement == MT_PLACEMENT_REPLICATED;
    build->first_stage[r] = -1;
    if (row->layout == NULL) continue;
    int64_t slabs = (int64_t)region->pipeline * region->skeleton.virtual_stages;
    if (region->skeleton.virtual_stages < 1 || stages + slabs > STAGES_MAX)
      return mt_error_set(build->error, MOTET_ERROR_LIMIT,
                          "region %s: %d ranks with %d virtual stages each make more than %d stages", region->name,
                          region->pipeline, region->skeleton.virtual_stages, STAGES_MAX);
    build->layouts[r] = row->layout(&region->skeleton, region->pipeline);
    build->layouts[r].first_rank = region->first_rank;
    build->layouts[r].data = region->data;
    region->slabs = build->layouts[r].slabs;
    build->first_stage[r] = (int32_t)stages;
    stages += region->slabs;
    if (row->placement == MT_PLACEMENT_SHARDED) sharded += region->slabs;
  }
  d->stage_count = (int32_t)stages;
  *sharded_stages = (int32_t)sharded;
  return MOTET_OK;
}

static motet_status make_split(mt_build *build, int32_t sharded_stages) {
  const mt_derive_request *request = build->request;
  mt_derivation *d = build->result;
  if (request->split != NULL && request->split_count != sharded_stages)
    return mt_build_refuse(build, "split", NULL,
                           "split: %d numbers for %d stages of Sharded regions; accepted: one number a stage",
                           request->split_count, sharded_stages);
  build->split = MT_ARENA_NEW(build->arena, int32_t, sharded_stages);
  if (build->split == NULL) return mt_error_memory(build->error, sizeof *build->split, "a split");
  int32_t at = 0;
  for (int32_t r = 0; r < d->region_count; r++) {
    if (mt_region_row(&d->regions[r])->placement != MT_PLACEMENT_SHARDED) continue;
    motet_status status = split_region(build, r, at);
    if (status != MOTET_OK) return status;
    at += d->regions[r].slabs;
  }
  return MOTET_OK;
}

/* Stages. */

static void add_riders(mt_build *build, int32_t host, bool left, int32_t stage) {
  mt_derivation *d = build->result;
  for (int32_t r = 0; r < d->region_count; r++) {
    if (build->host_region[r] != host || build->host_left[r] != left) continue;
    mt_region *rider = &d->regions[r];
    rider->host = stage;
    d->parts[d->part_count++] =
        (mt_part){.region = r, .layer_begin = rider->layer_begin, .layer_end = rider->layer_end};
  }
}

/* Fills what follows from a stage's parts: layers, modules, inputs. */
static void sum_up(const mt_derivation *d, mt_stage *stage) {
  const mt_model *model = d->model;
  const mt_region *region = &d->regions[stage->region];
  stage->layer_begin = d->parts[stage->part_begin].layer_begin;
  stage->layer_end = d->parts[stage->part_end - 1].layer_end;
  for (int32_t l = stage->layer_begin; l < stage->layer_end; l++) {
    int32_t m = model->layers[l].module;
    stage->modules |= mt_bit(m);
    if (l == model->modules[m].layer_begin) stage->inputs |= model->modules[m].inputs;
  }
  if (stage->layer_begin == stage->layer_end)
    for (int32_t m = region->module_begin; m < region->module_end; m++) stage->modules |= mt_bit(m);
  else if (stage->layer_end == model->layer_count)
    stage->inputs |= model->last_inputs;
}

static void make_stages(mt_build *build) {
  mt_derivation *d = build->result;
  const int32_t *split = build->split;
  int32_t count = 0;
  for (int32_t r = 0; r < d->region_count; r++) {
    const mt_region *region = &d->regions[r];
    if (region->slabs == 0) continue;
    int32_t layer = region->layer_begin;
    for (int32_t slab = 0; slab < region->slabs; slab++, count++) {
      mt_stage *stage = &d->stages[count];
      *stage = (mt_stage){.region = r,
                          .slab = slab,
                          .part_begin = d->part_count,
                          .first_trainable = -1,
                          .share = 1.0 / region->skeleton.virtual_stages,
                          .rank = mt_layout_rank(&build->layouts[r], slab)};
      int32_t layers = region->replicated ? region->layer_end - region->layer_begin : *split++;
      if (slab == 0) add_riders(build, r, false, count);
      d->parts[d->part_count++] = (mt_part){.region = r, .layer_begin = layer, .layer_end = layer + layers};
      if (slab == region->slabs - 1) add_riders(build, r, true, count);
      layer += layers;
      stage->part_end = d->part_count;
      sum_up(d, stage);
    }
  }
}

/* Edges. */

static void add_edge(mt_derivation *d, int32_t from, int32_t to) {
  d->edges[d->edge_count++] = (mt_edge){.from = from, .to = to};
}

static int compare_edges(const void *left, const void *right) {
  const mt_edge *a = left, *b = right;
  if (a->from != b->from) return a->from < b->from ? -1 : 1;
  return (a->to > b->to) - (a->to < b->to);
}

static mt_seam_side side(const mt_build *build, int32_t stage) {
  const mt_stage *place = &build->result->stages[stage];
  return (mt_seam_side){.layout = &build->layouts[place->region], .slab = place->slab};
}

/* Between stages of one region and along the edges of the region graph. Riders meet at their host: an edge
 * inside a stage is none, and two that come to lie on one pair of stages are one. */
static void make_edges(mt_build *build) {
  mt_derivation *d = build->result;
  for (int32_t s = 0; s + 1 < d->stage_count; s++)
    if (d->stages[s].region == d->stages[s + 1].region) add_edge(d, s, s + 1);
  for (int32_t a = 0; a < d->region_count; a++)
    for (int32_t b = a + 1; b < d->region_count; b++) {
      if ((build->region_after[a] & mt_bit(b)) == 0) continue;
      const mt_region *left = &d->regions[a], *right = &d->regions[b];
      int32_t from = left->host >= 0 ? left->host : build->first_stage[a] + left->slabs - 1;
      int32_t to = right->host >= 0 ? right->host : build->first_stage[b];
      if (from != to) add_edge(d, from, to);
    }
  if (d->edge_count > 0) qsort(d->edges, (size_t)d->edge_count, sizeof *d->edges, compare_edges);
  int32_t kept = 0;
  for (int32_t e = 0; e < d->edge_count; e++)
    if (kept == 0 || compare_edges(&d->edges[kept - 1], &d->edges[e]) != 0) d->edges[kept++] = d->edges[e];
  d->edge_count = kept;
  for (int32_t e = 0; e < kept; e++) {
    mt_edge *edge = &d->edges[e];
    edge->forward = mt_seam_pattern(side(build, edge->from), side(build, edge->to), d->microbatches);
    edge->backward = mt_seam_pattern(side(build, edge->to), side(build, edge->from), d->microbatches);
  }
}

motet_status mt_build_place(mt_build *build) {
  mt_derivation *d = build->result;
  int32_t sharded_stages = 0;
  motet_status status = lay_out(build, &sharded_stages);
  if (status == MOTET_OK) status = make_split(build, sharded_stages);
  if (status != MOTET_OK) return status;
  int32_t regions = d->region_count;
  d->stages = MT_ARENA_NEW(build->arena, mt_stage, d->stage_count);
  d->parts = MT_ARENA_NEW(build->arena, mt_part, d->stage_count + regions);
  d->edges = MT_ARENA_NEW(build->arena, mt_edge, d->stage_count + regions * regions);
  if (d->stages == NULL || d->parts == NULL || d->edges == NULL)
    return mt_error_memory(build->error, (unsigned long long)d->stage_count * sizeof *d->stages, "stages");
  make_stages(build);
  make_edges(build);
  return MOTET_OK;
}
