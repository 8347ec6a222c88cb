/* Llama 3.1 405B on up to 16384 H100 (arXiv 2407.21783, table 4): one number, what products reach of the peak, is
 * fitted on the first row; the others have twice the replicas, and a ring of sixteen over 131072 tokens.
 *
 *   bench/forecast_h100 [folder of the published rows, tests/data/facts] */
#include "order/cluster_plan.h"
#include "support/gpt_rows.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ROWS_MAX = 16 };

typedef struct row {
  int devices, tensor, context, pipeline, data, sequence, samples;
  double teraflops;
} row;

static int read_rows(const char *folder, row *rows) {
  char path[512], line[256];
  snprintf(path, sizeof path, "%s/llama_2024_h100.csv", folder);
  FILE *file = fopen(path, "r");
  if (file == NULL) gpt_stop(path);
  int count = 0;
  while (count < ROWS_MAX && fgets(line, sizeof line, file) != NULL) {
    row *r = &rows[count];
    count += sscanf(line, "%d,%d,%d,%d,%d,%d,%d,%lf", &r->devices, &r->tensor, &r->context, &r->pipeline, &r->data,
                    &r->sequence, &r->samples, &r->teraflops) == 8;
  }
  fclose(file);
  if (count == 0) gpt_stop(path);
  return count;
}

/* TFLOP/s a device as the paper counts them: products and causal attention, forward and twice backward, nothing
 * recomputed. Eight chunks a rank: a block each, embedding and head on their own (section 3.3.2). */
static double forecast(const char *folder, const row *r, double efficiency) {
  char yaml[1024];
  motet_error error;
  mt_arena *arena = mt_arena_create();
  mt_cluster_job job;
  mt_cluster_setup setup;
  mt_cluster_plan made;
  snprintf(yaml, sizeof yaml,
           "model: %s/../models/Llama-3.1-405B\ncluster: {preset: h100, devices: %d, memory: 1TB}\n"
           "schedule: '<llm: 1f1b(virtual=8)>'\n"
           "parallel: {tensor: %d, ring: %d, pipeline: %d, data: %d, zero: 1, gradients: float32}\n"
           "workload: {tokens: %d}\ntrain: {microbatches: %d}\n",
           folder, r->devices, r->tensor, r->context, r->pipeline, r->data, r->sequence, r->samples);
  if (arena == NULL) gpt_stop("out of memory");
  if (mt_cluster_job_parse(arena, yaml, strlen(yaml), "a row", 0, NULL, &error, &job) != MOTET_OK ||
      mt_cluster_job_open(arena, &job, &error, &setup) != MOTET_OK)
    gpt_stop(error.text);
  setup.cluster.device.matmul_efficiency = efficiency;
  if (mt_cluster_plan_make(arena, &setup, &error, &made) != MOTET_OK) gpt_stop(error.text);
  double flops = 0;
  for (int32_t l = 0; l < setup.architecture->model->layer_count; l++) {
    mt_layer_cost cost;
    mt_architecture_cost(setup.architecture, l, setup.extents, 1, &cost);
    flops += 3 * cost.forward_flops;
  }
  double seconds = made.plan.simulation->makespan;
  mt_plan_free(&made.plan);
  mt_arena_destroy(arena);
  return flops * r->samples * r->data / seconds / r->devices / 1e12;
}

int main(int count, char **arguments) {
  const char *folder = count > 1 ? arguments[1] : "tests/data/facts";
  row rows[ROWS_MAX];
  int row_count = read_rows(folder, rows);
  double low = 0.3, high = 1;
  for (int i = 0; i < 20; i++) {
    double middle = (low + high) / 2;
    if (forecast(folder, &rows[0], middle) < rows[0].teraflops)
      low = middle;
    else
      high = middle;
  }
  printf("TFLOP/s a device, Llama 3.1 405B on H100; products reach %.3f of the peak, fitted on the first row "
         "alone\n\n",
         low);
  printf("%7s %4s %5s %4s %4s %9s %10s %9s %7s\n", "devices", "tp", "ring", "pp", "dp", "sequence", "published",
         "forecast", "error");
  for (int r = 0; r < row_count; r++) {
    double found = forecast(folder, &rows[r], low);
    printf("%7d %4d %5d %4d %4d %9d %10.0f %9.0f %6.1f%%%s\n", rows[r].devices, rows[r].tensor, rows[r].context,
           rows[r].pipeline, rows[r].data, rows[r].sequence, rows[r].teraflops, found,
           100 * (found / rows[r].teraflops - 1), r == 0 ? "  fitted" : "");
  }
  return 0;
}
