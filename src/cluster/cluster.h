/** @file
 * Clusters: what a device can do, and the links between devices, level by level.
 *
 * A level joins `devices` devices, those of the level below several times over: two dies in a package, eight
 * devices in a node, nodes in a cluster. Ranks are numbered so that the devices of a group at any level are
 * neighbours. The link of two ranks is that of the lowest level that holds both.
 *
 * Presets and files state published peaks. What is achieved is an efficiency beside them; a measured profile
 * replaces both.
 */
#ifndef MT_CLUSTER_CLUSTER_H
#define MT_CLUSTER_CLUSTER_H

#include "base/error.h"
#include "cluster/links.h"

#include <stddef.h>

enum { MT_CLUSTER_NAME_SIZE = 64, MT_CLUSTER_LEVELS = 8 };

typedef struct mt_device {
  char name[MT_CLUSTER_NAME_SIZE];
  double bfloat16_flops, float16_flops, float32_flops, float8_flops; /* dense peaks; 0: none stated */
  double memory_bytes, memory_bytes_per_second;
  double host_bytes_per_second; /* to host memory, one direction; 0: not stated */
  double host_memory_bytes;     /* its share of the host's; 0: not stated, and then not bound */
  double matmul_efficiency, attention_efficiency, memory_efficiency, host_efficiency; /* of peaks, at large sizes */
  double matmul_half_width;  /* a product whose smallest side is this wide reaches half of its efficiency; 0: any
                                does. Not with compute_units: there tiles decide */
  double compute_units;      /* processors that compute tiles of a product side by side; 0: not known */
  double matmul_depth;       /* what starting and ending a tile costs, in elements of the summed side */
  double layer_host_seconds; /* a host takes so long to launch a pass over one layer */
  double collective_units;   /* of compute_units, that collectives take while they run; 0: none */
} mt_device;

typedef struct mt_level {
  char name[MT_CLUSTER_NAME_SIZE];
  int32_t devices;   /* joined by this level */
  mt_link link;      /* of one device, in each direction */
  double efficiency; /* part of it that collectives reach; 0: as elsewhere (mt_collective_fit) */
  double peers;      /* a link of its own to each of so many others, that have equal parts of the bandwidth; 0: a
                        switch, behind which any other has all of it */
} mt_level;

typedef struct mt_cluster {
  char name[MT_CLUSTER_NAME_SIZE];
  mt_device device;
  mt_level levels[MT_CLUSTER_LEVELS]; /* from inside to outside; the last joins all */
  int32_t level_count;
  int32_t fast_level; /* the largest that still suits tensor and Ulysses parallelism */
  int32_t devices;
} mt_cluster;

/** Names of the presets, comma separated. */
const char *mt_cluster_presets(void);

/** So many devices. The outermost level joins whole groups of the level below, of which the last may be partly
 * empty; levels that become needless are gone. */
motet_status mt_cluster_resize(mt_cluster *cluster, int32_t devices, motet_error *error);

/** A preset by name, with as many devices as @p devices (rounded up to whole groups below the last level). */
motet_status mt_cluster_preset(const char *name, int32_t devices, motet_error *error, mt_cluster *cluster);

/** Reads a cluster file (YAML, docs/clusters.md). Errors name file, line and key. */
motet_status mt_cluster_read(const char *path, motet_error *error, mt_cluster *cluster);

/** The same from memory; @p name stands for the file in errors. */
motet_status mt_cluster_parse(const char *yaml, size_t bytes, const char *name, motet_error *error,
                              mt_cluster *cluster);

/** Number of the lowest level that holds both ranks; ranks outside the cluster count as joined by the last. */
int32_t mt_cluster_level(const mt_cluster *cluster, int32_t a, int32_t b);

/** The two-level view that simulation charges by: what two ranks have between them inside the fast level, and the
 * link above it. */
mt_links mt_cluster_links(const mt_cluster *cluster);

/** Whether levels nest and every number is in range; for clusters made by hand. */
motet_status mt_cluster_check(const mt_cluster *cluster, motet_error *error);

#endif
