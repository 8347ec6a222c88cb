/** @file
 * Times of collectives over a group of ranks by the cluster's links: rings that use every device's links, inside a
 * node and through all of its ports between nodes.
 */
#ifndef MT_COST_COLLECTIVE_H
#define MT_COST_COLLECTIVE_H

#include "cluster/cluster.h"

typedef enum mt_collective {
  MT_COLLECTIVE_ALL_REDUCE,
  MT_COLLECTIVE_REDUCE_SCATTER,
  MT_COLLECTIVE_ALL_GATHER
} mt_collective;

/** What measured collectives reach of the links; the standing values were fitted, see docs/clusters.md. */
typedef struct mt_collective_fit {
  double inside;           /* part of a link's bandwidth, inside a fast level */
  double between;          /* part of the ports' together, between fast levels */
  double start_seconds;    /* of any collective */
  double doubling_seconds; /* and for each doubling of the ranks */
} mt_collective_fit;

mt_collective_fit mt_collective_fit_usual(void);

/** What a device's collectives reach of its links, and how many ranks of a group are in one fast level. */
typedef struct mt_collective_links {
  double inside, between; /* bytes a second */
  int32_t ranks_inside;
  double peers; /* with a link each inside, of the level's; 0: a switch */
} mt_collective_links;

/** Bytes a second that a rank has inside a node for @p others other ones. */
double mt_collective_inside(const mt_collective_links *links, double others);

mt_collective_links mt_collective_links_of(const mt_cluster *cluster, const mt_collective_fit *fit, int32_t stride);

/** Seconds for @p bytes (of the whole vector) over @p ranks ranks, @p stride ranks apart from each other; 1:
 * neighbours. */
double mt_collective_seconds(const mt_cluster *cluster, const mt_collective_fit *fit, mt_collective kind,
                             int32_t ranks, int32_t stride, double bytes);

/** Parts of an all-to-all's bytes that go: below 1 where what several receivers want goes once. */
typedef struct mt_sent_parts {
  double inside;  /* over links inside a node: once to a rank */
  double between; /* between nodes: once to a node, and handed on inside */
} mt_sent_parts;

/** An all-to-all in which each rank has @p bytes for all ranks together: inside a node over the rank's own link,
 * between nodes through its own port. */
double mt_collective_all_to_all_seconds(const mt_cluster *cluster, const mt_collective_fit *fit, int32_t ranks,
                                        int32_t stride, double bytes, mt_sent_parts sent);

#endif
