/** @file
 * How a module lies on the devices of a cluster.
 *
 * Devices are numbered tensor ranks first, then Ulysses, ring and sample ranks, data-parallel ranks, pipeline ranks
 * last. The devices of one pipeline rank in one replica form a cell: it acts as one rank of a program, and what the
 * program calls bytes are those of one of its devices.
 */
#ifndef MT_COST_PARALLEL_H
#define MT_COST_PARALLEL_H

#include "cluster/cluster.h"

typedef struct mt_parallel {
  int32_t tensor;         /* divide each layer's weights */
  int32_t ulysses, ring;  /* divide the tokens of a row; together the context-parallel degree */
  int32_t samples;        /* devices of a cell that share out a microbatch's pictures, each with all weights */
  int32_t data, pipeline; /* replicas; cells of a replica */
  int32_t expert;         /* devices that share the routed experts of a layer, counted over cells of replicas */
  bool sequence_parallel; /* tensor ranks divide whole rows, too */
  bool stored_scores;     /* attention without fusion: scores of the full square are written, masked and read */
  bool float8;            /* linear maps of blocks multiply in float8 */
  bool eager;             /* element-wise operations one by one, not fused */
  bool dispatch_copies;   /* a row goes to each of its experts, not once to each device that has some of them */
  double routed_devices, routed_nodes; /* that have a token's experts, in the mean; 0: experts spread evenly */
  bool worst_routing;                  /* time by what the unluckiest device computes, not by what is expected */
  bool tensor_overlap;    /* tensor ranks exchange rows in chunks behind the products that take or give them */
  bool overlap;           /* gradients are reduced, weights gathered behind compute */
  bool float32_gradients; /* accumulated and reduced in 4 bytes, not 2 */
  int32_t zero_level;     /* 0 to 3 (arXiv 1910.02054): divided are 1: states, 2: gradients too, 3: weights too */
  int32_t shard_group;    /* replicas that divide them; 0: all */
  bool host_optimizer;    /* states lie in host memory and pass through the device's once a step */
  bool layered;           /* weights and gradients over the shard group, states over all replicas */
} mt_parallel;

/** Everything on one device. */
mt_parallel mt_parallel_single(void);

/** Devices of a cell. */
static inline int32_t mt_parallel_cell(const mt_parallel *parallel) {
  return parallel->tensor * parallel->ulysses * parallel->ring * parallel->samples;
}

/** Devices that hold the same part of a layer's dense weights, over all replicas. */
static inline int32_t mt_parallel_copies(const mt_parallel *parallel) {
  return parallel->ulysses * parallel->ring * parallel->samples * parallel->data;
}

/** Whether every degree is at least 1, the shard group divides the copies, and all fit @p cluster. */
motet_status mt_parallel_check(const mt_parallel *parallel, const mt_cluster *cluster, motet_error *error);

/** The links between cells, numbered by pipeline rank alone: what a program of one replica is simulated with. */
mt_links mt_parallel_links(const mt_parallel *parallel, const mt_cluster *cluster);

#endif
