/* Ulysses: the members of a set give each other tokens for heads, and back. */
#include "nn/context_parts.h"
#include "nn/layer.h"

#include <string.h>

/* Columns of a row that a member of the set computes with: queries, keys or values. */
typedef struct column_run {
  int64_t own, set, count; /* where it begins in a row of the model's and of the set's, floats */
} column_run;

typedef struct row_form {
  int64_t own_width, set_width;
  int runs;
} row_form;

/* First head of keys and values that member `place` computes with. */
static int32_t kv_head(const mt_context_call *call, int32_t place) {
  return (int32_t)((int64_t)place * call->attention->kv_heads / call->context->ulysses);
}

/* Run `index` of member `place`: 0 queries, 1 keys, 2 values. */
static column_run run_of(const mt_context_call *call, int32_t place, int index) {
  const int64_t dim = call->attention->head_dim, heads = call->attention->heads,
                kv_heads = call->attention->kv_heads;
  if (index == 0) return (column_run){.own = place * call->heads * dim, .set = 0, .count = call->heads * dim};
  return (column_run){.own = (heads + (index - 1) * kv_heads + kv_head(call, place)) * dim,
                      .set = (call->heads + (index - 1) * (int64_t)call->kv_heads) * dim,
                      .count = call->kv_heads * dim};
}

static row_form qkv_form(const mt_context_call *call) {
  return (row_form){.own_width = call->own_width, .set_width = call->width, .runs = 3};
}

static row_form query_form(const mt_context_call *call) {
  const int64_t dim = call->attention->head_dim;
  return (row_form){.own_width = call->attention->heads * dim, .set_width = call->heads * dim, .runs = 1};
}

static int32_t member_of(const mt_context_call *call, int32_t place) {
  return call->set * call->context->ulysses + place;
}

static int64_t rows_of(const mt_context_call *call, int32_t place) {
  return mt_context_tokens(call->context, member_of(call, place));
}

/* Copies rows of member `place` between the set's rows and a message of its rows one behind the other. */
static void move_rows(const mt_context_call *call, int32_t place, int64_t width, float *set, float *message,
                      bool to_set) {
  const int32_t *begin = call->context->chunk_begin, ulysses = call->context->ulysses;
  for (int32_t c = begin[call->set * ulysses]; c < begin[(call->set + 1) * ulysses]; c++) {
    const mt_set_chunk *chunk = &call->chunks[c];
    if (chunk->member != place) continue;
    const size_t bytes = (size_t)((chunk->chunk.end - chunk->chunk.begin) * width) * sizeof *set;
    float *there = set + chunk->row * width, *here = message + chunk->member_row * width;
    memcpy(to_set ? there : here, to_set ? here : there, bytes);
  }
}

/* Messages to and from every other member; member j's stand behind those of the members before it. */
static motet_status exchange(const mt_context_call *call, int64_t width, bool to_set, int64_t *counted) {
  enum { MOST = 64 };
  const int32_t ulysses = call->context->ulysses;
  void *in[MOST], *out[MOST];
  /* Members meet in rounds of at most MOST messages each way; in round k, place p talks to p + k and p - k. */
  for (int32_t first = 1; first < ulysses; first += MOST) {
    const int32_t end = first + MOST < ulysses ? first + MOST : ulysses;
    for (int32_t shift = first; shift < end; shift++) {
      const int32_t from = (call->place - shift + ulysses) % ulysses;
      int64_t before = 0;
      for (int32_t j = 0; j < from; j++) before += to_set ? rows_of(call, j) : call->own_rows;
      const int64_t rows = to_set ? rows_of(call, from) : call->own_rows;
      MT_TRY(mt_context_recv(call, member_of(call, from), MT_CONTEXT_TAG_ULYSSES, call->arriving + before * width,
                             rows * width, &in[shift - first]));
    }
    for (int32_t shift = first; shift < end; shift++) {
      const int32_t to = (call->place + shift) % ulysses;
      int64_t before = 0;
      for (int32_t j = 0; j < to; j++) before += to_set ? call->own_rows : rows_of(call, j);
      const int64_t rows = to_set ? call->own_rows : rows_of(call, to);
      *counted += rows * width;
      MT_TRY(mt_context_send(call, member_of(call, to), MT_CONTEXT_TAG_ULYSSES, call->leaving + before * width,
                             rows * width, &out[shift - first]));
    }
    for (int32_t shift = first; shift < end; shift++) {
      MT_TRY(mt_context_wait(call, &in[shift - first]));
      MT_TRY(mt_context_wait(call, &out[shift - first]));
    }
  }
  return MOTET_OK;
}

static motet_status gather(const mt_context_call *call, row_form form, const float *own, float *set,
                           int64_t *counted) {
  const int64_t width = form.set_width, rows = call->own_rows;
  for (int32_t place = 0; place < call->context->ulysses; place++) {
    float *message = call->leaving + place * rows * width;
    for (int i = 0; i < form.runs; i++) {
      const column_run run = run_of(call, place, i);
      for (int64_t r = 0; r < rows; r++)
        memcpy(message + r * width + run.set, own + r * form.own_width + run.own,
               (size_t)run.count * sizeof *message);
    }
  }
  MT_TRY(exchange(call, width, true, counted));
  int64_t before = 0;
  for (int32_t place = 0; place < call->context->ulysses; place++) {
    float *message = place == call->place ? call->leaving + place * rows * width : call->arriving + before * width;
    move_rows(call, place, width, set, message, true);
    before += rows_of(call, place);
  }
  return MOTET_OK;
}

static motet_status scatter(const mt_context_call *call, row_form form, const float *set, float *own,
                            int64_t *counted) {
  const int64_t width = form.set_width, rows = call->own_rows;
  int64_t before = 0, kept = 0;
  for (int32_t place = 0; place < call->context->ulysses; place++) {
    if (place == call->place) kept = before;
    move_rows(call, place, width, (float *)(uintptr_t)set, call->leaving + before * width, false);
    before += rows_of(call, place);
  }
  MT_TRY(exchange(call, width, false, counted));
  memset(own, 0, (size_t)(rows * form.own_width) * sizeof *own);
  for (int32_t place = 0; place < call->context->ulysses; place++) {
    const float *message =
        place == call->place ? call->leaving + kept * width : call->arriving + place * rows * width;
    for (int i = 0; i < form.runs; i++) {
      const column_run run = run_of(call, place, i);
      for (int64_t r = 0; r < rows; r++)
        call->attention->device->backend->add_to_floats(run.count, message + r * width + run.set,
                                                        own + r * form.own_width + run.own);
    }
  }
  return MOTET_OK;
}

motet_status mt_ulysses_gather_qkv(const mt_context_call *call, const float *own, float *set, int64_t *counted) {
  return gather(call, qkv_form(call), own, set, counted);
}

motet_status mt_ulysses_scatter_qkv(const mt_context_call *call, const float *set, float *own, int64_t *counted) {
  return scatter(call, qkv_form(call), set, own, counted);
}

motet_status mt_ulysses_gather(const mt_context_call *call, const float *own, float *set, int64_t *counted) {
  return gather(call, query_form(call), own, set, counted);
}

motet_status mt_ulysses_scatter(const mt_context_call *call, const float *set, float *own, int64_t *counted) {
  return scatter(call, query_form(call), set, own, counted);
}
