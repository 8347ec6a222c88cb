/** @file Byte-pair encoding of one word: pairs of tokens join in the order of their ranks. */
#ifndef MT_DATA_BPE_H
#define MT_DATA_BPE_H

#include "data/tokenizer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct mt_bpe_merge {
  int32_t left, right; /* ids; left < 0: an empty slot */
  int32_t rank;        /* lower joins first */
  int32_t merged;      /* id of the joined token */
} mt_bpe_merge;

/** Merges in an open-addressing table. Read-only once filled. */
typedef struct mt_bpe {
  int32_t byte_ids[256]; /* token of each single byte, or -1 */
  mt_bpe_merge *table;
  size_t mask; /* slots - 1; slots are a power of two, at least twice the merges */
} mt_bpe;

/** Working memory of one encoding; starts as zeros. */
typedef struct mt_bpe_scratch {
  MT_ARRAY(struct mt_bpe_symbol) symbols;
  MT_ARRAY(struct mt_bpe_candidate) heap;
} mt_bpe_scratch;

/** Makes room for @p merges; all bytes start without token. */
bool mt_bpe_create(mt_bpe *bpe, size_t merges);
void mt_bpe_free(mt_bpe *bpe);
void mt_bpe_scratch_free(mt_bpe_scratch *scratch);

/** Adds a merge; a later one of the same pair replaces the earlier. */
void mt_bpe_add(mt_bpe *bpe, mt_bpe_merge merge);

/** Starts a word of at most @p symbols; mt_bpe_push() gives its symbols from the left, mt_bpe_finish() joins them
 * and appends the tokens. False when memory is out. */
bool mt_bpe_start(mt_bpe_scratch *scratch, size_t symbols);
void mt_bpe_push(mt_bpe_scratch *scratch, int32_t id);
bool mt_bpe_finish(const mt_bpe *bpe, mt_bpe_scratch *scratch, mt_tokens *tokens);

/**
 * Appends the tokens of the word, whose symbols are its bytes. All pairs wait in a heap ordered by (rank, place); a
 * pair that changed since it was put there is skipped when it comes up, so that a word of n bytes takes O(n log n).
 * Returns false when memory is out or, with `*missing` set to it, when a byte has no token.
 */
bool mt_bpe_word(const mt_bpe *bpe, const unsigned char *word, size_t bytes, mt_bpe_scratch *scratch,
                 mt_tokens *tokens, int *missing);

#endif
