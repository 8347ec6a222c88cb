#include "report/progress.h"

#include "report/plot.h"
#include "report/words.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
  PLOT_LINES = 9,       /* of a plot where there is room */
  LEAST_PLOT_LINES = 4, /* smaller ones say nothing */
  TWO_PLOTS_FROM = 90,  /* columns from which on plots stand in pairs */
  PLOT_GAP = 2,
  QUIET_STEPS = 5, /* a run that is quiet for longer than so many of its steps is told of */
  LAST_EVALUATIONS = 5
};

void mt_progress_duration(mt_text *text, double seconds) {
  if (!(seconds >= 0) || seconds > 1e12) {
    mt_text_append(text, "unknown time");
  } else if (seconds < 1) {
    mt_text_append(text, "%.0f ms", seconds * 1e3);
  } else if (seconds < 60) {
    mt_text_append(text, "%.0f s", seconds);
  } else {
    int64_t whole = (int64_t)(seconds + 0.5);
    if (whole < 3600)
      mt_text_append(text, "%" PRId64 " min %" PRId64 " s", whole / 60, whole % 60);
    else if (whole < 86400)
      mt_text_append(text, "%" PRId64 " h %" PRId64 " min", whole / 3600, whole / 60 % 60);
    else
      mt_text_append(text, "%" PRId64 " d %" PRId64 " h", whole / 86400, whole / 3600 % 24);
  }
}

/* A paragraph whose parts stand apart and are not broken. */
typedef struct paragraph {
  mt_text *out;
  int width, column;
} paragraph;

static void put_part(paragraph *p, const char *text) {
  int columns = mt_words_columns(text);
  if (p->column > 0 && p->column + 3 + columns > p->width) {
    mt_text_append(p->out, "\n");
    p->column = 0;
  }
  mt_text_append(p->out, "%s%s", p->column > 0 ? "   " : "", text);
  p->column += columns + (p->column > 0 ? 3 : 0);
}

static void end_paragraph(paragraph *p) {
  if (p->column > 0) mt_text_append(p->out, "\n");
  p->column = 0;
}

/* Text from outside, broken at the width: no byte of it may steer the terminal. */
static void put_foreign(const mt_progress *progress, const char *text, mt_text *out) {
  int column = 0;
  for (const unsigned char *c = (const unsigned char *)text; *c != '\0'; c++) {
    bool follows = (*c & 0xc0) == 0x80; /* the rest of a UTF-8 character */
    if (follows && !progress->unicode) continue;
    if (!follows && column == progress->width) {
      mt_text_append(out, "\n");
      column = 0;
    }
    if (*c == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0) { /* control characters of two bytes */
      mt_text_append(out, " ");
      c++;
    } else if (*c < 0x20 || *c == 0x7f) {
      mt_text_append(out, " ");
    } else if (*c >= 0x80 && !progress->unicode) {
      mt_text_append(out, "?");
    } else {
      mt_text_bytes(out, (const char *)c, 1);
    }
    column += !follows;
  }
  mt_text_append(out, "\n");
}

static const mt_history_step *last_step(const mt_history *history) {
  return history->steps.count > 0 ? &history->steps.data[history->steps.count - 1] : NULL;
}

static void put_state(const mt_progress *progress, mt_text *out) {
  const mt_history *history = progress->history;
  const mt_history_step *last = last_step(history);
  mt_text state = {0};
  put_foreign(progress, progress->name, out);
  if (progress->failure != NULL) put_foreign(progress, progress->failure, out);
  if (last == NULL) {
    if (progress->failure == NULL) mt_text_append(out, "waiting: this run has not finished a step yet\n");
    return;
  }
  paragraph p = {.out = out, .width = progress->width};
  mt_text_append(&state, "step %" PRId64, last->step);
  if (history->planned_steps > 0)
    mt_text_append(&state, " of %" PRId64 " (%.0f%%)", history->planned_steps,
                   floor(100.0 * (double)last->step / (double)history->planned_steps));
  put_part(&p, state.data != NULL ? state.data : "");
  mt_text_free(&state);
  double remaining = mt_history_remaining_seconds(history), pace = last->values[MT_HISTORY_STEP_SECONDS];
  if (mt_history_is_finished(history)) {
    put_part(&p, "finished");
  } else if (progress->failure == NULL) {
    if (isfinite(remaining)) {
      mt_progress_duration(&state, remaining);
      mt_text_append(&state, " left");
      put_part(&p, state.data != NULL ? state.data : "");
      mt_text_free(&state);
    }
    if (progress->quiet_seconds > 1 + QUIET_STEPS * (pace > 0 ? pace : 0)) {
      mt_text_append(&state, "quiet for ");
      mt_progress_duration(&state, progress->quiet_seconds);
      put_part(&p, state.data != NULL ? state.data : "");
      mt_text_free(&state);
    }
  }
  if (history->spoilt_lines > 0) {
    mt_text_append(&state, "lines that are no records: %" PRId64, history->spoilt_lines);
    put_part(&p, state.data != NULL ? state.data : "");
    mt_text_free(&state);
  }
  end_paragraph(&p);
}

static void put_number(paragraph *p, const char *name, double value, double times, const char *unit) {
  mt_text text = {0};
  if (!isfinite(value)) return;
  mt_text_append(&text, "%s ", name);
  mt_plot_number(&text, value * times);
  mt_text_append(&text, "%s", unit);
  if (text.data != NULL) put_part(p, text.data);
  mt_text_free(&text);
}

static void put_seconds(paragraph *p, const char *name, double seconds) {
  mt_words_unit unit = mt_words_time_unit(seconds);
  mt_text name_of_unit = {0};
  mt_text_append(&name_of_unit, " %s", unit.name);
  put_number(p, name, seconds, unit.per_second, name_of_unit.data != NULL ? name_of_unit.data : "");
  mt_text_free(&name_of_unit);
}

static void put_numbers(const mt_progress *progress, mt_text *out) {
  const mt_history_step *last = last_step(progress->history);
  const double *values = last->values;
  paragraph p = {.out = out, .width = progress->width};
  mt_text text = {0};
  put_number(&p, "loss", values[MT_HISTORY_LOSS], 1, "");
  put_number(&p, "learning rate", values[MT_HISTORY_LEARNING_RATE], 1, "");
  put_number(&p, "gradient norm", values[MT_HISTORY_GRADIENT_NORM], 1, "");
  put_number(&p, "tokens/s", mt_history_throughput(last), 1, "");
  put_seconds(&p, "step time", values[MT_HISTORY_STEP_SECONDS]);
  put_seconds(&p, "measured", values[MT_HISTORY_MAKESPAN_SECONDS]);
  put_seconds(&p, "simulated", values[MT_HISTORY_SIMULATED_SECONDS]);
  double apart = values[MT_HISTORY_MAKESPAN_SECONDS] / values[MT_HISTORY_SIMULATED_SECONDS] - 1;
  if (isfinite(apart)) {
    mt_text_append(&text, "measured against simulated %+.1f%%", 100 * apart);
    if (text.data != NULL) put_part(&p, text.data);
    mt_text_free(&text);
  }
  put_number(&p, "idle", values[MT_HISTORY_IDLE_SHARE], 100, "%");
  put_number(&p, "mfu", values[MT_HISTORY_MFU], 100, "%");
  if (values[MT_HISTORY_MEMORY_BYTES] >= 0 && values[MT_HISTORY_MEMORY_BYTES] < 1e18) {
    mt_text_append(&text, "memory ");
    mt_words_bytes(&text, (int64_t)values[MT_HISTORY_MEMORY_BYTES]);
    if (text.data != NULL) put_part(&p, text.data);
    mt_text_free(&text);
  }
  end_paragraph(&p);
}

static void put_evaluations(const mt_progress *progress, mt_text *out) {
  const mt_history *history = progress->history;
  size_t count = history->evaluations.count;
  paragraph p = {.out = out, .width = progress->width};
  if (count == 0) return;
  put_part(&p, "evaluation loss");
  for (size_t i = count > LAST_EVALUATIONS ? count - LAST_EVALUATIONS : 0; i < count; i++) {
    mt_text text = {0};
    mt_plot_number(&text, history->evaluations.data[i].loss);
    mt_text_append(&text, " (step %" PRId64 ")", history->evaluations.data[i].step);
    if (text.data != NULL) put_part(&p, text.data);
    mt_text_free(&text);
  }
  end_paragraph(&p);
}

typedef struct curve {
  const char *title;
  double *x, *y;
  int64_t count;
} curve;

enum { CURVE_LOSS, CURVE_THROUGHPUT, CURVE_EVALUATION, CURVE_SECONDS, CURVES };

static bool make_curves(const mt_history *history, curve *curves) {
  static const char *const titles[CURVES] = {"loss", "tokens/s", "evaluation loss", "step seconds"};
  size_t counts[CURVES] = {history->steps.count, history->steps.count, history->evaluations.count,
                           history->steps.count};
  bool good = true;
  for (int k = 0; k < CURVES; k++) {
    curves[k] = (curve){titles[k], calloc(counts[k] + 1, sizeof(double)), calloc(counts[k] + 1, sizeof(double)),
                        (int64_t)counts[k]};
    good = good && curves[k].x != NULL && curves[k].y != NULL;
  }
  for (int k = 0; good && k < CURVES; k++)
    for (size_t i = 0; i < counts[k]; i++) {
      const mt_history_step *step = k == CURVE_EVALUATION ? NULL : &history->steps.data[i];
      curves[k].x[i] = step != NULL ? (double)step->step : (double)history->evaluations.data[i].step;
      curves[k].y[i] = step == NULL            ? history->evaluations.data[i].loss
                       : k == CURVE_LOSS       ? step->values[MT_HISTORY_LOSS]
                       : k == CURVE_THROUGHPUT ? mt_history_throughput(step)
                                               : step->values[MT_HISTORY_STEP_SECONDS];
    }
  return good;
}

static void draw_curve(const mt_progress *progress, const curve *of, int width, int lines, mt_text *out) {
  mt_plot plot = {.title = of->title,
                  .x = of->x,
                  .y = of->y,
                  .count = of->count,
                  .width = width,
                  .height = lines,
                  .unicode = progress->unicode};
  mt_plot_draw(&plot, out);
}

/* Two pictures of as many lines, side by side. */
static void join(const mt_text *left, const mt_text *right, int columns, mt_text *out) {
  const char *a = left->data != NULL ? left->data : "", *b = right->data != NULL ? right->data : "";
  while (*a != '\0' || *b != '\0') {
    size_t from = out->length, a_length = strcspn(a, "\n"), b_length = strcspn(b, "\n");
    mt_text_bytes(out, a, a_length);
    mt_words_pad(out, from, columns);
    mt_text_bytes(out, b, b_length);
    mt_text_append(out, "\n");
    a += a_length + (a[a_length] == '\n');
    b += b_length + (b[b_length] == '\n');
  }
}

static int lines_of(const char *text) {
  int lines = 0;
  for (; text != NULL && *text != '\0'; text++) lines += *text == '\n';
  return lines;
}

/* As many plots as find room, in the order of their weight. */
static void put_plots(const mt_progress *progress, int room, mt_text *out) {
  curve curves[CURVES];
  bool pairs = progress->width >= TWO_PLOTS_FROM;
  int shown[CURVES], count = 0;
  bool good = make_curves(progress->history, curves);
  for (int k = 0; k < CURVES; k++)
    if (curves[k].count > 0) shown[count++] = k;
  int rows = pairs ? (count + 1) / 2 : count;
  if (progress->height > 0 && rows > room / LEAST_PLOT_LINES) rows = room / LEAST_PLOT_LINES;
  int lines = progress->height > 0 && rows > 0 ? room / rows : PLOT_LINES;
  if (lines > 2 * PLOT_LINES) lines = 2 * PLOT_LINES;
  int half = (progress->width - PLOT_GAP) / 2;
  for (int row = 0; good && row < rows; row++) {
    if (!pairs) {
      draw_curve(progress, &curves[shown[row]], progress->width, lines, out);
      continue;
    }
    mt_text left = {0}, right = {0};
    draw_curve(progress, &curves[shown[2 * row]], half, lines, &left);
    if (2 * row + 1 < count) draw_curve(progress, &curves[shown[2 * row + 1]], half, lines, &right);
    join(&left, &right, half + PLOT_GAP, out);
    out->failed = out->failed || left.failed || right.failed;
    mt_text_free(&left);
    mt_text_free(&right);
  }
  for (int k = 0; k < CURVES; k++) {
    free(curves[k].x);
    free(curves[k].y);
  }
  if (!good) out->failed = true;
}

void mt_progress_draw(const mt_progress *progress, mt_text *out) {
  size_t from = out->length;
  put_state(progress, out);
  if (progress->history->steps.count == 0) return;
  put_numbers(progress, out);
  put_evaluations(progress, out);
  int taken = lines_of(out->data != NULL ? out->data + from : NULL);
  int below = progress->timeline != NULL ? lines_of(progress->timeline) + 1 : 0;
  int room = progress->height - taken - below;
  bool fits = progress->height == 0 || room >= LEAST_PLOT_LINES; /* plots before the timeline */
  put_plots(progress, fits ? room : progress->height - taken, out);
  if (progress->timeline != NULL && fits)
    mt_text_append(out, "step %" PRId64 ", measured\n%s", progress->timeline_step, progress->timeline);
}
