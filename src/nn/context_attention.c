/* Attention over a group: sizes, tables, and the order of the two exchanges. */
#include "nn/context_attention.h"

#include "base/clock.h"
#include "nn/context_parts.h"
#include "nn/layer.h"

#include <stdlib.h>
#include <string.h>

int64_t mt_context_set_rows(const mt_context *context, int32_t set) {
  int64_t rows = 0;
  for (int32_t i = 0; i < context->ulysses; i++) rows += mt_context_tokens(context, set * context->ulysses + i);
  return rows;
}

motet_status mt_context_send(const mt_context_call *call, int32_t member, int32_t tag, const float *data,
                             int64_t count, void **transfer) {
  const mt_context_exchange *exchange = call->context->exchange;
  *transfer = NULL;
  if (count == 0) return MOTET_OK;
  return exchange->send(exchange->state, call->context->ranks[member], tag, data, (size_t)count * sizeof *data,
                        call->error, transfer);
}

motet_status mt_context_recv(const mt_context_call *call, int32_t member, int32_t tag, float *data, int64_t count,
                             void **transfer) {
  const mt_context_exchange *exchange = call->context->exchange;
  *transfer = NULL;
  if (count == 0) return MOTET_OK;
  return exchange->recv(exchange->state, call->context->ranks[member], tag, data, (size_t)count * sizeof *data,
                        call->error, transfer);
}

motet_status mt_context_wait(const mt_context_call *call, void **transfer) {
  const mt_context_exchange *exchange = call->context->exchange;
  if (*transfer == NULL) return MOTET_OK;
  const double begin = mt_clock_seconds();
  motet_status status = exchange->wait(exchange->state, *transfer, call->error);
  *transfer = NULL;
  if (call->context->counts != NULL) call->context->counts->wait_seconds += mt_clock_seconds() - begin;
  return status;
}

static int64_t most_rows(const mt_context *context) {
  int64_t most = 0;
  for (int32_t set = 0; set < context->rings; set++) {
    const int64_t rows = mt_context_set_rows(context, set);
    most = rows > most ? rows : most;
  }
  return most;
}

/* A call's sizes. */
static mt_context_call measure(const mt_context_attention *attention) {
  const mt_context *context = attention->context;
  const int64_t dim = attention->head_dim;
  const int32_t ulysses = context->ulysses;
  mt_context_call call = {.attention = attention,
                          .context = context,
                          .set = context->index / ulysses,
                          .place = context->index % ulysses,
                          .heads = attention->heads / ulysses,
                          .kv_heads = attention->kv_heads > ulysses ? attention->kv_heads / ulysses : 1};
  call.width = (call.heads + 2 * (int64_t)call.kv_heads) * dim;
  call.kv_width = 2 * call.kv_heads * dim;
  call.own_width = (attention->heads + 2 * (int64_t)attention->kv_heads) * dim;
  call.own_rows = mt_context_tokens(context, context->index);
  call.rows = mt_context_set_rows(context, call.set);
  return call;
}

/* Where everything lies in `scratch`, NULL to count. Returns the floats. */
static size_t lay_out(mt_context_call *call, float *scratch) {
  const mt_context_attention *attention = call->attention;
  const mt_context *context = call->context;
  const int64_t dim = attention->head_dim, most = most_rows(context), segments = context->segments;
  const int32_t ulysses = context->ulysses;
  const int64_t set_rows = ulysses > 1 ? call->rows : 0;
  const int64_t sent_rows =
      ulysses > 1 ? (call->own_rows * ulysses > call->rows ? call->own_rows * ulysses : call->rows) : 0;
  const int64_t chunk_floats = (int64_t)((sizeof(mt_set_chunk) + sizeof(float) - 1) / sizeof(float));
  mt_cutter cutter = {.data = scratch};
  call->chunks = (void *)mt_cut_floats(&cutter, context->chunk_begin[mt_context_degree(context)], chunk_floats);
  call->query_begin = (void *)mt_cut_floats(&cutter, 1, segments + 1);
  call->key_begin = (void *)mt_cut_floats(&cutter, 1, segments + 1);
  call->visible = (void *)mt_cut_floats(&cutter, 1, call->rows);
  const int64_t passing = context->rings > 1 ? most : 0, merged = context->rings > 1 ? call->rows : 0;
  for (int i = 0; i < 2; i++) call->block[i] = mt_cut_floats(&cutter, i == 0 ? most : passing, call->kv_width);
  call->part = mt_cut_floats(&cutter, merged, call->heads * dim);
  call->part_log_sum = mt_cut_floats(&cutter, call->heads, merged);
  for (int i = 0; i < 3; i++)
    call->block_gradient[i] = mt_cut_floats(&cutter, i == 0 ? most : passing, call->kv_width);
  call->set_gradient = mt_cut_floats(&cutter, set_rows, call->width);
  call->set_output_gradient = mt_cut_floats(&cutter, set_rows, call->heads * dim);
  call->leaving = mt_cut_floats(&cutter, sent_rows, call->width);
  call->arriving = mt_cut_floats(&cutter, sent_rows, call->width);
  return cutter.used;
}

/* What forward keeps: (q, k, v) and output of the set if that is not what the caller has, and log_sum. */
typedef struct kept {
  float *qkv;     /* (N, width) */
  float *output;  /* (N, heads * head_dim) */
  float *log_sum; /* (heads, N) */
} kept;

static size_t cut_kept(const mt_context_call *call, float *data, kept *saved) {
  const int64_t rows = call->context->ulysses > 1 ? call->rows : 0;
  mt_cutter cutter = {.data = data};
  saved->qkv = mt_cut_floats(&cutter, rows, call->width);
  saved->output = mt_cut_floats(&cutter, rows, (int64_t)call->heads * call->attention->head_dim);
  saved->log_sum = mt_cut_floats(&cutter, call->heads, call->rows);
  return cutter.used;
}

size_t mt_context_attention_saved(const mt_context_attention *attention) {
  const mt_context_call call = measure(attention);
  kept saved;
  return cut_kept(&call, NULL, &saved);
}

size_t mt_context_attention_scratch(const mt_context_attention *attention) {
  mt_context_call call = measure(attention);
  return lay_out(&call, NULL);
}

static int compare_chunks(const void *a, const void *b) {
  const int32_t left = ((const mt_set_chunk *)a)->chunk.begin, right = ((const mt_set_chunk *)b)->chunk.begin;
  return (left > right) - (left < right);
}

/* The sets' rows: each set's chunks sorted by token, with their rows. */
static void sort_sets(const mt_context_call *call) {
  const mt_context *context = call->context;
  for (int32_t set = 0; set < context->rings; set++) {
    const int32_t first = context->chunk_begin[set * context->ulysses];
    const int32_t end = context->chunk_begin[(set + 1) * context->ulysses];
    for (int32_t place = 0; place < context->ulysses; place++) {
      const int32_t member = set * context->ulysses + place;
      int32_t row = 0;
      for (int32_t c = context->chunk_begin[member]; c < context->chunk_begin[member + 1]; c++) {
        call->chunks[c] = (mt_set_chunk){.chunk = context->chunks[c], .member = place, .member_row = row};
        row += context->chunks[c].end - context->chunks[c].begin;
      }
    }
    qsort(call->chunks + first, (size_t)(end - first), sizeof *call->chunks, compare_chunks);
    int32_t row = 0;
    for (int32_t c = first; c < end; c++) {
      call->chunks[c].row = row;
      row += call->chunks[c].chunk.end - call->chunks[c].chunk.begin;
    }
  }
}

static motet_status open_call(const mt_context_attention *attention, float *scratch, motet_error *error,
                              mt_context_call *call) {
  MT_TRY(mt_context_check_heads(attention->context->ulysses, attention->heads, attention->kv_heads, error));
  *call = measure(attention);
  lay_out(call, scratch);
  call->error = error;
  sort_sets(call);
  return MOTET_OK;
}

motet_status mt_context_attention_forward(const mt_context_attention *attention, const float *qkv, float *saved,
                                          float *scratch, float *output, motet_error *error) {
  mt_context_call call;
  kept keep;
  MT_TRY(open_call(attention, scratch, error, &call));
  cut_kept(&call, saved, &keep);
  if (attention->context->ulysses == 1) return mt_ring_forward(&call, qkv, output, keep.log_sum);
  int64_t sent = 0;
  MT_TRY(mt_ulysses_gather_qkv(&call, qkv, keep.qkv, &sent));
  MT_TRY(mt_ring_forward(&call, keep.qkv, keep.output, keep.log_sum));
  MT_TRY(mt_ulysses_scatter(&call, keep.output, output, &sent));
  if (attention->context->counts != NULL) attention->context->counts->ulysses_forward += sent;
  return MOTET_OK;
}

motet_status mt_context_attention_backward(const mt_context_attention *attention, const float *qkv,
                                           const float *output, const float *output_gradient, float *saved,
                                           float *scratch, float *qkv_gradient, motet_error *error) {
  mt_context_call call;
  kept keep;
  MT_TRY(open_call(attention, scratch, error, &call));
  cut_kept(&call, saved, &keep);
  if (attention->context->ulysses == 1)
    return mt_ring_backward(&call, qkv, output, output_gradient, keep.log_sum, qkv_gradient);
  int64_t sent = 0;
  MT_TRY(mt_ulysses_gather(&call, output_gradient, call.set_output_gradient, &sent));
  MT_TRY(mt_ring_backward(&call, keep.qkv, keep.output, call.set_output_gradient, keep.log_sum, call.set_gradient));
  MT_TRY(mt_ulysses_scatter_qkv(&call, call.set_gradient, qkv_gradient, &sent));
  if (attention->context->counts != NULL) attention->context->counts->ulysses_backward += sent;
  return MOTET_OK;
}
