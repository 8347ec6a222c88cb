/** @file
 * Input: what it takes to decode a row's pictures, and how long a step's ranks wait for them.
 */
#ifndef MT_TRAIN_INPUT_H
#define MT_TRAIN_INPUT_H

#include "data/dataset.h"
#include "order/plan.h"
#include "train/costs.h"

enum { MT_INPUT_FEATURES = 3 };

/** What decoding of a row depends on: pictures and videos, pixels in their files, tiles. */
void mt_input_features(const mt_dataset *dataset, const mt_row *row, double features[MT_INPUT_FEATURES]);

/** Seconds of one thread; 0 where the costs do not know. */
double mt_input_seconds(const mt_decode_costs *costs, const mt_dataset *dataset, const mt_row *row);

typedef struct mt_input_options {
  const double *seconds;    /* [microbatches of the program] of one thread, to decode each */
  int32_t threads;          /* of a rank that decode */
  int32_t spare_processors; /* of a rank, beside the threads that compute */
  int32_t capacity;         /* rows that a rank decodes ahead of what it has loaded */
} mt_input_options;

/**
 * Simulates @p plan again with the time that each LOAD waits for pixels, in the steady state of steps that are
 * alike. Threads that decode take the spare processors while the rank computes, and those of the computation too
 * while it waits; a LOAD whose pixels are not there by then takes what is missing. The plan's costs of LOAD and its
 * simulation are replaced. Plans with context parallelism are left as they are.
 */
motet_status mt_input_forecast(mt_arena *arena, const mt_input_options *options,
                               const mt_simulate_options *simulate, motet_error *error, mt_plan *plan);

#endif
