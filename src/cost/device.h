/** @file
 * Times of layers on a device that nobody has measured yet: products by their shapes (product.h), attention at an
 * efficiency of its own or, with stored scores, as products, element-wise work by the bytes it moves, and no pass
 * over a layer faster than a host launches it.
 */
#ifndef MT_COST_DEVICE_H
#define MT_COST_DEVICE_H

#include "cluster/cluster.h"
#include "model/architecture.h"

/** How one layer's work lies on a tensor-parallel group. */
typedef struct mt_device_share {
  int32_t tensor_parallel; /* devices that divide each layer; at least 1 */
  bool sequence_parallel;  /* they divide whole rows, too */
  bool stored_scores;      /* attention without fusion: scores of the full square are written, masked and read */
  bool float8;             /* linear maps of blocks multiply in float8 */
  bool eager;              /* element-wise operations one by one */
  int32_t expert_parallel; /* above 1: so many devices share routed experts, and tensor ranks divide their tokens */
  double worst_routing;    /* routed rows that a device computes, to those that it brings; 0: as many */
} mt_device_share;

typedef struct mt_device_seconds {
  double forward, input_gradient, weight_gradient;
  double attention; /* of the forward: what selective recomputation repeats */
  double products;  /* of the forward: linear maps */
} mt_device_seconds;

/** Seconds of @p layer for a microbatch of these extents on one of the group's devices, without communication. */
void mt_device_layer_seconds(const mt_device *device, const mt_architecture *architecture, int32_t layer,
                             const double extents[MT_EXTENTS], const mt_device_share *share,
                             mt_device_seconds *seconds);

/** Seconds in which @p bytes are read or written. */
double mt_device_moved_seconds(const mt_device *device, double bytes);

/** Seconds in which @p bytes go to host memory, or come from it; 0 where no link is stated. */
double mt_device_host_seconds(const mt_device *device, double bytes);

/** Seconds of mixed-precision Adam on @p parameters of a device: weight, gradient, master copy and two moments are
 * read, all but the gradient written: 38 bytes a parameter. */
double mt_device_optimizer_seconds(const mt_device *device, double parameters);

#endif
