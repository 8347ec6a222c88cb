/* Who holds which tokens of a packed row. */
#include "nn/context.h"

#include <stdio.h>
#include <string.h>

int32_t mt_context_tokens(const mt_context *context, int32_t index) {
  int32_t tokens = 0;
  for (int32_t c = context->chunk_begin[index]; c < context->chunk_begin[index + 1]; c++)
    tokens += context->chunks[c].end - context->chunks[c].begin;
  return tokens;
}

void mt_context_list(const mt_context *context, int32_t index, int32_t *tokens) {
  for (int32_t c = context->chunk_begin[index]; c < context->chunk_begin[index + 1]; c++)
    for (int32_t t = context->chunks[c].begin; t < context->chunks[c].end; t++) *tokens++ = t;
}

static motet_status check_cut(int32_t ulysses, int32_t rings, int32_t index, int32_t segments,
                              const int32_t *segment_begin, motet_error *error) {
  if (ulysses < 1 || rings < 1 || rings > INT32_MAX / 4 / ulysses)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT,
                        "a group of %d x %d ranks (Ulysses x ring): both must be 1 or more", ulysses, rings);
  if (index < 0 || index >= ulysses * rings)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT, "member %d is none of a group's %d", index, ulysses * rings);
  if (segments < 1 || segment_begin[0] != 0)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT,
                        "a packed row has one segment or more, the first from token 0");
  for (int32_t s = 0; s < segments; s++)
    if (segment_begin[s] > segment_begin[s + 1])
      return mt_error_set(error, MOTET_ERROR_ARGUMENT, "segment %d ends before it begins", s);
  return MOTET_OK;
}

/* Adds piece @p piece of a segment unless it has no tokens. */
static void add_piece(const int32_t *segment_begin, int32_t segment, int32_t pieces, int32_t piece,
                      mt_chunk *chunks, int32_t *count) {
  const int64_t first = segment_begin[segment], end = segment_begin[segment + 1];
  const int64_t size = (end - first + pieces - 1) / pieces, begin = first + piece * size;
  if (begin >= end) return;
  mt_chunk *last = *count > 0 ? &chunks[*count - 1] : NULL;
  const int64_t stop = begin + size < end ? begin + size : end;
  chunks[(*count)++] = (mt_chunk){segment, (int32_t)begin, (int32_t)stop};
  /* The middle member's two pieces are neighbours: one chunk. */
  if (last != NULL && last->segment == segment && last->end == begin) {
    last->end = (int32_t)stop;
    (*count)--;
  }
}

motet_status mt_context_zigzag(mt_arena *arena, int32_t ulysses, int32_t rings, int32_t index, const int32_t *ranks,
                               int32_t segments, const int32_t *segment_begin, motet_error *error,
                               mt_context **context) {
  motet_status status = check_cut(ulysses, rings, index, segments, segment_begin, error);
  if (status != MOTET_OK) return status;
  const int32_t degree = ulysses * rings;
  const size_t most = 2 * (size_t)degree * (size_t)segments;
  mt_context *made = MT_ARENA_NEW(arena, mt_context, 1);
  int32_t *members = MT_ARENA_NEW(arena, int32_t, degree), *bounds = MT_ARENA_NEW(arena, int32_t, segments + 1);
  int32_t *chunk_begin = MT_ARENA_NEW(arena, int32_t, degree + 1);
  mt_chunk *chunks = most < INT32_MAX ? MT_ARENA_NEW(arena, mt_chunk, most) : NULL;
  if (made == NULL || members == NULL || bounds == NULL || chunk_begin == NULL || chunks == NULL)
    return mt_error_memory(error, most * sizeof *chunks, "the shares of a packed row");
  memcpy(members, ranks, (size_t)degree * sizeof *members);
  memcpy(bounds, segment_begin, ((size_t)segments + 1) * sizeof *bounds);
  int32_t count = 0;
  for (int32_t i = 0; i < degree; i++) {
    for (int32_t s = 0; s < segments; s++) {
      const int32_t own = chunk_begin[i];
      int32_t held = count - own;
      add_piece(bounds, s, 2 * degree, i, chunks + own, &held);
      add_piece(bounds, s, 2 * degree, 2 * degree - 1 - i, chunks + own, &held);
      count = own + held;
    }
    chunk_begin[i + 1] = count;
  }
  *made = (mt_context){.ulysses = ulysses,
                       .rings = rings,
                       .index = index,
                       .ranks = members,
                       .segments = segments,
                       .segment_begin = bounds,
                       .chunk_begin = chunk_begin,
                       .chunks = chunks};
  *context = made;
  return MOTET_OK;
}

motet_status mt_context_check_heads(int32_t ulysses, int32_t heads, int32_t kv_heads, motet_error *error) {
  if (heads % ulysses == 0 && (kv_heads % ulysses == 0 || ulysses % kv_heads == 0)) return MOTET_OK;
  char legal[120] = "";
  size_t used = 0;
  for (int32_t u = 1; u <= heads && used + 16 < sizeof legal; u++)
    if (heads % u == 0 && (kv_heads % u == 0 || u % kv_heads == 0))
      used += (size_t)snprintf(legal + used, sizeof legal - used, used > 0 ? ", %d" : "%d", u);
  return mt_error_set(error, MOTET_ERROR_ILLEGAL,
                      "%d ranks cannot share %d heads with %d key and value heads (Ulysses): of such heads %s can; "
                      "the others belong in the ring",
                      ulysses, heads, kv_heads, legal);
}

/* A member's row of a token of the whole packed row, or -1. */
static int32_t row_of(const mt_context *context, int32_t index, int32_t token) {
  int32_t before = 0;
  for (int32_t c = context->chunk_begin[index]; c < context->chunk_begin[index + 1]; c++) {
    const mt_chunk *chunk = &context->chunks[c];
    if (token >= chunk->begin && token < chunk->end) return before + token - chunk->begin;
    before += chunk->end - chunk->begin;
  }
  return -1;
}

int32_t mt_context_features(const mt_context *context, int32_t index, int32_t count, const int32_t *feature_rows,
                            int32_t *held) {
  int32_t found = 0;
  for (int32_t f = 0; f < count; f++)
    if (row_of(context, index, feature_rows[f]) >= 0) held[found++] = f;
  return found;
}

/* values[token] of the own tokens; NULL stays so. */
static motet_status pick(const int32_t *values, const int32_t *tokens, int32_t count, mt_arena *arena,
                         motet_error *error, const int32_t **picked) {
  *picked = NULL;
  if (values == NULL) return MOTET_OK;
  int32_t *own = MT_ARENA_NEW(arena, int32_t, count);
  if (own == NULL) return mt_error_memory(error, (size_t)count * sizeof *own, "a share of a packed row");
  for (int32_t t = 0; t < count; t++) own[t] = values[tokens[t]];
  *picked = own;
  return MOTET_OK;
}

/* Own rows of the features among the own tokens, in the order of the whole's. */
static motet_status pick_features(const mt_context *context, const mt_batch *whole, int32_t count, mt_arena *arena,
                                  motet_error *error, mt_batch *share) {
  int32_t *rows = MT_ARENA_NEW(arena, int32_t, count);
  if (rows == NULL) return mt_error_memory(error, (size_t)count * sizeof *rows, "a share's image features");
  for (int32_t f = 0; f < count; f++) {
    const int32_t token = whole->feature_rows[f];
    if (token < 0 || token >= whole->tokens)
      return mt_error_set(error, MOTET_ERROR_ARGUMENT,
                          "image feature %d belongs to row %d, which is outside of a sequence of %d tokens", f,
                          token, whole->tokens);
    const int32_t row = row_of(context, context->index, token);
    if (row >= 0) rows[share->features++] = row;
  }
  share->feature_rows = rows;
  return MOTET_OK;
}

motet_status mt_context_share(const mt_context *context, const mt_batch *whole, int32_t features, mt_arena *arena,
                              motet_error *error, mt_batch *share) {
  if (whole->segments != context->segments ||
      memcmp(whole->segment_begin, context->segment_begin,
             ((size_t)context->segments + 1) * sizeof *whole->segment_begin) != 0)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT, "a share of another packed row, of %d segments instead of %d",
                        context->segments, whole->segments);
  const int32_t count = mt_context_tokens(context, context->index);
  int32_t *bounds = MT_ARENA_NEW(arena, int32_t, context->segments + 1),
          *tokens = MT_ARENA_NEW(arena, int32_t, count);
  if (bounds == NULL || tokens == NULL)
    return mt_error_memory(error, (size_t)count * sizeof *tokens, "a share of a packed row");
  mt_context_list(context, context->index, tokens);
  for (int32_t c = context->chunk_begin[context->index]; c < context->chunk_begin[context->index + 1]; c++)
    bounds[context->chunks[c].segment + 1] += context->chunks[c].end - context->chunks[c].begin;
  for (int32_t s = 0; s < context->segments; s++) bounds[s + 1] += bounds[s];
  *share = (mt_batch){.tokens = count,
                      .segments = context->segments,
                      .segment_begin = bounds,
                      .context = context,
                      .loss_weight = whole->loss_weight};
  motet_status status = pick(whole->token_ids, tokens, count, arena, error, &share->token_ids);
  if (status == MOTET_OK) status = pick(whole->labels, tokens, count, arena, error, &share->labels);
  if (status == MOTET_OK && whole->feature_rows != NULL)
    status = pick_features(context, whole, features, arena, error, share);
  return status;
}

motet_status mt_context_check(const mt_batch *batch, motet_error *error) {
  const mt_context *context = batch->context;
  const int32_t tokens = mt_context_tokens(context, context->index);
  if (batch->tokens != tokens || batch->segments != context->segments)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT,
                        "the batch has %d tokens of %d segments, but this member's share is %d tokens of %d",
                        batch->tokens, batch->segments, tokens, context->segments);
  if (context->exchange == NULL && mt_context_degree(context) > 1)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT, "a group of %d ranks has no way to exchange messages",
                        mt_context_degree(context));
  if (batch->features < 0 || batch->tiles != 0)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT,
                        "a share of a packed row has image features and no tiles: its owner encodes them");
  return MOTET_OK;
}
