/** @file How a data set is held: filled by dataset.c, used by dataset_rows.c. */
#ifndef MT_DATA_DATASET_FORM_H
#define MT_DATA_DATASET_FORM_H

#include "data/chat.h"
#include "data/dataset.h"
#include "data/medium.h"

/** A picture or video as its header described it when the data set was opened. */
typedef struct mt_dataset_medium {
  const char *path;
  mt_medium_form form;
} mt_dataset_medium;

/** Where a sample's line lies in the file. */
typedef struct mt_dataset_line {
  int64_t offset;
  int64_t bytes;
  int64_t first_medium; /* of the sample's pictures and videos in `media` */
} mt_dataset_line;

struct mt_dataset {
  mt_arena *arena; /* paths */
  const char *path, *root, *system_prompt;
  const mt_internvl *config;
  mt_chat chat;
  int descriptor;
  int32_t max_tokens, video_frames;
  bool refuse_long;
  int32_t dropped;
  uint64_t content; /* digest of the samples' tokens and targets */
  MT_ARRAY(mt_sample) samples;
  MT_ARRAY(mt_dataset_line) lines; /* one a sample */
  MT_ARRAY(mt_dataset_medium) media;
};

/** Reads and encodes sample @p sample again, appending to @p tokens and @p targets. */
motet_status mt_dataset_encode(const mt_dataset *dataset, int32_t sample, motet_error *error, mt_tokens *tokens,
                               mt_marks *targets);

#endif
