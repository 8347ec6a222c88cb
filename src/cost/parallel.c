#include "cost/parallel.h"

mt_parallel mt_parallel_single(void) {
  return (mt_parallel){
      .tensor = 1, .ulysses = 1, .ring = 1, .samples = 1, .data = 1, .pipeline = 1, .expert = 1, .overlap = true};
}

motet_status mt_parallel_check(const mt_parallel *parallel, const mt_cluster *cluster, motet_error *error) {
  const struct {
    const char *name;
    int32_t degree;
  } degrees[] = {{"tensor", parallel->tensor},   {"ulysses", parallel->ulysses}, {"ring", parallel->ring},
                 {"samples", parallel->samples}, {"data", parallel->data},       {"pipeline", parallel->pipeline},
                 {"expert", parallel->expert}};
  int64_t product = 1;
  for (size_t d = 0; d < sizeof degrees / sizeof *degrees; d++) {
    if (degrees[d].degree < 1)
      return mt_error_set(error, MOTET_ERROR_ARGUMENT, "%s parallel over %d devices; at least 1 belongs here",
                          degrees[d].name, degrees[d].degree);
    if (d < 6) product *= degrees[d].degree;
    if (product > cluster->devices)
      return mt_error_set(error, MOTET_ERROR_ARGUMENT,
                          "degrees tensor %d x ulysses %d x ring %d x samples %d x data %d x pipeline %d are more "
                          "than the cluster's %d devices",
                          parallel->tensor, parallel->ulysses, parallel->ring, parallel->samples, parallel->data,
                          parallel->pipeline, cluster->devices);
  }
  int32_t in_stage = mt_parallel_cell(parallel) * parallel->data;
  if (in_stage % parallel->expert != 0)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT,
                        "expert parallel over %d devices does not divide the %d devices of a stage",
                        parallel->expert, in_stage);
  if (parallel->zero_level < 0 || parallel->zero_level > 3)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT, "ZeRO level %d; 0 to 3 are known", parallel->zero_level);
  if (parallel->shard_group < 0 ||
      (parallel->shard_group > 0 && mt_parallel_copies(parallel) % parallel->shard_group != 0))
    return mt_error_set(error, MOTET_ERROR_ARGUMENT,
                        "a shard group of %d does not divide the %d copies of a weight", parallel->shard_group,
                        mt_parallel_copies(parallel));
  return MOTET_OK;
}

mt_links mt_parallel_links(const mt_parallel *parallel, const mt_cluster *cluster) {
  mt_links links = mt_cluster_links(cluster);
  int32_t stride = mt_parallel_cell(parallel) * parallel->data;
  links.ranks_per_node = links.ranks_per_node > stride ? links.ranks_per_node / stride : 1;
  return links;
}
