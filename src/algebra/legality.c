/* Normalisation and the rules about neighbours and options. Every refusal names the rule and the region, and
 * says what would be accepted. */
#include "algebra/build.h"

#include <string.h>

static bool is_placed(const mt_region *region, mt_placement_kind placement) {
  return mt_region_row(region)->placement == placement;
}

static const char *skeleton_text(const mt_build *build, int32_t region) {
  const char *text = mt_skeleton_print(build->arena, &build->result->regions[region].skeleton);
  return text != NULL ? text : "";
}

/* Whether region b follows a alone and a feeds b alone. */
static bool region_chained(const mt_build *build, int32_t a, int32_t b) {
  return build->region_after[a] == mt_bit(b) && build->region_before[b] == mt_bit(a);
}

static motet_status refuse_replicated(mt_build *build, int32_t a, int32_t b) {
  const mt_region *left = &build->result->regions[a], *right = &build->result->regions[b];
  if (!mt_skeleton_equal(&left->skeleton, &right->skeleton))
    return mt_build_refuse(
        build, "neighbours", right->name,
        "regions %s (%s) and %s (%s) are neighbours, both Replicated, and differ in their "
        "options; accepted: equal options (the two become one region), or 1f1b or inline for one",
        left->name, skeleton_text(build, a), right->name, skeleton_text(build, b));
  return mt_build_refuse(
      build, "neighbours", right->name,
      "regions %s and %s are neighbours and both Replicated, but cannot become one region because "
      "%s joins or feeds several branches; accepted: 1f1b or inline for %s",
      left->name, right->name, right->name, right->name);
}

static motet_status merge(mt_build *build, int32_t a) {
  mt_derivation *d = build->result;
  mt_region *left = &d->regions[a], *right = left + 1;
  left->module_end = right->module_end;
  left->layer_end = right->layer_end;
  left->name = mt_build_name(build, left->module_begin, left->module_end);
  if (left->name == NULL) return mt_error_memory(build->error, 1, "a region's name");
  size_t behind = (size_t)(d->region_count - a - 2);
  memmove(right, right + 1, behind * sizeof *right);
  memmove(&build->branch[a + 1], &build->branch[a + 2], behind * sizeof *build->branch);
  d->region_count--;
  mt_build_connect(build);
  return MOTET_OK;
}

/* Neighbours of one placement become one region: Replicated ones must, hosted ones where they form a chain. */
static motet_status normalise(mt_build *build) {
  mt_derivation *d = build->result;
  for (int32_t a = 0; a < d->region_count; a++)
    for (int32_t b = a + 1; b < d->region_count; b++) {
      if ((build->region_after[a] & mt_bit(b)) == 0) continue;
      mt_placement_kind placement = mt_region_row(&d->regions[a])->placement;
      if (placement == MT_PLACEMENT_SHARDED || !is_placed(&d->regions[b], placement)) continue;
      bool mergeable = b == a + 1 && region_chained(build, a, b) &&
                       mt_skeleton_equal(&d->regions[a].skeleton, &d->regions[b].skeleton);
      if (!mergeable && placement == MT_PLACEMENT_REPLICATED) return refuse_replicated(build, a, b);
      if (!mergeable) continue;
      motet_status status = merge(build, a);
      if (status != MOTET_OK) return status;
      b = a; /* the merged region has new neighbours */
    }
  return MOTET_OK;
}

static motet_status judge_sharded(mt_build *build) {
  const mt_derivation *d = build->result;
  int32_t first = -1;
  for (int32_t r = 0; r < d->region_count; r++) {
    if (!is_placed(&d->regions[r], MT_PLACEMENT_SHARDED) || d->regions[r].skeleton.ranks > 0) continue;
    if (first < 0) first = r;
    if (d->regions[first].skeleton.kind != d->regions[r].skeleton.kind)
      return mt_build_refuse(build, "mixed", d->regions[r].name,
                             "regions %s (%s) and %s (%s) are Sharded over the same ranks by different skeletons, "
                             "whose joint order is not defined; accepted: one and the same for both",
                             d->regions[first].name, skeleton_text(build, first), d->regions[r].name,
                             skeleton_text(build, r));
    if (d->regions[first].skeleton.batch != d->regions[r].skeleton.batch)
      return mt_build_refuse(
          build, "mixed", d->regions[r].name,
          "regions %s (%s) and %s (%s) run in one wavefront over the same ranks, but take different "
          "numbers of microbatches at a time; accepted: one and the same batch for both",
          d->regions[first].name, skeleton_text(build, first), d->regions[r].name, skeleton_text(build, r));
    const mt_skeleton_row *row = mt_region_row(&d->regions[r]);
    if (first != r && (row->held != NULL || row->split))
      return mt_build_refuse(build, "mixed", d->regions[r].name,
                             "regions %s and %s are both %s, whose order over several regions is not defined; "
                             "accepted: one region with the modules of both, or 1f1b for both",
                             d->regions[first].name, d->regions[r].name, skeleton_text(build, r));
  }
  return MOTET_OK;
}

/* The one Sharded region that all of `neighbours` are or ride on (on the given side); -1 if there is none. */
static int32_t common_host(const mt_build *build, uint64_t neighbours, bool left) {
  const mt_derivation *d = build->result;
  int32_t host = -1;
  for (int32_t r = 0; r < d->region_count; r++) {
    if ((neighbours & mt_bit(r)) == 0) continue;
    bool hosted = is_placed(&d->regions[r], MT_PLACEMENT_HOSTED);
    int32_t candidate = is_placed(&d->regions[r], MT_PLACEMENT_SHARDED) ? r
                        : hosted && build->host_left[r] == left         ? build->host_region[r]
                                                                        : -1;
    if (candidate < 0 || (host >= 0 && candidate != host)) return -1;
    host = candidate;
  }
  return host;
}

static motet_status refuse_hosted(mt_build *build, int32_t r, const char *reason) {
  const char *name = build->result->regions[r].name;
  return mt_build_refuse(build, "inline", name,
                         "region %s is inline, but %s; accepted: a Sharded region (1f1b, gpipe) next to it, or "
                         "transpose for %s",
                         name, reason, name);
}

/* A stage is one run of layers, and has one output: the regions that ride on a slab must stand right beside it,
 * and behind the last slab of a region nothing but its riders may take its output. */
static motet_status judge_riders(mt_build *build, int32_t host) {
  const mt_derivation *d = build->result;
  int32_t begin = host, end = host + 1;
  while (begin > 0 && build->host_region[begin - 1] == host && !build->host_left[begin - 1]) begin--;
  while (end < d->region_count && build->host_region[end] == host && build->host_left[end]) end++;
  uint64_t riders_left = 0, fed = 0;
  for (int32_t r = 0; r < d->region_count; r++) {
    if (build->host_region[r] != host) continue;
    if (r < begin || r >= end)
      return refuse_hosted(build, r, "another region's layers lie between it and the region it would ride on");
    if (build->host_left[r]) {
      riders_left |= mt_bit(r);
      fed |= build->region_after[r] & ~riders_left;
    }
  }
  bool several = (riders_left & (riders_left - 1)) != 0;
  if (riders_left != 0 && ((build->region_after[host] & ~riders_left) != 0 || (several && fed != 0)))
    return refuse_hosted(build, host + 1, "the region it would ride on feeds others beside it");
  return MOTET_OK;
}

static motet_status find_hosts(mt_build *build) {
  mt_derivation *d = build->result;
  for (int32_t r = 0; r < d->region_count; r++) build->host_region[r] = -1;
  for (int32_t r = d->region_count - 1; r >= 0; r--)
    if (is_placed(&d->regions[r], MT_PLACEMENT_HOSTED))
      build->host_region[r] = common_host(build, build->region_after[r], false);
  for (int32_t r = 0; r < d->region_count; r++) {
    if (!is_placed(&d->regions[r], MT_PLACEMENT_HOSTED) || build->host_region[r] >= 0) continue;
    build->host_left[r] = true;
    build->host_region[r] = common_host(build, build->region_before[r], true);
    if (build->host_region[r] < 0)
      return refuse_hosted(build, r, "no one Sharded region takes all its output or gives all its input");
  }
  for (int32_t r = 0; r < d->region_count; r++) {
    if (!is_placed(&d->regions[r], MT_PLACEMENT_SHARDED)) continue;
    motet_status status = judge_riders(build, r);
    if (status != MOTET_OK) return status;
  }
  return MOTET_OK;
}

/* The first trainable layer of a region or of what feeds it, or NULL. */
static const char *trainable_layer(const mt_build *build, int32_t region) {
  const mt_model *model = build->request->model;
  uint64_t reached = mt_bit(region);
  for (int32_t r = region; r >= 0; r--)
    if ((reached & mt_bit(r)) != 0) reached |= build->region_before[r];
  for (int32_t r = 0; r <= region; r++) {
    const mt_region *part = &build->result->regions[r];
    for (int32_t l = part->layer_begin; (reached & mt_bit(r)) != 0 && l < part->layer_end; l++)
      if (model->layers[l].trainable) return model->layers[l].name;
  }
  return NULL;
}

static motet_status judge_ahead(mt_build *build, int32_t r) {
  const mt_region *region = &build->result->regions[r];
  const char *layer = trainable_layer(build, r);
  if (layer != NULL)
    return mt_build_refuse(
        build, "ahead", region->name,
        "region %s runs ahead of the step, but layer %s is trainable: the next step's weights do "
        "not exist yet; accepted: order=ahead with everything up to here frozen, or order=fill",
        region->name, layer);
  if (build->region_before[r] != 0)
    return mt_build_refuse(
        build, "ahead", region->name,
        "region %s runs ahead of the step, but other regions feed it; accepted: order=ahead for a "
        "first region, or order=fill",
        region->name);
  return MOTET_OK;
}

static motet_status judge_options(mt_build *build) {
  const mt_derivation *d = build->result;
  int32_t microbatches = build->request->microbatches;
  for (int32_t r = 0; r < d->region_count; r++) {
    const mt_region *region = &d->regions[r];
    if (!is_placed(region, MT_PLACEMENT_REPLICATED)) continue;
    if (region->skeleton.order == MT_ORDER_AHEAD) {
      motet_status status = judge_ahead(build, r);
      if (status != MOTET_OK) return status;
    }
    if (region->skeleton.order == MT_ORDER_PREFIX && region->skeleton.window > 0 &&
        region->skeleton.window < microbatches)
      return mt_build_refuse(build, "window", region->name,
                             "region %s has window=%d, but order=prefix keeps the features of all %d microbatches; "
                             "accepted: window=%d or more, no window, or order=fill",
                             region->name, region->skeleton.window, microbatches, microbatches);
    if (region->skeleton.window > 0 && region->skeleton.window < region->skeleton.batch)
      return mt_build_refuse(
          build, "window", region->name,
          "region %s has window=%d, but makes %d features at a time; accepted: window=%d or more, "
          "or a smaller batch",
          region->name, region->skeleton.window, region->skeleton.batch, region->skeleton.batch);
  }
  return MOTET_OK;
}

motet_status mt_build_judge(mt_build *build) {
  motet_status status = normalise(build);
  if (status == MOTET_OK) status = judge_sharded(build);
  if (status == MOTET_OK) status = find_hosts(build);
  if (status == MOTET_OK) status = judge_options(build);
  return status;
}
