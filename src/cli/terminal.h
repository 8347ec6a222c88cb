/** @file What standard output can show. */
#ifndef MT_CLI_TERMINAL_H
#define MT_CLI_TERMINAL_H

#include <stdbool.h>

typedef struct mt_terminal {
  int width;    /* columns; 100 where standard output is no terminal and COLUMNS does not say */
  bool color;   /* a terminal, and NO_COLOR is not set */
  bool unicode; /* the locale's encoding is UTF-8 */
} mt_terminal;

mt_terminal mt_terminal_find(void);

/** Lines of the terminal as it is now; 24 where it does not say. */
int mt_terminal_height(void);

#endif
