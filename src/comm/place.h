/** @file Where a rank computes: its share of the machine's cores. */
#ifndef MT_COMM_PLACE_H
#define MT_COMM_PLACE_H

#include "comm/transport.h"

/**
 * Binds the calling process to its share of the cores it may use, where there is at least one a rank of this
 * machine and nobody has bound it narrower already, and sets the transport's `threads` to their number. With more
 * ranks than cores each gets one thread and the system places it. OMP_NUM_THREADS in the environment sets the
 * number instead.
 */
void mt_place_rank(mt_transport *transport);

#endif
