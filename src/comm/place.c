#include "comm/place.h"

#include "comm/collective.h"

#include <hwloc.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int asked_threads(void) {
  const char *text = getenv("OMP_NUM_THREADS");
  const long count = text != NULL ? strtol(text, NULL, 10) : 0;
  return count > 0 && count < INT_MAX ? (int)count : 0;
}

/* Cores in the rank's share of `allowed`, to which it is bound if `binds`; 0: there is less than one a rank. */
static int take_share(hwloc_topology_t topology, hwloc_const_bitmap_t allowed, const mt_transport *transport,
                      bool binds) {
  const int cores = hwloc_get_nbobjs_inside_cpuset_by_type(topology, allowed, HWLOC_OBJ_CORE);
  const int all = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE), each = cores / transport->local_ranks;
  const bool alone = transport->local_ranks < 2;
  const bool bound = cores < all && cores < transport->local_ranks; /* a launcher has done it */
  if (alone || bound) return cores > 0 ? cores : 1;
  if (each == 0) return 0;
  hwloc_bitmap_t own = hwloc_bitmap_alloc();
  for (int i = 0; own != NULL && i < each; i++) {
    hwloc_obj_t core = hwloc_get_obj_inside_cpuset_by_type(topology, allowed, HWLOC_OBJ_CORE,
                                                           (unsigned)(transport->local_rank * each + i));
    if (core != NULL) hwloc_bitmap_or(own, own, core->cpuset);
  }
  if (own != NULL && binds) {
    hwloc_bitmap_and(own, own, allowed);
    if (!hwloc_bitmap_iszero(own)) hwloc_set_cpubind(topology, own, HWLOC_CPUBIND_PROCESS);
  }
  hwloc_bitmap_free(own);
  return each;
}

void mt_place_rank(mt_transport *transport, bool binds, mt_place *place) {
  memset(place, 0, sizeof *place);
  if (gethostname(place->host, sizeof place->host - 1) != 0) place->host[0] = '\0';
  int cores = 0;
  hwloc_topology_t topology;
  if (hwloc_topology_init(&topology) == 0) {
    hwloc_bitmap_t allowed = hwloc_bitmap_alloc();
    if (allowed != NULL && hwloc_topology_load(topology) == 0 &&
        hwloc_get_cpubind(topology, allowed, HWLOC_CPUBIND_PROCESS) == 0) {
      cores = take_share(topology, allowed, transport, binds);
      if (hwloc_get_cpubind(topology, allowed, HWLOC_CPUBIND_PROCESS) == 0)
        hwloc_bitmap_list_snprintf(place->cores, sizeof place->cores, allowed);
    }
    hwloc_bitmap_free(allowed);
    hwloc_topology_destroy(topology);
  }
  const int asked = asked_threads();
  transport->processors = cores;
  place->threads = transport->threads = asked > 0 ? asked : cores > 0 ? cores : 1;
}

static void append_run(mt_text *text, const mt_place *places, int32_t begin, int32_t end) {
  mt_text_append(text, end - begin > 1 ? "ranks %d-%d" : "rank %d", begin, end - 1);
  mt_text_append(text, " on %s: processors ",
                 places[begin].host[0] != '\0' ? places[begin].host : "an unnamed host");
  for (int32_t rank = begin; rank < end; rank++)
    mt_text_append(text, "%s%s", rank > begin ? " | " : "",
                   places[rank].cores[0] != '\0' ? places[rank].cores : "?");
  mt_text_append(text, ", %d thread%s each\n", places[begin].threads, places[begin].threads == 1 ? "" : "s");
}

motet_status mt_place_describe(mt_transport *transport, const mt_place *place, motet_error *error, mt_text *text) {
  int32_t *ranks = malloc((size_t)transport->ranks * sizeof *ranks);
  mt_place *places = malloc((size_t)transport->ranks * sizeof *places);
  motet_status status = MOTET_OK;
  if (ranks == NULL || places == NULL)
    status = mt_error_memory(error, (size_t)transport->ranks * sizeof *places, "the ranks' places");
  for (int32_t rank = 0; status == MOTET_OK && rank < transport->ranks; rank++) ranks[rank] = rank;
  mt_rank_group everyone = {0, transport->ranks, ranks};
  if (status == MOTET_OK) status = mt_gather(transport, &everyone, place, sizeof *place, places, error);
  if (status == MOTET_OK && transport->rank == 0)
    for (int32_t begin = 0, end; begin < transport->ranks; begin = end) {
      for (end = begin + 1; end < transport->ranks; end++)
        if (strcmp(places[end].host, places[begin].host) != 0 || places[end].threads != places[begin].threads)
          break;
      append_run(text, places, begin, end);
    }
  free(ranks);
  free(places);
  return status;
}
