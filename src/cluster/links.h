/** @file The links between ranks, as far as a transfer's time depends on them. */
#ifndef MT_CLUSTER_LINKS_H
#define MT_CLUSTER_LINKS_H

#include <stdbool.h>
#include <stdint.h>

/** A transfer takes `latency + bytes / bandwidth`. A bandwidth of 0 stands for an unlimited one. */
typedef struct mt_link {
  double latency_seconds;
  double bytes_per_second;
} mt_link;

/** Ranks `[k * ranks_per_node, (k + 1) * ranks_per_node)` share node k. */
typedef struct mt_links {
  int32_t ranks_per_node; /* 0: all ranks on one node */
  mt_link local;          /* inside a node */
  mt_link remote;         /* between nodes */
  bool shared_nic;        /* a node's transfers to other nodes pass one after the other through its NIC, one in each
                             direction at a time */
} mt_links;

static inline double mt_link_seconds(mt_link link, int64_t bytes) {
  return link.latency_seconds + (link.bytes_per_second > 0 ? (double)bytes / link.bytes_per_second : 0.0);
}

static inline bool mt_links_same_node(const mt_links *links, int32_t a, int32_t b) {
  return links->ranks_per_node <= 0 || a / links->ranks_per_node == b / links->ranks_per_node;
}

#endif
