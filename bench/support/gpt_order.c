#include "gpt_order.h"

#include "base/random.h"

#include <math.h>
#include <string.h>

enum { COSTS_MAX = 64, BEGINNINGS = 60, STEPS = 4000 };

/* Passes of a layer over one sample that a step takes: its pipeline's length times the samples of a microbatch. */
static double sample_passes(const gpt_row *row) {
  double microbatches = (double)row->batch / (row->data * row->microbatch);
  return (microbatches + row->pipeline - 1) * row->layers / row->pipeline * row->microbatch;
}

int gpt_order_contradictions(const gpt_rows *rows, const char *model, gpt_contradiction *found, int room) {
  int count = 0;
  for (int a = 0; a < rows->count; a++)
    for (int b = 0; b < rows->count; b++) {
      const gpt_row *slower = &rows->rows[a], *faster = &rows->rows[b];
      if (strcmp(slower->model, model) != 0 || strcmp(faster->model, model) != 0 ||
          slower->tensor != faster->tensor || slower->pipeline != faster->pipeline ||
          slower->data != faster->data || slower->microbatch >= faster->microbatch ||
          slower->seconds <= faster->seconds)
        continue;
      for (int c = 0; c < rows->count; c++)
        for (int d = 0; d < rows->count; d++) {
          const gpt_row *shorter = &rows->rows[c], *longer = &rows->rows[d];
          if (strcmp(shorter->model, model) != 0 || strcmp(longer->model, model) != 0 ||
              shorter->tensor != slower->tensor || longer->tensor != slower->tensor ||
              shorter->pipeline != longer->pipeline || shorter->data != longer->data ||
              shorter->microbatch != slower->microbatch || longer->microbatch != faster->microbatch ||
              shorter->seconds >= longer->seconds)
            continue;
          double least = sample_passes(faster) / sample_passes(slower);
          double most = sample_passes(longer) / sample_passes(shorter);
          if (least < most || count == room) continue;
          found[count++] = (gpt_contradiction){slower, faster, shorter, longer, least, most};
        }
    }
  return count;
}

/* Costs of the class as free numbers: `begin` of each tensor degree's smallest microbatch, and in [0, 1] how far
 * each next one falls towards the least that it may. */
typedef struct order_model {
  int count, of_row[GPT_ROWS_MAX], rows[GPT_ROWS_MAX], row_count;
  int32_t tensor[COSTS_MAX], microbatch[COSTS_MAX];
  double value[COSTS_MAX], end; /* of a byte of gradients, in seconds a GB */
} order_model;

static void list_costs(const gpt_rows *rows, const char *model, order_model *made) {
  memset(made, 0, sizeof *made);
  for (int r = 0; r < rows->count; r++)
    if (strcmp(rows->rows[r].model, model) == 0) made->rows[made->row_count++] = r;
  /* In the order of tensor degree, then of the microbatch. */
  for (;;) {
    const gpt_row *next = NULL;
    for (int i = 0; i < made->row_count; i++) {
      const gpt_row *row = &rows->rows[made->rows[i]];
      int last = made->count - 1;
      bool beyond = last < 0 || row->tensor > made->tensor[last] ||
                    (row->tensor == made->tensor[last] && row->microbatch > made->microbatch[last]);
      if (beyond && (next == NULL || row->tensor < next->tensor ||
                     (row->tensor == next->tensor && row->microbatch < next->microbatch)))
        next = row;
    }
    if (next == NULL || made->count == COSTS_MAX) break;
    made->tensor[made->count] = next->tensor;
    made->microbatch[made->count++] = next->microbatch;
  }
  for (int i = 0; i < made->row_count; i++)
    for (int c = 0; c < made->count; c++)
      if (rows->rows[made->rows[i]].tensor == made->tensor[c] &&
          rows->rows[made->rows[i]].microbatch == made->microbatch[c])
        made->of_row[i] = c;
}

static bool begins(const order_model *made, int c) { return c == 0 || made->tensor[c] != made->tensor[c - 1]; }

static double correlation(const gpt_rows *rows, const order_model *made) {
  double cost[COSTS_MAX], forecast[GPT_ROWS_MAX], measured[GPT_ROWS_MAX];
  for (int c = 0; c < made->count; c++) {
    double least = begins(made, c) ? 0 : (double)made->microbatch[c - 1] / made->microbatch[c];
    cost[c] = begins(made, c) ? made->value[c] : cost[c - 1] * (least + (1 - least) * made->value[c]);
  }
  for (int i = 0; i < made->row_count; i++) {
    const gpt_row *row = &rows->rows[made->rows[i]];
    double parameters = 12.0 * row->layers * row->hidden * row->hidden / (row->tensor * row->pipeline);
    forecast[i] = sample_passes(row) * cost[made->of_row[i]] + made->end * 4e-9 * parameters;
    measured[i] = row->seconds;
  }
  return gpt_rank_correlation(forecast, measured, made->row_count);
}

/* Costs as the rows themselves have them, on the average of those that share one. */
static void begin_at(const gpt_rows *rows, mt_random *random, order_model *made) {
  made->end = 0.5 * mt_random_unit(random);
  for (int c = 0; c < made->count; c++) {
    double sum = 0;
    int of = 0;
    for (int i = 0; i < made->row_count; i++)
      if (made->of_row[i] == c) {
        sum += rows->rows[made->rows[i]].seconds / sample_passes(&rows->rows[made->rows[i]]);
        of++;
      }
    made->value[c] = begins(made, c) ? sum / of * (0.8 + 0.4 * mt_random_unit(random)) : mt_random_unit(random);
  }
}

static void move_one(mt_random *random, order_model *made) {
  int c = (int)mt_random_below(random, (uint64_t)made->count + 1);
  if (c == made->count)
    made->end = fabs(made->end + 0.1 * mt_random_normal(random));
  else if (begins(made, c))
    made->value[c] *= exp(0.08 * mt_random_normal(random));
  else
    made->value[c] = fmin(1, fmax(0, made->value[c] + 0.3 * mt_random_normal(random)));
}

double gpt_order_reachable(const gpt_rows *rows, const char *model) {
  static order_model made, tried;
  double best = -1;
  mt_random random = mt_random_stream(1, model);
  list_costs(rows, model, &made);
  for (int b = 0; b < BEGINNINGS; b++) {
    begin_at(rows, &random, &made);
    double reached = correlation(rows, &made);
    for (int step = 0; step < STEPS; step++) {
      tried = made;
      move_one(&random, &tried);
      double next = correlation(rows, &tried);
      if (next < reached) continue;
      reached = next;
      made = tried;
    }
    best = fmax(best, reached);
  }
  return best;
}
