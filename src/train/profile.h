/** @file
 * Measuring what layers, optimizer and messages cost. All ranks measure the same thing at the same time: they share
 * memory and caches in a training step too, and a rank that is alone is faster than it will ever be again.
 */
#ifndef MT_TRAIN_PROFILE_H
#define MT_TRAIN_PROFILE_H

#include "comm/transport.h"
#include "train/setup.h"

/** Measures over the shapes of the job's first steps. Called by all ranks, which get the same @p costs. */
motet_status mt_profile_measure(const mt_setup *setup, mt_transport *transport, motet_error *error,
                                mt_layer_costs *costs);

#endif
