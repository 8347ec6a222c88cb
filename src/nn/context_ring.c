/*
 * The ring: every set's keys and values pass every other set. At step s, set i has the block of set i - s, while
 * that of set i - s - 1 arrives and its own leaves for set i + 1.
 */
#include "base/clock.h"
#include "nn/context_parts.h"
#include "nn/layer.h"

#include <string.h>

static int32_t set_at(const mt_context_call *call, int32_t step) {
  const int32_t rings = call->context->rings;
  return ((call->set - step) % rings + rings) % rings;
}

/* The member of set `set` that holds the same heads. */
static int32_t member_of(const mt_context_call *call, int32_t set) {
  return set * call->context->ulysses + call->place;
}

static const mt_set_chunk *chunks_of(const mt_context_call *call, int32_t set, int32_t *count) {
  const int32_t *begin = call->context->chunk_begin, ulysses = call->context->ulysses;
  *count = begin[(set + 1) * ulysses] - begin[set * ulysses];
  return call->chunks + begin[set * ulysses];
}

/* Segment bounds in the rows of a set. */
static void bound_segments(const mt_context_call *call, int32_t set, int32_t *bounds) {
  int32_t count;
  const mt_set_chunk *chunks = chunks_of(call, set, &count);
  memset(bounds, 0, ((size_t)call->context->segments + 1) * sizeof *bounds);
  for (int32_t c = 0; c < count; c++)
    bounds[chunks[c].chunk.segment + 1] += chunks[c].chunk.end - chunks[c].chunk.begin;
  for (int32_t s = 0; s < call->context->segments; s++) bounds[s + 1] += bounds[s];
}

/* How many of the block's keys each own row sees under a causal mask: those of tokens up to its own. */
static void count_visible(const mt_context_call *call, int32_t set) {
  int32_t own_count, count, at = 0;
  const mt_set_chunk *own = chunks_of(call, call->set, &own_count), *chunks = chunks_of(call, set, &count);
  for (int32_t c = 0; c < own_count; c++) {
    const int32_t segment = own[c].chunk.segment, first = call->key_begin[segment];
    for (int32_t token = own[c].chunk.begin; token < own[c].chunk.end; token++) {
      while (at < count && chunks[at].chunk.end <= token) at++;
      /* Everything before chunk `at` has passed; what of it belongs to earlier segments is not counted. */
      int32_t keys = at < count ? chunks[at].row : call->key_begin[call->context->segments];
      if (at < count && chunks[at].chunk.begin <= token) keys += token + 1 - chunks[at].chunk.begin;
      call->visible[own[c].row + token - own[c].chunk.begin] = keys - first;
    }
  }
}

/* Attention of the own rows over the block of set `set`. */
static mt_attention block_attention(const mt_context_call *call, const float *qkv, int32_t set,
                                    const float *block) {
  const mt_context_attention *model = call->attention;
  bound_segments(call, set, call->key_begin);
  if (model->causal) count_visible(call, set);
  return (mt_attention){.query = qkv,
                        .key = block,
                        .value = block + call->kv_width / 2,
                        .query_stride = call->width,
                        .key_stride = call->kv_width,
                        .value_stride = call->kv_width,
                        .heads = call->heads,
                        .kv_heads = call->kv_heads,
                        .head_dim = model->head_dim,
                        .segments = call->context->segments,
                        .segment_begin = call->query_begin,
                        .scale = model->scale,
                        .key_begin = call->key_begin,
                        .visible = model->causal ? call->visible : NULL};
}

/* The own keys and values as a block. */
static void pack_block(const mt_context_call *call, const float *qkv, float *block) {
  const int64_t skip = call->width - call->kv_width;
  for (int64_t r = 0; r < call->rows; r++)
    memcpy(block + r * call->kv_width, qkv + r * call->width + skip, (size_t)call->kv_width * sizeof *block);
}

/* A block that is under way in and one that is under way out. */
typedef struct passing {
  void *in, *out;
} passing;

/* Posts the exchange of step `step`'s block for the next one's; nothing in the last step. */
static motet_status pass_block(const mt_context_call *call, int32_t step, int64_t *sent, passing *pass) {
  *pass = (passing){0};
  if (step + 1 == call->context->rings) return MOTET_OK;
  const int64_t leaves = mt_context_set_rows(call->context, set_at(call, step)) * call->kv_width;
  const int64_t enters = mt_context_set_rows(call->context, set_at(call, step + 1)) * call->kv_width;
  *sent += leaves;
  MT_TRY(mt_context_recv(call, member_of(call, set_at(call, 1)), MT_CONTEXT_TAG_KEYS, call->block[(step + 1) % 2],
                         enters, &pass->in));
  return mt_context_send(call, member_of(call, set_at(call, -1)), MT_CONTEXT_TAG_KEYS, call->block[step % 2],
                         leaves, &pass->out);
}

static motet_status finish(const mt_context_call *call, passing *pass) {
  MT_TRY(mt_context_wait(call, &pass->in));
  return mt_context_wait(call, &pass->out);
}

static void count_compute(const mt_context_call *call, double begin) {
  if (call->context->counts != NULL) call->context->counts->compute_seconds += mt_clock_seconds() - begin;
}

motet_status mt_ring_forward(const mt_context_call *call, const float *qkv, float *output, float *log_sum) {
  const mt_device *device = call->attention->device;
  const int64_t wide = call->width - call->kv_width;
  int64_t sent = 0;
  bound_segments(call, call->set, call->query_begin);
  pack_block(call, qkv, call->block[0]);
  for (int32_t step = 0; step < call->context->rings; step++) {
    passing pass;
    MT_TRY(pass_block(call, step, &sent, &pass));
    const double begin = mt_clock_seconds();
    const mt_attention attention = block_attention(call, qkv, set_at(call, step), call->block[step % 2]);
    /* Every row sees itself: the own block, which is the first, leaves no row empty. */
    MT_TRY(mt_parallel_attention_forward(device, &attention, step == 0 ? output : call->part, wide,
                                         step == 0 ? log_sum : call->part_log_sum, call->error));
    if (step > 0)
      mt_parallel_attention_merge(device, call->rows, call->heads, call->attention->head_dim, call->part, wide,
                                  call->part_log_sum, output, wide, log_sum);
    count_compute(call, begin);
    MT_TRY(finish(call, &pass));
  }
  if (call->context->counts != NULL) call->context->counts->ring_forward += sent;
  return MOTET_OK;
}

/* The gradients of the block of step `step`: adds what has arrived of them and posts them on to the next set. */
static motet_status pass_gradient(const mt_context_call *call, int32_t step, int64_t floats, void **in,
                                  void **out) {
  float *own = call->block_gradient[step % 2];
  if (step > 0) {
    MT_TRY(mt_context_wait(call, in));
    call->attention->device->backend->add_to_floats(floats, call->block_gradient[2], own);
  }
  return mt_context_send(call, member_of(call, set_at(call, -1)), MT_CONTEXT_TAG_GRADIENTS, own, floats, out);
}

motet_status mt_ring_backward(const mt_context_call *call, const float *qkv, const float *output,
                              const float *output_gradient, const float *log_sum, float *gradient) {
  const mt_context *context = call->context;
  const int64_t wide = call->width - call->kv_width, home = call->rows * call->kv_width;
  const int32_t before = member_of(call, set_at(call, 1));
  int64_t sent = 0;
  void *in = NULL, *out[2] = {NULL, NULL};
  bound_segments(call, call->set, call->query_begin);
  pack_block(call, qkv, call->block[0]);
  memset(gradient, 0, (size_t)(call->rows * call->width) * sizeof *gradient);
  for (int32_t step = 0; step < context->rings; step++) {
    const int64_t floats = mt_context_set_rows(context, set_at(call, step)) * call->kv_width;
    float *block_gradient = call->block_gradient[step % 2];
    passing pass;
    MT_TRY(mt_context_wait(call, &out[step % 2]));
    MT_TRY(pass_block(call, step, &sent, &pass));
    if (step > 0)
      MT_TRY(mt_context_recv(call, before, MT_CONTEXT_TAG_GRADIENTS, call->block_gradient[2], floats, &in));
    const double begin = mt_clock_seconds();
    memset(block_gradient, 0, (size_t)floats * sizeof *block_gradient);
    const mt_attention attention = block_attention(call, qkv, set_at(call, step), call->block[step % 2]);
    const mt_attention_gradients gradients = {.output = output,
                                              .output_gradient = output_gradient,
                                              .output_stride = wide,
                                              .output_gradient_stride = wide,
                                              .log_sum = log_sum,
                                              .query = gradient,
                                              .key = block_gradient,
                                              .value = block_gradient + call->kv_width / 2,
                                              .query_stride = call->width,
                                              .key_stride = call->kv_width,
                                              .value_stride = call->kv_width,
                                              .accumulate = true};
    MT_TRY(mt_parallel_attention_backward(call->attention->device, &attention, &gradients, call->error));
    count_compute(call, begin);
    if (context->rings > 1) {
      MT_TRY(pass_gradient(call, step, floats, &in, &out[step % 2]));
      sent += floats;
    }
    MT_TRY(finish(call, &pass));
  }
  const float *own = call->block_gradient[0];
  if (context->rings > 1) {
    own = call->block_gradient[2];
    MT_TRY(mt_context_recv(call, before, MT_CONTEXT_TAG_GRADIENTS, call->block_gradient[2], home, &in));
    MT_TRY(mt_context_wait(call, &in));
    for (int i = 0; i < 2; i++) MT_TRY(mt_context_wait(call, &out[i]));
  }
  for (int64_t r = 0; r < call->rows; r++)
    memcpy(gradient + r * call->width + wide, own + r * call->kv_width, (size_t)call->kv_width * sizeof *own);
  if (context->counts != NULL) context->counts->ring_backward += sent;
  return MOTET_OK;
}
