#include "gpt_rows.h"

#include "order/forecast_costs.h"
#include "order/plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VOCABULARY = 51200 };

_Noreturn void gpt_stop(const char *what) {
  fprintf(stderr, "bench: %s\n", what);
  exit(3);
}

static void build_model(mt_arena *arena, gpt_row *row) {
  char config[512];
  motet_error error;
  snprintf(config, sizeof config,
           "{\"model_type\": \"gpt2\", \"n_layer\": %d, \"n_embd\": %d, \"n_head\": %d, \"n_positions\": %d, "
           "\"vocab_size\": %d}",
           row->layers, row->hidden, row->heads, row->sequence, VOCABULARY);
  if (mt_architecture_parse(arena, config, strlen(config), row->model, &error, &row->architecture) != MOTET_OK)
    gpt_stop(error.text);
}

/* Microbatch 0: not published. */
static bool can_be(const gpt_row *row) {
  int64_t each = (int64_t)row->microbatch * row->data;
  return row->hidden > 0 && row->heads > 0 && row->layers > 0 && row->layers + 2 <= GPT_LAYERS_MAX &&
         row->sequence > 0 && row->tensor > 0 && row->pipeline > 0 && row->chunks > 0 && row->data > 0 &&
         row->devices > 0 && row->pipeline * (int64_t)row->chunks <= row->layers && row->microbatch >= 0 &&
         row->microbatch <= GPT_SAMPLES_MAX && row->batch >= each && row->seconds > 0;
}

typedef int read_line(const char *line, gpt_row *row, gpt_row *second);

static void read_rows(mt_arena *arena, const char *folder, const char *name, read_line *read, gpt_rows *rows) {
  char path[512], line[512];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *file = fopen(path, "r");
  if (file == NULL) gpt_stop(path);
  *rows = (gpt_rows){0};
  while (rows->count + 2 <= GPT_ROWS_MAX && fgets(line, sizeof line, file) != NULL) {
    gpt_row two[2] = {{.chunks = 1, .data = 1, .sequence = 2048}, {.chunks = 1, .data = 1}};
    int read_count = read(line, &two[0], &two[1]);
    for (int i = 0; i < read_count; i++) {
      if (!can_be(&two[i])) continue;
      build_model(arena, &two[i]);
      rows->rows[rows->count++] = two[i];
    }
  }
  fclose(file);
  if (rows->count == 0) gpt_stop(path);
}

static int korthikanti_line(const char *line, gpt_row *row, gpt_row *second) {
  double seconds[2];
  if (sscanf(line, "%15[^,],%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%lf,%lf", row->model, &row->hidden, &row->layers,
             &row->heads, &row->sequence, &row->tensor, &row->pipeline, &row->chunks, &row->devices, &row->batch,
             &row->microbatch, &seconds[0], &seconds[1]) != 13)
    return 0;
  row->seconds = seconds[0];
  *second = *row;
  second->selective = true;
  second->seconds = seconds[1];
  return 2;
}

static int measured_line(const char *line, gpt_row *row, gpt_row *second) {
  (void)second;
  double milliseconds;
  if (sscanf(line, "%15[^,],%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%lf", row->model, &row->devices, &row->batch,
             &row->microbatch, &row->hidden, &row->heads, &row->layers, &row->sequence, &row->tensor, &row->data,
             &row->pipeline, &milliseconds) != 12)
    return 0;
  row->seconds = milliseconds / 1e3;
  return 1;
}

static int megatron_line(const char *line, gpt_row *row, gpt_row *second) {
  (void)second;
  double teraflops, percent, petaflops;
  return sscanf(line, "%15[^,],%d,%d,%d,%d,%d,%d,%d,%lf,%lf,%lf,%lf,%d", row->model, &row->heads, &row->hidden,
                &row->layers, &row->tensor, &row->pipeline, &row->devices, &row->batch, &teraflops, &percent,
                &petaflops, &row->seconds, &row->data) == 13;
}

void gpt_read_korthikanti(mt_arena *arena, const char *folder, gpt_rows *rows) {
  read_rows(arena, folder, "korthikanti_2022_a100.csv", korthikanti_line, rows);
}

void gpt_read_measured(mt_arena *arena, const char *folder, gpt_rows *rows) {
  read_rows(arena, folder, "gpt_a100_measured.csv", measured_line, rows);
}

void gpt_read_megatron(mt_arena *arena, const char *folder, gpt_rows *rows) {
  read_rows(arena, folder, "megatron_2021_a100.csv", megatron_line, rows);
}

/* Megatron-LM of those years: attention without fusion, gradients accumulated and reduced in 32 bits behind the
 * last backward. */
void gpt_case_make(const gpt_row *row, const gpt_coefficients *coefficients, gpt_case *made) {
  motet_error error;
  *made = (gpt_case){.parallel = mt_parallel_single()};
  if (mt_cluster_preset("a100-80gb", row->devices, &error, &made->cluster) != MOTET_OK) gpt_stop(error.text);
  mt_device *device = &made->cluster.device;
  device->matmul_efficiency = coefficients->matmul;
  device->matmul_depth = coefficients->depth;
  device->memory_efficiency = coefficients->memory;
  device->layer_host_seconds = coefficients->host_seconds;
  made->parallel.tensor = row->tensor;
  made->parallel.pipeline = row->pipeline;
  made->parallel.data = row->data;
  made->parallel.sequence_parallel = row->selective;
  made->parallel.stored_scores = true;
  made->parallel.float32_gradients = true;
  made->parallel.overlap = false;
  const mt_model *model = row->architecture->model;
  for (int32_t l = 1; l + 1 < model->layer_count; l++)
    made->savings[l] = row->selective ? MT_SAVING_SELECTIVE : MT_SAVING_INPUT;
  made->forecast = (mt_forecast){.architecture = row->architecture,
                                 .cluster = &made->cluster,
                                 .parallel = &made->parallel,
                                 .savings = made->savings,
                                 .fit = mt_collective_fit_usual(),
                                 .microbatches = row->batch / (row->microbatch * row->data)};
  int64_t segments[GPT_SAMPLES_MAX];
  for (int i = 0; i < row->microbatch; i++) segments[i] = row->sequence;
  const mt_shape shape = {.segments = segments, .segment_count = row->microbatch};
  if (mt_architecture_measure(row->architecture, &shape, &error, made->extents) != MOTET_OK) gpt_stop(error.text);
}

/* Chunk c of a pipeline's chunks: its blocks, and embedding or head at the ends. */
static mt_span chunk_span(const gpt_row *row, int chunk) {
  int chunks = row->pipeline * row->chunks, layers = row->layers;
  int begin = (int)((int64_t)layers * chunk / chunks), end = (int)((int64_t)layers * (chunk + 1) / chunks);
  mt_span span = {.layer_begin = chunk == 0 ? 0 : begin + 1,
                  .layer_end = chunk == chunks - 1 ? layers + 2 : end + 1,
                  .sends_gradient = chunk > 0};
  span.first_trainable = span.layer_begin;
  return span;
}

double gpt_formula_seconds(const gpt_row *row, const gpt_coefficients *coefficients) {
  gpt_case made;
  gpt_case_make(row, coefficients, &made);
  double slowest = 0, all = 0, end = 0;
  for (int r = 0; r < row->pipeline; r++) {
    double rank = 0, backward = 0, rank_end = 0;
    for (int c = r; c < row->pipeline * row->chunks; c += row->pipeline) {
      mt_span span = chunk_span(row, c);
      /* All chunks in between are alike. */
      mt_span_forecast seconds;
      mt_forecast_span(&made.forecast, &span, made.extents, &seconds);
      rank += seconds.seconds[MT_COST_FORWARD] + seconds.seconds[MT_COST_BACKWARD];
      backward += seconds.seconds[MT_COST_BACKWARD];
      mt_state_forecast state;
      mt_forecast_state(&made.forecast, &span, backward, &state);
      rank_end += state.optimizer_seconds + state.exposed_seconds;
    }
    all += rank;
    slowest = fmax(slowest, rank);
    end = fmax(end, rank_end);
  }
  double microbatches = made.forecast.microbatches;
  return microbatches * slowest + (all - slowest) / row->chunks + end;
}

double gpt_simulated_seconds(const gpt_row *row, const gpt_coefficients *coefficients) {
  gpt_case made;
  gpt_case_make(row, coefficients, &made);
  motet_error error;
  mt_arena *arena = mt_arena_create();
  int chunks = row->pipeline * row->chunks;
  int32_t *split = arena != NULL ? MT_ARENA_NEW(arena, int32_t, chunks) : NULL;
  if (split == NULL) gpt_stop("out of memory");
  for (int c = 0; c < chunks; c++) {
    mt_span span = chunk_span(row, c);
    split[c] = span.layer_end - span.layer_begin;
  }
  char text[64];
  snprintf(text, sizeof text, row->chunks > 1 ? "<llm: 1f1b(virtual=%d)>" : "<llm: 1f1b>", row->chunks);
  mt_schedule *schedule;
  mt_derivation *derivation;
  mt_forecast_tables tables;
  mt_plan plan;
  mt_derive_request request = {.model = row->architecture->model,
                               .ranks = row->pipeline,
                               .microbatches = made.forecast.microbatches,
                               .split = split,
                               .split_count = chunks};
  motet_status status = mt_schedule_parse(arena, text, &error, &schedule);
  request.schedule = schedule;
  if (status == MOTET_OK) status = mt_derive(arena, &request, &error, &derivation);
  if (status == MOTET_OK)
    status = mt_forecast_tables_make(arena, derivation, &made.forecast, made.extents, 1, &error, &tables);
  if (status != MOTET_OK) gpt_stop(error.text);
  tables.sizes.memory_cap = 0; /* it ran */
  const mt_plan_replica replica = {.derivation = derivation, .costs = &tables.costs, .sizes = tables.sizes};
  const mt_plan_options options = {.order = {.search_seconds = -1}};
  if (mt_plan_make(arena, &replica, 1, &options, &error, &plan) != MOTET_OK) gpt_stop(error.text);
  double seconds = plan.simulation->makespan;
  mt_plan_free(&plan);
  mt_arena_destroy(arena);
  return seconds;
}

double gpt_memory_bytes(const gpt_row *row, const gpt_coefficients *coefficients) {
  gpt_case made;
  gpt_case_make(row, coefficients, &made);
  int microbatches = made.forecast.microbatches;
  int held = microbatches < row->pipeline ? microbatches : row->pipeline;
  double bytes = 0, working = 0;
  for (int c = 0; c < row->pipeline * row->chunks; c += row->pipeline) {
    mt_span span = chunk_span(row, c);
    mt_span_forecast kept;
    mt_state_forecast state;
    mt_forecast_span(&made.forecast, &span, made.extents, &kept);
    mt_forecast_state(&made.forecast, &span, 0, &state);
    bytes += (double)state.static_bytes + held * (double)kept.saved_bytes;
    working = fmax(working, (double)kept.working_bytes);
  }
  return bytes + working;
}

static double loss(const gpt_rows *rows, const char *without, const gpt_coefficients *coefficients) {
  double sum = 0;
  for (int r = 0; r < rows->count; r++) {
    const gpt_row *row = &rows->rows[r];
    if (without != NULL && strcmp(row->model, without) == 0) continue;
    double error = gpt_formula_seconds(row, coefficients) / row->seconds - 1;
    sum += sqrt(error * error + 0.03 * 0.03);
  }
  return sum;
}

/* Steps along each coefficient in turn, halved when none is better. The loss has small steps of its own, the waves
 * of tiles: the best of several beginnings. */
static double descend(const gpt_rows *rows, const char *without, bool host, gpt_coefficients *best) {
  double steps[4] = {0.08, 150, 0.1, host ? 6e-4 : 0};
  static const double floors[4] = {0.5, 0, 0.5, 0}, ceilings[4] = {1, 2000, 0.93, 1e-2};
  double least = loss(rows, without, best);
  for (int round = 0; round < 60 && steps[0] > 2e-4; round++) {
    bool better = false;
    for (int c = 0; c < 4; c++)
      for (int sign = -1; sign <= 1; sign += 2) {
        gpt_coefficients next = *best;
        double *values[4] = {&next.matmul, &next.depth, &next.memory, &next.host_seconds};
        *values[c] = fmin(ceilings[c], fmax(floors[c], *values[c] + sign * steps[c]));
        double found = loss(rows, without, &next);
        if (found >= least - 1e-12) continue;
        least = found;
        *best = next;
        better = true;
      }
    for (int c = 0; c < 4 && !better; c++) steps[c] /= 2;
  }
  return least;
}

gpt_coefficients gpt_fit(const gpt_rows *rows, const char *without, bool host) {
  gpt_coefficients best = {0};
  double least = INFINITY;
  for (int begin = 0; begin < 6; begin++) {
    gpt_coefficients found = {.matmul = 0.75 + 0.05 * (begin % 3),
                              .depth = 100 + 200 * (begin % 3),
                              .memory = begin % 2 == 0 ? 0.8 : 0.9,
                              .host_seconds = host ? 5e-4 * (begin % 4) : 0};
    double reached = descend(rows, without, host, &found);
    if (reached >= least) continue;
    least = reached;
    best = found;
  }
  return best;
}

/* Ranks from 0; equal values share the mean of theirs. */
static void rank_values(const double *values, int count, double *ranks) {
  for (int i = 0; i < count; i++) {
    double below = 0, equal = 0;
    for (int j = 0; j < count; j++) {
      below += values[j] < values[i];
      equal += values[j] == values[i];
    }
    ranks[i] = below + (equal - 1) / 2;
  }
}

double gpt_rank_correlation(const double *a, const double *b, int count) {
  double ra[GPT_ROWS_MAX], rb[GPT_ROWS_MAX], mean = (count - 1) / 2.0, ab = 0, aa = 0, bb = 0;
  if (count > GPT_ROWS_MAX) count = GPT_ROWS_MAX;
  rank_values(a, count, ra);
  rank_values(b, count, rb);
  for (int i = 0; i < count; i++) {
    ab += (ra[i] - mean) * (rb[i] - mean);
    aa += (ra[i] - mean) * (ra[i] - mean);
    bb += (rb[i] - mean) * (rb[i] - mean);
  }
  return aa > 0 && bb > 0 ? ab / sqrt(aa * bb) : 0;
}
