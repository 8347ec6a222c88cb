/* Which ranks a region lies on: dedicated regions have blocks of their own, all others share one. Blocks stand in
 * the order of the regions. */
#include "algebra/build.h"

static bool is_sharded(const mt_region *region) { return mt_region_row(region)->placement == MT_PLACEMENT_SHARDED; }

/* Regions that `region` can be reached from, or that can be reached from it. */
static uint64_t reach(const mt_build *build, int32_t region, bool before) {
  const uint64_t *next = before ? build->region_before : build->region_after;
  uint64_t reached = next[region];
  for (uint64_t seen = 0; seen != reached;) {
    seen = reached;
    for (int32_t r = 0; r < build->result->region_count; r++)
      if ((seen & mt_bit(r)) != 0) reached |= next[r];
  }
  return reached;
}

static const char *shared_sharded(const mt_build *build, uint64_t regions) {
  for (int32_t r = 0; r < build->result->region_count; r++) {
    const mt_region *region = &build->result->regions[r];
    if ((regions & mt_bit(r)) != 0 && is_sharded(region) && region->skeleton.ranks == 0) return region->name;
  }
  return NULL;
}

/* The regions that share ranks run in one wavefront, which a region elsewhere cannot stand in the middle of. */
static motet_status judge_between(mt_build *build, int32_t r) {
  const char *left = shared_sharded(build, reach(build, r, true));
  const char *right = shared_sharded(build, reach(build, r, false));
  if (left == NULL || right == NULL) return MOTET_OK;
  const char *name = build->result->regions[r].name;
  return mt_build_refuse(
      build, "dedicate", name,
      "region %s has ranks of its own and stands between %s and %s, which share theirs; accepted: "
      "dedicate for one of the two, or 1f1b for all three",
      name, left, right);
}

static motet_status judge_counts(mt_build *build, int64_t dedicated, bool any_shared) {
  int32_t ranks = build->result->ranks;
  if (dedicated > ranks || (any_shared && dedicated == ranks))
    return mt_build_refuse(build, "dedicate", NULL,
                           "dedicated regions ask for %lld of %d ranks%s; accepted: %lld ranks or more",
                           (long long)dedicated, ranks, any_shared ? " and the others need one at least" : "",
                           (long long)dedicated + any_shared);
  if (!any_shared && dedicated < ranks)
    return mt_build_refuse(build, "dedicate", NULL,
                           "every region has ranks of its own, %lld in all, which leaves %lld of %d without work; "
                           "accepted: %lld ranks",
                           (long long)dedicated, (long long)ranks - dedicated, ranks, (long long)dedicated);
  return MOTET_OK;
}

motet_status mt_build_ranks(mt_build *build) {
  mt_derivation *d = build->result;
  int64_t dedicated = 0;
  bool any_shared = false;
  for (int32_t r = 0; r < d->region_count; r++) {
    dedicated += d->regions[r].skeleton.ranks;
    any_shared = any_shared || (d->regions[r].skeleton.ranks == 0 && build->host_region[r] < 0);
    motet_status status = d->regions[r].skeleton.ranks > 0 ? judge_between(build, r) : MOTET_OK;
    if (status != MOTET_OK) return status;
  }
  motet_status status = judge_counts(build, dedicated, any_shared);
  if (status != MOTET_OK) return status;
  int32_t next = 0, shared_first = -1;
  d->shared_ranks = d->ranks - (int32_t)dedicated;
  for (int32_t r = 0; r < d->region_count; r++) {
    mt_region *region = &d->regions[r];
    const mt_skeleton *skeleton = &region->skeleton;
    if (build->host_region[r] >= 0) continue;
    region->data = skeleton->data;
    region->pipeline = skeleton->ranks > 0 ? skeleton->ranks / skeleton->data : d->shared_ranks;
    bool known = skeleton->ranks == 0 && shared_first >= 0;
    region->first_rank = known ? shared_first : next;
    if (!known) next += region->pipeline * region->data;
    if (skeleton->ranks == 0) shared_first = region->first_rank;
  }
  for (int32_t r = 0; r < d->region_count; r++) {
    if (build->host_region[r] < 0) continue;
    const mt_region *host = &d->regions[build->host_region[r]];
    d->regions[r].first_rank = host->first_rank;
    d->regions[r].pipeline = host->pipeline;
    d->regions[r].data = host->data;
  }
  d->shared_first = shared_first < 0 ? 0 : shared_first;
  return MOTET_OK;
}
