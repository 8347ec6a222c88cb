/** @file
 * Jobs for a cluster: one YAML document that says which model on which cluster, how it lies there, and what a
 * microbatch holds. A training job (docs/formats/job.md) becomes one by the key `cluster`; what only training reads
 * is passed over. See docs/formats/cluster-job.md.
 */
#ifndef MT_ORDER_CLUSTER_JOB_H
#define MT_ORDER_CLUSTER_JOB_H

#include "base/arena.h"
#include "base/error.h"
#include "cost/forecast.h"

typedef struct mt_cluster_job_list {
  int32_t count;
  const char **values;
} mt_cluster_job_list;

typedef struct mt_cluster_job {
  const char *path;                                     /* for messages */
  const int *lines;                                     /* where keys stand, see mt_cluster_job_place() */
  const char *model, *config;                           /* a directory with a config.json, or such a file */
  const char *cluster, *cluster_file;                   /* a preset's name, or a cluster file */
  double devices;                                       /* of a preset; 0: as many as the degrees ask for */
  double memory;                                        /* bytes of a device; 0: the cluster's */
  const char *schedule;                                 /* NULL: what suits the model's modules */
  mt_cluster_job_list trainable;                        /* modules; count -1: as the architecture has it */
  mt_cluster_job_list split;                            /* whole numbers */
  mt_cluster_job_list recompute_layers, offload_layers; /* numbers and ranges, as 3 or 10-19 */
  double tensor, context, ulysses, ring, data, pipeline, expert;
  double encoder_tensor; /* of the modules before the trunk; 0: as the trunk's */
  double zero, shard_group;
  double routed_devices, routed_nodes; /* that have a token's experts, in the mean; 0: experts spread evenly */
  const char *sequence, *tensor_overlap, *overlap, *layered, *recompute, *attention, *gradients, *precision,
      *dispatch, *element_wise, *optimizer;
  double tokens, samples;
  double microbatches, global_batch; /* of a replica in a step, or samples of all; 0: not given */
  const char *images, *video;
  const char *trace; /* a file with the samples of a replica, microbatch by microbatch */
} mt_cluster_job;

/** Whether the file at @p path or one of the `key=value` words names a cluster. False also where it cannot be read:
 * who reads it then says why. */
bool mt_cluster_job_is(const char *path, int override_count, char *const *overrides);

/** Reads @p path; words `key=value` go over it. Texts live in @p arena. Errors name file, line and key. */
motet_status mt_cluster_job_read(mt_arena *arena, const char *path, int override_count, char *const *overrides,
                                 motet_error *error, mt_cluster_job *job);

/** The same from memory; @p name stands for the file. */
motet_status mt_cluster_job_parse(mt_arena *arena, const char *yaml, size_t bytes, const char *name,
                                  int override_count, char *const *overrides, motet_error *error,
                                  mt_cluster_job *job);

/** Gives an error that is about @p key, and has no place yet, the place where the key was given: a line of the
 * file, or the command line. */
void mt_cluster_job_place(const mt_cluster_job *job, const char *key, motet_error *error);

/** A job whose model, cluster and degrees were read and fit together. */
typedef struct mt_cluster_setup {
  const mt_cluster_job *job;
  const char *schedule;
  mt_architecture *architecture;
  mt_cluster cluster;
  mt_parallel *parallel; /* [modules] */
  uint8_t *savings;      /* [layers] */
  mt_forecast forecast;  /* refers to the set-up: do not copy */
  double *extents;       /* (extents_count, MT_EXTENTS) */
  int32_t extents_count; /* 1: all microbatches are alike */
  int32_t microbatches;
  int32_t *split; /* [split_count] or NULL */
  int32_t split_count;
} mt_cluster_setup;

static inline const double *mt_cluster_extents(const mt_cluster_setup *setup, int32_t microbatch) {
  return setup->extents + (setup->extents_count > 1 ? (int64_t)microbatch * MT_EXTENTS : 0);
}

motet_status mt_cluster_job_open(mt_arena *arena, const mt_cluster_job *job, motet_error *error,
                                 mt_cluster_setup *setup);

#endif
