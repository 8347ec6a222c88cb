/** @file Exact sums of gradients, as the network's files use them; what others call is in network.h. */
#ifndef MT_NN_EXACT_H
#define MT_NN_EXACT_H

#include "nn/internal.h"

/** Around a layer's backward: what it adds to its gradients in between is one addend of the exact sums. Both do
 * nothing for a network that sums as it goes. */
void mt_exact_begin(mt_network *network, int32_t layer);
void mt_exact_end(mt_network *network, int32_t layer);

void mt_exact_zero(mt_exact *exact);
void mt_exact_free(mt_exact *exact);

#endif
