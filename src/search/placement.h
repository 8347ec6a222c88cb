/** @file
 * Separate placement: how many devices each module of a model gets, as DistTrain states it (arXiv 2408.04275,
 * section 5). One module is the trunk, which fixes the data-parallel width and is cut into pipeline stages; the
 * others have as many replicas as their devices make. Any number of modules. See docs/search.md.
 */
#ifndef MT_SEARCH_PLACEMENT_H
#define MT_SEARCH_PLACEMENT_H

#include "base/arena.h"
#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

enum { MT_PLACEMENT_TENSORS = 4, MT_PLACEMENT_MODULES_MAX = 16 }; /* tensor-parallel degrees 1, 2, 4, 8 */

typedef struct mt_placement_module {
  const char *name;
  double seconds[MT_PLACEMENT_TENSORS]; /* C(TP): forward and backward of one sample over TP devices; 0: not
                                           possible */
  int32_t layers;                       /* of the trunk: as many pipeline stages at most */
  double static_bytes, sample_bytes;    /* of the whole module; both divide over TP and stages */
} mt_placement_module;

typedef struct mt_placement_request {
  const mt_placement_module *modules;
  int32_t module_count, trunk; /* index of the trunk */
  int32_t devices;
  int32_t batch, microbatch; /* samples of a step, and of the trunk's microbatch */
  double memory_bytes;       /* of a device; 0: no cap */
} mt_placement_request;

typedef struct mt_placed_module {
  int32_t tensor, devices, replicas, pipeline;
  double seconds; /* T_k: a microbatch of all trunk replicas */
  double bytes;   /* of a device */
} mt_placed_module;

typedef struct mt_placement {
  mt_placed_module modules[MT_PLACEMENT_MODULES_MAX];
  int32_t data;                    /* trunk replicas */
  double seconds, warm_up, steady; /* seconds = warm_up + steady */
  double bound;                    /* of the relaxed problem: devices as fractions */
  int64_t looked_at;               /* combinations evaluated */
} mt_placement;

/** The best placement: exact over all integer choices. MOTET_ERROR_ILLEGAL where nothing fits, with what would. */
motet_status mt_placement_find(mt_arena *arena, const mt_placement_request *request, motet_error *error,
                               mt_placement *placement);

#endif
