/** @file A question to a model: the tokens up to the opening of the answer, and the pixels they speak of. */
#ifndef MT_DATA_PROMPT_H
#define MT_DATA_PROMPT_H

#include "data/tokenizer.h"
#include "model/internvl.h"

typedef struct mt_prompt {
  mt_tokens tokens;
  int32_t tiles;
  float *pixels; /* (tiles, 3, image_size, image_size), NULL without pictures */
} mt_prompt;

typedef struct mt_prompt_options {
  const char *system;        /* text of a system turn; NULL: none */
  const char *text;          /* the user's turn */
  const char *const *images; /* paths */
  int32_t image_count;
  const char *const *videos;
  int32_t video_count, video_frames; /* video_frames: sampled of each that has as many */
} mt_prompt_options;

/**
 * Makes the prompt of one question. Where the text has `<image>` and `<video>` for each picture and video they
 * stand there, where it has none all stand in front of it, each on a line. Errors name the picture. Free with
 * mt_prompt_free(), also after an error.
 */
motet_status mt_prompt_make(const mt_tokenizer *tokenizer, const mt_internvl *config,
                            const mt_prompt_options *options, motet_error *error, mt_prompt *prompt);
void mt_prompt_free(mt_prompt *prompt);

#endif
