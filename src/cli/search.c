/* motet plan JOB.yaml --search */
#include "cli/search.h"

#include "cli/present.h"
#include "report/document.h"
#include "report/words.h"
#include "search/job.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What the signal handler may touch. */
static volatile sig_atomic_t interrupted;

static void on_interrupt(int number) {
  (void)number;
  interrupted = 1;
}

static bool stopped(void *context) {
  (void)context;
  return interrupted != 0;
}

static void show_progress(void *context, const mt_search_progress *progress) {
  bool terminal = *(const bool *)context;
  if (!terminal && progress->evaluated > 16 && progress->evaluated % 512 >= 16) return;
  fprintf(stderr, "%s%lld of %lld candidates", terminal ? "\r" : "", (long long)progress->evaluated,
          (long long)progress->candidates);
  if (isinf(progress->best_seconds))
    fprintf(stderr, ", none fits yet");
  else
    fprintf(stderr, ", best %.4g s, none below %.4g s", progress->best_seconds, progress->bound);
  fprintf(stderr, terminal ? "   " : "\n");
}

static const char *gigabytes(double bytes, char text[32]) {
  snprintf(text, 32, "%.1f GB", bytes / 1e9);
  return text;
}

/* ---- JSON ---- */

static json_t *candidate_value(const mt_search_space *space, const mt_search_candidate *c) {
  json_t *value = json_object();
  mt_arena *arena = mt_arena_create();
  char *schedule = arena != NULL ? mt_search_schedule(arena, space, c) : NULL;
  const struct {
    const char *name;
    int32_t number;
  } numbers[] = {{"tensor", c->tensor},
                 {"ulysses", c->ulysses},
                 {"ring", c->ring},
                 {"expert", c->expert},
                 {"encoder_tensor", c->encoder_tensor},
                 {"data", c->data},
                 {"pipeline", c->pipeline},
                 {"virtual", c->chunks},
                 {"dedicated", c->dedicated},
                 {"microbatch", c->microbatch},
                 {"microbatches", c->microbatches},
                 {"zero", c->zero},
                 {"shard_devices", c->shard_devices},
                 {"encoder_batch", c->encoder_batch}};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    json_object_set_new(value, numbers[i].name, json_integer(numbers[i].number));
  json_object_set_new(value, "placement", json_string(mt_search_manner_names[c->manner]));
  if (schedule != NULL) json_object_set_new(value, "schedule", json_string(schedule));
  mt_arena_destroy(arena);
  return value;
}

static json_t *search_value(const mt_search_space *space, const mt_search_result *result) {
  const mt_model *model = space->problem->architecture->model;
  json_t *value = json_object(), *split = json_array(), *seeds = json_array(), *savings = json_array();
  json_object_set_new(value, "end", json_string(result->end));
  json_object_set_new(value, "candidates", json_integer(result->candidates));
  json_object_set_new(value, "evaluated", json_integer(result->evaluated));
  json_object_set_new(value, "excluded_by_memory", json_integer(result->excluded));
  json_object_set_new(value, "bound", json_real(result->bound));
  json_object_set_new(value, "search_seconds", json_real(result->seconds));
  json_object_set_new(value, "plan", candidate_value(space, &result->best));
  for (int32_t s = 0; s < result->plan.split_count; s++)
    json_array_append_new(split, json_integer(result->plan.split[s]));
  json_object_set_new(value, "split", split);
  static const char *const names[MT_SAVINGS] = {"keep", "selective", "recompute", "offload"};
  for (int32_t l = 0; l < model->layer_count; l++)
    if (result->plan.savings[l] != MT_SAVING_ALL)
      json_array_append_new(savings, json_pack("{s:s, s:s}", "layer", model->layers[l].name, "saving",
                                               names[result->plan.savings[l]]));
  json_object_set_new(value, "savings", savings);
  json_object_set_new(value, "optimizer", json_string(result->plan.host_optimizer ? "host" : "device"));
  json_object_set_new(value, "host_bytes", json_real(result->plan.host_bytes));
  if (!isinf(result->runner_up_seconds)) {
    json_t *other = candidate_value(space, &result->runner_up);
    json_object_set_new(other, "step_seconds", json_real(result->runner_up_seconds));
    json_object_set_new(value, "runner_up", other);
  }
  for (int32_t i = 0; i < result->seed_count; i++)
    json_array_append_new(seeds, json_pack("{s:f, s:f}", "step_seconds", result->seed_seconds[i], "peak_bytes",
                                           result->seed_bytes[i]));
  json_object_set_new(value, "seeds", seeds);
  return value;
}

static json_t *extra_members(const mt_search_space *space, const mt_search_result *result) {
  const mt_plan *plan = &result->plan.plan;
  json_t *members = json_object(), *memory = mt_report_json_memory(plan->program, &plan->verification);
  json_object_set_new(members, "step_seconds", json_real(result->plan.seconds));
  json_object_set_new(members, "memory", memory);
  json_object_set_new(members, "search", search_value(space, result));
  return members;
}

/* ---- text ---- */

static void print_split(const mt_search_space *space, const mt_search_result *result, mt_text *text) {
  int32_t begin, end;
  mt_search_cut(space, &result->best, &begin, &end);
  mt_text_append(text, "layers      ");
  for (int32_t s = 0; s < result->plan.split_count; s++)
    mt_text_append(text, "%s%d", s > 0 ? " " : "", result->plan.split[s]);
  mt_text_append(text, " of the %s\n", begin == 0 ? "whole chain" : "trunk");
  const mt_model *model = space->problem->architecture->model;
  if (begin != 0) return;
  int32_t first = 0;
  for (int32_t j = 0; j < model->module_count && model->module_count > 1; j++) {
    mt_text_append(text, "  %-10s", model->modules[j].name);
    first = 0;
    for (int32_t s = 0; s < result->plan.split_count; s++) {
      int32_t last = first + result->plan.split[s];
      int32_t from = model->modules[j].layer_begin > first ? model->modules[j].layer_begin : first;
      int32_t to = model->modules[j].layer_end < last ? model->modules[j].layer_end : last;
      mt_text_append(text, "%s%d", s > 0 ? " " : "", to > from ? to - from : 0);
      first = last;
    }
    mt_text_append(text, "\n");
  }
}

static int32_t count_savings(const mt_search_space *space, const mt_search_result *result, mt_saving saving) {
  int32_t count = 0;
  for (int32_t l = 0; l < space->problem->architecture->model->layer_count; l++)
    count += result->plan.savings[l] == saving;
  return count;
}

static void print_savings(const mt_search_space *space, const mt_search_result *result, mt_text *text) {
  int32_t layers = space->problem->architecture->model->layer_count;
  int32_t again = count_savings(space, result, MT_SAVING_INPUT),
          host = count_savings(space, result, MT_SAVING_HOST);
  if (again > 0)
    mt_text_append(text, "saving      %d of %d layers compute their activations again\n", again, layers);
  if (host > 0)
    mt_text_append(text, "saving      %d of %d layers keep their activations in host memory\n", host, layers);
  if (result->plan.host_optimizer) mt_text_append(text, "saving      the optimizer's states lie in host memory\n");
  if (result->plan.host_bytes > 0)
    mt_text_append(text, "host memory %.1f GB a device at most\n", result->plan.host_bytes / 1e9);
}

/* What binds: the largest of memory, exchange and the idle times. */
static void print_reasons(const mt_search_space *space, const mt_search_result *result, mt_text *text) {
  const mt_simulation *simulation = result->plan.plan.simulation;
  double memory = result->plan.memory_bytes / space->problem->memory_bytes, idle = simulation->idle_share;
  double exchange = result->plan.exchange_seconds / result->plan.seconds;
  int32_t layers = space->problem->architecture->model->layer_count;
  bool saves = count_savings(space, result, MT_SAVING_ALL) < layers || result->plan.host_optimizer;
  int worst = 0;
  for (int c = 1; c < MT_IDLE_CAUSES; c++)
    if (simulation->idle_by_cause[c] > simulation->idle_by_cause[worst]) worst = c;
  mt_text_append(text, "binds       %s; idle %.1f%% of the time (most: ",
                 memory > 0.9 && saves && idle < 0.3 ? "memory"
                 : idle >= exchange                  ? "idle time"
                                                     : "links",
                 100 * idle);
  mt_words_key(text, mt_idle_cause_name((mt_idle_cause)worst));
  mt_text_append(text, "), exchanges %.1f%%, memory %.0f%% used\n", 100 * exchange, 100 * memory);
}

static void print_result(const mt_search_space *space, const mt_search_result *result, mt_text *text) {
  char bytes[32], cap[32];
  mt_text_append(text, "plan        ");
  mt_search_candidate_text(&result->best, text);
  mt_text_append(text, "\nstep        %.4g s, %.4g samples/s", result->plan.seconds,
                 space->problem->global_batch / result->plan.seconds);
  if (result->plan.seconds < result->judged_seconds * (1 - 1e-9))
    mt_text_append(text, " (%.4g s before its order was improved)", result->judged_seconds);
  if (strcmp(result->end, "complete") == 0)
    mt_text_append(text, "; no other candidate was faster\n");
  else
    mt_text_append(text, "; of those not looked at none is below %.4g s\n", result->bound);
  print_split(space, result, text);
  print_savings(space, result, text);
  mt_text_append(text, "memory      %s of %s on cell %d, at its worst microbatch\n",
                 gigabytes(result->plan.memory_bytes, bytes), gigabytes(space->problem->memory_bytes, cap),
                 result->plan.memory_rank);
  mt_text_append(text, "  by cell  ");
  for (int32_t r = 0; r < result->plan.plan.program->ranks; r++)
    mt_text_append(text, " %.1f", (double)result->plan.plan.verification.memory[r].peak_bytes / 1e9);
  mt_text_append(text, "\n");
  print_reasons(space, result, text);
  if (!isinf(result->runner_up_seconds)) {
    mt_text_append(text, "runner-up   ");
    mt_search_candidate_text(&result->runner_up, text);
    mt_text_append(text, ": %.4g s\n", result->runner_up_seconds);
  }
  if (result->seed_count > 0) {
    double least = INFINITY, most = 0, heaviest = 0;
    for (int32_t i = 0; i < result->seed_count; i++) {
      least = fmin(least, result->seed_seconds[i]);
      most = fmax(most, result->seed_seconds[i]);
      heaviest = fmax(heaviest, result->seed_bytes[i]);
    }
    mt_text_append(text, "other data  %.4g s to %.4g s, at most %s, over %d drawings\n", least, most,
                   gigabytes(heaviest, bytes), result->seed_count);
  }
  mt_text_append(
      text, "search      %s; %lld of %lld candidates simulated, %lld more do not fit by their weights alone\n\n",
      result->end, (long long)result->evaluated, (long long)result->candidates, (long long)result->excluded);
}

/* ---- the command ---- */

static int refuse(const mt_search_space *space, const mt_search_result *result, bool json) {
  motet_error error;
  char needed[32], cap[32], over[32], fitting[32];
  mt_text lightest = {0};
  if (result->lightest_known) mt_search_candidate_text(&result->lightest, &lightest);
  double bytes = result->least_bytes;
  if (strcmp(result->end, "complete") != 0) {
    mt_error_set(&error, MOTET_ERROR_ILLEGAL,
                 "the search ended (%s) before a plan that fits was found: %lld of %lld candidates were looked at; "
                 "accepted: more time, or fewer values under search",
                 result->end, (long long)result->evaluated, (long long)result->candidates);
    mt_error_rule(&error, "degrees", -1, -1, -1);
  } else if (isinf(bytes)) {
    mt_error_set(&error, MOTET_ERROR_ILLEGAL,
                 "no candidate is legal on %d devices with %d samples a step; accepted: other degrees or a larger "
                 "train.global_batch",
                 space->problem->cluster.devices, space->problem->global_batch);
    mt_error_rule(&error, "degrees", -1, -1, -1);
  } else {
    mt_error_set(
        &error, MOTET_ERROR_ILLEGAL,
        "nothing fits: of %lld candidates the lightest needs %s a device, %s more than the %s there are%s%s; "
        "accepted: memory of %s, more devices, or fewer trained modules",
        (long long)(result->candidates + result->excluded), gigabytes(bytes, needed),
        gigabytes(bytes - space->problem->memory_bytes, over), gigabytes(space->problem->memory_bytes, cap),
        lightest.data != NULL ? ": " : "", lightest.data != NULL ? lightest.data : "",
        gigabytes(ceil(1.02 * bytes / 1e8) * 1e8, fitting));
    mt_error_rule(&error, "memory", -1, -1, -1);
  }
  mt_text_free(&lightest);
  return mt_cli_fail(&error, json);
}

static int present(const mt_search_space *space, const mt_search_result *result,
                   const mt_job_plan_options *options) {
  motet_error error;
  motet_error_clear(&error);
  if (options->job_path != NULL && mt_search_job_write(space, result, options->job_path, &error) != MOTET_OK)
    return mt_cli_fail(&error, options->json);
  if (!options->json) {
    mt_text text = {0};
    print_result(space, result, &text);
    int code = text.failed ? MT_EXIT_FAILURE : mt_cli_print(text.data);
    mt_text_free(&text);
    if (code != MT_EXIT_DONE) return code;
  }
  json_t *members = options->json ? extra_members(space, result) : NULL;
  int code = mt_job_plan_present(&result->plan.plan, NULL, options, members);
  return code == MT_EXIT_DONE && interrupted ? MT_EXIT_INTERRUPTED : code;
}

int mt_search_plan_job(const char *path, int override_count, char *const *overrides, double time_limit,
                       const mt_job_plan_options *options) {
  motet_error error;
  motet_error_clear(&error);
  mt_search_problem *problem = NULL;
  mt_search_space space;
  mt_search_result result = {0};
  bool terminal = isatty(STDERR_FILENO);
  struct sigaction action = {.sa_handler = on_interrupt}, before;
  mt_arena *arena = mt_arena_create();
  motet_status status = arena != NULL ? mt_search_problem_read(path, override_count, overrides, &error, &problem)
                                      : mt_error_memory(&error, sizeof(void *), "a search");
  mt_search_options how = {
      .time_limit = time_limit, .seeds = 4, .stop = stopped, .progress = show_progress, .context = &terminal};
  interrupted = 0;
  sigaction(SIGINT, &action, &before);
  if (status == MOTET_OK) status = mt_search_run_problem(arena, problem, &how, &space, &error, &result);
  sigaction(SIGINT, &before, NULL);
  if (terminal && problem != NULL) fprintf(stderr, "\n");
  int code;
  if (status != MOTET_OK)
    code = mt_cli_fail(&error, options->json);
  else if (!result.found) {
    code = refuse(&space, &result, options->json);
    if (interrupted) code = MT_EXIT_INTERRUPTED;
  } else
    code = present(&space, &result, options);
  mt_plan_free(&result.plan.plan);
  mt_search_problem_destroy(problem);
  mt_arena_destroy(arena);
  return code;
}
