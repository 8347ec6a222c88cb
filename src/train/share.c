#include "train/share.h"

int32_t mt_share_ulysses(const mt_internvl *config, int32_t most, int32_t degree) {
  int32_t best = 1;
  for (int32_t u = 2; u <= most && u <= degree; u++)
    if (degree % u == 0 &&
        mt_context_check_heads(u, config->decoder.heads, config->decoder.kv_heads, NULL) == MOTET_OK)
      best = u;
  return best;
}

/** First of the ascending @p rows that is not below @p token. */
static int32_t first_from(const int32_t *rows, int32_t count, int32_t token) {
  int32_t low = 0, high = count;
  while (low < high) {
    int32_t middle = low + (high - low) / 2;
    if (rows[middle] < token)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/** The range as a batch; its first feature's number in the microbatch. */
static motet_status make_range(mt_arena *arena, const mt_internvl *config, const mt_batch *whole,
                               const mt_share_query *query, motet_error *error, mt_batch *range,
                               int32_t *first_feature) {
  int32_t first = 0, last = whole->segments;
  while (first < last && whole->segment_begin[first] < query->begin) first++;
  while (last > first && whole->segment_begin[last] > query->end) last--;
  if (whole->segment_begin[first] != query->begin || whole->segment_begin[last] != query->end)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT, "tokens [%d, %d) are no whole segments of the microbatch",
                        (int)query->begin, (int)query->end);
  int32_t all = whole->tiles * config->tokens_per_tile;
  if (all > 0 && whole->feature_rows == NULL)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT,
                        "where a microbatch's image features stand must be known before it is shared");
  int32_t begin = first_from(whole->feature_rows, all, query->begin);
  int32_t features = first_from(whole->feature_rows, all, query->end) - begin;
  int32_t *bounds = MT_ARENA_NEW(arena, int32_t, last - first + 1);
  int32_t *rows = MT_ARENA_NEW(arena, int32_t, features);
  if (bounds == NULL || rows == NULL) return mt_error_memory(error, (unsigned)features * 4, "a token range");
  for (int32_t s = first; s <= last; s++) bounds[s - first] = whole->segment_begin[s] - query->begin;
  for (int32_t f = 0; f < features; f++) rows[f] = whole->feature_rows[begin + f] - query->begin;
  *range = (mt_batch){.tokens = query->end - query->begin,
                      .segments = last - first,
                      .segment_begin = bounds,
                      .token_ids = whole->token_ids != NULL ? whole->token_ids + query->begin : NULL,
                      .labels = whole->labels != NULL ? whole->labels + query->begin : NULL,
                      .feature_rows = rows,
                      .features = features,
                      .loss_weight = whole->loss_weight};
  *first_feature = begin;
  return MOTET_OK;
}

static void find_tiles(const mt_internvl *config, mt_share *share) {
  for (int32_t f = 0; f < share->features; f++) {
    int32_t tile = share->feature[f] / config->tokens_per_tile;
    if (share->tiles == 0 || share->tile[share->tiles - 1] != tile) share->tile[share->tiles++] = tile;
  }
}

motet_status mt_share_make(mt_arena *arena, const mt_internvl *config, const mt_batch *whole,
                           const mt_share_query *query, motet_error *error, mt_share *share) {
  int32_t first_feature = 0, ulysses = mt_share_ulysses(config, query->ulysses, query->degree);
  *share = (mt_share){0};
  motet_status status = make_range(arena, config, whole, query, error, &share->range, &first_feature);
  if (status == MOTET_OK)
    status = mt_context_zigzag(arena, ulysses, query->degree / ulysses, query->member, query->ranks,
                               share->range.segments, share->range.segment_begin, error, &share->context);
  if (status != MOTET_OK) return status;
  share->feature = MT_ARENA_NEW(arena, int32_t, share->range.features);
  share->tile = MT_ARENA_NEW(arena, int32_t, share->range.features);
  if (share->feature == NULL || share->tile == NULL)
    return mt_error_memory(error, (unsigned)share->range.features * 4, "a share's image features");
  share->features = mt_context_features(share->context, query->member, share->range.features,
                                        share->range.feature_rows, share->feature);
  for (int32_t f = 0; f < share->features; f++) share->feature[f] += first_feature;
  find_tiles(config, share);
  return mt_context_share(share->context, &share->range, share->range.features, arena, error, &share->batch);
}
