/* Numbers 11 to 13: forecasts of published GPT iterations and memory on A100, from a config, a device and its
 * links.
 *
 * Fitted are what tiles of a product reach of the peak, what starting and ending a tile costs, what element-wise
 * work reaches of the memory's bandwidth, and, on the measured plans alone, what a host takes to launch a layer.
 * The links' were fitted on measured all-reduces (docs/forecast.md). Every model is also forecast with coefficients
 * that never saw it, and every set of rows with those of another.
 *
 *   bench/forecast [folder of the published rows, tests/data/facts] */
#include "support/gpt_order.h"
#include "support/gpt_rows.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const double GIB = 1073741824.0;

/* Mean and worst of a column of errors. */
typedef struct errors {
  double sum, worst;
  int count;
} errors;

static void add_error(errors *sum, double error) {
  sum->sum += fabs(error);
  sum->worst = fmax(sum->worst, fabs(error));
  sum->count++;
}

static void print_errors(const char *what, const errors *sum, double mean, double worst) {
  double average = sum->sum / sum->count;
  printf("%s: mean %.1f%%, worst %.1f%%", what, 100 * average, 100 * sum->worst);
  if (mean > 0) printf("; to reach: %.1f%%%s", 100 * mean, average <= mean ? "" : " -- not reached");
  if (worst > 0) printf("; worst %.0f%%%s", 100 * worst, sum->worst <= worst ? "" : " -- not reached");
  printf("\n");
}

static void print_coefficients(const char *what, const gpt_coefficients *c) {
  printf("%s: products %.3f of the peak, a tile costs %.0f of depth more, memory %.2f", what, c->matmul, c->depth,
         c->memory);
  if (c->host_seconds > 0) printf(", a host launches a pass over a layer in %.2f ms", 1e3 * c->host_seconds);
  printf("\n");
}

/* Coefficients that never saw the row's model; fitted once for each model. */
static gpt_coefficients without_model(const gpt_rows *rows, const gpt_row *row, bool host) {
  static const gpt_rows *of;
  static char model[16];
  static gpt_coefficients fitted;
  if (of != rows || strcmp(model, row->model) != 0) {
    of = rows;
    snprintf(model, sizeof model, "%s", row->model);
    fitted = gpt_fit(rows, model, host);
  }
  return fitted;
}

static void print_korthikanti(const gpt_rows *rows, const gpt_coefficients *own, const gpt_coefficients *measured) {
  errors all = {0}, others = {0}, foreign = {0};
  printf("\nNumber 11. Seconds an iteration, arXiv 2205.05198, table 5\n");
  print_coefficients("fitted on these rows", own);
  printf("\n%-6s %-28s %9s | %8s %6s | %10s %6s | %14s %6s\n", "model", "", "published", "forecast", "error",
         "never seen", "error", "no row of them", "error");
  for (int r = 0; r < rows->count; r++) {
    const gpt_row *row = &rows->rows[r];
    gpt_coefficients left_out = without_model(rows, row, false);
    double seconds[3] = {gpt_simulated_seconds(row, own), gpt_simulated_seconds(row, &left_out),
                         gpt_simulated_seconds(row, measured)};
    double error[3];
    for (int k = 0; k < 3; k++) error[k] = seconds[k] / row->seconds - 1;
    add_error(&all, error[0]);
    add_error(&others, error[1]);
    add_error(&foreign, error[2]);
    printf("%-6s %-28s %9.2f | %8.2f %5.1f%% | %10.2f %5.1f%% | %14.2f %5.1f%%\n", row->model,
           row->selective ? "sequence parallel, selective" : "full recomputation", row->seconds, seconds[0],
           100 * error[0], seconds[1], 100 * error[1], seconds[2], 100 * error[2]);
  }
  print_errors("fitted on all", &all, 0, 0);
  print_errors("each model left out", &others, 0.036, 0.08);
  print_errors("coefficients of the measured plans below", &foreign, 0.036, 0.08);
}

static void print_correlations(const gpt_rows *rows, const double *forecast) {
  double a[GPT_ROWS_MAX], b[GPT_ROWS_MAX];
  printf("rank correlation, forecasts by coefficients that never saw the model:");
  for (int r = 0; r < rows->count; r++) {
    bool first = true;
    int count = 0;
    for (int s = 0; s < rows->count; s++) {
      if (strcmp(rows->rows[s].model, rows->rows[r].model) != 0) continue;
      if (s < r) first = false;
      a[count] = forecast[s];
      b[count++] = rows->rows[s].seconds;
    }
    if (!first || count < 3) continue; /* two rows have no ranks to speak of */
    double correlation = gpt_rank_correlation(a, b, count);
    printf(" %sB %.2f%s,", rows->rows[r].model, correlation, correlation > 0.9 ? "" : " -- not reached");
  }
  for (int s = 0; s < rows->count; s++) b[s] = rows->rows[s].seconds;
  printf(" all rows %.2f; to reach: 0.9\n", gpt_rank_correlation(forecast, b, rows->count));
}

/* What the measured order itself allows where the forecasts' order falls short. */
static void print_orders(const gpt_rows *rows) {
  static const char *const models[] = {"39.1", "18.4"};
  printf(
      "rank correlation of the best found model that is free to choose, for these very rows, what a sample costs "
      "at each\ntensor degree and microbatch, as long as a larger microbatch makes no sample dearer:");
  for (int m = 0; m < 2; m++)
    printf("%s %sB %.2f", m > 0 ? "," : "", models[m], gpt_order_reachable(rows, models[m]));
  printf("\n");
  gpt_contradiction found[16];
  for (int m = 0; m < 2; m++)
    for (int c = 0, count = gpt_order_contradictions(rows, models[m], found, 16); c < count; c++)
      printf("  %sB, tp %d: no cost of a sample gives both pp %d's order (%.2f s by microbatches of %d, %.2f s by "
             "%d: more "
             "than %.2f\n  times as dear) and pp %d's (%.2f s and %.2f s: less than %.2f times)\n",
             models[m], found[c].slower->tensor, found[c].slower->pipeline, found[c].slower->seconds,
             found[c].slower->microbatch, found[c].faster->seconds, found[c].faster->microbatch, found[c].least,
             found[c].shorter->pipeline, found[c].shorter->seconds, found[c].longer->seconds, found[c].most);
}

static void print_measured(const gpt_rows *rows, const gpt_coefficients *own, const gpt_coefficients *korthikanti) {
  errors all = {0}, others = {0}, foreign = {0};
  double left[GPT_ROWS_MAX];
  int order[GPT_ROWS_MAX];
  printf("\nNumber 12. Seconds an iteration, measured GPT plans on 64 to 512 A100\n");
  print_coefficients("fitted on these rows", own);
  printf("\n%-6s %4s %4s %4s %5s %9s | %8s %6s | %10s %6s | %14s %6s\n", "model", "tp", "pp", "dp", "batch",
         "published", "forecast", "error", "never seen", "error", "no row of them", "error");
  /* By model, so that each is fitted without once. */
  int count = 0;
  for (int r = 0; r < rows->count; r++) {
    bool known = false;
    for (int k = 0; k < count; k++) known |= order[k] == r;
    for (int s = r; s < rows->count && !known; s++)
      if (strcmp(rows->rows[s].model, rows->rows[r].model) == 0) order[count++] = s;
  }
  for (int k = 0; k < count; k++) {
    int r = order[k];
    const gpt_row *row = &rows->rows[r];
    gpt_coefficients left_out = without_model(rows, row, true);
    double seconds[3] = {gpt_simulated_seconds(row, own), gpt_simulated_seconds(row, &left_out),
                         gpt_simulated_seconds(row, korthikanti)};
    left[r] = seconds[1];
    double error[3];
    for (int c = 0; c < 3; c++) error[c] = seconds[c] / row->seconds - 1;
    add_error(&all, error[0]);
    add_error(&others, error[1]);
    add_error(&foreign, error[2]);
    printf("%5sB %4d %4d %4d %5d %9.2f | %8.2f %5.1f%% | %10.2f %5.1f%% | %14.2f %5.1f%%\n", row->model,
           row->tensor, row->pipeline, row->data, row->microbatch, row->seconds, seconds[0], 100 * error[0],
           seconds[1], 100 * error[1], seconds[2], 100 * error[2]);
  }
  print_errors("fitted on all", &all, 0, 0);
  print_errors("each model left out", &others, 0.10, 0);
  print_errors("coefficients of the Korthikanti rows, nothing launched", &foreign, 0.10, 0);
  print_correlations(rows, left);
  print_orders(rows);
}

/* Microbatch and chunks were not published: the fastest of those that the forecast fits into 80 GB. */
static double fastest(const gpt_row *row, const gpt_coefficients *c, gpt_row *chosen) {
  double best = INFINITY;
  for (int microbatch = 1; microbatch <= 32; microbatch *= 2)
    for (int chunks = 1; chunks <= 6; chunks++) {
      gpt_row next = *row;
      next.microbatch = microbatch;
      next.chunks = chunks;
      if (row->batch % (microbatch * row->data) != 0) continue;
      int microbatches = row->batch / (microbatch * row->data);
      if (chunks > 1 &&
          (row->pipeline == 1 || microbatches % row->pipeline != 0 || row->layers % (chunks * row->pipeline) != 0))
        continue;
      if (gpt_memory_bytes(&next, c) > 80e9) continue;
      double seconds = gpt_formula_seconds(&next, c);
      if (seconds >= best) continue;
      best = seconds;
      *chosen = next;
    }
  return best;
}

static void print_megatron(const gpt_rows *rows, const gpt_coefficients *measured) {
  errors all = {0};
  printf(
      "\nSeconds an iteration, arXiv 2104.04473, table 1. No row fitted: coefficients of the measured plans. Not\n"
      "published are microbatch and chunks of a rank: the fastest that fit\n\n");
  printf("%-7s %4s %4s %4s %6s %7s %9s %9s %7s\n", "model", "tp", "pp", "dp", "batch", "chunks", "published",
         "forecast", "error");
  for (int r = 0; r < rows->count; r++) {
    gpt_row chosen = rows->rows[r];
    if (isinf(fastest(&rows->rows[r], measured, &chosen))) continue;
    double seconds = gpt_simulated_seconds(&chosen, measured), error = seconds / chosen.seconds - 1;
    add_error(&all, error);
    printf("%6sB %4d %4d %4d %6d %7d %9.2f %9.2f %6.1f%%\n", chosen.model, chosen.tensor, chosen.pipeline,
           chosen.data, chosen.microbatch, chosen.chunks, chosen.seconds, seconds, 100 * error);
  }
  print_errors("all rows", &all, 0, 0);
}

/* As the paper counts: 18 bytes for each parameter of a stage's blocks; activations of the first stage, with
 * interleaving held for (1 + (p - 1)/(pm)) of the layers (section 4.2.3). */
static void memory_of(const gpt_row *row, double gib[3]) {
  const gpt_coefficients any = {.matmul = 1, .memory = 1};
  gpt_case made;
  int chunks = row->chunks, pipeline = row->pipeline;
  double held = row->layers * (chunks > 1 ? 1 + (double)(pipeline - 1) / (pipeline * chunks) : 1) / GIB;
  gpt_case_make(row, &any, &made);
  const mt_span block = {.layer_begin = 1, .layer_end = 2, .first_trainable = 1, .sends_gradient = true};
  mt_state_forecast state;
  mt_forecast_state(&made.forecast, &block, 0, &state);
  gib[0] = (double)state.static_bytes * row->layers / pipeline / GIB;
  mt_layer_forecast layer;
  made.parallel.sequence_parallel = false;
  made.savings[1] = MT_SAVING_ALL;
  mt_forecast_layer(&made.forecast, 1, made.extents, &layer);
  gib[1] = held * (double)layer.saved_bytes;
  made.parallel.sequence_parallel = true;
  made.savings[1] = MT_SAVING_SELECTIVE;
  mt_forecast_layer(&made.forecast, 1, made.extents, &layer);
  gib[2] = held * (double)layer.saved_bytes;
}

static void print_memory(const char *folder, const gpt_rows *rows) {
  char path[512], line[256];
  double most = 0;
  snprintf(path, sizeof path, "%s/korthikanti_2022_memory_a100.csv", folder);
  FILE *file = fopen(path, "r");
  if (file == NULL) gpt_stop(path);
  printf("\nNumber 13. GiB of a device of the first stage: published, forecast; nothing fitted\n\n");
  printf("%-6s %18s %18s %22s\n", "model", "18 B a parameter", "all activations", "sequence p., selective");
  while (fgets(line, sizeof line, file) != NULL) {
    char name[16];
    int tensor, pipeline, chunks, microbatch;
    double given[3], ours[3];
    if (sscanf(line, "%15[^,],%d,%d,%d,%d,%lf,%lf,%lf", name, &tensor, &pipeline, &chunks, &microbatch, &given[0],
               &given[1], &given[2]) != 8)
      continue;
    int r = 0;
    while (r < rows->count && strcmp(rows->rows[r].model, name) != 0) r++;
    if (r == rows->count) continue;
    memory_of(&rows->rows[r], ours);
    printf("%-6s %9.2f %8.2f %9.2f %8.2f %13.2f %8.2f\n", name, given[0], ours[0], given[1], ours[1], given[2],
           ours[2]);
    for (int k = 0; k < 3; k++) most = fmax(most, fabs(ours[k] / given[k] - 1));
  }
  fclose(file);
  printf("worst %.2f%%; to reach: 2%%%s\n", 100 * most, most <= 0.02 ? "" : " -- not reached");
}

int main(int count, char **arguments) {
  const char *folder = count > 1 ? arguments[1] : "tests/data/facts";
  static gpt_rows korthikanti, measured, megatron;
  mt_arena *arena = mt_arena_create();
  if (arena == NULL) gpt_stop("out of memory");
  gpt_read_korthikanti(arena, folder, &korthikanti);
  gpt_read_measured(arena, folder, &measured);
  gpt_read_megatron(arena, folder, &megatron);
  gpt_coefficients of_korthikanti = gpt_fit(&korthikanti, NULL, false),
                   of_measured = gpt_fit(&measured, NULL, true);
  print_korthikanti(&korthikanti, &of_korthikanti, &of_measured);
  print_measured(&measured, &of_measured, &of_korthikanti);
  print_megatron(&megatron, &of_measured);
  print_memory(folder, &korthikanti);
  mt_arena_destroy(arena);
  return 0;
}
