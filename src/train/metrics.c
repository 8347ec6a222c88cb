#include "train/metrics.h"

#include "base/digest.h"
#include "base/text.h"
#include "report/chrome_trace.h"
#include "report/flops_file.h"
#include "report/tensorboard.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct mt_metrics {
  mt_arena *arena;
  const char *output_dir, *timeline_dir, *metrics_path, *steps_path, *evaluation_path;
  FILE *metrics, *steps, *evaluation;
  mt_tensorboard *board; /* NULL: none asked for */
};

/** Keeps the whole lines of steps up to @p last_step and opens the file for appending. */
static motet_status open_lines(const char *path, int64_t last_step, motet_error *error, FILE **file) {
  char *old = NULL;
  size_t bytes = 0;
  mt_text kept = {0};
  motet_status status = MOTET_OK;
  if (last_step > 0 && mt_file_read(path, NULL, &old, &bytes) == MOTET_OK) {
    for (char *line = old, *end = NULL; (end = memchr(line, '\n', bytes - (size_t)(line - old))) != NULL;
         line = end + 1) {
      json_t *root = json_loadb(line, (size_t)(end - line), 0, NULL);
      const json_t *step = json_object_get(root, "step");
      if (json_is_integer(step) && json_integer_value(step) <= last_step)
        mt_text_bytes(&kept, line, (size_t)(end - line) + 1);
      json_decref(root);
    }
    free(old);
  }
  if (kept.failed) status = mt_error_memory(error, bytes, "the metrics so far");
  if (status == MOTET_OK) status = mt_file_write(path, kept.length > 0 ? kept.data : "", kept.length, error);
  mt_text_free(&kept);
  if (status != MOTET_OK) return status;
  *file = fopen(path, "ae");
  return *file != NULL ? MOTET_OK : mt_error_system(error, "the file cannot be opened", path);
}

motet_status mt_metrics_open(const char *output_dir, int64_t last_step, motet_error *error, mt_metrics **out) {
  mt_metrics *metrics = calloc(1, sizeof *metrics);
  if (metrics == NULL) return mt_error_memory(error, sizeof *metrics, "the metrics");
  metrics->arena = mt_arena_create();
  motet_status status = MOTET_OK;
  if (metrics->arena != NULL) {
    metrics->output_dir = mt_arena_text(metrics->arena, output_dir);
    metrics->timeline_dir = mt_arena_format(metrics->arena, "%s/timeline", output_dir);
    metrics->metrics_path = mt_arena_format(metrics->arena, "%s/metrics.jsonl", output_dir);
    metrics->evaluation_path = mt_arena_format(metrics->arena, "%s/evaluation.jsonl", output_dir);
    metrics->steps_path = mt_arena_format(metrics->arena, "%s/timeline/steps.jsonl", output_dir);
  }
  if (metrics->steps_path == NULL || metrics->evaluation_path == NULL || metrics->metrics_path == NULL ||
      metrics->timeline_dir == NULL || metrics->output_dir == NULL)
    status = mt_error_memory(error, strlen(output_dir), "the metrics");
  if (status == MOTET_OK) status = mt_directory_make(output_dir, error);
  if (status == MOTET_OK) status = mt_directory_make(metrics->timeline_dir, error);
  if (status == MOTET_OK) status = open_lines(metrics->metrics_path, last_step, error, &metrics->metrics);
  if (status == MOTET_OK) status = open_lines(metrics->steps_path, last_step, error, &metrics->steps);
  if (status == MOTET_OK) status = open_lines(metrics->evaluation_path, last_step, error, &metrics->evaluation);
  if (status != MOTET_OK) {
    mt_metrics_close(metrics);
    return status;
  }
  *out = metrics;
  return MOTET_OK;
}

void mt_metrics_close(mt_metrics *metrics) {
  if (metrics == NULL) return;
  if (metrics->metrics != NULL) fclose(metrics->metrics);
  if (metrics->steps != NULL) fclose(metrics->steps);
  if (metrics->evaluation != NULL) fclose(metrics->evaluation);
  mt_tensorboard_close(metrics->board);
  mt_arena_destroy(metrics->arena);
  free(metrics);
}

motet_status mt_metrics_tensorboard(mt_metrics *metrics, int64_t last_step, motet_error *error) {
  const char *directory = mt_arena_format(metrics->arena, "%s/tensorboard", metrics->output_dir);
  if (directory == NULL) return mt_error_memory(error, strlen(metrics->output_dir), "a path");
  return mt_tensorboard_open(directory, last_step, error, &metrics->board);
}

static motet_status append(FILE *file, const char *path, const mt_text *text, motet_error *error) {
  if (text->failed) return mt_error_memory(error, text->length, "a line of metrics");
  bool good = fwrite(text->data, 1, text->length, file) == text->length && fflush(file) == 0;
  return good ? MOTET_OK : mt_error_system(error, "a line of metrics cannot be written", path);
}

/** JSON knows no NaN. */
static void add_number(mt_text *text, const char *key, double value) {
  if (isfinite(value))
    mt_text_append(text, ", \"%s\": %.9g", key, value);
  else
    mt_text_append(text, ", \"%s\": null", key);
}

static void print_metrics(const mt_metrics_step *step, mt_text *text) {
  const mt_step_measure *measure = step->measure;
  char digest[MT_DIGEST_TEXT_SIZE];
  mt_digest_print(motet_program_digest(step->plan->program), digest);
  double whole = measure->makespan * step->plan->program->ranks;
  mt_text_append(text, "{\"step\": %" PRId64, step->step);
  add_number(text, "loss", step->loss);
  add_number(text, "learning_rate", step->learning_rate);
  add_number(text, "gradient_norm", measure->gradient_norm);
  mt_text_append(text, ", \"tokens\": %" PRId64, step->tokens);
  add_number(text, "step_seconds", step->step_seconds);
  add_number(text, "makespan_seconds", measure->makespan);
  add_number(text, "simulated_seconds", step->plan->simulation->makespan);
  add_number(text, "mfu", step->mfu);
  add_number(text, "idle_share", whole > 0 ? 1 - measure->busy / whole : NAN);
  add_number(text, "input_stall_seconds", measure->input_stall);
  add_number(text, "planning_seconds", step->planning_seconds);
  add_number(text, "planning_wait_seconds", step->planning_wait);
  if (!isnan(step->group_wait)) add_number(text, "group_wait_seconds", step->group_wait);
  add_number(text, "decode_seconds", measure->decoded.seconds);
  mt_text_append(text, ", \"decoded_tiles\": %" PRId64, measure->decoded.tiles);
  mt_text_append(text, ", \"memory_bytes\": %" PRId64 ", \"activation_bytes\": %" PRId64, measure->resident_bytes,
                 measure->activation_bytes);
  mt_text_append(text, ", \"digest\": \"%s\"", digest);
  mt_digest_print(step->weights_digest, digest);
  mt_text_append(text, ", \"weights_digest\": \"%s\"}\n", digest);
}

/** What `motet compare` reads: measured beside simulated, whole, by rank and by kind. */
static void print_comparison(const mt_metrics_step *step, mt_text *text) {
  const motet_program *program = step->plan->program;
  const mt_simulation *simulation = step->plan->simulation;
  double simulated[MOTET_INSTRUCTION_KINDS] = {0};
  for (int64_t i = 0; i < program->rank_begin[program->ranks]; i++)
    simulated[program->instructions[i].kind] += simulation->finish[i] - simulation->start[i];
  mt_text_append(text, "{\"step\": %" PRId64, step->step);
  add_number(text, "measured", step->measure->makespan);
  add_number(text, "simulated", simulation->makespan);
  mt_text_append(text, ", \"ranks\": [");
  for (int32_t rank = 0; rank < program->ranks; rank++)
    mt_text_append(text, "%s[%.9g, %.9g]", rank > 0 ? ", " : "", step->measure->ranks[rank].busy,
                   simulation->ranks[rank].busy);
  mt_text_append(text, "], \"kinds\": {");
  const char *separator = "";
  for (int kind = 0; kind < MOTET_INSTRUCTION_KINDS; kind++) {
    if (step->measure->kinds[kind] == 0 && simulated[kind] == 0) continue;
    mt_text_append(text, "%s\"%s\": [%.9g, %.9g]", separator, motet_instruction_name(kind),
                   step->measure->kinds[kind], simulated[kind]);
    separator = ", ";
  }
  mt_text_append(text, "}}\n");
}

static motet_status add_scalars(mt_metrics *metrics, const mt_metrics_step *step, motet_error *error) {
  const mt_step_measure *measure = step->measure;
  double whole = measure->makespan * step->plan->program->ranks;
  const mt_tensorboard_scalar scalars[] = {
      {"loss", step->loss},
      {"learning_rate", step->learning_rate},
      {"gradient_norm", measure->gradient_norm},
      {"tokens_per_second", step->step_seconds > 0 ? (double)step->tokens / step->step_seconds : NAN},
      {"step_seconds", step->step_seconds},
      {"idle_share", whole > 0 ? 1 - measure->busy / whole : NAN},
      {"input_stall_seconds", measure->input_stall},
      {"mfu", step->mfu},
      {"memory_bytes", (double)measure->resident_bytes},
  };
  return mt_tensorboard_add(metrics->board, step->step, scalars, sizeof scalars / sizeof *scalars, error);
}

motet_status mt_metrics_add(mt_metrics *metrics, const mt_metrics_step *step, motet_error *error) {
  mt_text line = {0}, comparison = {0};
  print_metrics(step, &line);
  print_comparison(step, &comparison);
  motet_status status = append(metrics->metrics, metrics->metrics_path, &line, error);
  if (status == MOTET_OK) status = append(metrics->steps, metrics->steps_path, &comparison, error);
  if (status == MOTET_OK && metrics->board != NULL) status = add_scalars(metrics, step, error);
  mt_text_free(&line);
  mt_text_free(&comparison);
  return status;
}

motet_status mt_metrics_evaluation(mt_metrics *metrics, int64_t step, double loss, motet_error *error) {
  mt_text line = {0};
  mt_text_append(&line, "{\"step\": %" PRId64, step);
  add_number(&line, "eval_loss", loss);
  mt_text_append(&line, "}\n");
  motet_status status = append(metrics->evaluation, metrics->evaluation_path, &line, error);
  const mt_tensorboard_scalar scalar = {"eval_loss", loss};
  if (status == MOTET_OK && metrics->board != NULL)
    status = mt_tensorboard_add(metrics->board, step, &scalar, 1, error);
  mt_text_free(&line);
  return status;
}

static void print_times(mt_text *text, const char *key, const double *times, int64_t count) {
  mt_text_append(text, "\"%s\": [", key);
  for (int64_t i = 0; i < count; i++) mt_text_append(text, "%s%.9f", i > 0 ? ", " : "", times[i]);
  mt_text_append(text, "]");
}

static motet_status write_text(const mt_metrics *metrics, int64_t step, const char *kind, const mt_text *text,
                               motet_error *error) {
  const char *path =
      mt_arena_format(metrics->arena, "%s/step-%" PRId64 ".%s.json", metrics->timeline_dir, step, kind);
  if (path == NULL || text->failed) return mt_error_memory(error, text->length, "a timeline");
  return mt_file_write(path, text->data, text->length, error);
}

static motet_status write_times(const mt_metrics *metrics, int64_t step, const char *kind, const double *start,
                                const double *finish, int64_t count, motet_error *error) {
  mt_text times = {0};
  mt_text_append(&times, "{\"format\": \"motet-times-1\", ");
  print_times(&times, "start", start, count);
  mt_text_append(&times, ", ");
  print_times(&times, "finish", finish, count);
  mt_text_append(&times, "}\n");
  motet_status status = write_text(metrics, step, kind, &times, error);
  mt_text_free(&times);
  return status;
}

static motet_status write_flops(const mt_metrics *metrics, int64_t step, const mt_flops *flops,
                                motet_error *error) {
  const char *path = mt_arena_format(metrics->arena, "%s/step-%" PRId64 ".flops.json", metrics->timeline_dir, step);
  return path != NULL ? mt_flops_write(flops, path, error) : mt_error_memory(error, 0, "a path");
}

motet_status mt_metrics_timeline(mt_metrics *metrics, int64_t step, const mt_plan *plan, const double *start,
                                 const double *finish, motet_error *error) {
  const motet_program *program = plan->program;
  const char *path =
      mt_arena_format(metrics->arena, "%s/step-%" PRId64 ".program.json", metrics->timeline_dir, step);
  if (path == NULL) return mt_error_memory(error, 0, "a path");
  motet_status status = motet_program_write(program, path, error);
  mt_text trace = {0};
  int64_t count = program->rank_begin[program->ranks];
  mt_chrome_trace measured = {.program = program, .start = start, .finish = finish, .title = "measured"};
  if (status == MOTET_OK)
    status =
        write_times(metrics, step, "simulated", plan->simulation->start, plan->simulation->finish, count, error);
  if (status == MOTET_OK && plan->flops != NULL) status = write_flops(metrics, step, plan->flops, error);
  /* Who follows the run takes a step's timeline for whole when its measured times are there. */
  if (status == MOTET_OK) status = write_times(metrics, step, "times", start, finish, count, error);
  if (status == MOTET_OK) status = mt_report_chrome_trace(&measured, error, &trace);
  if (status == MOTET_OK) status = write_text(metrics, step, "trace", &trace, error);
  mt_text_free(&trace);
  return status;
}
