/*
 * The head: final norm, logits, cross-entropy. Only rows with a target are computed, some at a time, so that the
 * logits of a long sequence and a large vocabulary never exist as a whole. Backward takes the chunks in the
 * opposite order: those of the last one are still there if it follows its forward, as it does in the last stage of
 * most orders; the others are computed again. Logits and their gradient are float32.
 */
#include "nn/layer.h"

#include <string.h>

enum { LOGITS_FLOATS = 1 << 25, CHUNK_ROWS_MIN = 16 };

static mt_shape head_output(const mt_internvl *config, const mt_batch *batch) {
  (void)config, (void)batch;
  return (mt_shape){0, 0};
}

/* T tokens, H hidden. */
typedef struct head_saved {
  void *input;    /* (T, H) */
  float *log_sum; /* (T), of the rows with a target, in order */
} head_saved;

static size_t cut_saved(const mt_internvl *config, mt_element element, const mt_batch *batch, float *data,
                        head_saved *saved) {
  mt_cutter cutter = {.data = data, .element = element};
  saved->input = mt_cut(&cutter, batch->tokens, config->decoder.hidden);
  saved->log_sum = mt_cut_floats(&cutter, batch->tokens, 1);
  return cutter.used;
}

static size_t saved_floats(const mt_internvl *config, mt_element element, const mt_batch *batch) {
  head_saved saved;
  return cut_saved(config, element, batch, NULL, &saved);
}

static int64_t chunk_rows(const mt_internvl *config, const mt_batch *batch) {
  int64_t rows = LOGITS_FLOATS / config->decoder.vocabulary;
  rows = rows < CHUNK_ROWS_MIN ? CHUNK_ROWS_MIN : rows;
  return rows > batch->tokens ? batch->tokens : rows;
}

/* A chunk of C rows; V vocabulary. */
typedef struct head_scratch {
  void *picked;     /* (C, H) rows with a target, before the norm */
  void *normed;     /* (C, H) */
  void *gradient;   /* (C, H) */
  int32_t *rows;    /* [T] tokens that have a target */
  int32_t *targets; /* [T] their targets */
} head_scratch;

static size_t cut_scratch(const mt_internvl *config, mt_element element, const mt_batch *batch, float *data,
                          head_scratch *scratch) {
  const int64_t chunk = chunk_rows(config, batch), hidden = config->decoder.hidden;
  mt_cutter cutter = {.data = data, .element = element};
  scratch->picked = mt_cut(&cutter, chunk, hidden);
  scratch->normed = mt_cut(&cutter, chunk, hidden);
  scratch->gradient = mt_cut(&cutter, chunk, hidden);
  scratch->rows = (void *)mt_cut_floats(&cutter, 1, batch->tokens);
  scratch->targets = (void *)mt_cut_floats(&cutter, 1, batch->tokens);
  return cutter.used;
}

static size_t scratch_floats(const mt_internvl *config, mt_element element, const mt_batch *batch) {
  head_scratch scratch;
  return cut_scratch(config, element, batch, NULL, &scratch);
}

static motet_status take_scratch(const mt_layer_call *call, head_scratch *s, int64_t *count) {
  const mt_batch *batch = call->batch;
  if (batch->labels == NULL)
    return mt_error_set(call->error, MOTET_ERROR_ARGUMENT, "the head needs the batch's labels");
  size_t floats = scratch_floats(call->config, mt_layer_element(call), batch);
  cut_scratch(call->config, mt_layer_element(call), batch, mt_workspace_take(call->workspace, floats), s);
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

/* Rows of targets [begin, begin + rows), and behind the norm. */
static void pick_rows(const mt_layer_call *call, const head_scratch *s, const void *input, int64_t begin,
                      int64_t rows) {
  const int64_t hidden = call->config->decoder.hidden;
  for (int64_t r = 0; r < rows; r++)
    memcpy(mt_layer_at(call, s->picked, r * hidden), mt_layer_at(call, input, s->rows[begin + r] * hidden),
           mt_layer_bytes(call, hidden));
  const mt_norm norm = head_norm(call, s, rows);
  mt_parallel_norm_forward(call->device, &norm, s->normed);
}

/* logits (rows, V) of the rows behind the norm. */
static motet_status chunk_logits(const mt_layer_call *call, const head_scratch *s, int64_t rows, float *logits) {
  const int64_t hidden = call->config->decoder.hidden, vocabulary = call->config->decoder.vocabulary;
  const mt_matmul product = {.transpose_b = true,
                             .b_float = true,
                             .c_float = true,
                             .m = rows,
                             .n = vocabulary,
                             .k = hidden,
                             .a = s->normed,
                             .b = call->weight[MT_HEAD_WEIGHT],
                             .c = logits,
                             .a_stride = hidden,
                             .b_stride = hidden,
                             .c_stride = vocabulary};
  return mt_layer_multiply(call, &product);
}

/* Room for a chunk's logits; those of another forward are lost if it has to grow. */
static motet_status reserve_logits(const mt_layer_call *call) {
  const int64_t rows = chunk_rows(call->config, call->batch);
  mt_workspace *memory = &call->logits->memory;
  if (memory->capacity < (size_t)(rows * call->config->decoder.vocabulary)) call->logits->owner = NULL;
  return mt_workspace_reserve(memory, (size_t)(rows * call->config->decoder.vocabulary), call->error);
}

/* Where the losses of a microbatch, or of each part of a batch, are summed. */
typedef struct loss_sum {
  int32_t part;
  double sum;
} loss_sum;

static void flush_loss(const mt_layer_call *call, loss_sum *loss) {
  if (call->loss != NULL) call->loss[loss->part] += loss->sum * call->batch->loss_weight;
  loss->sum = 0;
}

/* Of targets [begin, begin + rows), part after part. */
static void add_losses(const mt_layer_call *call, const head_scratch *s, int64_t begin, int64_t rows,
                       const float *logits, float *log_sum, loss_sum *loss) {
  const mt_batch *batch = call->batch;
  const int64_t vocabulary = call->config->decoder.vocabulary;
  for (int64_t at = 0, end; at < rows; at = end) {
    while (loss->part + 1 < batch->parts && s->rows[begin + at] >= batch->part_begin[loss->part + 1]) {
      flush_loss(call, loss);
      loss->part++;
    }
    end = rows;
    if (loss->part + 1 < batch->parts)
      for (end = at; end < rows && s->rows[begin + end] < batch->part_begin[loss->part + 1];) end++;
    loss->sum += mt_parallel_cross_entropy_forward(call->device, end - at, vocabulary, logits + at * vocabulary,
                                                   s->targets + begin + at, log_sum + begin + at);
  }
}

static motet_status head_forward(const mt_layer_call *call) {
  const int64_t chunk = chunk_rows(call->config, call->batch);
  head_saved saved;
  cut_saved(call->config, mt_layer_element(call), call->batch, call->saved, &saved);
  head_scratch s;
  int64_t count;
  MT_TRY(take_scratch(call, &s, &count));
  MT_TRY(reserve_logits(call));
  float *logits = call->logits->memory.data;
  call->logits->owner = NULL;
  loss_sum loss = {0};
  for (int64_t begin = 0; begin < count; begin += chunk) {
    const int64_t rows = count - begin < chunk ? count - begin : chunk;
    pick_rows(call, &s, call->input, begin, rows);
    MT_TRY(chunk_logits(call, &s, rows, logits));
    add_losses(call, &s, begin, rows, logits, saved.log_sum, &loss);
  }
  call->logits->owner = call->saved;
  flush_loss(call, &loss);
  return MOTET_OK;
}

/* Gradients of a chunk whose rows were picked and whose logits' gradient is there. */
static motet_status chunk_gradients(const mt_layer_call *call, const head_scratch *s, int64_t rows,
                                    const float *logits) {
  const int64_t hidden = call->config->decoder.hidden, vocabulary = call->config->decoder.vocabulary;
  mt_matmul product = {.transpose_a = true,
                       .a_float = true,
                       .c_float = true,
                       .accumulate = true,
                       .m = vocabulary,
                       .n = hidden,
                       .k = rows,
                       .a = logits,
                       .b = s->normed,
                       .c = call->gradient[MT_HEAD_WEIGHT],
                       .a_stride = vocabulary,
                       .b_stride = hidden,
                       .c_stride = hidden};
  if (call->trains) MT_TRY(mt_layer_multiply(call, &product));
  product = (mt_matmul){.a_float = true,
                        .b_float = true,
                        .m = rows,
                        .n = hidden,
                        .k = vocabulary,
                        .a = logits,
                        .b = call->weight[MT_HEAD_WEIGHT],
                        .c = s->gradient,
                        .a_stride = vocabulary,
                        .b_stride = hidden,
                        .c_stride = hidden};
  MT_TRY(mt_layer_multiply(call, &product));
  const mt_norm norm = head_norm(call, s, rows);
  return mt_parallel_norm_backward(call->device, &norm, s->gradient, NULL, s->gradient,
                                   call->trains ? call->gradient[MT_HEAD_NORM] : NULL, NULL, call->error);
}

static motet_status head_backward(const mt_layer_call *call) {
  const int64_t hidden = call->config->decoder.hidden, vocabulary = call->config->decoder.vocabulary;
  const int64_t chunk = chunk_rows(call->config, call->batch);
  head_saved saved;
  cut_saved(call->config, mt_layer_element(call), call->batch, call->saved, &saved);
  head_scratch s;
  int64_t count;
  MT_TRY(take_scratch(call, &s, &count));
  MT_TRY(reserve_logits(call));
  float *logits = call->logits->memory.data;
  bool there = call->logits->owner == call->saved;
  call->logits->owner = NULL;
  if (call->input_gradient != NULL)
    memset(call->input_gradient, 0, mt_layer_bytes(call, call->batch->tokens * hidden));
  const int64_t last = count > 0 ? (count - 1) / chunk * chunk : -1; /* a member of a group may have no rows */
  for (int64_t begin = last; begin >= 0; begin -= chunk, there = false) {
    const int64_t rows = count - begin < chunk ? count - begin : chunk;
    pick_rows(call, &s, saved.input, begin, rows);
    if (!there) MT_TRY(chunk_logits(call, &s, rows, logits));
    mt_parallel_cross_entropy_backward(call->device, rows, vocabulary, logits, s.targets + begin,
                                       saved.log_sum + begin, (float)call->batch->loss_weight);
    MT_TRY(chunk_gradients(call, &s, rows, logits));
    if (call->input_gradient == NULL) continue;
    for (int64_t r = 0; r < rows; r++)
      memcpy(mt_layer_at(call, call->input_gradient, s.rows[begin + r] * hidden),
             mt_layer_at(call, s.gradient, r * hidden), mt_layer_bytes(call, hidden));
  }
  return MOTET_OK;
}

const mt_layer_kind mt_layer_head = {.keeps_input = true,
                                     .output = head_output,
                                     .saved = saved_floats,
                                     .scratch = scratch_floats,
                                     .forward = head_forward,
                                     .backward = head_backward};
