/** @file Samples of a training step as their shapes alone: tokens and pictures, from JSON lines. */
#ifndef MT_WORKLOAD_SAMPLES_H
#define MT_WORKLOAD_SAMPLES_H

#include "model/architecture.h"

typedef struct mt_workload_sample {
  int64_t tokens; /* of its row, features of its pictures included; generators: of its caption */
  int32_t picture_begin, picture_count;
} mt_workload_sample;

typedef struct mt_workload_samples {
  int32_t count;
  mt_workload_sample *samples;
  mt_picture *pictures;
} mt_workload_samples;

/** Reads samples, JSON lines `{"tokens": 1024, "images": [[448, 448]], "video": [16, 448, 448]}`. Errors name the
 * line. @param file for messages */
motet_status mt_workload_samples_parse(mt_arena *arena, const char *text, size_t bytes, const char *file,
                                       motet_error *error, mt_workload_samples *data);
motet_status mt_workload_samples_read(mt_arena *arena, const char *path, motet_error *error,
                                      mt_workload_samples *data);

/** Where a microbatch's shape is put together. */
typedef struct mt_workload_room {
  int64_t *segments;
  mt_picture *pictures;
} mt_workload_room;

/** Room for microbatches of at most @p most samples of @p data. */
motet_status mt_workload_samples_room(mt_arena *arena, const mt_workload_samples *data, int32_t most,
                                      motet_error *error, mt_workload_room *room);

/** Rows and areas of a microbatch of the samples @p which [count]; overwrites @p extents. */
motet_status mt_workload_samples_measure(const mt_architecture *architecture, const mt_workload_samples *data,
                                         const int32_t *which, int32_t count, const mt_workload_room *room,
                                         motet_error *error, double *extents);

#endif
