/** @file
 * Job files: one YAML document that says what to train, on what, how and where to. See docs/formats/job.md.
 *
 * One table lists every key with its type, range and default; reading, overriding on the command line, printing
 * and the error messages all follow it.
 */
#ifndef MT_TRAIN_JOB_H
#define MT_TRAIN_JOB_H

#include "base/arena.h"
#include "base/error.h"
#include "base/text.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct mt_job_integers {
  int32_t count;
  int64_t *values;
} mt_job_integers;

typedef struct mt_job_texts {
  int32_t count;
  const char **values;
} mt_job_texts;

typedef struct mt_job_numbers {
  int32_t count;
  double *values;
} mt_job_numbers;

typedef enum mt_job_init { MT_JOB_INIT_PRETRAINED, MT_JOB_INIT_RANDOM } mt_job_init;
/** Which bits are equal: of the same plan, or of any plan over the same microbatches. */
typedef enum mt_job_deterministic { MT_JOB_DETERMINISTIC_RUN, MT_JOB_DETERMINISTIC_EXACT } mt_job_deterministic;
typedef enum mt_job_degrees { MT_JOB_DEGREES_FLEXIBLE, MT_JOB_DEGREES_STATIC } mt_job_degrees;
typedef enum mt_job_bind { MT_JOB_BIND_CORES, MT_JOB_BIND_NONE } mt_job_bind;
typedef enum mt_job_dtype { MT_JOB_DTYPE_FLOAT32, MT_JOB_DTYPE_BFLOAT16 } mt_job_dtype;
typedef enum mt_job_decay { MT_JOB_DECAY_NONE, MT_JOB_DECAY_LINEAR, MT_JOB_DECAY_COSINE } mt_job_decay;

enum { MT_JOB_MODULES = 3 };
extern const char *const mt_job_modules[MT_JOB_MODULES]; /* vision, projector, llm */

/** Learning rates: of each module, and of those that have none of their own; NAN: not given. */
typedef struct mt_job_rates {
  double standard, modules[MT_JOB_MODULES];
} mt_job_rates;

typedef struct mt_job_phase mt_job_phase;

/** A job as it takes effect. Texts that were not given are NULL. */
typedef struct mt_job {
  const char *model;  /* directory of weights in the HuggingFace layout */
  const char *config; /* a config.json instead, for random weights */
  int64_t init;       /* mt_job_init */
  mt_job_texts trainable;
  int32_t phase_count;
  mt_job_phase *phases; /* see mt_job_phase_at() */
  const char *schedule;
  const char *profile;
  int64_t deterministic; /* mt_job_deterministic */
  const char *output_dir;
  struct {
    const char *train, *eval, *images_root, *tokenizer, *system_prompt, *feature_cache;
    int64_t max_tokens, decode_threads, video_frames;
  } data;
  struct {
    int64_t pipeline, data, context, tensor;
    mt_job_integers split;
  } parallel;
  struct {
    int64_t degrees; /* mt_job_degrees */
    int64_t ulysses, rank_tokens;
  } context;
  struct {
    mt_job_texts recompute;
  } memory;
  struct {
    int64_t steps, microbatches, global_batch, warmup_steps, seed;
    mt_job_rates learning_rate;
    double weight_decay, epsilon, clip_norm;
    int64_t decay; /* mt_job_decay */
    mt_job_numbers betas;
    int64_t dtype;       /* mt_job_dtype */
    int64_t bind;        /* mt_job_bind */
    int64_t threads;     /* of a rank; 0: its share of the cores */
    int64_t tensorboard; /* 0: no event files */
    int64_t save_every, keep, eval_every, eval_batches, log_every, timeline_every;
    const char *resume;
    double search_seconds, hang_seconds, stall_seconds, heartbeat_seconds;
  } train;
  mt_arena *arena;
} mt_job;

/**
 * Reads the job at @p path. @p overrides are words `key=value` that go over the file's
 * (`key=` takes a text or list away). Errors name file, line and
 * key, and say what is accepted there.
 */
motet_status mt_job_read(const char *path, int override_count, char *const *overrides, motet_error *error,
                         mt_job **job);

/** As mt_job_read(), from memory; @p name stands for the file in errors. */
motet_status mt_job_parse(const char *yaml, size_t bytes, const char *name, int override_count,
                          char *const *overrides, motet_error *error, mt_job **job);

void mt_job_destroy(mt_job *job);

/**
 * The phase of step @p step (from 0): the job as it is in it, without phases, and the steps [begin, end) that it
 * has. A job without phases is one phase. @p view shares the job's memory.
 * @return its number, from 0
 */
int32_t mt_job_phase_at(const mt_job *job, int64_t step, mt_job *view, int64_t *begin, int64_t *end);

/** The largest learning rate of a module (index in mt_job_modules), and whether it trains. */
double mt_job_rate(const mt_job *job, int32_t module);
bool mt_job_trains(const mt_job *job, int32_t module);

/** The job as YAML, every key that has a value: reading it gives the same job. */
void mt_job_print(const mt_job *job, mt_text *text);

#endif
