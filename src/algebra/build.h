/** @file
 * A derivation under construction, shared by the steps of mt_derive(): bind, normalise and judge, place, gate.
 */
#ifndef MT_ALGEBRA_BUILD_H
#define MT_ALGEBRA_BUILD_H

#include "algebra/derive.h"
#include "algebra/skeleton.h"

typedef struct mt_build {
  mt_arena *arena;
  const mt_derive_request *request;
  motet_error *error;
  mt_derivation *result; /* regions[] has room for one region a module */

  /* The graphs of modules and regions as bit sets, [module_count]: at most 64 of either. */
  uint64_t *module_before, *module_after;
  uint64_t *region_before, *region_after;
  int32_t *branch; /* [region] number of the '|' group it was written in, 0 for none */

  int32_t *host_region; /* [region] hosted: the Sharded region that it rides on; else -1 */
  bool *host_left;      /* [region] hosted: on the last slab of the region to its left */

  mt_layout *layouts;   /* [region] */
  int32_t *first_stage; /* [region] -1 where hosted */
  int32_t *split;       /* layers of each stage of the Sharded regions, in stage order */
} mt_build;

/** Terms to regions: regions[] with names, modules, layers and skeletons; the region graph; the cut is judged. */
motet_status mt_build_bind(mt_build *build);

/** Computes region_before and region_after from the module graph. */
void mt_build_connect(mt_build *build);

/** Merges equal Replicated or hosted neighbours, finds hosts, and judges what the rules say about neighbours
 * and options. */
motet_status mt_build_judge(mt_build *build);

/** Which ranks each region lies on; judges what dedicated regions ask for. */
motet_status mt_build_ranks(mt_build *build);

/** Slabs, stages, parts and edges with their seams. */
motet_status mt_build_place(mt_build *build);

/** Gates of stages and gradients of edges, from the layers' flags and the stage graph alone. */
void mt_build_gates(mt_derivation *derivation);

/** Body sequences. */
motet_status mt_build_body(mt_build *build);

/** The name of modules [begin, end), joined by '+'; NULL when memory is out. */
char *mt_build_name(const mt_build *build, int32_t begin, int32_t end);

/** Refuses: MOTET_ERROR_ILLEGAL with the rule and, as key, the region's name (NULL: none). */
motet_status mt_build_refuse(mt_build *build, const char *rule, const char *region, const char *format, ...)
    MT_PRINTF(4, 5);

static inline const mt_skeleton_row *mt_region_row(const mt_region *region) {
  return &mt_skeleton_rows[region->skeleton.kind];
}

static inline uint64_t mt_bit(int32_t index) { return UINT64_C(1) << index; }

#endif
