#include "cost/collective.h"

#include <math.h>

/* Fitted on NCCL's all-reduce over 8 and 32 A100 (two of the seven sizes of group that were measured), messages
 * from 1 MiB on; tests/unit/test_cost_collective.c has the rows. */
mt_collective_fit mt_collective_fit_usual(void) {
  return (mt_collective_fit){.inside = 0.76, .between = 0.60, .start_seconds = 10e-6, .doubling_seconds = 24e-6};
}

/* Times the whole vector goes over a device's link. */
static double passes(mt_collective kind, double ranks) {
  double once = (ranks - 1) / ranks;
  switch (kind) {
  case MT_COLLECTIVE_ALL_REDUCE: return 2 * once;
  case MT_COLLECTIVE_REDUCE_SCATTER:
  case MT_COLLECTIVE_ALL_GATHER: return once;
  }
  return 0;
}

mt_collective_links mt_collective_links_of(const mt_cluster *cluster, const mt_collective_fit *fit,
                                           int32_t stride) {
  const mt_level *fast = &cluster->levels[cluster->fast_level];
  const mt_level *above = cluster->fast_level + 1 < cluster->level_count ? fast + 1 : fast;
  int32_t inside = fast->devices / stride;
  return (mt_collective_links){
      .inside = fast->link.bytes_per_second * (fast->efficiency > 0 ? fast->efficiency : fit->inside),
      .between = above->link.bytes_per_second * (above->efficiency > 0 ? above->efficiency : fit->between),
      .ranks_inside = inside > 1 ? inside : 1,
      .peers = fast->peers};
}

double mt_collective_inside(const mt_collective_links *links, double others) {
  return links->peers > others && others > 0 ? links->inside * others / links->peers : links->inside;
}

double mt_collective_seconds(const mt_cluster *cluster, const mt_collective_fit *fit, mt_collective kind,
                             int32_t ranks, int32_t stride, double bytes) {
  if (ranks <= 1) return 0;
  mt_collective_links links = mt_collective_links_of(cluster, fit, stride);
  double bandwidth = mt_collective_inside(&links, fmin(ranks, links.ranks_inside) - 1);
  if (ranks > links.ranks_inside) {
    double ports = links.between * links.ranks_inside;
    if (links.ranks_inside == 1 || ports < bandwidth) bandwidth = ports;
  }
  return fit->start_seconds + fit->doubling_seconds * log2(ranks) + passes(kind, ranks) * bytes / bandwidth;
}

double mt_collective_all_to_all_seconds(const mt_cluster *cluster, const mt_collective_fit *fit, int32_t ranks,
                                        int32_t stride, double bytes, mt_sent_parts sent) {
  if (ranks <= 1) return 0;
  mt_collective_links links = mt_collective_links_of(cluster, fit, stride);
  double inside = links.ranks_inside < ranks ? links.ranks_inside : ranks;
  double near =
      (ranks > inside && sent.between < 1 ? ranks - ranks / inside : inside - 1) / ranks * sent.inside * bytes;
  double far = (ranks - inside) / ranks * sent.between * bytes;
  return fit->start_seconds + fit->doubling_seconds * log2(ranks) +
         fmax(near / mt_collective_inside(&links, inside - 1), far / links.between);
}
