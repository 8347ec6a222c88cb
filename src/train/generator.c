#include "train/generator.h"

#include "nn/generation.h"
#include "train/checkpoint.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Tokens that end an answer, as far as the tokenizer has them. */
static const char *const stop_words[] = {"<|im_end|>", "<|endoftext|>", "</s>"};
enum { STOPS = sizeof stop_words / sizeof *stop_words };

struct mt_generator {
  mt_arena *arena;
  const char *model; /* directory */
  mt_internvl config;
  mt_tokenizer *tokenizer;
  mt_network *network;
  mt_job *job;
  int32_t stops[STOPS];
};

static bool exists(mt_arena *arena, const char *directory, const char *name) {
  const char *path = mt_arena_format(arena, "%s/%s", directory, name);
  return path != NULL && access(path, F_OK) == 0;
}

/* A run has no config.json of its own, but checkpoints that have one. */
static motet_status find_model(mt_generator *generator, const char *path, motet_error *error) {
  mt_arena *arena = generator->arena;
  generator->model = mt_arena_text(arena, path);
  if (generator->model == NULL) return mt_error_memory(error, strlen(path), "a path");
  if (exists(arena, path, "config.json"))
    return exists(arena, path, "trainer.json") ? mt_checkpoint_check(path, false, 0, 1, error) : MOTET_OK;
  int64_t step = INT64_MAX;
  const char *checkpoint = NULL;
  if (exists(arena, path, "checkpoints")) {
    do {
      motet_status status = mt_checkpoint_newest(path, step, arena, error, &checkpoint, &step);
      if (status != MOTET_OK) return status;
    } while (checkpoint != NULL && mt_checkpoint_check(checkpoint, false, 0, 1, NULL) != MOTET_OK);
  }
  if (checkpoint == NULL) {
    motet_status status =
        access(path, F_OK) != 0
            ? mt_error_set(error, MOTET_ERROR_IO, "there is no %s", path)
            : mt_error_set(error, MOTET_ERROR_PARSE,
                           "%s holds neither a config.json nor a whole checkpoint: a model's directory or a run's "
                           "output_dir belongs here",
                           path);
    mt_error_place(error, path, 0);
    return status;
  }
  generator->model = checkpoint;
  if (!exists(arena, path, "job.yaml")) return MOTET_OK;
  const char *job = mt_arena_format(arena, "%s/job.yaml", path);
  return job != NULL ? mt_job_read(job, 0, NULL, error, &generator->job)
                     : mt_error_memory(error, strlen(path), "a path");
}

static motet_status open_network(mt_generator *generator, int32_t threads, motet_error *error) {
  const int32_t layers = mt_internvl_layer_count(&generator->config);
  bool *held = MT_ARENA_NEW(generator->arena, bool, layers),
       *trainable = MT_ARENA_NEW(generator->arena, bool, layers);
  if (held == NULL || trainable == NULL) return mt_error_memory(error, (unsigned)layers, "a model");
  for (int32_t layer = 0; layer < layers; layer++) held[layer] = true, trainable[layer] = false;
  motet_status status = mt_network_create(&generator->config, held, trainable, error, &generator->network);
  if (status == MOTET_OK) status = mt_network_use(generator->network, MT_ELEMENT_FLOAT32, threads, error);
  return status == MOTET_OK ? mt_weights_load(generator->network, generator->model, error) : status;
}

motet_status mt_generator_open(const char *path, const char *tokenizer, int32_t threads, motet_error *error,
                               mt_generator **generator) {
  mt_generator *made = calloc(1, sizeof *made);
  if (made == NULL) return mt_error_memory(error, sizeof *made, "a model");
  made->arena = mt_arena_create();
  motet_status status =
      made->arena == NULL ? mt_error_memory(error, sizeof *made, "a model") : find_model(made, path, error);
  if (status == MOTET_OK) status = mt_internvl_read(made->model, error, &made->config);
  if (status == MOTET_OK)
    status = mt_tokenizer_read(tokenizer != NULL ? tokenizer : made->model, error, &made->tokenizer);
  if (status == MOTET_OK) status = open_network(made, threads, error);
  if (status != MOTET_OK) {
    mt_generator_close(made);
    return status;
  }
  for (int i = 0; i < STOPS; i++) made->stops[i] = mt_tokenizer_find(made->tokenizer, stop_words[i]);
  *generator = made;
  return MOTET_OK;
}

void mt_generator_close(mt_generator *generator) {
  if (generator == NULL) return;
  mt_network_destroy(generator->network);
  mt_tokenizer_destroy(generator->tokenizer);
  mt_job_destroy(generator->job);
  mt_arena_destroy(generator->arena);
  free(generator);
}

const char *mt_generator_model(const mt_generator *generator) { return generator->model; }
const mt_internvl *mt_generator_config(const mt_generator *generator) { return &generator->config; }
const mt_tokenizer *mt_generator_tokenizer(const mt_generator *generator) { return generator->tokenizer; }
const mt_job *mt_generator_job(const mt_generator *generator) { return generator->job; }

/* ---- answering ---- */

/* Working memory of one answer. */
typedef struct answering {
  mt_generation *generation;
  float *features; /* (tiles * tokens_per_tile, hidden) */
  float *logits;   /* [vocabulary] */
  int32_t *rows;   /* [tiles * tokens_per_tile] places of the features */
} answering;

static void answering_free(answering *work) {
  mt_generation_destroy(work->generation);
  free(work->features);
  free(work->logits);
  free(work->rows);
}

/* The picture's tokens in the prompt are those of the image context. */
static int32_t image_token(const mt_generator *generator) {
  return generator->config.image_token >= 0 ? generator->config.image_token
                                            : mt_tokenizer_find(generator->tokenizer, "<IMG_CONTEXT>");
}

static motet_status prepare(mt_generator *generator, const mt_prompt *prompt, int32_t max_tokens,
                            motet_error *error, answering *work) {
  const mt_internvl *config = &generator->config;
  const int64_t features = (int64_t)prompt->tiles * config->tokens_per_tile;
  if (prompt->tokens.count > (size_t)(INT32_MAX - max_tokens))
    return mt_error_set(error, MOTET_ERROR_LIMIT, "a prompt of %zu tokens is too long", prompt->tokens.count);
  work->features = malloc(((size_t)features * (size_t)config->decoder.hidden + 1) * sizeof *work->features);
  work->logits = malloc((size_t)config->decoder.vocabulary * sizeof *work->logits);
  work->rows = malloc(((size_t)features + 1) * sizeof *work->rows);
  if (work->features == NULL || work->logits == NULL || work->rows == NULL)
    return mt_error_memory(error, (size_t)features * (size_t)config->decoder.hidden * sizeof(float), "an answer");
  int64_t found = 0;
  const int32_t image = image_token(generator);
  for (size_t t = 0; t < prompt->tokens.count; t++)
    if (prompt->tokens.data[t] == image && image >= 0 && found++ < features) work->rows[found - 1] = (int32_t)t;
  if (found != features)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT, "%lld image tokens in a prompt of %lld features",
                        (long long)found, (long long)features);
  return mt_generation_create(generator->network, (int32_t)prompt->tokens.count + max_tokens, error,
                              &work->generation);
}

/* The lowest id of the largest logit; -1 where a logit is no number. */
static int32_t likeliest(const float *logits, int32_t vocabulary) {
  int32_t best = 0;
  for (int32_t v = 0; v < vocabulary; v++) {
    if (logits[v] != logits[v]) return -1;
    if (logits[v] > logits[best]) best = v;
  }
  return best;
}

static bool is_stop(const mt_generator *generator, int32_t token) {
  for (int i = 0; i < STOPS; i++)
    if (generator->stops[i] == token) return true;
  return false;
}

/* Runs the prompt: encoder, projector, and the decoder over all its tokens. */
static motet_status read_prompt(mt_generator *generator, const mt_prompt *prompt, const answering *work,
                                motet_error *error) {
  const int32_t tokens = (int32_t)prompt->tokens.count, bounds[2] = {0, tokens};
  const mt_batch batch = {.tokens = tokens,
                          .segments = 1,
                          .segment_begin = bounds,
                          .tiles = prompt->tiles,
                          .token_ids = prompt->tokens.data,
                          .feature_rows = work->rows,
                          .pixels = prompt->pixels};
  motet_status status = MOTET_OK;
  if (prompt->tiles > 0)
    status = mt_network_forward(generator->network, 0, generator->config.vision.layers + 2, &batch, NULL,
                                work->features, false, -1, NULL, error, NULL, NULL);
  return status == MOTET_OK ? mt_generation_extend(work->generation, &batch, work->features, error, work->logits)
                            : status;
}

static motet_status answer_tokens(mt_generator *generator, const mt_prompt *prompt, int32_t max_tokens,
                                  motet_error *error, const answering *work, mt_answer *answer) {
  motet_status status = read_prompt(generator, prompt, work, error);
  static const int32_t bounds[2] = {0, 1};
  while (status == MOTET_OK && answer->tokens.count < (size_t)max_tokens) {
    const int32_t token = likeliest(work->logits, generator->config.decoder.vocabulary);
    if (token < 0)
      return mt_error_set(error, MOTET_ERROR_FAILED,
                          "the model's output is no number behind %zu tokens: its weights are damaged or diverged",
                          prompt->tokens.count + answer->tokens.count);
    answer->ended = is_stop(generator, token);
    if (answer->ended) break;
    if (!MT_ARRAY_PUSH(&answer->tokens, token)) return mt_error_memory(error, sizeof token, "an answer");
    if (answer->tokens.count == (size_t)max_tokens) break;
    const mt_batch batch = {.tokens = 1, .segments = 1, .segment_begin = bounds, .token_ids = &token};
    status = mt_generation_extend(work->generation, &batch, NULL, error, work->logits);
  }
  return status;
}

motet_status mt_generator_answer(mt_generator *generator, const mt_prompt *prompt, int32_t max_tokens,
                                 motet_error *error, mt_answer *answer) {
  *answer = (mt_answer){0};
  answering work = {0};
  motet_status status = prepare(generator, prompt, max_tokens, error, &work);
  if (status == MOTET_OK) status = answer_tokens(generator, prompt, max_tokens, error, &work, answer);
  if (status == MOTET_OK)
    status = mt_tokenizer_decode(generator->tokenizer, answer->tokens.data, answer->tokens.count, true, error,
                                 &answer->text);
  if (status == MOTET_OK && answer->text.failed) status = mt_error_memory(error, answer->text.length, "an answer");
  answering_free(&work);
  return status;
}

void mt_answer_free(mt_answer *answer) {
  free(answer->tokens.data);
  mt_text_free(&answer->text);
  *answer = (mt_answer){0};
}
