/** @file The parts of attention over a group: rows of Ulysses sets, scratch, the two exchanges. */
#ifndef MT_NN_CONTEXT_PARTS_H
#define MT_NN_CONTEXT_PARTS_H

#include "nn/context_attention.h"

enum { MT_CONTEXT_TAG_ULYSSES, MT_CONTEXT_TAG_KEYS, MT_CONTEXT_TAG_GRADIENTS };

/** A chunk among the rows of its Ulysses set, which are sorted by token. */
typedef struct mt_set_chunk {
  mt_chunk chunk;
  int32_t member, member_row; /* its place in the set, its first row there */
  int32_t row;                /* first row in the set */
} mt_set_chunk;

/** One call of attention: sizes, tables and scratch. N: rows of the own set; M: most of any set. */
typedef struct mt_context_call {
  const mt_context_attention *attention;
  const mt_context *context;
  motet_error *error;
  int32_t set, place;         /* of this rank: which set, where in it */
  int32_t heads, kv_heads;    /* of one member of a set */
  int64_t width, kv_width;    /* floats of a row of (q, k, v) and of (k, v), with these heads */
  int64_t own_width;          /* floats of a row of the model's (q, k, v) */
  int64_t own_rows, rows;     /* T, N */
  mt_set_chunk *chunks;       /* as the context's, sorted inside each set */
  int32_t *query_begin;       /* [segments + 1] of the own set */
  int32_t *key_begin;         /* [segments + 1] of the block at hand */
  int32_t *visible;           /* [N] of the block at hand */
  float *block[2];            /* (M, kv_width) keys and values of the block at hand and of the next */
  float *part;                /* (N, heads * head_dim) one block's output */
  float *part_log_sum;        /* (heads, N) */
  float *block_gradient[3];   /* (M, kv_width) two in turn of the blocks at hand; what arrives of one */
  float *set_gradient;        /* U > 1: (N, width) gradient of the set's (q, k, v) */
  float *set_output_gradient; /* U > 1: (N, heads * head_dim) */
  float *leaving, *arriving;  /* U > 1: messages, one behind the other */
} mt_context_call;

/** Rows of set @p set. */
int64_t mt_context_set_rows(const mt_context *context, int32_t set);

/** Post a message of @p count floats, nothing for none; wait for it and count the time. */
motet_status mt_context_send(const mt_context_call *call, int32_t member, int32_t tag, const float *data,
                             int64_t count, void **transfer);
motet_status mt_context_recv(const mt_context_call *call, int32_t member, int32_t tag, float *data, int64_t count,
                             void **transfer);
motet_status mt_context_wait(const mt_context_call *call, void **transfer);

/** Set rows from own rows: @p own (T, own_width) -> @p set (N, width), and back: values of heads that were sent
 * repeatedly are added up, in the order of the set's members. */
motet_status mt_ulysses_gather_qkv(const mt_context_call *call, const float *own, float *set, int64_t *counted);
motet_status mt_ulysses_scatter_qkv(const mt_context_call *call, const float *set, float *own, int64_t *counted);
/** The same for query heads alone: (T, model's heads * head_dim) <-> (N, heads * head_dim). */
motet_status mt_ulysses_gather(const mt_context_call *call, const float *own, float *set, int64_t *counted);
motet_status mt_ulysses_scatter(const mt_context_call *call, const float *set, float *own, int64_t *counted);

/** Attention of the own set's rows (N, width) over all sets. */
motet_status mt_ring_forward(const mt_context_call *call, const float *qkv, float *output, float *log_sum);
/** @p gradient (N, width) is written. */
motet_status mt_ring_backward(const mt_context_call *call, const float *qkv, const float *output,
                              const float *output_gradient, const float *log_sum, float *gradient);

#endif
