/** @file
 * Published training steps as jobs for a cluster (bench/data/published.txt) and their forecasts, made as `motet
 * plan` makes them.
 */
#ifndef BENCH_PUBLISHED_ROWS_H
#define BENCH_PUBLISHED_ROWS_H

#include <stdio.h>

enum { PUBLISHED_ROWS_MAX = 128 };

typedef struct published_row {
  char kind[24], run[96], source[24];
  double published, forecast; /* seconds of a step */
  double memory_bytes;        /* forecast, of the fullest device */
} published_row;

/** Reads @p path and forecasts its rows, from the folder that the jobs' paths are seen from. Returns how many; ends
 * the program with a message where a row cannot be read or planned. */
int published_rows_read(const char *path, published_row rows[PUBLISHED_ROWS_MAX]);

/** The table, and errors by kind. Returns the mean error of all rows. */
double published_rows_print(const published_row *rows, int count);

#endif
