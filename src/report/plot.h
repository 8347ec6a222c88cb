/** @file A line of numbers as a picture for the terminal: braille dots, or ASCII stars. */
#ifndef MT_REPORT_PLOT_H
#define MT_REPORT_PLOT_H

#include "base/text.h"

#include <stdint.h>

typedef struct mt_plot {
  const char *title;
  const double *x, *y; /* [count], x rising; a y that is not finite leaves a hole */
  int64_t count;
  int width, height; /* columns and lines of the whole picture, its title's line included */
  bool unicode;      /* braille, 2 by 4 dots a character; else ASCII */
} mt_plot;

/**
 * Draws @p plot into @p out: a title with the last value, then `height - 1` lines with the largest and the smallest
 * value at their left. Each line is exactly `width` columns wide or shorter.
 */
void mt_plot_draw(const mt_plot *plot, mt_text *out);

/** A value as plots label it: four digits, small ones with an exponent. */
void mt_plot_number(mt_text *text, double value);

#endif
