/** @file Where a rank computes: its share of the machine's cores. */
#ifndef MT_COMM_PLACE_H
#define MT_COMM_PLACE_H

#include "base/text.h"
#include "comm/transport.h"

/** A rank's place. Fixed sizes: it is sent as it is. */
typedef struct mt_place {
  char host[64];
  char cores[64]; /* processors that it may use, as the system numbers them: "0-15"; "" where that is not known */
  int32_t threads;
} mt_place;

/**
 * Binds the calling process to its share of the cores it may use, where there is at least one a rank of this
 * machine and nobody has bound it narrower already, and sets the transport's `threads` to their number. With more
 * ranks than cores each gets one thread and the system places it. OMP_NUM_THREADS in the environment sets the
 * number instead. Without @p binds it only counts.
 */
void mt_place_rank(mt_transport *transport, bool binds, mt_place *place);

/** Called by all ranks: appends to @p text on rank 0 a line for each run of ranks on one host, with the processors
 * of each. */
motet_status mt_place_describe(mt_transport *transport, const mt_place *place, motet_error *error, mt_text *text);

#endif
