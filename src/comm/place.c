#include "comm/place.h"

#include <hwloc.h>
#include <limits.h>
#include <stdlib.h>

static int asked_threads(void) {
  const char *text = getenv("OMP_NUM_THREADS");
  const long count = text != NULL ? strtol(text, NULL, 10) : 0;
  return count > 0 && count < INT_MAX ? (int)count : 0;
}

void mt_place_rank(mt_transport *transport) {
  const int asked = asked_threads();
  transport->threads = asked > 0 ? asked : 1;
  hwloc_topology_t topology;
  if (hwloc_topology_init(&topology) != 0) return;
  hwloc_bitmap_t allowed = hwloc_bitmap_alloc(), own = hwloc_bitmap_alloc();
  int threads = 1;
  if (allowed != NULL && own != NULL && hwloc_topology_load(topology) == 0 &&
      hwloc_get_cpubind(topology, allowed, HWLOC_CPUBIND_PROCESS) == 0) {
    int cores = hwloc_get_nbobjs_inside_cpuset_by_type(topology, allowed, HWLOC_OBJ_CORE);
    int all = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE);
    int each = cores / transport->local_ranks;
    if (transport->local_ranks < 2) {
      threads = cores > 0 ? cores : 1; /* alone: everything is its share */
    } else if (cores < all && cores < transport->local_ranks) {
      threads = cores > 0 ? cores : 1; /* a launcher has bound this rank */
    } else if (each > 0) {
      threads = each;
      for (int i = 0; i < each; i++) {
        hwloc_obj_t core = hwloc_get_obj_inside_cpuset_by_type(topology, allowed, HWLOC_OBJ_CORE,
                                                               (unsigned)(transport->local_rank * each + i));
        if (core != NULL) hwloc_bitmap_or(own, own, core->cpuset);
      }
      hwloc_bitmap_and(own, own, allowed);
      if (!hwloc_bitmap_iszero(own)) hwloc_set_cpubind(topology, own, HWLOC_CPUBIND_PROCESS);
    }
  }
  if (asked == 0) transport->threads = threads;
  hwloc_bitmap_free(allowed);
  hwloc_bitmap_free(own);
  hwloc_topology_destroy(topology);
}
