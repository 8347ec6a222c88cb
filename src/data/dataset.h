/** @file
 * Data sets of conversations with pictures and videos: JSON lines as LLaMA-Factory, ms-swift (`messages`) and
 * ShareGPT
 * (`conversations`) write them. See docs/formats/data.md.
 *
 * Opening reads every line and the headers of pictures and videos, no pixels: lengths, tiles and targets of each
 * sample are known before training, on every rank, and errors show before the first step. An open data set is
 * read-only; threads may share it.
 */
#ifndef MT_DATA_DATASET_H
#define MT_DATA_DATASET_H

#include "base/arena.h"
#include "base/error.h"
#include "data/medium.h"
#include "data/tokenizer.h"
#include "model/internvl.h"
#include "nn/batch.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct mt_dataset mt_dataset;

/** Frames of a video where nothing else is asked for: as in the examples of InternVL's cards. */
enum { MT_DATASET_VIDEO_FRAMES = 8 };

typedef struct mt_dataset_options {
  const char *images_root;   /* directory of relative picture paths; NULL: the data file's own */
  const char *system_prompt; /* put in front of conversations without one; NULL: none */
  int32_t max_tokens;        /* longest sample, 0: any */
  int32_t video_frames;      /* sampled of a video that has as many; 0: MT_DATASET_VIDEO_FRAMES */
  bool refuse_long;          /* a longer sample is an error; otherwise it is left out and counted */
} mt_dataset_options;

/** What is known of a sample without its pixels. */
typedef struct mt_sample {
  int32_t line;    /* in the file, from 1 */
  int32_t tokens;  /* with image tokens */
  int32_t targets; /* tokens that carry a loss */
  int32_t tiles;   /* of pictures, and one a sampled frame of videos */
  int32_t images, videos;
} mt_sample;

/** Opens the JSON lines at @p path. @p tokenizer and @p config must outlive the data set. Errors name file and
 * line. */
motet_status mt_dataset_open(const char *path, const mt_tokenizer *tokenizer, const mt_internvl *config,
                             const mt_dataset_options *options, motet_error *error, mt_dataset **dataset);
void mt_dataset_close(mt_dataset *dataset);

int32_t mt_dataset_count(const mt_dataset *dataset);
const mt_sample *mt_dataset_sample(const mt_dataset *dataset, int32_t sample);

/** A picture or video of a sample. */
typedef struct mt_dataset_medium_view {
  int64_t number; /* among all of the data set */
  const char *path;
  const mt_medium_form *form;
} mt_dataset_medium_view;

/** Pictures and videos of all samples together, and number @p index of a sample's. */
int64_t mt_dataset_medium_count(const mt_dataset *dataset);
mt_dataset_medium_view mt_dataset_medium_at(const mt_dataset *dataset, int32_t sample, int32_t index);

/** Samples left out because they were longer than max_tokens. */
int32_t mt_dataset_dropped(const mt_dataset *dataset);

/** A digest of the samples' tokens, targets and numbers, not of pixels: equal on ranks that see the same data. */
uint64_t mt_dataset_digest(const mt_dataset *dataset);

/** A packed row as planned: shapes, before anything is loaded. */
typedef struct mt_row {
  int32_t samples;
  const int32_t *sample; /* [samples] */
  int32_t tokens, tiles, targets;
  const int32_t *segment_begin; /* [samples + 1] */
  double loss_weight;           /* 1 / targets of the whole step */
  const int32_t *feature_rows;  /* as in mt_batch, where they have been looked up; else NULL */
} mt_row;

/**
 * The rows of training step @p step (from 0): samples step * global_batch ... of the endless sequence that puts one
 * random order of all samples after another, cut by count into @p rows runs. A pure function of the data set and
 * the arguments: resuming needs no state. Row i is global microbatch i: with D replicas of M microbatches, replica
 * r has rows r * M ... r * M + M - 1, so that the same rows exist under every D with D * M alike.
 * @param plan [rows], in @p arena
 */
motet_status mt_dataset_plan(const mt_dataset *dataset, uint64_t seed, int64_t step, int32_t global_batch,
                             int32_t rows, mt_arena *arena, motet_error *error, const mt_row **plan);

/** Rows over samples [first, first + count) in file order: evaluation. */
motet_status mt_dataset_plan_range(const mt_dataset *dataset, int32_t first, int32_t count, int32_t rows,
                                   mt_arena *arena, motet_error *error, const mt_row **plan);

/**
 * Fills @p batch from @p row: shapes always; token ids, labels and feature rows if @p tokens; pixels if @p pixels.
 * All memory comes from @p arena. A picture that cannot be read, or that changed its tiling since opening, is an
 * error that names it and its line.
 */
motet_status mt_dataset_load(const mt_dataset *dataset, const mt_row *row, bool tokens, bool pixels,
                             mt_arena *arena, motet_error *error, mt_batch *batch);

/** The pixels of @p row: (tiles, 3, image_size, image_size). */
motet_status mt_dataset_pixels(const mt_dataset *dataset, const mt_row *row, motet_error *error, float *pixels);

/** Where the samples of @p row stand: "lines 4, 17 of data.jsonl". */
void mt_dataset_origin(const mt_dataset *dataset, const mt_row *row, char *text, size_t size);

/** Floats of one tile: 3 * image_size^2. */
int64_t mt_dataset_tile_floats(const mt_dataset *dataset);

/** Appends the tokens of sample @p sample up to its last answer, with the answer's opening, and that answer's text
 * to
 * @p answer. The pixels are those of a row that holds the sample alone. */
motet_status mt_dataset_question(const mt_dataset *dataset, int32_t sample, motet_error *error, mt_tokens *tokens,
                                 mt_text *answer);

/** The paths of sample @p sample's pictures and videos, in their order; the list is in @p arena, the paths live as
 * long as the data set. */
motet_status mt_dataset_pictures(const mt_dataset *dataset, int32_t sample, mt_arena *arena, motet_error *error,
                                 const char ***paths, int32_t *count);

#endif
