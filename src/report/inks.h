/** @file How instructions and idle causes look: letters, fillers and colours, one table for every picture. */
#ifndef MT_REPORT_INKS_H
#define MT_REPORT_INKS_H

#include "sim/simulate.h"

/* Regions draw with a set of inks: sharded ones with the even sets, replicated ones with the odd. */
enum { MT_INK_SETS = 4 };

enum {
  MT_INK_FORWARD,
  MT_INK_BACKWARD,
  MT_INK_INPUT,
  MT_INK_WEIGHT,
  MT_INK_RECOMPUTE,
  MT_INK_KINDS,
  MT_INK_OPTIMIZER = MT_INK_SETS * MT_INK_KINDS, /* one ink for all regions */
  MT_INK_IDLE,                                   /* the first of the causes, MT_IDLE_CAUSES of them */
  MT_INK_IDLE_UNKNOWN = MT_INK_IDLE + MT_IDLE_CAUSES,
  MT_INKS
};

typedef struct mt_ink {
  char letter;                          /* of a block's first column; of every column of idle time */
  const char *mark;                     /* the letter where line-drawing characters are allowed */
  const char *filler;                   /* of further columns, ASCII */
  const char *unicode;                  /* the same, line drawing */
  uint8_t background[2], foreground[2]; /* 256-colour numbers, even and odd microbatches */
} mt_ink;

/** Fills sets[region_count]: regions of one name share a set. */
void mt_inks_assign(const motet_program *program, int32_t *sets);

/** The ink of a compute instruction, -1 for all others. */
int mt_inks_of(const motet_program *program, const int32_t *sets, const motet_instruction *instruction);

mt_ink mt_inks_look(int ink);

/** "forward", "input gradients", ... of a set's inks; a cause's words for idle inks. */
const char *mt_inks_name(int ink);

#endif
