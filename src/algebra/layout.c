#include "algebra/layout.h"

#include <stddef.h>

static int32_t loop(int32_t slab, int32_t ranks) { return slab % ranks; }

static int32_t fold(int32_t slab, int32_t ranks) {
  int32_t place = slab % ranks;
  return slab / ranks % 2 == 0 ? place : ranks - 1 - place;
}

/* NULL: the microbatch decides, not the slab. */
static int32_t (*const slab_maps[])(int32_t slab, int32_t ranks) = {
    [MT_SLAB_LOOP] = loop, [MT_SLAB_FOLD] = fold, [MT_SLAB_OWNER] = NULL};

mt_piece mt_layout_piece(const mt_layout *layout, const mt_layout_query *query, int32_t context_rank) {
  int64_t share_begin = query->tokens * context_rank / layout->context;
  int64_t share_end = query->tokens * (context_rank + 1) / layout->context;
  int32_t replica = query->microbatch % layout->data;
  int32_t base = layout->first_rank + replica * layout->pipeline * layout->context + context_rank;
  mt_piece piece = {.begin = query->begin > share_begin ? query->begin : share_begin,
                    .end = query->end < share_end ? query->end : share_end,
                    .first = base,
                    .stride = layout->context,
                    .count = layout->pipeline,
                    .owner = layout->owner};
  if (slab_maps[layout->map] != NULL) {
    piece.first = base + slab_maps[layout->map](query->slab, layout->pipeline) * layout->context;
    piece.count = 1;
  }
  if (piece.count == 1) piece.owner = -1;
  return piece;
}

int32_t mt_layout_period(const mt_layout *layout) { return layout->data; }

int32_t mt_layout_rank(const mt_layout *layout, int32_t slab) {
  if (slab_maps[layout->map] == NULL) return -1;
  return layout->first_rank + slab_maps[layout->map](slab, layout->pipeline) * layout->context;
}
