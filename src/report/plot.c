#include "report/plot.h"

#include "report/words.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LEAST_PLAIN 0.01

enum { LABEL_COLUMNS = 9, MOST_COLUMNS = 1000, MOST_LINES = 64, DIGITS = 4 };

/* The picture's raster of dots. */
typedef struct raster {
  int columns, lines;         /* of characters */
  int across, down;           /* dots in a character */
  unsigned char *dots;        /* [lines][columns] bits of dots */
  double low, high, from, to; /* ranges of y and x */
} raster;

/* The bit of a dot in its braille character (Unicode 2800 and up): [row][column]. */
static const unsigned char braille_bits[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};

static void set_dot(raster *r, int x, int y) {
  if (x < 0 || y < 0 || x >= r->columns * r->across || y >= r->lines * r->down) return;
  r->dots[(y / r->down) * r->columns + x / r->across] |= braille_bits[y % r->down][x % r->across];
}

static int place_x(const raster *r, double x) {
  double span = r->to - r->from;
  return span > 0 ? (int)floor((x - r->from) / span * (r->columns * r->across - 1) + 0.5) : 0;
}

static int place_y(const raster *r, double y) {
  double span = r->high / 2 - r->low / 2; /* halves: a difference of huge numbers is none */
  int last = r->lines * r->down - 1;
  return span > 0 ? (int)floor((r->high / 2 - y / 2) / span * last + 0.5) : last / 2;
}

/* From one point to the next, a dot in each column of dots and what joins it to the last one upright. */
static void draw_line(raster *r, int x0, int y0, int x1, int y1) {
  int before = y0;
  set_dot(r, x0, y0);
  for (int x = x0 + 1; x <= x1; x++) {
    int y = y0 + (int)lround((double)(y1 - y0) * (x - x0) / (x1 - x0));
    for (int at = before; at != y; at += y > at ? 1 : -1) set_dot(r, x, at);
    set_dot(r, x, y);
    before = y;
  }
  if (x0 == x1)
    for (int at = y0; at != y1; at += y1 > at ? 1 : -1) set_dot(r, x0, at);
  set_dot(r, x1, y1);
}

static bool find_ranges(const mt_plot *plot, raster *r) {
  bool any = false;
  for (int64_t i = 0; i < plot->count; i++) {
    double y = plot->y[i];
    if (!isfinite(y)) continue;
    r->low = !any || y < r->low ? y : r->low;
    r->high = !any || y > r->high ? y : r->high;
    r->from = any ? r->from : plot->x[i];
    r->to = plot->x[i];
    any = true;
  }
  return any;
}

static void put_dots(const raster *r, int line, bool unicode, mt_text *out) {
  int last = r->columns;
  const unsigned char *dots = r->dots + line * r->columns;
  while (last > 0 && dots[last - 1] == 0) last--;
  for (int column = 0; column < last; column++) {
    unsigned char bits = dots[column];
    if (!unicode) {
      mt_text_append(out, "%c", bits != 0 ? '*' : ' ');
    } else if (bits == 0) {
      mt_text_append(out, " ");
    } else { /* 0x2800 + bits in UTF-8 */
      char utf8[3] = {(char)0xe2, (char)(0xa0 | bits >> 6), (char)(0x80 | (bits & 0x3f))};
      mt_text_bytes(out, utf8, sizeof utf8);
    }
  }
}

void mt_plot_number(mt_text *text, double value) {
  if (fabs(value) < LEAST_PLAIN && value != 0)
    mt_text_append(text, "%.*g", DIGITS - 2, value);
  else
    mt_words_number(text, value, DIGITS);
}

static void put_label(double value, bool unicode, mt_text *out) {
  mt_text number = {0};
  mt_plot_number(&number, value);
  mt_text_append(out, "%*s %s", LABEL_COLUMNS - 2, number.data != NULL ? number.data : "", unicode ? "│" : "|");
  mt_text_free(&number);
}

static void put_title(const mt_plot *plot, mt_text *out) {
  mt_text last = {0}, title = {0};
  for (int64_t i = plot->count; i-- > 0;)
    if (isfinite(plot->y[i])) {
      mt_plot_number(&last, plot->y[i]);
      break;
    }
  mt_text_append(&title, "%s  %s", plot->title, last.data != NULL ? last.data : "not known");
  if (title.data != NULL) mt_text_append(out, "%.*s\n", plot->width, title.data);
  mt_text_free(&last);
  mt_text_free(&title);
}

void mt_plot_draw(const mt_plot *plot, mt_text *out) {
  raster r = {.columns = plot->width - LABEL_COLUMNS,
              .lines = plot->height - 1,
              .across = plot->unicode ? 2 : 1,
              .down = plot->unicode ? 4 : 1};
  if (r.columns < 1 || r.lines < 1 || r.columns > MOST_COLUMNS || r.lines > MOST_LINES) return;
  put_title(plot, out);
  r.dots = calloc((size_t)r.columns * (size_t)r.lines, 1);
  if (r.dots == NULL) {
    out->failed = true;
    return;
  }
  bool any = find_ranges(plot, &r), joined = false;
  int x = 0, y = 0;
  for (int64_t i = 0; any && i < plot->count; i++) {
    if (!isfinite(plot->y[i])) {
      joined = false;
      continue;
    }
    int next_x = place_x(&r, plot->x[i]), next_y = place_y(&r, plot->y[i]);
    draw_line(&r, joined ? x : next_x, joined ? y : next_y, next_x, next_y);
    x = next_x;
    y = next_y;
    joined = true;
  }
  for (int line = 0; line < r.lines; line++) {
    if (any && line == 0)
      put_label(r.high, plot->unicode, out);
    else if (any && line == r.lines - 1)
      put_label(r.low, plot->unicode, out);
    else
      mt_text_append(out, "%*s %s", LABEL_COLUMNS - 2, "", plot->unicode ? "│" : "|");
    put_dots(&r, line, plot->unicode, out);
    mt_text_append(out, "\n");
  }
  free(r.dots);
}
