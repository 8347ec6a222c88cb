/** @file
 * Megatron-LM's pipeline layouts (its option --pipeline-model-parallel-layout), such as "Et*3|(tt|)*29,m|L":
 * the layers of every stage in forward order, with repetitions. See docs/megatron.md.
 */
#ifndef MT_ALGEBRA_MEGATRON_LAYOUT_H
#define MT_ALGEBRA_MEGATRON_LAYOUT_H

#include "base/arena.h"
#include "base/error.h"

#include <stdint.h>

/** Kinds of layer in forward order. */
typedef enum mt_megatron_kind {
  MT_MEGATRON_EMBEDDING, /* E */
  MT_MEGATRON_DECODER,   /* t */
  MT_MEGATRON_MTP,       /* m: multi-token prediction */
  MT_MEGATRON_LOSS,      /* L */
  MT_MEGATRON_KINDS
} mt_megatron_kind;

/** The letter of each kind, as a text: "E", "t", "m", "L". */
extern const char *const mt_megatron_letters[MT_MEGATRON_KINDS];

/** A layout. As kinds stand in forward order, the counts of kinds and stages say all. */
typedef struct mt_megatron_layout {
  int32_t stage_count;
  int32_t *split;                    /* [stage_count] layers of each stage, 0 or more */
  int32_t layers[MT_MEGATRON_KINDS]; /* number of layers of each kind; one E, one L */
  int32_t mtp_first, mtp_last;       /* stages that hold the first and the last m; -1: none */
} mt_megatron_layout;

/** Parses @p text. Errors name the column and what would be accepted there. Allocates from @p arena. */
motet_status mt_megatron_layout_parse(mt_arena *arena, const char *text, motet_error *error,
                                      mt_megatron_layout **layout);

/** Holds the layout against @p ranks pipeline ranks: stage s lies on rank s mod ranks. MOTET_ERROR_ILLEGAL, rule
 * "layout", for what Megatron-LM does not take. @p virtual_stages: chunks a rank. */
motet_status mt_megatron_layout_judge(const mt_megatron_layout *layout, int32_t ranks, motet_error *error,
                                      int32_t *virtual_stages);

#endif
