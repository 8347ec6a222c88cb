#include "report/timeline.h"
#include "report/inks.h"
#include "report/words.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SHARE_COLUMNS = 6, DEFAULT_WIDTH = 80, LEAST_WIDTH = 40, DEFAULT_RANKS = 32, TICK_COLUMNS = 10 };

/* How much of a column an ink fills, and the longest piece of it. */
typedef struct stain {
  double seconds, longest;
  int64_t owner; /* instruction of the longest piece */
} stain;

typedef struct picture {
  const motet_program *program;
  const double *start, *finish;
  const uint8_t *idle_cause;
  mt_timeline_options options;
  int32_t *sets;
  double makespan;
  int label, columns; /* of the rank's name and of the bar */
  stain *stains;      /* [columns x MT_INKS] of the rank being drawn */
  bool used[MT_INKS];
  mt_text *out;
} picture;

static void put_seconds(picture *p, double from, double to, int ink, int64_t owner) {
  double scale = p->columns / p->makespan;
  int first = (int)(from * scale), last = (int)ceil(to * scale);
  if (first < 0) first = 0;
  if (last > p->columns) last = p->columns;
  for (int column = first; column < last; column++) {
    double begin = column / scale, end = (column + 1) / scale;
    double piece = (to < end ? to : end) - (from > begin ? from : begin);
    if (!(piece > 0)) continue;
    stain *here = &p->stains[column * MT_INKS + ink];
    here->seconds += piece;
    if (piece > here->longest) {
      here->longest = piece;
      here->owner = owner;
    }
  }
}

static int idle_ink(const picture *p, int64_t place) {
  return p->idle_cause != NULL && p->idle_cause[place] < MT_IDLE_CAUSES ? MT_INK_IDLE + p->idle_cause[place]
                                                                        : MT_INK_IDLE_UNKNOWN;
}

/* Fills the stains of one rank; its busy seconds. */
static double fill_rank(picture *p, int32_t rank) {
  memset(p->stains, 0, (size_t)(p->columns * MT_INKS) * sizeof *p->stains);
  double now = 0.0, busy = 0.0;
  for (int64_t i = p->program->rank_begin[rank]; i < p->program->rank_begin[rank + 1]; i++) {
    int ink = mt_inks_of(p->program, p->sets, &p->program->instructions[i]);
    if (p->start[i] > now) put_seconds(p, now, p->start[i], idle_ink(p, i), i);
    if (ink >= 0) busy += p->finish[i] - p->start[i];
    put_seconds(p, p->start[i], p->finish[i], ink >= 0 ? ink : idle_ink(p, i), i);
    if (p->finish[i] > now) now = p->finish[i];
  }
  if (now < p->makespan)
    put_seconds(p, now, p->makespan, p->idle_cause != NULL ? MT_INK_IDLE + MT_IDLE_COOL_DOWN : MT_INK_IDLE_UNKNOWN,
                p->program->rank_begin[rank + 1]);
  return busy;
}

static int column_ink(const picture *p, int column) {
  const stain *stains = &p->stains[column * MT_INKS];
  int most = MT_INK_IDLE_UNKNOWN;
  for (int ink = 0; ink < MT_INKS; ink++)
    if (stains[ink].seconds > stains[most].seconds) most = ink;
  return most;
}

/* One block: `width` columns of one instruction, or of one kind of idle time. */
static void draw_block(picture *p, int ink, int32_t microbatch, int width) {
  mt_ink look = mt_inks_look(ink);
  bool idle = ink >= MT_INK_IDLE;
  char label[16] = "";
  if (p->options.digits && !idle && microbatch >= 0) snprintf(label, sizeof label, "%d", microbatch);
  int length = (int)strlen(label);
  if (length > (p->options.color ? width : width - 1)) length = 0; /* a part of a number would be a wrong one */
  label[length] = '\0';
  int parity = microbatch > 0 ? microbatch % 2 : 0;
  if (p->options.color) {
    if (idle)
      mt_text_append(p->out, "\x1b[38;5;%dm", look.foreground[0]);
    else
      mt_text_append(p->out, "\x1b[48;5;%d;38;5;%dm", look.background[parity], look.foreground[parity]);
  }
  if (p->options.color && !idle) {
    int left = (width - length) / 2;
    mt_text_append(p->out, "%*s%s%*s", left, "", label, width - length - left, "");
  } else {
    mt_text_append(p->out, "%s%s", p->options.unicode ? look.mark : (char[2]){look.letter, '\0'}, label);
    for (int i = 1 + length; i < width; i++)
      mt_text_append(p->out, "%s", p->options.unicode ? look.unicode : look.filler);
  }
  if (p->options.color) mt_text_append(p->out, "\x1b[0m");
  p->used[ink] = true;
}

static void draw_bar(picture *p, int32_t rank) {
  int64_t end = p->program->rank_begin[rank + 1];
  int32_t local = p->program->replicas > 0 ? p->program->microbatch_count / p->program->replicas : 0;
  for (int column = 0; column < p->columns;) {
    int ink = column_ink(p, column), width = 1;
    int64_t owner = p->stains[column * MT_INKS + ink].owner;
    while (column + width < p->columns && column_ink(p, column + width) == ink &&
           (ink >= MT_INK_IDLE || p->stains[(column + width) * MT_INKS + ink].owner == owner))
      width++;
    int32_t microbatch = owner < end ? p->program->instructions[owner].microbatch : -1;
    draw_block(p, ink, microbatch >= 0 && local > 0 ? microbatch % local : microbatch, width);
    column += width;
  }
}

static void draw_rank(picture *p, int32_t rank) {
  size_t from = p->out->length;
  double busy = fill_rank(p, rank);
  mt_text_append(p->out, "rank %d", rank);
  mt_words_pad(p->out, from, p->label);
  draw_bar(p, rank);
  mt_text_append(p->out, "%5.1f%%\n", 100.0 * busy / p->makespan);
}

/* A round step (1, 2 or 5 times a power of ten) that leaves a tick about TICK_COLUMNS columns or more. */
static double tick_step(double makespan, int columns) {
  double least = makespan * TICK_COLUMNS / columns, power = pow(10.0, floor(log10(least)));
  static const double steps[] = {1, 2, 5, 10};
  for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
    if (steps[i] * power >= least * (1 - 1e-9)) return steps[i] * power;
  return 10 * power;
}

static void draw_axis(picture *p) {
  mt_words_unit unit = mt_words_time_unit(p->makespan);
  double makespan = p->makespan * unit.per_second, step = tick_step(makespan, p->columns);
  size_t from = p->out->length;
  mt_text_append(p->out, "%s", unit.name);
  mt_words_pad(p->out, from, p->label);
  from = p->out->length;
  int ticks[256], count = 0;
  for (double value = 0; count < 256 && value < makespan * (1 + 1e-9); value = step * count) {
    int column = (int)(value / makespan * p->columns + 0.5);
    mt_text number = {0};
    mt_words_number(&number, value, 6);
    int there = p->out->data != NULL ? (int)(p->out->length - from) : 0;
    if (number.data == NULL || column + (int)number.length > p->columns || (count > 0 && column <= there)) {
      mt_text_free(&number);
      break;
    }
    mt_words_pad(p->out, from, column);
    mt_text_append(p->out, "%s", number.data);
    mt_text_free(&number);
    ticks[count++] = column;
  }
  mt_words_pad(p->out, from, p->columns);
  mt_text_append(p->out, "  busy\n");
  from = p->out->length;
  mt_words_pad(p->out, from, p->label);
  for (int column = 0, tick = 0; column < p->columns; column++) {
    bool here = tick < count && ticks[tick] == column;
    tick += here;
    mt_text_append(p->out, "%s", p->options.unicode ? here ? "┬" : "─" : here ? "+" : "-");
  }
  mt_text_append(p->out, "\n");
}

static const char *set_name(const picture *p, int set) {
  for (int32_t region = 0; region < p->program->region_count; region++)
    if (p->sets[region] == set) return p->program->regions[region].name;
  return "";
}

static void draw_legend(picture *p) {
  bool used[MT_INKS];
  memcpy(used, p->used, sizeof used);
  int column = 0;
  for (int ink = 0; ink < MT_INK_IDLE_UNKNOWN; ink++) {
    if (!used[ink]) continue;
    mt_text name = {0};
    if (ink < MT_INK_OPTIMIZER) mt_text_append(&name, "%s ", set_name(p, ink / MT_INK_KINDS));
    mt_text_append(&name, "%s", mt_inks_name(ink));
    const char *words = name.data != NULL ? name.data : "";
    bool swatch = p->options.color && ink < MT_INK_IDLE;
    int width = (swatch ? 3 : 2) + mt_words_columns(words);
    if (column > 0 && column + 3 + width > p->options.width) {
      mt_text_append(p->out, "\n");
      column = 0;
    }
    if (column > 0) mt_text_append(p->out, "   ");
    column += (column > 0 ? 3 : 0) + width;
    if (swatch) { /* both shades */
      mt_ink look = mt_inks_look(ink);
      mt_text_append(p->out, "\x1b[48;5;%dm \x1b[48;5;%dm \x1b[0m", look.background[0], look.background[1]);
    } else {
      draw_block(p, ink, -1, 1);
    }
    mt_text_append(p->out, " %s", words);
    mt_text_free(&name);
  }
  if (column > 0) mt_text_append(p->out, "\n");
}

static void draw_ranks(picture *p) {
  int32_t ranks = p->program->ranks, limit = p->options.rank_limit;
  int32_t pipeline = p->program->replicas > 0 ? ranks / p->program->replicas : ranks;
  bool folds = ranks > limit;
  int32_t head = folds ? (limit + 1) / 2 : ranks, tail = folds ? limit / 2 : 0;
  for (int32_t rank = 0; rank < ranks; rank++) {
    if (folds && rank == head) {
      int32_t hidden = ranks - head - tail;
      size_t from = p->out->length;
      mt_text_append(p->out, "%s", p->options.unicode ? "   ⋮" : "   :");
      mt_words_pad(p->out, from, p->label);
      mt_text_append(p->out, "ranks %d to %d not drawn\n", rank, rank + hidden - 1);
      rank += hidden;
      if (rank >= ranks) break;
    }
    if (p->program->replicas > 1 && pipeline > 1 && (rank % pipeline == 0 || (folds && rank == ranks - tail)))
      mt_text_append(p->out, "replica %d\n", rank / pipeline);
    draw_rank(p, rank);
  }
}

motet_status mt_report_timeline(const motet_program *program, const double *start, const double *finish,
                                const uint8_t *idle_cause, const mt_timeline_options *options, motet_error *error,
                                mt_text *out) {
  picture p = {.program = program,
               .start = start,
               .finish = finish,
               .idle_cause = idle_cause,
               .options = options != NULL ? *options : (mt_timeline_options){0},
               .out = out};
  if (p.options.width == 0) p.options.width = DEFAULT_WIDTH;
  if (p.options.width < LEAST_WIDTH) p.options.width = LEAST_WIDTH;
  if (p.options.rank_limit <= 0) p.options.rank_limit = DEFAULT_RANKS;
  for (int64_t i = 0; i < program->rank_begin[program->ranks]; i++)
    if (finish[i] > p.makespan) p.makespan = finish[i];
  if (!(p.makespan > 0)) {
    mt_text_append(out, "Nothing takes any time.\n");
    return out->failed ? mt_error_memory(error, 64, "timeline") : MOTET_OK;
  }
  char last[32];
  p.label = snprintf(last, sizeof last, "rank %d ", program->ranks - 1);
  p.columns = p.options.width - p.label - SHARE_COLUMNS;
  mt_arena *arena = mt_arena_create();
  if (arena == NULL) return mt_error_memory(error, 64, "timeline");
  p.sets = MT_ARENA_NEW(arena, int32_t, program->region_count);
  p.stains = MT_ARENA_NEW(arena, stain, (size_t)p.columns * MT_INKS);
  if (p.sets != NULL && p.stains != NULL) {
    mt_inks_assign(program, p.sets);
    draw_axis(&p);
    draw_ranks(&p);
    draw_legend(&p);
  }
  bool failed = p.sets == NULL || p.stains == NULL || out->failed;
  mt_arena_destroy(arena);
  return failed ? mt_error_memory(error, (unsigned long long)p.columns * MT_INKS * sizeof(stain), "timeline")
                : MOTET_OK;
}
