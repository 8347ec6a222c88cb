/** @file
 * What a search is asked: a model, a cluster, a step's data, and which choices are open. See docs/search.md.
 */
#ifndef MT_SEARCH_PROBLEM_H
#define MT_SEARCH_PROBLEM_H

#include "algebra/schedule.h"
#include "base/arena.h"
#include "cluster/cluster.h"
#include "workload/samples.h"

enum { MT_SEARCH_CHOICES = 16, MT_SEARCH_ENCODER_BATCH = 64 };

/** Values that a degree may take; count 0: whatever makes sense. */
typedef struct mt_search_range {
  int32_t count, values[MT_SEARCH_CHOICES];
} mt_search_range;

/** How the modules before the trunk lie. */
typedef enum mt_search_manner {
  MT_MANNER_CHAIN,     /* in one pipeline with the trunk, cut anywhere */
  MT_MANNER_INLINE,    /* on the trunk's first stage */
  MT_MANNER_TRANSPOSE, /* on every cell, a microbatch at a time */
  MT_MANNER_DEDICATE,  /* on cells of their own */
  MT_MANNERS
} mt_search_manner;

extern const char *const mt_search_manner_names[MT_MANNERS];

/** What saves memory. */
typedef enum mt_search_saving {
  MT_SEARCH_RECOMPUTE, /* layers compute their activations again */
  MT_SEARCH_OFFLOAD,   /* or keep them in host memory */
  MT_SEARCH_OPTIMIZER, /* the optimizer's states lie in host memory */
  MT_SEARCH_SAVINGS
} mt_search_saving;

typedef struct mt_search_problem {
  mt_arena *arena;
  mt_architecture *architecture;
  const char *model_path;
  const char *cluster_name; /* preset or file */
  mt_cluster cluster;
  double memory_bytes;      /* of a device, what a plan may use */
  mt_workload_samples data; /* as the file says; drawn ones: of the seed */
  /* Where the data come from, for drawing them again. */
  const char *distribution;
  const char *trace;
  int64_t tokens; /* of every sample where neither is given */
  mt_picture picture;
  int32_t picture_count, global_batch;
  mt_workload_samples pool; /* of a trace: all its samples */
  int64_t seed;
  mt_search_range tensor, context, pipeline, expert, microbatch, encoder_batch, zero, shard_devices, chunks;
  bool manners[MT_MANNERS];
  bool trunks[MT_SKELETON_KINDS];  /* skeletons of the pipeline */
  bool savings[MT_SEARCH_SAVINGS]; /* what may be used where memory asks for it */
  double time_limit;               /* seconds; 0: none */
} mt_search_problem;

/** Whether a plan may save memory so: all but recomputation needs a link to the host. */
static inline bool mt_search_may_save(const mt_search_problem *problem, mt_search_saving saving) {
  return problem->savings[saving] &&
         (saving == MT_SEARCH_RECOMPUTE || problem->cluster.device.host_bytes_per_second > 0);
}

/** Reads a job (YAML). @p overrides are words `key=value`. Errors name file, line and key. */
motet_status mt_search_problem_read(const char *path, int override_count, char *const *overrides,
                                    motet_error *error, mt_search_problem **problem);
motet_status mt_search_problem_parse(const char *yaml, size_t bytes, const char *name, int override_count,
                                     char *const *overrides, motet_error *error, mt_search_problem **problem);
void mt_search_problem_destroy(mt_search_problem *problem);

/** A step's samples drawn with another seed: of a distribution, or again from the trace; others stay the same. */
motet_status mt_search_data_draw(const mt_search_problem *problem, int64_t seed, mt_arena *arena,
                                 motet_error *error, mt_workload_samples *data);

#endif
