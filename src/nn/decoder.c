/* The decoder block (Qwen2, Qwen3, Llama, InternLM2): RMSNorm, grouped-query attention with rotary positions,
 * SwiGLU. */
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
  void *input;     /* (T, H) */
  void *raw;       /* (T, Q + 2 K), with norms of the heads: q and k before them; else not there */
  void *qkv;       /* (T, Q + 2 K), q and k rotated */
  void *attention; /* (T, Q) */
  float *log_sum;  /* (heads, T), or what attention over a group keeps */
  void *middle;    /* (T, H), behind the first residual */
  void *gate_up;   /* (T, 2 U) */
} block_saved;

/* Attention over the group that holds the packed row. It computes in float32 whatever the elements are. */
static mt_context_attention group_attention(const mt_internvl_decoder *decoder, const mt_device *device,
                                            const mt_batch *batch) {
  return (mt_context_attention){.context = batch->context,
                                .device = device,
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

static size_t cut_saved(const mt_internvl *config, mt_element element, const mt_batch *batch, float *data,
                        block_saved *saved) {
  const mt_internvl_decoder *decoder = &config->decoder;
  mt_cutter cutter = {.data = data, .element = element};
  saved->input = mt_cut(&cutter, batch->tokens, decoder->hidden);
  saved->raw = mt_cut(&cutter, decoder->qk_norm ? batch->tokens : 0, qkv_width(decoder));
  saved->qkv = mt_cut(&cutter, batch->tokens, qkv_width(decoder));
  saved->attention = mt_cut(&cutter, batch->tokens, query_width(decoder));
  saved->log_sum = mt_cut_floats(&cutter, 1, (int64_t)attention_saved(decoder, batch));
  saved->middle = mt_cut(&cutter, batch->tokens, decoder->hidden);
  saved->gate_up = mt_cut(&cutter, batch->tokens, 2 * (int64_t)decoder->intermediate);
  return cutter.used;
}

static size_t saved_floats(const mt_internvl *config, mt_element element, const mt_batch *batch) {
  block_saved saved;
  return cut_saved(config, element, batch, NULL, &saved);
}

/* What a group's attention reads and writes, in float32; not there where the elements are. */
typedef struct group_arrays {
  float *qkv, *qkv_gradient;       /* (T, Q + 2 K) */
  float *output, *output_gradient; /* (T, Q) */
  float *own;                      /* its own scratch */
} group_arrays;

/* Workspace of both directions. */
typedef struct block_scratch {
  void *normed;    /* (T, H) */
  void *wide;      /* (T, Q): gradient of attention's output */
  void *middle;    /* (T, H) gradient at `middle` */
  void *qkv;       /* (T, Q + 2 K) gradient */
  void *activated; /* (T, U) */
  void *up;        /* (T, U) gradient of the activation */
  void *gate_up;   /* (T, 2 U) gradient */
  float *row;      /* (2, Q) a row's queries and output where a cache is read */
  group_arrays group;
} block_scratch;

static size_t cut_scratch(const mt_internvl *config, mt_element element, const mt_batch *batch, float *data,
                          block_scratch *scratch) {
  const mt_internvl_decoder *decoder = &config->decoder;
  const int64_t tokens = batch->tokens, up = decoder->intermediate;
  mt_cutter cutter = {.data = data, .element = element};
  scratch->normed = mt_cut(&cutter, tokens, decoder->hidden);
  scratch->wide = mt_cut(&cutter, tokens, query_width(decoder));
  scratch->middle = mt_cut(&cutter, tokens, decoder->hidden);
  scratch->qkv = mt_cut(&cutter, tokens, qkv_width(decoder));
  scratch->activated = mt_cut(&cutter, tokens, up);
  scratch->up = mt_cut(&cutter, tokens, up);
  scratch->gate_up = mt_cut(&cutter, tokens, 2 * up);
  scratch->row = mt_cut_floats(&cutter, 2, query_width(decoder));
  if (batch->context == NULL) return cutter.used;
  const mt_context_attention attention = group_attention(decoder, NULL, batch);
  group_arrays *group = &scratch->group;
  const int64_t copied = element == MT_ELEMENT_FLOAT32 ? 0 : tokens;
  group->qkv = mt_cut_floats(&cutter, copied, qkv_width(decoder));
  group->qkv_gradient = mt_cut_floats(&cutter, copied, qkv_width(decoder));
  group->output = mt_cut_floats(&cutter, copied, query_width(decoder));
  group->output_gradient = mt_cut_floats(&cutter, copied, query_width(decoder));
  group->own = mt_cut_floats(&cutter, 1, (int64_t)mt_context_attention_scratch(&attention));
  return cutter.used;
}

static size_t scratch_floats(const mt_internvl *config, mt_element element, const mt_batch *batch) {
  block_scratch scratch;
  return cut_scratch(config, element, batch, NULL, &scratch);
}

static block_scratch take_scratch(const mt_layer_call *call) {
  block_scratch scratch;
  size_t floats = scratch_floats(call->config, mt_layer_element(call), call->batch);
  cut_scratch(call->config, mt_layer_element(call), call->batch, mt_workspace_take(call->workspace, floats),
              &scratch);
  return scratch;
}

static mt_norm block_norm(const mt_layer_call *call, const void *input, int weight) {
  const mt_internvl_decoder *decoder = &call->config->decoder;
  return (mt_norm){.rms = true,
                   .epsilon = decoder->norm_epsilon,
                   .rows = call->batch->tokens,
                   .columns = decoder->hidden,
                   .input = input,
                   .stride = decoder->hidden,
                   .weight = call->weight[weight]};
}

/* The norm of head @p head among those of q and, behind them, of k. */
static mt_norm head_norm(const mt_layer_call *call, const block_saved *saved, int32_t head) {
  const mt_internvl_decoder *decoder = &call->config->decoder;
  return (mt_norm){.rms = true,
                   .epsilon = decoder->norm_epsilon,
                   .rows = call->batch->tokens,
                   .columns = decoder->head_dim,
                   .input = mt_layer_at(call, saved->raw, (int64_t)head * decoder->head_dim),
                   .stride = qkv_width(decoder),
                   .weight =
                       call->weight[head < decoder->heads ? MT_DECODER_BLOCK_Q_NORM : MT_DECODER_BLOCK_K_NORM]};
}

/* q, k and v from the normed input, before the rotation. */
static motet_status project(const mt_layer_call *call, const void *normed, const block_saved *saved) {
  const mt_internvl_decoder *decoder = &call->config->decoder;
  const int64_t rows = call->batch->tokens, stride = qkv_width(decoder);
  MT_TRY(mt_linear_forward(call, rows, decoder->hidden, stride, normed, call->weight[MT_DECODER_BLOCK_QKV],
                           call->weight[MT_DECODER_BLOCK_QKV_BIAS], decoder->qk_norm ? saved->raw : saved->qkv));
  if (!decoder->qk_norm) return MOTET_OK;
  for (int32_t head = 0; head < decoder->heads + decoder->kv_heads; head++) {
    const mt_norm norm = head_norm(call, saved, head);
    mt_parallel_norm_forward(call->device, &norm, mt_layer_at(call, saved->qkv, (int64_t)head * decoder->head_dim));
  }
  const int64_t values = query_width(decoder) + key_width(decoder);
  const size_t bytes = (size_t)key_width(decoder) * mt_element_bytes(mt_layer_element(call));
  for (int64_t r = 0; r < rows; r++)
    memcpy(mt_layer_at(call, saved->qkv, r * stride + values), mt_layer_at(call, saved->raw, r * stride + values),
           bytes);
  return MOTET_OK;
}

/* The gradient of q and k behind their norms becomes that in front of them, in place. */
static motet_status head_norms_backward(const mt_layer_call *call, const block_saved *saved, void *qkv) {
  const mt_internvl_decoder *decoder = &call->config->decoder;
  for (int32_t head = 0; decoder->qk_norm && head < decoder->heads + decoder->kv_heads; head++) {
    const mt_norm norm = head_norm(call, saved, head);
    void *gradient = mt_layer_at(call, qkv, (int64_t)head * decoder->head_dim);
    const int slot = head < decoder->heads ? MT_DECODER_BLOCK_Q_NORM : MT_DECODER_BLOCK_K_NORM;
    MT_TRY(mt_parallel_norm_backward(call->device, &norm, gradient, NULL, gradient,
                                     call->trains ? call->gradient[slot] : NULL, NULL, call->error));
  }
  return MOTET_OK;
}

/* Turns the heads of q and k, which stand side by side, of rows [begin, end): tokens of a segment of `length`, from
 * its token `position` on. */
static motet_status rotate_rows(const mt_layer_call *call, void *qkv, int32_t begin, int32_t end, int32_t position,
                                int32_t length, bool inverse) {
  const mt_internvl_decoder *decoder = &call->config->decoder;
  const int64_t skip = (int64_t)position * (decoder->head_dim / 2);
  const float *cosines, *sines;
  MT_TRY(mt_rotary_table(call->rotary, decoder, length, call->error, &cosines, &sines));
  mt_parallel_rotary(call->device, qkv, qkv_width(decoder), decoder->heads + decoder->kv_heads, decoder->head_dim,
                     begin, end, cosines + skip, sines + skip, inverse);
  return MOTET_OK;
}

/* Turns all rows; back with `inverse`. Positions go on behind those of a cache. */
static motet_status rotate(const mt_layer_call *call, void *qkv, bool inverse) {
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
                        .key = mt_layer_at(call, saved->qkv, query_width(decoder)),
                        .value = mt_layer_at(call, saved->qkv, query_width(decoder) + key_width(decoder)),
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
static void extend_cache(const mt_layer_call *call, const void *qkv) {
  const mt_internvl_decoder *decoder = &call->config->decoder;
  const mt_layer_cache *cache = call->cache;
  const int64_t width = key_width(decoder);
  for (int32_t r = 0; r < call->batch->tokens; r++) {
    const int64_t key = r * qkv_width(decoder) + query_width(decoder), to = (cache->tokens + r) * width;
    call->device->backend->to_floats(width, mt_layer_at(call, qkv, key), cache->keys + to);
    call->device->backend->to_floats(width, mt_layer_at(call, qkv, key + width), cache->values + to);
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
static void attend_cache(const mt_layer_call *call, const block_saved *saved, float *row) {
  const mt_internvl_decoder *decoder = &call->config->decoder;
  const int64_t width = query_width(decoder);
  float *output = row + width;
  for (int32_t r = 0; r < call->batch->tokens; r++) {
    call->device->backend->to_floats(width, mt_layer_at(call, saved->qkv, r * qkv_width(decoder)), row);
    for (int32_t head = 0; head < decoder->heads; head++)
      attend_head(decoder, call->cache, head, call->cache->tokens + r + 1, row + head * decoder->head_dim,
                  output + head * decoder->head_dim);
    call->device->backend->add_floats(width, output, NULL, mt_layer_at(call, saved->attention, r * width));
  }
}

/* `array` of @p count elements in float32: itself, or a copy in `floats`. */
static float *in_floats(const mt_layer_call *call, int64_t count, void *array, float *floats) {
  if (mt_layer_element(call) == MT_ELEMENT_FLOAT32) return array;
  call->device->backend->to_floats(count, array, floats);
  return floats;
}

/* Where float32 results for `array` are written, and what brings them there. */
static float *for_floats(const mt_layer_call *call, void *array, float *floats) {
  return mt_layer_element(call) == MT_ELEMENT_FLOAT32 ? array : floats;
}
static void from_floats(const mt_layer_call *call, int64_t count, const float *floats, void *array) {
  if (floats != array) call->device->backend->add_floats(count, floats, NULL, array);
}

static motet_status attend_group(const mt_layer_call *call, const block_saved *saved, const group_arrays *group) {
  const mt_internvl_decoder *decoder = &call->config->decoder;
  const mt_device device = {mt_tensor_backend_cpu(MT_ELEMENT_FLOAT32), call->device->team};
  const mt_context_attention attention = group_attention(decoder, &device, call->batch);
  const int64_t rows = call->batch->tokens;
  const float *qkv = in_floats(call, rows * qkv_width(decoder), saved->qkv, group->qkv);
  float *output = for_floats(call, saved->attention, group->output);
  MT_TRY(mt_context_attention_forward(&attention, qkv, saved->log_sum, group->own, output, call->error));
  from_floats(call, rows * query_width(decoder), output, saved->attention);
  return MOTET_OK;
}

static motet_status attend(const mt_layer_call *call, const block_saved *saved, const block_scratch *s) {
  const mt_internvl_decoder *decoder = &call->config->decoder;
  if (call->batch->context != NULL) return attend_group(call, saved, &s->group);
  if (call->cache != NULL) extend_cache(call, saved->qkv);
  if (call->cache != NULL && call->cache->tokens > 0) {
    attend_cache(call, saved, s->row);
    return MOTET_OK;
  }
  const mt_attention attention = block_attention(call, saved);
  return mt_parallel_attention_forward(call->device, &attention, saved->attention, query_width(decoder),
                                       saved->log_sum, call->error);
}

static motet_status attend_group_backward(const mt_layer_call *call, const block_saved *saved,
                                          const block_scratch *s) {
  const mt_internvl_decoder *decoder = &call->config->decoder;
  const mt_device device = {mt_tensor_backend_cpu(MT_ELEMENT_FLOAT32), call->device->team};
  const mt_context_attention attention = group_attention(decoder, &device, call->batch);
  const group_arrays *group = &s->group;
  const int64_t rows = call->batch->tokens, wide = rows * query_width(decoder), whole = rows * qkv_width(decoder);
  const float *qkv = in_floats(call, whole, saved->qkv, group->qkv);
  const float *output = in_floats(call, wide, saved->attention, group->output);
  const float *output_gradient = in_floats(call, wide, s->wide, group->output_gradient);
  float *gradient = for_floats(call, s->qkv, group->qkv_gradient);
  MT_TRY(mt_context_attention_backward(&attention, qkv, output, output_gradient, saved->log_sum, group->own,
                                       gradient, call->error));
  from_floats(call, whole, gradient, s->qkv);
  return MOTET_OK;
}

/* Gradient of qkv from that of attention's output. */
static motet_status attend_backward(const mt_layer_call *call, const block_saved *saved, const block_scratch *s) {
  const mt_internvl_decoder *decoder = &call->config->decoder;
  const int64_t stride = qkv_width(decoder);
  if (call->batch->context != NULL) return attend_group_backward(call, saved, s);
  const mt_attention attention = block_attention(call, saved);
  const mt_attention_gradients gradients = {
      .output = saved->attention,
      .output_gradient = s->wide,
      .output_stride = query_width(decoder),
      .output_gradient_stride = query_width(decoder),
      .log_sum = saved->log_sum,
      .query = s->qkv,
      .key = mt_layer_at(call, s->qkv, query_width(decoder)),
      .value = mt_layer_at(call, s->qkv, query_width(decoder) + key_width(decoder)),
      .query_stride = stride,
      .key_stride = stride,
      .value_stride = stride};
  return mt_parallel_attention_backward(call->device, &attention, &gradients, call->error);
}

static motet_status block_forward(const mt_layer_call *call) {
  const mt_internvl_decoder *decoder = &call->config->decoder;
  const int64_t rows = call->batch->tokens, hidden = decoder->hidden, up = decoder->intermediate;
  const block_scratch s = take_scratch(call);
  block_saved saved;
  cut_saved(call->config, mt_layer_element(call), call->batch, call->saved, &saved);
  const mt_norm norm1 = block_norm(call, call->input, MT_DECODER_BLOCK_NORM1);
  mt_parallel_norm_forward(call->device, &norm1, s.normed);
  MT_TRY(project(call, s.normed, &saved));
  MT_TRY(rotate(call, saved.qkv, false));
  MT_TRY(attend(call, &saved, &s));
  MT_TRY(mt_linear_residual(call, rows, query_width(decoder), hidden, saved.attention,
                            call->weight[MT_DECODER_BLOCK_OUT], NULL, NULL, call->input, saved.middle));
  const mt_norm norm2 = block_norm(call, saved.middle, MT_DECODER_BLOCK_NORM2);
  mt_parallel_norm_forward(call->device, &norm2, s.normed);
  MT_TRY(mt_linear_forward(call, rows, hidden, 2 * up, s.normed, call->weight[MT_DECODER_BLOCK_GATE_UP], NULL,
                           saved.gate_up));
  mt_parallel_swiglu_forward(call->device, rows, up, saved.gate_up, s.activated);
  return mt_linear_residual(call, rows, up, hidden, s.activated, call->weight[MT_DECODER_BLOCK_DOWN], NULL, NULL,
                            saved.middle, call->output);
}

/* Gradient at `middle` from the output's, into s.middle. */
static motet_status backward_mlp(const mt_layer_call *call, const block_saved *saved, const block_scratch *s) {
  const mt_internvl_decoder *decoder = &call->config->decoder;
  const int64_t rows = call->batch->tokens, hidden = decoder->hidden, up = decoder->intermediate;
  MT_TRY(mt_linear_input_gradient(call, rows, up, hidden, call->output_gradient,
                                  call->weight[MT_DECODER_BLOCK_DOWN], s->up));
  mt_parallel_swiglu_backward(call->device, rows, up, saved->gate_up, s->up, s->gate_up,
                              call->trains ? s->activated : NULL);
  const mt_norm norm = block_norm(call, saved->middle, MT_DECODER_BLOCK_NORM2);
  if (call->trains) {
    MT_TRY(mt_linear_weight_gradient(call, rows, up, hidden, call->output_gradient, s->activated, false,
                                     call->gradient[MT_DECODER_BLOCK_DOWN], NULL));
    mt_parallel_norm_forward(call->device, &norm, s->normed);
    MT_TRY(mt_linear_weight_gradient(call, rows, hidden, 2 * up, s->gate_up, s->normed, false,
                                     call->gradient[MT_DECODER_BLOCK_GATE_UP], NULL));
  }
  MT_TRY(mt_linear_input_gradient(call, rows, hidden, 2 * up, s->gate_up, call->weight[MT_DECODER_BLOCK_GATE_UP],
                                  s->normed));
  MT_TRY(mt_parallel_norm_backward(call->device, &norm, s->normed, call->output_gradient, s->middle,
                                   call->trains ? call->gradient[MT_DECODER_BLOCK_NORM2] : NULL, NULL,
                                   call->error));
  return MOTET_OK;
}

static motet_status block_backward(const mt_layer_call *call) {
  const mt_internvl_decoder *decoder = &call->config->decoder;
  const int64_t rows = call->batch->tokens, hidden = decoder->hidden, stride = qkv_width(decoder);
  const block_scratch s = take_scratch(call);
  block_saved saved;
  cut_saved(call->config, mt_layer_element(call), call->batch, call->saved, &saved);
  MT_TRY(backward_mlp(call, &saved, &s));
  if (call->trains)
    MT_TRY(mt_linear_weight_gradient(call, rows, query_width(decoder), hidden, s.middle, saved.attention, false,
                                     call->gradient[MT_DECODER_BLOCK_OUT], NULL));
  MT_TRY(mt_linear_input_gradient(call, rows, query_width(decoder), hidden, s.middle,
                                  call->weight[MT_DECODER_BLOCK_OUT], s.wide));
  MT_TRY(attend_backward(call, &saved, &s));
  MT_TRY(rotate(call, s.qkv, true));
  MT_TRY(head_norms_backward(call, &saved, s.qkv));
  const mt_norm norm = block_norm(call, saved.input, MT_DECODER_BLOCK_NORM1);
  if (call->trains) {
    mt_parallel_norm_forward(call->device, &norm, s.normed);
    MT_TRY(mt_linear_weight_gradient(call, rows, hidden, stride, s.qkv, s.normed, false,
                                     call->gradient[MT_DECODER_BLOCK_QKV],
                                     call->gradient[MT_DECODER_BLOCK_QKV_BIAS]));
  }
  MT_TRY(mt_linear_input_gradient(call, rows, hidden, stride, s.qkv, call->weight[MT_DECODER_BLOCK_QKV], s.normed));
  MT_TRY(mt_parallel_norm_backward(call->device, &norm, s.normed, s.middle, call->input_gradient,
                                   call->trains ? call->gradient[MT_DECODER_BLOCK_NORM1] : NULL, NULL,
                                   call->error));
  return MOTET_OK;
}

const mt_layer_kind mt_layer_decoder_block = {.keeps_input = true,
                                              .output = block_output,
                                              .saved = saved_floats,
                                              .scratch = scratch_floats,
                                              .forward = block_forward,
                                              .backward = block_backward};
