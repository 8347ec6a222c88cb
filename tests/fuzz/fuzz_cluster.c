/* A cluster file from arbitrary bytes: what is accepted nests, and any two ranks have a link. */
#include "cluster/cluster.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  motet_error error;
  mt_cluster cluster;
  error.text[0] = '\0';
  if (mt_cluster_parse((const char *)data, size, "fuzz", &error, &cluster) != MOTET_OK) {
    if (error.text[0] == '\0') abort();
    return 0;
  }
  if (mt_cluster_check(&cluster, &error) != MOTET_OK || cluster.fast_level >= cluster.level_count) abort();
  int32_t level = mt_cluster_level(&cluster, 0, cluster.devices - 1);
  if (level < 0 || level >= cluster.level_count) abort();
  mt_links links = mt_cluster_links(&cluster);
  if (!(mt_link_seconds(links.remote, 1 << 20) >= 0) || !isfinite(cluster.device.memory_bytes)) abort();
  return 0;
}
