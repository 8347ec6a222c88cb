/** @file
 * A model that answers: a checkpoint or a HuggingFace directory, opened for greedy generation on one rank.
 */
#ifndef MT_TRAIN_GENERATOR_H
#define MT_TRAIN_GENERATOR_H

#include "data/prompt.h"
#include "train/job.h"

typedef struct mt_generator mt_generator;

/**
 * Opens @p path: a model in the HuggingFace layout (config.json, weights, tokenizer.json), or a run's output
 * directory, whose newest whole checkpoint is taken. @p tokenizer stands for the directory's own, NULL: its own.
 */
motet_status mt_generator_open(const char *path, const char *tokenizer, int32_t threads, motet_error *error,
                               mt_generator **generator);
void mt_generator_close(mt_generator *generator);

/** The directory that was taken. */
const char *mt_generator_model(const mt_generator *generator);
const mt_internvl *mt_generator_config(const mt_generator *generator);
const mt_tokenizer *mt_generator_tokenizer(const mt_generator *generator);
/** The job that the run was started with; NULL for a model that is no run's. */
const mt_job *mt_generator_job(const mt_generator *generator);

typedef struct mt_answer {
  mt_tokens tokens; /* without the one that ended it */
  mt_text text;
  bool ended; /* by the model; else by the limit */
} mt_answer;

/** Answers greedily with at most @p max_tokens tokens: the likeliest token each time, of equals the one with the
 * lower id. Free with mt_answer_free(), also after an error. */
motet_status mt_generator_answer(mt_generator *generator, const mt_prompt *prompt, int32_t max_tokens,
                                 motet_error *error, mt_answer *answer);
void mt_answer_free(mt_answer *answer);

#endif
