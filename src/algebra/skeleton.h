/** @file
 * The table of skeletons and the table of their options. The parser, the printer, the layouts and the body
 * orders read these tables: a new skeleton is a new row, a new option is a new row.
 */
#ifndef MT_ALGEBRA_SKELETON_H
#define MT_ALGEBRA_SKELETON_H

#include "algebra/body.h"
#include "algebra/layout.h"
#include "algebra/schedule.h"
#include "base/text.h"

#include <stdbool.h>
#include <stddef.h>

/** How a region lies on the ranks. */
typedef enum mt_placement_kind {
  MT_PLACEMENT_SHARDED,    /* slabs of layers, one rank each */
  MT_PLACEMENT_REPLICATED, /* all layers everywhere, one owner a microbatch */
  MT_PLACEMENT_HOSTED      /* on a slab of the neighbouring Sharded region */
} mt_placement_kind;

typedef struct mt_skeleton_row {
  const char *name;
  mt_placement_kind placement;
  mt_layout (*layout)(const mt_skeleton *skeleton, int32_t ranks); /* NULL where hosted */
  mt_body_order *body;            /* Sharded, the order is fixed: of its events; else NULL */
  int32_t (*held)(int32_t ranks); /* Sharded, the order is searched for: the activations that a rank may hold, in
                                     whole ranks' shares; else NULL */
  bool split;                     /* the backward runs as input gradient and weight gradient apart */
} mt_skeleton_row;

/** An option: a number in [minimum, maximum], or one of `words`, whose index is the value. */
typedef struct mt_skeleton_option {
  uint32_t skeletons; /* bit k: of kind k */
  int32_t word_count;
  const char *name;
  const char *const *words; /* [word_count], NULL for a number */
  int32_t minimum, maximum;
  int32_t (*get)(const mt_skeleton *skeleton);
  void (*set)(mt_skeleton *skeleton, int32_t value);
  int32_t (*standard)(const mt_skeleton *skeleton); /* value where it is left out, given the options before it */
} mt_skeleton_option;

enum { MT_SKELETON_OPTIONS = 9 };

extern const mt_skeleton_row mt_skeleton_rows[MT_SKELETON_KINDS];
extern const mt_skeleton_option mt_skeleton_options[MT_SKELETON_OPTIONS];

static inline bool mt_skeleton_knows(const mt_skeleton_option *option, mt_skeleton_kind kind) {
  return (option->skeletons >> kind & 1) != 0;
}

static inline bool mt_skeleton_sharded(const mt_skeleton *skeleton) {
  return mt_skeleton_rows[skeleton->kind].placement == MT_PLACEMENT_SHARDED;
}

/** The kind as which it is written. */
static inline mt_skeleton_kind mt_skeleton_written(const mt_skeleton *skeleton) {
  return skeleton->ranks > 0 ? MT_SKELETON_DEDICATE : skeleton->kind;
}

/** Chunks a rank, before any option. */
int32_t mt_skeleton_chunks(mt_skeleton_kind kind);

/** A skeleton with every option at its default. */
mt_skeleton mt_skeleton_standard(mt_skeleton_kind kind);

/** The kind called `name[0 .. length)`, or -1. */
int mt_skeleton_find(const char *name, size_t length);

/** Appends "1f1b, gpipe, ..." */
void mt_skeleton_list(mt_text *text);

/** Appends "order=fill|prefix|ahead, window=n, ..." or "no option". */
void mt_skeleton_list_options(mt_text *text, mt_skeleton_kind kind);

void mt_skeleton_append(mt_text *text, const mt_skeleton *skeleton);

bool mt_skeleton_equal(const mt_skeleton *a, const mt_skeleton *b);

#endif
