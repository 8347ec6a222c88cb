/*
 * The head: final norm, logits, cross-entropy. Only rows with a target are computed, some at a time, so that the
 * logits (tokens, vocabulary) never exist as a whole; backward computes them again.
 */
#include "nn/layer.h"

#include <string.h>

enum { LOGITS_FLOATS = 1 << 25, CHUNK_ROWS_MIN = 16, CHUNK_ROWS_MAX = 512 };

static mt_shape head_output(const mt_internvl *config, const mt_batch *batch) {
  (void)config, (void)batch;
  return (mt_shape){0, 0};
}

/* T tokens, H hidden. */
typedef struct head_saved {
  float *input;   /* (T, H) */
  float *log_sum; /* (T), of the rows with a target, in order */
} head_saved;

static size_t cut_saved(const mt_internvl *config, const mt_batch *batch, float *data, head_saved *saved) {
  mt_cutter cutter = {.data = data};
  saved->input = mt_cut(&cutter, batch->tokens, config->decoder.hidden);
  saved->log_sum = mt_cut(&cutter, batch->tokens, 1);
  return cutter.used;
}

static size_t saved_floats(const mt_internvl *config, const mt_batch *batch) {
  head_saved saved;
  return cut_saved(config, batch, NULL, &saved);
}

static int64_t chunk_rows(const mt_internvl *config, const mt_batch *batch) {
  int64_t rows = LOGITS_FLOATS / config->decoder.vocabulary;
  rows = rows < CHUNK_ROWS_MIN ? CHUNK_ROWS_MIN : rows > CHUNK_ROWS_MAX ? CHUNK_ROWS_MAX : rows;
  return rows > batch->tokens ? batch->tokens : rows;
}

/* A chunk of C rows; V vocabulary. */
typedef struct head_scratch {
  float *picked;    /* (C, H) rows with a target, before the norm */
  float *normed;    /* (C, H) */
  float *gradient;  /* (C, H) */
  float *logits;    /* (C, V) */
  int32_t *rows;    /* [T] tokens that have a target */
  int32_t *targets; /* [T] their targets */
} head_scratch;

static size_t cut_scratch(const mt_internvl *config, const mt_batch *batch, float *data, head_scratch *scratch) {
  const int64_t chunk = chunk_rows(config, batch), hidden = config->decoder.hidden;
  mt_cutter cutter = {.data = data};
  scratch->picked = mt_cut(&cutter, chunk, hidden);
  scratch->normed = mt_cut(&cutter, chunk, hidden);
  scratch->gradient = mt_cut(&cutter, chunk, hidden);
  scratch->logits = mt_cut(&cutter, chunk, config->decoder.vocabulary);
  scratch->rows = (void *)mt_cut(&cutter, 1, batch->tokens);
  scratch->targets = (void *)mt_cut(&cutter, 1, batch->tokens);
  return cutter.used;
}

static size_t scratch_floats(const mt_internvl *config, const mt_tensor_backend *backend, const mt_batch *batch) {
  (void)backend;
  head_scratch scratch;
  return cut_scratch(config, batch, NULL, &scratch);
}

static motet_status take_scratch(const mt_layer_call *call, head_scratch *s, int64_t *count) {
  const mt_batch *batch = call->batch;
  if (batch->labels == NULL)
    return mt_error_set(call->error, MOTET_ERROR_ARGUMENT, "the head needs the batch's labels");
  size_t floats = scratch_floats(call->config, call->backend, batch);
  cut_scratch(call->config, batch, mt_workspace_take(call->workspace, floats), s);
  *count = 0;
  for (int32_t t = 0; t < batch->tokens; t++) {
    const int32_t label = batch->labels[t];
    if (label == -100) continue;
    if (label < 0 || label >= call->config->decoder.vocabulary)
      return mt_error_set(call->error, MOTET_ERROR_ARGUMENT, "label %d of token %d is neither -100 nor below %d",
                          label, t, call->config->decoder.vocabulary);
    s->rows[*count] = t;
    s->targets[(*count)++] = label;
  }
  return MOTET_OK;
}

static mt_norm head_norm(const mt_layer_call *call, const head_scratch *s, int64_t rows) {
  const mt_internvl_decoder *decoder = &call->config->decoder;
  return (mt_norm){.rms = true,
                   .epsilon = decoder->norm_epsilon,
                   .rows = rows,
                   .columns = decoder->hidden,
                   .input = s->picked,
                   .stride = decoder->hidden,
                   .weight = call->weight[MT_HEAD_NORM]};
}

/* Logits of targets [begin, begin + rows) into s->logits. */
static motet_status chunk_logits(const mt_layer_call *call, const head_scratch *s, const float *input,
                                 int64_t begin, int64_t rows) {
  const int64_t hidden = call->config->decoder.hidden;
  for (int64_t r = 0; r < rows; r++)
    memcpy(s->picked + r * hidden, input + s->rows[begin + r] * hidden, (size_t)hidden * sizeof(float));
  const mt_norm norm = head_norm(call, s, rows);
  call->backend->norm_forward(&norm, s->normed);
  return mt_linear_forward(call, rows, hidden, call->config->decoder.vocabulary, s->normed,
                           call->weight[MT_HEAD_WEIGHT], NULL, s->logits);
}

static motet_status head_forward(const mt_layer_call *call) {
  const int64_t chunk = chunk_rows(call->config, call->batch);
  head_saved saved;
  cut_saved(call->config, call->batch, call->saved, &saved);
  head_scratch s;
  int64_t count;
  MT_TRY(take_scratch(call, &s, &count));
  double sum = 0;
  for (int64_t begin = 0; begin < count; begin += chunk) {
    const int64_t rows = count - begin < chunk ? count - begin : chunk;
    MT_TRY(chunk_logits(call, &s, call->input, begin, rows));
    sum += call->backend->cross_entropy_forward(rows, call->config->decoder.vocabulary, s.logits, s.targets + begin,
                                                saved.log_sum + begin);
  }
  *call->loss += sum * call->batch->loss_weight;
  return MOTET_OK;
}

static motet_status head_backward(const mt_layer_call *call) {
  const int64_t hidden = call->config->decoder.hidden, vocabulary = call->config->decoder.vocabulary;
  const int64_t chunk = chunk_rows(call->config, call->batch);
  head_saved saved;
  cut_saved(call->config, call->batch, call->saved, &saved);
  head_scratch s;
  int64_t count;
  MT_TRY(take_scratch(call, &s, &count));
  if (call->input_gradient != NULL)
    memset(call->input_gradient, 0, (size_t)(call->batch->tokens * hidden) * sizeof(float));
  for (int64_t begin = 0; begin < count; begin += chunk) {
    const int64_t rows = count - begin < chunk ? count - begin : chunk;
    MT_TRY(chunk_logits(call, &s, saved.input, begin, rows));
    call->backend->cross_entropy_backward(rows, vocabulary, s.logits, s.targets + begin, saved.log_sum + begin,
                                          (float)call->batch->loss_weight);
    if (call->trains)
      MT_TRY(mt_linear_weight_gradient(call, rows, hidden, vocabulary, s.logits, s.normed,
                                       call->gradient[MT_HEAD_WEIGHT], NULL));
    MT_TRY(mt_linear_input_gradient(call, rows, hidden, vocabulary, s.logits, call->weight[MT_HEAD_WEIGHT],
                                    s.gradient));
    const mt_norm norm = head_norm(call, &s, rows);
    call->backend->norm_backward(&norm, s.gradient, NULL, s.gradient,
                                 call->trains ? call->gradient[MT_HEAD_NORM] : NULL, NULL);
    if (call->input_gradient == NULL) continue;
    for (int64_t r = 0; r < rows; r++)
      memcpy(call->input_gradient + s.rows[begin + r] * hidden, s.gradient + r * hidden,
             (size_t)hidden * sizeof(float));
  }
  return MOTET_OK;
}

const mt_layer_kind mt_layer_head = {.keeps_input = true,
                                     .output = head_output,
                                     .saved = saved_floats,
                                     .scratch = scratch_floats,
                                     .forward = head_forward,
                                     .backward = head_backward};
