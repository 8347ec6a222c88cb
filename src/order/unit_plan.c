#include "order/unit_plan.h"

#include "order/layout_units.h"
#include "order/unit_costs.h"
#include "order/unit_simulation.h"

#include <stdlib.h>
#include <string.h>

enum { MICROBATCH_STAGES_MAX = 1 << 24 };

struct motet_plan {
  mt_arena *arena;
  mt_plan inner;
  motet_plan_result result;
};

/* What the steps of making a plan hand on. */
typedef struct workings {
  const motet_plan_options *options;
  mt_arena *arena;
  mt_schedule *schedule;
  mt_unit *units;
  int32_t unit_count;
  mt_model *model;
  int32_t *unit_of_module;
  const int32_t *split; /* [split_count] or NULL */
  int32_t split_count;
  mt_derivation *derivation;
  mt_unit_variation variation;
  mt_cost_table costs;
  mt_plan_replica *replicas;
} workings;

static int32_t replicas_of(const motet_plan_options *options) {
  return options->replicas > 0 ? options->replicas : 1;
}

/* About ten instructions for each microbatch and stage: beyond the limit a program takes gigabytes. */
static motet_status check_cells(const motet_plan_options *options, int32_t stages, motet_error *error) {
  int64_t rows = (int64_t)stages * replicas_of(options); /* each below 2^20 */
  if (rows <= MICROBATCH_STAGES_MAX / options->microbatches) return MOTET_OK;
  return mt_error_set(error, MOTET_ERROR_LIMIT,
                      "%lld stages, replicas counted, times %d microbatches are more than the %d microbatch-stages "
                      "that a plan may have",
                      (long long)rows, options->microbatches, MICROBATCH_STAGES_MAX);
}

static motet_status check_options(const motet_plan_options *options, motet_error *error) {
  if (options->layout != NULL && (options->schedule != NULL || options->split != NULL))
    return mt_error_set(error, MOTET_ERROR_ARGUMENT,
                        "a layout says which stages there are; a schedule or a split beside it has no place");
  if (options->layout != NULL && options->encode != NULL)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT,
                        "encode gives the times of a transpose or inline region; a layout has none");
  if ((options->schedule == NULL && options->layout == NULL) || options->unit == NULL)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT,
                        "a plan needs a schedule, as in '<vision: transpose, llm: 1f1b>', and "
                        "its times, as in 'vision: f=1; llm: f=1, b=2'");
  if (options->ranks < 1)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT, "ranks: %d; at least 1 is needed", options->ranks);
  if (options->microbatches < 1)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT, "microbatches: %d; at least 1 is needed",
                        options->microbatches);
  if (options->replicas < 0)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT, "replicas: %d; at least 1 is needed", options->replicas);
  if ((int64_t)options->ranks * replicas_of(options) > 1 << 20)
    return mt_error_set(error, MOTET_ERROR_LIMIT, "ranks times replicas: more than %d cannot be planned", 1 << 20);
  motet_status status = check_cells(options, options->ranks, error);
  if (status != MOTET_OK) return status;
  if (!(options->alpha_seconds >= 0) || !(options->beta_bytes_per_second >= 0) || options->bytes < 0 ||
      options->memory_cap_bytes < 0)
    return mt_error_set(error, MOTET_ERROR_ARGUMENT, "latency, bandwidth, bytes and memory cap cannot be negative");
  return MOTET_OK;
}

/* "a,b" as separate texts; NULL stays NULL. */
static motet_status split_names(mt_arena *arena, const char *text, motet_error *error, const char ***names,
                                int32_t *count) {
  *names = NULL;
  *count = 0;
  if (text == NULL) return MOTET_OK;
  char *copy = mt_arena_text(arena, text);
  *names = MT_ARENA_NEW(arena, const char *, strlen(text) + 1);
  if (copy == NULL || *names == NULL) return mt_error_memory(error, strlen(text), "module names");
  char *rest = NULL;
  for (char *name = strtok_r(copy, ", ", &rest); name != NULL; name = strtok_r(NULL, ", ", &rest))
    (*names)[(*count)++] = name;
  return MOTET_OK;
}

/* What is derived: a schedule over modules of its own size, or a layout over the layers that it names. */
static motet_status set_model(workings *work, motet_error *error) {
  const motet_plan_options *options = work->options;
  const char **trainable;
  int32_t trainable_count;
  motet_status status = mt_unit_parse(work->arena, options->unit, error, &work->units, &work->unit_count);
  if (status == MOTET_OK)
    status = split_names(work->arena, options->trainable, error, &trainable, &trainable_count);
  if (status != MOTET_OK) return status;
  if (options->layout == NULL) {
    work->split = options->split;
    work->split_count = options->split_count;
    status = mt_schedule_parse(work->arena, options->schedule, error, &work->schedule);
    return status == MOTET_OK ? mt_unit_model(work->arena, work->schedule, work->units, work->unit_count,
                                              options->ranks, work->split, work->split_count, trainable,
                                              trainable_count, error, &work->model, &work->unit_of_module)
                              : status;
  }
  mt_layout_units made;
  status = mt_layout_units_make(work->arena, options->layout, work->units, work->unit_count, options->ranks,
                                trainable, trainable_count, error, &made);
  if (status != MOTET_OK) return status;
  work->schedule = made.schedule;
  work->model = made.model;
  work->units = made.units;
  work->unit_count = made.unit_count;
  work->unit_of_module = made.unit_of_module;
  work->split = made.layout->split;
  work->split_count = made.layout->stage_count;
  return check_cells(options, made.layout->stage_count, error);
}

static motet_status derive(workings *work, motet_error *error) {
  const motet_plan_options *options = work->options;
  motet_status status = set_model(work, error);
  mt_derive_request request = {.model = work->model,
                               .schedule = work->schedule,
                               .ranks = options->ranks,
                               .microbatches = options->microbatches,
                               .split = work->split,
                               .split_count = work->split_count};
  if (status == MOTET_OK) status = mt_derive(work->arena, &request, error, &work->derivation);
  uint64_t *present = NULL;
  if (status == MOTET_OK)
    status = mt_unit_presence(work->arena, work->derivation, &work->variation, error, &present);
  /* Which modules vary follows from the regions, so presence takes a second derivation. */
  request.present = present;
  if (status == MOTET_OK && present != NULL) status = mt_derive(work->arena, &request, error, &work->derivation);
  return status;
}

/* Every stage alike: one entry, strides of zero. */
static motet_size_table one_size(int64_t *bytes) {
  return *bytes > 0 ? (motet_size_table){.values = bytes} : (motet_size_table){0};
}

static motet_status set_costs(workings *work, int32_t replica_count, motet_error *error) {
  const motet_plan_options *options = work->options;
  work->costs.links.local = (mt_link){options->alpha_seconds, options->beta_bytes_per_second};
  motet_status status = mt_unit_costs(work->arena, work->derivation, work->units, work->unit_count,
                                      work->unit_of_module, &work->variation, error, &work->costs);
  if (status != MOTET_OK) return status;
  int64_t *bytes = MT_ARENA_NEW(work->arena, int64_t, 1);
  work->replicas = MT_ARENA_NEW(work->arena, mt_plan_replica, replica_count);
  if (bytes == NULL || work->replicas == NULL)
    return mt_error_memory(error, (unsigned long long)replica_count * sizeof *work->replicas, "replicas");
  *bytes = options->bytes;
  for (int32_t d = 0; d < replica_count; d++)
    work->replicas[d] =
        (mt_plan_replica){.derivation = work->derivation,
                          .costs = &work->costs,
                          .sizes = {.output_bytes = one_size(bytes), .memory_cap = options->memory_cap_bytes}};
  return MOTET_OK;
}

static void fill_result(motet_plan *plan, const mt_derivation *derivation) {
  const mt_simulation *simulation = plan->inner.simulation;
  plan->result = (motet_plan_result){.schedule = derivation->text,
                                     .program = plan->inner.program,
                                     .makespan = simulation->makespan,
                                     .bound = plan->inner.bound,
                                     .idle_share = simulation->idle_share,
                                     .bubble_whole = simulation->bubble_whole,
                                     .bubble_stage = simulation->bubble_stage,
                                     .idle = mt_unit_idle(simulation->idle_by_cause),
                                     .peak_features = simulation->peak_features,
                                     .memory = plan->inner.verification.memory,
                                     .start = simulation->start,
                                     .finish = simulation->finish};
}

motet_status motet_plan_create(const motet_plan_options *options, motet_error *error, motet_plan **result) {
  *result = NULL;
  motet_error_clear(error);
  motet_status status = check_options(options, error);
  if (status != MOTET_OK) return status;
  int32_t replica_count = replicas_of(options);
  motet_plan *plan = calloc(1, sizeof *plan);
  if (plan != NULL) plan->arena = mt_arena_create();
  if (plan == NULL || plan->arena == NULL) {
    motet_plan_destroy(plan);
    return mt_error_memory(error, sizeof *plan, "a plan");
  }
  workings work = {.options = options,
                   .arena = plan->arena,
                   .variation = {.encode = options->encode, .encode_count = options->encode_count}};
  mt_plan_options how = {.simulate = {.timeline = true, .attribute = true}};
  status = derive(&work, error);
  if (status == MOTET_OK) status = set_costs(&work, replica_count, error);
  if (status == MOTET_OK)
    status = mt_plan_make(plan->arena, work.replicas, replica_count, &how, error, &plan->inner);
  if (status != MOTET_OK) {
    motet_plan_destroy(plan);
    return status;
  }
  fill_result(plan, work.derivation);
  *result = plan;
  return MOTET_OK;
}

void motet_plan_destroy(motet_plan *plan) {
  if (plan == NULL) return;
  mt_plan_free(&plan->inner);
  mt_arena_destroy(plan->arena);
  free(plan);
}

const motet_plan_result *motet_plan_get(const motet_plan *plan) { return &plan->result; }

const mt_plan *mt_unit_plan_inner(const motet_plan *plan) { return &plan->inner; }
