/** @file
 * Collectives over a transport's messages. Groups are lists of ranks and cost no communicator, so there may be
 * any number of them; every member names the same group number and the same ranks.
 *
 * Sums are taken in the order of the group's ranks, whatever the sizes and the timing: the same input gives the
 * same bits, run to run.
 */
#ifndef MT_COMM_COLLECTIVE_H
#define MT_COMM_COLLECTIVE_H

#include "comm/transport.h"

/** A set of ranks, ascending, that contains the caller. */
typedef struct mt_rank_group {
  int32_t number; /* tag, the same on all members */
  int32_t count;
  const int32_t *ranks; /* [count] */
} mt_rank_group;

/** The arrays that a reduction needs beside its data; grows to the largest and is kept between calls. */
typedef struct mt_collective_scratch {
  void *data;
  size_t bytes;
} mt_collective_scratch;

void mt_collective_scratch_free(mt_collective_scratch *scratch);

/** values[i] becomes the sum over the group's ranks, on all of them. */
motet_status mt_all_reduce_floats(mt_transport *transport, const mt_rank_group *group, float *values, size_t count,
                                  mt_collective_scratch *scratch, motet_error *error);
motet_status mt_all_reduce_doubles(mt_transport *transport, const mt_rank_group *group, double *values,
                                   size_t count, mt_collective_scratch *scratch, motet_error *error);

/** No member returns before all have called. */
motet_status mt_barrier(mt_transport *transport, const mt_rank_group *group, motet_error *error);

/** The data of the group's member with index @p root, on all members. */
motet_status mt_broadcast(mt_transport *transport, const mt_rank_group *group, int32_t root, void *data,
                          size_t bytes, motet_error *error);

/** Member i's @p bytes stand at `all + i * bytes` on member 0; @p all may be NULL elsewhere. */
motet_status mt_gather(mt_transport *transport, const mt_rank_group *group, const void *own, size_t bytes,
                       void *all, motet_error *error);

#endif
