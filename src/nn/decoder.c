/* The decoder block (Qwen2, Llama): RMSNorm, grouped-query attention with rotary positions, SwiGLU. */
#include "nn/context_attention.h"
#include "nn/layer.h"

#include <math.h>
#include <string.h>

static mt_shape block_output(const mt_internvl *config, const mt_batch *batch) {
  return (mt_shape){batch->tokens, config->decoder.hidden};
}

static int64_t query_width(const mt_internvl_decoder *decoder) {
  return (int64_t)decoder->heads * decoder->head_dim;
}
static int64_t key_width(const mt_internvl_decoder *decoder) {
  return (int64_t)decoder->kv_heads * decoder->head_dim;
}
static int64_t qkv_width(const mt_internvl_decoder *decoder) {
  return query_width(decoder) + 2 * key_width(decoder);
}

/* T tokens, H hidden, Q query width, K key width, U intermediate. */
typedef struct block_saved {
  float *input;     /* (T, H) */
  float *qkv;       /* (T, Q + 2 K), q and k rotated */
  float *attention; /* (T, Q) */
  float *log_sum;   /* (heads, T), or what attention over a group keeps */
  float *middle;    /* (T, H), behind the first residual */
  float *gate_up;   /* (T, 2 U) */
} block_saved;

/* Attention over the group that holds the packed row. */
static mt_context_attention group_attention(const mt_internvl_decoder *decoder, const mt_tensor_backend *backend,
                                            const mt_batch *batch) {
  return (mt_context_attention){.context = batch->context,
                                .backend = backend,
                                .heads = decoder->heads,
                                .kv_heads = decoder->kv_heads,
                                .head_dim = decoder->head_dim,
                                .causal = true,
                                .scale = 1.0F / sqrtf((float)decoder->head_dim)};
}

static size_t attention_saved(const mt_internvl_decoder *decoder, const mt_batch *batch) {
  if (batch->context == NULL) return (size_t)batch->tokens * (size_t)decoder->heads;
  const mt_context_attention attention = group_attention(decoder, NULL, batch);
  return mt_context_attention_saved(&attention);
}

static size_t attention_scratch(const mt_internvl_decoder *decoder, const mt_tensor_backend *backend,
                                const mt_batch *batch) {
  if (batch->context == NULL) return backend->attention_scratch(decoder->head_dim, mt_longest_segment(batch));
  const mt_context_attention attention = group_attention(decoder, backend, batch);
  return mt_context_attention_scratch(&attention);
}

static size_t cut_saved(const mt_internvl *config, const mt_batch *batch, float *data, block_saved *saved) {
  const mt_internvl_decoder *decoder = &config->decoder;
  mt_cutter cutter = {.data = data};
  saved->input = mt_cut(&cutter, batch->tokens, decoder->hidden);
  saved->qkv = mt_cut(&cutter, batch->tokens, qkv_width(decoder));
  saved->attention = mt_cut(&cutter, batch->tokens, query_width(decoder));
  saved->log_sum = mt_cut(&cutter, 1, (int64_t)attention_saved(decoder, batch));
  saved->middle = mt_cut(&cutter, batch->tokens, decoder->hidden);
  saved->gate_up = mt_cut(&cutter, batch->tokens, 2 * (int64_t)decoder->intermediate);
  return cutter.used;
}

static size_t saved_floats(const mt_internvl *config, const mt_batch *batch) {
  block_saved saved;
  return cut_saved(config, batch, NULL, &saved);
}

/* Workspace of both directions. */
typedef struct block_scratch {
  float *normed;    /* (T, H) */
  float *wide;      /* (T, Q): gradient of attention's output */
  float *middle;    /* (T, H) gradient at `middle` */
  float *qkv;       /* (T, Q + 2 K) gradient */
  float *activated; /* (T, U) */
  float *up;        /* (T, U) gradient of the activation */
  float *gate_up;   /* (T, 2 U) gradient */
  float *attention; /* attention's own */
} block_scratch;

static size_t cut_scratch(const mt_internvl *config, const mt_tensor_backend *backend, const mt_batch *batch,
                          float *data, block_scratch *scratch) {
  const mt_internvl_decoder *decoder = &config->decoder;
  const int64_t tokens = batch->tokens, up = decoder->intermediate;
  mt_cutter cutter = {.data = data};
  scratch->normed = mt_cut(&cutter, tokens, decoder->hidden);
  scratch->wide = mt_cut(&cutter, tokens, query_width(decoder));
  scratch->middle = mt_cut(&cutter, tokens, decoder->hidden);
  scratch->qkv = mt_cut(&cutter, tokens, qkv_width(decoder));
  scratch->activated = mt_cut(&cutter, tokens, up);
  scratch->up = mt_cut(&cutter, tokens, up);
  scratch->gate_up = mt_cut(&cutter, tokens, 2 * up);
  scratch->attention = mt_cut(&cutter, 1, (int64_t)attention_scratch(decoder, backend, batch));
  return cutter.used;
}

static size_t scratch_floats(const mt_internvl *config, const mt_tensor_backend *backend, const mt_batch *batch) {
  block_scratch scratch;
  return cut_scratch(config, backend, batch, NULL, &scratch);
}

static block_scratch take_scratch(const mt_layer_call *call) {
  block_scratch scratch;
  size_t floats = scratch_floats(call->config, call->backend, call->batch);
  cut_scratch(call->config, call->backend, call->batch, mt_workspace_take(call->workspace, floats), &scratch);
  return scratch;
}

static mt_norm block_norm(const mt_layer_call *call, const float *input, int weight) {
  const mt_internvl_decoder *decoder = &call->config->decoder;
  return (mt_norm){.rms = true,
                   .epsilon = decoder->norm_epsilon,
                   .rows = call->batch->tokens,
                   .columns = decoder->hidden,
                   .input = input,
                   .stride = decoder->hidden,
                   .weight = call->weight[weight]};
}

/* Turns the heads of q and k, which stand side by side, of rows [begin, end): tokens of a segment of `length`, from
 * its token `position` on. */
static motet_status rotate_rows(const mt_layer_call *call, float *qkv, int32_t begin, int32_t end, int32_t position,
                                int32_t length, bool inverse) {
  const mt_internvl_decoder *decoder = &call->config->decoder;
  const int64_t skip = (int64_t)position * (decoder->head_dim / 2);
  const float *cosines, *sines;
  MT_TRY(mt_rotary_table(call->rotary, decoder, length, call->error, &cosines, &sines));
  call->backend->rotary(qkv, qkv_width(decoder), decoder->heads + decoder->kv_heads, decoder->head_dim, begin, end,
                        cosines + skip, sines + skip, inverse);
  return MOTET_OK;
}

/* Turns all rows; back with `inverse`. Positions go on behind those of a cache. */
static motet_status rotate(const mt_layer_call *call, float *qkv, bool inverse) {
  const mt_batch *batch = call->batch;
  const mt_context *context = batch->context;
  const int32_t past = call->cache == NULL ? 0 : call->cache->tokens;
  if (context == NULL) {
    for (int32_t segment = 0; segment < batch->segments; segment++) {
      const int32_t begin = batch->segment_begin[segment], end = batch->segment_begin[segment + 1];
      MT_TRY(rotate_rows(call, qkv, begin, end, past, past + end - begin, inverse));
    }
    return MOTET_OK;
  }
  int32_t row = 0;
  for (int32_t c = context->chunk_begin[context->index]; c < context->chunk_begin[context->index + 1]; c++) {
    const mt_chunk *chunk = &context->chunks[c];
    const int32_t *segment = context->segment_begin + chunk->segment, end = row + chunk->end - chunk->begin;
    MT_TRY(rotate_rows(call, qkv, row, end, chunk->begin - segment[0], segment[1] - segment[0], inverse));
    row = end;
  }
  return MOTET_OK;
}

static mt_attention block_attention(const mt_layer_call *call, const block_saved *saved) {
  const mt_internvl_decoder *decoder = &call->config->decoder;
  const int64_t stride = qkv_width(decoder);
  return (mt_attention){.query = saved->qkv,
                        .key = saved->qkv + query_width(decoder),
                        .value = saved->qkv + query_width(decoder) + key_width(decoder),
                        .query_stride = stride,
                        .key_stride = stride,
                        .value_stride = stride,
                        .heads = decoder->heads,
                        .kv_heads = decoder->kv_heads,
                        .head_dim = decoder->head_dim,
                        .segments = call->batch->segments,
                        .segment_begin = call->batch->segment_begin,
                        .causal = true,
                        .scale = 1.0F / sqrtf((float)decoder->head_dim)};
}

/* Puts the batch's keys and values behind the cache's. */
static void extend_cache(const mt_internvl_decoder *decoder, const mt_layer_cache *cache, const float *qkv,
                         int32_t rows) {
  const int64_t width = key_width(decoder);
  for (int32_t r = 0; r < rows; r++) {
    const float *key = qkv + r * qkv_width(decoder) + query_width(decoder);
    memcpy(cache->keys + (cache->tokens + r) * width, key, (size_t)width * sizeof *key);
    memcpy(cache->values + (cache->tokens + r) * width, key + width, (size_t)width * sizeof *key);
  }
}

/* One head of one row against the first `count` keys: softmax(q k / sqrt(d)) v. */
static void attend_head(const mt_internvl_decoder *decoder, const mt_layer_cache *cache, int32_t head,
                        int32_t count, const float *query, float *output) {
  const int32_t width = decoder->head_dim;
  const int64_t stride = key_width(decoder), column = head / (decoder->heads / decoder->kv_heads) * (int64_t)width;
  const float scale = 1.0F / sqrtf((float)width);
  float largest = -INFINITY, sum = 0;
  for (int32_t t = 0; t < count; t++) {
    const float *key = cache->keys + t * stride + column;
    float product = 0;
    for (int32_t c = 0; c < width; c++) product += query[c] * key[c];
    cache->scores[t] = product * scale;
    largest = fmaxf(largest, cache->scores[t]);
  }
  memset(output, 0, (size_t)width * sizeof *output);
  for (int32_t t = 0; t < count; t++) {
    const float weight = expf(cache->scores[t] - largest), *value = cache->values + t * stride + column;
    sum += weight;
    for (int32_t c = 0; c < width; c++) output[c] += weight * value[c];
  }
  for (int32_t c = 0; c < width; c++) output[c] /= sum;
}

/* The batch's rows against the cache, to which they were added. */
static void attend_cache(const mt_internvl_decoder *decoder, const mt_layer_cache *cache, const block_saved *saved,
                         int32_t rows) {
  for (int32_t r = 0; r < rows; r++)
    for (int32_t head = 0; head < decoder->heads; head++)
      attend_head(decoder, cache, head, cache->tokens + r + 1,
                  saved->qkv + r * qkv_width(decoder) + head * decoder->head_dim,
                  saved->attention + r * query_width(decoder) + head * decoder->head_dim);
}

static motet_status attend(const mt_layer_call *call, const block_saved *saved, float *scratch) {
  const mt_internvl_decoder *decoder = &call->config->decoder;
  if (call->batch->context != NULL) {
    const mt_context_attention attention = group_attention(decoder, call->backend, call->batch);
    return mt_context_attention_forward(&attention, saved->qkv, saved->log_sum, scratch, saved->attention,
                                        call->error);
  }
  if (call->cache != NULL) extend_cache(decoder, call->cache, saved->qkv, call->batch->tokens);
  if (call->cache != NULL && call->cache->tokens > 0) {
    attend_cache(decoder, call->cache, saved, call->batch->tokens);
    return MOTET_OK;
  }
  const mt_attention attention = block_attention(call, saved);
  call->backend->attention_forward(&attention, scratch, saved->attention, query_width(decoder), saved->log_sum);
  return MOTET_OK;
}

/* Gradient of qkv from that of attention's output. */
static motet_status attend_backward(const mt_layer_call *call, const block_saved *saved, const block_scratch *s) {
  const mt_internvl_decoder *decoder = &call->config->decoder;
  const int64_t stride = qkv_width(decoder);
  if (call->batch->context != NULL) {
    const mt_context_attention attention = group_attention(decoder, call->backend, call->batch);
    return mt_context_attention_backward(&attention, saved->qkv, saved->attention, s->wide, saved->log_sum,
                                         s->attention, s->qkv, call->error);
  }
  const mt_attention attention = block_attention(call, saved);
  const mt_attention_gradients gradients = {.output = saved->attention,
                                            .output_gradient = s->wide,
                                            .output_stride = query_width(decoder),
                                            .output_gradient_stride = query_width(decoder),
                                            .log_sum = saved->log_sum,
                                            .query = s->qkv,
                                            .key = s->qkv + query_width(decoder),
                                            .value = s->qkv + query_width(decoder) + key_width(decoder),
                                            .query_stride = stride,
                                            .key_stride = stride,
                                            .value_stride = stride};
  call->backend->attention_backward(&attention, &gradients, s->attention);
  return MOTET_OK;
}

static motet_status block_forward(const mt_layer_call *call) {
  const mt_internvl_decoder *decoder = &call->config->decoder;
  const int64_t rows = call->batch->tokens, hidden = decoder->hidden, up = decoder->intermediate;
  const block_scratch s = take_scratch(call);
  block_saved saved;
  cut_saved(call->config, call->batch, call->saved, &saved);
  const mt_norm norm1 = block_norm(call, call->input, MT_DECODER_BLOCK_NORM1);
  call->backend->norm_forward(&norm1, s.normed);
  MT_TRY(mt_linear_forward(call, rows, hidden, qkv_width(decoder), s.normed, call->weight[MT_DECODER_BLOCK_QKV],
                           call->weight[MT_DECODER_BLOCK_QKV_BIAS], saved.qkv));
  MT_TRY(rotate(call, saved.qkv, false));
  MT_TRY(attend(call, &saved, s.attention));
  MT_TRY(mt_linear_forward(call, rows, query_width(decoder), hidden, saved.attention,
                           call->weight[MT_DECODER_BLOCK_OUT], NULL, saved.middle));
  call->backend->add(rows * hidden, call->input, saved.middle);
  const mt_norm norm2 = block_norm(call, saved.middle, MT_DECODER_BLOCK_NORM2);
  call->backend->norm_forward(&norm2, s.normed);
  MT_TRY(mt_linear_forward(call, rows, hidden, 2 * up, s.normed, call->weight[MT_DECODER_BLOCK_GATE_UP], NULL,
                           saved.gate_up));
  call->backend->swiglu_forward(rows, up, saved.gate_up, s.activated);
  MT_TRY(mt_linear_forward(call, rows, up, hidden, s.activated, call->weight[MT_DECODER_BLOCK_DOWN], NULL,
                           call->output));
  call->backend->add(rows * hidden, saved.middle, call->output);
  return MOTET_OK;
}

/* Gradient at `middle` from the output's, into s.middle. */
static motet_status backward_mlp(const mt_layer_call *call, const block_saved *saved, const block_scratch *s) {
  const mt_internvl_decoder *decoder = &call->config->decoder;
  const int64_t rows = call->batch->tokens, hidden = decoder->hidden, up = decoder->intermediate;
  MT_TRY(mt_linear_input_gradient(call, rows, up, hidden, call->output_gradient,
                                  call->weight[MT_DECODER_BLOCK_DOWN], s->up));
  call->backend->swiglu_backward(rows, up, saved->gate_up, s->up, s->gate_up, call->trains ? s->activated : NULL);
  const mt_norm norm = block_norm(call, saved->middle, MT_DECODER_BLOCK_NORM2);
  if (call->trains) {
    MT_TRY(mt_linear_weight_gradient(call, rows, up, hidden, call->output_gradient, s->activated,
                                     call->gradient[MT_DECODER_BLOCK_DOWN], NULL));
    call->backend->norm_forward(&norm, s->normed);
    MT_TRY(mt_linear_weight_gradient(call, rows, hidden, 2 * up, s->gate_up, s->normed,
                                     call->gradient[MT_DECODER_BLOCK_GATE_UP], NULL));
  }
  MT_TRY(mt_linear_input_gradient(call, rows, hidden, 2 * up, s->gate_up, call->weight[MT_DECODER_BLOCK_GATE_UP],
                                  s->normed));
  call->backend->norm_backward(&norm, s->normed, call->output_gradient, s->middle,
                               call->trains ? call->gradient[MT_DECODER_BLOCK_NORM2] : NULL, NULL);
  return MOTET_OK;
}

static motet_status block_backward(const mt_layer_call *call) {
  const mt_internvl_decoder *decoder = &call->config->decoder;
  const int64_t rows = call->batch->tokens, hidden = decoder->hidden, stride = qkv_width(decoder);
  const block_scratch s = take_scratch(call);
  block_saved saved;
  cut_saved(call->config, call->batch, call->saved, &saved);
  MT_TRY(backward_mlp(call, &saved, &s));
  if (call->trains)
    MT_TRY(mt_linear_weight_gradient(call, rows, query_width(decoder), hidden, s.middle, saved.attention,
                                     call->gradient[MT_DECODER_BLOCK_OUT], NULL));
  MT_TRY(mt_linear_input_gradient(call, rows, query_width(decoder), hidden, s.middle,
                                  call->weight[MT_DECODER_BLOCK_OUT], s.wide));
  MT_TRY(attend_backward(call, &saved, &s));
  MT_TRY(rotate(call, s.qkv, true));
  const mt_norm norm = block_norm(call, saved.input, MT_DECODER_BLOCK_NORM1);
  if (call->trains) {
    call->backend->norm_forward(&norm, s.normed);
    MT_TRY(mt_linear_weight_gradient(call, rows, hidden, stride, s.qkv, s.normed,
                                     call->gradient[MT_DECODER_BLOCK_QKV],
                                     call->gradient[MT_DECODER_BLOCK_QKV_BIAS]));
  }
  MT_TRY(mt_linear_input_gradient(call, rows, hidden, stride, s.qkv, call->weight[MT_DECODER_BLOCK_QKV], s.normed));
  call->backend->norm_backward(&norm, s.normed, s.middle, call->input_gradient,
                               call->trains ? call->gradient[MT_DECODER_BLOCK_NORM1] : NULL, NULL);
  return MOTET_OK;
}

const mt_layer_kind mt_layer_decoder_block = {.keeps_input = true,
                                              .output = block_output,
                                              .saved = saved_floats,
                                              .scratch = scratch_floats,
                                              .forward = block_forward,
                                              .backward = block_backward};
