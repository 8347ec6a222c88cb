#include "algebra/seam.h"

/* An owner that is not chosen yet may be any rank of its piece. Two pieces surely name the same rank when each
 * has one rank and it is the same, or when one rule chooses for the same microbatch among the same ranks. */
static bool same_rank(const mt_piece *a, const mt_piece *b) {
  return a->first == b->first && a->count == b->count && a->owner == b->owner &&
         (a->count == 1 || a->stride == b->stride);
}

int32_t mt_seam_join(mt_seam_side from, mt_seam_side to, int32_t microbatch, int64_t tokens, mt_seam_row *rows,
                     int32_t capacity) {
  int32_t count = 0, left = 0, right = 0;
  while (left < from.layout->context && right < to.layout->context) {
    mt_layout_query from_query = {from.slab, microbatch, tokens, 0, tokens};
    mt_layout_query to_query = {to.slab, microbatch, tokens, 0, tokens};
    mt_seam_row row = {.from = mt_layout_piece(from.layout, &from_query, left),
                       .to = mt_layout_piece(to.layout, &to_query, right)};
    int64_t left_end = row.from.end, right_end = row.to.end;
    int64_t begin = row.from.begin > row.to.begin ? row.from.begin : row.to.begin;
    int64_t end = left_end < right_end ? left_end : right_end;
    if (begin < end) {
      row.from.begin = row.to.begin = begin;
      row.from.end = row.to.end = end;
      row.local = same_rank(&row.from, &row.to);
      if (count < capacity) rows[count] = row;
      count++;
    }
    /* The side whose piece ends first goes on; both where they end together. */
    if (left_end <= right_end) left++;
    if (right_end <= left_end) right++;
  }
  return count;
}

/* How many ranks a side uses, as far as the name of a pattern asks: none, one, several. */
typedef struct rank_count {
  int32_t rank;
  int used;
} rank_count;

static void count_piece(rank_count *ranks, const mt_piece *piece) {
  if (piece->count > 1 || (ranks->used > 0 && ranks->rank != piece->first)) {
    ranks->used = 2;
    return;
  }
  ranks->rank = piece->first;
  if (ranks->used == 0) ranks->used = 1;
}

mt_pattern mt_seam_pattern(mt_seam_side from, mt_seam_side to, int32_t microbatches) {
  /* [several sources][several targets] */
  static const mt_pattern names[2][2] = {{MT_PATTERN_SEND, MT_PATTERN_SCATTER},
                                         {MT_PATTERN_GATHER, MT_PATTERN_ALL_TO_ALL}};
  /* As many tokens as make every context share of both sides whole. */
  int64_t tokens = (int64_t)from.layout->context * to.layout->context;
  int64_t period = (int64_t)mt_layout_period(from.layout) * mt_layout_period(to.layout);
  if (period > microbatches) period = microbatches;
  rank_count sources = {0, 0}, targets = {0, 0};
  bool local = true;
  enum { ROWS = 64 };
  mt_seam_row rows[ROWS];
  for (int32_t m = 0; m < period; m++) {
    int32_t count = mt_seam_join(from, to, m, tokens, rows, ROWS);
    if (count > ROWS) count = ROWS; /* 64 rows of one microbatch show every name */
    for (int32_t i = 0; i < count; i++) {
      count_piece(&sources, &rows[i].from);
      count_piece(&targets, &rows[i].to);
      local = local && rows[i].local;
    }
  }
  if (local) return MT_PATTERN_IDENTITY;
  return names[sources.used > 1][targets.used > 1];
}
