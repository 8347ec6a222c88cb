/** @file
 * Context parallelism, the layers' side: a group of ranks computes one packed row together, each on its own tokens.
 * Attention exchanges what it needs between them; everything else works on a member's own rows alone.
 *
 * A group of degree d = U * R: U members exchange heads for tokens (Ulysses, arXiv 2309.14509), R such sets pass
 * keys and values round a ring (arXiv 2310.01889); both are USP (arXiv 2405.07719). Member i is number i % U of
 * Ulysses set i / U. U = 1 is a plain ring, R = 1 plain Ulysses.
 */
#ifndef MT_NN_CONTEXT_H
#define MT_NN_CONTEXT_H

#include "base/arena.h"
#include "base/error.h"
#include "nn/batch.h"

#include <stddef.h>
#include <stdint.h>

/** Tags that attention uses, 0 to MT_CONTEXT_TAGS - 1: whoever fills the table maps them to a range of their own.
 */
enum { MT_CONTEXT_TAGS = 3 };

/**
 * Messages between members, as attention asks for them. `send` and `recv` post and do not block; messages of one
 * (source, destination, tag) arrive in the order they were posted. All transfers of a call of attention are waited
 * for before it returns, unless it failed.
 */
typedef struct mt_context_exchange {
  void *state;
  motet_status (*send)(void *state, int32_t peer, int32_t tag, const void *data, size_t bytes, motet_error *error,
                       void **transfer);
  motet_status (*recv)(void *state, int32_t peer, int32_t tag, void *data, size_t bytes, motet_error *error,
                       void **transfer);
  motet_status (*wait)(void *state, void *transfer, motet_error *error);
} mt_context_exchange;

/** What attention sent and how long it waited; added to, never reset here. */
typedef struct mt_context_counts {
  int64_t ring_forward, ring_backward;       /* elements sent */
  int64_t ulysses_forward, ulysses_backward; /* elements sent, those that stay at home not counted */
  double compute_seconds, wait_seconds;      /* of attention: inside kernels, inside waits */
} mt_context_counts;

/** Tokens [begin, end) of the packed row, all of one segment; never empty. */
typedef struct mt_chunk {
  int32_t segment, begin, end;
} mt_chunk;

/** Every member's share of a packed row; the same on all of them but for `index`. */
typedef struct mt_context {
  int32_t ulysses, rings;       /* U, R */
  int32_t index;                /* this rank's place in the group */
  const int32_t *ranks;         /* [U * R] ranks by place, as `exchange` knows them */
  int32_t segments;             /* of the whole packed row */
  const int32_t *segment_begin; /* [segments + 1] in the whole packed row */
  const int32_t *chunk_begin;   /* [U * R + 1] member i holds chunks [chunk_begin[i], chunk_begin[i + 1]) */
  const mt_chunk *chunks;       /* every token once; a member's ascending */
  const mt_context_exchange *exchange;
  mt_context_counts *counts; /* or NULL */
} mt_context;

static inline int32_t mt_context_degree(const mt_context *context) { return context->ulysses * context->rings; }

/** Tokens that member @p index holds; may be 0. */
int32_t mt_context_tokens(const mt_context *context, int32_t index);

/**
 * Cuts a packed row zig-zag: each segment, padded to 2 d equal pieces, gives pieces i and 2 d - 1 - i to member i,
 * so that a causal mask costs every member the same. Padding has no tokens: short segments leave members without
 * any.
 * @p segment_begin and @p ranks are copied; everything is in @p arena. `exchange` and `counts` are the caller's to
 * set.
 */
motet_status mt_context_zigzag(mt_arena *arena, int32_t ulysses, int32_t rings, int32_t index, const int32_t *ranks,
                               int32_t segments, const int32_t *segment_begin, motet_error *error,
                               mt_context **context);

/** Whether U sets can share @p heads query heads and @p kv_heads key and value heads; the text says what could. */
motet_status mt_context_check_heads(int32_t ulysses, int32_t heads, int32_t kv_heads, motet_error *error);

/**
 * This rank's part of the packed row @p whole as a batch of its own, in @p arena: what @p whole has of ids, labels
 * and @p features feature rows is picked out (`features` of the share, in the order of @p whole), segment bounds
 * are local, tiles and pixels are left out, the loss weight stays.
 */
motet_status mt_context_share(const mt_context *context, const mt_batch *whole, int32_t features, mt_arena *arena,
                              motet_error *error, mt_batch *share);

/** Whether @p batch is what its context says that this member holds. */
motet_status mt_context_check(const mt_batch *batch, motet_error *error);

/** The packed row's tokens that member @p index holds, in its order, into @p tokens [mt_context_tokens()]. */
void mt_context_list(const mt_context *context, int32_t index, int32_t *tokens);

/**
 * Which of @p count image features member @p index holds, ascending, into @p held [at most count]; returns their
 * number. @p feature_rows [count] are rows of the whole packed row. In this order they enter its token embedding.
 */
int32_t mt_context_features(const mt_context *context, int32_t index, int32_t count, const int32_t *feature_rows,
                            int32_t *held);

#endif
