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
  case MT_COLLECTIVE_ALL_GATHER:
  case MT_COLLECTIVE_ALL_TO_ALL: return once;
  }
  return 0;
}

double mt_collective_seconds(const mt_cluster *cluster, const mt_collective_fit *fit, mt_collective kind,
                             int32_t ranks, int32_t stride, double bytes) {
  if (ranks <= 1) return 0;
  mt_links links = mt_cluster_links(cluster);
  int32_t inside = links.ranks_per_node / stride; /* of the group's ranks, in one fast level */
  if (inside < 1) inside = 1;
  double bandwidth = fit->inside * links.local.bytes_per_second;
  if (ranks > inside) {
    double ports = fit->between * links.remote.bytes_per_second * inside;
    if (inside == 1 || ports < bandwidth) bandwidth = ports;
  }
  return fit->start_seconds + fit->doubling_seconds * log2(ranks) + passes(kind, ranks) * bytes / bandwidth;
}
