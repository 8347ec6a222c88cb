#include "data/bpe.h"

#include <stdlib.h>

/* A token in the word's list; `id` is -1 once it was joined to its left neighbour. */
struct mt_bpe_symbol {
  int32_t id, previous, next; /* places, -1 at the ends */
};

/* Joining the symbols at `place` and behind it, as seen when it was pushed. */
struct mt_bpe_candidate {
  int32_t rank, place, merged;
};

typedef struct mt_bpe_symbol symbol;
typedef struct mt_bpe_candidate candidate;

bool mt_bpe_create(mt_bpe *bpe, size_t merges) {
  size_t slots = 16;
  while (slots / 2 < merges) slots *= 2;
  for (int i = 0; i < 256; i++) bpe->byte_ids[i] = -1;
  bpe->mask = slots - 1;
  bpe->table = malloc(slots * sizeof *bpe->table);
  if (bpe->table == NULL) return false;
  for (size_t i = 0; i < slots; i++) bpe->table[i].left = -1;
  return true;
}

void mt_bpe_free(mt_bpe *bpe) {
  free(bpe->table);
  bpe->table = NULL;
}

void mt_bpe_scratch_free(mt_bpe_scratch *scratch) {
  free(scratch->symbols.data);
  free(scratch->heap.data);
  *scratch = (mt_bpe_scratch){0};
}

/* The slot of the pair, or the empty one where it would go. */
static mt_bpe_merge *slot_of(const mt_bpe *bpe, int32_t left, int32_t right) {
  uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
  key = (key ^ key >> 32) * 0x9e3779b97f4a7c15u;
  size_t place = (size_t)(key >> 20) & bpe->mask;
  for (;;) {
    mt_bpe_merge *slot = &bpe->table[place];
    if (slot->left < 0 || (slot->left == left && slot->right == right)) return slot;
    place = (place + 1) & bpe->mask;
  }
}

void mt_bpe_add(mt_bpe *bpe, mt_bpe_merge merge) { *slot_of(bpe, merge.left, merge.right) = merge; }

static bool before(const candidate *a, const candidate *b) {
  return a->rank != b->rank ? a->rank < b->rank : a->place < b->place;
}

static void sift_up(candidate *heap, size_t place) {
  candidate moved = heap[place];
  while (place > 0 && before(&moved, &heap[(place - 1) / 2])) {
    heap[place] = heap[(place - 1) / 2];
    place = (place - 1) / 2;
  }
  heap[place] = moved;
}

static candidate take_first(candidate *heap, size_t *count) {
  candidate first = heap[0], moved = heap[--*count];
  size_t place = 0;
  for (;;) {
    size_t child = 2 * place + 1;
    if (child >= *count) break;
    if (child + 1 < *count && before(&heap[child + 1], &heap[child])) child++;
    if (!before(&heap[child], &moved)) break;
    heap[place] = heap[child];
    place = child;
  }
  heap[place] = moved;
  return first;
}

/* Pushes the pair that starts at `place`, if there is one that joins. */
static bool push_pair(const mt_bpe *bpe, mt_bpe_scratch *scratch, int32_t place) {
  if (place < 0) return true;
  const symbol *symbols = scratch->symbols.data;
  int32_t next = symbols[place].next;
  if (next < 0) return true;
  const mt_bpe_merge *merge = slot_of(bpe, symbols[place].id, symbols[next].id);
  if (merge->left < 0) return true;
  if (!MT_ARRAY_PUSH(&scratch->heap, (candidate){merge->rank, place, merge->merged})) return false;
  sift_up(scratch->heap.data, scratch->heap.count - 1);
  return true;
}

static bool join_all(const mt_bpe *bpe, mt_bpe_scratch *scratch) {
  symbol *symbols = scratch->symbols.data;
  while (scratch->heap.count > 0) {
    candidate top = take_first(scratch->heap.data, &scratch->heap.count);
    symbol *left = &symbols[top.place];
    if (left->id < 0 || left->next < 0) continue;
    const mt_bpe_merge *merge = slot_of(bpe, left->id, symbols[left->next].id);
    if (merge->left < 0 || merge->merged != top.merged) continue;
    symbol *right = &symbols[left->next];
    left->id = top.merged;
    left->next = right->next;
    right->id = -1;
    if (left->next >= 0) symbols[left->next].previous = top.place;
    if (!push_pair(bpe, scratch, left->previous) || !push_pair(bpe, scratch, top.place)) return false;
  }
  return true;
}

bool mt_bpe_start(mt_bpe_scratch *scratch, size_t symbols) {
  scratch->symbols.count = scratch->heap.count = 0;
  return mt_array_reserve((void **)&scratch->symbols.data, &scratch->symbols.capacity, symbols, sizeof(symbol));
}

void mt_bpe_push(mt_bpe_scratch *scratch, int32_t id) {
  int32_t place = (int32_t)scratch->symbols.count++;
  scratch->symbols.data[place] = (symbol){id, place - 1, -1};
  if (place > 0) scratch->symbols.data[place - 1].next = place;
}

bool mt_bpe_finish(const mt_bpe *bpe, mt_bpe_scratch *scratch, mt_tokens *tokens) {
  int32_t count = (int32_t)scratch->symbols.count;
  for (int32_t i = 0; i + 1 < count; i++)
    if (!push_pair(bpe, scratch, i)) return false;
  if (!join_all(bpe, scratch)) return false;
  for (int32_t place = count > 0 ? 0 : -1; place >= 0; place = scratch->symbols.data[place].next)
    if (!MT_ARRAY_PUSH(tokens, scratch->symbols.data[place].id)) return false;
  return true;
}

bool mt_bpe_word(const mt_bpe *bpe, const unsigned char *word, size_t bytes, mt_bpe_scratch *scratch,
                 mt_tokens *tokens, int *missing) {
  *missing = -1;
  if (!mt_bpe_start(scratch, bytes)) return false;
  for (size_t i = 0; i < bytes; i++) {
    int32_t id = bpe->byte_ids[word[i]];
    if (id < 0) {
      *missing = word[i];
      return false;
    }
    mt_bpe_push(scratch, id);
  }
  return mt_bpe_finish(bpe, scratch, tokens);
}
